"""Show how often a model finds a token at a given distance, for the chapter "Finding a token"."""

from collections.abc import Mapping, Sequence

from rope.book.figures import Picture, panels, picture, shapes
from rope.book.figures.seeds import label, look
from rope.book.figures.style import MUTED


def found_by_distance(
    methods: Mapping[str, Sequence[Sequence[float]]],
    distances: Sequence[int],
    context: int,
    guess: float,
) -> Picture:
    """Plot the share of names found against distance, with a panel per method and a line per seed.

    methods: maps each method to one list per seed, with one share per distance. context: the
    trained length in tokens, drawn as a dotted line. guess: the share found by guessing, drawn as a
    dashed line.
    """
    rows = -(-len(methods) // 2)
    figure, items = panels(methods, columns=2, height=0.5 + 1.5 * rows, sharex=True, sharey=True)
    summaries = []
    for ax, name, seeds in items:
        ax.axhline(guess, color=MUTED, linestyle=(0, (2, 3)), linewidth=1)
        shapes.mark(ax, context)
        color = look(name, methods)["color"]
        for shares in seeds:
            ax.plot(distances, shares, "-", color=color, linewidth=1.4)
            ax.plot(distances[-1], shares[-1], "o", color=color, markersize=4)
        ends = ", ".join(f"{100 * shares[-1]:.0f}" for shares in seeds)
        summaries.append(f"{label(name)} {ends}% at {distances[-1]:,}")
        ax.set_title(label(name), loc="left", fontsize=10)
        ax.set(xscale="log", ylim=(-0.04, 1.06), yticks=[0, 0.5, 1])
        shapes.x_ticks(ax, [31, 127, 511, distances[-1]])
    figure.supxlabel(f"distance in tokens (dotted: the trained length, {context})", fontsize=10)
    figure.supylabel("share of names found (dashed: a guess)", fontsize=10)
    return picture(
        figure,
        alt="Share of names found against the distance in tokens, one panel per method and one "
        f"line per seed; a guess finds {guess:.2f}. Each line's end: {'; '.join(summaries)}.",
    )
