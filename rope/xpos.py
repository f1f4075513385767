"""Implement xPos: rotary embedding with a decay in every plane (Sun et al., arXiv 2212.10554).

In plane j, xPos multiplies the query at position m by zeta_j^{m/B} and the key at position n by
zeta_j^{-n/B}. B is the scale base, and zeta_j = (2j/R + gamma) / (1 + gamma) with gamma = 0.4. In
the score,

    q_m^T k_n = sum over j of zeta_j^{(m-n)/B} Re(q_j k_j^* e^{i (m-n) theta_j}),

the positions occur only as n - m. The farther a key lies in the past, the less each plane
contributes to the score. Fast planes decay most rapidly. The scales grow without bound, so far from
position 0 they overflow the dtype. For long texts, subtract the same number from all positions.

Shapes: B batch, H heads, S sequence, D head dimension, R rotated width.
"""

import math

import torch
from torch import Tensor, nn

from rope.checks import check_base, check_dim, check_flag, check_heads, check_number, check_vectors
from rope.frequencies import inverse_frequencies, rotary_tables, table_dtype
from rope.functional import rotary_embedding
from rope.positions import ids_or_start, position_range

GAMMA = 0.4


def decay_rates(dim: int, *, device: torch.device | str | None = None) -> Tensor:
    """Return zeta_j = (2j/dim + 0.4) / 1.4, the decay factor of plane j per scale_base positions.

    Returns float64 `[dim/2]`, increasing from 2/7 to less than 1.
    Raises ValueError if dim is odd or below 2, and TypeError if it is not an integer.

    >>> decay_rates(4)
    tensor([0.2857, 0.6429], dtype=torch.float64)
    """
    check_dim(dim)
    planes = torch.arange(dim // 2, dtype=torch.float64, device=device)
    return (planes * (2.0 / dim) + GAMMA) / (1 + GAMMA)


class XPos(nn.Module):
    """Rotate and scale queries and keys for causal attention with xPos.

    dim: the rotated width R, an even number. scale_base: B, the number of positions over which
    plane j decays by the factor zeta_j. base: the base of the frequencies theta_j = base**(-2j/R).
    interleaved: if True, plane j holds coordinates (2j, 2j+1); if False, (j, j + R/2).
    The module has no parameters or buffers. Raises ValueError or TypeError for an invalid argument.

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
        interleaved: bool = False,
    ) -> None:
        super().__init__()
        check_dim(dim)
        check_number("scale_base", scale_base, above=0)
        check_base(base)
        check_flag("interleaved", interleaved)
        self.dim, self.scale_base, self.base = dim, float(scale_base), float(base)
        self.interleaved = interleaved

    def reach(self, dtype: torch.dtype = torch.float32) -> float:
        """Return the largest distance from position 0 that this dtype allows.

        At this distance, the scale of plane 0 reaches 2^63 in float32 and bfloat16, and 2^7 in
        float16. This is half of the dtype's exponent range; the vectors can use the other half.

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
        """Rotate q and k to their positions, scale q, and scale k by the reciprocal factors.

        q: `[B, H, S, D]`. k: `[B, H_kv, S, D]`. position_ids: integers `[S]` or `[B, S]`, which may
        be negative. Without position_ids, the positions are offset ... offset+S-1, where offset is
        an int or an integer tensor `[B]`. inverse: if True, undo the rotation and the scaling.
        Returns q and k with unchanged shapes and dtypes. Tables and arithmetic are float32, or
        float64 if the tensor is float64.
        Raises the same errors as `rotary_embedding`. Raises ValueError if offset is negative, or if
        a position is farther from 0 than `reach(dtype)`. (Under `torch.compile` and on
        CUDA, an asynchronous assertion checks the positions.)

        >>> XPos(4)(*torch.ones(2, 1, 1, 1, 4), offset=512)[0]
        tensor([[[[-0.3075,  0.8450, -0.2621, -0.3353]]]])
        """
        check_vectors({"q": q, "k": k}, self.dim)
        rotated_q = self._rotate(q, position_ids, offset, inverse, sign=1)
        return rotated_q, self._rotate(k, position_ids, offset, inverse, sign=-1)

    def rotate_queries(
        self,
        q: Tensor,
        position_ids: Tensor | None = None,
        *,
        offset: int | Tensor = 0,
        inverse: bool = False,
    ) -> Tensor:
        """Rotate and scale q `[B, H, S, D]` as `forward` does, but without k.

        >>> q = torch.ones(1, 1, 2, 4)
        >>> torch.equal(XPos(4).rotate_queries(q, offset=7), XPos(4)(q, q, offset=7)[0])
        True
        """
        return self._rotate(q, position_ids, offset, inverse, sign=1)

    def rotate_keys(
        self,
        k: Tensor,
        position_ids: Tensor | None = None,
        *,
        offset: int | Tensor = 0,
        inverse: bool = False,
    ) -> Tensor:
        """Rotate and scale k `[B, H_kv, S, D]` as `forward` does, but without q."""
        return self._rotate(k, position_ids, offset, inverse, sign=-1)

    def _rotate(
        self, x: Tensor, position_ids: Tensor | None, offset: int | Tensor, inverse: bool, sign: int
    ) -> Tensor:
        """Rotate x and multiply plane j by zeta_j^{sign m/B}; undo both if inverse is True."""
        check_heads("x", x, self.dim)
        check_flag("inverse", inverse)
        ids, start = ids_or_start(position_ids, offset, x)
        if ids is None:
            ids = torch.arange(start, start + x.shape[2], device=x.device)
        self._check_reach(ids, x.dtype)
        inv_freq = inverse_frequencies(self.dim, self.base, device=x.device)
        cos, sin = rotary_tables(ids, inv_freq, dtype=torch.float64)
        power = ids.to(torch.float64).unsqueeze(-1) / self.scale_base
        scale = decay_rates(self.dim, device=x.device) ** ((-sign if inverse else sign) * power)
        # Scale before rounding, so that each table entry is rounded only once.
        cos, sin = ((table * scale).to(table_dtype(x)) for table in (cos, sin))
        if ids.dim() == 2:  # [B, S, R/2] to [B, 1, S, R/2]
            cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)
        return rotary_embedding(x, cos, sin, interleaved=self.interleaved, inverse=inverse)

    def _check_reach(self, ids: Tensor, dtype: torch.dtype) -> None:
        """Raise ValueError if a position is farther from 0 than the dtype allows."""
        reach = self.reach(dtype)
        if torch.compiler.is_compiling() or ids.is_cuda:
            # Reading a value would break the traced graph or make the host wait for the GPU.
            inside = (ids.to(torch.float64).abs() <= reach).all()
            torch._assert_async(inside, f"positions must be between -{reach:.0f} and {reach:.0f}")
        elif not ids.is_meta and ids.numel():
            position = max(position_range(ids), key=abs)
            if abs(position) > reach:
                raise ValueError(
                    f"position_ids contains {position}; {dtype} and scale_base="
                    f"{self.scale_base:g} allow at most {math.floor(reach)} on either side of 0; "
                    "subtract the same number from all positions, raise scale_base, or use a wider "
                    "dtype"
                )
