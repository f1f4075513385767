"""Links into the pages: stable ids, a link beside what has one, and redirects for what was renamed.

`chapters/moved.txt` holds the redirects, an old address and the new one a line.
`rope.book.tools.anchors` keeps the list of all addresses.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.util import logging
from sphinx_exercise.nodes import is_exercise_node, is_solution_node
from sphinx_proof.nodes import NODE_TYPES, proof_node

MOVED = Path("chapters", "moved.txt")
STATEMENTS = tuple(NODE_TYPES.values())
OF_CONTENTS = {"proof-content", "exercise-content", "solution-content"}
PERMALINK = '<a class="headerlink" href="#{id}" title="Link to this {kind}">#</a>'
# A page that was renamed. The script keeps what stands behind the #, which a refresh drops.
MOVED_PAGE = """\
<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>This page has moved</title>
<link rel="canonical" href="{uri}">
<script>location.replace("{uri}" + location.hash)</script>
<meta http-equiv="refresh" content="0; url={uri}">
<p>This page has moved: <a href="{uri}">{title}</a>.</p>
</html>
"""

log = logging.getLogger(__name__)


def read_moved(path: Path) -> dict[str, str]:
    """The redirects of a book: old address to new, each `page` or `page#anchor`.

    path: a file with two addresses a line; `#` at a line's start begins a comment.

    Raises ValueError: a line has not two addresses, or an old address has two lines.
    """
    moved: dict[str, str] = {}
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
        if not line.strip() or line.startswith("#"):
            continue
        match line.split():
            case [old, new] if old not in moved:
                moved[old] = new
            case _:
                raise ValueError(f"{path.name}: {line!r} is not one old address and its new one")
    return moved


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


def redirects(app: Any) -> dict[str, str]:
    """The redirects of this book that lead to a page of it."""
    moved = read_moved(Path(app.srcdir) / MOVED)
    return {old: new for old, new in moved.items() if new.partition("#")[0] in app.env.titles}


def warn_of_lost_pages(app: Any, env: Any) -> None:
    """Warn of each redirect to a page that is not there, or from one that is: the build stops."""
    moved = read_moved(Path(app.srcdir) / MOVED)
    for old in moved.keys() - redirects(app):
        log.warning("%s: %s leads to a page that is not there", MOVED.name, old)
    for old in moved.keys() & env.titles.keys():
        log.warning("%s: %s is a page of the book, and would be lost", MOVED.name, old)


def redirect_anchors(app: Any, doctree: nodes.document, page: str) -> None:
    """Put each old anchor of a page at its new place, or a line that leads to the page it is on."""
    for old, new in redirects(app).items():
        old_page, _, anchor = old.partition("#")
        new_page, _, target = new.partition("#")
        if old_page != page or not anchor:
            continue
        if new_page == page:
            found = (node for node in doctree.findall(nodes.Element) if target in node["ids"])
            place = next(found, None)
            if place is None:
                log.warning("%s: %s leads to #%s, which is not there", MOVED.name, old, target)
                continue
            place.parent.insert(place.parent.index(place), nodes.target("", "", ids=[anchor]))
        else:
            uri = app.builder.get_relative_uri(page, new_page) + (f"#{target}" if target else "")
            title = app.env.titles[new_page].astext()
            link = nodes.reference("", title, internal=True, refuri=uri)
            line = nodes.paragraph("", "This has moved: ", link, ids=[anchor])
            line["classes"].append("rope-moved")
            next(doctree.findall(nodes.section)).insert(1, line)


def write_moved_pages(app: Any, error: Exception | None) -> None:
    """Write a page at each old address of a page, which leads to the new one."""
    if error is not None or app.builder.name != "html":
        return
    for old, new in redirects(app).items():
        if "#" not in old:
            path = Path(app.outdir) / app.builder.get_target_uri(old)
            path.parent.mkdir(parents=True, exist_ok=True)
            uri, title = app.builder.get_relative_uri(old, new), app.env.titles[new].astext()
            path.write_text(MOVED_PAGE.format(uri=uri, title=title), encoding="utf-8")


def setup(app: Any) -> dict[str, Any]:
    """Register with Sphinx."""
    app.connect("env-check-consistency", warn_of_lost_pages)
    app.connect("doctree-resolved", name_the_nameless)
    app.connect("doctree-resolved", link_titles)
    app.connect("doctree-resolved", redirect_anchors)
    app.connect("build-finished", write_moved_pages)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
