"""The addresses that a link may lead to: those of the built pages, and the committed list of them.

`python -m rope.book.tools.anchors` adds what the pages have and the list has not; it drops nothing.
A link that was made to an address of the list keeps working: what the pages no longer have must be
redirected, by a line of `chapters/moved.txt`.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from pathlib import Path

from bs4 import BeautifulSoup, Tag

from rope.book.tools.links import MOVED, read_moved

HTML = Path("_build", "html")
LISTED = Path("chapters", "anchors.txt")
COMMAND = "make book && python -m rope.book.tools.anchors"
# What a reader may link to; headings are told by their section.
LINKED = "section[id] > :is(h1, h2, h3, h4, h5, h6), figure, table:has(caption), .proof, .exercise"
LINKED += ", .solution, div.math:has(> .eqno), div.citation"
# Left out, beside what is inside a drawing: the places of citations, which are counted, and the
# names of the library, whose changes have a page of their own.
LEFT_OUT = ".bibtex-citation, dt[id], [id^='module-']"
DRAWING = re.compile(r"<svg.*?</svg>", re.DOTALL)
# An id that was counted, not given, is another one after an edit.
COUNTED = re.compile(r"(\w+-|id)?\d+|proof|.*/.*")


def anchors(page: Tag) -> tuple[list[str], list[str]]:
    """The anchors of a page, and a sentence for each thing that has none, or one that will change.

    page: the page's article.
    """
    left_out = {id(tag) for tag in page.select(LEFT_OUT)}
    found = [str(tag["id"]) for tag in page.select("[id]") if id(tag) not in left_out]
    faults = [f"#{one} stands {n} times" for one, n in Counter(found).items() if n > 1]
    faults += [f"#{one} is counted, not given" for one in found if COUNTED.fullmatch(one)]
    for tag in page.select(LINKED):
        owner = tag.parent if re.fullmatch("h[1-6]", tag.name) else tag
        if not (owner and owner.get("id")):
            faults.append(f"no id: {tag.get_text(' ', strip=True)[:60]}")
    return found, faults


def built(html: Path) -> tuple[set[str], list[str]]:
    """The addresses of the built chapters, `page` and `page#anchor`, and their faults."""
    addresses, faults = set(), []
    for path in sorted((html / "chapters").glob("*.html")):
        page = path.relative_to(html).with_suffix("").as_posix()
        text = DRAWING.sub("", path.read_text(encoding="utf-8"))
        article = BeautifulSoup(text, "html.parser").article
        if article is None:  # a page that leads to another
            continue
        found, said = anchors(article)
        addresses |= {page, *(f"{page}#{anchor}" for anchor in found)}
        faults += [f"{page}: {fault}" for fault in said]
    return addresses, faults


def read_listed(path: Path) -> set[str]:
    """The addresses of the committed list."""
    return set(path.read_text(encoding="utf-8").split()) if path.exists() else set()


def arrives(address: str, pages: set[str], moved: dict[str, str]) -> bool:
    """Whether a link to an address arrives: at the page that has it, or at one it is led to.

    >>> arrives("old#a", {"new", "new#a"}, {"old": "new"})
    True
    >>> arrives("old#b", {"new", "new#a"}, {"old": "new"})
    False
    """
    page, mark, anchor = address.partition("#")
    return address in pages or (page in moved and moved[page] + mark + anchor in pages)


def compare(pages: set[str], listed: set[str], moved: dict[str, str]) -> list[str]:
    """A sentence for each address that is new, for each that is gone, and for each bad redirect.

    pages: the addresses of the built pages; listed: those of the list; moved: the redirects.
    """
    faults = [f"{one} is not in {LISTED}: add it by {COMMAND}" for one in sorted(pages - listed)]
    for one in sorted(listed):
        if not arrives(one, pages, moved):
            faults.append(
                f"{one} is gone, and links to it fail: give its place that name again, or lead "
                f"it to its new place by a line of {MOVED}"
            )
    for old, new in moved.items():
        if new in moved:
            faults.append(f"{MOVED} leads {old} to {new}, which moved too: lead it to {moved[new]}")
        elif not arrives(new, pages, moved):
            faults.append(f"{MOVED} leads {old} to {new}, which is not there")
        if not arrives(old, pages, moved):
            faults.append(f"{MOVED} leads {old} on, and no page has it")
    return faults


def main() -> int:
    """Add the anchors of the built pages to the list; say what is wrong with either."""
    pages, faults = built(HTML)
    if not pages:
        print(f"There are no built pages in {HTML}: make book first.", file=sys.stderr)
        return 1
    listed = read_listed(LISTED)
    LISTED.write_text("\n".join(sorted(listed | pages)) + "\n", encoding="utf-8")
    faults += compare(pages, listed | pages, read_moved(MOVED))
    print(f"{LISTED}: {len(listed | pages):,} addresses, {len(pages - listed):,} of them new.")
    print("\n".join(faults), end="\n" if faults else "", file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
