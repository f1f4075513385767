"""Who is timed: a competitor turns a case into a call, or says in a sentence why it cannot.

Tables are made before the clock starts, for all alike, from float64 angles: what is timed is the
rotation. Each competitor gets them in the shape, and in the number format, that its public
function is called with in practice.

Shapes: B batch, H heads, S sequence, R rotated width.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cache, partial
from importlib import import_module

import torch
from torch import Tensor

from rope.bench.cases import Case
from rope.frequencies import inverse_frequencies, rotary_tables
from rope.measuring.machine import installed

BASE = 10000.0

Rotate = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]


class RefusedError(Exception):
    """What a competitor does not do; the message is the sentence that the record keeps."""


@dataclass(frozen=True)
class Setting:
    """What a competitor is given beforehand: the case, the tables, the tensors to fill.

    positions: int64 `[S]`; angles: float64 `[S, R/2]`, in radians; cos, sin: float32 `[S, R/2]`.
    buffers: shaped and stored like q and k, for the mode "into a buffer".
    """

    case: Case
    positions: Tensor
    angles: Tensor
    cos: Tensor
    sin: Tensor
    buffers: tuple[Tensor, Tensor] | None = None


@dataclass(frozen=True)
class Ready:
    """A call to time, and the context that it runs in, which is entered outside the clock."""

    rotate: Rotate
    around: Callable[[], AbstractContextManager[object]] = nullcontext


@dataclass(frozen=True)
class Competitor:
    """A name, the package it comes from, and how it gets ready for a case.

    narrow: it computes in the vectors' number format, so that every step rounds to it;
    narrow_gradient: only its gradients do, whose two parts autograd adds in that format.
    angle_roundings: how many roundings to float32 its own angles pass through; 0 where it takes
    our tables.
    """

    name: str
    package: str
    prepare: Callable[[Setting], Ready]
    narrow: bool = False
    narrow_gradient: bool = False
    angle_roundings: int = 0

    @property
    def version(self) -> str | None:
        """Of the installed package, None when there is none."""
        return installed(self.package)


@cache
def setting(case: Case, device: torch.device, buffers: bool = True) -> Setting:
    """The tables of a case.

    >>> made = setting(Case("decode", 1, 2, 1, 1, 8, 8, "float32"), torch.device("cpu"))
    >>> made.positions.tolist(), made.cos.shape, made.buffers is None
    ([4095], torch.Size([1, 4]), True)
    """
    positions = torch.arange(case.first, case.first + case.seq, device=device)
    inv_freq = inverse_frequencies(case.rotary_dim, BASE, device=device)
    angles = positions[:, None].double() * inv_freq
    cos, sin = rotary_tables(positions, inv_freq)
    given = None
    if buffers and case.mode == "into a buffer":
        given = empty(case, case.heads, device), empty(case, case.kv_heads, device)
    return Setting(case, positions, angles, cos, sin, given)


def empty(case: Case, heads: int, device: torch.device) -> Tensor:
    """A tensor `[B, heads, S, D]`, stored as the case says, with nothing in it yet.

    >>> case = Case("decode", 2, 4, 1, 3, 8, 8, "float32", storage="[B,S,H,D]")
    >>> empty(case, 4, torch.device("cpu")).stride()
    (96, 8, 32, 1)
    """
    dtype = getattr(torch, case.dtype)
    if case.storage == "[B,H,S,D]":
        shape = case.batch, heads, case.seq, case.head_dim
        return torch.empty(shape, dtype=dtype, device=device)
    shape = case.batch, case.seq, heads, case.head_dim
    return torch.empty(shape, dtype=dtype, device=device).transpose(1, 2)


def ours(backend: str, made: Setting) -> Ready:
    """This package, with one backend forced."""
    from rope import kernels
    from rope.functional import rotary_embedding_qk

    reason = kernels.why_not(backend, made.cos.device)
    if reason is not None:
        raise RefusedError(reason)
    case, around = made.case, partial(kernels.use_backend, backend)
    cos, sin, interleaved = made.cos, made.sin, made.case.interleaved
    if case.mode == "into a buffer":
        if made.buffers is None:
            raise ValueError("buffers is None; this mode fills tensors: make them with setting()")
        out = made.buffers
        return Ready(
            lambda q, k: rotary_embedding_qk(q, k, cos, sin, interleaved=interleaved, out=out),
            around,
        )
    inplace = case.mode == "in place"
    return Ready(
        lambda q, k: rotary_embedding_qk(q, k, cos, sin, interleaved=interleaved, inplace=inplace),
        around,
    )


def competitors() -> tuple[Competitor, ...]:
    """Everybody, ours first.

    >>> [entry.name for entry in competitors()][:4]
    ['rope eager', 'rope compile', 'rope triton', 'formulas compiled']
    """
    peers = import_module("rope.bench.peers")
    own = tuple(
        Competitor(f"rope {backend}", "torch", partial(ours, backend))
        for backend in ("eager", "compile", "triton")
    )
    return own + tuple(peers.PEERS)
