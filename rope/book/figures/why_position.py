"""Show one output for two word orders, and what an added position vector does: "Why position?"."""

import math
from collections.abc import Sequence

from torch import Tensor

from rope.book.figures import Picture, panels, picture, shapes, subplots
from rope.book.figures.style import BLUE, COLORS, GREEN, MUTED, VERMILION
from rope.reference import rotation_matrix

PLANES = (0, 4, 8, 16)  # the planes whose sine columns are drawn


def two_orders(
    word: str, sentences: Sequence[str], rows: Sequence[Tensor], outputs: Sequence[Tensor]
) -> Picture:
    """Draw one word's attention weights in each sentence, and print the word's output.

    rows: the word's weights `[S]`, one row per sentence. outputs: the word's outputs `[D]`, one per
    sentence. Every sentence reorders the words of the first sentence. A word keeps its color.
    """
    colors = dict(zip(dict.fromkeys(sentences[0].split()), COLORS, strict=False))
    figure, axes = subplots(len(sentences), 1, height=2.2 * len(sentences), sharey=True)
    top = 1.25 * max(row.max().item() for row in rows)
    summaries = []
    for ax, sentence, row, output in zip(axes, sentences, rows, outputs, strict=True):
        order, shares = sentence.split(), [f"{weight:.2f}" for weight in row.tolist()]
        bars = ax.bar(range(len(order)), row.tolist(), 0.7, color=[colors[w] for w in order])
        ax.bar_label(bars, shares, padding=2)
        vector = "(" + ", ".join(f"{x:.2f}" for x in output.tolist()) + ")"
        ax.set(title=f"{sentence}: {word} becomes {vector}", ylim=(0, top))
        ax.set_xticks(range(len(order)), order)
        ax.set_ylabel(f"weight of {word}")
        ax.grid(False, axis="x")
        listed = ", ".join(f"{w} {share}" for w, share in zip(order, shares, strict=True))
        summaries.append(f"{sentence}: {listed}; {word} becomes {vector}.")
    return picture(
        figure,
        alt=f"A bar chart for each sentence: the weight that {word} gives to each word. "
        + " ".join(summaries)
        + " Every word keeps its weight.",
    )


def four_terms(
    word: Tensor, p: Tensor, commuting: Tensor, general: Tensor, step: int = 4
) -> Picture:
    """Draw the terms of (x + p_m)^T W (x + p_n) that contain a position, as maps over m and n.

    word: the embedding x `[D]`, the same for every token. p: position vectors `[S, D]`. The maps
    use every `step`-th vector, about 16 in all, so that the stored picture stays small. commuting:
    a matrix W `[D, D]` that commutes with the rotations. general: a matrix W that does not commute
    with the rotations, also used for the two mixed terms. Each map shows its term minus the mean.
    """
    at = p[::step]
    x = word.expand(len(at), -1)
    terms = {
        "word–place": x @ general @ at.T,
        "place–word": at @ general @ x.T,
        "place–place, $W$ random": at @ general @ at.T,
        "place–place, $W$ commutes": at @ commuting @ at.T,
    }
    figure, items = panels(terms, columns=2, height=5.2, sharex=True, sharey=True)
    for ax, name, term in items:
        shapes.signed_map(ax, term - term.mean(), name)
    labeled = range(0, len(at), 4)
    corner = figure.axes[0]
    corner.set_xticks(labeled, [f"{step * k}" for k in labeled])
    corner.set_yticks(labeled, [f"{step * k}" for k in labeled])
    corner.invert_yaxis()
    for k in range(2):
        figure.axes[2 + k].set_xlabel("key $n$")
        figure.axes[2 * k].set_ylabel("query $m$")
    return picture(
        figure,
        alt="Four square maps over the query's and the key's position. Word–place has vertical "
        "stripes: one color for each position of the key. Place–word has horizontal stripes: one "
        "for each position of the query. Place–place with a random matrix changes along rows, "
        "columns and diagonals. Place–place with a matrix that commutes with the rotations has "
        "one color on each diagonal.",
    )


def right_and_wrong(right: Tensor, wrong: Tensor) -> Picture:
    """Plot the sine columns of two position tables `[S, D]`, with one curve per plane."""
    tables = {
        r"right: $\sin(k / 10000^{2t/d})$": right,
        r"wrong: $\sin(k / 10000 \cdot 2t/d)$": wrong,
    }
    figure, items = panels(tables, height=4.8, sharex=True, sharey=True)
    for ax, formula, table in items:
        for t in PLANES:
            ax.plot(table[:, 2 * t].tolist(), label=f"$t = {t}$")
        ax.set(title=formula, ylim=(-1.15, 1.15))
    ax.set_xlabel("position $k$")
    ax.legend(ncols=len(PLANES), loc="upper center", handlelength=3)
    return picture(
        figure,
        alt="Two panels of curves over position. With the exponent in place, plane 0 swings with "
        "a period of about six positions and the later planes more and more slowly. With the "
        "exponent lost, all four curves lie on zero.",
    )


def length_and_angle(p: tuple[float, float], angle: float) -> Picture:
    """Draw the words (2, 0) and (4, 0) as they are, after adding p, and after rotating them."""
    words = ((2.0, 0.0), (4.0, 0.0))
    matrix = rotation_matrix(1, [angle])
    added = [(x + p[0], y + p[1]) for x, y in words]
    rotated = [tuple((matrix @ word).tolist()) for word in words]
    ways = {
        "adding $p$ to both": (added, ((2.3, 1.45), (5.15, 1.0))),
        "rotating both": (rotated, ((2.1, 0.55), (3.6, 2.05))),
    }
    thin = {"linewidth": 1.4, "linestyle": shapes.DASHED}
    circle = {"color": MUTED, "linewidth": 1.2, "linestyle": (0, (2, 2))}
    figure, items = panels(ways, height=5.4, sharex=True)
    for ax, title, (moved, labels) in items:
        for at in (1, 0):  # the longer word first, so that the shorter one lies on top
            word, tip, color = words[at], moved[at], (VERMILION, BLUE)[at]
            ax.plot(*shapes.arc((0, 0), word[:1] * 2, -0.12, 0.72), **circle)
            shapes.arrow(ax, (0, 0), word, color, **thin)
            shapes.arrow(ax, (0, 0), tip, color)
            turn, length = math.degrees(math.atan2(tip[1], tip[0])), math.hypot(*tip)
            ax.text(*labels[at], f"{turn:.1f}°\nlength {length:.2f}", va="center")
            if moved is added:
                shapes.arrow(ax, word, tip, GREEN)
                ax.text((word[0] + tip[0]) / 2 + 0.12, 0.3, "$p$")
        ax.set(title=title, xlim=(-0.1, 6.7), ylim=(-0.6, 2.5), aspect="equal")
        ax.grid(False)
    return picture(
        figure,
        alt="Above, the same short arrow p is added to a word of length 2 and one of length 4: "
        "they become 3.16 and 5.10 long, and turn by 18.4 and 11.3 degrees. Below, both are "
        "rotated: both turn by 30 degrees and stay on the circles of their lengths.",
    )
