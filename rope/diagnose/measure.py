"""One tensor's rotation put together: layout, frequencies, sizes, and what rounding leaves over.

Shapes: n planes, P positions, R rotated width.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from rope.diagnose import spectrum
from rope.diagnose.planes import Structure, Turns, wrapped
from rope.diagnose.report import Finding, Rotation, finding
from rope.extensions import Default, Extension, Linear, Proportional
from rope.frequencies import inverse_frequencies

#: Angles in float32 are off by a few 2^-24 of their size; in TF32 or less by 2^-12 and more.
ANGLES = 2.0**-20
PLAIN = (Default, Linear)
FARTHEST = 1 << 17  # of the positions by which a key may be off


@dataclass
class Measured:
    """theta `[n]`, with sign; last: the power of two up to which angles double.

    off `[P, n]`: angles less m theta, of which rounding may explain allowed. follows: whether sizes
    follow the position; radial: the largest error of the radius besides; noise: of an angle.
    slots `[n]`: which of the R/2 planes each is. direction, offset: as in `Rotation`.
    """

    structure: Structure
    turns: Turns
    theta: Tensor
    last: int
    off: Tensor
    allowed: Tensor
    follows: bool
    radial: float
    noise: float
    layout: str
    width: int
    slots: Tensor
    direction: int
    offset: float | None

    @property
    def spectrum(self) -> tuple[Tensor, Tensor]:
        """|theta| of all R/2 planes, 0 for those that stand still, and to within how much."""
        theta = torch.zeros(self.width // 2, dtype=torch.float64)
        unseen = 2 * self.structure.noise / float(self.turns.positions[-1])
        slack = torch.full_like(theta, max(unseen, 4 * self.noise / self.last))
        theta[self.slots], slack[self.slots] = self.theta.abs(), 4 * self.noise / self.last
        return theta, slack

    @cached_property
    def known(self) -> tuple[float, Extension | None] | None:
        """The base and extension that explain the spectrum."""
        return spectrum.name(*self.spectrum)

    @property
    def paired(self) -> str:
        return f"{self.layout} over {self.width} coordinates"

    @property
    def scaling(self) -> float | None:
        """The factor that all planes share at position 0; None where they have gains."""
        gain, slack = self.structure.gain, max(1e-6, self.structure.noise)
        if gain is None or (gain - gain.median()).abs().max() > max(1e-3, slack) * gain.median():
            return None
        middle = float(gain.median())
        return 1.0 if abs(middle - 1) < slack else middle

    def widened(self, expected_theta: Tensor | None, far: int) -> "Measured":
        """With the planes that stand still, or are too slow to be seen, where they are expected so.

        Without expected frequencies: where those seen then begin what is known by name.
        """
        if self.layout != "interleaved" and self.width != 2:
            return self
        width = 2 * len(self.structure.planes) + len(self.structure.rest)
        if expected_theta is not None:
            width = 2 * len(expected_theta)
        wide = replace(self, layout="interleaved", width=width)
        if width <= self.width:
            return self
        if expected_theta is not None:
            seen = 2 * max(self.noise, self.structure.noise)
            return wide if float(expected_theta[self.width // 2 :].max()) * far < seen else self
        if int(self.structure.planes.min()) or wide.known is None or wide.known[0] >= 1e9:
            return self
        narrow, extension = self.known[1] if self.known else None, wide.known[1]
        changed = not isinstance(narrow, PLAIN) and not isinstance(extension, Proportional | None)
        return wide if isinstance(extension, PLAIN) or changed else self


def measure(structure: Structure, turns: Turns, eps: float) -> Measured:
    """Frequencies, errors and layout of one tensor with at least one plane."""
    m, sizes = turns.positions.double()[:, None], turns.radius.log().flatten(1)
    # What a decay or a temperature multiplies by is smooth, or all planes share it, but rounded
    # tables are rough: their errors differ from a position to the next, and from plane to plane.
    apart = sizes - sizes.median(dim=1, keepdim=True).values * (sizes.shape[1] > 1)
    inner = (m[2:] - m[:-2] == 2)[:, 0]
    rough = float((apart[2:] - 2 * apart[1:-1] + apart[:-2])[inner].abs().median(0).values.max())
    radial = float(sizes.expm1().abs().max())
    if follows := radial > max(4 * rough, 4 * eps, 2.0**-18):
        radial = rough
    # A rounded table is as wrong along the circle as across it.
    noise = max(4 * eps, 2 * radial if radial < 0.1 else 0.0, 1e-12)
    theta, last = spectrum.frequencies(turns.positions, turns.alpha.angle())
    theta = torch.where(theta.abs() > 4 * noise / last, theta, 0)
    off = wrapped(turns.alpha.angle() - m * theta)
    allowed = ANGLES * m * theta.abs() + 4 * noise * (1 + m / last)
    planes, towards = structure.planes, theta.sign()
    if structure.source is not None:
        planes = structure.source[planes]
        towards = towards * planes.diff(dim=1)[:, 0].sign()
    layout, width, slots = _layout(planes.sort(dim=1).values)
    signs = set(towards[theta != 0].tolist())
    direction = int(signs.pop()) if len(signs) == 1 else 0
    return Measured(
        structure, turns, theta, last, off, allowed, follows, radial, noise, layout, width, slots,
        direction, _offset(structure, theta, eps),
    )  # fmt: skip


def factors(q: Measured, k: Measured) -> Iterator[Finding]:
    """What follows the position besides the angles: scores stay relative under e^gm and e^-gn."""
    common = (q.structure.planes[:, None] == k.structure.planes).all(-1)  # [n_q, n_k]
    if not (common.any() and (q.follows or k.follows)):
        return
    ln_q, ln_k = q.turns.radius.log()[..., common.any(1)], k.turns.radius.log()[..., common.any(0)]
    ln_k = ln_k.repeat_interleave(max(1, ln_q.shape[1] // ln_k.shape[1]), dim=1)
    total = (ln_q[:, : ln_k.shape[1]] + ln_k[:, : ln_q.shape[1]]).flatten(1)  # ln |q_m| |k_m|
    m, slack = q.turns.positions.double(), max(1e-3, 4 * q.radial, 4 * k.radial)

    def bent(logs: Tensor) -> Tensor:
        return (logs - logs[-1:] * (m / m[-1])[:, None]).abs()

    shared = total.median(1, keepdim=True).values
    if total.abs().max() > slack:
        by = total.abs().amax(1).argmax()
        alone = bent(ln_k.flatten(1)).max() <= slack and (total - shared).abs().max() <= slack
        tempered = alone and bent(shared).max() > slack
        off = (shared[by] if tempered else total[by].abs().max()).expm1()
        code = "temperature" if tempered else "not-relative"
        yield finding(code, off=float(off), by=int(m[by]))


def _layout(planes: Tensor) -> tuple[str, int, Tensor]:
    """The layout, the rotated width, and the number of each plane `[n, 2]`."""
    a, b = planes.T
    gap, place = int(b[0] - a[0]), a - a.min()
    if (b - a == gap).all() and int(place.max()) < gap and (gap > 1 or len(planes) == 1):
        return "half", 2 * gap, place
    if (b - a == 1).all() and (place % 2 == 0).all():
        return "interleaved", int(place.max()) + 2, place // 2
    return "other", 2 * len(planes), torch.arange(len(planes))


def _offset(structure: Structure, theta: Tensor, eps: float) -> float | None:
    """The position by which A_0 is turned: the smallest that fits all planes, halves near 0 too.

    Farther than 64, where a key that was rotated twice may be, only if A_0 is known exactly.
    """
    if structure.start is None:
        return None
    exact = structure.start_error < max(1e-5, 8 * eps)
    tolerance = max(1e-3, eps) if exact else 0.05
    near = torch.arange(-128, 129, dtype=torch.float64) / 2
    far = torch.arange(-FARTHEST, FARTHEST + 1, dtype=torch.float64)
    fastest = theta.abs().topk(min(4, len(theta))).indices
    # Slow planes fit any position, and two others some position by chance, unless exactly.
    turning = int((theta.abs() > 0.05).sum())
    for tried, needed in ((near, 0 if exact else 2), *([(far, 2)] if exact else [])):
        for planes in (fastest, slice(None)):  # few planes first: they leave few positions
            error = wrapped(structure.start[planes] - tried[:, None] * theta[planes]).abs()
            tried = tried[error.amax(1) < tolerance]
        if len(tried) and (0 in tried or turning > needed):
            return float(tried[tried.abs().argmin()])
    return None


def rotation(measured: Measured, expected_theta: Tensor | None, linear: bool) -> Rotation:
    """What the report says, with errors against the expected frequencies, or else the named."""
    theta, _ = measured.spectrum
    base, extension = measured.known or (None, None)
    reference = theta
    if expected_theta is not None and len(expected_theta) == len(theta):
        reference = expected_theta
    elif base is not None and extension is not None:
        reference = inverse_frequencies(2 * len(theta), base, extension=extension)
    turns, signed = measured.turns, reference[measured.slots] * measured.theta.sign()
    off = wrapped(turns.alpha.angle() - turns.positions.double()[:, None] * signed)
    far = turns.positions[off.abs().amax(1) > 0.01]
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
        table_error=measured.radial,
    )
