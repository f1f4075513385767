"""Measure the largest error in this package's tables over positions 0 ... 2**20.

For the chapter "How exact must it be?". An error is |cos - cos(m theta'_j)| or
|sin - sin(m theta'_j)|, where mpmath gives the exact value to 50 digits. Every extension is
measured with four bases. `python -m rope.book.measured.accuracy [PATH]` takes a few minutes and
writes `recorded/accuracy.json`; an interrupted run resumes. The shipped record also has the
sections `pairs`, `peers`, and `relativity`, which an earlier program wrote.

Shapes: P positions, R rotated width.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from mpmath import workdps
from torch import Tensor

from rope import extensions
from rope.book.measured import truth
from rope.book.measured.machine import installed
from rope.book.measured.record import RECORDED, run_jobs
from rope.book.measured.truth import DIGITS, LARGEST, ROWS_ERROR, Rows
from rope.config import example, rotary_settings
from rope.frequencies import inverse_frequencies, rotary_tables

BASES = (10_000.0, 150_000.0, 500_000.0, 1_000_000.0)
#: Extensions and rotated widths. A trailing comment names the model that uses these settings.
EXTENSIONS: tuple[tuple[extensions.Extension, int], ...] = (
    (extensions.Default(), 128),
    (extensions.Linear(8.0), 128),
    (extensions.NTK(8.0), 128),
    (extensions.DynamicNTK(2.0, 32768), 128),  # InternLM2
    (extensions.YaRN(4.0, 32768), 128),  # Qwen2.5
    (extensions.YaRN(40.0, 4096, mscale=1.0, mscale_all_dim=1.0), 64),  # DeepSeek-V3
    (extensions.YaRN(32.0, 4096, truncate=False), 64),  # gpt-oss
    (extensions.Llama3(8.0, 8192), 128),  # Llama 3.1
    (rotary_settings(example("phi-3-mini-128k")).extension, 96),
    (extensions.Proportional(0.25), 128),
)
DTYPES = (torch.float32, torch.float64)
BLOCK = 4096


@dataclass(frozen=True)
class Case:
    """Represent one frequency spectrum, with tables for a context of 2**20 + 1 positions."""

    base: float
    extension: extensions.Extension
    dim: int

    @property
    def settings(self) -> str:
        """Return the extension as text, with only the first and last long factor of LongRoPE."""
        if not isinstance(self.extension, extensions.LongRoPE):
            return repr(self.extension)
        first, *_, last = self.extension.long_factor
        return f"LongRoPE(long_factor=({first}, ..., {last}), factor={self.extension.factor})"

    @property
    def scale(self) -> Any:
        """Return the attention factor with 50 digits."""
        return truth.attention_scaling(self.extension)

    @property
    def spectrum(self) -> list[Any]:
        """Return the frequencies with 50 digits."""
        return truth.spectrum(self.dim, self.base, self.extension, LARGEST + 1)

    def tables(self, positions: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Return cos and sin `[P, R/2]` as this package computes them."""
        inv_freq = inverse_frequencies(
            self.dim, self.base, extension=self.extension, seq_len=LARGEST + 1
        )
        scale = self.extension.attention_scaling
        return rotary_tables(positions, inv_freq, dtype=dtype, scale=scale)

    def bound(self, dtype: torch.dtype) -> float:
        """Return an entry's allowed error: 2**-30 for the angle, plus any rounding to float32.

        Rounding to float32 adds half a unit in the last place of the largest entry: 2**-25 for
        entries up to 1, and 2**-24 if an attention factor raises entries above 1.
        """
        if dtype == torch.float64:
            return 2.0**-30
        return 2.0**-30 + (2.0**-24 if self.extension.attention_scaling > 1 else 2.0**-25)


CASES = tuple(Case(base, extension, dim) for extension, dim in EXTENSIONS for base in BASES)


def errors_at(case: Case, positions: Iterable[int], dtype: torch.dtype) -> list[list[float]]:
    """Return the larger error of cos and sin for each position and plane, computed to 50 digits."""
    rows = list(positions)
    theta = case.spectrum
    exact = [truth.exact_row(position, theta, case.scale) for position in rows]
    tables = (table.tolist() for table in case.tables(torch.tensor(rows), dtype))
    with workdps(DIGITS):
        return [
            [
                float(max(abs(c - exact_c), abs(s - exact_s)))
                for c, s, (exact_c, exact_s) in zip(*row, strict=True)
            ]
            for row in zip(*tables, exact, strict=True)
        ]


def measure_tables(case: Case) -> list[dict[str, Any]]:
    """Return one row per dtype: the largest error over positions 0 ... 2**20, and its location.

    Raises RuntimeError if that error, recomputed with 50 digits, differs by more than the error
    bound of the fast float64 rows.
    """
    rows, scale = Rows(case.spectrum), float(case.scale)
    worst = dict.fromkeys(DTYPES, (-1.0, 0, 0))
    for start in range(0, LARGEST + 1, BLOCK):
        stop = min(start + BLOCK, LARGEST + 1)
        exact = [table * scale for table in rows.block(start, stop)]
        for dtype in DTYPES:
            tables = case.tables(torch.arange(start, stop), dtype)
            errors = torch.maximum(
                *((table.double() - true).abs_() for table, true in zip(tables, exact, strict=True))
            )
            largest, place = errors.flatten().max(0)
            row, plane = divmod(int(place), errors.shape[1])
            if largest > worst[dtype][0]:
                worst[dtype] = (float(largest), start + row, plane)
    return [_confirmed(case, dtype, *place) for dtype, place in worst.items()]


def _confirmed(
    case: Case, dtype: torch.dtype, error: float, position: int, plane: int
) -> dict[str, Any]:
    exact = errors_at(case, [position], dtype)[0][plane]
    # The attention factor, which is below 2, scales the rows' error and adds one rounding.
    if abs(exact - error) > 2 * ROWS_ERROR + 2.0**-52:
        raise RuntimeError(
            f"{case}, position {position}, plane {plane}: the error is {error:.3g} by the addition "
            f"theorem but {exact:.3g} with 50 digits; check both computations in truth.py"
        )
    return {
        "base": case.base,
        "bound": case.bound(dtype),
        "dim": case.dim,
        "dtype": str(dtype).removeprefix("torch."),
        "extension": case.extension.name,
        "max_error": exact,
        "plane": plane,
        "position": position,
        "settings": case.settings,
    }


def report(done: dict[str, Any]) -> dict[str, Any]:
    """Return the record: the rows of all cases, and the versions of mpmath and torch."""
    # Leave out the build suffix (CPU or CUDA), which changes no number here.
    versions = {name: installed(name).split("+")[0] for name in ("mpmath", "torch")}
    return {"tables": [row for rows in done.values() for row in rows], "versions": versions}


def main(path: Path = RECORDED / "accuracy.json") -> None:
    """Measure every case and write the record."""
    jobs = {repr(case): partial(measure_tables, case) for case in CASES}
    run_jobs(path, repr(CASES), jobs, report)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
