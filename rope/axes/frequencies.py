"""Compute Theta `[A, R/2]`, the frequency of each plane along each axis, in radians per position.

In axial RoPE and M-RoPE, each column has at most one nonzero entry, so a plane follows one axis.
The two methods differ in the spectrum. In axial RoPE, each axis has a full spectrum, from fast to
slow planes. In M-RoPE, the axes share one spectrum. A text token has the same position on all axes,
so M-RoPE rotates text as plain RoPE does.

Shapes: A axes, R rotated width (`dim`). All tensors are float64.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from rope.checks import check_count, check_flag
from rope.frequencies import check_spectrum, inverse_frequencies


def axial_frequencies(
    dim: int,
    axes: int | Sequence[int] = 2,
    base: float = 10000.0,
    *,
    device: torch.device | str | None = None,
) -> Tensor:
    """Return Theta for axial RoPE, float64 `[A, dim/2]`: one spectrum base**(-2j/width) per axis.

    axes: the number of axes, which share dim equally, or the width of each axis, such as
    (16, 56, 56). A width may be 0. The first planes follow axis 0. RoPE-ViT (arXiv 2403.13298) uses
    two axes. Raises ValueError if a width is odd or the widths don't sum to dim.

    >>> axial_frequencies(8, base=100.0)
    tensor([[1.0000, 0.1000, 0.0000, 0.0000],
            [0.0000, 0.0000, 1.0000, 0.1000]], dtype=torch.float64)
    >>> axial_frequencies(8, (2, 6), base=1000.0)
    tensor([[1.0000, 0.0000, 0.0000, 0.0000],
            [0.0000, 1.0000, 0.1000, 0.0100]], dtype=torch.float64)
    """
    widths = tuple(axes) if isinstance(axes, Sequence) else (dim // axes,) * axes
    if sum(widths) != dim:
        raise ValueError(
            f"axes is {axes}; the widths {widths} sum to {sum(widths)}, but they must sum to dim, "
            f"which is {dim}; change dim, or pass one width per axis"
        )
    none = torch.empty(0, dtype=torch.float64, device=device)
    spectra = (inverse_frequencies(n, base, device=device) if n else none for n in widths)
    return torch.block_diag(*spectra)


def section_frequencies(
    inv_freq: Tensor, sections: Sequence[int], *, interleaved_sections: bool = False
) -> Tensor:
    """Return Theta for M-RoPE, float64 `[A, R/2]`: theta_j in one row of column j, 0 elsewhere.

    inv_freq: the spectrum theta, float64 `[R/2]`; the result is on the same device. sections: the
    number of planes for each axis, usually time, height, and width; the A counts sum to R/2.
    By default (Qwen2-VL, arXiv 2409.12191, and Qwen2.5-VL), the first sections[0] planes follow
    axis 0, the next sections[1] planes follow axis 1, and so on. interleaved_sections: if True
    (Qwen3-VL), planes follow the axes in turn, T H W T H W ..., until height and width have their
    counts; the remaining planes follow axis 0.
    Raises ValueError if sections don't sum to R/2, are negative, or are too large to interleave,
    and TypeError if sections aren't integers or inv_freq is not float64.

    >>> theta = torch.tensor([4.0, 3.0, 2.0, 1.0]).double()
    >>> section_frequencies(theta, (2, 1, 1))
    tensor([[4., 3., 0., 0.],
            [0., 0., 2., 0.],
            [0., 0., 0., 1.]], dtype=torch.float64)
    >>> section_frequencies(theta, (2, 1, 1), interleaved_sections=True)
    tensor([[4., 0., 0., 1.],
            [0., 3., 0., 0.],
            [0., 0., 2., 0.]], dtype=torch.float64)
    """
    check_spectrum("inv_freq", inv_freq)
    check_flag("interleaved_sections", interleaved_sections)
    for axis, count in enumerate(sections):
        check_count(f"sections[{axis}]", count, smallest=0)
    axes, planes = len(sections), inv_freq.shape[0]
    if sum(sections) != planes:
        raise ValueError(
            f"sections is {tuple(sections)}, which sums to {sum(sections)}; it must sum to "
            f"{planes}, the number of planes; correct the counts"
        )
    axis_of = [axis for axis, count in enumerate(sections) for _ in range(count)]
    if interleaved_sections:
        others = [min(sections[axis], len(range(axis, planes, axes))) for axis in range(1, axes)]
        if (possible := (planes - sum(others), *others)) != tuple(sections):
            raise ValueError(
                f"sections is {tuple(sections)}, but {planes} planes can't be assigned in turn "
                f"with these counts; pass {possible}, as transformers does in this case"
            )
        axis_of = [0] * planes
        for axis, count in enumerate(sections[1:], start=1):
            axis_of[axis : axis + count * axes : axes] = [axis] * count
    rows = torch.tensor(axis_of, device=inv_freq.device)
    return inv_freq.where(rows == torch.arange(axes, device=rows.device)[:, None], 0.0)
