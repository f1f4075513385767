"""Show a model's loss along a text, and new angles, for "Longer than the training text"."""

import math
from collections.abc import Mapping, Sequence

from rope.book.figures import Picture, panels, picture, shapes, subplots
from rope.book.figures.style import BLUE, GREEN, GRID, INK, VERMILION


def loss_curves(losses: Mapping[str, Sequence[float]], *, trained: int, block: int) -> Picture:
    """Plot a text's loss in each block against the number of tokens read, one line per method.

    losses: maps each method to one loss per block, in nats. trained, block: lengths in tokens.
    """
    figure, ax = subplots(height=3.0)
    for name, color, mark in zip(losses, (VERMILION, GREEN, BLUE), "os^", strict=True):
        read = range(block, block * len(losses[name]) + 1, block)
        ax.plot(read, losses[name], "-", marker=mark, color=color, markersize=5, label=name)
    shapes.mark(ax, trained, f"trained length {trained:,}")
    shapes.x_ticks(ax, read[3::4])
    ax.set(xlabel="tokens read", ylabel="loss (nats per token)")
    ax.legend(loc="upper left")
    ends = (f"{name} from {values[7]:.2f} to {values[-1]:.2f}" for name, values in losses.items())
    return picture(figure, alt=f"Loss from {read[7]:,} tokens to {read[-1]:,}: {', '.join(ends)}.")


def angles_met(theta: float, changed: Mapping[str, float], *, trained: int, length: int) -> Picture:
    """Draw one circle per method, with the angles met in training and the new angles beyond them.

    theta: the plane's frequency in training, in radians per position. changed: maps each method to
    the plane's frequency in the longer text. trained, length: the number of tokens in training and
    in the longer text. Dots mark the multiples of `trained` and the largest distance.
    """
    seen, farthest = (trained - 1) * theta, length - 1
    figure, items = panels(changed, columns=len(changed), height=2.0)
    summaries = []
    for ax, name, rate in items:
        reached, first = farthest * rate, trained * theta  # new angles begin one step beyond `seen`
        sectors = [(0.0, seen, BLUE), (first, min(reached, math.tau), VERMILION)]
        new = f"new from {first:.2f}" if reached >= first else "none new"
        summaries.append(f"{name}: to {reached:.2f}, {new}")
        ax.plot(*shapes.arc((0, 0), (1, 1), 0, math.tau), color=GRID)
        for start, end, color in sectors[: 1 + (reached >= first)]:
            arc_x, arc_y = shapes.arc((0, 0), (1, 1), start, end)
            ax.fill([0, *arc_x], [0, *arc_y], color=color, alpha=0.45, linewidth=0)
            ax.plot(arc_x, arc_y, color=color, linestyle="-", linewidth=3)
        for distance in (*range(0, length, trained), farthest):
            x, y = math.cos(distance * rate), math.sin(distance * rate)
            ax.plot([x], [y], "o", color=INK, markersize=4)
            if distance in (trained, farthest):
                side = "left" if x > 0.3 else "right" if x < -0.3 else "center"
                ax.text(1.15 * x, 1.2 * y, f"{distance}", ha=side, va="center")
        ax.set(title=name, xlim=(-1.75, 1.75), ylim=(-1.45, 1.45), aspect="equal")
        ax.text(0, -1.4, f"up to {reached:.2f}", ha="center", va="bottom")
        ax.axis("off")
    alt = f"One circle per method. Blue: angles in {trained} tokens, to {seen:.2f} radians. Orange:"
    return picture(figure, alt=f"{alt} new angles in {length} tokens. {'; '.join(summaries)}.")
