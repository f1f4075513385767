"""How trainings went, and what they cost: chapter "What training shows".

Every function takes plain numbers as the record holds them, by the name of the way; the
alternative texts are made from the numbers that are drawn. Losses are in nats a character.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from rope.figures.picture import Picture, picture
from rope.figures.style import INK, subplots
from rope.figures.ways import (
    Spread,
    capitalised,
    check_some,
    draw,
    end_labels,
    label,
    look,
    small_multiples,
    spread,
)
from rope.measuring.intervals import interval

LOSS, STEP = "validation loss", "step"
BAND = "the band runs from the least to the greatest seed"
Curve = Mapping[str, Sequence[float]]


def loss_curves(
    curves: Mapping[str, Sequence[Curve]],
    *,
    reference: str | None = "rope",
    quantity: str = LOSS,
    axis: str = STEP,
) -> Picture:
    """The loss against the step: one panel a way, best first, the reference grey in each.

    Above a panel stands its last mean.
    curves: by way, for each seed its steps under "step" and losses under "loss".
    reference: None draws all in one panel, with a label at each line's end; good for a few.
    axis: the words for what stands under "step", where that is not the number of steps.
    The loss before the first step is left out of sight: it is the same for all, and far above.
    Raises ValueError for no curves, and for seeds that were looked at after different steps.
    """
    check_some(curves)
    steps = {name: _shared(name, "step", runs) for name, runs in curves.items()}
    found = {name: spread([run["loss"] for run in runs]) for name, runs in curves.items()}
    found = dict(sorted(found.items(), key=lambda pair: pair[1].mean[-1]))
    if reference is None:
        figure, ax = subplots(height=3.4)
        for name, curve in found.items():
            draw(ax, steps[name], curve, look(name, found))
        ax.set(xlabel=axis, ylabel=quantity, ylim=_seen(steps, found))
        ends = {name: (steps[name][-1], curve.mean[-1]) for name, curve in found.items()}
        end_labels(figure, ax, ends)
    else:
        figure, panels = small_multiples(
            steps, found, reference, {name: f"{c.mean[-1]:.3f}" for name, c in found.items()}
        )
        panels[0, 0].set(ylim=_seen(steps, found))
        figure.supxlabel(axis + _grey(reference, found), fontsize=10)
        figure.supylabel(quantity, fontsize=10)
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
        alt=f"{capitalised(quantity)} against {against}, mean of {_seeds(curves)}; {BAND}. "
        f"{end}, lowest first: {said}.",
    )


def final_spread(values: Mapping[str, Sequence[float]], *, quantity: str = LOSS) -> Picture:
    """One row a way, sorted, a dot a seed; the bar is the mean with its 95% t interval.

    A single seed gets no bar. Raises ValueError where there is nothing to draw.
    """
    check_some(values)
    found = {name: _mean_and_half(seeds) for name, seeds in values.items()}
    names = sorted(found, key=lambda name: found[name][0])
    figure, ax = subplots(height=0.8 + 0.34 * len(names))
    for row, name in enumerate(names):
        mean, half = found[name]
        colour = look(name, names)["color"]
        dots = {"color": colour, "markersize": 5, "alpha": 0.75, "markeredgewidth": 0}
        ax.plot(values[name], [row + 0.16] * len(values[name]), "o", linestyle="none", **dots)
        if not math.isnan(half):
            bar = {"color": colour, "linewidth": 2, "linestyle": "-"}
            ax.plot([mean - half, mean + half], [row - 0.16] * 2, **bar)
        ax.plot([mean], [row - 0.16], "|", color=INK, markersize=10, markeredgewidth=2)
        number = {"ha": "left", "va": "center", "clip_on": False}
        ax.text(1.02, row, f"{mean:.3f}", transform=ax.get_yaxis_transform(), **number)
    ax.set_yticks(range(len(names)), [label(name) for name in names])
    ax.tick_params(axis="y", length=0)
    ax.set(ylim=(len(names) - 0.5, -0.5), xlabel=quantity)
    ax.grid(visible=False, axis="y")
    said = ", ".join(f"{label(name)} {_interval(*found[name])}" for name in names)
    return picture(
        figure,
        alt=f"{capitalised(quantity)}, one row a way, a dot a seed ({_seeds(values)}), a bar for "
        f"the mean and its 95% t interval. Lowest first: {said}.",
    )


def recall(
    by_distance: Mapping[str, Sequence[Curve]], *, chance: float, reference: str = "rope"
) -> Picture:
    """The accuracy of recall against the distance asked for: one panel a way, most accurate first.

    Above a panel stands its average over the distances.
    by_distance: by way, for each seed its distances under "distance" and shares of right answers,
    0 ... 1, under "accuracy". chance: the share that guessing gets, marked by a dotted line.
    Raises ValueError for no curves, and for seeds that were asked for different distances.
    """
    check_some(by_distance)
    distances = {name: _shared(name, "distance", runs) for name, runs in by_distance.items()}
    found = {name: spread([run["accuracy"] for run in runs]) for name, runs in by_distance.items()}
    found = dict(sorted(found.items(), key=lambda pair: -_average(pair[1])))
    figure, panels = small_multiples(
        distances, found, reference, {name: f"{_average(c):.2f}" for name, c in found.items()}
    )
    for ax in panels.flat:
        ax.axhline(chance, color=INK, linestyle=":", linewidth=1)
    panels[0, 0].set(ylim=(-0.03, 1.03), yticks=(0, 0.5, 1))
    figure.supxlabel("distance asked for, in symbols" + _grey(reference, found), fontsize=10)
    figure.supylabel("share of right answers", fontsize=10)
    said = "; ".join(
        f"{label(name)} {_average(curve):.2f}, from {min(curve.mean):.2f} to {max(curve.mean):.2f}"
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
    figure, panels = subplots(
        len(costs),
        1,
        height=0.8 + 2.1 * len(costs) + 0.1 * len(names),
        sharex=True,
        squeeze=False,
    )
    said = []
    for ax, (title, lines) in zip(panels[:, 0], costs.items(), strict=True):
        for name, values in lines.items():
            known = [
                (x, y) for x, y in zip(lengths, values, strict=True) if y is not None and y > 0
            ]
            if not known:
                continue
            x, y = zip(*known, strict=True)
            ax.plot(x, y, marker="o", markersize=4, label=label(name), **look(name, names))
            said.append(f"{title} of {label(name)}: {_growth(x, y)}")
        ax.set_xscale("log", base=2)
        ax.set_yscale("log")
        ax.set_ylabel(title)
    panels[-1, 0].set_xticks(lengths, [f"{length:,}" for length in lengths], rotation=45)
    panels[-1, 0].minorticks_off()
    panels[-1, 0].set_xlabel("sequence length $S$")
    figure.legend(*panels[0, 0].get_legend_handles_labels(), loc="outside upper left", ncols=2)
    return picture(figure, alt="Costs against the sequence length. " + "; ".join(said) + ".")


def _shared(name: str, key: str, runs: Sequence[Curve]) -> list[float]:
    """The points at which all seeds of a way were measured."""
    points = [list(run[key]) for run in runs]
    if not points or any(other != points[0] for other in points):
        raise ValueError(
            f"the seeds of {name!r} do not share their values of {key!r}; a mean needs them all at "
            "the same ones: leave out the odd run"
        )
    return points[0]


def _seen(steps: Mapping[str, Sequence[float]], found: Mapping[str, Spread]) -> tuple[float, float]:
    """Limits that hold every look after step 0."""
    high = max(
        value
        for name, curve in found.items()
        for step, value in zip(steps[name], curve.high, strict=True)
        if step > 0
    )
    low = min(min(curve.low) for curve in found.values())
    return low - 0.05 * (high - low), high + 0.05 * (high - low)


def _grey(reference: str, found: Mapping[str, Spread]) -> str:
    """What the grey line is."""
    return f" (grey: {label(reference)})" if reference in found and len(found) > 1 else ""


def _seeds(runs: Mapping[str, Sequence[Any]]) -> str:
    """How many seeds there are, in words."""
    counts = sorted({len(seeds) for seeds in runs.values()})
    if len(counts) > 1:
        return f"{counts[0]} to {counts[-1]} seeds"
    return "one seed" if counts[0] == 1 else f"{counts[0]} seeds"


def _mean_and_half(seeds: Sequence[float]) -> tuple[float, float]:
    """Mean and half of the 95% interval, which is NaN for a single seed."""
    if len(seeds) == 1:
        return seeds[0], math.nan
    found = interval(seeds)
    return found.mean, found.half


def _interval(mean: float, half: float) -> str:
    if math.isnan(half):
        return f"{mean:.3f}"
    return f"{mean:.3f} ({mean - half:.3f} to {mean + half:.3f})"


def _average(curve: Spread) -> float:
    return math.fsum(curve.mean) / len(curve.mean)


def _growth(lengths: Sequence[int], values: Sequence[float]) -> str:
    """First and last value, and the power of the length between the last two."""
    ends = f"{values[0]:.2g} at {lengths[0]:,}, {values[-1]:.2g} at {lengths[-1]:,}"
    if len(lengths) < 2:
        return f"{values[0]:.2g} at {lengths[0]:,}"
    power = math.log(values[-1] / values[-2]) / math.log(lengths[-1] / lengths[-2])
    return f"{ends}, at the end growing as S to the power {power:.1f}"
