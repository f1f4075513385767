"""How the error of a cosine grows with the position: this package and what the field does.

Chapter "From maths to PyTorch". Every recipe gets the positions near those of `HALF_POWERS`, and
its cosines are compared with mpmath's. Shapes: P positions, R rotated width.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from rope.accuracy.cases import HALF_POWERS, PEER_DIM, PEER_WINDOW
from rope.accuracy.truth import RADIX, Rows, spectrum
from rope.extensions import Default
from rope.frequencies import inverse_frequencies, rotary_tables


def ours(positions: Tensor, base: float) -> Tensor:
    """This package: float64 angles, the cosine rounded once to float32."""
    return rotary_tables(positions, inverse_frequencies(PEER_DIM, base))[0]


def bfloat16_tables(positions: Tensor, base: float) -> Tensor:
    """Exact angles, and the table rounded to bfloat16."""
    inv_freq = inverse_frequencies(PEER_DIM, base)
    return rotary_tables(positions, inv_freq, dtype=torch.bfloat16)[0]


def float32_angles(positions: Tensor, base: float) -> Tensor:
    """The common recipe, as in torchtune, torchtitan and Llama's own code: all of it in float32."""
    return (positions[:, None].float() * _float32_frequencies(base)).cos()


def tf32_angles_emulated(positions: Tensor, base: float) -> Tensor:
    """What a TF32 matmul makes of it, emulated: both factors are rounded to 11 significant bits.

    Their product is then exact in float32.
    """
    return (_tf32(positions[:, None].float()) * _tf32(_float32_frequencies(base))).cos()


def transformers_float32(positions: Tensor, base: float) -> Tensor:
    """transformers' LlamaRotaryEmbedding as it is built."""
    return _llama(base)(torch.zeros(1), positions[None])[0][0, :, : PEER_DIM // 2]


def transformers_bfloat16(positions: Tensor, base: float) -> Tensor:
    """The same after `.to(torch.bfloat16)`, which casts its inv_freq; the cosines stay float32."""
    module = _llama(base).to(torch.bfloat16)
    return module(torch.zeros(1), positions[None])[0][0, :, : PEER_DIM // 2]


def rotary_embedding_torch_float32(positions: Tensor, base: float) -> Tensor:
    """rotary-embedding-torch for float32 vectors."""
    return _lucidrains(positions, base, torch.float32)


def rotary_embedding_torch_bfloat16(positions: Tensor, base: float) -> Tensor:
    """rotary-embedding-torch for bfloat16 vectors, whose dtype its positions take."""
    return _lucidrains(positions, base, torch.bfloat16)


RECIPES: tuple[Callable[[Tensor, float], Tensor], ...] = (
    ours,
    transformers_float32,
    transformers_bfloat16,
    rotary_embedding_torch_float32,
    rotary_embedding_torch_bfloat16,
    float32_angles,
    tf32_angles_emulated,
    bfloat16_tables,
)


def measure_peers(base: float) -> dict[str, list[float]]:
    """By recipe, the largest error of a cosine among the 64 positions up to each of `HALF_POWERS`.

    The first windows are shorter, since positions begin at 0.
    """
    windows = [torch.arange(max(0, last - PEER_WINDOW + 1), last + 1) for last in HALF_POWERS]
    rows = Rows(spectrum(PEER_DIM, base, Default()))
    positions = torch.cat(windows)
    exact = torch.cat([_true_cosines(rows, window) for window in windows])
    return {
        recipe.__name__: [
            float(errors.max())
            for errors in (recipe(positions, base).double() - exact)
            .abs()
            .split([len(window) for window in windows])
        ]
        for recipe in RECIPES
    }


def _true_cosines(rows: Rows, window: Tensor) -> Tensor:
    first, last = int(window[0]), int(window[-1])
    start = first - first % RADIX**2
    return rows.block(start, last + 1)[0][first - start :]


def _float32_frequencies(base: float) -> Tensor:
    return 1.0 / base ** (torch.arange(0, PEER_DIM, 2).float() / PEER_DIM)


def _tf32(x: Tensor) -> Tensor:
    """Rounded to 10 explicit bits of mantissa, to the nearest, ties to even.

    >>> _tf32(torch.tensor([2049.0, 2050.0, 2051.0]))
    tensor([2048., 2050., 2052.])
    """
    mantissa, exponent = torch.frexp(x)
    return torch.ldexp(torch.round(mantissa * 2**11) / 2**11, exponent)


def _llama(base: float) -> Any:
    llama = import_module("transformers.models.llama.modeling_llama")
    config = llama.LlamaConfig(
        hidden_size=PEER_DIM,
        num_attention_heads=1,
        rope_parameters={"rope_type": "default", "rope_theta": base},
    )
    return llama.LlamaRotaryEmbedding(config)


def _lucidrains(positions: Tensor, base: float, dtype: torch.dtype) -> Tensor:
    module = import_module("rotary_embedding_torch").RotaryEmbedding(dim=PEER_DIM, theta=base)
    # Its own way to a position: zero in the vectors' dtype, plus the offset.
    rows = [module.get_seq_pos(1, dtype=dtype, offset=m) for m in positions.tolist()]
    return module(torch.cat(rows)).detach().cos()[:, 0::2]
