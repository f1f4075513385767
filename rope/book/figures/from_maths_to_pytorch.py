"""Times of the programs against their bytes; the error of a cosine against the position.

Chapter "From maths to PyTorch". The errors are those of angles formed in float32 and in float64;
mpmath gives the true cosine with 30 digits.
"""

from collections.abc import Mapping, Sequence

import mpmath
import numpy as np
import torch

from rope.book.figures import Picture, picture, subplots
from rope.book.figures.style import COLOURS, INK, MUTED
from rope.frequencies import inverse_frequencies, rotary_tables

# Where a program's name stands beside its first point, in points, and on which side of it.
NAMED = {
    "halves": (-10, -6, "right"),
    "complex_product": (-6, 9, "left"),
    "doubled": (10, 2, "left"),
}
POSITIONS = [round(2 ** (step / 2)) for step in range(2, 41)]


def angle_errors(dim: int = 128, base: float = 10000.0) -> dict[str, list[float]]:
    """Largest error among the dim/2 float32 cosines at each of POSITIONS, by kind of angle.

    >>> errors = angle_errors(dim=4)
    >>> max(errors["float64"]) < 2**-24 < max(errors["float32"])
    True
    """
    positions = torch.tensor(POSITIONS)
    narrow = 1.0 / base ** (torch.arange(0, dim, 2).float() / dim)
    tables = {
        "float32": (positions[:, None].float() * narrow).cos(),
        "float64": rotary_tables(positions, inverse_frequencies(dim, base))[0],
    }
    with mpmath.workdps(30):
        theta = [mpmath.mpf(base) ** (mpmath.mpf(-2 * j) / dim) for j in range(dim // 2)]
        exact = np.array([[mpmath.cos(m * t) for t in theta] for m in POSITIONS])
        return {
            name: abs(table.numpy() - exact).max(axis=1).astype(float).tolist()
            for name, table in tables.items()
        }


def angle_error() -> Picture:
    """Both errors against the position, on logarithmic axes."""
    figure, ax = subplots(height=3.1)
    for name, errors in angle_errors().items():
        ax.loglog(POSITIONS, errors, base=2, label=f"angles in {name}")
    ax.axhline(2**-25, color=INK, linestyle=":", linewidth=1)
    ax.text(2**8, 2**-24.5, "rounding the cosine: $2^{-25}$")
    ax.set(xlabel="position", ylabel="largest error of a cosine", ylim=(2**-27, 2**-3))
    ax.legend(loc="upper left")
    return picture(
        figure,
        alt="With angles in float32 the error grows about as the position does, from below "
        "2^-23 at position 2 to above 2^-6 at a million. With angles in float64 it stays "
        "at 2^-25, the rounding of the cosine itself.",
    )


def time_against_bytes(
    counts: Sequence[int],
    moved: Mapping[str, Sequence[float]],
    taken: Mapping[str, Sequence[float]],
) -> Picture:
    """By program a point for each number of vectors a position, and the line of a copy's pace.

    moved, taken: by program, over the bytes and the time of a copy, one number a count.
    """
    figure, ax = subplots(height=3.6)
    ax.axline((1, 1), slope=1, color=INK, linestyle=":", linewidth=1)
    ax.text(5.5, 3.2, "a copy's pace", color=INK)
    for colour, name in zip(COLOURS, moved, strict=False):
        ax.plot(moved[name], taken[name], color=colour, linewidth=1)
        for marker, x, y in zip("osD", moved[name], taken[name], strict=False):
            ax.plot(x, y, marker, color=colour, markersize=6)
        *shift, side = NAMED.get(name, (10, -4, "left"))
        words = {"textcoords": "offset points", "xytext": shift, "ha": side, "color": INK}
        ax.annotate(name.replace("_", " "), (moved[name][0], taken[name][0]), **words)
    for marker, count in zip("osD", counts, strict=False):
        ax.plot([], [], marker, color=MUTED, label=f"{count} vectors a position")
    ax.set(xscale="log", yscale="log", xlim=(0.85, 30), ylim=(0.85, 400))
    ax.set(xlabel="bytes, over the least", ylabel="time, over that of a copy")
    ax.set_xticks([1, 2, 5, 10], ["1", "2", "5", "10"])
    ax.set_yticks([1, 10, 100], ["1", "10", "100"])
    ax.minorticks_off()
    ax.legend(loc="upper left")
    points = {
        name.replace("_", " "): ", ".join(f"({x:.1f}, {y:.1f})" for x, y in zip(*both, strict=True))
        for name, both in ((name, (moved[name], taken[name])) for name in moved)
    }
    return picture(
        figure,
        alt="Time over that of a copy against bytes over the least, both axes logarithmic, at "
        f"{', '.join(map(str, counts))} vectors a position: "
        f"{'; '.join(f'{name} {pairs}' for name, pairs in points.items())}. "
        "On the dotted line both are equal.",
    )
