"""Implement mixed RoPE (RoPE-ViT, arXiv 2403.13298): each head learns its frequencies.

In axial RoPE, a plane follows rows or columns. A score is then a sum of one term per axis, and each
term depends only on the offset along its axis. With a dense Theta, a plane can follow a diagonal.
Each head starts with the axial frequencies in a randomly rotated frame. For two axes and the angle
phi, half of a head's planes follow (cos phi, sin phi), and half follow (-sin phi, cos phi).

Shapes: A axes, B batch, H heads, S sequence, D head dimension, R rotated width.
"""

from collections.abc import Callable
from typing import Self

import torch
from torch import Tensor, nn

from rope.axes.frequencies import axial_frequencies
from rope.axes.module import AxisRotation
from rope.checks import check_count, check_flag
from rope.frequencies import float64_device


class MixedRotaryEmbedding(AxisRotation):
    """Rotate queries and keys on A axes with frequencies that each head learns.

    dim: the rotated width R, a multiple of 2A. num_heads: the number of heads H, the same for
    queries and keys. base: the base of the initial frequencies, 10.0 in RoPE-ViT's mixed models.
    interleaved: True for planes (2j, 2j+1), as in RoPE-ViT; False for planes (j, j + R/2).
    The parameter `frequencies`, float32 `[H, A, R/2]` in radians per position, is in the state_dict
    and stays float32 when the model is cast. Angles are computed in float64.
    Raises ValueError or TypeError for an invalid dim, num_heads, axes, or base. A call raises
    ValueError for another number of heads, and TypeError if `frequencies` is in half precision
    after `load_state_dict(assign=True)`.

    >>> _ = torch.manual_seed(0)
    >>> rotary = MixedRotaryEmbedding(8, num_heads=3).to(torch.bfloat16)
    >>> rotary.frequencies.dtype, rotary.frequencies.shape
    (torch.float32, torch.Size([3, 2, 4]))
    >>> rotary.frequencies.square().sum(dim=1).sqrt()[0]
    tensor([1.0000, 0.3162, 1.0000, 0.3162], grad_fn=<SelectBackward0>)
    """

    frequencies: nn.Parameter

    def __init__(
        self,
        dim: int,
        num_heads: int,
        axes: int = 2,
        base: float = 10.0,
        *,
        interleaved: bool = False,
        device: torch.device | str | None = None,
    ) -> None:
        super().__init__()
        check_count("num_heads", num_heads)
        check_count("axes", axes)
        check_flag("interleaved", interleaved)
        axial_frequencies(dim, axes, base, device="meta")  # check dim, axes, and base
        self.dim, self.axes, self.base = dim, axes, float(base)
        self.num_heads, self.interleaved = num_heads, interleaved
        empty = torch.empty(num_heads, axes, dim // 2, dtype=torch.float32, device=device)
        self.frequencies = nn.Parameter(empty)
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Reset each head to axial frequencies in a random frame from torch's default generator.

        >>> rotary = MixedRotaryEmbedding(8, num_heads=2)
        >>> before = rotary.frequencies.clone()
        >>> rotary.reset_parameters()
        >>> torch.equal(rotary.frequencies, before)
        False
        """
        if self.frequencies.is_meta:
            return
        spectrum = axial_frequencies(self.dim, self.axes, self.base, device="cpu").sum(0)  # [R/2]
        shape = (self.num_heads, self.axes, self.axes)
        draw = torch.randn(shape, dtype=torch.float64, device="cpu")
        frame, triangle = torch.linalg.qr(draw)
        # A positive diagonal in `triangle` and det = 1 make the rotations uniformly distributed.
        frame = frame * triangle.diagonal(dim1=-2, dim2=-1).sign().unsqueeze(-2)
        frame[..., 0] *= torch.linalg.det(frame).sign().unsqueeze(-1)
        runs = frame.repeat_interleave(self.dim // (2 * self.axes), dim=-1)  # [H, A, R/2]
        self.frequencies.copy_((runs * spectrum).float())

    def _theta(self, device: torch.device) -> Tensor:
        if self.frequencies.dtype not in (torch.float32, torch.float64):
            raise TypeError(
                f"frequencies is {self.frequencies.dtype}; it must be float32, because half "
                "precision rounds every angle; load the state_dict without assign=True"
            )
        return self.frequencies.to(float64_device(device)).double()

    def _check_heads(self, name: str, x: Tensor) -> None:
        """Raise ValueError unless x has num_heads heads, because each has its own frequencies."""
        super()._check_heads(name, x)
        if x.shape[1] != self.num_heads:
            raise ValueError(
                f"{name} has {x.shape[1]} heads, but the layer has frequencies for "
                f"{self.num_heads}; repeat shared key heads with repeat_interleave(groups, dim=1)"
            )

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Move frequencies but keep their dtype; redraw them when they leave the meta device."""

        def move(tensor: Tensor) -> Tensor:
            moved = fn(tensor)
            return moved if moved.dtype == tensor.dtype else tensor.to(moved.device)

        was_meta = self.frequencies.is_meta
        super()._apply(move, recurse)
        if was_meta and not self.frequencies.is_meta:
            self.reset_parameters()
        return self
