"""Plot the errors of cosines of float32 and float64 angles against the position.

Chapter "From maths to PyTorch". mpmath computes the exact cosines to 30 digits.
"""

import mpmath
import numpy as np
import torch

from rope.book.figures import Picture, picture, subplots
from rope.book.figures.style import INK, MUTED
from rope.frequencies import inverse_frequencies, rotary_tables

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
    ax.axhline(2**-9, color=MUTED, linestyle="--", linewidth=1)
    ax.text(2, 2**-9.4, "rounding to bfloat16: $2^{-9}$", va="top")
    ax.set(xlabel="position", ylabel="largest error of a cosine", ylim=(2**-27, 2**-3))
    ax.legend(loc="upper left")
    return picture(
        figure,
        alt="With angles in float32 the error grows about as the position does, from below "
        "2^-23 at position 2 to above 2^-6 at a million. With angles in float64 it stays "
        "at 2^-25, the rounding of the cosine itself. A dashed line at 2^-9, the rounding of "
        "bfloat16, meets the rising curve near position 2^16.",
    )
