"""The loss at each position, within the trained length and up to many times it; the base.

Chapter "Beyond the trained length". Every function takes plain numbers as the record holds them;
the alternative texts are made from the numbers that are drawn.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from rope.figures.picture import Picture, picture
from rope.figures.style import INK, subplots
from rope.figures.ways import (
    Spread,
    capitalised,
    check_some,
    draw,
    end_labels,
    label,
    look,
    spread,
)

Runs = Sequence[Sequence[float | None]]


def by_position(
    results: Mapping[str, Runs],
    edges: Sequence[int],
    context: int,
    *,
    quantity: str = "loss",
    log: bool = False,
) -> Picture:
    """The loss against the position, logarithmic, one line a way, the trained length marked.

    results: by way (or extension), for each seed one value between each two `edges` (positions),
    None where a way has none: its line ends there in a cross. context: the trained length.
    log: the vertical axis too, as perplexities want it. Raises ValueError where there is nothing
    to draw, and for runs that have not one value between each two edges.
    """
    return by_position_panels({"": results}, edges, context, quantity=quantity, log=log)


def by_position_panels(
    panels: Mapping[str, Mapping[str, Runs]],
    edges: Sequence[int],
    context: int,
    *,
    quantity: str = "loss",
    log: bool = False,
) -> Picture:
    """`by_position` for each panel, on shared axes: extensions as they are, and tuned a little.

    panels: by the words above the panel, what `by_position` takes.
    """
    names = list(dict.fromkeys(name for results in panels.values() for name in results))
    check_some(names)
    middles = [(low + high) / 2 for low, high in pairwise(edges)]
    found = {
        title: {name: _line(name, runs, middles) for name, runs in results.items()}
        for title, results in panels.items()
    }
    height = 0.9 + len(panels) * max(2.3, 0.2 * len(names) + 0.3)
    shape = {"sharex": True, "sharey": True, "squeeze": False}
    figure, grid = subplots(len(panels), 1, height=height, **shape)
    for place, (ax, (title, lines)) in enumerate(zip(grid[:, 0], found.items(), strict=True)):
        for name, line in lines.items():
            draw(ax, middles, line, look(name, names))
            last = _last(line)
            if last + 1 < len(middles):
                cross = {"color": look(name, names)["color"], "markeredgewidth": 2.5}
                cross |= {"markersize": 9}
                ax.plot([middles[last]], [line.mean[last]], "x", zorder=4, **cross)
        ax.axvline(context, color=INK, linestyle=":", linewidth=1)
        ax.set_title(title, loc="left", fontsize=10, pad=18 if place == 0 and title else 6)
        ax.set_ylabel(quantity)
    _position_axis(grid, edges, context, log)
    for ax, lines in zip(grid[:, 0], found.values(), strict=True):
        ends = {
            name: (middles[_last(line)], line.mean[_last(line)]) for name, line in lines.items()
        }
        more = {
            name: f" (to {edges[_last(line) + 1]:,})"
            for name, line in lines.items()
            if _last(line) + 1 < len(middles)
        }
        end_labels(figure, ax, ends, more)
    return picture(figure, alt=_words(found, edges, context, quantity))


def base_curve(
    bases: Sequence[float],
    losses: Mapping[str, Sequence[Sequence[float]]],
    *,
    bound: float | None = None,
    quantity: str = "validation loss",
) -> Picture:
    """A loss against the base, logarithmic: one panel each, a dot a seed, a line through the means.

    losses: by the words above the panel ("within the trained length"), for each base its seeds.
    bound: a base to mark, as the least one that a paper recommends.
    Raises ValueError where a panel has not as many entries as there are bases.
    """
    check_some(losses)
    figure, panels = subplots(
        len(losses), 1, height=0.5 + 1.8 * len(losses), sharex=True, squeeze=False
    )
    said = []
    for ax, (title, groups) in zip(panels[:, 0], losses.items(), strict=True):
        means = [math.fsum(seeds) / len(seeds) for seeds in groups]
        for base, seeds in zip(bases, groups, strict=True):
            dots = {"linestyle": "none", "alpha": 0.6, "markeredgewidth": 0, "markersize": 5}
            ax.plot([base] * len(seeds), seeds, "o", color=look("rope", ())["color"], **dots)
        ax.plot(bases, means, **look("rope", ()))
        ax.set_xscale("log")
        ax.set_title(title, loc="left", fontsize=10)
        if bound is not None:
            ax.axvline(bound, color=INK, linestyle=":", linewidth=1)
        said.append(title + ": " + ", ".join(_at(*pair) for pair in zip(bases, means, strict=True)))
    if bound is not None:
        place = {"transform": panels[0, 0].get_xaxis_transform(), "ha": "center", "va": "bottom"}
        panels[0, 0].text(bound, 1.01, f"bound {bound:,.0f}", **place)
        panels[0, 0].set_title(panels[0, 0].get_title(loc="left"), loc="left", fontsize=10, pad=18)
    panels[-1, 0].set_xticks(bases, [f"{base:,.0f}" for base in bases])
    panels[-1, 0].minorticks_off()
    panels[-1, 0].set_xlabel("base $b$")
    figure.supylabel(quantity, fontsize=10)
    marked = "" if bound is None else f" A dotted line marks the bound, {bound:,.0f}."
    return picture(
        figure,
        alt=f"{capitalised(quantity)} against the base, a dot a seed, a line through the means. "
        + "; ".join(said)
        + "."
        + marked,
    )


def _line(name: str, runs: Runs, middles: Sequence[float]) -> Spread:
    line = spread(runs)
    if len(line.mean) != len(middles):
        raise ValueError(
            f"{name!r} has {len(line.mean)} values for {len(middles)} stretches of positions; it "
            "must have one between each two edges: pass the edges it was measured with"
        )
    if all(map(math.isnan, line.mean)):
        raise ValueError(f"{name!r} has no value at any position: leave it out")
    return line


def _last(line: Spread) -> int:
    """Where a line ends."""
    return max(place for place, value in enumerate(line.mean) if not math.isnan(value))


def _position_axis(grid: Any, edges: Sequence[int], context: int, log: bool) -> None:
    """Positions in powers of four from the trained length."""
    bottom, top = grid[-1, 0], grid[0, 0]
    bottom.set_xscale("log")
    ticks = [float(context) * 4.0**power for power in range(-6, 7)]
    ticks = [tick for tick in ticks if edges[1] / 2 <= tick <= edges[-1] * 1.01]
    bottom.set_xticks(ticks, [f"{tick:,.0f}" for tick in ticks])
    bottom.minorticks_off()
    bottom.set(xlim=(edges[1] / 2 * 0.95, edges[-1]), xlabel="position")
    if log:
        bottom.set_yscale("log")
    words = {"transform": top.get_xaxis_transform(), "ha": "center", "va": "bottom"}
    top.text(context, 1.01, f"trained length {context:,}", color=INK, **words)


def _words(
    found: Mapping[str, Mapping[str, Spread]], edges: Sequence[int], context: int, quantity: str
) -> str:
    """Each line's value at the end of the trained length and where it ends."""
    within = max(place for place, high in enumerate(edges[1:]) if high <= max(context, edges[1]))
    said = []
    for title, lines in found.items():
        each = []
        for name, line in lines.items():
            last = _last(line)
            text = f"{label(name)} {line.mean[within]:.2f}" if last >= within else label(name)
            text += f", {line.mean[last]:.2f} from {edges[last]:,} to {edges[last + 1]:,}"
            if last + 1 < len(line.mean):
                text += ", where it ends"
            each.append(text)
        said.append((f"{title}: " if title else "") + "; ".join(each) + ".")
    return (
        f"{capitalised(quantity)} against the position, on a logarithmic axis from {edges[0]:,} to "
        f"{edges[-1]:,}, mean of the seeds; the band runs from the least to the greatest seed; a "
        f"dotted line marks the trained length, {context:,}. From {edges[within]:,} to "
        f"{edges[within + 1]:,}, and then at the end of the line: " + " ".join(said)
    )


def _at(base: float, mean: float) -> str:
    return f"{mean:.3f} at {base:,.0f}"
