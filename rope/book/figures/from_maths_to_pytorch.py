"""Plot the largest cosine errors with float32 and with float64 angles, for "From math to PyTorch".

The errors are measured against float64 cosines, which are themselves off by less than 2^-34.
"""

import torch

from rope.book.figures import Picture, picture, subplots
from rope.book.figures.style import INK, MUTED
from rope.frequencies import inverse_frequencies, rotary_tables

SHOWN = [round(2 ** (step / 4)) for step in range(4, 69)]
DIM, BASE = 128, 10000.0


def angle_error() -> Picture:
    """Plot the largest cosine error up to each position, for float32 and for float64 angles."""
    positions = torch.arange(SHOWN[-1] + 1)
    narrow = 1.0 / BASE ** (torch.arange(0, DIM, 2).float() / DIM)
    exact = (positions[:, None] * inverse_frequencies(DIM, BASE)).cos()
    tables = {
        "float32": (positions[:, None] * narrow).cos(),
        "float64": rotary_tables(positions, inverse_frequencies(DIM, BASE))[0],
    }
    figure, ax = subplots(height=3.1)
    for name, table in tables.items():
        error = (table - exact).abs().amax(dim=1).cummax(dim=0).values
        ax.loglog(SHOWN, error[SHOWN], base=2, label=f"angles in {name}")
    ax.axhline(2**-25, color=INK, linestyle=":", linewidth=1)
    ax.text(2**8, 2**-24.5, "rounding the cosine: $2^{-25}$")
    ax.axhline(2**-9, color=MUTED, linestyle="--", linewidth=1)
    ax.text(2, 2**-9.4, "rounding to bfloat16: $2^{-9}$", va="top")
    ax.set(xlabel="up to position", ylabel="largest error of a cosine", ylim=(2**-27, 2**-3))
    ax.legend(loc="upper left")
    return picture(
        figure,
        alt="With angles in float32, the error grows roughly in proportion to the position: below "
        "2^-23 up to position 2, and about 2^-7 up to 131,072. With angles in float64, it stays "
        "at 2^-25, the rounding of the cosine itself. A dashed line at 2^-9, the rounding of "
        "bfloat16, meets the rising curve near position 2^15.",
    )
