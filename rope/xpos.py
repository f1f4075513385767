"""xPos: rotation, and a decay in every plane (Sun et al., arXiv 2212.10554).

The query is stretched by zeta_j^{(m-c)/B}, the key by zeta_j^{-(n-c)/B}, with
zeta_j = (2j/d + gamma) / (1 + gamma), gamma = 0.4 and B the scale base. The centre c cancels:

    q_m^T k_n = sum over j of zeta_j^{(m-n)/B} Re(q_j k_j^* e^{i (m-n) theta_j}),

which depends on n - m alone and fades, fast planes first, as the key recedes into the past. Taken
one by one the two factors grow without bound, and at some distance from c leave the dtype.
So the centre is an argument of the layer and never follows from the length of a call: keys in a
cache would carry the centre of their day, and a later query another.

Shapes: B batch, H heads, S sequence, D head dimension, R rotated width.
"""

import math

import torch
from torch import Tensor, nn

from rope.checks import check_heads, check_pair
from rope.frequencies import inverse_frequencies, rotary_tables, table_dtype
from rope.functional import rotary_embedding
from rope.positions import ids_or_start, position_range
from rope.scalars import check_base, check_dim, check_flag, check_number

GAMMA = 0.4


def decay_rates(dim: int, *, device: torch.device | str | None = None) -> Tensor:
    """zeta_j = (2j/dim + 0.4) / 1.4: what plane j keeps over scale_base positions, 0.29 to 1.

    Returns float64 `[dim/2]`. Raises ValueError or TypeError for a bad dim.

    >>> decay_rates(4)
    tensor([0.2857, 0.6429], dtype=torch.float64)
    """
    check_dim(dim)
    planes = torch.arange(dim // 2, dtype=torch.float64, device=device)
    return (planes * (2.0 / dim) + GAMMA) / (1 + GAMMA)


class XPos(nn.Module):
    """Rotary embedding with the decay of xPos, for queries and keys of causal attention.

    dim: the rotated width R, even; scale_base: B, positions over which plane j decays by zeta_j;
    base: of theta_j = base**(-2j/R); centre: c, the position at which both factors are 1, any
    real number, the same for every call whose queries and keys meet.
    interleaved: plane j holds coordinates (2j, 2j+1); otherwise (j, j + R/2).
    There is nothing to store or to cast: all of it follows from the arguments in float64.
    Raises ValueError or TypeError for a bad argument.

    >>> xpos, ones = XPos(4), torch.ones(1, 1, 3, 4)
    >>> q, k = xpos(ones, ones)
    >>> later = xpos(ones, ones, offset=1000)
    >>> torch.allclose(q @ k.mT, later[0] @ later[1].mT, atol=1e-5)
    True
    """

    def __init__(
        self,
        dim: int,
        scale_base: float = 512.0,
        base: float = 10000.0,
        *,
        centre: float = 0.0,
        interleaved: bool = False,
    ) -> None:
        super().__init__()
        check_dim(dim)
        check_number("scale_base", scale_base, above=0)
        check_base(base)
        check_number("centre", centre)
        check_flag("interleaved", interleaved)
        self.dim, self.scale_base, self.base = dim, float(scale_base), float(base)
        self.centre, self.interleaved = float(centre), interleaved

    def reach(self, dtype: torch.dtype = torch.float32) -> float:
        """How far from the centre a position may lie, in positions.

        There the fastest plane's factor takes half of the dtype's exponents, 2^63 in float32 and
        bfloat16 and 2^7 in float16; the other half is left to the numbers that it multiplies.

        >>> round(XPos(64).reach()), round(XPos(64).reach(torch.float16))
        (17847, 1983)
        """
        exponents = -math.log2(torch.finfo(dtype).tiny) / 2
        return exponents * self.scale_base / math.log2((1 + GAMMA) / GAMMA)

    def forward(
        self,
        q: Tensor,
        k: Tensor,
        position_ids: Tensor | None = None,
        *,
        offset: int | Tensor = 0,
        inverse: bool = False,
    ) -> tuple[Tensor, Tensor]:
        """Rotate q and k to their positions and stretch the one as it shrinks the other.

        q: `[B, H, S, D]`; k: `[B, H_kv, S, D]`; position_ids: integers `[S]` or `[B, S]`, negative
        ones too; without them offset ... offset+S-1, offset an int or integers `[B]`, one a row.
        inverse: undo both. Returns the pair, shapes and dtypes kept; tables and arithmetic are
        float32, float64 for a float64 tensor.
        Raises as `rotary_embedding` does, and ValueError for an offset below 0 or a position beyond
        `reach` of the narrower dtype (for tensors under `torch.compile` or on CUDA an asynchronous
        assertion).

        >>> XPos(4)(*torch.ones(2, 1, 1, 1, 4), offset=512)[0]
        tensor([[[[-0.3075,  0.8450, -0.2621, -0.3353]]]])
        """
        check_heads("q", q, self.dim)
        check_heads("k", k, self.dim)
        check_pair(q, k)
        cos, sin, stretch = self._tables(q, position_ids, offset, q.dtype, k.dtype)
        rotated = self._rotate(q, cos, sin, stretch, inverse)
        return rotated, self._rotate(k, cos, sin, stretch.reciprocal(), inverse)

    def rotate_queries(
        self,
        q: Tensor,
        position_ids: Tensor | None = None,
        *,
        offset: int | Tensor = 0,
        inverse: bool = False,
    ) -> Tensor:
        """The queries' half of `forward`, where they are not as many as the keys.

        >>> q = torch.ones(1, 1, 2, 4)
        >>> torch.equal(XPos(4).rotate_queries(q, offset=7), XPos(4)(q, q, offset=7)[0])
        True
        """
        check_heads("q", q, self.dim)
        cos, sin, stretch = self._tables(q, position_ids, offset, q.dtype)
        return self._rotate(q, cos, sin, stretch, inverse)

    def rotate_keys(
        self,
        k: Tensor,
        position_ids: Tensor | None = None,
        *,
        offset: int | Tensor = 0,
        inverse: bool = False,
    ) -> Tensor:
        """The keys' half of `forward`.

        >>> k = torch.ones(1, 1, 2, 4)
        >>> torch.equal(XPos(4).rotate_keys(k, offset=7), XPos(4)(k, k, offset=7)[1])
        True
        """
        check_heads("k", k, self.dim)
        cos, sin, stretch = self._tables(k, position_ids, offset, k.dtype)
        return self._rotate(k, cos, sin, stretch.reciprocal(), inverse)

    def _tables(
        self, x: Tensor, position_ids: Tensor | None, offset: int | Tensor, *dtypes: torch.dtype
    ) -> tuple[Tensor, Tensor, Tensor]:
        """cos, sin and the query's factor, float64, shaped to broadcast against x."""
        counted = isinstance(offset, Tensor)
        position_ids, offset = ids_or_start(position_ids, offset, x)
        reach = min(self.reach(dtype) for dtype in dtypes)
        if position_ids is None:
            self._check_reach(offset, offset + x.shape[2] - 1, reach)
            position_ids = torch.arange(offset, offset + x.shape[2], device=x.device)
        else:
            self._check_positions(position_ids, reach, counted)
        inv_freq = inverse_frequencies(self.dim, self.base, device=x.device)
        cos, sin = rotary_tables(position_ids, inv_freq, dtype=torch.float64)
        power = (position_ids.to(torch.float64) - self.centre).unsqueeze(-1) / self.scale_base
        stretch = decay_rates(self.dim, device=x.device) ** power
        if position_ids.dim() == 2:  # [B, S, R/2] to [B, 1, S, R/2]
            return cos.unsqueeze(1), sin.unsqueeze(1), stretch.unsqueeze(1)
        return cos, sin, stretch

    def _rotate(self, x: Tensor, cos: Tensor, sin: Tensor, factor: Tensor, inverse: bool) -> Tensor:
        """Rotate and multiply by factor, or undo both; one rounding of the tables."""
        check_flag("inverse", inverse)
        factor = factor.reciprocal() if inverse else factor
        cos, sin = ((table * factor).to(table_dtype(x)) for table in (cos, sin))
        return rotary_embedding(x, cos, sin, interleaved=self.interleaved, inverse=inverse)

    def _check_positions(self, position_ids: Tensor, reach: float, counted: bool) -> None:
        if position_ids.is_meta:
            return
        if torch.compiler.is_compiling() or position_ids.is_cuda:
            # Reading a value would break a traced graph, and on a GPU make the host wait.
            inside = ((position_ids.to(torch.float64) - self.centre).abs() <= reach).all()
            torch._assert_async(inside, f"position_ids must lie within {reach:.0f} of the centre")
            if counted:  # from starts that `ids_or_start` could not read either
                torch._assert_async((position_ids >= 0).all(), "offset must be at least 0")
        else:
            self._check_reach(*position_range(position_ids), reach)

    def _check_reach(self, low: int, high: int, reach: float) -> None:
        """Refuse positions low ... high whose factors would overflow or lose their digits."""
        for position in (low, high) if low <= high else ():
            if abs(position - self.centre) > reach:
                raise ValueError(
                    f"position {position} lies {abs(position - self.centre):g} from the centre, "
                    f"{self.centre:g}; the scale must stay within the dtype, which with "
                    f"scale_base={self.scale_base:g} allows {math.floor(reach)}: put the centre "
                    "in the middle of the context, raise scale_base, or pass wider queries and keys"
                )

    def extra_repr(self) -> str:
        names = ("dim", "scale_base", "base", "centre", "interleaved")
        return ", ".join(f"{name}={getattr(self, name)}" for name in names)
