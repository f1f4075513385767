"""Plot differences between training runs: chapter "What training shows"."""

from collections.abc import Mapping, Sequence
from statistics import fmean

from matplotlib.ticker import AutoMinorLocator

from rope.book.figures import Picture, picture, subplots
from rope.book.figures.seeds import label, look
from rope.book.figures.style import INK, MUTED
from rope.book.measured.intervals import interval


def above_rope(values: Mapping[str, Mapping[str, Sequence[float]]]) -> Picture:
    """Plot each method's loss minus RoPE's, with one column per setting and one row per method.

    A dot shows one seed. A bar shows the 95% t interval, and a mark on the bar shows the mean.
    values: maps each setting, such as "text, 128", to a dict that maps each method to its
    differences in nats, one per seed. The methods are sorted by their means in the first setting.
    """
    first = next(iter(values.values()))
    names = sorted(first, key=lambda name: fmean(first[name]))
    height = 0.7 + 0.34 * len(names)
    figure, axes = subplots(1, len(values), height=height, sharex=True, sharey=True, squeeze=False)
    summaries = []
    for (setting, methods), ax in zip(values.items(), axes[0], strict=True):
        ax.axvline(0, color=MUTED, linewidth=1)
        for row, name in enumerate(names):
            line, color = interval(methods[name]), look(name, names)["color"]
            ax.plot([line.low, line.high], [row, row], "-", color=color, linewidth=1.5)
            ax.plot(methods[name], [row] * line.seeds, "o", color=color, markersize=4)
            ax.plot([line.mean], [row], "|", color=INK, markersize=10, markeredgewidth=1.5)
            mean = f"{round(line.mean, 3) + 0:+.3f} ± {line.half:.3f}"
            summaries.append(f"{setting} {label(name)} {mean}".strip())
        ax.tick_params(axis="y", length=0)
        ax.grid(visible=False, axis="y")
        ax.xaxis.set_minor_locator(AutoMinorLocator(2))
        ax.grid(visible=True, which="minor", axis="x")
        ax.set_title(setting)
    axes[0, 0].set_yticks(range(len(names)), [label(name) for name in names])
    axes[0, 0].set_ylim(len(names) - 0.5, -0.5)
    figure.supxlabel("loss minus RoPE's, nats per character", fontsize=10)
    return picture(
        figure,
        alt="Final loss minus RoPE's, one row per method, a dot per seed, a bar for the 95% "
        f"interval of the mean. {'; '.join(summaries)}.",
    )
