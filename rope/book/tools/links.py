"""Links into the pages: ids that say what they name, and a link beside what has one."""

from __future__ import annotations

from collections import Counter
from typing import Any

from docutils import nodes
from sphinx_exercise.nodes import is_exercise_node, is_solution_node
from sphinx_proof.nodes import NODE_TYPES, proof_node

STATEMENTS = tuple(NODE_TYPES.values())
OF_CONTENTS = {"proof-content", "exercise-content", "solution-content"}
PERMALINK = '<a class="headerlink" href="#{id}" title="Link to this {kind}">#</a>'


def name_the_nameless(app: Any, doctree: nodes.document, page: str) -> None:
    """Give proofs and solutions an id from what they belong to, and contents none.

    The extensions count solutions over the whole book, and call every proof of a page "proof".
    """
    last = ""
    proofs: Counter[str] = Counter()
    for node in doctree.findall(nodes.Element):
        if isinstance(node, STATEMENTS):
            last = node["label"]
        elif isinstance(node, proof_node):
            proofs[last] += 1
            again = f"-{proofs[last]}" if proofs[last] > 1 else ""
            node[0]["ids"] = [f"proof-{last}{again}"]
        elif is_solution_node(node):
            node["ids"] = [f"solution-{node['target_label']}"]
        elif OF_CONTENTS.intersection(node["ids"]):
            node["ids"] = []


def link_titles(app: Any, doctree: nodes.document, page: str) -> None:
    """Put a link to itself behind the title of each statement and exercise, as headings have."""
    if not getattr(app.builder, "add_permalinks", False):  # a book on paper has none
        return
    for node in doctree.findall(
        lambda node: isinstance(node, STATEMENTS) or is_exercise_node(node)
    ):
        kind = node.get("realtype", "exercise")
        node[0] += nodes.raw("", PERMALINK.format(id=node["ids"][0], kind=kind), format="html")


def setup(app: Any) -> dict[str, Any]:
    """Register with Sphinx."""
    app.connect("doctree-resolved", name_the_nameless)
    app.connect("doctree-resolved", link_titles)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
