"""Measure one tensor's rotation: its layout, frequencies, sizes, and rounding errors.

Shapes: n planes, P positions, R rotated width.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from rope.diagnose import spectrum
from rope.diagnose.planes import Angles, Structure, wrapped
from rope.diagnose.report import Finding, Rotation, finding
from rope.extensions import Extension
from rope.frequencies import inverse_frequencies


@dataclass
class Measurement:
    """Hold what was measured for one tensor.

    theta `[n]`: the signed frequencies. last: the last power of two at which the angles fit theta.
    follows: True if sizes depend on the position. radial: the error of a radius apart from such a
    dependence. rough: how much sizes differ from each position to the next. noise: the possible
    error of an angle. slots `[n]`: the index of each plane among the R/2 planes. direction, offset:
    as in `Rotation`. expected_theta: the expected frequencies. row_length: as in `spectrum`.
    """

    structure: Structure
    angles: Angles
    theta: Tensor
    last: int
    follows: bool
    radial: float
    rough: float
    noise: float
    layout: str
    width: int
    slots: Tensor
    direction: int
    offset: float | None
    expected_theta: Tensor | None
    row_length: int | None

    @property
    def spectrum(self) -> tuple[Tensor, Tensor]:
        """Return |theta| for all R/2 planes (0 for planes that don't rotate) and error bounds."""
        theta = torch.zeros(self.width // 2, dtype=torch.float64)
        unseen = 2 * self.structure.noise / float(self.angles.positions[-1])
        slack = torch.full_like(theta, max(unseen, 4 * self.noise / self.last))
        theta[self.slots], slack[self.slots] = self.theta.abs(), 4 * self.noise / self.last
        return theta, slack

    @cached_property
    def known(self) -> tuple[float, Extension | None] | None:
        """Return the base and the extension that explain the spectrum, or None if none do."""
        return spectrum.name(*self.spectrum)

    @property
    def scaling(self) -> float | None:
        """Return the factor that all planes share at position 0, or None if the factors differ."""
        gain, slack = self.structure.gain, max(1e-6, self.structure.noise)
        if gain is None or (gain - gain.median()).abs().max() > max(1e-3, slack) * gain.median():
            return None
        middle = float(gain.median())
        return 1.0 if abs(middle - 1) < slack else middle

    def widened(self) -> "Measurement":
        """Return the measurement, extended by expected planes that rotate too slowly to be seen."""
        expected, pairs = self.expected_theta, self.layout == "interleaved" or self.width == 2
        if expected is None or not pairs or 2 * len(expected) <= self.width:
            return self
        seen = 2 * max(self.noise, self.structure.noise) / float(self.angles.positions[-1])
        if float(expected[self.width // 2 :].max()) >= seen:
            return self
        return replace(self, layout="interleaved", width=2 * len(expected))


def measure(
    structure: Structure, angles: Angles, eps: float, expected_theta: Tensor | None
) -> Measurement:
    """Measure the frequencies, the errors, and the layout of a tensor with at least one plane."""
    m, logs = angles.positions.double()[:, None], angles.radius.log().flatten(1)
    # The factor of a decay or a temperature is smooth, or all planes share it. Rounded tables are
    # rough: their errors differ from each position to the next, and from plane to plane.
    apart = logs - logs.median(dim=1, keepdim=True).values * (logs.shape[1] > 1)
    inner = (m[2:] - m[:-2] == 2)[:, 0]
    rough = float((apart[2:] - 2 * apart[1:-1] + apart[:-2])[inner].abs().median(0).values.max())
    radial = float(logs.expm1().abs().max())
    if follows := radial > max(4 * rough, 4 * eps, 2.0**-18):
        radial = rough
    # A rounded table has errors of the same size along the circle as across it.
    noise = max(4 * eps, 2 * radial if radial < 0.1 else 0.0, 1e-12)
    theta, last = spectrum.frequencies(angles.positions, angles.alpha.angle())
    row = spectrum.row_length(angles.positions, angles.alpha.angle(), theta, last, noise)
    theta = torch.where(theta.abs() > 4 * noise / last, theta, 0)
    planes, signs = structure.planes, theta.sign()
    if structure.source is not None:
        planes = structure.source[planes]
        signs = signs * planes.diff(dim=1)[:, 0].sign()
    layout, width, slots = _layout(planes.sort(dim=1).values)
    directions = set(signs[theta != 0].tolist())
    direction = int(directions.pop()) if len(directions) == 1 else 0
    return Measurement(
        structure, angles, theta, last, follows, radial, rough, noise, layout, width, slots,
        direction, _offset(structure, theta, eps), expected_theta, row,
    ).widened()  # fmt: skip


def factors(q: Measurement, k: Measurement) -> Iterator[Finding]:
    """Yield a finding if q and k have position-dependent factors other than e^(gm) and e^(-gn)."""
    common = (q.structure.planes[:, None] == k.structure.planes).all(-1)  # [n_q, n_k]
    if not (common.any() and (q.follows or k.follows)):
        return
    ln_q = q.angles.radius.log()[..., common.any(1)]
    ln_k = k.angles.radius.log()[..., common.any(0)]
    ln_k = ln_k.repeat_interleave(max(1, ln_q.shape[1] // ln_k.shape[1]), dim=1)
    total = (ln_q[:, : ln_k.shape[1]] + ln_k[:, : ln_q.shape[1]]).flatten(1)  # ln |q_m| |k_m|
    m, slack = q.angles.positions.double(), max(1e-3, 4 * q.radial, 4 * k.radial)

    def bent(logs: Tensor) -> Tensor:
        return (logs - logs[-1:] * (m / m[-1])[:, None]).abs()

    shared = total.median(1, keepdim=True).values
    if total.abs().max() > slack:
        by = total.abs().amax(1).argmax()
        in_query = bent(ln_k.flatten(1)).max() <= slack and (total - shared).abs().max() <= slack
        tempered = in_query and bent(shared).max() > slack
        off = (shared[by] if tempered else total[by].abs().max()).expm1()
        code = "temperature" if tempered else "not-relative"
        yield finding(code, off=float(off), by=int(m[by]))


def _layout(planes: Tensor) -> tuple[str, int, Tensor]:
    """Return the layout, the rotated width, and the index of each plane. planes: `[n, 2]`."""
    a, b = planes.T
    gap, place = int(b[0] - a[0]), a - a.min()
    if (b - a == gap).all() and int(place.max()) < gap and (gap > 1 or len(planes) == 1):
        # Without a full set of planes, the first one in sight may be a later one of all R/2.
        return "half", 2 * gap, a if int(a.max()) < gap else place
    if (b - a == 1).all() and (place % 2 == 0).all():
        return "interleaved", int(place.max()) + 2, place // 2
    return "other", 2 * len(planes), torch.arange(len(planes))


def _offset(structure: Structure, theta: Tensor, eps: float) -> float | None:
    """Return the offset nearest to 0 whose angles equal A_0's angles in all planes, or None.

    Offsets may be half-integers, the centers of pixels.
    """
    if structure.start is None:
        return None
    exact = structure.start_error < max(1e-5, 8 * eps)
    tolerance = max(1e-3, eps) if exact else 0.05
    offsets = torch.arange(-(1 << 18), (1 << 18) + 1, dtype=torch.float64) / 2
    fastest = theta.abs().topk(min(4, len(theta))).indices
    for planes in (fastest, slice(None)):  # a few planes first, to leave few offsets
        error = wrapped(structure.start[planes] - offsets[:, None] * theta[planes]).abs()
        offsets = offsets[error.amax(1) < tolerance]
    nearest = min(offsets.tolist(), key=abs, default=0.0)
    # Slow planes fit any position, and two fast ones fit some position by chance.
    needed = 0 if exact and abs(nearest) <= 64 else 2
    enough = nearest == 0 or int((theta.abs() > 0.05).sum()) > needed
    return nearest if len(offsets) and enough else None


def rotation(measured: Measurement, linear: bool) -> Rotation:
    """Return the rotation to report. linear: True if attention_scaling can be measured."""
    theta, _ = measured.spectrum
    base, extension = measured.known or (None, None)
    reference, expected = theta, measured.expected_theta
    if expected is not None and len(expected) == len(theta):
        reference = expected
    elif base is not None and extension is not None:
        reference = inverse_frequencies(2 * len(theta), base, extension=extension)
    angles, signed = measured.angles, reference[measured.slots] * measured.theta.sign()
    off = wrapped(angles.alpha.angle() - angles.positions[:, None] * signed)
    far = angles.positions[off.abs().amax(1) > 0.01]
    return Rotation(
        layout=measured.layout,
        rotary_dim=measured.width,
        inv_freq=theta,
        base=base,
        extension=extension,
        attention_scaling=measured.scaling if linear else None,
        direction=measured.direction,
        offset=measured.offset,
        angle_error=float(off.abs().max()),
        off_from=int(far[0]) if len(far) else None,
    )
