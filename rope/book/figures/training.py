"""How trainings went: chapter "What training shows". Numbers by method, losses in nats a token."""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

import altair as alt

from rope.book.figures import Picture, chart, picture, subplots
from rope.book.figures.seeds import (
    Curve,
    colours,
    curves_of_seeds,
    draw,
    end_labels,
    label,
    look,
)
from rope.book.figures.style import BLUE, INK, MUTED
from rope.book.measured.intervals import interval

REFERENCE = "rope"
BAND = "the band runs from the least to the greatest seed"


def above_reference(values: Mapping[str, Mapping[str, Sequence[float]]]) -> Picture:
    """Losses above the reference's: a row a method, a dot a seed, a bar for the 95% t interval.

    values: by the words for a setting ("128 characters"), by method, the differences seed by seed;
    one or two settings, the first with full dots. Sorted by the first setting's means.
    Raises ValueError for a single seed.
    """
    first = next(iter(values.values()))
    names = sorted(first, key=lambda name: fmean(first[name]))
    figure, ax = subplots(height=0.9 + 0.44 * len(names))
    ax.axvline(0, color=MUTED, linewidth=1)
    settings = []
    for (words, methods), shift, full in zip(
        values.items(), (-0.2, 0.2), (True, False), strict=False
    ):
        means = []
        for row, name in enumerate(names):
            seeds, y, colour = methods[name], row + shift, look(name, names)["color"]
            line = interval(seeds)
            dots = {"color": colour, "markersize": 5, "markerfacecolor": colour if full else "none"}
            ax.plot(seeds, [y] * len(seeds), "o", linestyle="none", **dots)
            ax.plot([line.low, line.high], [y, y], "-", color=colour, linewidth=1.5)
            ax.plot([line.mean], [y], "|", color=INK, markersize=9, markeredgewidth=1.5)
            mean = f"{round(line.mean, 3) + 0:+.3f}"
            beside = {"transform": ax.get_yaxis_transform(), "va": "center", "clip_on": False}
            ax.text(1.02, y, mean, **beside)
            means.append(f"{label(name)} {mean} ± {line.half:.3f}")
        handle = {"color": MUTED, "markersize": 5, "markerfacecolor": MUTED if full else "none"}
        ax.plot([], [], "o", linestyle="none", label=words, **handle)
        settings.append(f"{words}: {', '.join(means)}")
    ax.set_yticks(range(len(names)), [label(name) for name in names])
    ax.tick_params(axis="y", length=0)
    ax.set(ylim=(len(names) - 0.5, -0.5), xlabel=f"final loss minus {label(REFERENCE)}'s, nats")
    ax.grid(visible=False, axis="y")
    figure.legend(*ax.get_legend_handles_labels(), loc="outside upper left", ncols=2)
    return picture(
        figure,
        alt=f"Final loss minus {label(REFERENCE)}'s, one row a method, a dot a seed, a bar for "
        f"the 95% t interval of the mean. {'; '.join(settings)}.",
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


def learning(trainings: Mapping[str, Mapping[str, Sequence[Curve]]]) -> Any:
    """The loss while training under the reader's method, a line a seed, over RoPE's in blue.

    trainings: by the words for a text and a budget, by method, for each seed its steps under "step"
    and losses under "loss", RoPE's among them. The loss before any step is left out.
    Raises ValueError for seeds that were evaluated after different steps.
    """
    rows, ends = [], []
    for text, curves in trainings.items():
        _, means = curves_of_seeds(curves, "step", "loss")
        for name, seeds in curves.items():
            for seed, run in enumerate(seeds):
                points = list(zip(run["step"], run["loss"], strict=True))[1:]
                rows += [(text, label(name), seed, step, loss) for step, loss in points]
            end = means[name].mean[-1]
            ends.append((text, label(name), end, end - means[REFERENCE].mean[-1]))
    options = list(dict.fromkeys(name for _, name, *_ in ends if name != label(REFERENCE)))
    lines = chart.table(("text", "name", "seed", "step", "loss"), rows)
    lasts = chart.table(("text", "name", "end", "less"), ends)
    x = chart.x("step:Q", "training step", grid=False)
    y = chart.y("loss:Q", "validation loss", [1.2, 3.6])
    reference, chosen = (
        alt.Chart(lines).transform_filter(f"datum.text == text && datum.name == {which}")
        for which in (f"'{label(REFERENCE)}'", "method")
    )
    under = reference.mark_line(clip=True, color=BLUE, strokeWidth=1)
    over = chosen.mark_line(clip=True, strokeWidth=1.8).encode(color=colours())
    panel = alt.layer(*(line.encode(x=x, y=y, detail="seed:N") for line in (under, over)))
    ended = alt.Chart(lasts).transform_filter("datum.text == text && datum.name == method")
    words = (
        "method + ' ends at ' + format(datum.end, '.3f') + ', ' + format(datum.less, '+.3f') "
        f"+ ' from {label(REFERENCE)} (blue)'"
    )
    sentence = chart.reading(words, y=10, size=14, of=ended).properties(width=300, height=24)
    panel = panel.properties(width=300, height=260, name="learning")
    losses = "; ".join(f"{text}: {name} {mean:.3f}" for text, name, mean, _ in ends)
    return chart.finish(
        alt.vconcat(sentence, panel, spacing=8).add_params(
            chart.menu("text", trainings, next(iter(trainings)), "trained on"),
            chart.menu("method", options, options[0], "method"),
        ),
        alt_text="Validation loss against the training step, a line a seed, for the chosen method "
        f"over {label(REFERENCE)}'s in blue, on the chosen text. Means at the end: {losses}.",
    )


def _seeds(runs: Mapping[str, Sequence[Any]]) -> str:
    """How many seeds there are, in words."""
    counts = sorted({len(seeds) for seeds in runs.values()})
    if len(counts) > 1:
        return f"{counts[0]} to {counts[-1]} seeds"
    return "one seed" if counts[0] == 1 else f"{counts[0]} seeds"
