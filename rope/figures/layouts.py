"""Which coordinates turn together in each layout, and what the wrong layout does to a head."""

from __future__ import annotations

import math
from typing import Any

import torch

from rope.figures.picture import Picture, picture
from rope.figures.style import COLOURS, DASHES, INK, subplots
from rope.frequencies import inverse_frequencies, rotary_tables
from rope.functional import rotary_embedding
from rope.layouts import permutation


def pairing(dim: int) -> Picture:
    """The coordinates of both layouts in a row each, an arc for each plane."""
    figure, axes = subplots(2, 1, height=3.6)
    half = permutation(dim).tolist()
    layouts = {
        "interleaved": [(2 * j, 2 * j + 1) for j in range(dim // 2)],
        "half-split": [(half.index(2 * j), half.index(2 * j + 1)) for j in range(dim // 2)],
    }
    for ax, (name, pairs) in zip(axes, layouts.items(), strict=True):
        ax.set_axis_off()
        ax.set(xlim=(-0.7, dim - 0.3), ylim=(-0.75, 2.5))
        ax.text(-0.6, 2.15, name, color=INK, fontsize=11, fontweight="bold")
        for j, (first, second) in enumerate(pairs):
            _arc(ax, first, second, j)
        for coordinate in range(dim):
            ax.text(coordinate, -0.45, str(coordinate), color=INK, ha="center", va="center")
    return picture(
        figure,
        alt=f"Two rows of coordinates 0 to {dim - 1}. Interleaved: arcs join 0 with 1, 2 with 3, "
        f"and so on. Half-split: arcs join 0 with {dim // 2}, 1 with {dim // 2 + 1}, and so on.",
    )


def _arc(ax: Any, first: int, second: int, plane: int) -> None:
    """Half an ellipse over a pair of coordinates, with the plane's number on its top."""
    middle, reach = (first + second) / 2, (second - first) / 2
    height = 0.55 + 0.22 * reach + (0.16 * plane if reach > 1 else 0.0)
    turn = [math.pi * step / 40 for step in range(41)]
    xs = [middle + reach * math.cos(t) for t in turn]
    ys = [height * math.sin(t) for t in turn]
    dash = (0, DASHES[plane]) if plane else "-"
    ax.plot(xs, ys, color=COLOURS[plane], linestyle=dash)
    ax.plot([first, second], [0, 0], linestyle="none", marker="o", color=COLOURS[plane])
    ax.text(middle, height + 0.18, str(plane), color=INK, ha="center", va="center", fontsize=10)


def wrong_layout(dim: int = 64, size: int = 16, back: int = 3) -> Picture:
    """Weights of a head that looks `back` tokens into the past, in both layouts.

    The query is the key turned back, so that in each plane the score is largest at that offset,
    and sqrt(dim) times as long, which undoes the softmax's divisor and keeps the weights sharp.
    """
    inv_freq = inverse_frequencies(dim)
    cos, sin = rotary_tables(size + back, inv_freq, dtype=torch.float64)
    generator = torch.Generator().manual_seed(3)
    key = torch.randn(dim, generator=generator, dtype=torch.float64).expand(1, 1, size, dim)
    shift = torch.full((size,), back)
    query = rotary_embedding(key, cos, sin, shift, interleaved=True, inverse=True) * dim**0.5
    figure, axes = subplots(1, 2, height=2.9, sharey=True)
    future = torch.ones(size, size, dtype=torch.bool).triu(1)
    titles = ("its own layout", "the other layout")
    for ax, title, interleaved in zip(axes, titles, (True, False), strict=True):
        ids = torch.arange(size)
        q, k = (rotary_embedding(t, cos, sin, ids, interleaved=interleaved) for t in (query, key))
        scores = (q @ k.mT / dim**0.5).masked_fill(future, -torch.inf)
        weights = scores.softmax(dim=-1)[0, 0]
        ax.pcolormesh(weights.numpy(), cmap="Blues", vmin=0, vmax=1, edgecolors="face")
        ax.set(title=title, xlabel="key position $n$", aspect="equal")
        ax.grid(False)
        ax.set(xticks=[0.5, 5.5, 10.5, 15.5], xticklabels=[0, 5, 10, 15])
    axes[0].set(ylabel="query position $m$", yticks=[0.5, 5.5, 10.5, 15.5])
    axes[0].set_yticklabels([0, 5, 10, 15])
    axes[0].invert_yaxis()
    return picture(
        figure,
        alt=f"Two maps of attention weights, {size} queries by {size} keys. In the right layout a "
        f"dark diagonal runs {back} places left of the main one. In the other layout that "
        "diagonal is gone, and each query attends to itself and to its neighbour.",
    )
