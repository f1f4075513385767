"""The loss at each position, within the trained length and up to many times it.

Chapter "Beyond the trained length".
"""

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise

from rope.book.figures import Picture, picture, shapes, subplots
from rope.book.figures.seeds import Runs, Spread, draw, end_labels, label, look, spreads


def by_position(found: Mapping[str, Runs], edges: Sequence[int], context: int) -> Picture:
    """The loss against the position, logarithmic, one line a method, the trained length marked.

    found: by method, for each seed one value between each two `edges` (positions), None where a
    method has none: its line ends there in a cross. context: the trained length.
    Raises ValueError where there is nothing to draw, and for runs that have not one value between
    each two edges.
    """
    middles = [(low + high) / 2 for low, high in pairwise(edges)]
    lines = spreads(found, middles, "stretches between the edges")
    figure, ax = subplots(height=0.9 + max(2.6, 0.2 * len(lines) + 0.3))
    ends: list[tuple[float, float, str]] = []
    for name, line in lines.items():
        style, last, words = look(name, lines), _last(line), label(name)
        draw(ax, middles, line, style)
        if last + 1 < len(middles):
            words += f" (to {edges[last + 1]:,})"
            cross = {"color": style["color"], "markersize": 9, "markeredgewidth": 2.5}
            ax.plot([middles[last]], [line.mean[last]], "x", zorder=4, **cross)
        ends.append((middles[last], line.mean[last], words))
    shapes.mark(ax, context, f"trained length {context:,}")
    ticks = [float(context) * 4.0**power for power in range(-6, 7)]
    ticks = [tick for tick in ticks if edges[1] / 2 <= tick <= edges[-1] * 1.01]
    ax.set(xlim=(edges[1] / 2 * 0.95, edges[-1]), xlabel="position", xscale="log", ylabel="loss")
    ax.set_xticks(ticks, [f"{tick:,.0f}" for tick in ticks])
    ax.minorticks_off()
    end_labels(ax, ends)
    return picture(figure, alt=f"Loss {_words(lines, edges, context)}")


def _last(line: Spread) -> int:
    """Where a line ends."""
    return max(place for place, value in enumerate(line.mean) if not math.isnan(value))


def _words(lines: Mapping[str, Spread], edges: Sequence[int], context: int) -> str:
    """Each line's value at the end of the trained length and where it ends."""
    within = max(place for place, high in enumerate(edges[1:]) if high <= max(context, edges[1]))
    each = []
    for name, line in lines.items():
        last = _last(line)
        text = f"{label(name)} {line.mean[within]:.2f}" if last >= within else label(name)
        text += f", {line.mean[last]:.2f} from {edges[last]:,} to {edges[last + 1]:,}"
        each.append(text + (", where it ends" if last + 1 < len(line.mean) else ""))
    return (
        f"against the position, on a logarithmic axis from {edges[0]:,} to "
        f"{edges[-1]:,}, mean of the seeds; the band runs from the least to the greatest seed; a "
        f"dotted line marks the trained length, {context:,}. From {edges[within]:,} to "
        f"{edges[within + 1]:,}, and then at the end of the line: " + "; ".join(each) + "."
    )
