"""Report how far tables and rotations are from the truth, for this package and its baselines.

`python -m rope.book.measured.accuracy [PATH]` measures everything in a few minutes and writes
`recorded/accuracy.json`; an interrupted run resumes. Its sections: `tables`, the largest error of
every extension over positions 0 ... 2**20; `pairs`, the error of a rotated pair
| z' - z e^{i m theta} | / |z|, for chapter "How exact must it be?"; `peers`, the error of a cosine
by position, in this package and in others; `relativity`, how far rounded tables move a score
that an exact rotation would keep, for chapter "Properties".

Shapes: P positions, R rotated width, H heads of random pairs, T shifts, V pairs of vectors.
"""

from __future__ import annotations

import hashlib
import json
import math
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch
from mpmath import workdps
from torch import Tensor

from rope.book.measured import truth
from rope.book.measured.baselines import COSINES, DIM
from rope.book.measured.machine import installed
from rope.book.measured.record import RECORDED, run_jobs
from rope.book.measured.truth import DIGITS, LARGEST, RADIX, ROWS_ERROR, Rows, exact_row, spectrum
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
from rope.functional import rotary_embedding

#: Raise the version when a measurement changes its meaning; other versions are not resumed.
VERSION = 1
PACKAGES = ("mpmath", "rotary-embedding-torch", "torch", "transformers")
BASES = (10_000.0, 150_000.0, 500_000.0, 1_000_000.0)
#: The extension and the rotated width, with the numbers of the model named in the comment.
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
TABLE_DTYPES = (torch.float32, torch.float64)
BLOCK = 4096
HALVES = (torch.float32, torch.bfloat16, torch.float16)
PAIR_DTYPES = (*HALVES, torch.float64)
PAIR_HEADS, PAIR_SEED = 32, 20
PEER_BASES = (10_000.0, 500_000.0)
HALF_POWERS = tuple(round(2 ** (step / 2)) for step in range(41))
#: An error at a position is the worst of so many positions up to it. At the power of two itself
#: every product is exact, so most baselines look better there than they are.
PEER_WINDOW = 64
RELATIVITY_BASE, RELATIVITY_SEED, RELATIVITY_PAIRS, RELATIVITY_SHIFTS = 10_000.0, 10, 256, 4096


@dataclass(frozen=True)
class Case:
    """One spectrum, whose tables are for a context of 2**20 + 1 positions.

    >>> Case(10000.0, Linear(8.0), 128).name
    'linear, dim 128, base 10000'
    """

    base: float
    extension: Extension
    dim: int

    @property
    def name(self) -> str:
        """Return the name that the progress shows."""
        return f"{self.extension.name}, dim {self.dim}, base {self.base:.0f}"

    @property
    def settings(self) -> str:
        """Return the extension with its numbers; only the first and last factor of LongRoPE."""
        if not isinstance(self.extension, LongRoPE):
            return repr(self.extension)
        first, *_, last = self.extension.long_factor
        return f"LongRoPE(long_factor=({first}, ..., {last}), factor={self.extension.factor})"

    @property
    def scale(self) -> Any:
        """Return the attention factor with 50 digits."""
        return truth.attention_scaling(self.extension)

    def exact_spectrum(self) -> list[Any]:
        """Return the frequencies with 50 digits."""
        return spectrum(self.dim, self.base, self.extension, LARGEST + 1)

    def tables(self, positions: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Return cos and sin `[P, R/2]` as this package makes them."""
        inv_freq = inverse_frequencies(
            self.dim, self.base, extension=self.extension, seq_len=LARGEST + 1
        )
        scale = self.extension.attention_scaling
        return rotary_tables(positions, inv_freq, dtype=dtype, scale=scale)

    def bound(self, dtype: torch.dtype) -> float:
        """Return what an entry may be off by: 2**-30 for its angle, plus the rounding to float32.

        The rounding is half a unit in the last place of the largest entry: 2**-25 up to 1, and
        2**-24 if an attention factor raises entries above 1.
        """
        if dtype == torch.float64:
            return 2.0**-30
        return 2.0**-30 + (2.0**-24 if self.extension.attention_scaling > 1 else 2.0**-25)


CASES = tuple(Case(base, extension, dim) for extension, dim in EXTENSIONS for base in BASES)


def sample_positions() -> list[int]:
    """Return 0 and the powers of two up to 2**20 with their neighbors.

    >>> sample_positions()[:6], len(sample_positions())
    ([0, 1, 2, 3, 4, 5], 59)
    """
    near = {2**power + step for power in range(21) for step in (-1, 0, 1)}
    return sorted(position for position in near if position <= LARGEST)


def errors_at(case: Case, positions: Iterable[int], dtype: torch.dtype) -> list[list[float]]:
    """Return the larger error of cos and sin against 50 digits, by position and plane."""
    rows = list(positions)
    theta = case.exact_spectrum()
    exact = [exact_row(position, theta, case.scale) for position in rows]
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
    """Return one row per dtype: the largest error over positions 0 ... 2**20, and where it is.

    Raises RuntimeError if 50 digits disagree there by more than the fast rows may be off.
    """
    rows, scale = Rows(case.exact_spectrum()), float(case.scale)
    worst = dict.fromkeys(TABLE_DTYPES, (-1.0, 0, 0))
    for start in range(0, LARGEST + 1, BLOCK):
        stop = min(start + BLOCK, LARGEST + 1)
        exact = [table * scale for table in rows.block(start, stop)]
        for dtype in TABLE_DTYPES:
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
    # The attention factor is below 2; it scales the error of the rows and rounds once more.
    if abs(exact - error) > 2 * ROWS_ERROR + 2.0**-52:
        raise RuntimeError(
            f"{case.name}, position {position}, plane {plane}: the error is {error:.3g} by the "
            f"addition theorem and {exact:.3g} by 50 digits; one of them in truth.py is wrong"
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


def pair_positions() -> list[int]:
    """Return the sampled positions of the tables, and as many random ones up to 2**20."""
    near = sample_positions()
    generator = torch.Generator().manual_seed(PAIR_SEED)
    return near + torch.randint(LARGEST + 1, (len(near),), generator=generator).tolist()


def random_pairs(dtype: torch.dtype, rows: int) -> tuple[Tensor, Tensor]:
    """Return the two coordinates of pairs in every direction, `[H, rows, R/2]` each.

    Their lengths are spread evenly over the powers of two, from four times the smallest normal
    number of the dtype to a quarter of its largest.
    """
    generator = torch.Generator().manual_seed(PAIR_SEED)
    shape = (2, PAIR_HEADS, rows, DIM // 2)
    size, direction = torch.rand(shape, generator=generator, dtype=torch.float64)
    info = torch.finfo(dtype)
    low, high = math.log2(info.tiny) + 2, math.log2(info.max) - 2
    length = torch.exp2(low + size * (high - low))
    angle = 2 * math.pi * direction
    return (length * angle.cos()).to(dtype), (length * angle.sin()).to(dtype)


def measure_pairs(base: float, dtype: torch.dtype) -> list[dict[str, Any]]:
    """Return one row per layout: the largest error of a pair, over its length times the unit.

    The unit is the dtype's eps, with a bound of two units. A float64 pair is off by its float64
    angle, far more than eps at a million positions, so its unit is 2**-29, with a bound of one.
    Tables are those of the layer: float32, or float64 for float64 vectors.
    """
    narrow = dtype != torch.float64
    unit, bound = (torch.finfo(dtype).eps, 2.0) if narrow else (2.0**-29, 1.0)
    positions, exact = pair_positions(), _exact_tables(base)
    wide = torch.promote_types(dtype, torch.float32)
    tables = rotary_tables(torch.tensor(positions), inverse_frequencies(DIM, base), dtype=wide)
    pair = random_pairs(dtype, len(positions))
    return [
        {
            "base": base,
            "bound": bound,
            "dim": DIM,
            "dtype": str(dtype).removeprefix("torch."),
            "interleaved": interleaved,
            "max_error": _pair_error(pair, tables, exact, interleaved) / unit,
            "unit": unit,
        }
        for interleaved in (False, True)
    ]


@cache
def _exact_tables(base: float) -> tuple[Tensor, Tensor]:
    return truth.exact_rows(pair_positions(), spectrum(DIM, base, Default()))


def _pair_error(
    pair: tuple[Tensor, Tensor],
    tables: tuple[Tensor, Tensor],
    exact: tuple[Tensor, Tensor],
    interleaved: bool,
) -> float:
    """Return the length of the largest error vector, over the length of its pair.

    pair: `[H, P, R/2]` twice; tables and exact (float64): `[P, R/2]` twice.
    """
    axis = -1 if interleaved else -2  # where a pair's two coordinates are stacked
    vectors = torch.stack(pair, dim=axis)
    rotated = rotary_embedding(vectors.flatten(-2)[None], *tables, interleaved=interleaved)[0]
    ours = rotated.double().view_as(vectors).unbind(axis)
    (cos, sin), (u, v) = exact, (half.double() for half in pair)
    off = torch.hypot(ours[0] - (u * cos - v * sin), ours[1] - (v * cos + u * sin))
    return float((off / torch.hypot(u, v)).max())


def measure_peers(base: float) -> dict[str, list[float]]:
    """Return, by baseline, the largest error of a cosine in the window up to each of HALF_POWERS.

    The first windows are shorter, because positions begin at 0.
    """
    windows = [torch.arange(max(0, last - PEER_WINDOW + 1), last + 1) for last in HALF_POWERS]
    lengths, positions = [len(window) for window in windows], torch.cat(windows)
    rows, blocks = Rows(spectrum(DIM, base, Default())), []
    for window in windows:
        first, last = int(window[0]), int(window[-1])
        start = first - first % RADIX**2
        blocks.append(rows.block(start, last + 1)[0][first - start :])
    exact = torch.cat(blocks)
    errors = {
        name: (cosines(positions, base).double() - exact).abs() for name, cosines in COSINES.items()
    }
    return {name: [float(part.max()) for part in e.split(lengths)] for name, e in errors.items()}


def measure_relativity(dtype: torch.dtype) -> dict[str, Any]:
    """Return how far scores of unit vectors move over all shifts, and the worst length of a row.

    Only the tables are rounded; the rotation and the score are computed in float64. Pair v has the
    positions (t, t + v) for t = 0 ... T-1. `score_shift` is its largest minus its smallest score,
    `score_error` its largest distance from the exact score; both are the worst of V pairs. Times R,
    they hold for vectors with entries around 1, whose length is sqrt(R). `norm_error` is the
    largest | |R x| / |x| - 1 |.
    """
    generator = torch.Generator().manual_seed(RELATIVITY_SEED)
    q, k = _unit_vectors(generator), _unit_vectors(generator)
    rows = RELATIVITY_SHIFTS + RELATIVITY_PAIRS
    inv_freq = inverse_frequencies(DIM, RELATIVITY_BASE)
    tables = rotary_tables(rows, inv_freq, dtype=dtype)
    rotation = torch.complex(*(table.double() for table in tables))  # [rows, R/2]
    exact = torch.complex(*rotary_tables(rows, inv_freq, dtype=torch.float64))
    shift = error = 0.0
    for offset, product in enumerate(q * k.conj()):
        at_q, at_k = rotation[:RELATIVITY_SHIFTS], rotation[offset : offset + RELATIVITY_SHIFTS]
        scores = (at_q * at_k.conj() * product).real.sum(-1)  # [T]
        exact_score = (exact[offset].conj() * product).real.sum()
        shift = max(shift, float(scores.max() - scores.min()))
        error = max(error, float((scores - exact_score).abs().max()))
    return {
        "base": RELATIVITY_BASE,
        "dim": DIM,
        "dtype": str(dtype).removeprefix("torch."),
        "norm": 1.0,
        "norm_error": float((rotation.abs() - 1).abs().max()),
        "pairs": RELATIVITY_PAIRS,
        "score_error": error,
        "score_error_norm_sqrt_dim": error * DIM,
        "score_shift": shift,
        "score_shift_norm_sqrt_dim": shift * DIM,
        "seed": RELATIVITY_SEED,
        "shifts": RELATIVITY_SHIFTS,
    }


def _unit_vectors(generator: torch.Generator) -> Tensor:
    """Return random vectors of length 1 in every direction, as complex planes `[V, R/2]`."""
    shape = (RELATIVITY_PAIRS, DIM // 2, 2)
    vectors = torch.randn(shape, generator=generator, dtype=torch.float64)
    vectors = vectors / vectors.pow(2).sum((1, 2), keepdim=True).sqrt()
    return torch.view_as_complex(vectors)


def fingerprint() -> str:
    """Return a hash of what is measured; a record with another hash is from another program."""
    relativity = [RELATIVITY_SEED, RELATIVITY_PAIRS, RELATIVITY_SHIFTS]
    everything = [
        VERSION,
        False,  # former versions had a quick report
        [[case.base, case.dim, repr(case.extension)] for case in CASES],
        [LARGEST, HALF_POWERS, PEER_WINDOW, DIM, PEER_BASES, PAIR_HEADS, PAIR_SEED],
        [DIM, *relativity],
    ]
    return hashlib.sha256(json.dumps(everything).encode()).hexdigest()[:16]


def jobs() -> dict[str, Callable[[], Any]]:
    """Return every measurement by its name, which begins with its section of the report."""
    tables = {
        f"tables: {number}, {case.name}": partial(measure_tables, case)
        for number, case in enumerate(CASES)
    }
    pairs = {
        f"pairs: {dtype}, base {base:.0f}": partial(measure_pairs, base, dtype)
        for base in PEER_BASES
        for dtype in PAIR_DTYPES
    }
    peers = {f"peers: base_{base:.0f}": partial(measure_peers, base) for base in PEER_BASES}
    relativity = {f"relativity: {dtype}": partial(measure_relativity, dtype) for dtype in HALVES}
    return {**tables, **pairs, **peers, **relativity}


def version_of(package: str) -> str:
    """Return a package's version without its build (CPU or CUDA), which changes no number here."""
    return installed(package).split("+")[0]


def report(done: dict[str, Any]) -> dict[str, Any]:
    """Return the report made of the results of all jobs."""
    result: dict[str, Any] = {
        "pairs": [],
        "peers": {"dim": DIM, "positions": HALF_POWERS, "window": PEER_WINDOW},
        "program": fingerprint(),
        "relativity": [],
        "tables": [],
        "versions": {name: version_of(name) for name in PACKAGES},
    }
    for name in jobs():
        section, _, key = name.partition(": ")
        if section == "peers":
            result[section][key] = done[name]
        else:
            result[section] += done[name] if isinstance(done[name], list) else [done[name]]
    return result


def main(path: Path = RECORDED / "accuracy.json") -> None:
    """Measure everything and write the report."""
    run_jobs(path, fingerprint(), jobs(), report)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
