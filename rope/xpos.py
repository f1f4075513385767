"""xPos: rotary embedding with a decay in every plane (Sun et al., arXiv 2212.10554).

The query is scaled by zeta_j^{(m-c)/B} and the key by zeta_j^{-(n-c)/B}, with
zeta_j = (2j/R + gamma) / (1 + gamma), gamma = 0.4 and B the scale base. The center c cancels:

    q_m^T k_n = sum over j of zeta_j^{(m-n)/B} Re(q_j k_j^* e^{i (m-n) theta_j}),

so the score depends on the positions only through n - m, and it fades, fast planes first, as the
key recedes into the past. Each of the two scales grows without bound and overflows the dtype at
some distance from c. The center must not follow the length of a call, because cached keys would
then have another center than later queries; it is therefore an argument of the layer.

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
    """Return zeta_j = (2j/dim + 0.4) / 1.4, the decay of plane j over scale_base positions.

    Returns float64 `[dim/2]`, from 0.29 up to 1. Raises ValueError or TypeError for a bad dim.

    >>> decay_rates(4)
    tensor([0.2857, 0.6429], dtype=torch.float64)
    """
    check_dim(dim)
    planes = torch.arange(dim // 2, dtype=torch.float64, device=device)
    return (planes * (2.0 / dim) + GAMMA) / (1 + GAMMA)


class XPos(nn.Module):
    """Rotate and scale queries and keys of causal attention as xPos does.

    dim: the rotated width R, even; scale_base: B, positions over which plane j decays by zeta_j;
    base: of theta_j = base**(-2j/R); center: c, the position at which both scales are 1. Use the
    same center for all queries and keys that meet.
    interleaved: plane j holds coordinates (2j, 2j+1) if True, (j, j + R/2) otherwise.
    The module has no parameters or buffers. Raises ValueError or TypeError for a bad argument.

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
        center: float = 0.0,
        interleaved: bool = False,
    ) -> None:
        super().__init__()
        check_dim(dim)
        check_number("scale_base", scale_base, above=0)
        check_base(base)
        check_number("center", center)
        check_flag("interleaved", interleaved)
        self.dim, self.scale_base, self.base = dim, float(scale_base), float(base)
        self.center, self.interleaved = float(center), interleaved

    def reach(self, dtype: torch.dtype = torch.float32) -> float:
        """Return the largest allowed distance from the center, in positions.

        At this distance the fastest plane's scale takes half of the dtype's exponents (2^63 in
        float32 and bfloat16, 2^7 in float16), which leaves the other half to the scaled vectors.

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
        """Rotate q and k to their positions, scale q, and scale k by the reciprocal.

        q: `[B, H, S, D]`; k: `[B, H_kv, S, D]`; position_ids: integers `[S]` or `[B, S]`, which may
        be negative; without them, offset ... offset+S-1, with offset an int or integers `[B]`.
        inverse: undo both. Returns the pair with shapes and dtypes kept; tables and arithmetic are
        float32, or float64 for a float64 tensor.
        Raises as `rotary_embedding` does, and ValueError if offset is negative or a position is
        beyond `reach` of its dtype (an asynchronous assertion under `torch.compile` and on CUDA).

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
        """Return only the queries of `forward`, `[B, H, S, D]`; use it if S differs for the keys.

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
        """Return only the keys of `forward`, `[B, H_kv, S, D]`.

        >>> k = torch.ones(1, 1, 2, 4)
        >>> torch.equal(XPos(4).rotate_keys(k, offset=7), XPos(4)(k, k, offset=7)[1])
        True
        """
        return self._rotate(k, position_ids, offset, inverse, sign=-1)

    def _rotate(
        self, x: Tensor, position_ids: Tensor | None, offset: int | Tensor, inverse: bool, sign: int
    ) -> Tensor:
        """Rotate x and multiply plane j by zeta_j^{sign (m-c)/B}, or undo both."""
        check_heads("x", x, self.dim)
        check_flag("inverse", inverse)
        ids, start = ids_or_start(position_ids, offset, x)
        if ids is None:
            ids = torch.arange(start, start + x.shape[2], device=x.device)
        self._check_reach(ids, x.dtype, nonnegative=isinstance(offset, Tensor))
        inv_freq = inverse_frequencies(self.dim, self.base, device=x.device)
        cos, sin = rotary_tables(ids, inv_freq, dtype=torch.float64)
        power = (ids.to(torch.float64) - self.center).unsqueeze(-1) / self.scale_base
        scale = decay_rates(self.dim, device=x.device) ** ((-sign if inverse else sign) * power)
        # Scale before rounding, so that each table entry is rounded only once.
        cos, sin = ((table * scale).to(table_dtype(x)) for table in (cos, sin))
        if ids.dim() == 2:  # [B, S, R/2] to [B, 1, S, R/2]
            cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)
        return rotary_embedding(x, cos, sin, interleaved=self.interleaved, inverse=inverse)

    def _check_reach(self, ids: Tensor, dtype: torch.dtype, nonnegative: bool) -> None:
        """Raise ValueError if scales overflow the dtype at these positions, `[S]` or `[B, S]`."""
        reach = self.reach(dtype)
        if torch.compiler.is_compiling() or ids.is_cuda:
            # Reading a value would break a traced graph and make the host wait for a GPU.
            inside = ((ids.to(torch.float64) - self.center).abs() <= reach).all()
            torch._assert_async(inside, f"position_ids must lie within {reach:.0f} of the center")
            if nonnegative:  # ids_or_start could not read these offsets either
                torch._assert_async((ids >= 0).all(), "offset must be at least 0")
        elif not ids.is_meta and ids.numel():
            position = max(position_range(ids), key=lambda place: abs(place - self.center))
            if abs(position - self.center) > reach:
                raise ValueError(
                    f"position {position} is {abs(position - self.center):g} from the center, "
                    f"{self.center:g}; {dtype} and scale_base={self.scale_base:g} allow only "
                    f"{math.floor(reach)}: move the center, raise scale_base, or use a wider dtype"
                )

    def extra_repr(self) -> str:
        names = ("dim", "scale_base", "base", "center", "interleaved")
        return ", ".join(f"{name}={getattr(self, name)}" for name in names)
