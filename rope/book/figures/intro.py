"""The map on the front page: the chapters, part by part, with links to them."""

from itertools import groupby
from operator import itemgetter

from matplotlib.patches import FancyBboxPatch

from rope.book.figures import Picture, picture, shapes, subplots
from rope.book.figures.style import BLUE, GREEN, OCHRE, PURPLE, SKY, VERMILION

WIDTH, HEIGHT = 1.2, 0.5  # of a chapter's box
COLUMNS, STEP, ROW = 4, 1.3, 0.9  # from one box to the next
BOX = "round,pad=0.02,rounding_size=0.08"

COLOURS = (BLUE, GREEN, PURPLE, OCHRE, VERMILION, SKY, GREEN, PURPLE)  # one a part

#: The part, the file and the words of each chapter.
CHAPTERS = (
    ("Rotation", "why_position", "Why\nposition?"),
    ("Rotation", "eulers_formula", "Euler's\nformula"),
    ("Two dimensions", "rotation_in_two_dimensions", "Two\ndimensions"),
    ("Two dimensions", "why_rotation", "Why\nrotation?"),
    ("Many dimensions", "many_dimensions", "Many\ndimensions"),
    ("Many dimensions", "properties", "Properties"),
    ("In PyTorch", "from_maths_to_pytorch", "From maths\nto PyTorch"),
    ("In PyTorch", "two_layouts", "Two\nlayouts"),
    ("In PyTorch", "rotary_attention", "Rotary\nattention"),
    ("In PyTorch", "keys_that_move", "Keys that\nmove"),
    ("In PyTorch", "is_my_rope_right", "Is my RoPE\nright?"),
    ("In real models", "precision", "How exact\nmust it be?"),
    ("In real models", "longer_context", "Longer\ncontext"),
    ("In real models", "more_than_one_axis", "More than\none axis"),
    ("In real models", "using_rope", "Using\nrope"),
    ("Fast", "on_the_gpu", "Bytes, kernels,\nlaunches"),
    ("Fast", "across_devices", "Across\ndevices"),
    ("Evidence", "training", "What training\nshows"),
    ("Evidence", "finding_a_token", "Finding\na token"),
    ("Evidence", "what_the_model_uses", "What the\nmodel uses"),
    ("Evidence", "beyond_the_trained_length", "Beyond the\ntrained length"),
    ("Explore", "explorer", "The\nexplorer"),
)


def book_map() -> Picture:
    """The chapters, each part in a colour; on the built page each box is a link."""
    figure, ax = subplots(height=8.0)
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
            ax.text(x, at, words, linespacing=1.25, url=url, **shapes.CENTRED)
            labels.append(words.replace("\n", " "))
        rows.append(f"{part}: {', '.join(labels)}")
        y = at - ROW
    ax.set(xlim=(-0.05, 5.25), ylim=(y + 0.6, 0.62), aspect="equal")
    return picture(
        figure,
        alt="The chapters, part by part, read from left to right and top to bottom. "
        f"{'; '.join(rows)}.",
    )
