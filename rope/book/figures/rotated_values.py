"""Show the positions of compressed entries, and which shifts change a layer's output.

Chapter "When values are rotated too".
"""

from collections.abc import Sequence

from rope.book.figures import Picture, picture, shapes, subplots
from rope.book.figures.style import BLUE, GRID, INK, MUTED, VERMILION


def visible(query: int, ratio: int, window: int, tokens: int) -> Picture:
    """Draw a row of tokens above their groups, with a dot per entry, and color what a query reads.

    query: the position of the query. ratio: the number of tokens per group. window: the number of
    latest tokens that the query reads one by one.
    """
    figure, ax = subplots(height=2.5)
    text = {"color": INK, **shapes.CENTERED}
    for n in range(tokens):
        near = query - window < n <= query
        face = {"facecolor": BLUE, "alpha": 0.35} if near else {"facecolor": "none", "alpha": 1.0}
        shapes.box(ax, n + 0.08, 1.6, 0.84, 0.8, **face)
        shapes.box(ax, n + 0.08, 1.6, 0.84, 0.8, facecolor="none", edgecolor=MUTED)
        ax.text(n + 0.5, 2.0, str(n), **text)
    read = (query + 1) // ratio  # only groups that are complete at the query
    for g in range(tokens // ratio):
        left, color = g * ratio, VERMILION if g < read else GRID
        ax.plot([left + 0.1, left + ratio - 0.1], [1.1, 1.1], "-", color=color, linewidth=2)
        ax.plot([left + 0.5], [1.1], "o", color=color, markersize=8)
        ax.text(left + 0.5, 0.55, str(left), **text)
    ax.text(query + 0.5, 2.85, "query", **text)
    ax.set(xlim=(0, tokens), ylim=(0.2, 3.1))
    ax.axis("off")
    return picture(
        figure,
        alt=f"Tokens 0 to {tokens - 1} as a row of boxes. The query at {query} reads the last "
        f"{window} as they are. Below, groups of {ratio}, each with a dot under its first token, "
        f"the position of its entry. The query reads the entries at "
        f"{', '.join(str(g * ratio) for g in range(read))}, but not the incomplete group.",
    )


def shifts(changes: Sequence[float], ratio: int) -> Picture:
    """Plot the largest change of a layer's output when all positions are shifted by 0, 1, 2, ..."""
    figure, ax = subplots(height=2.4)
    same = dict(list(enumerate(changes))[::ratio])
    changed = {by: change for by, change in enumerate(changes) if by % ratio}
    ax.plot([*same], [*same.values()], "o", color=BLUE, markersize=6)
    ax.plot([*changed], [*changed.values()], "s", color=VERMILION, markersize=6)
    ax.set(xlabel="shift of all positions", ylabel="largest change", ylim=(-0.05, None))
    ax.set_xticks(range(0, len(changes), ratio))
    low, high = min(changed.values()), max(changed.values())
    return picture(
        figure,
        alt=f"The largest change of a layer's output against the shift, 0 to {len(changes) - 1}: "
        f"zero at the multiples of {ratio}, and from {low:.1f} to {high:.1f} elsewhere.",
    )
