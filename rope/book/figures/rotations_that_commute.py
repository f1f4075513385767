"""Show whether a score depends only on the displacement, for "Rotations that commute"."""

from collections.abc import Sequence

from rope.book.figures import Picture, picture, subplots
from rope.book.figures.style import BLUE, VERMILION


def one_displacement(free: Sequence[float], commuting: Sequence[float]) -> Picture:
    """Plot two encodings' scores at one displacement against the column of the first patch."""
    figure, ax = subplots(height=3.0)
    steps = range(len(free))
    ax.plot(steps, commuting, "o-", color=BLUE, label="generators that commute", markersize=4)
    ax.plot(steps, free, "s--", color=VERMILION, label="free generators", markersize=4)
    ax.set(xlabel="column of the start", ylabel="score")
    figure.legend(*ax.get_legend_handles_labels(), loc="outside upper center", ncols=2)
    return picture(
        figure,
        alt="The score of a patch and the patch below it to the right, against the column of the "
        "first patch. With generators that commute, the score is the same in every column; with "
        "free generators, it rises and falls.",
    )
