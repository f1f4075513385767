"""Formulas as MathML, made by the MathJax of the built pages in the browser that prints."""

from __future__ import annotations

import html
import re
import tempfile
import unicodedata
from pathlib import Path

from bs4 import Tag

from rope.book.paper.articles import Article
from rope.book.paper.browser import mathjax, offline_page

CONVERT = """async (formulas) => {
    const made = [];
    for (const [tex, display] of formulas)
        made.push(await MathJax.tex2mmlPromise(tex, {display}));
    return made;
}"""
Formula = tuple[str, bool]  # its TeX, and whether it stands in a line of its own


def replace_formulas(articles: list[Article], built: Path) -> None:
    """Put MathML in the place of every formula's TeX.

    built: the folder of the built pages, which has MathJax.

    Raises ValueError: MathJax cannot set a formula.
    """
    nodes = [node for article in articles for node in article.body.select(".math")]
    made = convert(sorted({formula(node) for node in nodes}), built)
    for article in articles:
        for node in article.body.select(".math"):
            number = node.select_one(".eqno")
            key = formula(node)
            token = f"[[{article.page.name} formula {len(article.pictures)}]]"
            article.pictures[token] = made[key]
            node.clear()
            node.extend([number, token] if number else [token])


def formula(node: Tag) -> Formula:
    """The TeX of one of the pages' formulas, without its delimiters and its number."""
    text = "".join(part for part in node.find_all(string=True, recursive=False)).strip()
    return text[2:-2].strip(), text.startswith(r"\[")


def convert(formulas: list[Formula], built: Path) -> dict[Formula, str]:
    """The MathML of each formula."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "mathjax.html"
        file.write_text(f"<!doctype html><title>formulas</title>{mathjax(built)}", encoding="utf-8")
        with offline_page(file) as page:
            made: list[str] = page.evaluate(CONVERT, formulas)
    wrong = [tex for (tex, _), text in zip(formulas, made, strict=True) if "<merror" in text]
    if wrong:
        raise ValueError(f"{len(wrong)} formulas cannot be set, first {wrong[0]!r}")
    return {key: plain(text, key[0]) for key, text in zip(formulas, made, strict=True)}


def plain(mathml: str, tex: str) -> str:
    """MathML as readers know it: Unicode's letters for variants, TeX for who cannot show it."""
    mathml = re.sub(r">\s+<", "><", mathml)
    mathml = re.sub(r' data-[\w-]+="[^"]*"', "", mathml)
    mathml = re.sub(r'<m(\w+) mathvariant="([\w-]+)">([^<]*)<', letter, mathml)
    label = html.escape(" ".join(tex.split()), quote=True)
    return mathml.replace("<math ", f'<math alttext="{label}" ', 1)


def letter(found: re.Match[str]) -> str:
    r"""A letter in a variant, such as double-struck, as Unicode's own: browsers ignore the name.

    >>> letter(re.match(r'<m(\w+) mathvariant="([\w-]+)">([^<]*)<',
    ...                 '<mi mathvariant="double-struck">R</mi>'))
    '<mi>ℝ<'
    """
    element, variant, text = found[1], found[2], html.unescape(found[3])
    if variant == "normal":
        return found[0]
    return f"<m{element}>{''.join(one_letter(sign, variant) for sign in text)}<"


def one_letter(sign: str, variant: str) -> str:
    """One sign in a variant of mathematics.

    Raises ValueError: Unicode has no such sign.
    """
    kind = variant.replace("-", " ").upper() if variant != "double-struck" else "DOUBLE-STRUCK"
    name = re.sub(
        r"^(LATIN|GREEK) |(?<=SMALL )LETTER |(?<=CAPITAL )LETTER ", "", unicodedata.name(sign)
    )
    for whole in (f"MATHEMATICAL {kind} {name}", f"{kind} {name}"):
        try:
            return unicodedata.lookup(whole)
        except KeyError:
            continue
    raise ValueError(f"no sign for {sign!r} in the variant {variant}; write it otherwise")
