"""Plot what a language model loses, and what it still finds, beyond its trained length.

The figures of "Beyond the trained length" show the loss along long texts, how much less the loss
rises if far keys get trained distances, and how many planted words the model finds.
"""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from matplotlib.ticker import PercentFormatter

from rope.book.figures import Picture, panels, picture, shapes, subplots
from rope.book.figures.a_real_model import MARKS
from rope.book.figures.style import BLUE, GREEN, INK, MUTED, VERMILION, line_style

COLORS = {text: (color, mark) for text, mark, color in MARKS}
#: The color, dash, and mark of each method.
LOOKS: dict[str, tuple[str, tuple[int, ...], str]] = {
    "plain": (BLUE, (1, 0), "o"),
    "YaRN": (GREEN, (1, 0), "s"),
    "window and 4 sinks": (VERMILION, (6, 2), "D"),
}

Losses = Mapping[str, Sequence[float]]  # the increase in loss per block, by text or method
Found = Mapping[str, Mapping[int, Sequence[float]]]  # shares of words, by method and distance


def along_the_text(rises: Losses, *, trained: int, block: int) -> Picture:
    """Plot the increase in loss on each text against the number of tokens read.

    rises: maps each text to its increases in nats, one per block. trained, block: the trained
    length and the length of a block, in tokens.
    """
    figure, ax = subplots(height=3.3)
    for text, values in rises.items():
        color, mark = COLORS[text]
        ends = range(block, block * len(values) + 1, block)
        ax.plot(ends, values, "-", marker=mark, color=color, markersize=5, label=text)
    _axes(ax, trained, ends[-1])
    ax.set(xlabel="tokens read", ylabel="loss above recomputed (nats)")
    ax.legend(loc="upper left")
    shown = (trained, trained * 5 // 4, ends[-1])  # the ends of the blocks in the alt text
    each = "; ".join(
        f"{text} " + ", ".join(f"{values[end // block - 1]:+.2f} at {end:,}" for end in shown)
        for text, values in rises.items()
    )
    return picture(
        figure,
        alt="The loss of each block minus the loss of the same tokens recomputed, against tokens "
        f"read. A dotted line marks the trained length, {trained:,}. {each}.",
    )


def undone(shares: Mapping[str, Losses], predicted: Mapping[str, float]) -> Picture:
    """Plot the share of the loss increase that disappears if far keys get trained distances.

    shares: maps each group of planes, then each text, to one share per random draw. predicted:
    maps each group to the share that new angles alone would explain.
    """
    figure, ax = subplots(height=2.6)
    summaries = []
    for place, (group, texts) in enumerate(shares.items()):
        parts = []
        for lane, (text, values) in enumerate(texts.items()):
            color, mark = COLORS[text]
            at = place + 0.22 * (lane - 1)
            label = text if place == 0 else None
            ax.plot(values, [at] * len(values), mark, color=color, markersize=5, label=label)
            parts.append(f"{text} {min(values):.0%} to {max(values):.0%}")
        ax.vlines(predicted[group], place - 0.42, place + 0.42, INK, linewidth=5, alpha=0.3)
        summaries.append(f"{group}, expected {predicted[group]:.0%}: {', '.join(parts)}")
    ax.set_yticks(range(len(shares)), [*shares])
    ax.set(ylim=(len(shares) - 0.5, -0.5), xlabel="share of the rise undone")
    ax.xaxis.set_major_formatter(PercentFormatter(1.0))
    ax.tick_params(axis="y", length=0)
    ax.grid(visible=False, axis="y")
    figure.legend(loc="outside upper center", ncols=len(COLORS))
    return picture(
        figure,
        alt="The share of the rise undone. Each group of planes has a row with one mark per text "
        "and draw, and a broad line at the share to expect if only new angles break the model. "
        f"{'; '.join(summaries)}.",
    )


def found(shares: Mapping[str, Found], *, trained: int) -> Picture:
    """Plot the share of planted words that the model finds against the words' distance.

    shares: maps each panel's title, then each method, then each distance in tokens to one share
    per reading. A line connects the means over readings.
    """
    figure, items = panels(shares, height=5.2, sharex=True, sharey=True)
    summaries = []
    for ax, title, lines in items:
        for name, points in lines.items():
            color, dash, mark = LOOKS[name]
            style = {"color": color, "linestyle": line_style(dash), "marker": mark}
            means = {distance: fmean(values) for distance, values in points.items()}
            ax.plot([*points], [*means.values()], markersize=6, label=name, **style)
            ax.plot([*points], [*points.values()], mark, color=color, markersize=3, alpha=0.4)
            each = ", ".join(f"{share:.0%} at {distance:,}" for distance, share in means.items())
            summaries.append(f"{title}, {name}: {each}")
        _axes(ax, trained, max(points), named=ax is items[0][0])
        ax.set_title(title, loc="left", fontsize=10, pad=18 if ax is items[0][0] else 6)
        ax.yaxis.set_major_formatter(PercentFormatter(1.0))
    ax.set(ylim=(-0.04, 1.04), xlabel="tokens between the list and the question")
    figure.supylabel("words found", fontsize=10)
    handles, names = items[0][0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside upper center", ncols=len(names))
    return picture(
        figure,
        alt="The share of planted words that are the likeliest next token, against the distance to "
        f"the list. A dotted line marks the trained length. Means: {'; '.join(summaries)}.",
    )


def _axes(ax: Any, trained: int, last: int, named: bool = True) -> None:
    ax.axhline(0, color=MUTED, linewidth=1)
    shapes.mark(ax, trained, f"trained length {trained:,}" if named else "")
    ax.set_xticks(range(0, last + 1, trained // 2))
    ax.xaxis.set_major_formatter("{x:,.0f}")
