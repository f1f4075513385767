"""The map on the front page, with links to the chapters, and the moving picture of README.md."""

import math
from itertools import groupby
from operator import itemgetter

from matplotlib.patches import FancyBboxPatch

from rope.book.figures import Picture, picture, shapes, subplots
from rope.book.figures.rotation_in_two_dimensions import THETA, K, Q
from rope.book.figures.style import BLUE, GREEN, INK, MUTED, OCHRE, PAPER, PURPLE, SKY, VERMILION
from rope.reference import score

WIDTH, HEIGHT = 1.28, 0.5  # of a chapter's box
COLUMNS, STEP, ROW = 4, 1.38, 0.6  # from one box to the next
PART = 0.9  # from a part's last row to the next part
BOX = "round,pad=0.02,rounding_size=0.08"

COLOURS = (BLUE, INK, GREEN, PURPLE, OCHRE, VERMILION, SKY)  # one a part

# README's picture. The key's n runs to LAST; the query is AHEAD of it (left), or stays at LAST.
# Where nothing moves, n is LAST - AHEAD, and both halves show the same pair.
LAST, AHEAD, UNIT = 24, 9, 90  # UNIT: pixels of a length, and of a score, of 1
LOOKS = f"""text{{font:22px system-ui,sans-serif;fill:{INK};paint-order:stroke}}
text{{stroke:{PAPER};stroke-width:6}}path,circle{{fill:none;stroke:{MUTED};stroke-width:1.5}}
.q path{{stroke:{BLUE};stroke-width:4}}.k path{{stroke:{VERMILION};stroke-width:4}}
path.bar{{stroke:{GREEN};stroke-width:14}}"""

ROAD = "The road"
#: The part, the file and the words of each chapter.
CHAPTERS = (
    (ROAD, "why_position", "Why\nposition?"),
    (ROAD, "eulers_formula", "Euler's\nformula"),
    (ROAD, "rotation_in_two_dimensions", "Two\ndimensions"),
    (ROAD, "why_rotation", "Why\nrotation?"),
    (ROAD, "many_dimensions", "Many\ndimensions"),
    (ROAD, "from_maths_to_pytorch", "From maths\nto PyTorch"),
    (ROAD, "two_layouts", "Two\nlayouts"),
    (ROAD, "rotary_attention", "Rotary\nattention"),
    (ROAD, "on_the_gpu", "Bytes and\nkernels"),
    (ROAD, "training", "What\ntraining shows"),
    ("Build it", "build_your_own", "Build it\nyourself"),
    ("Angles", "properties", "Properties"),
    ("Angles", "precision", "How exact\nmust it be?"),
    ("Angles", "longer_context", "Longer\ncontext"),
    ("Angles", "more_than_one_axis", "More than\none axis"),
    ("Angles", "rotations_that_commute", "Rotations\nthat commute"),
    ("Decoding and devices", "keys_that_move", "Keys that\nmove"),
    ("Decoding and devices", "rotated_values", "Rotated\nvalues"),
    ("Decoding and devices", "across_devices", "Across\ndevices"),
    ("At work", "using_rope", "Using\nrope"),
    ("At work", "is_my_rope_right", "Is my RoPE\nright?"),
    ("Evidence", "finding_a_token", "Finding\na token"),
    ("Evidence", "what_the_model_uses", "What the\nmodel uses"),
    ("Evidence", "beyond_the_trained_length", "Beyond the\ntrained length"),
    ("Explore", "explorer", "The\nexplorer"),
)


def book_map() -> Picture:
    """The chapters, each part in a colour; on the built page each box is a link."""
    figure, ax = subplots(height=7.1)
    ax.set_axis_off()
    y, rows = 0.0, []
    for (part, chapters), colour in zip(groupby(CHAPTERS, key=itemgetter(0)), COLOURS, strict=True):
        ax.text(0.08, y + 0.35, part, style="italic")
        labels = []
        for k, (_, name, words) in enumerate(chapters):
            x, url = 0.65 + STEP * (k % COLUMNS), f"{name}.html"
            at = y - ROW * (k // COLUMNS)
            box = FancyBboxPatch(
                (x - WIDTH / 2, at - HEIGHT / 2), WIDTH, HEIGHT, boxstyle=BOX, url=url,
                facecolor="none", edgecolor=colour, linewidth=1.8,
            )  # fmt: skip
            ax.add_patch(box)
            if part == ROAD:
                words = f"{k + 1}. {words}"
            ax.text(x, at, words, linespacing=1.25, url=url, **shapes.CENTRED)
            labels.append(words.replace("\n", " "))
        rows.append(f"{part}: {', '.join(labels)}")
        y = at - PART
    ax.set(xlim=(-0.05, 5.5), ylim=(y + 0.6, 0.62), aspect="equal")
    return picture(
        figure,
        alt="The chapters, part by part, read from left to right and top to bottom; those of the "
        "road are numbered. "
        f"{'; '.join(rows)}.",
    )


def readme() -> str:
    """README's picture, an SVG that moves by CSS; `static/readme.svg` holds what this returns."""
    turn, steps = math.degrees(THETA), range(LAST + 1)
    both = [(n + AHEAD, score(Q, K, n + AHEAD, n, [THETA])) for n in steps]
    alone = [(LAST, score(Q, K, LAST, n, [THETA])) for n in steps]
    moves = {
        "turn": [f"rotate({-n * turn:.1f}deg)" for n in steps],
        "upright": [f"rotate({n * turn:.1f}deg)" for n in steps],
        "roll": [f"translate(0px,{-40 * n}px)" for n in steps],
        "swing": [f"translate({8 * n}px,0px) scale(1,{alone[n][1]:.3f})" for n in steps],
    }
    css = ""
    for move, states in moves.items():  # half of the time it rests, at an n
        at = [f"{max(0, n - 0.25) / LAST:.1%},{min(LAST, n + 0.25) / LAST:.1%}" for n in steps]
        rests = "".join(f"{a}{{transform:{state}}}" for a, state in zip(at, states, strict=True))
        css += f"\n@keyframes {move}{{{rests}}}\n.{move}{{animation:{move} 20s infinite alternate}}"

    def moving(move: str, inner: str) -> str:
        still = moves[move][LAST - AHEAD].replace("px", "").replace("deg", "")
        return f'<g class="{move}" transform="{still}">{inner}</g>'

    def arrow(name: str, vector: tuple[float, float], position: int, letter: str) -> str:
        angle = math.degrees(math.atan2(vector[1], vector[0])) + position * turn
        tip = UNIT * math.hypot(*vector)
        return f"""<g class="{name}" transform="rotate({-angle:.1f})">
<path d="M0 0h{tip:.1f}m-14 -7l14 7l-14 7"/>
<g transform="translate({tip + 15:.1f}) rotate({angle:.1f})">{letter}</g></g>"""

    def half(x: int, title: str, arrows: str, bar: str, pairs: list[tuple[int, float]]) -> str:
        said = [f"m = {m}, n = {n}: q · k = {one:.2f}" for n, (m, one) in enumerate(pairs)]
        lines = "".join(f'<text y="{40 * n}">{line}</text>' for n, line in enumerate(said))
        return f"""<g transform="translate({x} 160)"><text x="-110" y="-124">{title}</text>
<circle r="{UNIT}"/>{arrows}<g transform="translate(140)">{bar}</g><g clip-path="url(#line)"
transform="translate(-110 132)">{moving("roll", lines.replace("-", "−"))}</g></g>"""

    q, k = (f'<text x="-7" y="6">{letter}</text>' for letter in "qk")
    key, bar = arrow("k", K, 0, moving("upright", k)), f'<path class="bar" d="M0 0v{-UNIT}"/>'
    pair = moving("turn", arrow("q", Q, AHEAD, moving("upright", q)) + key)
    pair_alone = arrow("q", Q, LAST, q) + moving("turn", key)
    stays = f'<path d="M-12 0h24"/><g transform="scale(1 {both[0][1]:.3f})">{bar}</g>'
    curve = " ".join(f"{8 * n},{-UNIT * one:.1f}" for n, (_, one) in enumerate(alone))
    swings = f'<path d="M-12 0h216M{curve}"/>{moving("swing", bar)}'
    return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 860 310" role="img">
<title>A score depends on the offset alone</title>
<desc>Two query arrows q and key arrows k, each pair with a bar, its dot product. Left, both
positions move on by one, again and again: the arrows turn together, and the angle between them
and the bar stay. Right, the key's position moves alone: the bar swings along a cosine.</desc>
<style>{LOOKS}
@media (prefers-reduced-motion:no-preference){{{css}}}</style>
<clipPath id="line"><path d="M0 -24h400v32h-400"/></clipPath>
<path d="M0 0h860v310h-860" style="fill:{PAPER};stroke:none"/>
{half(130, "Both move on: the score stays", pair, stays, both)}
{half(500, "Only the key moves: the score swings", pair_alone, swings, alone)}
</svg>
"""
