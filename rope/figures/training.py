"""How trainings went: chapter "What training shows". Numbers by method, losses in nats a token."""

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt

from rope.figures import Picture, chart, picture, subplots
from rope.figures.seeds import LOOKS, Spread, check_some, draw, end_labels, label, look, spread
from rope.figures.style import GRID, INK, MUTED, OCHRE, VERMILION
from rope.measuring.intervals import interval

REFERENCE = "rope"
BAND = "the band runs from the least to the greatest seed"
SHOWN = 17  # the question that the moving figure begins with
WIDTH = 300
Curve = Mapping[str, Sequence[float]]


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
    steps, found = _curves(curves, "step", "loss")
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


def recall(
    answers: Mapping[str, Sequence[Curve]],
    losses: Mapping[str, Sequence[Curve]],
    floors: Mapping[str, float],
    guess: float,
) -> Any:
    """The recall task under the reader's method and question: answers above, losses below.

    answers: by method, for each seed its questions under "distance" and shares of right answers,
    0 ... 1, under "accuracy". losses: its steps under "step" and losses under "loss". floors: by
    the words for a strategy that knows no position, its share. guess: the loss of an even guess.
    Raises ValueError for no method, and for seeds that were asked or evaluated at other points.
    """
    _curves(answers, "distance", "accuracy")
    _curves(losses, "step", "loss")
    names = {label(name): name for name in answers}
    methods = alt.binding_select(options=list(names), name="method")
    farthest = int(max(next(iter(answers.values()))[0]["distance"]))
    parameters = [
        alt.param(name="method", value=label(REFERENCE), bind=methods),
        chart.slider("t", 1, farthest, 1, min(SHOWN, farthest), "question t, 2t − 1 places back"),
    ]
    shares = _rows(answers, "distance", "accuracy")
    whole = alt.vconcat(
        _words(shares), _answers(shares, floors, farthest), _losses(losses, guess), spacing=14
    ).add_params(*parameters)
    shares_of = {
        n: [share for run in seeds for share in run["accuracy"]] for n, seeds in answers.items()
    }
    said = "; ".join(f"{label(n)} {sum(some) / len(some):.2f}" for n, some in shares_of.items())
    under = ", ".join(f"{words} {share:.2f}" for words, share in floors.items())
    return chart.finish(
        whole,
        alt_text="Above, the share of right answers against the question, a dot a seed, for the "
        f"chosen method; dashed lines are strategies that know no position: {under}. Below, its "
        "validation loss against the training step, a line a seed, and a dashed line at "
        f"{guess:.2f}, an even guess. Mean share over all questions: {said}.",
    )


def _rows(runs: Mapping[str, Sequence[Curve]], x: str, y: str) -> alt.Chart:
    """A row for each method, seed and point, those of the chosen method kept."""
    found = [
        (label(name), seed, point, value)
        for name, seeds in runs.items()
        for seed, run in enumerate(seeds)
        for point, value in zip(run[x], run[y], strict=True)
    ]
    columns = dict(zip(("name", "seed", "x", "y"), zip(*found, strict=True), strict=True))
    return alt.Chart(chart.data(**columns)).transform_filter("datum.name == method")


def _colours() -> alt.Color:
    known = {words: colour for words, colour, _ in LOOKS.values()}
    scale = alt.Scale(domain=list(known), range=list(known.values()))
    return alt.Color("name:N", scale=scale, legend=None)


def _words(shares: alt.Chart) -> alt.LayerChart:
    here = shares.transform_filter("datum.x == t").transform_aggregate(
        mean="mean(y)", least="min(y)", most="max(y)"
    )
    asked = "method + ' is asked for the symbol ' + (2*t - 1) + ' places back:'"
    right = (
        "format(datum.mean, '.2f') + ' right (seeds ' + format(datum.least, '.2f') + ' to ' "
        "+ format(datum.most, '.2f') + ')'"
    )
    return alt.layer(
        chart.reading(asked, y=10, size=14), chart.reading(right, y=32, size=14, of=here)
    ).properties(width=WIDTH, height=42)


def _answers(shares: alt.Chart, floors: Mapping[str, float], farthest: int) -> alt.LayerChart:
    x = chart.x("x:Q", "question t", [0, farthest + 1], grid=False)
    y = chart.y("y:Q", "share of right answers", [0, 1.02], values=[0, 0.5, 1])
    layers = [chart.one(x="t").mark_rule(color=GRID, strokeWidth=6).encode(x=x)]
    lines = zip(floors.items(), (VERMILION, OCHRE, MUTED), ((6, 3), (2, 2), (1, 3)), strict=False)
    for (_, share), colour, dash in lines:
        line = chart.one(y=f"{share:.6g}").mark_rule(color=colour, strokeDash=list(dash))
        layers.append(line.encode(y=y))
    dots = shares.mark_point(filled=True, size=22, opacity=0.8)
    layers.append(dots.encode(x=x, y=y, color=_colours()))
    return alt.layer(*layers).properties(width=WIDTH, height=170, name="answers")


def _losses(losses: Mapping[str, Sequence[Curve]], guess: float) -> alt.LayerChart:
    rows = _rows(losses, "step", "loss").mark_line(strokeWidth=1.5)
    x = chart.x("x:Q", "training step", grid=False)
    y = chart.y("y:Q", "validation loss", [0, 4], values=[0, 1, 2, 3, 4])
    even = chart.one(y=f"{guess:.6g}").mark_rule(color=INK, strokeDash=[4, 3]).encode(y=y)
    lines = rows.encode(x=x, y=y, color=_colours(), detail="seed:N")
    return alt.layer(even, lines).properties(width=WIDTH, height=130)


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
