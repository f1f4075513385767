"""Show which tokens a model finds: chapter "Finding a token".

The lookup figures plot the share of tokens found at each distance. `recall` plots the share of
right answers to each question.
"""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

import altair as alt

from rope.book.figures import Picture, chart, panels, picture, shapes
from rope.book.figures.seeds import Curve, Runs, colors, draw_runs, end_labels, label
from rope.book.figures.style import GRID, INK, MUTED, OCHRE, VERMILION

REFERENCE = "rope"
SHOWN = 17  # the question that the interactive chart opens with
WIDTH = 300


def found_by_distance(
    comparisons: Mapping[str, Mapping[str, Runs]],
    distances: Sequence[int],
    context: int,
    guess: float,
) -> Picture:
    """Plot the share of tokens found against the distance, with one line per method.

    comparisons: maps each title and method to one list per seed. A list has one share per distance,
    or None where the distance exceeds the method's positions. context: the trained length, drawn as
    a dotted line. guess: the share that is found by chance, drawn as a dashed line.
    """
    figure, items = panels(comparisons, height=0.5 + 2.5 * len(comparisons), sharex=True)
    summaries = []
    for ax, title, runs in items:
        ax.set_title(title, loc="left", fontsize=10)
        ax.axhline(guess, color=MUTED, linestyle=(0, (2, 3)), linewidth=1)
        ends = draw_runs(ax, distances, runs, -46)
        shapes.mark(ax, context)
        ax.set(xlim=(distances[0], distances[-1]), xscale="log")
        ax.set(ylim=(-0.02, 1.04), ylabel="share found")
        shapes.x_ticks(ax, [d for d in distances if (d + 1) & d == 0])  # a power of two minus 1
        end_labels(ax, ends)
        shares = ", ".join(f"{words} {share:.2f} at {int(at):,}" for at, share, words in ends)
        summaries.append(f"{title}: {shares}")
    ax.set_xlabel(f"distance (dotted: the trained length, {context})")
    return picture(
        figure,
        alt="Share of names whose symbol is found, against its distance, mean over seeds in a "
        f"band from minimum to maximum; a guess finds {guess:.2f}. {'. '.join(summaries)}.",
    )


def recall(
    answers: Mapping[str, Sequence[Curve]],
    losses: Mapping[str, Sequence[Curve]],
    floors: Mapping[str, float],
    guess: float,
) -> Any:
    """Show the recall task for the chosen method and question: answers above, losses below.

    answers: maps each method to one curve per seed, with the questions under "distance" and the
    shares of right answers, from 0 to 1, under "accuracy". losses: maps each method to one curve
    per seed, with the steps under "step" and the losses under "loss". floors: maps each strategy
    that ignores positions to its share of right answers. guess: the loss of a uniform guess.
    """
    farthest = int(max(next(iter(answers.values()))[0]["distance"]))
    shares = _rows(answers, "distance", "accuracy")
    here = shares.transform_filter("datum.x == t").transform_aggregate(
        mean="mean(y)", least="min(y)", most="max(y)"
    )
    asked = "method + ' is asked for the symbol ' + (2*t - 1) + ' places back:'"
    right = (
        "format(datum.mean, '.2f') + ' right (seeds ' + format(datum.least, '.2f') + ' to ' "
        "+ format(datum.most, '.2f') + ')'"
    )
    words = alt.layer(
        chart.reading(asked, y=10, size=14), chart.reading(right, y=32, size=14, of=here)
    ).properties(width=WIDTH, height=42)
    whole = alt.vconcat(
        words, _answers(shares, floors, farthest), _losses(losses, guess), spacing=14
    ).add_params(
        chart.menu("method", map(label, answers), label(REFERENCE), "method"),
        chart.slider("t", 1, farthest, 1, min(SHOWN, farthest), "question t, 2t − 1 places back"),
    )
    means = "; ".join(
        f"{label(name)} {fmean(share for run in seeds for share in run['accuracy']):.2f}"
        for name, seeds in answers.items()
    )
    under = ", ".join(f"{words} {share:.2f}" for words, share in floors.items())
    return chart.finish(
        whole,
        alt_text="Above, the share of right answers against the question, one dot per seed, for "
        f"the chosen method; dashed lines are strategies that know no position: {under}. Below, "
        "its validation loss against the training step, one line per seed, and a dashed line at "
        f"{guess:.2f}, an even guess. Mean share over all questions: {means}.",
    )


def _rows(runs: Mapping[str, Sequence[Curve]], x: str, y: str) -> alt.Chart:
    """Return a chart of the chosen method's points, with one row per seed and point."""
    rows = (
        (label(name), seed, point, value)
        for name, seeds in runs.items()
        for seed, run in enumerate(seeds)
        for point, value in zip(run[x], run[y], strict=True)
    )
    table = chart.table(("name", "seed", "x", "y"), rows)
    return alt.Chart(table).transform_filter("datum.name == method")


def _answers(shares: alt.Chart, floors: Mapping[str, float], farthest: int) -> alt.LayerChart:
    x = chart.x("x:Q", "question t", [0, farthest + 1], grid=False)
    y = chart.y("y:Q", "share of right answers", [0, 1.02], values=[0, 0.5, 1])
    layers = [chart.one(x="t").mark_rule(color=GRID, strokeWidth=6).encode(x=x)]
    looks = zip((VERMILION, OCHRE, MUTED), ((6, 3), (2, 2), (1, 3)), strict=True)
    for share, (color, dash) in zip(floors.values(), looks, strict=False):
        line = chart.one(y=f"{share:.6g}").mark_rule(color=color, strokeDash=list(dash))
        layers.append(line.encode(y=y))
    dots = shares.mark_point(filled=True, size=22, opacity=0.8)
    layers.append(dots.encode(x=x, y=y, color=colors()))
    return alt.layer(*layers).properties(width=WIDTH, height=170, name="answers")


def _losses(losses: Mapping[str, Sequence[Curve]], guess: float) -> alt.LayerChart:
    rows = _rows(losses, "step", "loss").mark_line(strokeWidth=1.5)
    x = chart.x("x:Q", "training step", grid=False)
    y = chart.y("y:Q", "validation loss", [0, 4], values=[0, 1, 2, 3, 4])
    even = chart.one(y=f"{guess:.6g}").mark_rule(color=INK, strokeDash=[4, 3]).encode(y=y)
    lines = rows.encode(x=x, y=y, color=colors(), detail="seed:N")
    return alt.layer(even, lines).properties(width=WIDTH, height=130)
