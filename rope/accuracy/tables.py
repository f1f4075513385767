"""The error of our tables, over every position 0 ... 2**20 of a case.

Shapes: P positions, R rotated width.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from mpmath import workdps
from torch import Tensor

from rope.accuracy.cases import LARGEST, Case
from rope.accuracy.truth import (
    DIGITS,
    ROWS_ERROR,
    Row,
    Rows,
    attention_scaling,
    exact_row,
    spectrum,
)
from rope.frequencies import inverse_frequencies, rotary_tables

DTYPES = (torch.float32, torch.float64)
BLOCK = 4096


def our_tables(case: Case, positions: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """cos and sin `[P, R/2]` as the package makes them for a context of 2**20 + 1 positions.

    >>> from rope.extensions import Linear
    >>> our_tables(Case(100.0, Linear(2.0), 2), torch.tensor([2]), torch.float32)[0]
    tensor([[0.5403]])
    """
    inv_freq = inverse_frequencies(
        case.dim, case.base, extension=case.extension, seq_len=LARGEST + 1
    )
    scale = case.extension.attention_scaling
    return rotary_tables(positions, inv_freq, dtype=dtype, scale=scale)


def bound(case: Case, dtype: torch.dtype) -> float:
    """What an entry may be off by: 2**-30 for the float64 angle, and the rounding to float32.

    That is half a unit in the last place of the largest entry: 2**-25 up to 1, and 2**-24 where an
    attention factor lifts entries above 1.

    >>> from rope.extensions import Default
    >>> bound(Case(10000.0, Default(), 128), torch.float32) < 2**-24
    True
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
    """By position and plane, the larger error of cos and sin, against 50 digits.

    >>> from rope.extensions import Default
    >>> errors_at(Case(100.0, Default(), 2), [0], torch.float32)
    [[0.0]]
    """
    rows = list(positions)
    theta = spectrum(case.dim, case.base, case.extension, LARGEST + 1)
    scale = attention_scaling(case.extension)
    return _errors(case, rows, [exact_row(position, theta, scale) for position in rows], dtype)


def _errors(
    case: Case, positions: list[int], exact: list[Row], dtype: torch.dtype
) -> list[list[float]]:
    tables = (table.tolist() for table in our_tables(case, torch.tensor(positions), dtype))
    with workdps(DIGITS):
        return [
            [
                float(max(abs(c - exact_c), abs(s - exact_s)))
                for c, s, (exact_c, exact_s) in zip(*row, strict=True)
            ]
            for row in zip(*tables, exact, strict=True)
        ]


def measure_sample(case: Case, advance: Callable[[int], Any]) -> list[dict[str, Any]]:
    """The largest error at the sampled positions: no pass over all of them."""
    positions = sample_positions()
    theta = spectrum(case.dim, case.base, case.extension, LARGEST + 1)
    scale = attention_scaling(case.extension)
    exact = []
    for position in positions:
        exact.append(exact_row(position, theta, scale))
        advance(1)
    entries = []
    for dtype in DTYPES:
        rows = zip(positions, _errors(case, positions, exact, dtype), strict=True)
        error, position, plane = max(
            (max(errors), position, errors.index(max(errors))) for position, errors in rows
        )
        entries.append(_entry(case, dtype, error, position, plane))
    return entries


def measure_all(case: Case, advance: Callable[[int], Any]) -> list[dict[str, Any]]:
    """The largest error over positions 0 ... 2**20, confirmed with 50 digits where it was found.

    Raises RuntimeError if the 50 digits disagree by more than the cheap rows may be off.
    """
    worst = dict.fromkeys(DTYPES, (-1.0, 0, 0))
    for start, exact in _blocks(case):
        positions = torch.arange(start, start + len(exact[0]))
        for dtype in DTYPES:
            errors = torch.stack(
                [
                    (ours.double() - truth).abs_()
                    for ours, truth in zip(our_tables(case, positions, dtype), exact, strict=True)
                ]
            ).amax(0)
            largest, place = errors.flatten().max(0)
            row, plane = divmod(int(place), errors.shape[1])
            if largest > worst[dtype][0]:
                worst[dtype] = (float(largest), start + row, plane)
        advance(len(positions))
    return [_confirmed(case, dtype, *found) for dtype, found in worst.items()]


def _blocks(case: Case) -> Iterator[tuple[int, tuple[Tensor, Tensor]]]:
    """The true tables block by block, each with its first position."""
    rows = Rows(spectrum(case.dim, case.base, case.extension, LARGEST + 1))
    scale = float(attention_scaling(case.extension))
    for start in range(0, LARGEST + 1, BLOCK):
        cos, sin = rows.block(start, min(start + BLOCK, LARGEST + 1))
        yield start, (cos * scale, sin * scale)


def _confirmed(
    case: Case, dtype: torch.dtype, error: float, position: int, plane: int
) -> dict[str, Any]:
    exact = errors_at(case, [position], dtype)[0][plane]
    # The attention factor, below 2, scales the rows and rounds once more.
    if abs(exact - error) > 2 * ROWS_ERROR + 2.0**-52:
        raise RuntimeError(
            f"{case.name}, position {position}, plane {plane}: the error is {error:.3g} by the "
            f"addition theorem and {exact:.3g} by 50 digits; they must agree to 2**-48, so one of "
            "the two in rope/accuracy/truth.py is wrong: mend it and run again"
        )
    return _entry(case, dtype, exact, position, plane)


def _entry(
    case: Case, dtype: torch.dtype, error: float, position: int, plane: int
) -> dict[str, Any]:
    return {
        "base": case.base,
        "bound": bound(case, dtype),
        "dim": case.dim,
        "dtype": str(dtype).removeprefix("torch."),
        "extension": case.extension.name,
        "max_error": error,
        "plane": plane,
        "position": position,
        "settings": case.settings,
    }
