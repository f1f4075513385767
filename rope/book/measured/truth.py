"""Compute exact spectra, cosines, and sines with mpmath, as the oracle for the accuracy report.

This module implements theta'_j of each extension a second time, plane by plane, from the paper. It
shares only the parameters in the extension object with `rope.extensions`. cos(m theta'_j) and
sin(m theta'_j) are computed with 50 digits, or, for all positions, by angle addition in float64.

Shapes: P positions, R rotated width.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import mpmath
import torch
from mpmath import mpf
from torch import Tensor

#: The accuracy report covers positions 0 ... LARGEST.
LARGEST = 2**20
DIGITS = 50
RADIX = 32
# Rounding an exact entry to float64 gives an error of at most 2**-54. If two tables have errors of
# at most e, adding their angles gives at most 2 sqrt(2) e + 3 * 2**-54, since |cos| + |sin| <=
# sqrt(2). That is below 5.9 * 2**-54 after one addition and below 19.7 * 2**-54 after two.
ROWS_ERROR = 2.0**-49

Row = list[tuple[Any, Any]]


def spectrum(dim: int, base: float, extension: Any, seq_len: int | None = None) -> list[Any]:
    """Return the R/2 frequencies theta'_j of an extension, as mpmath numbers with 50 digits.

    >>> from rope.extensions import Linear
    >>> mpmath.nstr(spectrum(4, 10000.0, Linear(4.0))[1], 3)
    '0.0025'
    """
    with mpmath.workdps(DIGITS):
        return [_frequency(extension, j, dim, mpf(base), seq_len) for j in range(dim // 2)]


def attention_scaling(extension: Any) -> Any:
    """Return the factor on cos and sin with 50 digits.

    It is the extension's `attention_factor` if that is set. Otherwise, it is
    sqrt(1 + ln s / ln L) for LongRoPE; (0.1 m ln s + 1) / (0.1 m' ln s + 1) for YaRN with mscale m
    and mscale_all_dim m'; 0.1 ln s + 1 for YaRN unless both are set; and 1 otherwise.
    """
    with mpmath.workdps(DIGITS):
        factor = getattr(extension, "attention_factor", None)
        if factor is not None:
            return mpf(factor)
        if extension.name == "longrope":
            trained = extension.original_max_position_embeddings
            return mpmath.sqrt(1 + mpmath.log(extension.factor, trained))
        if extension.name != "yarn":
            return mpf(1)
        growth = mpmath.log(extension.factor) / 10
        above, below = extension.mscale, extension.mscale_all_dim
        if above and below:
            return (1 + mpf(above) * growth) / (1 + mpf(below) * growth)
        return 1 + growth


def exact_row(position: int, frequencies: Iterable[Any], scale: Any = 1) -> Row:
    """Return the pairs (cos, sin) of position * theta_j, multiplied by `scale`, with 50 digits."""
    with mpmath.workdps(DIGITS):
        pairs = (mpmath.cos_sin(position * theta) for theta in frequencies)
        return [(scale * cosine, scale * sine) for cosine, sine in pairs]


def exact_rows(positions: Iterable[int], frequencies: Iterable[Any]) -> tuple[Tensor, Tensor]:
    """Return cos and sin `[P, R/2]` for these positions, rounded to float64."""
    spectrum = list(frequencies)
    rows = [exact_row(position, spectrum) for position in positions]
    pairs = [[[float(cosine), float(sine)] for cosine, sine in row] for row in rows]
    both = torch.tensor(pairs, dtype=torch.float64)
    return both[..., 0], both[..., 1]


class Rows:
    """Compute cos and sin for every position 0 ... 2**20 with an error below 2**-49 (ROWS_ERROR).

    Each position is written in base 32. mpmath gives the cosine and sine of each digit's angle, and
    the addition theorem combines them in float64. No angle is computed in float64, so the rows
    share no step with the tables that they check.

    >>> rows = Rows([mpf(1) / 100])
    >>> cos, sin = rows.block(1024, 2048)
    >>> cos.shape, f"{cos[0, 0]:.4f}", mpmath.nstr(mpmath.cos(10.24), 4)
    (torch.Size([1024, 1]), '-0.6857', '-0.6857')
    """

    def __init__(self, frequencies: Iterable[Any]) -> None:
        spectrum = list(frequencies)
        digits = [
            exact_rows([digit * RADIX**place for digit in range(RADIX + 1)], spectrum)
            for place in range(4)
        ]
        short = [tuple(table[:RADIX] for table in digit) for digit in digits[:3]]
        self._fine = _add_angles(short[1], short[0])  # 0 ... 1023
        self._coarse = _add_angles(digits[3], short[2])  # multiples of 1024, past 2**20

    def block(self, start: int, stop: int) -> tuple[Tensor, Tensor]:
        """Return cos and sin for positions start ... stop - 1, float64 `[stop - start, R/2]`.

        Raises ValueError unless start is a multiple of 1024, 0 <= start < stop, and
        stop <= 2**20 + 1024.
        """
        step = RADIX**2
        if start % step or not 0 <= start < stop <= LARGEST + step:
            raise ValueError(
                f"start is {start} and stop is {stop}; start must be a multiple of {step}, with "
                f"0 <= start < stop <= {LARGEST + step}"
            )
        groups = slice(start // step, -(-stop // step))
        coarse = tuple(table[groups] for table in self._coarse)
        cos, sin = _add_angles(coarse, self._fine)
        return cos[: stop - start], sin[: stop - start]


def _add_angles(left: tuple[Tensor, ...], right: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
    """Return cos(a + b) and sin(a + b) for each row a of left and b of right; b varies fastest."""
    (c, s), (cos, sin) = (table[:, None] for table in left), right
    return (c * cos - s * sin).flatten(0, 1), (s * cos + c * sin).flatten(0, 1)


def _frequency(extension: Any, j: int, dim: int, base: Any, seq_len: int | None) -> Any:
    """Return theta'_j by the formula in the extension's paper."""

    def plain(base: Any) -> Any:
        return base ** (-mpf(2 * j) / dim)

    trained = getattr(extension, "original_max_position_embeddings", 0)
    theta, factor = plain(base), mpf(getattr(extension, "factor", None) or 1)
    match extension.name:
        case "default":
            return theta
        case "linear":
            return theta / factor
        case "ntk":
            return plain(base * factor ** (mpf(dim) / (dim - 2)))
        case "dynamic":
            growth = factor * max(seq_len or 0, trained) / trained - (factor - 1)
            return plain(base * growth ** (mpf(dim) / (dim - 2)))
        case "yarn":
            low, high = (
                dim * mpmath.log(trained / (2 * mpmath.pi * mpf(beta))) / (2 * mpmath.log(base))
                for beta in (extension.beta_fast, extension.beta_slow)
            )
            if extension.truncate:
                low, high = mpmath.floor(low), mpmath.ceil(high)
            low, high = max(low, mpf(0)), min(high, mpf(dim - 1))
            ramp = min(max((j - low) / (high - low), mpf(0)), mpf(1))
            return theta * (1 - ramp + ramp / factor)
        case "llama3":
            periods = trained * theta / (2 * mpmath.pi)
            low, high = mpf(extension.low_freq_factor), mpf(extension.high_freq_factor)
            share = min(max((periods - low) / (high - low), mpf(0)), mpf(1))
            return (1 - share) * theta / factor + share * theta
        case "longrope":
            longer = (seq_len or 0) > trained
            return theta / mpf((extension.long_factor if longer else extension.short_factor)[j])
        case "proportional":
            rotated = int(extension.partial_rotary_factor * dim // 2)
            return theta / factor if j < rotated else mpf(0)
    raise ValueError(f"no exact formula for the extension {extension.name!r}; add it to truth.py")
