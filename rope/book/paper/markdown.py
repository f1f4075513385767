"""Convert a built page's article to Markdown that Colab, GitHub, VS Code, and Jupyter can display.

markdownify converts plain HTML. This module handles the book's own elements: formulas, numbered
statements, folded solutions, and links. A placeholder marks each code cell.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable

from bs4 import BeautifulSoup, Tag
from markdownify import MarkdownConverter

from rope.book.paper.pages import BROWSER_ONLY

CELL = "[[cell]]"
INLINE = {"a", "span", "p", "li", "dt", "td", "th"}


def to_markdown(article: Tag, address: Callable[[str], str | None], targets: set[str]) -> str:
    """Return an article as Markdown, with the line `CELL` in place of each code cell.

    article: the article of a built page; this function modifies the article.
    address: given a link's `href`, returns the link's new target, or None to remove the link.
    targets: the ids that links point to; each becomes an anchor.
    """
    for node in article.select(f"{BROWSER_ONLY}, script"):
        node.decompose()
    for cell in article.select("div.cell"):
        cell.replace_with(BeautifulSoup(f"<p>{CELL}</p>", "html.parser"))
    for number in article.select(".caption-number"):
        number.string = number.get_text().strip()
        if number.find_parent(class_="admonition-title") is None:
            number.name = "strong"
            number.insert_after(" ")
    for label in article.select("div.citation > .label"):
        label.name = "strong"
        label.find_next_sibling("p").insert(0, label, " ")  # type: ignore[union-attr]
    for title in article.select(".admonition-title"):
        for part in title.select("a"):
            part.unwrap()
        title.name = "strong"
        title.wrap(BeautifulSoup("", "html.parser").new_tag("p"))
    for fold in article.select("div.dropdown"):
        fold.name = "details"
        fold.strong.name = "summary"  # type: ignore[union-attr]
    text: str = Converter(address, targets).convert_soup(article)
    return re.sub(r"\n{3,}", "\n\n", text).strip()


class Converter(MarkdownConverter):
    """Convert HTML to Markdown. Each `convert_*` method converts one kind of element."""

    class Options:
        """Write headings with `#` and list items with `-`."""

        heading_style = "atx"
        bullets = "-"

    def __init__(self, address: Callable[[str], str | None], targets: set[str]) -> None:
        super().__init__()
        self.address, self.targets = address, targets

    def escape(self, text: str, parent_tags: set[str]) -> str:
        """Return plain text escaped for Markdown; in a table, escape vertical bars, too."""
        text = escaped(text)
        return text.replace("|", r"\|") if in_table(parent_tags) else text

    def process_tag(self, node: Tag, parent_tags: set[str] | None = None) -> str:
        """Return an element as Markdown. If a link points to the element, an anchor precedes it."""
        text: str = super().process_tag(node, parent_tags)
        own = node.get("id")
        if own not in self.targets:
            return text
        anchor = f'<a id="{own}"></a>'
        within = node.parent.name if node.name == "span" and node.parent else node.name
        if within in INLINE or in_table(parent_tags or set()):
            return anchor + text
        return f"\n\n{anchor}\n\n{text.lstrip()}"

    def convert_span(self, node: Tag, text: str, parent_tags: set[str]) -> str:
        """Return a formula between dollar signs. Return the text of any other span."""
        if "math" not in classes(node):
            return text
        tex = formula(node)
        if in_table(parent_tags):  # a vertical bar would end the table cell
            tex = tex.replace(r"\|", r"\Vert ").replace("|", r"\vert ")
        return f"${tex}$"

    def convert_code(self, node: Tag, text: str, parent_tags: set[str]) -> str:
        """Return inline code; in a table, escape its vertical bars."""
        code: str = super().convert_code(node, text, parent_tags)
        return code.replace("|", r"\|") if in_table(parent_tags) else code

    def convert_a(self, node: Tag, text: str, parent_tags: set[str]) -> str:
        """Return a link, or only its text if `address` returns None for the target."""
        place = self.address(str(node.get("href", "")))
        return text if place is None else f"[{text}]({place})"

    def convert_div(self, node: Tag, text: str, parent_tags: set[str]) -> str:
        """Return a display formula and its number, or a proof with a mark at its end."""
        kinds = classes(node)
        if "math" in kinds:
            number = node.select_one(".eqno")
            tag = f"\n\\tag{{{number.get_text()[1:-1]}}}" if number else ""
            return f"\n\n$$\n{formula(node)}{tag}\n$$\n\n"
        if "proof" in kinds and text.lstrip().startswith("Proof."):
            text = f"**Proof.**{text.strip().removeprefix('Proof.')} $\\square$"
        return super().convert_div(node, text, parent_tags)

    def convert_details(self, node: Tag, text: str, parent_tags: set[str]) -> str:
        """Return a box that opens on a click."""
        return f"\n\n{unfolding(node.summary.get_text())}\n\n{text.strip()}\n\n</details>\n\n"  # type: ignore[union-attr]

    def convert_summary(self, node: Tag, text: str, parent_tags: set[str]) -> str:
        """Return nothing, because `convert_details` writes the title."""
        return ""

    def convert_dt(self, node: Tag, text: str, parent_tags: set[str]) -> str:
        """Return a defined term in bold."""
        return f"\n\n**{text.strip().strip('*')}**\n\n"

    def convert_dd(self, node: Tag, text: str, parent_tags: set[str]) -> str:
        """Return the definition of a term as a paragraph."""
        return f"\n\n{text.strip()}\n\n"


def escaped(text: str) -> str:
    r"""Escape the characters that would start Markdown emphasis, code, a formula, or HTML.

    >>> escaped("a_b costs $1, a < b")
    'a\\_b costs \\$1, a &lt; b'
    """
    return re.sub(r"([*_$`])", r"\\\1", text).replace("<", "&lt;")


def unfolding(title: str) -> str:
    """Return the HTML that starts a folded box with this title."""
    return f"<details><summary>{html.escape(' '.join(title.split()), quote=False)}</summary>"


def classes(node: Tag) -> set[str]:
    """Return the set of an element's CSS classes."""
    return set(node.get("class") or [])


def in_table(parents: set[str]) -> bool:
    """Return True if any parent is a table cell."""
    return bool({"td", "th"} & parents)


def formula(node: Tag) -> str:
    r"""Return the TeX code of a formula on a page, without its delimiters or equation number.

    >>> formula(BeautifulSoup(r'<span class="math">\(x\)</span>', "html.parser").span)
    'x'
    """
    text = "".join(node.find_all(string=True, recursive=False)).strip()[2:-2].strip()
    lines = r"\\begin{split}\s*(\\begin{aligned}.*\\end{aligned})\s*\\end{split}"
    return re.sub(lines, r"\1", text, flags=re.DOTALL)
