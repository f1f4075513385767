"""Give proofs and solutions stable ids; add permalinks to statements and exercises."""

from __future__ import annotations

from collections import Counter
from typing import Any

from docutils import nodes
from sphinx_exercise.nodes import is_exercise_node, is_solution_node
from sphinx_proof.nodes import NODE_TYPES, proof_node

STATEMENTS = tuple(NODE_TYPES.values())
CONTENT_IDS = {"proof-content", "exercise-content", "solution-content"}
PERMALINK = '<a class="headerlink" href="#{id}" title="Link to this {kind}">#</a>'


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


def setup(app: Any) -> dict[str, Any]:
    """Register the extension with Sphinx."""
    app.connect("doctree-resolved", set_ids)
    app.connect("doctree-resolved", link_titles)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
