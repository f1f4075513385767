"""Call this package and the packages that it is compared with, each as its documentation shows.

Each package is called in its fastest form. Its tables have the shape and dtype that it uses in
practice. The tables are computed before the timing starts, from angles m theta_j in float64. With
angles in float32, which most packages use, they would fail the check at large positions.

Shapes: B batch, H heads, S sequence, D head dimension.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module

import torch
from torch import Tensor

from rope.book.measured.bench.cases import Case
from rope.frequencies import inverse_frequencies, rotary_tables
from rope.functional import rotary_embedding_qk
from rope.kernels.formula import formula

BASE, DECODED = 10000.0, 4095

Pair = tuple[Tensor, Tensor]
#: A function from q and k to rotated q and rotated k.
Rotate = Callable[[Tensor, Tensor], Pair]


@dataclass(frozen=True)
class Tables:
    """Hold a case's angles (radians, float64) and cos and sin (float32), each `[S, D/2]`."""

    case: Case
    angles: Tensor
    cos: Tensor
    sin: Tensor

    def doubled(self) -> Pair:
        """Return cos and sin `[1, S, D]` in q's dtype, one value per coordinate of a pair."""
        wide = (
            torch.stack((t, t), -1).flatten(-2) if self.case.interleaved else torch.cat((t, t), -1)
            for t in (self.cos, self.sin)
        )
        cos, sin = (table[None].to(self.case.torch_dtype) for table in wide)
        return cos, sin


def make_tables(case: Case, device: torch.device) -> Tables:
    """Return the tables for a case. A single token gets position 4,095, as in decoding."""
    first = DECODED if case.seq == 1 else 0
    positions = torch.arange(first, first + case.seq, device=device)
    inv_freq = inverse_frequencies(case.head_dim, BASE, device=device)
    cos, sin = rotary_tables(positions, inv_freq)
    return Tables(case, positions[:, None].double() * inv_freq, cos, sin)


@dataclass(frozen=True)
class Baseline:
    """Describe a rotation to time, and the layouts and devices that it supports.

    prepare: a function that takes a case's tables and returns the call to time.
    """

    name: str
    package: str
    prepare: Callable[[Tables], Rotate]
    layouts: tuple[str, ...] = ("half", "interleaved")
    devices: tuple[str, ...] = ("cpu", "cuda")

    def unsupported(self, case: Case, device: torch.device) -> str:
        """Return why this baseline can't run the case on the device, or "" if it can."""
        needs = (case.layout, self.layouts), (device.type, self.devices)
        missing = [word for word, supported in needs if word not in supported]
        return f"does not support {', '.join(missing)}" if missing else ""


def ours(tables: Tables) -> Rotate:
    """Return this package's rotation of q and k; the package chooses the kernel for the device."""
    cos, sin, interleaved = tables.cos, tables.sin, tables.case.interleaved
    return lambda q, k: rotary_embedding_qk(q, k, cos, sin, interleaved=interleaved)


def plain_formula(tables: Tables) -> Rotate:
    """Return the rotation as plain tensor operations, each applied to an entire tensor."""
    cos, sin, interleaved = tables.cos[None, None], tables.sin[None, None], tables.case.interleaved
    return lambda q, k: (formula(q, cos, sin, interleaved), formula(k, cos, sin, interleaved))


def compiled(prepare: Callable[[Tables], Rotate]) -> Callable[[Tables], Rotate]:
    """Return a `prepare` function that compiles the call with `torch.compile` for fixed shapes."""
    return lambda tables: torch.compile(prepare(tables), dynamic=False)


def transformers(tables: Tables) -> Rotate:
    """Return Llama's `apply_rotary_pos_emb`, or Cohere's for the interleaved layout."""
    model = "cohere" if tables.case.interleaved else "llama"
    apply = import_module(f"transformers.models.{model}.modeling_{model}").apply_rotary_pos_emb
    cos, sin = tables.doubled()
    return lambda q, k: apply(q, k, cos, sin)


def liger(tables: Tables) -> Rotate:
    """Return `liger_rotary_pos_emb`, which rotates q and k in one launch.

    It works in place if q and k are stored in the order `[B, S, H, D]`.
    """
    apply = import_module("liger_kernel.transformers.rope").liger_rotary_pos_emb
    cos, sin = tables.doubled()
    return lambda q, k: apply(q, k, cos, sin)


def flash_attn(tables: Tables) -> Rotate:
    """Return `apply_rotary_emb`, called on `[B, S, H, D]` views, once for q and once for k."""
    apply = import_module("flash_attn.layers.rotary").apply_rotary_emb
    cos, sin = (table.to(tables.case.torch_dtype) for table in (tables.cos, tables.sin))
    interleaved = tables.case.interleaved

    def rotate(x: Tensor) -> Tensor:
        return apply(x.transpose(1, 2), cos, sin, interleaved=interleaved).transpose(1, 2)

    return lambda q, k: (rotate(q), rotate(k))


#: All baselines; this package comes first. Figures and records use these names.
BASELINES = (
    Baseline("rope", "torch", ours),
    Baseline("plain formula", "torch", plain_formula),
    Baseline("formula compiled", "torch", compiled(plain_formula)),
    Baseline("transformers", "transformers", transformers),
    Baseline("transformers compiled", "transformers", compiled(transformers)),
    Baseline("Liger", "liger-kernel", liger, ("half",), ("cuda",)),
    Baseline("flash-attn", "flash-attn", flash_attn, devices=("cuda",)),
)
