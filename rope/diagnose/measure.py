"""One tensor's rotation put together: planes, frequencies, errors, and how they were found.

Shapes: n planes, P positions, R rotated width, D head dimension.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from rope.diagnose import spectrum
from rope.diagnose.planes import Structure, Turns, wrapped
from rope.diagnose.report import Rotation
from rope.extensions import Extension
from rope.frequencies import inverse_frequencies

#: Angles in float32 from frequencies in float32 are off by a few 2^-24 of their size; in TF32,
#: bfloat16 or float16 by 2^-12 and more.
ANGLES = 2.0**-20
#: Frequencies from powers in float32 differ from exact ones by up to 1e-6 of their size.
FREQUENCIES = 2.0**-15


@dataclass
class Measured:
    """What is known of q or k.

    theta `[n]` with sign; last: the power of two up to which angles double; off `[P, n]`: angles
    less m theta; allowed: what of that may be rounding. growth `[n]`: of the length, per position,
    as xPos has it; radial: the largest error of the length beside it; noise: of one angle.
    """

    structure: Structure
    turns: Turns
    theta: Tensor
    last: int
    off: Tensor
    allowed: Tensor
    growth: Tensor
    radial: float
    noise: float
    layout: str
    width: int
    slots: Tensor  # which of the R/2 planes each one is
    direction: int
    offset: float | None
    eps: float

    def widen(self, made: Tensor, far: int) -> None:
        """Count planes that stand still, or are too slow to be seen, where they are expected so."""
        more = made[self.width // 2 :]
        if self.layout == "interleaved" and len(more) and float(more.max()) * far < self.noise:
            self.width = 2 * len(made)

    @property
    def wrong(self) -> Tensor:
        """Positions at which some angle is not that of the position: bool `[P]`."""
        return (self.off.abs() > self.allowed).any(1)

    @property
    def spectrum(self) -> tuple[Tensor, Tensor]:
        """|theta| of all R/2 planes, 0 for those that stand still, and to within how much."""
        theta = torch.zeros(self.width // 2, dtype=torch.float64)
        least = 4 * self.noise / self.last
        theta[self.slots] = self.theta.abs() * (self.theta.abs() > least)
        return theta, FREQUENCIES * theta + least


def measured(structure: Structure, turns: Turns, eps: float) -> Measured:
    """Frequencies, errors and layout of one tensor with at least one plane."""
    m = turns.positions.double()
    length = turns.alpha.abs().clamp(min=1e-300).log()
    # xPos's factors are exponentials of the position; rounded tables are off alike at all.
    growth = length[-1] / m[-1]
    growth = torch.where(length[-1].abs() > 0.1, growth, 0)
    radial = (length - growth * m[:, None])[m <= 4096].expm1().abs().amax().item()
    # A rounded table is as wrong along the circle as across it.
    noise = max(4 * eps, 2 * radial if radial < 0.1 else 0.0, 1e-12)
    theta, last = spectrum.frequencies(turns.positions, turns.alpha.angle())
    off = wrapped(turns.alpha.angle() - m[:, None] * theta)
    allowed = ANGLES * m[:, None] * theta.abs() + 4 * noise + 4 * noise / last * m[:, None]
    layout, width, slots = _layout(structure)
    towards = theta.sign()
    if structure.source is not None:
        towards = towards * structure.source[structure.planes].diff(dim=1)[:, 0].sign()
    total = int(towards.sum())
    direction = total // abs(total) if abs(total) == int((theta != 0).sum()) and total else 0
    return Measured(
        structure, turns, theta, last, off, allowed, growth, radial, noise, layout, width, slots,
        direction, _offset(structure.start, theta), eps,
    )  # fmt: skip


def _layout(structure: Structure) -> tuple[str, int, Tensor]:
    """The layout of the coordinates that go in, the rotated width, and each plane's number."""
    planes = structure.planes
    if structure.source is not None:
        planes = structure.source[planes].sort(dim=1).values
    a, b = planes.T
    gap, start = int(b[0] - a[0]), int(a.min())
    if (b - a == gap).all() and int(a.max()) - start < gap and (gap > 1 or len(planes) == 1):
        return "half", 2 * gap, a - start
    if (b - a == 1).all() and ((a - start) % 2 == 0).all():
        slots = (a - start) // 2
        return "interleaved", 2 * (int(slots.max()) + 1), slots
    return "other", 2 * len(planes), torch.arange(len(planes))


def _offset(start: Tensor | None, theta: Tensor) -> float | None:
    """The position by which A_0 is turned: among whole and half ones, the one that fits."""
    if start is None:
        return None
    tried = torch.arange(-2048, 2049, dtype=torch.float64) / 2
    tried = tried[tried.abs().argsort()]
    error = wrapped(start - tried[:, None] * theta).abs().amax(1)
    best = int(error.argmin())
    return float(tried[best]) if error[best] < 0.05 else None


def rotation(found: Measured, expected: Tensor | None, linear: bool) -> Rotation:
    """What the report says; errors of angles are from the frequencies expected, or else named."""
    theta, slack = found.spectrum
    named = spectrum.name(theta, slack)
    base, extension = named or (None, None)
    reference = theta
    if expected is not None and len(expected) == len(theta):
        reference = expected
    elif named and isinstance(extension, Extension):
        reference = inverse_frequencies(2 * len(theta), base, extension=extension)
    m = found.turns.positions.double()[:, None]
    signed = reference[found.slots] * found.theta.sign()
    error = wrapped(found.turns.alpha.angle() - m * signed).abs().amax(1)
    far = (error > 0.01).nonzero()
    return Rotation(
        layout=found.layout,
        rotary_dim=found.width,
        inv_freq=theta,
        base=base,
        extension=extension,
        attention_scaling=scaling(found.structure) if linear else None,
        direction=found.direction,
        offset=found.offset,
        angle_error=float(error.max()),
        off_from=int(found.turns.positions[far[0, 0]]) if len(far) else None,
        table_error=found.radial,
    )


def scaling(structure: Structure) -> float | None:
    """The factor that all planes share at position 0, None where they have gains of their own."""
    if structure.gain is None:
        return None
    middle = float(structure.gain.median())
    if (structure.gain - middle).abs().max() > max(1e-3, structure.noise) * middle:
        return None
    return 1.0 if abs(middle - 1) < max(1e-6, structure.noise) else middle
