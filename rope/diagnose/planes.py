"""The planes and how far each is turned, from results at several positions.

What comes out at position m is A_m N(x): a norm, gains or a permutation, N, then the rotation. For
the same x at position 0, y_m = A_m A_0^{-1} y_0 = R_m y_0: whatever is done before cancels.
`fit_structures` finds that matrix G_m, whose entries beside the diagonal say which coordinates make
a plane. `fit_turns` then fits in each plane, written as a complex number,

    y_m = alpha y_0 + beta conj(y_0),   alpha = e^{i m theta} and beta = 0 for a rotation.

Shapes: D head dimension, n planes, P positions.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from rope.diagnose.probe import Pair, Probe
from rope.layouts import permutation


@dataclass
class Structure:
    """One tensor's planes `[n, 2]` and the rest `[D - 2n]`, in the coordinates that come out.

    source `[D]`: which coordinate that goes in comes out at each place, None if that is no
    permutation. lone: coordinates that change without a partner; tangled: whose partner has
    another. dense: the largest entry of G outside the planes; misfit: of results by G; noise: what
    an entry may be by that alone. Of A_0: start `[n]`, the angles, and gain `[n]` of the planes,
    rest_gain, None without source; start_error: of results by A_0, which a LayerNorm has.
    """

    planes: Tensor
    rest: Tensor
    lone: Tensor
    tangled: Tensor
    dense: float
    misfit: float
    noise: float
    source: Tensor | None = None
    start: Tensor | None = None
    start_error: float = 0.0
    gain: Tensor | None = None
    rest_gain: Tensor | None = None


def fit_structures(probe: Probe, far: int) -> list[Structure]:
    """The planes of q and of k."""
    count = 2 * probe.head_dim + 16  # of every head, and more than twice the unknowns
    positions = [m for m in (0, 1, 5, 37, 301, 2503, 19997) if m < far] + [far]
    x = probe.vectors(count)
    y = _at_each(probe, x, positions)
    later = torch.tensor(positions[1:])
    return [_structure(x[i][0], y[i], later, probe.eps) for i in (0, 1)]


def _at_each(probe: Probe, x: Pair, positions: list[int]) -> Pair:
    """Results `[H, P, V, D]` for all V vectors of q, and of k, at each position."""
    q, k = (vectors.repeat(1, 1, len(positions), 1) for vectors in x)
    count = x[0].shape[2]
    y, z = probe.long((q, k), [m for m in positions for _ in range(count)])
    return y[0].unflatten(1, (-1, count)), z[0].unflatten(1, (-1, count))


def _structure(x: Tensor, results: Tensor, m: Tensor, eps: float) -> Structure:
    """From vectors `[H, V, D]` and what comes out `[H, P, V, D]` for them at 0 and at m.

    Each head has a G of its own, and each row of it is compared by its own size: a decay may
    multiply planes, heads and positions by factors of their own, and they stay rotations.
    """
    start, later = results[:, :1], results[:, 1:]
    width = x.shape[-1]
    index, least = torch.arange(width), max(1e-6, eps)
    scale = start.square().mean((0, 1, 2)).sqrt().clamp(min=1e-300)
    left, values, right = torch.linalg.svd(start / scale, full_matrices=False)
    kept = values > least * values[..., :1]
    inverse = (right.mT * torch.where(kept, 1 / values, 0)[..., None, :]) @ left.mT
    maps = (inverse @ later).mT  # [H, P, D, D], of coordinates divided by scale
    if (kept.sum(-1) == width - 1).all():
        # A norm that subtracts the mean leaves one direction unseen. Most entries of G are 0, which
        # says what is missing in each row: a multiple of that direction.
        unseen = right[..., -1:, :]
        large = unseen.abs() > 0.3 * unseen.abs().amax(-1, keepdim=True)
        missing = torch.where(large, maps / unseen, torch.nan).nanmedian(dim=-1, keepdim=True)
        maps = maps - missing.values * unseen
    sizes = maps.abs().amax(-1).clamp(min=1e-300)  # [H, P, D]
    errors = (start / scale @ maps.mT - later) / sizes[..., None, :]
    misfit = float(errors.square().mean(-2).max()) ** 0.5
    # Matrices with a condition of some tens, in float64, leave some 1e-13.
    noise = max(1e-11, 8 * max(misfit, eps) * float(inverse.norm(dim=-1).max()))
    own, maps = maps / scale, maps / sizes[..., None]
    apart = float((maps - maps[:1]).abs().max())
    misfit = max(misfit, apart) if apart > 2 * noise else misfit  # heads that turn otherwise
    moved = (maps - torch.eye(width)).abs().amax((0, 1))
    outside = moved.clone().fill_diagonal_(0)
    across = torch.maximum(outside, outside.T)
    partner, turns = across.argmax(1), across.amax(1) > noise
    mutual = turns & (partner[partner] == index)
    planes = torch.stack((index, partner), 1)[mutual & (index < partner)]
    outside[planes, planes.flip(1)] = 0
    strange = (maps.diagonal(dim1=-2, dim2=-1) <= 0.5).any(0).any(0)
    other = own[..., index, torch.where(mutual, partner, index)] * mutual
    factors = torch.hypot(own.diagonal(dim1=-2, dim2=-1), other).clamp(min=1e-300).log()
    slack = max(4 * noise, 0.01)
    shared = factors[..., planes.flatten() if len(planes) else index].median(-1, True).values
    bent = [logs - logs[:, -1:] * (m / m[-1])[:, None] for logs in (factors, factors - shared)]
    odd = torch.minimum(*(logs.abs().amax((0, 1)) for logs in bent)) > slack
    lone = index[~turns & (strange | odd)]  # by no power of a decay, and not as the planes are
    rest, tangled = index[~mutual], index[turns & ~mutual]
    result = Structure(planes, rest, lone, tangled, float(outside.max()), misfit, noise)
    x, start = x.flatten(0, 1), start.flatten(0, 2)
    x = torch.cat((x, torch.ones(len(x), 1)), 1)  # a norm may add a constant, too
    solved = torch.linalg.pinv(x) @ start
    first = solved[:-1].T  # A_0 after the norm's gains, [out, in]
    result.source = source = _source(first, planes)
    if source is not None and len(planes):
        inner = first[planes[:, :, None], source[planes][:, None, :]]  # [n, 2, 2]
        (p, q), (r, s) = (inner / inner.norm(dim=1, keepdim=True)).permute(1, 2, 0)  # without gains
        turn = torch.complex(p + s, r - q)
        result.start = turn.angle() if (turn.abs() > 1.9).all() else None  # not for gains below 0
        result.start_error = float((x @ solved - start).abs().max())
        result.gain, result.rest_gain = inner.det().abs().sqrt(), first[rest, source[rest]]
    return result


def _source(first: Tensor, planes: Tensor) -> Tensor | None:
    """The permutation on the way: none, or to another layout, while A_0 may turn; else read off."""
    low, high = (int(planes.min()), int(planes.max()) + 1) if len(planes) else (0, 0)
    orders = [torch.arange(high - low)]
    if high > low and (high - low) % 2 == 0:
        orders += [permutation(high - low), permutation(high - low).argsort()]
    for order in orders:
        source = torch.arange(len(first))
        source[low:high] = low + order
        outside = first[:, source].fill_diagonal_(0)
        outside[planes, planes.flip(1)] = 0
        if outside.square().sum() < 0.15 * first.square().sum():  # 1 / (D - 1) by a mean removed
            return source
    source = first.abs().argmax(dim=1)
    alone = (first.abs().amax(dim=1) > 0.9 * first.norm(dim=1)).all()
    return source if alone and len(source.unique()) == len(first) else None


@dataclass
class Turns:
    """alpha and beta `[P, n]` at positions `[P]`, and the misfit of both together.

    Of several heads the first one's sizes and the mean direction; radius `[P, H, n]`: |alpha|.
    """

    positions: Tensor
    alpha: Tensor
    beta: Tensor
    radius: Tensor
    misfit: float


def fit_turns(probe: Probe, structures: list[Structure], far: int) -> list[Turns]:
    """How far the planes of q and k are turned: at 0 ... 8, near powers of two, and at far."""
    powers = [1 << k for k in range(3, 63) if 1 << k <= far]
    near = [m for power in powers for m in (power - 1, power, power + 1, power + power // 2 + 1)]
    positions = sorted({m for m in (*range(9), *near, far) if m <= far})
    results = _at_each(probe, probe.vectors(8, seed=2, signs=False), positions)
    fitted = []
    for structure, y in zip(structures, results, strict=True):
        a, b = structure.planes.T
        z = torch.complex(y[..., a], y[..., b]).permute(0, 3, 2, 1)  # [H, n, 8, P]
        start = torch.stack((z[..., 0], z[..., 0].conj()), -1)
        solved = torch.linalg.pinv(start) @ z  # [H, n, 2, P]
        size = z.abs().amax(2, keepdim=True).clamp(min=1e-300)
        misfit = ((start @ solved - z).abs() / size).square().mean(2).sqrt()
        worst = float(misfit.max()) if misfit.numel() else 0.0
        radius = solved[:, :, 0].abs().clamp(min=1e-300)
        alpha, beta = (solved * (radius[:1] / radius)[:, :, None]).mean(0).permute(1, 2, 0)
        fitted.append(Turns(torch.tensor(positions), alpha, beta, radius.permute(2, 0, 1), worst))
    return fitted


def wrapped(angle: Tensor) -> Tensor:
    """The angle in −pi ... pi."""
    return torch.remainder(angle + torch.pi, 2 * torch.pi) - torch.pi
