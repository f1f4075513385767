"""Define the cases to time, which differ in sizes, dtype, and layout.

A rotation must move at least 2 * e * B * (H + H_kv) * S * D bytes, where an element has e bytes.

Shapes: B batch, H heads, S sequence, D head dimension, all of which is rotated.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from itertools import product
from typing import Any

import torch

DTYPES = ("float32", "bfloat16", "float16")


@dataclass(frozen=True)
class Case:
    """Describe one rotation of queries `[B, H, S, D]` and keys `[B, H_kv, S, D]`.

    dtype: one of DTYPES.

    >>> case = Case(1, 32, 8, 2048, 128)
    >>> case.name
    '1×32/8×2048×128 float32 half'
    >>> case.bytes  # each of 40 x 2048 x 128 elements read once and written once
    83886080
    """

    batch: int
    heads: int
    kv_heads: int
    seq: int
    head_dim: int
    dtype: str = "float32"
    interleaved: bool = False

    @property
    def torch_dtype(self) -> torch.dtype:
        """Return the dtype of queries and keys."""
        return getattr(torch, self.dtype)

    @property
    def layout(self) -> str:
        """Return "interleaved" or "half"."""
        return "interleaved" if self.interleaved else "half"

    @property
    def name(self) -> str:
        """Return a string that contains every field, sizes first."""
        return (
            f"{self.batch}×{self.heads}/{self.kv_heads}×{self.seq}×{self.head_dim} "
            f"{self.dtype} {self.layout}"
        )

    @property
    def changes(self) -> dict[str, Any]:
        """Return the fields that differ from their defaults, so `Case(**case.changes) == case`."""
        values = ((field, getattr(self, field.name)) for field in fields(self))
        return {field.name: value for field, value in values if value != field.default}

    @property
    def bytes(self) -> int:
        """Return the bytes to move if each element of q and k is read once and written once."""
        elements = self.batch * self.seq * (self.heads + self.kv_heads) * self.head_dim
        return 2 * elements * self.torch_dtype.itemsize


#: A prompt for a CPU, and a training batch for a GPU.
PREFILL = Case(1, 32, 8, 2048, 128)
TRAINING = Case(4, 32, 8, 4096, 128, "bfloat16")


def variants(case: Case, **changes: tuple[Any, ...]) -> tuple[Case, ...]:
    """Return the case in both layouts, with every combination of the given field values.

    >>> [(case.seq, case.layout) for case in variants(PREFILL, seq=(1, 512))]
    [(1, 'half'), (1, 'interleaved'), (512, 'half'), (512, 'interleaved')]
    """
    choices = {**changes, "interleaved": (False, True)}
    return tuple(
        replace(case, **dict(zip(choices, values, strict=True)))
        for values in product(*choices.values())
    )


def full(device: str) -> tuple[Case, ...]:
    """Return all cases for "cpu" or "cuda"."""
    if device == "cuda":
        prompt = replace(TRAINING, batch=1)
        return (
            *variants(prompt, seq=(128, 512, 2048, 8192, 32768, 131072)),
            *variants(TRAINING, dtype=DTYPES),
        )
    # The longest sequences have fewer heads, so that the tensors stay below 1 GB.
    long = replace(PREFILL, heads=4, kv_heads=1)
    return (
        *variants(PREFILL, dtype=DTYPES[:2]),
        *(replace(PREFILL, seq=seq) for seq in (1, 128, 512, 8192)),
        *(replace(long, seq=seq) for seq in (32768, 131072)),
    )
