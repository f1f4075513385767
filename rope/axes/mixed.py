"""Mixed RoPE: every plane of every head rotates along a direction of its own, and learns it.

RoPE-ViT (arXiv 2403.13298). A plane of axial RoPE sees rows or columns, so a score is a sum of
what either offset contributes; with a dense Theta a plane sees a diagonal. At the start each head
has the axial frequencies in a frame of its own, turned at random: for two axes and the angle phi,
half of the planes look along (cos phi, sin phi) and half along (-sin phi, cos phi).

Shapes: A axes, B batch, H heads, S sequence, D head dimension, R rotated width.
"""

from collections.abc import Callable
from typing import Self

import torch
from torch import Tensor, nn

from rope.axes.frequencies import axial_frequencies
from rope.axes.module import AxisRotation
from rope.checks import check_count
from rope.scalars import check_flag


class MixedRotaryEmbedding(AxisRotation):
    """Rotary embedding on A axes whose frequencies are learned, head by head.

    dim: the rotated width R, a multiple of 2A; num_heads: H, of the queries and of the keys;
    base: of the first frequencies, 10.0 as RoPE-ViT's mixed models have it.
    interleaved: plane j holds coordinates (2j, 2j+1), as in RoPE-ViT; otherwise (j, j + R/2).
    The Parameter `frequencies`, float32 `[H, A, R/2]` in radians per position, is in the
    state_dict. No dtype cast touches it; angles are formed from it in float64.
    `reset_parameters` draws it from torch's default generator.
    Raises ValueError or TypeError for a bad dim, num_heads, axes or base; in a call, ValueError for
    another number of heads and TypeError where `load_state_dict(assign=True)` put a half type in.

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
        axial_frequencies(dim, axes, base, device="meta")  # refuses what does not fit
        self.dim, self.axes, self.base = dim, axes, float(base)
        self.num_heads, self.interleaved = num_heads, interleaved
        empty = torch.empty(num_heads, axes, dim // 2, dtype=torch.float32, device=device)
        self.frequencies = nn.Parameter(empty)
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Draw the frequencies afresh: axial ones, in a frame turned at random for each head.

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
        # Uniform among the rotations once the triangle's diagonal is positive and det is 1.
        frame = frame * triangle.diagonal(dim1=-2, dim2=-1).sign().unsqueeze(-2)
        frame[..., 0] *= torch.linalg.det(frame).sign().unsqueeze(-1)
        runs = frame.repeat_interleave(self.dim // (2 * self.axes), dim=-1)  # [H, A, R/2]
        self.frequencies.copy_(runs * spectrum)

    def _theta(self, device: torch.device) -> Tensor:
        if self.frequencies.dtype not in (torch.float32, torch.float64):
            raise TypeError(
                f"frequencies is {self.frequencies.dtype}; it must be float32, since half types "
                "round every angle: load the state_dict without assign=True"
            )
        return self.frequencies.double()

    def _check_heads(self, name: str, x: Tensor) -> None:
        """Refuse another number of heads: a key shared by two heads would need both rotations."""
        super()._check_heads(name, x)
        if x.shape[1] != self.num_heads:
            raise ValueError(
                f"{name} has {x.shape[1]} heads; each of the layer's {self.num_heads} has "
                "frequencies of its own, so it must have as many: repeat shared keys "
                "with repeat_interleave(groups, dim=1)"
            )

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Follow device moves and keep float32; what to_empty leaves unwritten is drawn afresh."""

        def move(tensor: Tensor) -> Tensor:
            moved = fn(tensor)
            return moved if moved.dtype == tensor.dtype else tensor.to(moved.device)

        was_meta = self.frequencies.is_meta
        super()._apply(move, recurse)
        if was_meta and not self.frequencies.is_meta:
            self.reset_parameters()
        return self

    def extra_repr(self) -> str:
        names = ("dim", "num_heads", "axes", "base", "interleaved")
        return ", ".join(f"{name}={getattr(self, name)}" for name in names)
