"""Theta `[A, R/2]`: how fast each plane turns along each axis, in radians per position.

Axial RoPE and M-RoPE: every column has one non-zero entry at most, so that a plane follows one
axis. They differ in the spectrum. Axial RoPE gives each axis a whole one, fast planes to slow;
M-RoPE shares a single one out, and text, whose axes all agree, sees RoPE itself.

Shapes: A axes, R the rotated width (`dim`). All float64.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from rope.checks import check_count
from rope.frequencies import check_spectrum, inverse_frequencies
from rope.scalars import check_dim, check_flag


def axial_frequencies(
    dim: int,
    axes: int | Sequence[int] = 2,
    base: float = 10000.0,
    *,
    device: torch.device | str | None = None,
) -> Tensor:
    """Each axis has its own run of planes and in it a whole spectrum base**(-2j/width).

    axes: how many axes share dim equally, or the width of each one's run, such as (16, 56, 56).
    Returns float64 `[A, dim/2]` on `device`; the first planes follow axis 0.
    Raises ValueError for a dim that the axes cannot share in pairs of coordinates, or widths that
    are odd or do not sum to dim; TypeError for what is no integer. RoPE-ViT (arXiv 2403.13298)
    writes it for two axes.

    >>> axial_frequencies(8, base=100.0)
    tensor([[1.0000, 0.1000, 0.0000, 0.0000],
            [0.0000, 0.0000, 1.0000, 0.1000]], dtype=torch.float64)
    >>> axial_frequencies(8, (2, 6), base=1000.0)
    tensor([[1.0000, 0.0000, 0.0000, 0.0000],
            [0.0000, 1.0000, 0.1000, 0.0100]], dtype=torch.float64)
    """
    spectra = (inverse_frequencies(width, base, device=device) for width in _widths(dim, axes))
    return torch.block_diag(*spectra)


def section_frequencies(
    inv_freq: Tensor, sections: Sequence[int], *, interleaved_sections: bool = False
) -> Tensor:
    """M-RoPE: one spectrum, whose planes are shared out to the axes; axis a gets sections[a].

    inv_freq: float64 `[R/2]`; sections: A counts that sum to R/2, for time, height and width.
    Contiguous (Qwen2-VL, arXiv 2409.12191, and Qwen2.5-VL): the first sections[0] planes follow
    axis 0, the next sections[1] axis 1, and so on. interleaved_sections (Qwen3-VL): planes are
    dealt like cards, T H W T H W ..., and when an axis has its share, axis 0 takes its turns.
    Returns float64 `[A, R/2]` on inv_freq's device: column j is theta_j in one row, 0 elsewhere.
    Raises ValueError for sections that do not sum to R/2, are negative, or that the interleaved
    deal cannot serve; TypeError for what is no integer or not float64.

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
    counts, planes = tuple(map(int, sections)), inv_freq.shape[0]
    if sum(counts) != planes:
        raise ValueError(
            f"sections {counts} sum to {sum(counts)}; they must sum to {planes}, the planes of "
            "inv_freq: give counts of planes, not of coordinates"
        )
    owners = [axis for axis, count in enumerate(counts) for _ in range(count)]
    rows = torch.tensor(_dealt(counts) if interleaved_sections else owners, device=inv_freq.device)
    return inv_freq.where(rows == torch.arange(len(counts), device=rows.device)[:, None], 0.0)


def _dealt(counts: tuple[int, ...]) -> list[int]:
    """The axis of each plane in the interleaved order."""
    axes, planes = len(counts), sum(counts)
    owners = [0] * planes
    for axis, count in enumerate(counts[1:], start=1):
        most = len(owners[axis::axes])
        if count > most:
            raise ValueError(
                f"sections {counts} give axis {axis} {count} planes; interleaved among {axes} "
                f"axes, {planes} planes hold at most {most} for it: move planes to axis 0, "
                "or use interleaved_sections=False"
            )
        owners[axis : axis + count * axes : axes] = [axis] * count
    return owners


def _widths(dim: int, axes: int | Sequence[int]) -> tuple[int, ...]:
    """The rotated width of each axis."""
    check_dim(dim)
    if isinstance(axes, Sequence) and not isinstance(axes, str):
        widths = tuple(axes)
        for axis, width in enumerate(widths):
            check_dim(width, f"axes[{axis}]")
        if sum(widths) != dim:
            raise ValueError(
                f"axes {widths} sum to {sum(widths)}; the widths must sum to dim, {dim}: "
                "change one of them, or dim"
            )
        return widths
    check_count("axes", axes)
    step = 2 * axes
    if dim % step:
        raise ValueError(
            f"dim is {dim}; {axes} axes share it in pairs of coordinates, so it must be a multiple "
            f"of {step}: pass {max(step, dim - dim % step)}, or the width of each axis as a tuple"
        )
    return (dim // axes,) * axes
