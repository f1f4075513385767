"""How the error of a cosine grows with the position: this package and what the field does.

Chapter "How exact must it be?". Every recipe gets the positions near those of `HALF_POWERS`, and
its cosines are compared with mpmath's. Shapes: P positions, R rotated width.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

import torch
from torch import Tensor

from rope.book.measured.accuracy import DIM
from rope.book.measured.accuracy.truth import RADIX, Rows, spectrum
from rope.extensions import Default
from rope.frequencies import inverse_frequencies, rotary_tables

PEER_BASES = (10_000.0, 500_000.0)
HALF_POWERS = tuple(round(2 ** (step / 2)) for step in range(41))
#: Errors near a position are the worst of so many positions that end with it: at a power of two
#: alone, where every product is exact, most recipes look better than they are.
PEER_WINDOW = 64


def _float32_frequencies(base: float) -> Tensor:
    return 1.0 / base ** (torch.arange(0, DIM, 2).float() / DIM)


def _tf32(x: Tensor) -> Tensor:
    """Rounded to 10 explicit bits of mantissa, to the nearest, ties to even.

    >>> _tf32(torch.tensor([2049.0, 2050.0, 2051.0]))
    tensor([2048., 2050., 2052.])
    """
    mantissa, exponent = torch.frexp(x)
    return torch.ldexp(torch.round(mantissa * 2**11) / 2**11, exponent)


def transformers_cosines(positions: Tensor, base: float, *casts: torch.dtype) -> Tensor:
    """LlamaRotaryEmbedding's, after casts that reach its inv_freq; the cosines stay float32."""
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


def _lucidrains(positions: Tensor, base: float, dtype: torch.dtype) -> Tensor:
    """rotary-embedding-torch, whose positions take the vectors' dtype."""
    module = import_module("rotary_embedding_torch").RotaryEmbedding(dim=DIM, theta=base)
    # Its own way to a position: zero in the vectors' dtype, plus the offset.
    rows = [module.get_seq_pos(1, dtype=dtype, offset=m) for m in positions.tolist()]
    return module(torch.cat(rows)).detach().cos()[:, 0::2]


#: The cosines `[P, R/2]` at positions m for a base, as each of them makes them.
RECIPES: dict[str, Callable[[Tensor, float], Tensor]] = {
    # This package: float64 angles, the cosine rounded once to float32.
    "ours": lambda m, base: rotary_tables(m, inverse_frequencies(DIM, base))[0],
    "transformers_float32": transformers_cosines,
    "transformers_bfloat16": lambda m, base: transformers_cosines(m, base, torch.bfloat16),
    "rotary_embedding_torch_float32": lambda m, base: _lucidrains(m, base, torch.float32),
    "rotary_embedding_torch_bfloat16": lambda m, base: _lucidrains(m, base, torch.bfloat16),
    # The common recipe, as in torchtune, torchtitan and Llama's own code: all of it in float32.
    "float32_angles": lambda m, base: (m[:, None].float() * _float32_frequencies(base)).cos(),
    # What a TF32 matmul makes of it, emulated: both factors are rounded to 11 significant bits.
    # Their product is then exact in float32.
    "tf32_angles_emulated": lambda m, base: (
        _tf32(m[:, None].float()) * _tf32(_float32_frequencies(base))
    ).cos(),
    # Exact angles, and the table rounded to bfloat16.
    "bfloat16_tables": lambda m, base: rotary_tables(
        m, inverse_frequencies(DIM, base), dtype=torch.bfloat16
    )[0],
}


def measure_peers(base: float) -> dict[str, list[float]]:
    """By recipe, the largest error of a cosine among the 64 positions up to each of `HALF_POWERS`.

    The first windows are shorter, since positions begin at 0.
    """
    windows = [torch.arange(max(0, last - PEER_WINDOW + 1), last + 1) for last in HALF_POWERS]
    rows = Rows(spectrum(DIM, base, Default()))
    positions = torch.cat(windows)
    exact = torch.cat([_true_cosines(rows, window) for window in windows])
    return {
        name: [
            float(errors.max())
            for errors in (recipe(positions, base).double() - exact)
            .abs()
            .split([len(window) for window in windows])
        ]
        for name, recipe in RECIPES.items()
    }


def _true_cosines(rows: Rows, window: Tensor) -> Tensor:
    first, last = int(window[0]), int(window[-1])
    start = first - first % RADIX**2
    return rows.block(start, last + 1)[0][first - start :]
