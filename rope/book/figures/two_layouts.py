"""Draw one plane in each layout, the pairs of coordinates, and a head that uses the wrong layout.

Chapter "Two layouts".
"""

import math

import torch
from torch.nn.functional import scaled_dot_product_attention

from rope.book.figures import Picture, panels, picture, shapes
from rope.book.figures.style import BLUE, COLORS, DASHES, INK, MUTED, line_style
from rope.frequencies import inverse_frequencies, rotary_tables
from rope.functional import rotary_embedding
from rope.layouts import permutation

DIM, SIZE = 64, 16  # the head's width and the sequence length in `wrong_layout`
BACK = 3  # how many tokens back that head looks


def one_plane() -> Picture:
    """Draw plane 0 of the vector (1, 1, 1, 1) in each layout, at position 1 and with base 100."""
    cos, sin = rotary_tables(2, inverse_frequencies(4, base=100.0), dtype=torch.float64)
    ones, at_one = torch.ones(1, 1, 1, 4, dtype=torch.float64), torch.tensor([1])
    figure, items = panels({"interleaved": (0, 1), "half-split": (0, 2)}, columns=2, height=2.9)
    for ax, name, pair in items:
        after = rotary_embedding(ones, cos, sin, at_one, interleaved=name == "interleaved")
        tip = tuple(after.flatten()[list(pair)].tolist())
        start, end = math.pi / 4, math.atan2(tip[1], tip[0])
        ax.plot(*shapes.arc((0, 0), (0.6, 0.6), start, end), color=INK, linewidth=1.2)
        middle = (start + end) / 2
        ax.text(0.85 * math.cos(middle), 0.85 * math.sin(middle), r"$\theta_0$", **shapes.CENTERED)
        shapes.arrow(ax, (0, 0), (1, 1), MUTED, linestyle=shapes.DASHED)
        shapes.arrow(ax, (0, 0), tip, BLUE)
        ax.set(title=name, xlim=(-0.8, 1.6), ylim=(-0.3, 1.7), aspect="equal")
        ax.set(xlabel=f"coordinate {pair[0]}", ylabel=f"coordinate {pair[1]}")
        ax.set(xticks=(0, 1), yticks=(0, 1))
    return picture(
        figure,
        alt="Two panels with the same drawing: the vector (1, 1), dashed, is rotated by one radian "
        "to (-0.30, 1.38). On the left, interleaved, the axes are coordinates 0 and 1; on the "
        "right, half-split, they are coordinates 0 and 2.",
    )


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


def wrong_layout() -> Picture:
    """Draw the attention weights of a head that looks `BACK` tokens back, in both layouts.

    The query is the key rotated by -BACK positions, so in each plane the score is largest at this
    offset. The query is sqrt(DIM) times as long as the key, which cancels the division of the
    scores by sqrt(DIM) and keeps the weights sharp.
    """
    cos, sin = rotary_tables(SIZE + BACK, inverse_frequencies(DIM), dtype=torch.float64)
    generator = torch.Generator().manual_seed(3)
    key = torch.randn(DIM, generator=generator, dtype=torch.float64).expand(1, 1, SIZE, DIM)
    shift = torch.full((SIZE,), BACK)
    query = rotary_embedding(key, cos, sin, shift, interleaved=True, inverse=True) * DIM**0.5
    ids = torch.arange(SIZE)
    each_key = torch.eye(SIZE, dtype=torch.float64).expand(1, 1, SIZE, SIZE)
    titles = {"its own layout": True, "the other layout": False}
    figure, items = panels(titles, columns=2, height=2.9, sharey=True)
    places = range(0, SIZE, 5)
    for ax, title, interleaved in items:
        q, k = (rotary_embedding(t, cos, sin, ids, interleaved=interleaved) for t in (query, key))
        weights = scaled_dot_product_attention(q, k, each_key, is_causal=True)[0, 0]
        ax.pcolormesh(weights.numpy(), cmap="Blues", vmin=0, vmax=1, edgecolors="face")
        ax.set(title=title, xlabel="key position $n$", aspect="equal")
        ax.set_xticks([place + 0.5 for place in places], places)
        ax.grid(False)
    left = items[0][0]
    left.set_ylabel("query position $m$")
    left.set_yticks([place + 0.5 for place in places], places)
    left.invert_yaxis()
    return picture(
        figure,
        alt=f"Two maps of attention weights, {SIZE} queries by {SIZE} keys. On the left, in its "
        f"own layout, a dark diagonal runs {BACK} places left of the main one. On the right, in "
        "the other, that diagonal is gone, and each query attends mostly to itself and the token "
        "before.",
    )
