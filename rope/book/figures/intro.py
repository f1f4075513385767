"""The map on the front page: the chapters, part by part, with links to them."""

from itertools import groupby
from operator import itemgetter

from matplotlib.patches import FancyBboxPatch

from rope.book.figures import Picture, picture, shapes, subplots
from rope.book.figures.style import BLUE, GREEN, OCHRE, PURPLE, SKY, VERMILION

WIDTH, HEIGHT = 1.2, 0.5  # of a chapter's box
COLUMNS, STEP, ROW = 4, 1.3, 0.6  # from one box to the next
PART = 0.9  # from a part's last row to the next part
BOX = "round,pad=0.02,rounding_size=0.08"

COLOURS = (BLUE, GREEN, PURPLE, OCHRE, VERMILION, SKY)  # one a part

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
    ("Angles", "properties", "Properties"),
    ("Angles", "precision", "How exact\nmust it be?"),
    ("Angles", "longer_context", "Longer\ncontext"),
    ("Angles", "more_than_one_axis", "More than\none axis"),
    ("Decoding and devices", "keys_that_move", "Keys that\nmove"),
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
    figure, ax = subplots(height=6.3)
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
    ax.set(xlim=(-0.05, 5.25), ylim=(y + 0.6, 0.62), aspect="equal")
    return picture(
        figure,
        alt="The chapters, part by part, read from left to right and top to bottom; those of the "
        "road are numbered. "
        f"{'; '.join(rows)}.",
    )
