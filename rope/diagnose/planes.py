"""The planes and how far each is turned, from results at several positions.

What comes out at position m is A_m N(x): a norm, gains or a permutation, N, then the rotation. With
the same x at position 0, y_m = A_m A_0^{-1} y_0, and for R_m N(x) that is R_m itself: whatever is
done before cancels. `structure` fits that matrix G_m, whose entries outside the diagonal say which
coordinates make a plane. `turns` then fits in each plane, as a complex number,

    y_m = alpha y_0 + beta conj(y_0),   alpha = e^{i m theta}, beta = 0 for a rotation.

Shapes: D head dimension, n planes, P positions.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from rope.diagnose.probe import Pair, Probe
from rope.layouts import permutation


@dataclass
class Structure:
    """One tensor's planes, in the coordinates that come out, and where they come from.

    planes `[n, 2]`, rest `[D - 2n]`; source `[D]`: which coordinate that goes in comes out at each
    place, None where that is no permutation. lone: coordinates that change without a partner;
    tangled: those whose partner has another; dense: the largest entry of G outside the planes; misfit: of
    all the results by G; noise: what an entry may be by that misfit alone.
    start `[n]`: the angle of A_0 in each plane, None without source; gain `[n]`, rest_gain: of A_0.
    """

    planes: Tensor
    rest: Tensor
    source: Tensor | None
    lone: Tensor
    tangled: Tensor
    dense: float
    misfit: float
    noise: float
    start: Tensor | None = None
    gain: Tensor | None = None
    rest_gain: Tensor | None = None


def structure(probe: Probe, far: int) -> list[Structure]:
    """The planes of q and of k."""
    width = probe.head_dim
    each = -(-2 * width // min(probe.heads))  # twice as many vectors as unknowns
    at = [m for m in (0, 1, 5, 37, 301, 2503, 19997) if m < far] + [far]
    x = probe.vectors(each)
    repeated = x[0].repeat(1, 1, len(at), 1), x[1].repeat(1, 1, len(at), 1)
    results = probe(repeated, [m for m in at for _ in range(each)])
    return [_structure(given, y, len(at), probe.eps) for given, y in zip(x, results, strict=True)]


def _structure(x: Tensor, y: Tensor, positions: int, eps: float) -> Structure:
    width = x.shape[-1]
    given = x.reshape(-1, width)
    blocks = [block.reshape(-1, width) for block in y.chunk(positions, dim=2)]
    start = blocks[0]
    inverse = torch.linalg.pinv(start, rtol=max(1e-8, 4 * eps))
    maps = [(inverse @ block).T for block in blocks[1:]]
    _, values, directions = torch.linalg.svd(start, full_matrices=False)
    unseen = directions[-1]
    if int((values <= max(1e-8, 4 * eps) * values[0]).sum()) == 1 and unseen.abs().min() > 1e-3:
        # A norm that subtracts the mean leaves one direction unseen. Most entries of G are 0, which
        # says what is missing in each row: a multiple of that direction.
        maps = [each - (each / unseen).median(dim=1).values[:, None] * unseen for each in maps]
    sizes = [
        each.norm(dim=1).clamp(min=1) for each in maps
    ]  # above 1 where lengths grow, as xPos's
    misfit = max(
        float(((start @ each.T - block) / size).square().mean(0).sqrt().max())
        for each, block, size in zip(maps, blocks[1:], sizes, strict=True)
    )
    # The arithmetic here is float64, on matrices with a condition of some tens.
    noise = max(1e-11, 8 * max(misfit, eps) * float(inverse.norm(dim=1).max()))
    one = torch.eye(width)
    moved = torch.stack(
        [((g - one) / n[:, None]).abs() for g, n in zip(maps, sizes, strict=True)]
    ).amax(0)
    across = torch.maximum(moved, moved.T).fill_diagonal_(0)
    partner, turns = across.argmax(1), across.amax(1) > noise
    index = torch.arange(width)
    mutual = turns & (partner[partner] == index)
    planes = torch.stack((index, partner), 1)[mutual & (index < partner)]
    outside = moved.clone().fill_diagonal_(0)
    outside[planes[:, 0], planes[:, 1]] = outside[planes[:, 1], planes[:, 0]] = 0
    found = Structure(
        planes=planes,
        rest=index[~mutual],
        source=None,
        lone=index[~turns & (moved.diagonal() > noise)],
        tangled=index[turns & ~mutual],
        dense=float(outside.max()),
        misfit=misfit,
        noise=noise,
    )
    first = (torch.linalg.pinv(given) @ start).T  # A_0 after the norm's gains, [out, in]
    found.source = _source(first, planes)
    if found.source is not None and len(planes):
        inner = first[planes[:, :, None], found.source[planes][:, None, :]]  # [n, 2, 2]
        (p, q), (r, s) = (inner / inner.norm(dim=1, keepdim=True)).permute(1, 2, 0)  # without gains
        turn = torch.complex(p + s, r - q)
        found.start = turn.angle() if (turn.abs() > 1.9).all() else None  # not for gains below 0
        found.gain = inner.det().abs().sqrt()
        found.rest_gain = first[found.rest, found.source[found.rest]]
    return found


def _source(first: Tensor, planes: Tensor) -> Tensor | None:
    """The permutation on the way: read off, or, under a rotation, the one that fits of three."""
    width, largest = len(first), first.abs().max(dim=1)
    alone = (largest.values > 0.9 * first.norm(dim=1)).all()
    if alone and len(largest.indices.unique()) == width:
        return largest.indices
    rotated = slice(int(planes.min()), int(planes.max()) + 1) if len(planes) else slice(0)
    for kind in ("none", "to half", "to interleaved"):
        source = torch.arange(width)
        count = len(source[rotated])
        if kind != "none" and count % 2 == 0 and count:
            order = permutation(count)
            source[rotated] = source[rotated][order if kind == "to half" else order.argsort()]
        inside = first[planes[:, :, None], source[planes][:, None, :]].square().sum()
        if inside > 0.99 * first[planes.flatten()].square().sum():
            return source
    return None


@dataclass
class Turns:
    """alpha and beta `[P, n]` at positions `[P]`, and the misfit of both together."""

    positions: Tensor
    alpha: Tensor
    beta: Tensor
    misfit: float


def places(far: int) -> list[int]:
    """0 ... 8, then the powers of two and their neighbours, and odd places between, up to far."""
    powers = [1 << k for k in range(3, 63) if 1 << k <= far]
    near = [m for power in powers for m in (power - 1, power, power + 1, power + power // 2 + 1)]
    return sorted({m for m in (*range(9), *near, far) if m <= far})


def turns(probe: Probe, found: list[Structure], far: int) -> list[Turns]:
    """How far the planes of q and k are turned at `places(far)`."""
    at = places(far)
    each = max(2, -(-8 // min(probe.heads)))
    x = probe.vectors(each, seed=2, signs=False)
    repeated = x[0].repeat(1, 1, len(at), 1), x[1].repeat(1, 1, len(at), 1)
    results: Pair = probe(repeated, [m for m in at for _ in range(each)])
    fitted = []
    for structure_, y in zip(found, results, strict=True):
        a, b = structure_.planes.T
        z = torch.complex(y[0, :, :, a], y[0, :, :, b])  # [H, P * each, n]
        z = z.unflatten(1, (len(at), each)).permute(3, 0, 2, 1).flatten(1, 2)  # [n, H * each, P]
        start = torch.stack((z[:, :, 0], z[:, :, 0].conj()), -1)
        solved = torch.linalg.pinv(start) @ z  # [n, 2, P]
        size = z.abs().square().mean(dim=1).sqrt().clamp(min=1e-300)
        misfit = (start @ solved - z).abs().square().mean(dim=1).sqrt() / size
        alpha, beta = solved.permute(1, 2, 0)
        worst = float(misfit.max()) if misfit.numel() else 0.0
        fitted.append(Turns(torch.tensor(at), alpha, beta, worst))
    return fitted


def wrapped(angle: Tensor) -> Tensor:
    """The angle in −pi ... pi."""
    return torch.remainder(angle + torch.pi, 2 * torch.pi) - torch.pi
