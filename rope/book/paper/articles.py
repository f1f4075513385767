"""The pages' articles as a still page can hold them: no control, no fold, links within the book.

Every id is `page--id`, so that all articles stand in one document; each page's own id is its name.
"""

from __future__ import annotations

import html
import json
import re
from collections import Counter
from dataclasses import dataclass

from bs4 import BeautifulSoup, Tag

from rope.book.mime import still_chart
from rope.book.paper.browser import DRAWN_BY_SCRIPT, photos
from rope.book.paper.pages import Book, Page
from rope.book.paper.pictures import controls, still_drawing

TOKEN = re.compile(r"\[\[\w+ (?:drawing|chart|formula|photo) \d+\]\]")
NOT_ON_PAPER = ".headerlink, .toctree-wrapper, noscript, .rope-live-note"
# What would be dead on paper; an article that still has one is not clean.
AS_IT_OPENS = "In the browser this figure moves. Here it is as it opens."
CONTROLS = "button, input, select, details, script, iframe, video, canvas"


@dataclass
class Article:
    """A page's article, cleaned; the pictures that its tokens stand for."""

    page: Page
    title: str
    body: Tag
    pictures: dict[str, str]

    def html(self) -> str:
        """The article's HTML with its pictures in their places."""
        return put_back(str(self.body), self.pictures)


def read_articles(book: Book) -> list[Article]:
    """Every page of the book, cleaned, in order.

    Raises ValueError: a page holds what has no form on paper, or a link leads nowhere.
    """
    articles = [clean(page) for page in book.pages]
    link(articles)
    return articles


def clean(page: Page) -> Article:
    """One page's article; its links still lead where the page's do."""
    text, pictures = take_out_drawings(page.file.read_text(encoding="utf-8"), page.name)
    article = BeautifulSoup(text, "html.parser").select_one("article")
    if article is None or article.h1 is None:
        raise ValueError(f"{page.file} has no article with a heading")
    stop_charts(article, pictures, page.name)
    take_photos(article, pictures, page)
    for node in article.select(NOT_ON_PAPER):
        node.decompose()
    unfold(article)
    own_ids(article, page.name)
    move_solutions(article, page.name)
    for code in article.select("pre"):
        code.string = code.get_text()  # black on paper, and a tenth of the elements
    for wide in article.select(".pst-scrollable-table-container"):
        wide.unwrap()
    left = article.select_one(CONTROLS)
    if left is not None:
        raise ValueError(f"{page.name}: no form on paper for {str(left)[:100]!r}")
    title = " ".join(article.h1.get_text().split())
    article.name, article["class"], article["id"] = "section", "chapter", page.name
    return Article(page, title, article, pictures)


def take_out_drawings(text: str, name: str) -> tuple[str, dict[str, str]]:
    """The page with a token for each drawing: an HTML parser would spell SVG's names small."""
    pictures: dict[str, str] = {}

    def keep(found: re.Match[str]) -> str:
        token = f"[[{name} drawing {len(pictures)}]]"
        pictures[token] = still_drawing(found[0])
        return f'<div class="picture">{token}</div>'

    return re.sub(r'<div class="rope-picture".*?</svg>\s*</div>', keep, text, flags=re.S), pictures


def put_back(text: str, pictures: dict[str, str]) -> str:
    """The text with each token's picture in its place."""
    return TOKEN.sub(lambda found: pictures[found[0]], text)


def stop_charts(article: Tag, pictures: dict[str, str], name: str) -> None:
    """Put each moving figure's stored state in its place, with a line on what moves it."""
    for number, box in enumerate(article.select(".rope-chart")):
        script = box.select_one('script[type="application/json"]')
        if script is None:
            raise ValueError(f"{name}: chart {number} has no JSON")
        spec = json.loads(script.get_text())
        token = f"[[{name} chart {number}]]"
        pictures[token] = still_chart(spec, f"{name}-{number}")
        picture = fragment(f'<div class="picture chart">{token}</div>')
        box.replace_with(picture, fragment(f'<p class="moves">{controls(spec)}</p>'))


def take_photos(article: Tag, pictures: dict[str, str], page: Page) -> None:
    """Put a picture of each figure that a script of its own draws, as it opens, in its place."""
    boxes = article.select(DRAWN_BY_SCRIPT)
    for number, (box, image) in enumerate(zip(boxes, photos(page.file, len(boxes)), strict=True)):
        token = f"[[{page.name} photo {number}]]"
        label = html.escape(str(box["aria-label"]), quote=True)
        pictures[token] = f'<img alt="{label}" src="data:image/png;base64,{image}"/>'
        picture = fragment(f'<div class="picture photo">{token}</div>')
        box.replace_with(picture, fragment(f'<p class="moves">{AS_IT_OPENS}</p>'))


def unfold(article: Tag) -> None:
    """Ticks as their one line; folded code away; folded text open."""
    for fold in article.select("details"):
        cell = fold.find_parent("div", class_="cell")
        if cell is None or fold.select_one(".cell_input") is None:
            raise ValueError(f"a fold that holds no code: {fold.get_text()[:80]!r}")
        if "tag_check" in cell["class"] and fold.summary is not None and fold.summary.p is not None:
            line = html.escape(fold.summary.p.get_text().strip())
            fold.replace_with(fragment(f'<p class="tick">{line}</p>'))
        else:
            fold.decompose()
    for cell in article.select("div.cell"):
        if not cell.get_text(strip=True):
            cell.decompose()


def move_solutions(article: Tag, name: str) -> None:
    """Put the solutions at the article's end; each exercise and its solution link to each other."""
    solutions = article.select("div.solution")
    if not solutions:
        return
    start = f'<section class="solutions" id="{name}--solutions"><h2>Solutions</h2></section>'
    section = fragment(start)
    for solution in solutions:
        title = solution.select_one("p.admonition-title a")
        exercise = title and article.find(id=f"{name}--{plain_id(str(title['href'])[1:])}")
        if not isinstance(exercise, Tag):
            raise ValueError(f"{name}: a solution without an exercise: {solution.get_text()[:80]}")
        link = f'<a class="paged" data-page="000" href="#{solution["id"]}">Solution</a>'
        exercise.append(fragment(f'<p class="to-solution">{link}</p>'))
        section.append(solution.extract())
    article.append(section)


def fragment(text: str) -> Tag:
    """One element from its HTML."""
    element = BeautifulSoup(text, "html.parser").find()
    assert isinstance(element, Tag)
    return element


def plain_id(own: str) -> str:
    """An id that XML takes too."""
    return re.sub(r"[^\w.-]", "-", own)


def own_ids(article: Tag, name: str) -> None:
    """Name ids after their page; drop those that say what a thing is and not which."""
    nodes = article.find_all(id=True)
    times = Counter(node["id"] for node in nodes)
    for node in nodes:
        own = node.attrs.pop("id")
        if times[own] == 1:
            node["id"] = f"{name}--{plain_id(str(own))}"


def link(articles: list[Article]) -> None:
    """Turn links between pages into links within the book; take away those to what is not in it.

    Raises ValueError: a link leads to a place that is not there.
    """
    names = {article.page.name for article in articles}
    there = {str(node["id"]) for article in articles for node in article.body.find_all(id=True)}
    there |= names
    broken = []

    def within(href: str, own: str) -> str | None:
        """The link's form in the book: as it is to the web, None to a page that is not here."""
        if re.match(r"https?:|mailto:", href):
            return href
        path, _, place = href.partition("#")
        name = path.removesuffix(".html").rpartition("/")[2] if path else own
        if name not in names:
            return None
        target = f"{name}--{plain_id(place)}" if place else name
        if target not in there:
            broken.append(f"{own}: {href}")
        return f"#{target}"

    for article in articles:
        name = article.page.name
        for node in article.body.select("a[href]"):
            href = str(node["href"])
            if href.startswith(f"#{name}--"):
                continue
            inside = within(href, name)
            if inside is None:  # the index, a list of all theorems: paper has none
                node.unwrap()
            else:
                node["href"] = inside
        for token, picture in article.pictures.items():
            for href in set(re.findall(r'href="([^"#:]+\.html[^"]*)"', picture)):
                inside = within(href, name)
                if inside is None:
                    broken.append(f"{name}: {href} in a figure")
                picture = picture.replace(f'"{href}"', f'"{inside}"')
            article.pictures[token] = picture
    if broken:
        raise ValueError(f"{len(broken)} links lead nowhere: {'; '.join(broken[:5])}")
