"""What is measured: which spectra, positions, seeds; and the fingerprint that the result carries.

The extensions have the numbers of published models where the name of the model stands beside them;
LongRoPE has those of Phi-3.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

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

#: Raise it when a measurement changes its meaning: results of another version are not resumed.
VERSION = 1
LARGEST = 2**20
BASES = (10_000.0, 150_000.0, 500_000.0, 1_000_000.0)
HALF_POWERS = tuple(round(2 ** (step / 2)) for step in range(41))
#: Errors near a position are the worst of so many positions that end with it: at a power of two
#: alone, where every product is exact, most recipes look better than they are.
PEER_WINDOW = 64
PEER_DIM, PEER_BASES = 128, (10_000.0, 500_000.0)
PAIR_HEADS, PAIR_SEED = 32, 20
RELATIVITY_DIM, RELATIVITY_SEED, RELATIVITY_PAIRS, RELATIVITY_SHIFTS = 128, 10, 256, 4096


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
        last = self.extension.long_factor[-1]
        first = self.extension.long_factor[0]
        return f"LongRoPE(long_factor=({first}, ..., {last}), factor={self.extension.factor})"


CASES = tuple(Case(base, extension, dim) for extension, dim in EXTENSIONS for base in BASES)
#: Every extension once, every base in turn.
QUICK_CASES = tuple(
    Case(BASES[turn % len(BASES)], extension, dim)
    for turn, (extension, dim) in enumerate(EXTENSIONS)
)


def fingerprint(*, quick: bool = False) -> str:
    """A hash of all that is measured; a result with another one is not the product of this program.

    >>> len(fingerprint())
    16
    """
    everything = [
        VERSION,
        quick,
        [[case.base, case.dim, repr(case.extension)] for case in (QUICK_CASES if quick else CASES)],
        [LARGEST, HALF_POWERS, PEER_WINDOW, PEER_DIM, PEER_BASES, PAIR_HEADS, PAIR_SEED],
        [RELATIVITY_DIM, RELATIVITY_SEED, RELATIVITY_PAIRS, RELATIVITY_SHIFTS],
    ]
    return hashlib.sha256(json.dumps(everything).encode()).hexdigest()[:16]
