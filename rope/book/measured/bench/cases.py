"""What is timed: one token, a prompt and the longest sequences, in each layout and format.

Shapes: B batch, H heads, S sequence, D head dimension, all of it rotated.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from itertools import product
from typing import Any

DTYPES = ("float32", "bfloat16", "float16")
MODES = ("forward", "backward", "in place")
PAGES = ("kept", "new")
STORAGES = ("[B,H,S,D]", "[B,S,H,D]")


@dataclass(frozen=True)
class Case:
    """One rotation of queries `[B, H, S, D]` and keys `[B, H_kv, S, D]`.

    mode: "backward" times the gradient alone. pages: whether results on a CPU are in memory that
    the C library kept, or in "new" pages, which the system clears first. storage: how both lie in
    memory; "[B,S,H,D]" is seen through a transpose, as a projection makes it.
    Raises ValueError for a word that is none of these.

    >>> case = Case(1, 32, 8, 2048, 128)
    >>> case.name
    '1×32/8×2048×128 float32 half, forward, kept pages, [B,H,S,D]'
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
    mode: str = "forward"
    pages: str = "kept"
    storage: str = "[B,H,S,D]"

    def __post_init__(self) -> None:
        known = {"dtype": DTYPES, "mode": MODES, "pages": PAGES, "storage": STORAGES}
        for name, allowed in known.items():
            if getattr(self, name) not in allowed:
                raise ValueError(
                    f"{name} is {getattr(self, name)!r}; it must be one of {list(allowed)}: "
                    f"pass {allowed[0]!r}"
                )

    @property
    def layout(self) -> str:
        """Which coordinates make a pair."""
        return "interleaved" if self.interleaved else "half"

    @property
    def name(self) -> str:
        """Everything that tells it from the other cases, its sizes first."""
        return (
            f"{self.batch}×{self.heads}/{self.kv_heads}×{self.seq}×{self.head_dim} "
            f"{self.dtype} {self.layout}, {self.mode}, {self.pages} pages, {self.storage}"
        )

    @property
    def changes(self) -> dict[str, Any]:
        """The fields that are not the default: `Case(**case.changes) == case`."""
        values = ((field, getattr(self, field.name)) for field in fields(self))
        return {field.name: value for field, value in values if value != field.default}

    @property
    def bytes(self) -> int:
        """The least that must move: each element of q and k read once and written once."""
        elements = self.batch * self.seq * (self.heads + self.kv_heads) * self.head_dim
        return 2 * elements * (4 if self.dtype == "float32" else 2)


#: A prompt, as a CPU is asked for it, and a batch that a GPU trains on.
PREFILL = Case(1, 32, 8, 2048, 128)
TRAINING = Case(4, 32, 8, 4096, 128, "bfloat16")


def variants(case: Case, **changes: tuple[Any, ...]) -> tuple[Case, ...]:
    """The case in both layouts, and with every combination of these values of its fields.

    >>> [(case.seq, case.layout) for case in variants(PREFILL, seq=(1, 512))]
    [(1, 'half'), (1, 'interleaved'), (512, 'half'), (512, 'interleaved')]
    """
    choices = {**changes, "interleaved": (False, True)}
    return tuple(
        replace(case, **dict(zip(choices, values, strict=True)))
        for values in product(*choices.values())
    )


def quick(device: str) -> tuple[Case, ...]:
    """A handful of small cases: every mode once, and on a CPU new pages.

    >>> len(quick("cpu")), len(quick("cuda"))
    (6, 5)
    """
    small = Case(1, 8, 2, 256, 64)
    return (
        *([replace(small, pages="new")] if device == "cpu" else []),
        replace(small, seq=1),
        small,
        replace(small, dtype="bfloat16", interleaved=True),
        replace(small, mode="in place"),
        replace(small, mode="backward"),
    )


def full(device: str) -> tuple[Case, ...]:
    """The grid of this kind of device; on new pages first.

    >>> len(full("cpu")), len(full("cuda"))
    (36, 40)
    """
    if device == "cuda":
        prompt = replace(TRAINING, batch=1)
        return (
            *variants(prompt, seq=(1,), batch=(1, 32), dtype=("float32", "bfloat16")),
            *variants(prompt, seq=(128, 512, 2048, 8192, 32768, 131072)),
            *variants(TRAINING, dtype=DTYPES, mode=("forward", "backward")),
            *variants(TRAINING, mode=MODES, storage=STORAGES[1:]),
            *variants(TRAINING, mode=("in place",)),
        )
    both = ("float32", "bfloat16")
    # The tensors of a case stay below 1 GB: the longest sequences have fewer heads.
    long = replace(PREFILL, heads=4, kv_heads=1)
    return (
        *variants(PREFILL, dtype=both, pages=("new",)),
        *variants(PREFILL, dtype=both, mode=("forward", "in place", "backward")),
        *variants(PREFILL, dtype=both, seq=(1, 128, 512)),
        *variants(PREFILL, seq=(1,), batch=(32,)),
        *variants(PREFILL, storage=STORAGES[1:]),
        *variants(PREFILL, seq=(8192,)),
        *(replace(long, seq=seq) for seq in (32768, 131072)),
    )
