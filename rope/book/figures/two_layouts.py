"""Draw coordinate pairs in each layout, and a head in the wrong layout, for "Two layouts"."""

import math
from collections.abc import Mapping

from torch import Tensor

from rope.book.figures import Picture, panels, picture, shapes
from rope.book.figures.style import COLORS, DASHES, line_style
from rope.layouts import permutation


def pairing(dim: int) -> Picture:
    """Draw one row of coordinates per layout, with an arc for each plane."""
    half = permutation(dim).tolist()
    layouts = {
        "interleaved": [(2 * j, 2 * j + 1) for j in range(dim // 2)],
        "half-split": [(half.index(2 * j), half.index(2 * j + 1)) for j in range(dim // 2)],
    }
    figure, items = panels(layouts, height=3.6)
    for ax, name, pairs in items:
        ax.set_axis_off()
        ax.set(xlim=(-0.7, dim - 0.3), ylim=(-0.75, 2.5))
        ax.text(-0.6, 2.15, name, fontsize=11, fontweight="bold")
        for j, (first, second) in enumerate(pairs):
            middle, reach = (first + second) / 2, (second - first) / 2
            height = 0.55 + 0.22 * reach + (0.16 * j if reach > 1 else 0.0)
            curve = shapes.arc((middle, 0), (reach, height), 0, math.pi)
            ax.plot(*curve, color=COLORS[j], linestyle=line_style(DASHES[j]))
            ax.plot([first, second], [0, 0], linestyle="none", marker="o", color=COLORS[j])
            ax.text(middle, height + 0.18, str(j), **shapes.CENTERED)
        for coordinate in range(dim):
            ax.text(coordinate, -0.45, str(coordinate), **shapes.CENTERED)
    return picture(
        figure,
        alt=f"Two rows of coordinates 0 to {dim - 1}. Interleaved: arcs join 0 with 1, 2 with 3, "
        f"and so on. Half-split: arcs join 0 with {dim // 2}, 1 with {dim // 2 + 1}, and so on.",
    )


def wrong_layout(maps: Mapping[str, Tensor]) -> Picture:
    """Draw one head's attention weights `[S, S]` in its own layout and in the other one."""
    size = len(next(iter(maps.values())))
    figure, items = panels(maps, columns=2, height=2.9, sharey=True)
    places = range(0, size, 5)
    for ax, title, weights in items:
        ax.pcolormesh(weights.numpy(), cmap="Blues", vmin=0, vmax=1, edgecolors="face")
        ax.set(title=title, xlabel="key position $n$", aspect="equal")
        ax.set_xticks([place + 0.5 for place in places], places)
        ax.grid(False)
    left = items[0][0]
    left.set_ylabel("query position $m$")
    left.set_yticks([place + 0.5 for place in places], places)
    left.invert_yaxis()
    own, other = (f"{weights.diagonal(-1)[1:].mean():.0%}" for weights in maps.values())
    return picture(
        figure,
        alt=f"Two maps of attention weights, {size} queries by {size} keys. On the left, in its "
        f"own layout, a dark line runs one place left of the diagonal: {own} of the attention is "
        f"on the previous token. On the right, in the other layout, it is {other}, and the column "
        "of the first token is dark.",
    )
