"""How trainings went: chapter "What training shows". Numbers by method, losses in nats a token."""

from collections.abc import Mapping, Sequence
from itertools import islice
from statistics import fmean
from typing import Any

from matplotlib.ticker import AutoMinorLocator

from rope.book.figures import Picture, picture, subplots
from rope.book.figures.seeds import (
    Curve,
    curves_of_seeds,
    draw,
    end_labels,
    label,
    look,
)
from rope.book.figures.style import INK, MUTED
from rope.book.measured.intervals import interval

REFERENCE = "rope"
BAND = "the band runs from the least to the greatest seed"


def above_reference(
    values: Mapping[str, Mapping[str, Sequence[float]]], near: float = 0.2
) -> Picture:
    """Losses above the reference's: a column a setting, a row a method, a dot a seed, a bar for the
    95% t interval, a mark at its middle. The methods whose means are all nearer than `near`
    stand above the others, if both are there, on a scale of their own.

    values: by the words for a setting ("text, 128"), by method, the differences seed by seed.
    Sorted by the first setting's means. Raises ValueError for a single seed.
    """
    first = next(iter(values.values()))
    names = sorted(first, key=lambda name: fmean(first[name]))
    lines = {
        words: {name: interval(found[name]) for name in names} for words, found in values.items()
    }
    close = [n for n in names if all(abs(found[n].mean) < near for found in lines.values())]
    parts = [part for part in (close, [name for name in names if name not in close]) if part]
    figure, axes = subplots(
        len(parts), len(values), height=0.8 * len(parts) + 0.3 * len(names), sharex="row",
        sharey="row", squeeze=False, height_ratios=[len(part) for part in parts],
    )  # fmt: skip
    two = len(parts) == 2
    for part, row in zip(parts, axes, strict=True):
        for (words, methods), ax in zip(values.items(), row, strict=True):
            ax.axvline(0, color=MUTED, linewidth=1)
            for place, name in enumerate(part):
                seeds, line = methods[name], lines[words][name]
                marks = {"color": look(name, names)["color"], "linewidth": 1.5, "markersize": 3.5}
                ax.plot([line.low, line.high], [place, place], "-", **marks)
                ax.plot(seeds, [place] * len(seeds), "o", **marks | {"linestyle": "none"})
                ax.plot([line.mean], [place], "|", color=INK, markersize=9, markeredgewidth=1.5)
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
    shown = (
        f"{label(name)} {round(line.mean, 3) + 0:+.3f} ± {line.half:.3f}"
        for found in lines.values()
        for name, line in found.items()
    )
    settings = (f"{words}: {', '.join(islice(shown, len(names)))}" for words in values)
    return picture(
        figure,
        alt=f"Final loss minus {label(REFERENCE)}'s, a column a setting, a row a method, a dot a "
        "seed, a bar for the 95% t interval of the mean"
        f"{'; the methods in the upper panels have a scale of their own' * two}. "
        f"{'; '.join(settings)}.",
    )


def loss_curves(curves: Mapping[str, Sequence[Curve]]) -> Picture:
    """The loss against the step, a label at each line's end; good for a few methods.

    curves: by method, for each seed its steps under "step" and losses under "loss".
    The first loss, before any step, is left out of sight: it is the same for all, and far above.
    Raises ValueError for seeds that were evaluated after different steps.
    """
    steps, means = curves_of_seeds(curves, "step", "loss")
    means = dict(sorted(means.items(), key=lambda pair: pair[1].mean[-1]))
    low = min(min(curve.low) for curve in means.values())
    high = max(max(curve.high[1:]) for curve in means.values())
    seen = (low - 0.05 * (high - low), high + 0.05 * (high - low))
    figure, ax = subplots(height=3.4)
    for name, curve in means.items():
        draw(ax, steps[name], curve, look(name, means))
    ax.set(xlabel="step", ylabel="validation loss", ylim=seen)
    ends = ((steps[name][-1], curve.mean[-1], label(name)) for name, curve in means.items())
    end_labels(ax, ends)
    losses = "; ".join(
        f"{label(name)} {curve.mean[-1]:.3f} ({curve.low[-1]:.3f} to {curve.high[-1]:.3f})"
        for name, curve in means.items()
    )
    last = max(step[-1] for step in steps.values())
    return picture(
        figure,
        alt=f"Validation loss against the training step, mean of {_seeds(curves)}; {BAND}. "
        f"After {last:,} steps, lowest first: {losses}.",
    )


def _seeds(runs: Mapping[str, Sequence[Any]]) -> str:
    """How many seeds there are, in words."""
    counts = sorted({len(seeds) for seeds in runs.values()})
    if len(counts) > 1:
        return f"{counts[0]} to {counts[-1]} seeds"
    return "one seed" if counts[0] == 1 else f"{counts[0]} seeds"
