"""Before anything is timed: is the result right?

The truth is z e^{i m theta_j} in complex128 (RoFormer, arXiv 2104.09864, equation 34), formed here
and nowhere else, from the very numbers that the competitor was given. The gradient of a rotation
is the rotation by the negative angle.

With u = eps/2 of a number format, x cos - y sin with a rounded table, rounded products and a
rounded sum is off by at most ((1 + u)^3 - 1)(|x cos| + |y sin|), and by Cauchy and Schwarz the
second factor is at most the pair's length. An angle that is off by a moves the pair by a times its
length. Nothing else is allowed.

Shapes: B batch, H heads, S sequence, D head dimension.
"""

from __future__ import annotations

import torch
from torch import Tensor

from rope.book.measured.bench.field import Competitor, Pair, Rotate, Setting

#: Elements compared at once, to keep the float64 copies small.
CHUNK = 2**21


def check(
    competitor: Competitor, rotate: Rotate, made: Setting, inputs: Pair, grads: Pair | None
) -> str:
    """What is wrong with the competitor's result, and its gradients where grads are given, or "".

    inputs, grads: q and k, and the gradients of their results; all stay as they are.
    """
    given = [x.detach().clone().requires_grad_(grads is not None) for x in inputs]
    results = rotate(given[0], given[1])
    compared = [("q", results[0], inputs[0], 1), ("k", results[1], inputs[1], 1)]
    if grads is not None:
        back = torch.autograd.grad(results, given, [grad.clone() for grad in grads])
        compared += [(f"the gradient of {'qk'[i]}", back[i], grads[i], -1) for i in (0, 1)]
    found = [
        f"{name}: {complaint}"
        for name, actual, x, sign in compared
        if (complaint := _complaint(competitor, made, actual.detach(), x, sign))
    ]
    if made.case.mode == "in place" and any(
        a.data_ptr() != b.data_ptr() for a, b in zip(results, given, strict=True)
    ):
        found.append("the result is not in the memory of the input")
    return "; ".join(found)


def _complaint(competitor: Competitor, made: Setting, actual: Tensor, x: Tensor, sign: int) -> str:
    if actual.shape != x.shape or actual.dtype != x.dtype:
        return f"is {actual.dtype} {list(actual.shape)} for {x.dtype} {list(x.shape)}"
    limit, interleaved = allowed(competitor, made, gradient=sign < 0), made.case.interleaved
    # What lies below the smallest normal number has no relative precision.
    info = torch.finfo(x.dtype)
    floor = 2 * info.smallest_normal * info.eps
    rows = max(1, CHUNK // (x.numel() // x.shape[2]))
    share = 0.0
    for start in range(0, x.shape[2], rows):
        part = slice(start, start + rows)
        truth = exact(x[:, :, part], sign * made.angles[part], interleaved)
        off = planes(actual[:, :, part], interleaved) - truth
        worst = torch.maximum(off.real.abs(), off.imag.abs())
        shares = worst / (truth.abs() * limit[part, None] + floor)
        # Not a number is an error beyond every bound.
        share = max(share, float(shares.nan_to_num(nan=torch.inf).max()))
    return f"off by {share:.3g} times what is allowed" if share > 1 else ""


def allowed(competitor: Competitor, made: Setting, *, gradient: bool = False) -> Tensor:
    """The error allowed at each position, float64 `[S]`, as a share of a pair's length.

    gradient: of a gradient, which reaches a vector in two parts where a result uses it twice.
    """
    unit = torch.finfo(getattr(torch, made.case.dtype)).eps / 2
    unit32 = torch.finfo(torch.float32).eps / 2
    angles = competitor.narrow == "angles"
    if competitor.narrow == "steps" or (gradient and angles):
        steps = (1 + unit) ** 3 - 1
    else:
        last = unit if unit > unit32 else 0.0
        # Cosines of the peers and the tables' own rounding are float32; GPUs allow 2 ulp in cos.
        steps = (1 + unit32) ** (7 if angles else 3) * (1 + last) - 1
    # The largest angle of a position is that of plane 0.
    return steps + angles * unit32 * made.angles[:, 0]


def exact(x: Tensor, angles: Tensor, interleaved: bool) -> Tensor:
    """x `[B, H, S, D]`, rotated by angles `[S, D/2]`: complex128 `[B, H, S, D/2]`."""
    return planes(x, interleaved) * torch.polar(torch.ones_like(angles), angles)


def planes(x: Tensor, interleaved: bool) -> Tensor:
    """Every plane of x `[B, H, S, D]` as a complex number, complex128 `[B, H, S, D/2]`."""
    wide = x.double()
    if interleaved:
        return torch.complex(wide[..., 0::2], wide[..., 1::2])
    return torch.complex(*wide.chunk(2, dim=-1))
