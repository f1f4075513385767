"""Fit the planes and their angles to results at several positions.

At position m, the result for x is A_m N(x). N is what precedes the rotation (a norm, gains, or a
permutation), and A_m is the rotation. Relative to position 0, N cancels: y_m = A_m A_0^{-1} y_0.
`_structure` finds the matrix G_m = A_m A_0^{-1}. Its entries off the diagonal show which
coordinates form a plane. `_fit_angles` writes each plane's pair as a complex number, and fits
y_m = alpha y_0 + beta conj(y_0). For a rotation, alpha = e^{i m theta} and beta = 0.

Shapes: D head dimension, H heads, P positions, V vectors, n planes.
"""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from rope.diagnose.influence import NAMES, Pair, Probe
from rope.layouts import permutation


@dataclass
class Structure:
    """Hold the planes of one tensor, as pairs of output coordinates `[n, 2]`, and what G shows.

    rest `[D - 2n]`: coordinates in no plane. lone: coordinates that change without a partner.
    tangled: coordinates whose partner has another partner. dense: the largest entry of G outside
    the planes. misfit: the error of the results that G predicts. noise: the largest entry of G that
    this error can cause. apart: how much G differs between heads. flat: True if all results lie in
    one hyperplane, as after a norm that subtracts the mean. source `[D]`: the input coordinate of
    each output coordinate, or None unless N is a permutation with gains.
    Without a source, the next fields keep their defaults. start `[H, n]`: the angles of A_0.
    gain `[n]`, rest_gain: N's gains in and outside the planes. uneven: the largest relative gap
    between gains in a plane. start_tolerance: start's error, < 0.05 if A_0 predicts all results.
    `fit` adds alpha and beta `[P, n]`, at positions `[P]`. They are means over heads, scaled to the
    first head's radius. bent: the error of alpha and beta. radius `[P, H, n]`: |alpha| per head.
    """

    name: str
    planes: Tensor
    rest: Tensor
    lone: Tensor
    tangled: Tensor
    dense: float
    misfit: float
    noise: float
    apart: float
    flat: bool
    source: Tensor | None = None
    start: Tensor | None = None
    start_tolerance: float = 0.05
    gain: Tensor | None = None
    rest_gain: Tensor | None = None
    uneven: float = 0.0
    positions: Tensor = field(init=False)
    alpha: Tensor = field(init=False)
    beta: Tensor = field(init=False)
    radius: Tensor = field(init=False)
    bent: float = field(init=False)


def fit(probe: Probe) -> list[Structure]:
    """Return the structures of q and k, with their angles."""
    count = 2 * probe.head_dim + 16  # more than twice the number of unknowns per head
    positions = [m for m in (0, 1, 5, 37, 301, 2503, 19997) if m < probe.far] + [probe.far]
    x = probe.vectors(count)
    y = _at_each(probe, x, positions)
    later = torch.tensor(positions[1:])
    structures = [_structure(NAMES[i], x[i][0], y[i], later, probe.eps) for i in (0, 1)]
    _fit_angles(probe, structures)
    return structures


def _at_each(probe: Probe, x: Pair, positions: list[int]) -> Pair:
    """Return the results for all vectors of q and of k at each position, both `[H, P, V, D]`."""
    q, k = (vectors.repeat(1, 1, len(positions), 1) for vectors in x)
    count = x[0].shape[2]
    y, z = probe((q, k), [m for m in positions for _ in range(count)])
    return y[0].unflatten(1, (-1, count)), z[0].unflatten(1, (-1, count))


def _maps(start: Tensor, later: Tensor, eps: float) -> tuple[Tensor, Tensor, float, float, float]:
    """Fit G_m to results `[H, 1, V, D]` at position 0 and `[H, P, V, D]` at the positions m.

    Returns five values: G `[H, P, D, D]` with each row divided by its largest entry, G in units of
    the results, the misfit, the noise, and how much heads differ beyond the noise. G is fitted per
    head and scaled per row, because a decay may scale each head, plane, and position differently.
    """
    width, least = start.shape[-1], max(1e-6, eps)
    scale = start.square().mean((0, 1, 2)).sqrt().clamp(min=1e-300)
    left, values, right = torch.linalg.svd(start / scale, full_matrices=False)
    kept = values > least * values[..., :1]
    inverse = (right.mT * torch.where(kept, 1 / values, 0)[..., None, :]) @ left.mT
    maps = (inverse @ later).mT  # G for results divided by scale
    if (kept.sum(-1) == width - 1).all():
        # A norm that subtracts the mean hides one direction. Most entries of G are 0, and they
        # show how much of that direction is missing from each row.
        unseen = right[..., -1:, :]
        large = unseen.abs() > 0.3 * unseen.abs().amax(-1, keepdim=True)
        missing = torch.where(large, maps / unseen, torch.nan).nanmedian(dim=-1, keepdim=True)
        maps = maps - missing.values * unseen
    sizes = maps.abs().amax(-1).clamp(min=1e-300)  # [H, P, D]
    errors = (start / scale @ maps.mT - later) / sizes[..., None, :]
    misfit = float(errors.square().mean(-2).max()) ** 0.5
    # Matrices with a condition number of several tens leave errors of about 1e-13 in float64.
    noise = max(1e-11, 8 * max(misfit, eps) * float(inverse.norm(dim=-1).max()))
    own, maps = maps / scale, maps / sizes[..., None]
    apart = float((maps - maps[:1]).abs().max())  # between heads
    return maps, own, misfit, noise, apart * (apart > 2 * noise)


def _structure(name: str, x: Tensor, results: Tensor, m: Tensor, eps: float) -> Structure:
    """Find planes from vectors `[H, V, D]` and their results `[H, P, V, D]`, at 0 and at each m."""
    start, index = results[:, :1], torch.arange(x.shape[-1])
    maps, own, misfit, noise, apart = _maps(start, results[:, 1:], eps)
    moved = (maps - torch.eye(len(index))).abs().amax((0, 1))
    outside = moved.clone().fill_diagonal_(0)
    across = torch.maximum(outside, outside.T)
    partner, rotates = across.argmax(1), across.amax(1) > noise
    mutual = rotates & (partner[partner] == index)
    planes = torch.stack((index, partner), 1)[mutual & (index < partner)]
    outside[planes, planes.flip(1)] = 0
    strange = (maps.diagonal(dim1=-2, dim2=-1) <= 0.5).any(0).any(0)
    other = own[..., index, torch.where(mutual, partner, index)] * mutual
    factors = torch.hypot(own.diagonal(dim1=-2, dim2=-1), other).clamp(min=1e-300).log()
    slack = max(4 * noise, 0.01)
    shared = factors[..., planes.flatten() if len(planes) else index].median(-1, True).values
    bent = [logs - logs[:, -1:] * (m / m[-1])[:, None] for logs in (factors, factors - shared)]
    odd = torch.minimum(*(logs.abs().amax((0, 1)) for logs in bent)) > slack
    # No decay and no plane explains these changes, and the coordinates are not always 0.
    lone = index[~rotates & (strange | odd) & results.flatten(0, 2).any(0)]
    rest, tangled = index[~mutual], index[rotates & ~mutual]
    values = torch.linalg.svdvals((results - results.mean(2, keepdim=True)).flatten(1, 2))
    flat = bool((values[:, -1] < max(1e-6, eps) * values[:, 0]).all())
    result = Structure(
        name, planes, rest, lone, tangled, float(outside.max()), misfit, noise, apart, flat
    )
    x = torch.cat((x, torch.ones_like(x[..., :1])), -1)  # a norm may also add a constant
    solved = torch.linalg.pinv(x) @ start[:, 0]
    first = solved[:, :-1].mT  # A_0 times N's gains, [H, out, in]
    result.source = source = _source(first.mean(0), planes)
    if source is not None and len(planes):
        inner = first[:, planes[:, :, None], source[planes][:, None, :]]  # [H, n, 2, 2]
        gains = inner.norm(dim=2, keepdim=True)
        (p, q), (r, s) = (inner / gains).permute(2, 3, 0, 1)
        turn = torch.complex(p + s, r - q)
        result.start = turn.angle() if (turn.abs() > 1.9).all() else None  # no negative gains
        if (x @ solved - start[:, 0]).abs().max() < max(1e-5, 8 * eps):
            result.start_tolerance = max(1e-3, eps)
        result.gain = inner.det().abs().sqrt().mean(0)
        result.rest_gain = first.mean(0)[rest, source[rest]]
        result.uneven = float((gains[..., 0] / gains[..., 1] - 1).abs().max())
    return result


def _source(first: Tensor, planes: Tensor) -> Tensor | None:
    """Return the permutation that precedes the rotation, or None if it is not recognized.

    If A_0 rotates, only the identity and changes of layout can be recognized.
    """
    low, high = (int(planes.min()), int(planes.max()) + 1) if len(planes) else (0, 0)
    orders = [torch.arange(high - low)]
    if high > low and (high - low) % 2 == 0:
        orders += [permutation(high - low), permutation(high - low).argsort()]
    for order in orders:
        source = torch.arange(len(first))
        source[low:high] = low + order
        outside = first[:, source].fill_diagonal_(0)
        outside[planes, planes.flip(1)] = 0
        if outside.square().sum() < 0.15 * first.square().sum():  # removing a mean adds 1 / (D - 1)
            return source
    source = first.abs().argmax(dim=1)
    clear = (first.abs().amax(dim=1) > 0.9 * first.norm(dim=1)).all()
    return source if clear and len(source.unique()) == len(first) else None


def _fit_angles(probe: Probe, structures: list[Structure]) -> None:
    """Fit alpha and beta for q and k, at positions 0 to 8, near powers of two, and at `far`."""
    powers = [1 << k for k in range(3, 63) if 1 << k <= probe.far]
    near = [m for power in powers for m in (power - 1, power, power + 1, power + power // 2 + 1)]
    positions = sorted({m for m in (*range(9), *near, probe.far) if m <= probe.far})
    results = _at_each(probe, probe.vectors(8, seed=2, signs=False), positions)
    for structure, y in zip(structures, results, strict=True):
        a, b = structure.planes.T
        z = torch.complex(y[..., a], y[..., b]).permute(0, 3, 2, 1)  # [H, n, 8, P]
        start = torch.stack((z[..., 0], z[..., 0].conj()), -1)
        solved = torch.linalg.pinv(start) @ z  # [H, n, 2, P]
        size = z.abs().amax(2, keepdim=True).clamp(min=1e-300)
        misfit = ((start @ solved - z).abs() / size).square().mean(2).sqrt()
        structure.bent = float(misfit.max()) if misfit.numel() else 0.0
        radius = solved[:, :, 0].abs().clamp(min=1e-300)
        scaled = (solved * (radius[:1] / radius)[:, :, None]).mean(0)
        structure.alpha, structure.beta = scaled.permute(1, 2, 0)
        structure.positions, structure.radius = torch.tensor(positions), radius.permute(2, 0, 1)


def wrapped(angle: Tensor) -> Tensor:
    """Return the angle in [-pi, pi) that differs from `angle` by a multiple of 2 pi."""
    return torch.remainder(angle + torch.pi, 2 * torch.pi) - torch.pi
