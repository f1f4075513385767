"""The error of our tables: every extension with four bases, over every position 0 ... 2**20.

The extensions have the numbers of published models where the name of the model stands beside them;
LongRoPE has those of Phi-3. Shapes: P positions, R rotated width.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from mpmath import workdps
from torch import Tensor

from rope.book.measured.accuracy import LARGEST
from rope.book.measured.accuracy.truth import (
    DIGITS,
    ROWS_ERROR,
    Rows,
    attention_scaling,
    exact_row,
    spectrum,
)
from rope.config import example, rotary_settings
from rope.extensions import (
    NTK,
    Default,
    DynamicNTK,
    Extension,
    Linear,
    Llama3,
    LongRoPE,
    Proportional,
    YaRN,
)
from rope.frequencies import inverse_frequencies, rotary_tables

BASES = (10_000.0, 150_000.0, 500_000.0, 1_000_000.0)
#: The extension and the rotated width it is measured with.
EXTENSIONS: tuple[tuple[Extension, int], ...] = (
    (Default(), 128),
    (Linear(8.0), 128),
    (NTK(8.0), 128),
    (DynamicNTK(2.0, 32768), 128),  # InternLM2
    (YaRN(4.0, 32768), 128),  # Qwen2.5
    (YaRN(40.0, 4096, mscale=1.0, mscale_all_dim=1.0), 64),  # DeepSeek-V3
    (YaRN(32.0, 4096, truncate=False), 64),  # gpt-oss
    (Llama3(8.0, 8192), 128),  # Llama 3.1
    (rotary_settings(example("phi-3-mini-128k")).extension, 96),
    (Proportional(0.25), 128),
)
DTYPES = (torch.float32, torch.float64)
BLOCK = 4096


@dataclass(frozen=True)
class Case:
    """One spectrum: tables for a context of 2**20 + 1 positions.

    >>> Case(10000.0, Linear(8.0), 128).name
    'linear, dim 128, base 10000'
    """

    base: float
    extension: Extension
    dim: int

    @property
    def name(self) -> str:
        """How the progress bar calls it."""
        return f"{self.extension.name}, dim {self.dim}, base {self.base:.0f}"

    @property
    def settings(self) -> str:
        """The extension with its numbers, those of LongRoPE cut down to the ends.

        >>> Case(10000.0, Linear(8.0), 128).settings
        'Linear(factor=8.0)'
        """
        if not isinstance(self.extension, LongRoPE):
            return repr(self.extension)
        first, *_, last = self.extension.long_factor
        return f"LongRoPE(long_factor=({first}, ..., {last}), factor={self.extension.factor})"

    def exact_spectrum(self) -> list[Any]:
        """Its frequencies with 50 digits."""
        return spectrum(self.dim, self.base, self.extension, LARGEST + 1)


CASES = tuple(Case(base, extension, dim) for extension, dim in EXTENSIONS for base in BASES)


def our_tables(case: Case, positions: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """cos and sin `[P, R/2]` as the package makes them for a context of 2**20 + 1 positions."""
    inv_freq = inverse_frequencies(
        case.dim, case.base, extension=case.extension, seq_len=LARGEST + 1
    )
    scale = case.extension.attention_scaling
    return rotary_tables(positions, inv_freq, dtype=dtype, scale=scale)


def bound(case: Case, dtype: torch.dtype) -> float:
    """What an entry may be off by: 2**-30 for the float64 angle, and the rounding to float32.

    That is half a unit in the last place of the largest entry: 2**-25 up to 1, and 2**-24 where an
    attention factor lifts entries above 1.
    """
    angle = 2.0**-30
    if dtype == torch.float64:
        return angle
    return angle + (2.0**-24 if case.extension.attention_scaling > 1 else 2.0**-25)


def sample_positions() -> list[int]:
    """The powers of two up to 2**20 with their neighbours, and 0.

    >>> sample_positions()[:6], len(sample_positions())
    ([0, 1, 2, 3, 4, 5], 59)
    """
    near = {2**power + step for power in range(21) for step in (-1, 0, 1)}
    return sorted(position for position in near if position <= LARGEST)


def errors_at(case: Case, positions: Iterable[int], dtype: torch.dtype) -> list[list[float]]:
    """By position and plane, the larger error of cos and sin, against 50 digits."""
    rows = list(positions)
    theta, scale = case.exact_spectrum(), attention_scaling(case.extension)
    exact = [exact_row(position, theta, scale) for position in rows]
    tables = (table.tolist() for table in our_tables(case, torch.tensor(rows), dtype))
    with workdps(DIGITS):
        return [
            [
                float(max(abs(c - exact_c), abs(s - exact_s)))
                for c, s, (exact_c, exact_s) in zip(*row, strict=True)
            ]
            for row in zip(*tables, exact, strict=True)
        ]


def measure_tables(case: Case) -> list[dict[str, Any]]:
    """The largest error over positions 0 ... 2**20, confirmed with 50 digits where it was found.

    Raises RuntimeError: the 50 digits disagree by more than the cheap rows may be off.
    """
    rows = Rows(case.exact_spectrum())
    scale = float(attention_scaling(case.extension))
    worst = dict.fromkeys(DTYPES, (-1.0, 0, 0))
    for start in range(0, LARGEST + 1, BLOCK):
        stop = min(start + BLOCK, LARGEST + 1)
        exact = [table * scale for table in rows.block(start, stop)]
        for dtype in DTYPES:
            ours = our_tables(case, torch.arange(start, stop), dtype)
            off = [(table.double() - true).abs_() for table, true in zip(ours, exact, strict=True)]
            errors = torch.maximum(*off)
            largest, place = errors.flatten().max(0)
            row, plane = divmod(int(place), errors.shape[1])
            if largest > worst[dtype][0]:
                worst[dtype] = (float(largest), start + row, plane)
    return [_confirmed(case, dtype, *found) for dtype, found in worst.items()]


def _confirmed(
    case: Case, dtype: torch.dtype, error: float, position: int, plane: int
) -> dict[str, Any]:
    exact = errors_at(case, [position], dtype)[0][plane]
    # The attention factor, below 2, scales the rows and rounds once more.
    if abs(exact - error) > 2 * ROWS_ERROR + 2.0**-52:
        raise RuntimeError(
            f"{case.name}, position {position}, plane {plane}: the error is {error:.3g} by the "
            f"addition theorem and {exact:.3g} by 50 digits; they must agree to 2**-48, so one of "
            "the two in rope/book/measured/accuracy/truth.py is wrong: mend it and run again"
        )
    return {
        "base": case.base,
        "bound": bound(case, dtype),
        "dim": case.dim,
        "dtype": str(dtype).removeprefix("torch."),
        "extension": case.extension.name,
        "max_error": exact,
        "plane": plane,
        "position": position,
        "settings": case.settings,
    }
