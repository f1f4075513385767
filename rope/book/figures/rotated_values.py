"""Show which vectors a DeepSeek-V4 layer rotates, for "When values are rotated too"."""

from rope.book.figures import Picture, picture, shapes, subplots
from rope.book.figures.style import INK, MUTED, VERMILION


def data_flow() -> Picture:
    """Draw the data flow of a DeepSeek-V4 layer from top to bottom, with its rotations in color."""
    figure, ax = subplots(height=4.6)
    boxes = (  # center x, row, width, words
        (1.5, 0, 2.8, "token at $m$:\nquery"),
        (4.5, 0, 2.8, "token at $n$:\none vector"),
        (7.5, 0, 2.8, "mean of group $g$:\n$r$ tokens from $gr$"),
        (1.5, 1, 2.8, "rotate by $m$"),
        (4.5, 1, 2.8, "rotate by $n$"),
        (7.5, 1, 2.8, "rotate by $gr$"),
        (6.0, 2, 5.8, "cache"),
        (4.5, 3, 8.8, "scores and softmax, then weighted sum"),
        (4.5, 4, 8.8, "rotate back by $m$"),
        (4.5, 5, 8.8, "output projection"),
    )
    for x, row, width, words in boxes:
        turns = words.startswith("rotate")
        edge = {"edgecolor": VERMILION if turns else MUTED, "linewidth": 2.4 if turns else 1}
        shapes.box(ax, x - width / 2, -row - 0.3, width, 0.6, facecolor="none", **edge)
        ax.text(x, -row, words, color=INK, **shapes.CENTERED)
    straight = [(x, 0, 1) for x in (1.5, 4.5, 7.5)] + [(4.5, 1, 2), (7.5, 1, 2), (1.5, 1, 3)]
    for x, row, below in [*straight, (4.5, 3, 4), (4.5, 4, 5)]:
        shapes.arrow(ax, (x, -row - 0.3), (x, 0.3 - below), MUTED, linewidth=1.2)
    for x in (4.5, 7.5):
        shapes.arrow(ax, (x, -2.3), (x, -2.7), MUTED, linewidth=1.2)
        ax.text(x - 0.15, -2.5, "as key and value", color=INK, ha="right", va="center")
    ax.set(xlim=(0, 9), ylim=(-5.4, 0.4))
    ax.axis("off")
    return picture(
        figure,
        alt="A layer from top to bottom. The query of the token at m is rotated by m. The one "
        "vector of each token at n is rotated by n, and the mean of group g, the "
        "r tokens from gr on, by gr. Both go into the cache, and each vector there is read as "
        "key and value. After the weighted sum, the result is rotated back by m, and projected.",
    )
