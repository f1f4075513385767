"""Call this package and those that it is compared with, as their documentation or models do.

Each is called in its fastest form. Its tables are made before the clock starts, from the float64
angles m theta_j, in the shape and dtype that the package gets in practice. With the float32 angles
that most packages make, long sequences would fail the check.

Shapes: B batch, H heads, S sequence, D head dimension.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module

import torch
from torch import Tensor

from rope.book.measured.bench.cases import MODES, Case
from rope.frequencies import inverse_frequencies, rotary_tables
from rope.functional import rotary_embedding_qk
from rope.kernels.cpu import in_blocks
from rope.kernels.formula import formula

BASE, DECODED = 10000.0, 4095

Pair = tuple[Tensor, Tensor]
#: q and k -> q and k rotated.
Rotate = Callable[[Tensor, Tensor], Pair]


@dataclass(frozen=True)
class Tables:
    """The tables of a case: angles in radians, float64 `[S, D/2]`; cos, sin: float32 `[S, D/2]`."""

    case: Case
    angles: Tensor
    cos: Tensor
    sin: Tensor

    def doubled(self) -> Pair:
        """Return cos and sin with both coordinates of each plane, `[1, S, D]`, in q's dtype."""
        wide = (
            torch.stack((t, t), -1).flatten(-2) if self.case.interleaved else torch.cat((t, t), -1)
            for t in (self.cos, self.sin)
        )
        cos, sin = (table[None].to(self.case.torch_dtype) for table in wide)
        return cos, sin


def make_tables(case: Case, device: torch.device) -> Tables:
    """Return the tables of a case; a single token has position 4,095, as in decoding."""
    first = DECODED if case.seq == 1 else 0
    positions = torch.arange(first, first + case.seq, device=device)
    inv_freq = inverse_frequencies(case.head_dim, BASE, device=device)
    cos, sin = rotary_tables(positions, inv_freq)
    return Tables(case, positions[:, None].double() * inv_freq, cos, sin)


@dataclass(frozen=True)
class Baseline:
    """A rotation to time: its name, its package, a function from tables to the call, its support.

    rounds_more: True if it computes in the vectors' dtype or takes cosines of float32 angles.
    """

    name: str
    package: str
    prepare: Callable[[Tables], Rotate]
    modes: tuple[str, ...] = MODES
    layouts: tuple[str, ...] = ("half", "interleaved")
    devices: tuple[str, ...] = ("cpu", "cuda")
    rounds_more: bool = False

    def unsupported(self, case: Case, device: torch.device) -> str:
        """Return why it can't run this case, or ""."""
        needs = (case.mode, self.modes), (case.layout, self.layouts), (device.type, self.devices)
        missing = [word for word, supported in needs if word not in supported]
        return f"does not support {', '.join(missing)}" if missing else ""


def ours(tables: Tables) -> Rotate:
    """Return this package's call for q and k, with the kernel that it chooses on the device."""
    interleaved, inplace = tables.case.interleaved, tables.case.mode == "in place"
    return lambda q, k: rotary_embedding_qk(
        q, k, tables.cos, tables.sin, interleaved=interleaved, inplace=inplace
    )


def ours_without_compiler(tables: Tables) -> Rotate:
    """Return what this package runs on a CPU if its loop in C was not built."""
    cos, sin, interleaved = tables.cos[None, None], tables.sin[None, None], tables.case.interleaved
    inplace = tables.case.mode == "in place"

    def rotate(q: Tensor, k: Tensor) -> Pair:
        results = (q, k) if inplace else (torch.empty_like(q), torch.empty_like(k))
        in_blocks(q, results[0], cos, sin, interleaved)
        in_blocks(k, results[1], cos, sin, interleaved)
        return results

    return rotate


def plain_formula(tables: Tables) -> Rotate:
    """Return this package's formula on the whole tensors, operation by operation."""
    cos, sin, interleaved = tables.cos[None, None], tables.sin[None, None], tables.case.interleaved
    return lambda q, k: (formula(q, cos, sin, interleaved), formula(k, cos, sin, interleaved))


def compiled(prepare: Callable[[Tables], Rotate]) -> Callable[[Tables], Rotate]:
    """Return a baseline's function whose call goes through `torch.compile` with fixed shapes."""
    return lambda tables: torch.compile(prepare(tables), dynamic=False)


def transformers(tables: Tables) -> Rotate:
    """Return `apply_rotary_pos_emb` of Llama, or of Cohere for the interleaved layout."""
    model = "cohere" if tables.case.interleaved else "llama"
    apply = import_module(f"transformers.models.{model}.modeling_{model}").apply_rotary_pos_emb
    cos, sin = tables.doubled()
    return lambda q, k: apply(q, k, cos, sin)


def rotary_embedding_torch(tables: Tables) -> Rotate:
    """Return `apply_rotary_emb` with ready angles; it takes their cosines at each call.

    Its layer, which caches angles, is as fast with many tokens and slower with few.
    """
    apply = import_module("rotary_embedding_torch").apply_rotary_emb
    freqs = tables.angles.float().repeat_interleave(2, dim=-1)
    return lambda q, k: (apply(freqs, q), apply(freqs, k))


def liger(tables: Tables) -> Rotate:
    """Return `liger_rotary_pos_emb`: one launch for q and k; it overwrites `[B, S, H, D]`."""
    apply = import_module("liger_kernel.transformers.rope").liger_rotary_pos_emb
    cos, sin = tables.doubled()
    return lambda q, k: apply(q, k, cos, sin)


def flash_attn(tables: Tables) -> Rotate:
    """Return `apply_rotary_emb` on `[B, S, H, D]`, one call for q and one for k."""
    apply = import_module("flash_attn.layers.rotary").apply_rotary_emb
    cos, sin = (table.to(tables.case.torch_dtype) for table in (tables.cos, tables.sin))
    flags = {"interleaved": tables.case.interleaved, "inplace": tables.case.mode == "in place"}

    def rotate(x: Tensor) -> Tensor:
        return apply(x.transpose(1, 2), cos, sin, **flags).transpose(1, 2)

    return lambda q, k: (rotate(q), rotate(k))


OUT_OF_PLACE = ("forward", "backward")
_RET = "rotary-embedding-torch"
#: Every baseline, this package first. Figures and records know them by these names.
BASELINES = (
    Baseline("rope", "torch", ours),
    Baseline(
        "rope without a compiler",
        "torch",
        ours_without_compiler,
        modes=("forward", "in place"),
        devices=("cpu",),
    ),
    Baseline("plain formula", "torch", plain_formula, OUT_OF_PLACE),
    Baseline("formula compiled", "torch", compiled(plain_formula), OUT_OF_PLACE),
    Baseline("transformers", "transformers", transformers, OUT_OF_PLACE, rounds_more=True),
    Baseline(
        "transformers compiled",
        "transformers",
        compiled(transformers),
        OUT_OF_PLACE,
        rounds_more=True,
    ),
    Baseline(
        _RET,
        _RET,
        rotary_embedding_torch,
        OUT_OF_PLACE,
        layouts=("interleaved",),
        rounds_more=True,
    ),
    Baseline("Liger", "liger-kernel", liger, OUT_OF_PLACE, ("half",), ("cuda",), True),
    Baseline("flash-attn", "flash-attn", flash_attn, devices=("cuda",), rounds_more=True),
)
