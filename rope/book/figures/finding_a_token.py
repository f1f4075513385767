"""Show which tokens a model finds: chapter "Finding a token".

The lookup figures plot the share of tokens found at each distance. `recall` plots the share of
right answers to each question.
"""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

import altair as alt

from rope.book.figures import Picture, chart, panels, picture, shapes, subplots
from rope.book.figures.seeds import Curve, Runs, colors, draw_runs, end_labels, label, spread
from rope.book.figures.style import BLUE, GREEN, GRID, INK, MUTED, OCHRE, VERMILION

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


def predicted(
    predictions: Mapping[str, tuple[Sequence[float], Runs]],
    distances: Sequence[int],
    starts: Mapping[str, Mapping[str, Sequence[int]]],
    context: int,
) -> Picture:
    """Plot a sum of cosines and the share of tokens found against the distance.

    The last panel marks, for each base, the first distances at which each condition holds.
    predictions: maps each title to two items: the sum at each distance (drawn as a line), and each
    seed's shares (drawn as dots). starts: maps each base and condition to the first distances,
    either a single distance or one per seed. context: the trained length.
    """
    figure, axes = subplots(len(predictions) + 1, 1, height=2.1 * len(predictions) + 2.9)
    summaries = []
    for (title, (sums, seeds)), ax in zip(predictions.items(), axes, strict=False):
        ax.set_title(title, loc="left", fontsize=10)
        ax.plot(distances, sums, "s-", color=OCHRE, markersize=4, linewidth=1.2)
        share = ax.twinx()
        for seed in seeds:
            share.plot(distances, seed, "o", color=BLUE, markersize=4, alpha=0.75)
        share.set(ylim=(-0.04, 1.04))
        share.set_ylabel("share found (dots)", color=BLUE)
        share.grid(False)
        ax.set_ylabel("sum of cosines (line)")
        each = zip(distances, sums, spread(seeds).mean, strict=True)
        summaries.append(title + ": " + ", ".join(f"{d:,}: {c:.1f}, {m:.2f}" for d, c, m in each))
    last = axes[-1]
    last.set_title("first distance at which …, by base", loc="left", fontsize=10)
    looks = zip("xos", (OCHRE, BLUE, GREEN), (0, -0.2, 0.14), strict=True)
    kinds = dict(zip(next(iter(starts.values())), looks, strict=True))
    for row, (base, kinds_of_base) in enumerate(starts.items()):
        for words, places in kinds_of_base.items():
            mark, color, aside = kinds[words]
            heights = [row + aside + 0.06 * seed for seed in range(len(places))]
            name = words if row == 0 else None
            last.plot(places, heights, mark, color=color, markersize=5, label=name)
        shown = "; ".join(
            f"{words} {', '.join(map(str, at))}" for words, at in kinds_of_base.items()
        )
        summaries.append(f"base {base}: {shown}")
    last.set_yticks(range(len(starts)), list(starts))
    last.set(ylim=(len(starts) - 0.4, -0.5))
    last.legend(loc="upper center", bbox_to_anchor=(0.45, -0.28), labelspacing=0.2)
    for ax in axes:
        shapes.mark(ax, context)
        ax.set(xlim=(25, 4000), xscale="log")
        shapes.x_ticks(ax, [32, 128, 512, 2048])
    last.set_xlabel(f"distance (dotted: the trained length, {context})")
    alt = f"By distance, a sum of cosines and the mean share found. {'. '.join(summaries)}."
    return picture(figure, alt=alt)


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
