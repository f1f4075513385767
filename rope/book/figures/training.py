"""Plot the losses of training runs: chapter "What training shows". Losses are in nats per token."""

from collections.abc import Mapping, Sequence
from statistics import fmean

from matplotlib.ticker import AutoMinorLocator

from rope.book.figures import Picture, picture, subplots
from rope.book.figures.seeds import Curve, end_labels, interval_row, label, look
from rope.book.figures.style import MUTED
from rope.book.measured.intervals import interval

REFERENCE = "rope"


def above_reference(
    values: Mapping[str, Mapping[str, Sequence[float]]], near: float = 0.2
) -> Picture:
    """Plot each method's loss minus the reference's loss, with one column per setting.

    Each method has a row. A dot is a seed, and a bar is a 95% t interval, with a mark at the mean.
    If some methods, but not all, have every mean within `near` of 0, these methods get their own
    row of panels, on top.
    values: maps each setting, such as "text, 128", and each method to one difference per seed. The
    methods are sorted by their means in the first setting. Raises ValueError for a single seed.
    """
    first = next(iter(values.values()))
    names = sorted(first, key=lambda name: fmean(first[name]))
    lines = {
        words: {name: interval(methods[name]) for name in names}
        for words, methods in values.items()
    }
    close = [name for name in names if all(abs(row[name].mean) < near for row in lines.values())]
    parts = [part for part in (close, [name for name in names if name not in close]) if part]
    figure, axes = subplots(
        len(parts), len(values), height=0.8 * len(parts) + 0.3 * len(names), sharex="row",
        sharey="row", squeeze=False, height_ratios=[len(part) for part in parts],
    )  # fmt: skip
    two = len(parts) == 2
    for part, row in zip(parts, axes, strict=True):
        for methods, ax in zip(values.values(), row, strict=True):
            ax.axvline(0, color=MUTED, linewidth=1)
            for place, name in enumerate(part):
                interval_row(ax, methods[name], place, look(name, names)["color"])
            ax.tick_params(axis="y", length=0)
            ax.grid(visible=False, axis="y")
            ax.xaxis.set_minor_locator(AutoMinorLocator(2))
            ax.grid(visible=True, which="minor", axis="x")
        row[0].set_yticks(range(len(part)), [label(name) for name in part])
        row[0].set_ylim(len(part) - 0.5, -0.5)
    for words, ax in zip(values, axes[0], strict=True):
        ax.set_title(words)
    axis = f"final loss minus {label(REFERENCE)}'s, nats{'; two scales' * two}"
    figure.supxlabel(axis, fontsize=10)
    summaries = []
    for words, row in lines.items():
        means = (f"{label(n)} {round(v.mean, 3) + 0:+.3f} ± {v.half:.3f}" for n, v in row.items())
        summaries.append(f"{words}: {', '.join(means)}")
    return picture(
        figure,
        alt=f"Final loss minus {label(REFERENCE)}'s, one column per setting, one row per method, a "
        "dot per seed, a bar for the 95% t interval of the mean"
        f"{'; the methods in the upper panels have their own scale' * two}. "
        f"{'; '.join(summaries)}.",
    )


def loss_curves(curves: Mapping[str, Sequence[Curve]]) -> Picture:
    """Plot the loss against the step for a few methods, with a label at the end of each line.

    curves: maps each method to one run, with its steps under "step" and its losses under "loss".
    The first loss of a run, measured before any step, lies outside the plot, because it is far
    above the run's other losses.
    """
    runs = {name: run for name, [run] in curves.items()}
    runs = dict(sorted(runs.items(), key=lambda pair: pair[1]["loss"][-1]))
    low = min(min(run["loss"]) for run in runs.values())
    high = max(max(run["loss"][1:]) for run in runs.values())
    margin = 0.05 * (high - low)
    figure, ax = subplots(height=3.4)
    for name, run in runs.items():
        ax.plot(run["step"], run["loss"], **look(name, runs))
    ax.set(xlabel="step", ylabel="validation loss", ylim=(low - margin, high + margin))
    end_labels(ax, [(run["step"][-1], run["loss"][-1], label(name)) for name, run in runs.items()])
    losses = ", ".join(f"{label(name)} {run['loss'][-1]:.3f}" for name, run in runs.items())
    last = max(run["step"][-1] for run in runs.values())
    return picture(
        figure,
        alt="Validation loss against the training step, one run per method. After "
        f"{last:,} steps, lowest first: {losses}.",
    )
