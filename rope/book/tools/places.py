"""The places that the search finds by their titles: pages, sections, questions, other names.

Sphinx's search lists whole pages. `places.js` puts before them the places whose title holds the
words of the query; their list is written at the build.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from docutils import nodes

LIST = "places-list.js"
SIGNS = {r"\theta": "θ", r"\omega": "ω", r"\ldots": "…", r"\dots": "…"}
# The heading of a table with our names on the left and those of others on the right.
OTHER_NAMES = "Also called"


def places(doctree: nodes.document) -> Iterator[tuple[str, str]]:
    """The title and the id of each place of a page, "" for the page; a term gets an id."""
    for node in doctree.findall(nodes.Element):
        if isinstance(node, nodes.section) and isinstance(node[0], nodes.title):
            of_page = isinstance(node.parent, nodes.document)
            yield words(node[0]), "" if of_page else node["ids"][0]
            if words(node[0]) == OTHER_NAMES:
                for ours, others in (row.children[:2] for row in node.findall(nodes.row)):
                    for other in words(others).split(", "):
                        yield f"{other}, here {words(ours)}", node["ids"][0]
        elif isinstance(node, nodes.term):
            node["ids"] = node["ids"] or [nodes.make_id(words(node))]
            yield words(node), node["ids"][0]


def words(node: nodes.Node) -> str:
    r"""What an element says, on one line, and of formulas what letters can say.

    >>> words(nodes.paragraph("", "", nodes.math(text=r"\theta_j"), nodes.Text(" and so on")))
    'θ_j and so on'
    """
    text = " ".join(node.astext().split())
    for tex, sign in SIGNS.items():
        text = text.replace(tex, sign)
    return re.sub(r"\\(?:\w+{)?|[{}$]", "", text)


def collect(app: Any, doctree: nodes.document) -> None:
    """Note the places of a page that was read."""
    vars(app.env).setdefault("rope_places", {})[app.env.docname] = [*places(doctree)]


def write_list(app: Any, env: Any) -> None:
    """Write the list of the places of all pages."""
    if app.builder.format != "html":
        return
    found = [
        [page, env.titles[page].astext(), title, place]
        for page, listed in sorted(env.rope_places.items())
        for title, place in listed
    ]
    target = Path(app.outdir) / "_static" / LIST
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(f"const PLACES = {json.dumps(found, ensure_ascii=False)};\n", "utf-8")


def add_script(app: Any, page: str, template: str, context: Any, doctree: Any) -> None:
    """Load the list and the script on the page of the search alone."""
    if page == "search":
        app.add_js_file(LIST, loading_method="defer")
        app.add_js_file("places.js", loading_method="defer")


def setup(app: Any) -> dict[str, Any]:
    """Register with Sphinx."""
    app.connect("doctree-read", collect)
    app.connect("env-updated", write_list)
    app.connect("html-page-context", add_script)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
