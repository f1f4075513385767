"""Plot programs' times against the bytes they move, and cosine errors against the position.

Chapter "From maths to PyTorch". The errors come from angles computed in float32 and in float64;
mpmath computes the true cosine to 30 digits.
"""

from collections.abc import Mapping, Sequence

import mpmath
import numpy as np
import torch

from rope.book.figures import Picture, picture, subplots
from rope.book.figures.style import COLORS, INK, MUTED
from rope.frequencies import inverse_frequencies, rotary_tables

# Where to print a program's name: the offset from its first mark, in points, and the alignment.
NAMED = {
    "halves": (-10, -6, "right"),
    "complex_product": (-6, 9, "left"),
    "doubled": (10, 2, "left"),
}
POSITIONS = [round(2 ** (step / 2)) for step in range(2, 41)]
DIM, BASE = 128, 10000.0


def angle_error() -> Picture:
    """Plot the largest cosine error against the position, for float32 and for float64 angles."""
    positions = torch.tensor(POSITIONS)
    inv_freq = 1.0 / BASE ** (torch.arange(0, DIM, 2).float() / DIM)
    tables = {
        "float32": (positions[:, None].float() * inv_freq).cos(),
        "float64": rotary_tables(positions, inverse_frequencies(DIM, BASE))[0],
    }
    with mpmath.workdps(30):
        theta = [mpmath.mpf(BASE) ** (mpmath.mpf(-2 * j) / DIM) for j in range(DIM // 2)]
        exact = np.array([[mpmath.cos(m * t) for t in theta] for m in POSITIONS])
        errors = {
            name: abs(table.numpy() - exact).max(axis=1).astype(float)
            for name, table in tables.items()
        }
    figure, ax = subplots(height=3.1)
    for name, error in errors.items():
        ax.loglog(POSITIONS, error, base=2, label=f"angles in {name}")
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
    """Plot each program's time against the bytes it moves, with one mark per entry of `counts`.

    counts: the numbers of vectors per position. moved: maps each program to one number per count,
    the bytes that it moves divided by the least possible. taken: maps each program to one number
    per count, its time divided by the time of a copy. A dotted line marks the pace of a copy.
    """
    figure, ax = subplots(height=3.6)
    ax.axline((1, 1), slope=1, color=INK, linestyle=":", linewidth=1)
    ax.text(5.5, 3.2, "a copy's pace", color=INK)
    points = []
    for color, name in zip(COLORS, moved, strict=False):
        pairs = list(zip(moved[name], taken[name], strict=True))
        ax.plot(moved[name], taken[name], color=color, linewidth=1)
        for marker, (x, y) in zip("osD", pairs, strict=False):
            ax.plot(x, y, marker, color=color, markersize=6)
        *shift, side = NAMED.get(name, (10, -4, "left"))
        text = {"textcoords": "offset points", "xytext": shift, "ha": side, "color": INK}
        ax.annotate(name.replace("_", " "), pairs[0], **text)
        places = ", ".join(f"({x:.1f}, {y:.1f})" for x, y in pairs)
        points.append(f"{name.replace('_', ' ')} {places}")
    for marker, count in zip("osD", counts, strict=False):
        ax.plot([], [], marker, color=MUTED, label=f"{count} vectors per position")
    ax.set(xscale="log", yscale="log", xlim=(0.85, 30), ylim=(0.85, 400))
    ax.set(xlabel="bytes moved / least possible", ylabel="time / time of a copy")
    ax.set_xticks([1, 2, 5, 10], ["1", "2", "5", "10"])
    ax.set_yticks([1, 10, 100], ["1", "10", "100"])
    ax.minorticks_off()
    ax.legend(loc="upper left")
    return picture(
        figure,
        alt="Time divided by a copy's time, against bytes divided by the least possible, on "
        "logarithmic axes, at "
        f"{', '.join(map(str, counts))} vectors per position: {'; '.join(points)}. "
        "On the dotted line both are equal.",
    )
