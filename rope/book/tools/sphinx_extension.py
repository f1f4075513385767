"""Extend Sphinx for the book: add styles and charts, label folds, and make pages work offline."""

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
from rope.book.tools.notebooks import check_label, code_cells

STATIC = Path(__file__).parent / "static"
# Patterns for HTML from the theme and its extensions, and the replacements.
REPLACEMENTS = {
    # Preloading a font causes an error on pages opened from file://.
    r'\s*<link rel="preload" as="font"[^>]*>': "",
    # A screen reader would read this label instead of the fold's own title.
    r'<summary aria-label="Toggle hidden content">': "<summary>",
    # The entries of this list lack the role `listitem`, and `doc-biblioentry` is deprecated.
    r' role="list"(?= class="citation-list")': "",
    r' role="doc-biblioentry"': "",
    # Wrap a formula and its punctuation, so that no line breaks between them.
    r'[(“]*<span class="math [^<]*</span>[.,;:!?)”’]+': r'<span class="text-nowrap">\g<0></span>',
}


def set_up_config(app: Any, config: Any) -> None:
    """Fill in the version, show charts instead of text, and offer Colab only on GitHub."""
    footer = config.html_theme_options.get("extra_footer", "")
    config.html_theme_options["extra_footer"] = footer.replace("{version}", rope.__version__)
    config.html_static_path.append(str(STATIC))
    config.html_search_scorer = str(STATIC / "search_scores.js")
    config.nb_mime_priority_overrides = [
        *config.nb_mime_priority_overrides,
        ("html", "application/vnd.vegalite.v5+json", 5),
    ]
    # Colab opens only notebooks on GitHub, and the theme raises an error for unknown hosts.
    if not config.html_theme_options.get("repository_url", "").startswith("https://github.com/"):
        config.html_theme_options |= {"launch_buttons": {}, "repository_url": ""}
    # Disable Thebe, because its live kernels need an external server.
    for event, listeners in app.events.listeners.items():
        app.events.listeners[event] = [
            one for one in listeners if not one.handler.__module__.startswith("sphinx_thebe")
        ]


def name_folds(app: Any, page: str, source: list[str]) -> None:
    """Label each folded code cell with a check's claim, or with the kind of code it contains."""
    if not app.env.doc2path(page).endswith(".ipynb"):
        return
    notebook = nbformat.reads(source[0], as_version=4)
    for number, cell in enumerate(code_cells(notebook)):
        settings = cell["metadata"].setdefault("mystnb", {})
        label = check_label(cell)
        if label:
            cell["source"] = cell["source"].partition("\n")[2]
        elif "figure" in settings:
            label = "Code of the figure"
        else:
            label = settings.get("code_prompt_show", "Code" if number else "Setup")
        settings |= {"code_prompt_show": label, "code_prompt_hide": label}
    source[0] = nbformat.writes(notebook)


def write_in_parallel(app: Any, env: Any) -> None:
    """Write pages on all cores. Pages are read on one core, as some extensions require."""
    app.parallel = os.cpu_count() or 1


def write_vega(app: Any) -> None:
    """Bundle Vega, Vega-Lite, and Vega-Embed into one classic script, which works from file://."""
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


def drop_thebe(app: Any, page: str, template: str, context: Any, doctree: Any) -> None:
    """Remove Thebe's style sheet from the page, because the file doesn't exist."""
    context["css_files"] = [css for css in context["css_files"] if "thebe" not in str(css.filename)]


def replace_html(app: Any, error: Exception | None) -> None:
    """Apply `REPLACEMENTS` to every built page."""
    if error is not None or app.builder.format != "html":
        return
    for page in Path(app.outdir).rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        for pattern, replacement in REPLACEMENTS.items():
            text = re.sub(pattern, replacement, text)
        page.write_text(text, encoding="utf-8")


def list_arguments(
    app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]
) -> None:
    """Format a docstring's arguments, results, and exceptions as a list.

    Each item starts a line: `name, name: description`, `Returns ...`, or `Raises ...`. The names
    must be parameters; a class may also list attributes. Doctests are not changed.
    """
    try:
        names = {*inspect.signature(obj).parameters}
    except (TypeError, ValueError):  # the object can't be called
        names = set()
    shown: list[str] = []
    in_list = in_doctest = False
    for number, line in enumerate(lines):
        in_doctest = bool(line.strip()) and (in_doctest or ">>>" in line)
        item = re.match(r"([A-Za-z_]\w*(?:, [A-Za-z_]\w*)*): |(?:Returns|Raises) ", line)
        listed = item[1].split(", ") if item and item[1] else []
        fits = names.issuperset(listed) or (number > 0 and not inspect.isroutine(obj))
        if item and fits and not in_doctest:
            shown += [f"- {line}"] if in_list else ["", f"- {line}"]
            in_list = True
        else:
            in_list = in_list and bool(line.strip())
            shown.append(f"  {line}" if in_list else line)
    lines[:] = shown


def setup(app: Any) -> dict[str, Any]:
    """Register the extension with Sphinx."""
    app.setup_extension("rope.book.tools.links")
    app.connect("config-inited", set_up_config)
    app.connect("builder-inited", write_vega)
    app.connect("source-read", name_folds)
    app.connect("env-updated", write_in_parallel)
    app.connect("html-page-context", drop_thebe)
    app.connect("build-finished", replace_html)
    app.connect("autodoc-process-docstring", list_arguments, priority=900)
    app.add_css_file("book.css", priority=900)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
