"""Which positions entries have, and which shifts a layer with entries sees.

Chapter "When values are rotated too".
"""

from collections.abc import Sequence

from matplotlib.patches import Rectangle

from rope.book.figures import Picture, picture, subplots
from rope.book.figures.style import BLUE, GRID, INK, MUTED, VERMILION


def in_sight(query: int, ratio: int, window: int, tokens: int) -> Picture:
    """Tokens as boxes, their groups below with a dot where the entry stands; what a query reads."""
    figure, ax = subplots(height=2.5)
    for n in range(tokens):
        near = query - window < n <= query
        face = BLUE if near else "none"
        box = Rectangle((n + 0.08, 1.6), 0.84, 0.8, facecolor=face, alpha=0.35 if near else 1.0)
        ax.add_patch(box)
        ax.add_patch(Rectangle((n + 0.08, 1.6), 0.84, 0.8, facecolor="none", edgecolor=MUTED))
        ax.text(n + 0.5, 2.0, str(n), ha="center", va="center", color=INK)
    last = (query + 1) // ratio  # groups that lie in the past
    for g in range(tokens // ratio):
        read, left = g < last, g * ratio
        colour = VERMILION if read else GRID
        ax.plot([left + 0.1, left + ratio - 0.1], [1.1, 1.1], "-", color=colour, linewidth=2)
        ax.plot([left + 0.5], [1.1], "o", color=colour, markersize=8)
        ax.text(left + 0.5, 0.55, str(left), ha="center", va="center", color=INK)
    ax.text(query + 0.5, 2.85, "query", ha="center", va="center", color=INK)
    ax.set(xlim=(0, tokens), ylim=(0.2, 3.1))
    ax.axis("off")
    return picture(
        figure,
        alt=f"Tokens 0 to {tokens - 1} as a row of boxes. The query at {query} reads the last "
        f"{window} as they are. Below, groups of {ratio}, each with a dot under its first token, "
        f"where its entry stands: {', '.join(str(g * ratio) for g in range(last))} are read; the "
        "group that is not complete is not.",
    )


def shifts(changes: Sequence[float], ratio: int) -> Picture:
    """By how much an output changes when all positions move by 0, 1, 2, ..."""
    figure, ax = subplots(height=2.4)
    kept = [by % ratio == 0 for by in range(len(changes))]
    for same, colour, marker in ((True, BLUE, "o"), (False, VERMILION, "s")):
        at = [by for by in range(len(changes)) if kept[by] == same]
        ax.plot(at, [changes[by] for by in at], marker, color=colour, markersize=6)
    ax.set(xlabel="shift of all positions", ylabel="largest change", ylim=(-0.05, None))
    ax.set_xticks(range(0, len(changes), ratio))
    seen = [change for change, same in zip(changes, kept, strict=True) if not same]
    return picture(
        figure,
        alt=f"The largest change of a layer's output against the shift, 0 to {len(changes) - 1}: "
        f"zero at the multiples of {ratio}, and from {min(seen):.1f} to {max(seen):.1f} elsewhere.",
    )
