"""What both layers do in a call: check, make the tables, rotate.

Shapes: A axes, B batch, H heads, S sequence, D head dimension, R rotated width.
"""

import torch
from torch import Tensor, nn

from rope.axes.tables import axis_tables, check_axis_positions
from rope.checks import check_heads, check_pair
from rope.frequencies import table_dtype
from rope.kernels.operator import apply_rotation
from rope.scalars import check_flag


class AxisRotation(nn.Module):
    """A layer with a Theta, which is all that a subclass adds.

    dim, axes: R and A; interleaved: plane j holds coordinates (2j, 2j+1), otherwise (j, j + R/2);
    attention_scaling: a factor on cos and sin.
    """

    dim: int
    axes: int
    interleaved: bool
    attention_scaling: float = 1.0

    def _theta(self, device: torch.device) -> Tensor:
        """Theta, float64 `[A, R/2]` or `[H, A, R/2]`, for vectors on a device."""
        raise NotImplementedError

    def _check_heads(self, name: str, x: Tensor) -> None:
        """Refuse vectors that Theta does not fit."""
        check_heads(name, x, self.dim)

    def forward(
        self, q: Tensor, k: Tensor, position_ids: Tensor, *, inverse: bool = False
    ) -> tuple[Tensor, Tensor]:
        """Rotate q and k to their positions, or back when inverse.

        q: `[B, H, S, D]`; k: `[B, H_kv, S, D]`; position_ids: `[A, S]` or `[A, B, S]`, integers or
        real in float32 or float64. Returns the pair, shapes and dtypes kept; the tables are
        float32, float64 for a float64 tensor. inverse also undoes attention_scaling.
        Raises as `axis_tables` and `rotary_embedding` do, before anything is computed.

        >>> from rope.axes import MultiAxisRotaryEmbedding
        >>> rotary, x = MultiAxisRotaryEmbedding.axial(4), torch.ones(1, 1, 1, 4)
        >>> rotary(x, x, torch.tensor([[1], [0]]))[0]
        tensor([[[[-0.3012,  1.0000,  1.3818,  1.0000]]]])
        """
        self._check_heads("q", q)
        self._check_heads("k", k)
        check_pair(q, k)
        if table_dtype(q) != table_dtype(k):
            q = self.rotate(q, position_ids, inverse=inverse)
            return q, self.rotate(k, position_ids, inverse=inverse)
        cos, sin = self._tables(q, position_ids, inverse)
        q, k = apply_rotation((q, k), cos, sin, None, self.interleaved, inverse)
        return q, k

    def rotate(self, x: Tensor, position_ids: Tensor, *, inverse: bool = False) -> Tensor:
        """Rotate one tensor `[B, H, S, D]`, as `forward` does two.

        >>> from rope.axes import MultiAxisRotaryEmbedding
        >>> rotary, x = MultiAxisRotaryEmbedding.axial(4).double(), torch.ones(1, 1, 1, 4)
        >>> rotated = rotary.rotate(x, torch.tensor([[2], [5]]))
        >>> torch.allclose(rotary.rotate(rotated, torch.tensor([[2], [5]]), inverse=True), x)
        True
        """
        self._check_heads("x", x)
        cos, sin = self._tables(x, position_ids, inverse)
        return apply_rotation((x,), cos, sin, None, self.interleaved, inverse)[0]

    def _tables(self, x: Tensor, position_ids: Tensor, inverse: bool) -> tuple[Tensor, Tensor]:
        check_flag("inverse", inverse)
        check_axis_positions(position_ids, self.axes, x)
        scale = 1 / self.attention_scaling if inverse else self.attention_scaling
        theta = self._theta(x.device)
        return axis_tables(position_ids, theta, dtype=table_dtype(x), scale=scale)
