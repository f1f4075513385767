"""Angles and their tables: theta_j = base**(-2j/d), then cos(m theta_j) and sin(m theta_j).

Chapter "Many dimensions". The angle is formed, reduced and evaluated in float64 and the table
rounded once: a float32 angle is already wrong in the second decimal at a million positions.

Shapes: R or dim the rotated width, ... positions of any shape. Angles in radians.
"""

import torch
from torch import Tensor

from rope.checks import (
    check_count,
    check_devices,
    check_finite,
    check_float64,
    check_integer,
    check_table_dtype,
)
from rope.extensions.base import Extension, check_scaled
from rope.scalars import check_base, check_dim, check_number


def inverse_frequencies(
    dim: int,
    base: float = 10000.0,
    *,
    extension: Extension | None = None,
    seq_len: int | None = None,
    device: torch.device | str | None = None,
) -> Tensor:
    """The dim/2 angular frequencies theta_j = base**(-2j/dim), in radians per position.

    extension: a context extension, which changes them; seq_len: the length in use, for those that
    depend on it. Returns float64 `[dim/2]` on `device` (torch's default device when None).
    Raises ValueError for a dim that is odd or below 2, a base that is not positive and finite or
    so small that angles leave float64, a negative seq_len, or an extension that does not fit dim
    or gives frequencies of another shape, device or kind than finite; TypeError for a dim that is
    no integer, an extension that is none, or one whose frequencies are not float64.
    RoFormer (arXiv 2104.09864), section 3.2.2.

    >>> inverse_frequencies(4)
    tensor([1.0000, 0.0100], dtype=torch.float64)
    >>> from rope.extensions import Linear
    >>> inverse_frequencies(4, extension=Linear(2.0))
    tensor([0.5000, 0.0050], dtype=torch.float64)
    """
    check_dim(dim)
    check_base(base)
    check_extension(extension)
    if seq_len is not None:
        check_count("seq_len", seq_len, smallest=0)
    exponents = torch.arange(dim // 2, dtype=torch.float64, device=device) * (-2.0 / dim)
    plain = float(base) ** exponents
    if extension is None:
        return plain
    scaled = extension.scale(plain, float(base), seq_len)
    check_scaled(extension, plain, scaled)
    return scaled


def check_extension(extension: Extension | None) -> None:
    """Refuse what is no context extension, such as its name."""
    if extension is not None and not isinstance(extension, Extension):
        raise TypeError(
            f"extension is {extension!r}; it must be an object of rope.extensions such as "
            "Linear(2.0), or None: make one from REGISTRY, or read a configuration with "
            "RotaryEmbedding.from_config"
        )


def check_spectrum(name: str, spectrum: Tensor) -> None:
    """Refuse what is not a float64 vector of frequencies."""
    check_float64(name, spectrum)
    if spectrum.dim() != 1 or spectrum.shape[0] == 0:
        raise ValueError(
            f"{name} has shape {list(spectrum.shape)}; it must be [planes], one at least: "
            "take it from inverse_frequencies"
        )
    check_finite(name, spectrum, "take it from inverse_frequencies")


def rotary_tables(
    positions: int | Tensor,
    inv_freq: Tensor,
    *,
    dtype: torch.dtype = torch.float32,
    scale: float = 1.0,
) -> tuple[Tensor, Tensor]:
    """The tables cos(m theta_j) and sin(m theta_j).

    positions: an int N, meaning 0 ... N-1, or an integer tensor `[...]` (negative ones turn back);
    inv_freq: float64 `[R/2]` on the same device; scale: what both are multiplied by, an
    extension's `attention_scaling`.
    Returns cos and sin, `[..., R/2]`, `[N, R/2]` for an int, computed in float64 and rounded once
    to `dtype` (torch's own rounding to float16 and bfloat16, which passes through float32: ties may
    fall the other way).
    Raises TypeError for positions that are no integers, an inv_freq that is not float64 or a dtype
    that is not floating; ValueError for a negative N, an inv_freq of another shape, two devices or
    a scale that is not positive.

    >>> cos, sin = rotary_tables(2, inverse_frequencies(4))
    >>> cos
    tensor([[1.0000, 1.0000],
            [0.5403, 0.9999]])
    >>> rotary_tables(torch.tensor([[7, 8, 9], [0, 1, 2]]), inverse_frequencies(4))[0].shape
    torch.Size([2, 3, 2])
    """
    check_spectrum("inv_freq", inv_freq)
    if isinstance(positions, Tensor):
        check_integer("positions", positions)
        check_devices(inv_freq=inv_freq, positions=positions)
    else:
        check_count("positions", positions, smallest=0)
        positions = torch.arange(positions, device=inv_freq.device)
    # Elementwise, never a matmul: TF32 would round every position past 2,048.
    angle = positions.to(torch.float64).unsqueeze(-1) * inv_freq  # [..., R/2]
    return tables_of(angle, dtype, scale)


def tables_of(angle: Tensor, dtype: torch.dtype, scale: float) -> tuple[Tensor, Tensor]:
    """Cosine and sine of float64 angles, times scale, rounded once to dtype."""
    check_number("scale", scale, above=0)
    check_table_dtype(dtype)
    cos, sin = angle.cos(), angle.sin()
    if scale != 1:
        cos, sin = cos * scale, sin * scale
    return cos.to(dtype), sin.to(dtype)


def table_dtype(x: Tensor) -> torch.dtype:
    """The precision of x's arithmetic, and so of its tables: float64 for float64, else float32."""
    return torch.float64 if x.dtype == torch.float64 else torch.float32
