"""Plot differences between training runs, for the chapter "What training shows"."""

from collections.abc import Mapping, Sequence
from statistics import fmean

from matplotlib.ticker import AutoMinorLocator

from rope.book.figures import Picture, picture, subplots
from rope.book.figures.seeds import label, look
from rope.book.figures.style import INK, MUTED
from rope.book.measured.intervals import interval


def above_rope(methods: Mapping[str, Sequence[float]]) -> Picture:
    """Plot each method's loss minus RoPE's, with one row per method, sorted by the mean.

    A dot shows one seed. A bar shows the 95% t interval, and a mark on the bar shows the mean.
    methods: maps each method to its differences in nats, one per seed.
    """
    names = sorted(methods, key=lambda name: fmean(methods[name]))
    figure, ax = subplots(height=0.7 + 0.34 * len(names))
    ax.axvline(0, color=MUTED, linewidth=1)
    summaries = []
    for row, name in enumerate(names):
        line, color = interval(methods[name]), look(name, names)["color"]
        ax.plot([line.low, line.high], [row, row], "-", color=color, linewidth=1.5)
        ax.plot(methods[name], [row] * line.seeds, "o", color=color, markersize=4)
        ax.plot([line.mean], [row], "|", color=INK, markersize=10, markeredgewidth=1.5)
        summaries.append(f"{label(name)} {round(line.mean, 2) + 0:+.2f} ± {line.half:.2f}")
    ax.tick_params(axis="y", length=0)
    ax.grid(visible=False, axis="y")
    ax.xaxis.set_minor_locator(AutoMinorLocator(2))
    ax.grid(visible=True, which="minor", axis="x")
    ax.set_yticks(range(len(names)), [label(name) for name in names])
    ax.set_ylim(len(names) - 0.5, -0.5)
    ax.set_xlabel("loss minus RoPE's, nats per character", fontsize=10)
    return picture(
        figure,
        alt="Final loss minus RoPE's. Each method has a row with a dot per seed and a bar for the "
        f"95% interval of the mean. {'; '.join(summaries)}.",
    )
