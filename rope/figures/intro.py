"""The map on the front page: the chapters, what each needs, and links to them."""

from itertools import pairwise
from typing import Any

from matplotlib.patches import FancyBboxPatch

from rope.figures import Picture, picture, shapes, subplots
from rope.figures.style import BLUE, GREEN, MUTED, OCHRE, PURPLE, SKY, VERMILION

WIDTH, HEIGHT = 1.52, 0.5  # of a chapter's box
BOX = "round,pad=0.02,rounding_size=0.08"

# name: (column, row, two-line label); the row is also the part of the book.
CHAPTERS = {
    "why_position": (0, 0, "Why\nposition?"),
    "eulers_formula": (1, 0, "Euler's\nformula"),
    "rotation_in_two_dimensions": (0, 1, "Rotation in two\ndimensions"),
    "why_rotation": (1, 1, "Why\nrotation?"),
    "many_dimensions": (0, 2, "Many\ndimensions"),
    "properties": (1, 2, "Properties"),
    "from_maths_to_pytorch": (0, 3, "From maths\nto PyTorch"),
    "two_layouts": (1, 3, "Two\nlayouts"),
    "rotary_attention": (2, 3, "Rotary\nattention"),
    "precision": (0, 4, "How exact must\nit be?"),
    "longer_context": (1, 4, "Longer\ncontext"),
    "more_than_one_axis": (2, 4, "More than\none axis"),
    "on_the_gpu": (0, 5, "Bytes, kernels,\nlaunches"),
    "training": (0, 6, "What training\nshows"),
    "what_the_model_uses": (1, 6, "What the\nmodel uses"),
    "beyond_the_trained_length": (2, 6, "Beyond the\ntrained length"),
}
PARTS = (
    ("Rotation", BLUE),
    ("Two dimensions", GREEN),
    ("Many dimensions", PURPLE),
    ("In PyTorch", OCHRE),
    ("In real models", VERMILION),
    ("Fast", SKY),
    ("Evidence", GREEN),
)
PLACES = {name: (1.72 * col + 0.8, -0.98 * row) for name, (col, row, _) in CHAPTERS.items()}
ALSO = (
    ("why_position", "rotation_in_two_dimensions"),
    ("rotation_in_two_dimensions", "many_dimensions"),
    ("many_dimensions", "from_maths_to_pytorch"),
    ("properties", "rotary_attention"),
    ("from_maths_to_pytorch", "precision"),
    ("rotary_attention", "longer_context"),
    ("precision", "on_the_gpu"),
    ("longer_context", "beyond_the_trained_length"),
)


def book_map() -> Picture:
    """Sixteen chapters in seven rows, one row a part; on the built page each box is a link."""
    figure, ax = subplots(height=6.95)
    ax.set_axis_off()
    ax.set(xlim=(-0.05, 5.15), ylim=(-6.29, 0.62), aspect="equal")
    for row, (part, colour) in enumerate(PARTS):
        ax.text(0.3, 0.35 - 0.98 * row, part, style="italic")
        look: dict[str, Any] = {"fc": "none", "ec": colour, "linewidth": 1.8, "boxstyle": BOX}
        for name in (name for name, (_, at, _) in CHAPTERS.items() if at == row):
            (x, y), url = PLACES[name], f"{name}.html"
            corner = (x - WIDTH / 2, y - HEIGHT / 2)
            ax.add_patch(FancyBboxPatch(corner, WIDTH, HEIGHT, url=url, **look))
            ax.text(x, y, CHAPTERS[name][2], linespacing=1.25, url=url, **shapes.CENTRED)
    for start, end in pairwise(CHAPTERS):
        _arrow(ax, start, end, "-")
    for start, end in ALSO:
        _arrow(ax, start, end, (0, (3, 2)))
    return picture(
        figure,
        alt="The chapters in seven rows, read from left to right and top to bottom: Why position "
        "and Euler's formula; Rotation in two dimensions and Why rotation; Many dimensions and "
        "Properties; From maths to PyTorch, Two layouts and Rotary attention; How exact must it "
        "be, Longer context and More than one axis; Bytes, kernels, launches; What training "
        "shows, What the model uses and Beyond the trained length. Dashed arrows lead down the "
        "left column, from Properties to Rotary attention, and from there to Longer context "
        "and on to Beyond the trained length.",
    )


def _arrow(ax: Any, start: str, end: str, dash: Any) -> None:
    """From the border of one box to the border of the other."""
    (x0, y0), (x1, y1) = PLACES[start], PLACES[end]
    if y0 == y1:
        tail, tip = (x0 + WIDTH / 2 + 0.04, y0), (x1 - WIDTH / 2 - 0.04, y1)
    else:
        away = 0.0 if x0 == x1 else 0.25 if x1 > x0 else -0.25
        left = 0.56 if x0 == x1 else 0.0  # beside the name of the part
        tail = (x0 + away - left, y0 - HEIGHT / 2 - 0.04)
        tip = (x1 - 2.9 * away - left, y1 + HEIGHT / 2 + 0.04)
    shapes.arrow(ax, tail, tip, MUTED, linestyle=dash, linewidth=1, mutation_scale=11)
