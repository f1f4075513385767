"""Extend Sphinx for the book: styles, charts, folds, stable ids, permalinks, and offline pages."""

from __future__ import annotations

import html
import os
import re
from collections import Counter
from importlib.metadata import version
from pathlib import Path
from typing import Any

import nbformat
from docutils import nodes
from myst_nb.sphinx_ import HideCodeCellNode
from myst_nb.sphinx_ import depart_HideCellInput as close_fold
from sphinx_exercise.nodes import is_exercise_node, is_solution_node
from sphinx_proof.nodes import NODE_TYPES, proof_node

import rope
from rope.book.figures.chart import VEGA_LITE
from rope.book.tools.notebooks import check_label, code_cells, is_set_up

STATIC = Path(__file__).parent / "static"
STATEMENTS = tuple(NODE_TYPES.values())
CONTENT_IDS = {"proof-content", "exercise-content", "solution-content"}
PERMALINK = '<a class="headerlink" href="#{id}" title="Link to this {kind}">#</a>'
# Replacements in the HTML from the theme and its extensions, by regular expression.
REPLACEMENTS = {
    # Preloading a font causes an error on pages opened from file://.
    r'\s*<link rel="preload" as="font"[^>]*>': "",
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
    """Remove set-up code from a notebook, and label the other folds with their claim or title."""
    if not app.env.doc2path(page).endswith(".ipynb"):
        return
    notebook = nbformat.reads(source[0], as_version=4)
    for cell in code_cells(notebook):
        if is_set_up(cell):
            cell["metadata"]["tags"] = ["remove-input"]
            continue
        settings = cell["metadata"].setdefault("mystnb", {})
        label = check_label(cell).removeprefix("✓ ")
        if label:
            cell["source"] = cell["source"].partition("\n")[2]
        settings["code_prompt_show"] = label or settings.get("code_prompt_show", "")
    source[0] = nbformat.writes(notebook)


def place_folds(app: Any, doctree: nodes.document, page: str) -> None:
    """Move each piece of code below its output."""
    for cell in doctree.findall(nodes.container):
        if folds := [part for part in cell if isinstance(part, HideCodeCellNode)]:
            folds[0].parent = cell  # MyST-NB doesn't set the parent of every fold
            if folds[0] is cell[0]:
                cell.append(cell.pop(0))


def open_fold(self: Any, node: HideCodeCellNode) -> None:
    """Label a fold: ✓ for a check, "code" for code with visible output, and otherwise a title."""
    title = html.escape(
        re.sub(r"^Code( of the \w+)?(: |, |$)", "", node["prompt_show"]).replace("`", "")
    )
    only_code = [part["nb_element"] for part in node] == ["cell_code_source"]
    if "tag_check" in node.parent["classes"]:
        label = f'aria-label="Check: {title}" title="Check: {title}"'
        opener = f'<summary {label}>✓</summary>\n<p class="rope-claim">{title}</p>'
    elif only_code and len(node.parent) > 1:
        opener = "<summary>code</summary>"
    else:
        kind = "code and output" if node["prompt_show"].startswith("Code") else "data"
        kind = "code" if only_code else kind
        opener = f"<summary>{kind}{title and ': '}{title}</summary>"
    self.body.append(f'<details class="rope-fold">{opener}\n')


def write_in_parallel(app: Any, env: Any) -> None:
    """Write pages on all cores. Pages are read on one core, because some extensions require it."""
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
    """Remove the link to Thebe's style sheet from the page, because that file doesn't exist."""
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


def set_ids(app: Any, doctree: nodes.document, page: str) -> None:
    """Build ids for proofs and solutions from the labels of their statements and exercises.

    By default, solutions are numbered across the book, so their ids change when solutions are
    added, and all proofs on a page have the id "proof".
    """
    last = ""
    proofs: Counter[str] = Counter()
    for node in doctree.findall(nodes.Element):
        if isinstance(node, STATEMENTS):
            last = node["label"]
        elif isinstance(node, proof_node):
            proofs[last] += 1
            suffix = f"-{proofs[last]}" if proofs[last] > 1 else ""
            node[0]["ids"] = [f"proof-{last}{suffix}"]
        elif is_solution_node(node):
            node["ids"] = [f"solution-{node['target_label']}"]
        elif CONTENT_IDS.intersection(node["ids"]):
            node["ids"] = []


def link_titles(app: Any, doctree: nodes.document, page: str) -> None:
    """Add a permalink, like a heading's permalink, to the title of each statement and exercise."""
    if app.builder.format != "html":
        return
    for node in doctree.findall(
        lambda node: isinstance(node, STATEMENTS) or is_exercise_node(node)
    ):
        kind = node.get("realtype", "exercise")
        node[0] += nodes.raw("", PERMALINK.format(id=node["ids"][0], kind=kind), format="html")


def list_arguments(
    app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]
) -> None:
    """Format the arguments, results, and exceptions in a docstring as a list.

    Each item starts a line: `name, name: description`, `Returns ...`, or `Raises ...`. Doctests are
    not changed.
    """
    shown: list[str] = []
    in_list = in_doctest = False
    for line in lines:
        in_doctest = bool(line.strip()) and (in_doctest or ">>>" in line)
        item = re.match(r"[A-Za-z_]\w*(, [A-Za-z_]\w*)*: |(Returns|Raises) ", line)
        if item and not in_doctest:
            shown += [f"- {line}"] if in_list else ["", f"- {line}"]
            in_list = True
        else:
            in_list = in_list and bool(line.strip())
            shown.append(f"  {line}" if in_list else line)
    lines[:] = shown


def setup(app: Any) -> dict[str, Any]:
    """Register the extension with Sphinx."""
    app.connect("config-inited", set_up_config)
    app.connect("builder-inited", write_vega)
    app.connect("source-read", name_folds)
    app.connect("doctree-resolved", set_ids)
    app.connect("doctree-resolved", link_titles)
    app.connect("doctree-resolved", place_folds)
    app.add_node(HideCodeCellNode, override=True, html=(open_fold, close_fold))
    app.connect("env-updated", write_in_parallel)
    app.connect("html-page-context", drop_thebe)
    app.connect("build-finished", replace_html)
    app.connect("autodoc-process-docstring", list_arguments, priority=900)
    app.add_css_file("book.css", priority=900)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
