"""Who is timed, and how each is called.

A peer is called as its own documentation or the models that use it call it, by the form that
serves it best. Tables are ours, made before the clock starts from float64 angles, in the shape and
number format that the peer is called with in practice: the float32 angles that most peers make
would not pass the check at the long end.

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
class Setting:
    """What a competitor is given beforehand: the case and its tables.

    angles: float64 `[S, D/2]`, in radians; cos, sin: float32 `[S, D/2]`.
    """

    case: Case
    angles: Tensor
    cos: Tensor
    sin: Tensor


def setting(case: Case, device: torch.device) -> Setting:
    """The tables of a case; a single token stands where a decoding step has it, far on.

    >>> made = setting(Case(1, 2, 1, 1, 8), torch.device("cpu"))
    >>> made.angles[:, 0].tolist(), made.cos.shape
    ([4095.0], torch.Size([1, 4]))
    """
    first = DECODED if case.seq == 1 else 0
    positions = torch.arange(first, first + case.seq, device=device)
    inv_freq = inverse_frequencies(case.head_dim, BASE, device=device)
    cos, sin = rotary_tables(positions, inv_freq)
    return Setting(case, positions[:, None].double() * inv_freq, cos, sin)


@dataclass(frozen=True)
class Competitor:
    """A name, the package it comes from, what makes its call for a case, and what it can do.

    modes, layouts, devices: those it has a form for.
    narrow: what it rounds besides its result. "steps": it computes in the vectors' number format;
    "angles": it takes the cosines of angles in float32, and autograd adds the two parts of its
    gradient in the vectors' format; "": nothing.
    """

    name: str
    package: str
    prepare: Callable[[Setting], Rotate]
    modes: tuple[str, ...] = MODES
    layouts: tuple[str, ...] = ("half", "interleaved")
    devices: tuple[str, ...] = ("cpu", "cuda")
    narrow: str = ""

    def refusal(self, case: Case, device: torch.device) -> str:
        """Why it has no form for this case; "" where it has one.

        >>> FIELD[-1].refusal(Case(1, 2, 1, 1, 8), torch.device("cpu"))
        'no form for cpu'
        """
        asked = (case.mode, self.modes), (case.layout, self.layouts), (device.type, self.devices)
        missing = [word for word, known in asked if word not in known]
        return f"no form for {', '.join(missing)}" if missing else ""


def ours(made: Setting) -> Rotate:
    """This package's call for q and k, by whatever it chooses on the device."""
    interleaved, inplace = made.case.interleaved, made.case.mode == "in place"
    return lambda q, k: rotary_embedding_qk(
        q, k, made.cos, made.sin, interleaved=interleaved, inplace=inplace
    )


def ours_without_compiler(made: Setting) -> Rotate:
    """What this package runs on a CPU where its loop in C was not built."""
    cos, sin, interleaved = made.cos[None, None], made.sin[None, None], made.case.interleaved
    out_of_place = made.case.mode != "in place"

    def rotate(q: Tensor, k: Tensor) -> Pair:
        results = (torch.empty_like(q), torch.empty_like(k)) if out_of_place else (q, k)
        in_blocks(q, results[0], cos, sin, interleaved)
        in_blocks(k, results[1], cos, sin, interleaved)
        return results

    return rotate


def plain_formula(made: Setting) -> Rotate:
    """This package's formula on the whole tensors, operation by operation."""
    cos, sin, interleaved = made.cos[None, None], made.sin[None, None], made.case.interleaved
    return lambda q, k: (formula(q, cos, sin, interleaved), formula(k, cos, sin, interleaved))


def transformers(made: Setting) -> Rotate:
    """`apply_rotary_pos_emb` of Llama, or of Cohere for the interleaved layout."""
    model = "cohere" if made.case.interleaved else "llama"
    apply = import_module(f"transformers.models.{model}.modeling_{model}").apply_rotary_pos_emb
    cos, sin = _doubled(made)
    return lambda q, k: apply(q, k, cos, sin)


def compiled(prepare: Callable[[Setting], Rotate]) -> Callable[[Setting], Rotate]:
    """The same through `torch.compile`, its shapes fixed."""
    return lambda made: torch.compile(prepare(made), dynamic=False)


def rotary_embedding_torch(made: Setting) -> Rotate:
    """`apply_rotary_emb` with the angles at hand; it takes their cosines at each call.

    Its layer, with a cache of angles, takes as long at many tokens and longer at few.
    """
    apply = import_module("rotary_embedding_torch").apply_rotary_emb
    freqs = made.angles.float().repeat_interleave(2, dim=-1)
    return lambda q, k: (apply(freqs, q), apply(freqs, k))


def liger(made: Setting) -> Rotate:
    """`liger_rotary_pos_emb`: one launch for q and k; what is stored by token it overwrites."""
    apply = import_module("liger_kernel.transformers.rope").liger_rotary_pos_emb
    cos, sin = _doubled(made)
    return lambda q, k: apply(q, k, cos, sin)


def flash_attn(made: Setting) -> Rotate:
    """`apply_rotary_emb` on `[B, S, H, D]`, once for q and once for k."""
    apply = import_module("flash_attn.layers.rotary").apply_rotary_emb
    cos, sin = (table.to(getattr(torch, made.case.dtype)) for table in (made.cos, made.sin))
    words = {"interleaved": made.case.interleaved, "inplace": made.case.mode == "in place"}

    def rotate(x: Tensor) -> Tensor:
        return apply(x.transpose(1, 2), cos, sin, **words).transpose(1, 2)

    return lambda q, k: (rotate(q), rotate(k))


def _doubled(made: Setting) -> Pair:
    """cos and sin with both coordinates of each plane, `[1, S, D]`, in the vectors' dtype."""

    def double(table: Tensor) -> Tensor:
        both = (table, table)
        wide = torch.stack(both, -1).flatten(-2) if made.case.interleaved else torch.cat(both, -1)
        return wide[None].to(getattr(torch, made.case.dtype))

    return double(made.cos), double(made.sin)


OUT_OF_PLACE = ("forward", "backward")
PAIRS = ("interleaved",)
_RET = "rotary-embedding-torch"
#: Everybody, ours first.
FIELD = (
    Competitor("rope", "torch", ours),
    Competitor(
        "rope without a compiler",
        "torch",
        ours_without_compiler,
        modes=("forward", "in place"),
        devices=("cpu",),
    ),
    Competitor("plain formula", "torch", plain_formula, OUT_OF_PLACE),
    Competitor("formula compiled", "torch", compiled(plain_formula), OUT_OF_PLACE),
    Competitor("transformers", "transformers", transformers, OUT_OF_PLACE, narrow="steps"),
    Competitor(
        "transformers compiled",
        "transformers",
        compiled(transformers),
        OUT_OF_PLACE,
        narrow="steps",
    ),
    Competitor(_RET, _RET, rotary_embedding_torch, OUT_OF_PLACE, PAIRS, narrow="angles"),
    Competitor("Liger", "liger-kernel", liger, OUT_OF_PLACE, ("half",), ("cuda",), narrow="steps"),
    Competitor("flash-attn", "flash-attn", flash_attn, devices=("cuda",), narrow="steps"),
)
