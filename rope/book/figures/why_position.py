"""Draw attention under masks, and the effect of added positions: chapter "Why position?"."""

import math
from collections.abc import Mapping

from torch import Tensor

from rope.book.figures import Picture, panels, picture, shapes
from rope.book.figures.style import BLUE, GREEN, MUTED, VERMILION
from rope.reference import rotation_matrix


def weight_tables(tables: Mapping[str, Tensor]) -> Picture:
    """Draw one table of attention weights per mask, with one row per query.

    tables: maps each mask's name to its weights `[S, S]`. The larger a weight, the darker its cell.
    A weight of 0 is left blank.
    """
    figure, items = panels(tables, columns=2, height=2.7 * -(-len(tables) // 2))
    summaries = []
    for ax, name, table in items:
        for m, row in enumerate(table.tolist()):
            for n, weight in enumerate(row):
                shapes.box(ax, n - 0.5, m - 0.5, facecolor=BLUE, alpha=0.65 * weight)
                share = f"{weight:.2f}".removeprefix("0") if weight else ""
                ax.text(n, m, share, **shapes.CENTERED)
        edges = (-0.55, len(table) - 0.45)
        ax.set(title=name, xlim=edges, ylim=edges[::-1], aspect="equal", xlabel="key $n$")
        ax.set(xticks=range(len(table)), yticks=range(len(table)), ylabel="query $m$")
        ax.tick_params(length=0)
        ax.grid(False)
        seen = (f"query {m} sees {row.count_nonzero()} keys" for m, row in enumerate(table))
        summaries.append(f"{name}: {', '.join(seen)}.")
    return picture(
        figure,
        alt="A table of attention weights for each mask, with one row per query and one column per "
        "key. In each row, the keys that the query sees share its attention equally. "
        + " ".join(summaries),
    )


def four_terms(word: Tensor, p: Tensor, random: Tensor, identity: Tensor, step: int = 4) -> Picture:
    """Draw the terms of (x + p_m)^T W (x + p_n) that contain a position, as maps over m and n.

    word: the embedding x `[D]`, the same for every token. p: position vectors `[S, D]`. The maps
    use every `step`-th vector, about 16 in all, so that the stored picture stays small. random,
    identity: two matrices W `[D, D]`; the mixed terms use the random one. Each map shows a term
    minus its mean.
    """
    at = p[::step]
    x = word.expand(len(at), -1)
    terms = {
        "word–place": x @ random @ at.T,
        "place–word": at @ random @ x.T,
        "place–place, $W$ random": at @ random @ at.T,
        "place–place, $W = I$": at @ identity @ at.T,
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
        "columns and diagonals. Place–place with the identity matrix has one color on each "
        "diagonal.",
    )


def length_and_angle(p: tuple[float, float], angle: float) -> Picture:
    """Draw the words (2, 0) and (4, 0) unchanged, with p added, and rotated by `angle`."""
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
