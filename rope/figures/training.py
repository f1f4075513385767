"""How trainings went, and what they cost: chapter "What training shows".

Every function takes numbers by the name of the method. Losses are in nats a character.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from rope.figures import Picture, picture, subplots
from rope.figures.seeds import Spread, check_some, draw, end_labels, label, look, spread
from rope.figures.style import INK, MUTED
from rope.measuring.intervals import interval

REFERENCE, STEP = "rope", "step"
BAND = "the band runs from the least to the greatest seed"
Curve = Mapping[str, Sequence[float]]


def loss_curves(
    curves: Mapping[str, Sequence[Curve]], *, in_one: bool = False, axis: str = STEP
) -> Picture:
    """The loss against the step: one panel a method, best first, RoPE's line grey in each.

    Above a panel stands its last mean.
    curves: by method, for each seed its steps under "step" and losses under "loss". Panels need
    RoPE's among them, and an even number of methods.
    in_one: all in one panel, with a label at each line's end; good for a few.
    axis: the words for what stands under "step", where that is not the number of steps.
    The first loss, before any step, is left out of sight: it is the same for all, and far above.
    Raises ValueError for no curves, and for seeds that were evaluated after different steps.
    """
    steps, found = _curves(curves, "step", "loss")
    found = dict(sorted(found.items(), key=lambda pair: pair[1].mean[-1]))
    low = min(min(curve.low) for curve in found.values())
    high = max(max(curve.high[1:]) for curve in found.values())
    seen = (low - 0.05 * (high - low), high + 0.05 * (high - low))
    if in_one:
        figure, ax = subplots(height=3.4)
        for name, curve in found.items():
            draw(ax, steps[name], curve, look(name, found))
        ax.set(xlabel=axis, ylabel="validation loss", ylim=seen)
        end_labels(ax, [(steps[way][-1], c.mean[-1], label(way)) for way, c in found.items()])
    else:
        notes = {name: f"{curve.mean[-1]:.3f}" for name, curve in found.items()}
        figure, panels = _small_multiples(steps, found, notes, axis, "validation loss")
        panels[0, 0].set(ylim=seen)
    said = ", ".join(
        f"{label(name)} {curve.mean[-1]:.3f} ({curve.low[-1]:.3f} to {curve.high[-1]:.3f})"
        for name, curve in found.items()
    )
    last = max(step[-1] for step in steps.values())
    against, end = (
        ("the training step", f"After {last:,} steps") if axis == STEP else (axis, "Last")
    )
    return picture(
        figure,
        alt=f"Validation loss against {against}, mean of {_seeds(curves)}; {BAND}. "
        f"{end}, lowest first: {said}.",
    )


def final_spread(values: Mapping[str, Sequence[float]]) -> Picture:
    """One row a method, sorted, a dot a seed; the bar is the mean with its 95% t interval.

    Raises ValueError where there is nothing to draw, and for a single seed.
    """
    check_some(values)
    found = {name: interval(seeds) for name, seeds in values.items()}
    names = sorted(found, key=lambda name: found[name].mean)
    figure, ax = subplots(height=0.8 + 0.34 * len(names))
    said = []
    for row, name in enumerate(names):
        mean, low, high = found[name].mean, found[name].low, found[name].high
        colour = look(name, names)["color"]
        dots = {"color": colour, "markersize": 5, "alpha": 0.75, "markeredgewidth": 0}
        ax.plot(values[name], [row + 0.16] * len(values[name]), "o", linestyle="none", **dots)
        bar = {"color": colour, "linewidth": 2, "linestyle": "-"}
        ax.plot([low, high], [row - 0.16] * 2, **bar)
        ax.plot([mean], [row - 0.16], "|", color=INK, markersize=10, markeredgewidth=2)
        number = {"ha": "left", "va": "center", "clip_on": False}
        ax.text(1.02, row, f"{mean:.3f}", transform=ax.get_yaxis_transform(), **number)
        said.append(f"{label(name)} {mean:.3f} ({low:.3f} to {high:.3f})")
    ax.set_yticks(range(len(names)), [label(name) for name in names])
    ax.tick_params(axis="y", length=0)
    ax.set(ylim=(len(names) - 0.5, -0.5), xlabel="validation loss")
    ax.grid(visible=False, axis="y")
    return picture(
        figure,
        alt=f"Validation loss, one row a way, a dot a seed ({_seeds(values)}), a bar for "
        f"the mean and its 95% t interval. Lowest first: {', '.join(said)}.",
    )


def recall(by_distance: Mapping[str, Sequence[Curve]], *, chance: float) -> Picture:
    """The accuracy of recall against the distance asked for: one panel a method, the best first.

    Above a panel stands its average over the distances.
    by_distance: by method, for each seed its distances under "distance" and shares of right
    answers, 0 ... 1, under "accuracy". chance: the share that guessing gets, a dotted line.
    Raises ValueError for no curves, and for seeds that were asked for different distances.
    """
    distances, found = _curves(by_distance, "distance", "accuracy")
    average = {name: math.fsum(curve.mean) / len(curve.mean) for name, curve in found.items()}
    found = dict(sorted(found.items(), key=lambda pair: -average[pair[0]]))
    notes = {name: f"{average[name]:.2f}" for name in found}
    words = ("distance asked for, in symbols", "share of right answers")
    figure, panels = _small_multiples(distances, found, notes, *words)
    for ax in panels.flat:
        ax.axhline(chance, color=INK, linestyle=":", linewidth=1)
    panels[0, 0].set(ylim=(-0.03, 1.03), yticks=(0, 0.5, 1))
    said = "; ".join(
        f"{label(name)} {average[name]:.2f}, from {min(curve.mean):.2f} to {max(curve.mean):.2f}"
        for name, curve in found.items()
    )
    return picture(
        figure,
        alt=f"Share of right answers against the distance asked for, mean of "
        f"{_seeds(by_distance)}; {BAND}; a dotted line at {chance:.3g}, what guessing gets. "
        f"Averaged over the distances, and its range among them: {said}.",
    )


def cost_against_length(
    lengths: Sequence[int], costs: Mapping[str, Mapping[str, Sequence[float | None]]]
) -> Picture:
    """What attention costs against the sequence length, both logarithmic: one panel a quantity.

    costs: by the words for the quantity with its unit ("seconds"), then by name; one value a
    length, None where none was measured. Raises ValueError where there is nothing to draw.
    """
    check_some(costs)
    names = list(dict.fromkeys(name for lines in costs.values() for name in lines))
    height = 0.8 + 2.1 * len(costs) + 0.1 * len(names)
    figure, _ = subplots(len(costs), 1, height=height, sharex=True)
    said = []
    for ax, (title, lines) in zip(figure.axes, costs.items(), strict=True):
        for name, values in lines.items():
            known = [pair for pair in zip(lengths, values, strict=True) if pair[1]]
            x, y = zip(*known, strict=True)
            ax.plot(x, y, marker="o", markersize=4, label=label(name), **look(name, names))
            power = math.log(y[-1] / y[-2]) / math.log(x[-1] / x[-2])  # between the last two
            ends = f"{y[0]:.2g} at {x[0]:,}, {y[-1]:.2g} at {x[-1]:,}, at the end growing"
            said.append(f"{title} of {label(name)}: {ends} as S to the power {power:.1f}")
        ax.set(xscale="log", yscale="log", ylabel=title)
    ax.set_xticks(lengths, [f"{length:,}" for length in lengths], rotation=45)
    ax.minorticks_off()
    ax.set_xlabel("sequence length $S$")
    figure.legend(*ax.get_legend_handles_labels(), loc="outside upper left", ncols=2)
    return picture(figure, alt="Costs against the sequence length. " + "; ".join(said) + ".")


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


def _curves(
    runs: Mapping[str, Sequence[Curve]], x: str, y: str
) -> tuple[dict[str, list[float]], dict[str, Spread]]:
    """By method, the points at which all of its seeds were measured, and the spread there."""
    check_some(runs)
    for name, seeds in runs.items():
        if len({tuple(run[x]) for run in seeds}) != 1:
            raise ValueError(
                f"the seeds of {name!r} do not share their values of {x!r}; a mean needs them all "
                "at the same ones: leave out the odd run"
            )
    points = {name: list(seeds[0][x]) for name, seeds in runs.items()}
    return points, {name: spread([run[y] for run in seeds]) for name, seeds in runs.items()}


def _seeds(runs: Mapping[str, Sequence[Any]]) -> str:
    """How many seeds there are, in words."""
    counts = sorted({len(seeds) for seeds in runs.values()})
    if len(counts) > 1:
        return f"{counts[0]} to {counts[-1]} seeds"
    return "one seed" if counts[0] == 1 else f"{counts[0]} seeds"
