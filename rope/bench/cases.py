"""What is timed: a grid of sizes, formats and layouts, and the few cases that the bars name.

Shapes: B batch, H heads, S sequence, D head dimension, R rotated width.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

KINDS = ("decode", "prefill", "training")
DTYPES = ("float32", "bfloat16", "float16")
DIRECTIONS = ("forward", "backward", "both")
NEW_PAGES = "on new pages"
MODES = ("out of place", NEW_PAGES, "in place", "into a buffer")
STORAGES = ("[B,H,S,D]", "[B,S,H,D]")
#: The position of the one token that a decoding step turns.
DECODED = 4095


@dataclass(frozen=True)
class Case:
    """One rotation of queries `[B, H, S, D]` and keys `[B, H_kv, S, D]`.

    storage: how both lie in memory; "[B,S,H,D]" is seen through a transpose, as a projection makes
    it. direction: "backward" times the gradient alone, "both" a forward and a backward pass.
    mode: whether the result is new, is new in memory that the system has to clear first (a CPU's
    matter), replaces what it is made from, or fills given tensors.
    Raises ValueError for a word or a size that is none of these.

    >>> case = Case("prefill", 1, 32, 8, 2048, 128, 128, "float32")
    >>> case.name
    'prefill 1×32/8×2048×128 float32 half, forward, out of place, [B,H,S,D]'
    >>> case.elements, case.bytes == 2 * 4 * case.elements
    (10485760, True)
    """

    kind: str
    batch: int
    heads: int
    kv_heads: int
    seq: int
    head_dim: int
    rotary_dim: int
    dtype: str
    interleaved: bool = False
    direction: str = "forward"
    mode: str = "out of place"
    storage: str = "[B,H,S,D]"

    def __post_init__(self) -> None:
        known = {
            "kind": KINDS,
            "dtype": DTYPES,
            "direction": DIRECTIONS,
            "mode": MODES,
            "storage": STORAGES,
        }
        for name, allowed in known.items():
            if getattr(self, name) not in allowed:
                raise ValueError(
                    f"{name} is {getattr(self, name)!r}; it must be one of {list(allowed)}: "
                    f"pass {allowed[0]!r}"
                )
        if min(self.batch, self.heads, self.kv_heads, self.seq) < 1:
            raise ValueError(
                f"the sizes are {self.sizes}; each must be at least 1: leave a case out instead"
            )
        if self.rotary_dim % 2 or not 2 <= self.rotary_dim <= self.head_dim:
            raise ValueError(
                f"rotary_dim is {self.rotary_dim}; it must be even, from 2 to head_dim "
                f"{self.head_dim}: pass {self.head_dim // 2 * 2}"
            )
        if self.direction != "forward" and self.mode != "out of place":
            raise ValueError(
                f"mode is {self.mode!r} and direction {self.direction!r}; gradients are timed out "
                "of place: pass mode 'out of place'"
            )

    @property
    def sizes(self) -> str:
        """Batch, heads of the queries / of the keys, sequence, head dimension."""
        return f"{self.batch}×{self.heads}/{self.kv_heads}×{self.seq}×{self.head_dim}"

    @property
    def layout(self) -> str:
        """Which coordinates make a pair."""
        return "interleaved" if self.interleaved else "half"

    @property
    def name(self) -> str:
        """Everything that tells it from the other cases."""
        partial = "" if self.rotary_dim == self.head_dim else f" (rotated {self.rotary_dim})"
        return (
            f"{self.kind} {self.sizes}{partial} {self.dtype} {self.layout}, "
            f"{self.direction}, {self.mode}, {self.storage}"
        )

    @property
    def first(self) -> int:
        """The position of the first token."""
        return DECODED if self.kind == "decode" else 0

    @property
    def tokens(self) -> int:
        """B·S."""
        return self.batch * self.seq

    @property
    def elements(self) -> int:
        """Of q and k together."""
        return self.tokens * (self.heads + self.kv_heads) * self.head_dim

    @property
    def bytes(self) -> int:
        """The least that must move: each element read once and written once, in each direction."""
        size = 4 if self.dtype == "float32" else 2
        return 2 * size * self.elements * (2 if self.direction == "both" else 1)


#: The sizes at which the bars are set: a prefill on a CPU, a training step on a GPU.
CPU_BAR = Case("prefill", 1, 32, 8, 2048, 128, 128, "float32")
GPU_BAR = Case("training", 4, 32, 8, 4096, 128, 128, "bfloat16")


def quick(device: str) -> tuple[Case, ...]:
    """A handful of small cases: every kind, direction and mode once.

    >>> len(quick("cpu")), len({case.kind for case in quick("cpu")})
    (7, 3)
    """
    small = Case("prefill", 1, 8, 2, 256, 64, 64, "float32")
    dtype = "bfloat16" if device == "cuda" else "float32"
    return (
        *([] if device == "cuda" else [replace(small, mode=NEW_PAGES)]),
        Case("decode", 1, 8, 2, 1, 64, 64, dtype),
        small,
        replace(small, interleaved=True, dtype="bfloat16"),
        replace(small, mode="in place"),
        replace(small, interleaved=True, mode="into a buffer"),
        replace(small, kind="training", batch=2, direction="both"),
    )


def bars(device: str) -> tuple[Case, ...]:
    """The cases of the bars that `rope.bench.report.bars` judges by name.

    >>> [len(bars(device)) for device in ("cpu", "cuda")]
    [14, 16]
    """
    if device == "cuda":
        large = both_layouts(GPU_BAR, direction=("forward", "backward", "both"))
        return large + decoding((1, 32), ("bfloat16",)) + longest("bfloat16")
    ways = [replace(CPU_BAR, mode=NEW_PAGES), CPU_BAR, replace(CPU_BAR, dtype="bfloat16")]
    ways += [replace(CPU_BAR, mode=mode) for mode in MODES[2:]]
    return tuple(case for way in ways for case in both_layouts(way)) + decoding(
        (1, 32), ("float32",)
    )


def full(device: str) -> tuple[Case, ...]:
    """The grid: the bars, then sizes, widths, formats, storage and directions, none twice.

    >>> [len(full(device)) for device in ("cpu", "cuda")]
    [48, 98]
    """
    cases = list(bars(device))
    cases += _cuda_grid() if device == "cuda" else _cpu_grid()
    return tuple(dict.fromkeys(cases))


def both_layouts(case: Case, **changes: tuple[Any, ...]) -> tuple[Case, ...]:
    """The case in both layouts, and for each value of the one field that is named, if any.

    >>> [case.layout for case in both_layouts(CPU_BAR)]
    ['half', 'interleaved']
    """
    found = [case]
    for field, values in changes.items():
        found = [replace(entry, **{field: value}) for entry in found for value in values]
    return tuple(replace(entry, interleaved=layout) for entry in found for layout in (False, True))


def decoding(batches: tuple[int, ...], dtypes: tuple[str, ...]) -> tuple[Case, ...]:
    """One new token for each of B sequences."""
    return tuple(
        case
        for batch in batches
        for dtype in dtypes
        for case in both_layouts(Case("decode", batch, 32, 8, 1, 128, 128, dtype))
    )


def longest(dtype: str, heads: int = 32, kv_heads: int = 8) -> tuple[Case, ...]:
    """The longest sequences, with as many heads as the memory holds.

    >>> [case.seq for case in longest("bfloat16")[::2]]
    [8192, 32768, 131072]
    """
    return tuple(
        case
        for seq in (8192, 32768, 131072)
        for case in both_layouts(Case("prefill", 1, heads, kv_heads, seq, 128, 128, dtype))
    )


def _cpu_grid() -> list[Case]:
    """The tensors of a case stay below 4 GB: at the long end there are fewer heads."""
    cases = list(decoding((1, 32), ("bfloat16",)))
    for seq in (128, 512):
        cases += both_layouts(replace(CPU_BAR, seq=seq), dtype=("float32", "bfloat16"))
    cases += both_layouts(replace(CPU_BAR, seq=8192))
    cases.append(replace(CPU_BAR, seq=32768, heads=8, kv_heads=2))
    cases.append(replace(CPU_BAR, seq=131072, heads=4, kv_heads=1))
    for width in (64, 256):
        cases += both_layouts(replace(CPU_BAR, head_dim=width, rotary_dim=width))
    cases += both_layouts(replace(CPU_BAR, rotary_dim=32))
    cases += both_layouts(replace(CPU_BAR, storage=STORAGES[1]), dtype=("float32", "bfloat16"))
    cases += [replace(CPU_BAR, dtype="bfloat16", mode=mode) for mode in MODES[2:]]
    training = replace(CPU_BAR, kind="training", batch=2, seq=1024)
    cases += both_layouts(training, direction=("backward", "both"))
    cases += [replace(training, dtype="bfloat16", direction=way) for way in ("backward", "both")]
    return cases


def _cuda_grid() -> list[Case]:
    cases = list(decoding((1, 8, 32, 128), ("bfloat16", "float16", "float32")))
    prefill = replace(GPU_BAR, kind="prefill", batch=1)
    for seq in (128, 512, 2048):
        cases += both_layouts(replace(prefill, seq=seq))
    cases += both_layouts(prefill, dtype=DTYPES)
    for width in (64, 256):
        wide = replace(GPU_BAR, head_dim=width, rotary_dim=width)
        cases += both_layouts(wide, direction=("forward", "backward"))
    cases += both_layouts(replace(GPU_BAR, rotary_dim=32), direction=("forward", "backward"))
    for storage in STORAGES:
        for dtype in DTYPES:
            stored = replace(GPU_BAR, storage=storage, dtype=dtype)
            cases += both_layouts(stored, direction=DIRECTIONS)
        cases += both_layouts(replace(GPU_BAR, storage=storage), mode=MODES[2:])
    return cases
