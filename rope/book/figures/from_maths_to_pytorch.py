"""The error of a cosine against the position, for angles formed in float32 and in float64.

Chapter "From maths to PyTorch". mpmath gives the true cosine with 30 digits.
"""

import mpmath
import numpy as np
import torch

from rope.book.figures import Picture, picture, subplots
from rope.book.figures.style import INK
from rope.frequencies import inverse_frequencies, rotary_tables

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
        alt="With angles in float32 the error doubles when the position doubles, from below "
        "2^-23 at position 2 to several hundredths at a million. With angles in float64, "
        "rounded once, it stays at 2^-25, the rounding of the cosine itself.",
    )
