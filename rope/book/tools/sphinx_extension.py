"""The book's Sphinx extension: style sheet, charts, and what must not ask for the network."""

from __future__ import annotations

import inspect
import os
import re
from importlib.metadata import version
from pathlib import Path
from typing import Any

import nbformat

import rope
from rope.book.figures.chart import VEGA_LITE
from rope.book.tools.notebooks import claim, code_cells

STATIC = Path(__file__).parent / "static"
MATHJAX = "tex-chtml.js"  # the build of MathJax that the pages load
# MathJax's other builds, the parts that this one holds, what serves no browser or a very old one.
# What the menu of a formula loads stays.
NOT_LOADED = ("mathjax/*.js", "mathjax/input/tex*.js", "locales/**/*.*", "**/*.map", "**/*.ttf")
# What the theme and the extensions write into pages, and what shall stand there.
MENDS = {
    # An error on every page opened from file://.
    r'\s*<link rel="preload" as="font"[^>]*>': "",
    # It would be read aloud in the place of the fold's own words, a tick's claim among them.
    r'<summary aria-label="Toggle hidden content">': "<summary>",
    # A list whose entries are none, and a role that is withdrawn.
    r' role="list"(?= class="citation-list")': "",
    r' role="doc-biblioentry"': "",
    # A line would break between a formula and its comma.
    r'[(“]*<span class="math [^<]*</span>[.,;:!?)”’]+': r'<span class="text-nowrap">\g<0></span>',
}


def set_up_config(app: Any, config: Any) -> None:
    """Say the version, show charts before their text form, offer Colab where it opens the book."""
    footer = config.html_theme_options.get("extra_footer", "")
    config.html_theme_options["extra_footer"] = footer.replace("{version}", rope.__version__)
    config.html_static_path.append(str(STATIC))
    config.nb_mime_priority_overrides = [
        *config.nb_mime_priority_overrides,
        ("html", "application/vnd.vegalite.v5+json", 5),
    ]
    # Colab opens notebooks from GitHub alone, and the theme stops at an address it does not know.
    if not config.html_theme_options.get("repository_url", "").startswith("https://github.com/"):
        config.html_theme_options |= {"launch_buttons": {}, "repository_url": ""}
    # Live kernels through thebe need a server elsewhere; its scripts are also emitted twice.
    for event, listeners in app.events.listeners.items():
        app.events.listeners[event] = [
            one for one in listeners if not one.handler.__module__.startswith("sphinx_thebe")
        ]


def name_folds(app: Any, page: str, source: list[str]) -> None:
    """Say of each folded cell what it holds: a check's claim is the first line of its code."""
    if not app.env.doc2path(page).endswith(".ipynb"):
        return
    notebook = nbformat.reads(source[0], as_version=4)
    for number, cell in enumerate(code_cells(notebook)):
        settings = cell["metadata"].setdefault("mystnb", {})
        said = claim(cell)
        if said:
            cell["source"] = cell["source"].partition("\n")[2]
        elif "figure" in settings:
            said = "Code of the figure"
        else:
            said = settings.get("code_prompt_show", "Code" if number else "Set-up")
        settings |= {"code_prompt_show": said, "code_prompt_hide": said}
    source[0] = nbformat.writes(notebook)


def write_in_parallel(app: Any, env: Any) -> None:
    """Write the pages on all cores; they were read on one, as some extensions can only be."""
    app.parallel = os.cpu_count() or 1


def write_vega(app: Any) -> None:
    """Write Vega, Vega-Lite and Vega-Embed as one classic script, which works from file://."""
    if app.builder.format != "html":
        return
    import vl_convert

    target = Path(app.outdir) / "_static" / "vega.js"
    made_by = f"// Vega-Lite {VEGA_LITE}, bundled by vl-convert {version('vl-convert-python')}\n"
    if target.exists() and target.read_text(encoding="utf-8").startswith(made_by):
        return
    bundle = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;", VEGA_LITE)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(f"{made_by}(function () {{\n{bundle}\n}})();\n", encoding="utf-8")


def leave_out_thebe(app: Any, page: str, template: str, context: Any, doctree: Any) -> None:
    """Take thebe's style sheet, which is no longer there, out of the page's head."""
    context["css_files"] = [css for css in context["css_files"] if "thebe" not in str(css.filename)]


def leave_out_unused(app: Any, error: Exception | None) -> None:
    """Take out files that no page loads; write out of the pages what `MENDS` names."""
    if error is not None or app.builder.format != "html":
        return
    static = Path(app.outdir) / "_static"
    for pattern in NOT_LOADED:
        for file in static.glob(pattern):
            if file.name != MATHJAX:
                file.unlink()
    for page in Path(app.outdir).rglob("*.html"):
        text = mended = page.read_text(encoding="utf-8")
        for fault, mend in MENDS.items():
            mended = re.sub(fault, mend, mended)
        if mended != text:
            page.write_text(mended, encoding="utf-8")


def list_arguments(
    app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]
) -> None:
    """Show what a docstring says of each argument as a list.

    In the code they are lines: `name, name: what it is`, `Returns ...`, `Raises ...`. The names
    are those of the signature; a class may go on with its attributes. In doctests there are none.
    """
    try:
        names = {*inspect.signature(obj).parameters}
    except (TypeError, ValueError):  # what cannot be called
        names = set()
    shown: list[str] = []
    in_list = in_doctest = False
    for number, line in enumerate(lines):
        in_doctest = bool(line.strip()) and (in_doctest or ">>>" in line)
        begun = re.match(r"([A-Za-z_]\w*(?:, [A-Za-z_]\w*)*): |(?:Returns|Raises) ", line)
        given = begun[1].split(", ") if begun and begun[1] else []
        fits = names.issuperset(given) or (number > 0 and not inspect.isroutine(obj))
        if begun and fits and not in_doctest:
            shown += [f"- {line}"] if in_list else ["", f"- {line}"]
            in_list = True
        else:
            in_list = in_list and bool(line.strip())
            shown.append(f"  {line}" if in_list else line)
    lines[:] = shown


def setup(app: Any) -> dict[str, Any]:
    """Register with Sphinx."""
    app.setup_extension("rope.book.tools.links")
    app.setup_extension("rope.book.tools.places")
    app.connect("config-inited", set_up_config)
    app.connect("builder-inited", write_vega)
    app.connect("source-read", name_folds)
    app.connect("env-updated", write_in_parallel)
    app.connect("html-page-context", leave_out_thebe)
    app.connect("build-finished", leave_out_unused)
    app.connect("autodoc-process-docstring", list_arguments, priority=900)
    app.add_css_file("book.css", priority=900)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
