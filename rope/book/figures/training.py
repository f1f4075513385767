"""How trainings went: chapter "What training shows". Numbers by method, losses in nats a token."""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

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


def above_reference(values: Mapping[str, Mapping[str, Sequence[float]]]) -> Picture:
    """Losses above the reference's: a panel a setting, a row a method, a dot a seed, a bar for the
    95% t interval, a mark at its middle.

    values: by the words for a setting ("text, 128"), by method, the differences seed by seed.
    Sorted by the first setting's means. Raises ValueError for a single seed.
    """
    first = next(iter(values.values()))
    names = sorted(first, key=lambda name: fmean(first[name]))
    height, count = 1.1 + 0.32 * len(names), len(values)
    figure, axes = subplots(1, count, height=height, sharex=True, sharey=True, squeeze=False)
    settings = []
    for (words, methods), ax in zip(values.items(), axes[0], strict=True):
        ax.axvline(0, color=MUTED, linewidth=1)
        means = []
        for row, name in enumerate(names):
            seeds, colour = methods[name], look(name, names)["color"]
            line = interval(seeds)
            ax.plot([line.low, line.high], [row, row], "-", color=colour, linewidth=1.5)
            ax.plot(seeds, [row] * len(seeds), "o", linestyle="none", color=colour, markersize=3.5)
            ax.plot([line.mean], [row], "|", color=INK, markersize=9, markeredgewidth=1.5)
            means.append(f"{label(name)} {round(line.mean, 3) + 0:+.3f} ± {line.half:.3f}")
        ax.set_title(words)
        ax.tick_params(axis="y", length=0)
        ax.grid(visible=False, axis="y")
        settings.append(f"{words}: {', '.join(means)}")
    axes[0][0].set_yticks(range(len(names)), [label(name) for name in names])
    axes[0][0].set_ylim(len(names) - 0.5, -0.5)
    figure.supxlabel(f"final loss minus {label(REFERENCE)}'s, nats", fontsize=10)
    return picture(
        figure,
        alt=f"Final loss minus {label(REFERENCE)}'s, a panel a setting, a row a method, a dot a "
        f"seed, a bar for the 95% t interval of the mean. {'; '.join(settings)}.",
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
