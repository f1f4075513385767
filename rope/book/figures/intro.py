"""Draw the map on the front page, with links to the chapters."""

from itertools import groupby
from operator import itemgetter

from matplotlib.patches import FancyBboxPatch

from rope.book.figures import Picture, picture, shapes, subplots
from rope.book.figures.style import BLUE, GREEN, INK, OCHRE, PURPLE, SKY, VERMILION

WIDTH, HEIGHT = 1.28, 0.5  # the size of a chapter's box, in data units
COLUMNS, STEP, ROW = 4, 1.38, 0.6  # the number of columns, and the spacing of columns and rows
PART = 0.9  # the distance from a part's last row to the next part
BOX = "round,pad=0.02,rounding_size=0.08"

COLORS = (BLUE, INK, GREEN, PURPLE, OCHRE, VERMILION, SKY)  # one color per part

CORE = "Core chapters"
#: Each chapter's part, file name, and label.
CHAPTERS = (
    (CORE, "one_sitting", "RoPE in\none sitting"),
    (CORE, "why_position", "Why\nposition?"),
    (CORE, "eulers_formula", "Euler's\nformula"),
    (CORE, "rotation_in_two_dimensions", "Two\ndimensions"),
    (CORE, "many_dimensions", "Many\ndimensions"),
    (CORE, "why_rotation", "Why\nrotation?"),
    (CORE, "from_maths_to_pytorch", "From maths\nto PyTorch"),
    (CORE, "two_layouts", "Two\nlayouts"),
    (CORE, "rotary_attention", "Rotary\nattention"),
    (CORE, "a_real_model", "A real\nmodel"),
    (CORE, "on_the_gpu", "Bytes and\nkernels"),
    ("Build it", "build_your_own", "Build it\nyourself"),
    ("Angles", "properties", "Properties"),
    ("Angles", "precision", "How exact\nmust it be?"),
    ("Angles", "longer_context", "Longer\ncontext"),
    ("Angles", "more_than_one_axis", "More than\none axis"),
    ("Angles", "rotations_that_commute", "Rotations\nthat commute"),
    ("Angles", "what_else_is_relative", "What else\nis relative?"),
    ("Decoding and devices", "keys_that_move", "Keys that\nmove"),
    ("Decoding and devices", "rotated_values", "Rotated\nvalues"),
    ("Decoding and devices", "across_devices", "Across\ndevices"),
    ("At work", "using_rope", "Using\nrope"),
    ("At work", "is_my_rope_right", "Is my RoPE\nright?"),
    ("Evidence", "training", "What\ntraining shows"),
    ("Evidence", "finding_a_token", "Finding\na token"),
    ("Evidence", "what_the_model_uses", "What the\nmodel uses"),
    ("Evidence", "beyond_the_trained_length", "Beyond the\ntrained length"),
    ("Explore", "explorer", "The\nexplorer"),
)


def book_map() -> Picture:
    """Draw one box per chapter, in the color of its part. On the built page, each box is a link."""
    figure, ax = subplots(height=7.1)
    ax.set_axis_off()
    y, rows = 0.0, []
    for (part, chapters), color in zip(groupby(CHAPTERS, key=itemgetter(0)), COLORS, strict=True):
        ax.text(0.08, y + 0.35, part, style="italic")
        labels = []
        for k, (_, name, words) in enumerate(chapters):
            x, at = 0.65 + STEP * (k % COLUMNS), y - ROW * (k // COLUMNS)
            corner, url = (x - WIDTH / 2, at - HEIGHT / 2), f"{name}.html"
            box = FancyBboxPatch(corner, WIDTH, HEIGHT, BOX, url=url, fc="none", ec=color, lw=1.8)
            ax.add_patch(box)
            if part == CORE:
                words = f"{k + 1}. {words}"
            ax.text(x, at, words, linespacing=1.25, url=url, **shapes.CENTERED)
            labels.append(words.replace("\n", " "))
        rows.append(f"{part}: {', '.join(labels)}")
        y = at - PART
    ax.set(xlim=(-0.05, 5.5), ylim=(y + 0.6, 0.62), aspect="equal")
    return picture(
        figure,
        alt="The chapters, part by part, read from left to right and top to bottom; the core "
        f"chapters are numbered. {'; '.join(rows)}.",
    )
