"""Draw shuffled attention, a counter, clocks, and loss curves, for "RoPE in one sitting"."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
from torch import Tensor

from rope.book.figures import Picture, panels, picture, shapes, subplots
from rope.book.figures.seeds import Runs, draw_runs, end_labels
from rope.book.figures.style import COLORS, INK, MUTED

BITS = 4  # the number of the counter's digits


def shuffled(word: str, weights: Mapping[str, Tensor]) -> Picture:
    """Draw one sentence per row, with arcs from each word to the words that it attends to.

    weights: maps each sentence to the word's attention weights `[S]`. The thickness of an arch is
    proportional to its weight. The same word has the same color in each sentence.
    """
    colors = dict(zip(sorted(set(" ".join(weights).split()) - {word}), COLORS, strict=False))
    figure, items = panels(weights, height=1.5 * len(weights))
    summaries = []
    for ax, sentence, row in items:
        words, shares = sentence.split(), row.tolist()
        here = words.index(word)
        for place, (name, share) in enumerate(zip(words, shares, strict=True)):
            color = colors.get(name, INK)
            if place != here:
                center, radius = (here + place) / 2, abs(here - place) / 2
                x, y = shapes.arc((center, 0.35), (radius, 0.5 + 0.4 * radius), 0, math.pi)
                ax.plot(x, y, "-", color=color, linewidth=12 * share, solid_capstyle="butt")
            ax.text(place, 0, name, color=color, weight="bold", size=12, **shapes.CENTERED)
            ax.text(place, -0.5, f"{share:.2f}", **shapes.CENTERED)
        ax.set(xlim=(-0.5, len(words) - 0.5), ylim=(-0.8, 1.5))
        ax.axis("off")
        listed = ", ".join(f"{w} {share:.2f}" for w, share in zip(words, shares, strict=True))
        summaries.append(f"{sentence}: {listed}.")
    return picture(
        figure,
        alt=f"Two rows of words. Arches lead from {word} to the other words, as thick as the "
        f"attention weight, which is printed below each word. {' '.join(summaries)}",
    )


def counter() -> Picture:
    """Draw each digit of a binary counter from 0 to 15, and a wave with the same period."""
    digits = {f"{2**bit}s": bit for bit in range(BITS)}
    figure, items = panels(digits, height=4.2, sharex=True)
    last = 2**BITS
    smooth = np.linspace(-0.5, last - 0.5, 40 * BITS + 1)
    for ax, digit, bit in items:
        numbers = np.arange(-1, last + 1)
        ax.step(numbers, numbers >> bit & 1, where="mid", color=MUTED, linewidth=1.5, ls="-")
        wave = 0.5 - 0.5 * np.sin(math.pi * (smooth + 0.5) / 2**bit)
        ax.plot(smooth, wave, color=COLORS[bit], linestyle="-")
        ax.set(ylabel=digit, yticks=(0, 1), xlim=(-0.5, last - 0.5), xticks=range(0, last, 2))
    items[-1][0].set_xlabel("position")
    return picture(
        figure,
        alt="Four panels, one per binary digit of the position from 0 to 15. The digit jumps "
        "between 0 and 1: at every position for the 1s, every 2 positions for the 2s, every 4 "
        "for the 4s, every 8 for the 8s. A smooth wave with the same period runs through each.",
    )


def clocks(positions: Sequence[int], thetas: Sequence[float]) -> Picture:
    """Draw one row of clocks per position. thetas: each clock's frequency, in rad per position."""
    figure, axes = subplots(len(positions), len(thetas), height=1.75 * len(positions))
    for row, position in zip(axes, positions, strict=True):
        for ax, theta, color in zip(row, thetas, COLORS, strict=False):
            angle = position * theta
            ax.plot(*shapes.arc((0, 0), (1, 1), 0, 2 * math.pi, 72), color=MUTED, linewidth=1.2)
            shapes.arrow(ax, (0, 0), (math.cos(angle), math.sin(angle)), color)
            ax.set(xlim=(-1.15, 1.15), ylim=(-1.15, 1.15), aspect="equal")
            ax.axis("off")
        row[0].text(-1.3, 0, f"position {position}", rotation=90, **shapes.CENTERED)
    for ax, theta in zip(axes[0], thetas, strict=True):
        ax.set_title(f"{theta:g} rad per position", fontsize=10)
    hands = "; ".join(
        f"position {m}: " + ", ".join(f"{math.degrees(m * t) % 360:.0f}°" for t in thetas)
        for m in positions
    )
    return picture(
        figure,
        alt=f"A row of {len(thetas)} dials per position, each with one hand, from the fastest to "
        f"the slowest. The hands point to {hands}. The first hands of the two rows look the same, "
        "but the second hands don't.",
    )


def losses(steps: Sequence[int], runs: Mapping[str, Runs]) -> Picture:
    """Plot the validation loss against the step, with a line for the mean and a band for all seeds.

    runs: maps each method to one list of losses per seed. The first loss, measured before training,
    is not plotted.
    """
    figure, ax = subplots(height=3.4)
    later = {name: [seed[1:] for seed in seeds] for name, seeds in runs.items()}
    ends = draw_runs(ax, steps[1:], later)
    ax.set(xlabel="training step", ylabel="validation loss, nats per character")
    end_labels(ax, ends)
    listed = ", ".join(f"{words} {loss:.2f}" for _, loss, words in ends)
    return picture(
        figure,
        alt="Validation loss against the training step. A line shows the mean, and a band all "
        f"seeds. After {steps[-1]} steps: {listed}.",
    )
