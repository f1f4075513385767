"""Before anything is timed: is the result right?

The truth is z e^{i m theta_j} in complex128 (RoFormer, arXiv 2104.09864, equation 34), formed here
and nowhere else, from the very numbers that the competitor was given. The gradient of a rotation
is the rotation by the negative angle.

With u = eps/2 of a number format, x cos - y sin with a rounded table, rounded products and a
rounded sum is off by at most ((1 + u)^3 - 1)(|x cos| + |y sin|), and by Cauchy and Schwarz the
second factor is at most the pair's length. An angle that is off by a moves the pair by a times its
length. Nothing else is allowed.

Shapes: B batch, H heads, S sequence, D head dimension, R rotated width.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from rope.bench.competitors import Competitor, Ready, Setting

#: Elements compared at once, to keep the float64 copies small.
CHUNK = 2**21


class Verdict(NamedTuple):
    """The largest error as a share of a pair's length, and of what is allowed; a sentence if wrong.

    overwrites: the call changed its inputs, asked to or not.
    """

    error: float
    share: float
    wrong: str | None
    overwrites: bool


def allowed(competitor: Competitor, made: Setting, *, gradient: bool = False) -> Tensor:
    """The error allowed at each position, float64 `[S]`, as a share of a pair's length.

    gradient: of a gradient, which reaches a vector in two parts where a result uses it twice.

    >>> from rope.bench.cases import Case
    >>> from rope.bench.competitors import setting
    >>> made = setting(Case("decode", 1, 1, 1, 1, 2, 2, "bfloat16"), torch.device("cpu"))
    >>> exact = Competitor("a", "torch", lambda made: Ready(lambda q, k: (q, k)))
    >>> f"{float(allowed(exact, made)):.6f}"
    '0.003906'
    """
    unit = torch.finfo(getattr(torch, made.case.dtype)).eps / 2
    unit32 = torch.finfo(torch.float32).eps / 2
    if competitor.narrow or (gradient and competitor.narrow_gradient):
        steps = (1 + unit) ** 3 - 1
    else:
        last = unit if unit > unit32 else 0.0
        # Cosines of the peers and the tables' own rounding are float32; GPUs allow 2 ulp in cos.
        steps = (1 + unit32) ** (7 if competitor.angle_roundings else 3) * (1 + last) - 1
    off = competitor.angle_roundings * unit32 * made.positions.double()
    return steps + off


def exact(x: Tensor, angles: Tensor, interleaved: bool) -> Tensor:
    """x `[B, H, S, R]`, turned by angles `[S, R/2]`: complex128 `[B, H, S, R/2]`.

    >>> quarter = torch.tensor([[torch.pi / 2]])
    >>> exact(torch.tensor([[[[1.0, 0.0]]]]), quarter, False).imag.item()
    1.0
    """
    return planes(x, interleaved) * torch.polar(torch.ones_like(angles), angles)


def planes(x: Tensor, interleaved: bool) -> Tensor:
    """Every plane of x `[B, H, S, R]` as a complex number, complex128 `[B, H, S, R/2]`."""
    wide = x.double()
    if interleaved:
        return torch.complex(wide[..., 0::2], wide[..., 1::2])
    half = x.shape[-1] // 2
    return torch.complex(wide[..., :half], wide[..., half:])


def check(
    competitor: Competitor,
    ready: Ready,
    made: Setting,
    inputs: tuple[Tensor, Tensor],
    grads: tuple[Tensor, Tensor] | None,
) -> Verdict:
    """Compare the competitor's result, and its gradients where grads are given, with the truth.

    inputs, grads: q and k, and the gradients of their results; all stay as they are.
    """
    limits = [allowed(competitor, made, gradient=backward) for backward in (False, True)]
    given = [tensor.detach().clone() for tensor in inputs]
    if grads is not None:
        for tensor in given:
            tensor.requires_grad_()
    with ready.around():
        results = ready.rotate(*given)
        found = [_worst(a, x, made, limits[0], 1) for a, x in zip(results, inputs, strict=True)]
        if grads is not None:
            back = torch.autograd.grad(results, given, [grad.clone() for grad in grads])
            found += [_worst(a, g, made, limits[1], -1) for a, g in zip(back, grads, strict=True)]
    changed = any(
        not torch.equal(after.detach(), before) for after, before in zip(given, inputs, strict=True)
    )
    names = ("q", "k", "the gradient of q", "the gradient of k")
    complaints = [
        f"{name}: {complaint}"
        for name, (_, _, complaint) in zip(names, found, strict=False)
        if complaint is not None
    ]
    if made.case.mode == "into a buffer" and not _filled(results, made):
        complaints.append("the given tensors were not filled")
    if made.case.mode == "in place" and not _same_memory(results, given):
        complaints.append("the result is not in the memory of the input")
    error, share = (max(column) for column in list(zip(*found, strict=True))[:2])
    return Verdict(error, share, "; ".join(complaints) or None, changed)


def _worst(
    actual: Tensor, x: Tensor, made: Setting, limit: Tensor, sign: int
) -> tuple[float, float, str | None]:
    """Largest error of a pair by its length, the same by what is allowed, and what is wrong."""
    actual, case = actual.detach(), made.case
    if actual.shape != x.shape or actual.dtype != x.dtype:
        return (
            0.0,
            0.0,
            f"is {actual.dtype} {list(actual.shape)} for {x.dtype} {list(x.shape)}",
        )
    width = case.rotary_dim
    if not torch.equal(actual[..., width:], x[..., width:]):
        return 0.0, 0.0, "coordinates that are not rotated were changed"
    # What lies below the smallest normal number has no relative precision.
    info = torch.finfo(x.dtype)
    floor = 2 * info.smallest_normal * info.eps
    rows = max(1, CHUNK // (x.numel() // x.shape[2]))
    error = share = 0.0
    for start in range(0, case.seq, rows):
        part = slice(start, start + rows)
        truth = exact(x[:, :, part, :width], sign * made.angles[part], case.interleaved)
        off = planes(actual[:, :, part, :width], case.interleaved) - truth
        length = truth.abs()
        worst = torch.maximum(off.real.abs(), off.imag.abs())
        margin = length * limit[part, None] + floor
        # Not a number is an error beyond every bound.
        share = max(share, float((worst / margin).nan_to_num(nan=torch.inf).max()))
        error = max(error, float((worst / (length + floor)).nan_to_num(nan=torch.inf).max()))
    if share <= 1:
        return error, share, None
    return error, share, f"off by {error:.2g} of a pair's length, {share:.2g} times what is allowed"


def _filled(results: tuple[Tensor, Tensor], made: Setting) -> bool:
    return made.buffers is not None and _same_memory(results, list(made.buffers))


def _same_memory(results: tuple[Tensor, Tensor], given: list[Tensor]) -> bool:
    return all(a.data_ptr() == b.data_ptr() for a, b in zip(results, given, strict=True))
