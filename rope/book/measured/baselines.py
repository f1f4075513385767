"""Call what this package is compared with: other packages' rotations, and their cosines.

A package is called as its documentation, or the models that use it, call it, in the fastest form it
has. A rotation gets tables that are made before the clock starts, from the float64 angles
m theta_j, in the shape and dtype that the package gets in practice: with the float32 angles that
most packages make, long sequences would fail the check. `COSINES` measures those angles.

Shapes: B batch, H heads, S sequence, D head dimension, P positions.
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
    """Return the tables of a case; a single token has position 4,095, as in decoding.

    >>> tables = make_tables(Case(1, 2, 1, 1, 8), torch.device("cpu"))
    >>> tables.angles[:, 0].tolist(), tables.cos.shape
    ([4095.0], torch.Size([1, 4]))
    """
    first = DECODED if case.seq == 1 else 0
    positions = torch.arange(first, first + case.seq, device=device)
    inv_freq = inverse_frequencies(case.head_dim, BASE, device=device)
    cos, sin = rotary_tables(positions, inv_freq)
    return Tables(case, positions[:, None].double() * inv_freq, cos, sin)


@dataclass(frozen=True)
class Baseline:
    """A rotation to time: its name, its package, and a function from tables to the call.

    modes, layouts, devices: those that it supports.
    extra_rounding: what it rounds besides its result. "steps": it computes in the vectors' dtype.
    "angles": it takes cosines of float32 angles, and autograd adds the two parts of its gradient in
    the vectors' dtype. "": nothing.
    """

    name: str
    package: str
    prepare: Callable[[Tables], Rotate]
    modes: tuple[str, ...] = MODES
    layouts: tuple[str, ...] = ("half", "interleaved")
    devices: tuple[str, ...] = ("cpu", "cuda")
    extra_rounding: str = ""

    def unsupported(self, case: Case, device: torch.device) -> str:
        """Return why it can't run this case, or "".

        >>> BASELINES[-1].unsupported(Case(1, 2, 1, 1, 8), torch.device("cpu"))
        'does not support cpu'
        """
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
    Baseline("transformers", "transformers", transformers, OUT_OF_PLACE, extra_rounding="steps"),
    Baseline(
        "transformers compiled",
        "transformers",
        compiled(transformers),
        OUT_OF_PLACE,
        extra_rounding="steps",
    ),
    Baseline(
        _RET,
        _RET,
        rotary_embedding_torch,
        OUT_OF_PLACE,
        layouts=("interleaved",),
        extra_rounding="angles",
    ),
    Baseline("Liger", "liger-kernel", liger, OUT_OF_PLACE, ("half",), ("cuda",), "steps"),
    Baseline("flash-attn", "flash-attn", flash_attn, devices=("cuda",), extra_rounding="steps"),
)

#: The head dimension whose cosines are measured.
DIM = 128


def _float32_frequencies(base: float) -> Tensor:
    return 1.0 / base ** (torch.arange(0, DIM, 2).float() / DIM)


def _tf32(x: Tensor) -> Tensor:
    """Return x rounded to 10 explicit bits of mantissa, to the nearest, ties to even.

    >>> _tf32(torch.tensor([2049.0, 2050.0, 2051.0]))
    tensor([2048., 2050., 2052.])
    """
    mantissa, exponent = torch.frexp(x)
    return torch.ldexp(torch.round(mantissa * 2**11) / 2**11, exponent)


def _transformers_cosines(positions: Tensor, base: float, *casts: torch.dtype) -> Tensor:
    """Return the float32 cosines of LlamaRotaryEmbedding, after casts that reach its inv_freq."""
    llama = import_module("transformers.models.llama.modeling_llama")
    config = llama.LlamaConfig(
        hidden_size=DIM,
        num_attention_heads=1,
        rope_parameters={"rope_type": "default", "rope_theta": base},
    )
    module = llama.LlamaRotaryEmbedding(config)
    for dtype in casts:
        module = module.to(dtype)
    return module(torch.zeros(1), positions[None])[0][0, :, : DIM // 2]


def _lucidrains_cosines(positions: Tensor, base: float, dtype: torch.dtype) -> Tensor:
    """Return the cosines of rotary-embedding-torch, whose positions have the vectors' dtype."""
    module = import_module("rotary_embedding_torch").RotaryEmbedding(dim=DIM, theta=base)
    # The package forms a position as zero in the vectors' dtype, plus the offset.
    rows = [module.get_seq_pos(1, dtype=dtype, offset=m) for m in positions.tolist()]
    return module(torch.cat(rows)).detach().cos()[:, 0::2]


#: The cosines `[P, D/2]` at positions m for a base, as each baseline makes them.
COSINES: dict[str, Callable[[Tensor, float], Tensor]] = {
    # This package: float64 angles, the cosine rounded once to float32.
    "ours": lambda m, base: rotary_tables(m, inverse_frequencies(DIM, base))[0],
    "transformers_float32": _transformers_cosines,
    "transformers_bfloat16": lambda m, base: _transformers_cosines(m, base, torch.bfloat16),
    "rotary_embedding_torch_float32": lambda m, base: _lucidrains_cosines(m, base, torch.float32),
    "rotary_embedding_torch_bfloat16": lambda m, base: _lucidrains_cosines(m, base, torch.bfloat16),
    # Everything in float32, as in torchtune, torchtitan and Llama's own code.
    "float32_angles": lambda m, base: (m[:, None].float() * _float32_frequencies(base)).cos(),
    # A TF32 matmul, emulated: both factors are rounded to 11 significant bits, so that their
    # product is exact in float32.
    "tf32_angles_emulated": lambda m, base: (
        _tf32(m[:, None].float()) * _tf32(_float32_frequencies(base))
    ).cos(),
    # Exact angles, and the table rounded to bfloat16.
    "bfloat16_tables": lambda m, base: rotary_tables(
        m, inverse_frequencies(DIM, base), dtype=torch.bfloat16
    )[0],
}
