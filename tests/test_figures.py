"""Test what all figures share: their look, their stored form, and their colors in each theme."""

import json
import re
import xml.etree.ElementTree as ElementTree
from itertools import pairwise
from pathlib import Path

import altair as alt
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rope.book.figures import Picture, chart, picture, style, subplots
from rope.book.figures.seeds import LOOKS, OTHERS, apart, look
from rope.book.mime import THEME_COLORS, chart_box, inline_svg
from rope.book.training import POSITIONS

ROOT = Path(__file__).parents[1]
CHAPTERS, CSS = ROOT / "chapters", ROOT / "rope" / "book" / "tools" / "static" / "book.css"
THEME_BACKGROUNDS = {"light": "#ffffff", "dark": "#121212"}  # of pydata-sphinx-theme 0.15


def luminance(color: str) -> float:
    """Return the relative luminance that WCAG 2 defines."""
    parts = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return float(np.dot(linear, [0.2126, 0.7152, 0.0722]))


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def css_colors(theme: str) -> dict[str, str]:
    selector = r"html\[data-theme=\"dark\"\]" if theme == "dark" else "html"
    block = re.search(rf"^{selector} \{{(.*?)\}}", CSS.read_text(encoding="utf-8"), re.M | re.S)
    assert block is not None
    return dict(re.findall(r"(--rope-[a-z]+): (#[0-9a-f]{6})", block[1]))


def drawing() -> Picture:
    figure, axes = subplots()
    x = np.linspace(0, 6, 50)
    axes.plot(x, np.sin(x), label=r"$\sin m\theta_0$")
    axes.fill_between(x, -0.2, 0.2, alpha=0.3)
    axes.set_xlabel("theta = 0.123456")
    axes.legend()
    return picture(figure, alt='A sine, "so called", with a < b & c.')


@pytest.mark.parametrize("color", style.COLORS)
def test_colors_contrast_with_every_background(color):
    for background in (style.PAPER, *THEME_BACKGROUNDS.values()):
        assert contrast(color, background) >= 3


@pytest.mark.parametrize("theme", THEME_BACKGROUNDS)
def test_page_colors_contrast_with_the_theme(theme):
    colors = css_colors(theme)
    named = set(re.findall(r"var\((--rope-[a-z]+)\)", " ".join(THEME_COLORS.values())))
    assert named - {"--rope-paper"} == set(colors)
    for name, color in colors.items():
        if name != "--rope-grid":
            assert contrast(color, THEME_BACKGROUNDS[theme]) >= 3, name


def test_a_picture_is_identical_every_time_and_names_nothing_of_its_machine():
    one, two = drawing(), drawing()
    assert one.svg == two.svg
    assert not re.search(r"<dc:|matplotlib|\d{4}-\d{2}-\d{2}|<style|DOCTYPE", one.svg)
    numbers = one.svg.replace("0.123456", "", 1)
    assert len(numbers) < len(one.svg) and not re.search(r"\d\.\d{3,}", numbers)
    ids = set(re.findall(r' id="([^"]*)"', one.svg))
    assert ids
    assert all(re.fullmatch(r"i\d+", name) for name in ids)
    refers = re.findall(r'(?:url\(#|href="#)([^)"]+)', one.svg)
    assert set(refers) == ids
    assert 'role="img"' in one.svg and style.PAPER in one.svg
    text = "".join(ElementTree.fromstring(one.svg).itertext())
    assert "θ" in text and 'A sine, "so called", with a < b & c.' in text


def test_the_page_takes_the_themes_colors_and_keeps_ids_apart():
    one, other = inline_svg(drawing().svg, "1-0"), inline_svg(drawing().svg, "2-0")
    for stored in (style.INK, style.PAPER, *style.COLORS):
        assert stored not in one
    assert "currentColor" in one
    assert "var(--rope-blue)" in one
    ids = re.findall(r' id="([^"]*)"', one)
    assert ids
    assert not set(ids) & set(re.findall(r' id="([^"]*)"', other))
    assert 'aria-label="A sine, &quot;so called&quot;, with a &lt; b &amp; c."' in one


def test_a_chart_on_the_page_cannot_end_its_script():
    mark = {"type": "text", "text": "</script>", "color": style.INK}
    box = chart_box({"description": "a </script> b", "mark": mark, "data": {"values": [{}]}})
    assert box.count("</script>") == 1 and style.INK not in box
    assert "needs JavaScript. a &lt;/script&gt; b</p></noscript>" in box


def stored(mime):
    """Yield each stored output of this type and the name of its chapter."""
    for path in sorted(CHAPTERS.glob("*.ipynb")):
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
            for data in (output.get("data", {}) for output in cell.get("outputs", [])):
                if mime in data:
                    yield path.stem, data


def test_each_stored_picture_fits_a_phone_and_has_its_alt_text():
    outputs = list(stored("image/svg+xml"))
    assert len(outputs) > 30
    for chapter, data in outputs:
        svg = "".join(data["image/svg+xml"])
        page = inline_svg(svg)
        narrowest = re.search(r"--rope-narrowest: (\d+)px", page)
        # Ten-point text in a figure 5.2 inches wide, displayed at 9 px.
        assert int(narrowest[1]) <= 0.9 * 5.2 * 72 + 1, chapter
        assert not re.search(r"\bnan\b", svg), chapter
        assert "<image" not in svg, chapter  # its bytes would depend on the machine's zlib
        described = "".join(data["text/plain"]).removeprefix("Figure: ")
        assert ElementTree.fromstring(page)[0].get("aria-label") == described, chapter


def test_each_chart_is_stored_with_its_description():
    outputs = [data for _, data in stored(chart.MIME)]
    assert len(outputs) > 10
    for data in outputs:
        assert "".join(data["text/plain"]) == f"Figure: {data[chart.MIME]['description']}"
    bare = alt.Chart(chart.data(x=[1])).mark_point().encode(x="x:Q")
    finished = chart.finish(bare, alt_text="One point.", play={"signal": "x", "max": 2})
    bundle = finished._repr_mimebundle_()
    assert set(bundle) == {chart.MIME, "text/plain"}
    assert bundle["text/plain"] == "Figure: One point."
    assert bundle[chart.MIME]["usermeta"] == {"play": {"signal": "x", "max": 2}}


def test_each_line_and_each_method_has_its_own_look():
    assert len(set(style.COLORS)) == len(set(style.DASHES)) == len(style.COLORS)
    assert set(LOOKS) == {*POSITIONS, "p-rope"}
    assert len({look(name, LOOKS)["color"] for name in POSITIONS}) == len(POSITIONS)
    assert len({str(look(name, LOOKS)["linestyle"]) for name in LOOKS}) == len(LOOKS)
    assert len(set(OTHERS)) == len({dash for _, dash in OTHERS}) == len(OTHERS)
    assert {color for _, color, _ in LOOKS.values()} <= set(THEME_COLORS)


@given(st.lists(st.floats(0, 100), min_size=1, max_size=8).map(sorted))
def test_labels_end_up_apart_and_no_farther_than_they_must(places):
    moved = apart(places, gap=10, top=100)
    assert all(b - a >= 10 - 1e-9 for a, b in pairwise(moved))
    assert moved[0] >= -1e-9 and moved[-1] <= 100 + 1e-9
    if all(b - a >= 10 for a, b in pairwise(places)):
        assert moved == pytest.approx(places)
