"""A built page's article as Markdown that Colab, GitHub, VS Code and Jupyter all show.

markdownify turns HTML into Markdown. What is the book's own is here: formulas, numbered
statements, solutions, links, and a mark in the place of each code cell.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable

from bs4 import BeautifulSoup, Tag
from markdownify import MarkdownConverter

CELL = "[[cell]]"
NOT_WORDS = ".headerlink, .toctree-wrapper, noscript, script, .rope-live-note"
INLINE = {"a", "span", "p", "li", "dt", "td", "th"}


def to_markdown(article: Tag, address: Callable[[str], str | None], targets: set[str]) -> str:
    """An article, with the mark `CELL` in a line of its own for each code cell.

    article: as the page was built, numbers in their places; it is changed on the way.
    address: the place that a link leads to, from the page's `href`; None takes the link away.
    targets: the ids that links lead to, which alone are written.
    """
    for node in article.select(NOT_WORDS):
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
    text: str = Writer(address, targets).convert_soup(article)
    return re.sub(r"\n{3,}", "\n\n", text).strip()


class Writer(MarkdownConverter):
    """HTML as Markdown; each method writes one element, given the Markdown within it."""

    class Options:
        """Headings with #, lists with -."""

        heading_style = "atx"
        bullets = "-"

    def __init__(self, address: Callable[[str], str | None], targets: set[str]) -> None:
        super().__init__()
        self.address, self.targets = address, targets

    def escape(self, text: str, parent_tags: set[str]) -> str:
        """Words with the signs that Markdown would read taken for signs."""
        text = escaped(text)
        return text.replace("|", r"\|") if in_table(parent_tags) else text

    def process_tag(self, node: Tag, parent_tags: set[str] | None = None) -> str:
        """Any element, behind the id that a link leads to."""
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
        """A formula within a line."""
        if "math" not in classes(node):
            return text
        tex = formula(node)
        if in_table(parent_tags):  # a bar would end the table's cell
            tex = tex.replace(r"\|", r"\Vert ").replace("|", r"\vert ")
        return f"${tex}$"

    def convert_code(self, node: Tag, text: str, parent_tags: set[str]) -> str:
        """Code within a line."""
        code: str = super().convert_code(node, text, parent_tags)
        return code.replace("|", r"\|") if in_table(parent_tags) else code

    def convert_a(self, node: Tag, text: str, parent_tags: set[str]) -> str:
        """A link, or its words where what it leads to is in no notebook."""
        place = self.address(str(node.get("href", "")))
        return text if place is None else f"[{text}]({place})"

    def convert_div(self, node: Tag, text: str, parent_tags: set[str]) -> str:
        """A formula in lines of its own; a box, whose end is marked; or what is within."""
        kinds = classes(node)
        if "math" in kinds:
            number = node.select_one(".eqno")
            tag = f"\n\\tag{{{number.get_text()[1:-1]}}}" if number else ""
            return f"\n\n$$\n{formula(node)}{tag}\n$$\n\n"
        if "proof" in kinds and text.lstrip().startswith("Proof."):
            text = f"**Proof.**{text.strip().removeprefix('Proof.')} $\\square$"
        elif "admonition" in kinds and goes_on_in_words(node):
            gap = "\n\n" if text.rstrip().endswith("$$") else " "
            text = f"{text.rstrip()}{gap}$\\triangleleft$"
        whole: str = super().convert_div(node, text, parent_tags)
        return whole

    def convert_details(self, node: Tag, text: str, parent_tags: set[str]) -> str:
        """What opens at a click."""
        return f"\n\n{unfolding(node.summary.get_text())}\n\n{text.strip()}\n\n</details>\n\n"  # type: ignore[union-attr]

    def convert_summary(self, node: Tag, text: str, parent_tags: set[str]) -> str:
        """Nothing: `convert_details` writes it."""
        return ""

    def convert_dt(self, node: Tag, text: str, parent_tags: set[str]) -> str:
        """A term that is explained below it."""
        return f"\n\n**{text.strip().strip('*')}**\n\n"

    def convert_dd(self, node: Tag, text: str, parent_tags: set[str]) -> str:
        """What explains the term above it."""
        return f"\n\n{text.strip()}\n\n"


def escaped(text: str) -> str:
    r"""Words as Markdown: no emphasis, formula or element begins in them.

    >>> escaped("a_b costs $1, a < b")
    'a\\_b costs \\$1, a &lt; b'
    """
    return re.sub(r"([*_$`])", r"\\\1", text).replace("<", "&lt;")


def unfolding(title: str) -> str:
    """The first line of what opens at a click."""
    return f"<details><summary>{html.escape(' '.join(title.split()), quote=False)}</summary>"


def goes_on_in_words(node: Tag) -> bool:
    """Whether ordinary text follows a box, which without its frame would seem to be in it."""
    following = node.find_next_sibling()
    return following is not None and following.name in ("p", "ul", "ol")


def classes(node: Tag) -> set[str]:
    """An element's classes."""
    return set(node.get("class") or [])


def in_table(parents: set[str]) -> bool:
    """Whether an element with these parents stands in a table's cell."""
    return bool({"td", "th"} & parents)


def formula(node: Tag) -> str:
    r"""The TeX of a page's formula, without its delimiters and its number.

    >>> formula(BeautifulSoup(r'<span class="math">\(x\)</span>', "html.parser").span)
    'x'
    """
    text = "".join(node.find_all(string=True, recursive=False)).strip()[2:-2].strip()
    lines = r"\\begin{split}\s*(\\begin{aligned}.*\\end{aligned})\s*\\end{split}"
    return re.sub(lines, r"\1", text, flags=re.DOTALL)
