"""Compute frequencies theta_j = base**(-2j/R) and tables of cos(m theta_j) and sin(m theta_j).

See the chapter "Many dimensions". The functions compute angles, cosines, and sines in float64,
because a float32 angle at position 1,000,000 can be off by 0.03. They round only the result.

Shapes: R rotated width (the argument `dim`), ... any axes of the positions. Angles are in radians.
"""

import torch
from torch import Tensor

from rope.checks import (
    check_base,
    check_count,
    check_dim,
    check_finite,
    check_float64,
    check_floating,
    check_integer,
    check_number,
)
from rope.extensions.base import Extension


def inverse_frequencies(
    dim: int,
    base: float = 10000.0,
    *,
    extension: Extension | None = None,
    seq_len: int | None = None,
    device: torch.device | str | None = None,
) -> Tensor:
    """Return the dim/2 angular frequencies theta_j = base**(-2j/dim), in radians per position.

    extension: a context extension that changes the frequencies, or None. seq_len: the current
    sequence length; only some extensions depend on it.
    Returns float64 `[dim/2]` on `device`, or on torch's default device if `device` is None.
    Raises ValueError if dim is odd or below 2, if base is not finite or below 1e-9, or if the
    extension returns a wrong shape or non-finite values. Raises TypeError if dim is not an integer,
    base is not a number, or the extension's `scale` doesn't return float64.
    See RoFormer (arXiv 2104.09864), section 3.2.2.

    >>> inverse_frequencies(4)
    tensor([1.0000, 0.0100], dtype=torch.float64)
    >>> from rope.extensions import Linear
    >>> inverse_frequencies(4, extension=Linear(2.0))
    tensor([0.5000, 0.0050], dtype=torch.float64)
    """
    check_dim(dim)
    check_base(base)
    exponents = torch.arange(dim // 2, dtype=torch.float64, device=device) * (-2.0 / dim)
    plain = float(base) ** exponents
    if extension is None:
        return plain
    scaled = extension.scale(plain, float(base), seq_len)
    name = f"the result of {type(extension).__name__}.scale"
    check_float64(name, scaled, "float64 arithmetic")
    if scaled.shape != plain.shape:
        raise ValueError(
            f"{name} has shape {list(scaled.shape)}; it must be {list(plain.shape)}, one frequency "
            "per plane"
        )
    check_finite(name, scaled, "return 0 for planes that don't rotate")
    return scaled


def float64_device(device: torch.device) -> torch.device:
    """Return the device if it is known to support float64, or the CPU for others, such as MPS."""
    return device if device.type in ("cpu", "cuda", "meta", "xpu") else torch.device("cpu")


def check_spectrum(name: str, spectrum: Tensor) -> None:
    """Raise TypeError unless spectrum is float64, and ValueError unless it is finite and 1-D."""
    check_float64(name, spectrum)
    if spectrum.dim() != 1:
        raise ValueError(
            f"{name} has shape {list(spectrum.shape)}; it must have one axis, [planes], like the "
            "result of inverse_frequencies"
        )
    check_finite(name, spectrum, "compute the frequencies with inverse_frequencies")


def rotary_tables(
    positions: int | Tensor,
    inv_freq: Tensor,
    *,
    dtype: torch.dtype = torch.float32,
    scale: float = 1.0,
) -> tuple[Tensor, Tensor]:
    """Return the tables cos(m theta_j) and sin(m theta_j).

    positions: an int N for positions 0 ... N-1, or an integer tensor `[...]`, which may contain
    negative positions. inv_freq: float64 `[R/2]`, on the positions' device. scale: a factor for
    both tables, such as an extension's `attention_scaling`.
    Returns cos and sin, each `[..., R/2]` (`[N, R/2]` for an int), computed in float64 and then
    rounded to `dtype`. For float16 and bfloat16, torch rounds to float32 first.
    Raises TypeError if positions are not integers, inv_freq is not float64, or `dtype` is not a
    floating-point dtype. Raises ValueError if N is negative, inv_freq is not 1-D and finite, or
    scale is not positive and finite. Raises torch's RuntimeError if the devices differ.

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
    else:
        check_count("positions", positions, smallest=0)
        positions = torch.arange(positions, device=inv_freq.device)
    # Don't use a float32 matmul here: in TF32, it would round positions above 2,048.
    angle = positions.to(torch.float64).unsqueeze(-1) * inv_freq  # [..., R/2]
    return tables_of(angle, dtype, scale)


def tables_of(angle: Tensor, dtype: torch.dtype, scale: float) -> tuple[Tensor, Tensor]:
    """Return scale * cos(angle) and scale * sin(angle) for float64 angles, rounded to dtype."""
    check_number("scale", scale, above=0)
    check_floating("dtype", dtype)
    cos, sin = angle.cos(), angle.sin()
    if scale != 1:
        cos, sin = cos * scale, sin * scale
    return cos.to(dtype), sin.to(dtype)


def table_dtype(x: Tensor) -> torch.dtype:
    """Return the dtype for tables that rotate x: float64 if x is float64, otherwise float32."""
    return torch.float64 if x.dtype == torch.float64 else torch.float32
