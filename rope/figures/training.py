"""How trainings went: chapter "What training shows". Numbers by method, losses in nats a token."""

from collections.abc import Mapping, Sequence
from typing import Any

from rope.figures import Picture, picture, subplots
from rope.figures.seeds import (
    Curve,
    Spread,
    check_some,
    curves_of_seeds,
    draw,
    end_labels,
    label,
    look,
)
from rope.figures.style import INK, MUTED
from rope.measuring.intervals import interval

REFERENCE = "rope"
BAND = "the band runs from the least to the greatest seed"


def above_reference(values: Mapping[str, Mapping[str, Sequence[float]]]) -> Picture:
    """Losses above the reference's: a row a method, a dot a seed, a bar for the 95% t interval.

    values: by the words for a setting ("128 characters"), by method, the differences seed by seed;
    one or two settings, the first with full dots. Sorted by the first setting's means.
    Raises ValueError where there is nothing to draw, and for a single seed.
    """
    check_some(values)
    found = {
        words: {name: interval(seeds) for name, seeds in methods.items()}
        for words, methods in values.items()
    }
    first = next(iter(found.values()))
    names = sorted(first, key=lambda name: first[name].mean)
    figure, ax = subplots(height=0.9 + 0.44 * len(names))
    ax.axvline(0, color=MUTED, linewidth=1)
    for (words, methods), shift, full in zip(
        values.items(), (-0.2, 0.2), (True, False), strict=False
    ):
        for row, name in enumerate(names):
            colour, line = look(name, names)["color"], found[words][name]
            dots = {"color": colour, "markersize": 5, "markerfacecolor": colour if full else "none"}
            height = [row + shift] * len(methods[name])
            ax.plot(methods[name], height, "o", linestyle="none", **dots)
            ax.plot([line.low, line.high], [row + shift] * 2, color=colour, linewidth=1.5)
            ax.plot([line.mean], [row + shift], "|", color=INK, markersize=9, markeredgewidth=1.5)
            number = {"ha": "left", "va": "center", "clip_on": False}
            place = ax.get_yaxis_transform()
            ax.text(1.02, row + shift, f"{round(line.mean, 3) + 0:+.3f}", transform=place, **number)
        handle = {"color": MUTED, "markersize": 5, "markerfacecolor": MUTED if full else "none"}
        ax.plot([], [], "o", linestyle="none", label=words, **handle)
    ax.set_yticks(range(len(names)), [label(name) for name in names])
    ax.tick_params(axis="y", length=0)
    ax.set(ylim=(len(names) - 0.5, -0.5), xlabel=f"final loss minus {label(REFERENCE)}'s, nats")
    ax.grid(visible=False, axis="y")
    figure.legend(*ax.get_legend_handles_labels(), loc="outside upper left", ncols=2)
    said = "; ".join(
        f"{words}: "
        + ", ".join(
            f"{label(n)} {round(line[n].mean, 3) + 0:+.3f} ± {line[n].half:.3f}" for n in names
        )
        for words, line in found.items()
    )
    return picture(
        figure,
        alt=f"Final loss minus {label(REFERENCE)}'s, one row a method, a dot a seed, a bar for "
        f"the 95% t interval of the mean. {said}.",
    )


def loss_curves(curves: Mapping[str, Sequence[Curve]], *, in_one: bool = False) -> Picture:
    """The loss against the step: one panel a method, best first, RoPE's line grey in each.

    Above a panel stands its last mean.
    curves: by method, for each seed its steps under "step" and losses under "loss". Panels need
    RoPE's among them, and an even number of methods.
    in_one: all in one panel, with a label at each line's end; good for a few.
    The first loss, before any step, is left out of sight: it is the same for all, and far above.
    Raises ValueError for no curves, and for seeds that were evaluated after different steps.
    """
    steps, found = curves_of_seeds(curves, "step", "loss")
    found = dict(sorted(found.items(), key=lambda pair: pair[1].mean[-1]))
    low = min(min(curve.low) for curve in found.values())
    high = max(max(curve.high[1:]) for curve in found.values())
    seen = (low - 0.05 * (high - low), high + 0.05 * (high - low))
    if in_one:
        figure, ax = subplots(height=3.4)
        for name, curve in found.items():
            draw(ax, steps[name], curve, look(name, found))
        ax.set(xlabel="step", ylabel="validation loss", ylim=seen)
        end_labels(ax, [(steps[way][-1], c.mean[-1], label(way)) for way, c in found.items()])
    else:
        notes = {name: f"{curve.mean[-1]:.3f}" for name, curve in found.items()}
        figure, panels = _small_multiples(steps, found, notes, "step", "validation loss")
        panels[0, 0].set(ylim=seen)
    said = "; ".join(
        f"{label(name)} {curve.mean[-1]:.3f} ({curve.low[-1]:.3f} to {curve.high[-1]:.3f})"
        for name, curve in found.items()
    )
    last = max(step[-1] for step in steps.values())
    return picture(
        figure,
        alt=f"Validation loss against the training step, mean of {_seeds(curves)}; {BAND}. "
        f"After {last:,} steps, lowest first: {said}.",
    )


def _small_multiples(
    x: Mapping[str, Sequence[float]],
    curves: Mapping[str, Spread],
    notes: Mapping[str, str],
    xlabel: str,
    ylabel: str,
) -> tuple[Any, Any]:
    """One panel a method, in the order given, each with the reference's line in grey beneath.

    notes: by method, what stands above its panel on the right. Returns the figure and the panels
    `[rows, 2]` to finish.
    """
    rows = (len(curves) + 1) // 2
    shape = {"sharex": True, "sharey": True, "squeeze": False}
    figure, panels = subplots(rows, 2, height=0.6 + 1.3 * rows, **shape)
    for ax, name in zip(panels.flat, curves, strict=False):
        if name != REFERENCE:
            grey = {"color": MUTED, "linestyle": "-", "linewidth": 1.0}
            ax.plot(x[REFERENCE], curves[REFERENCE].mean, **grey)
        draw(ax, x[name], curves[name], look(name, curves))
        ax.set_title(label(name), loc="left", fontsize=10)
        ax.set_title(notes[name], loc="right", fontsize=10, color=INK)
    figure.supxlabel(f"{xlabel} (grey: {label(REFERENCE)})", fontsize=10)
    figure.supylabel(ylabel, fontsize=10)
    return figure, panels


def _seeds(runs: Mapping[str, Sequence[Any]]) -> str:
    """How many seeds there are, in words."""
    counts = sorted({len(seeds) for seeds in runs.values()})
    if len(counts) > 1:
        return f"{counts[0]} to {counts[-1]} seeds"
    return "one seed" if counts[0] == 1 else f"{counts[0]} seeds"
