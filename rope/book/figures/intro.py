"""The map on the front page: the chapters, part by part, with links to them."""

from typing import Any

from matplotlib.patches import FancyBboxPatch

from rope.book.figures import Picture, picture, shapes, subplots
from rope.book.figures.style import BLUE, GREEN, OCHRE, PURPLE, SKY, VERMILION

WIDTH, HEIGHT = 1.2, 0.5  # of a chapter's box
COLUMNS, STEP, ROW = 4, 1.3, 0.9  # from one box to the next
BOX = "round,pad=0.02,rounding_size=0.08"

# A part, its colour, and its chapters by file with two-line labels.
PARTS: tuple[tuple[str, str, dict[str, str]], ...] = (
    ("Rotation", BLUE, {"why_position": "Why\nposition?", "eulers_formula": "Euler's\nformula"}),
    (
        "Two dimensions",
        GREEN,
        {"rotation_in_two_dimensions": "Two\ndimensions", "why_rotation": "Why\nrotation?"},
    ),
    (
        "Many dimensions",
        PURPLE,
        {"many_dimensions": "Many\ndimensions", "properties": "Properties"},
    ),
    (
        "In PyTorch",
        OCHRE,
        {
            "from_maths_to_pytorch": "From maths\nto PyTorch",
            "two_layouts": "Two\nlayouts",
            "rotary_attention": "Rotary\nattention",
            "keys_that_move": "Keys that\nmove",
            "is_my_rope_right": "Is my RoPE\nright?",
        },
    ),
    (
        "In real models",
        VERMILION,
        {
            "precision": "How exact\nmust it be?",
            "longer_context": "Longer\ncontext",
            "more_than_one_axis": "More than\none axis",
            "using_rope": "Using\nrope",
        },
    ),
    (
        "Fast",
        SKY,
        {"on_the_gpu": "Bytes, kernels,\nlaunches", "across_devices": "Across\ndevices"},
    ),
    (
        "Evidence",
        GREEN,
        {
            "training": "What training\nshows",
            "finding_a_token": "Finding\na token",
            "what_the_model_uses": "What the\nmodel uses",
            "beyond_the_trained_length": "Beyond the\ntrained length",
        },
    ),
    ("Explore", PURPLE, {"explorer": "The\nexplorer"}),
)


def book_map() -> Picture:
    """The chapters, each part in a colour; on the built page each box is a link."""
    figure, ax = subplots(height=8.0)
    ax.set_axis_off()
    y = 0.0
    for part, colour, chapters in PARTS:
        ax.text(0.08, y + 0.35, part, style="italic")
        look: dict[str, Any] = {"fc": "none", "ec": colour, "linewidth": 1.8, "boxstyle": BOX}
        for k, (name, words) in enumerate(chapters.items()):
            x, url = 0.65 + STEP * (k % COLUMNS), f"{name}.html"
            at = y - ROW * (k // COLUMNS)
            corner = (x - WIDTH / 2, at - HEIGHT / 2)
            ax.add_patch(FancyBboxPatch(corner, WIDTH, HEIGHT, url=url, **look))
            ax.text(x, at, words, linespacing=1.25, url=url, **shapes.CENTRED)
        y = at - ROW
    ax.set(xlim=(-0.05, 5.25), ylim=(y + 0.6, 0.62), aspect="equal")
    rows = "; ".join(
        f"{part}: " + ", ".join(words.replace("\n", " ") for words in chapters.values())
        for part, _, chapters in PARTS
    )
    return picture(
        figure,
        alt=f"The chapters, part by part, read from left to right and top to bottom. {rows}.",
    )
