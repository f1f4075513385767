"""Define what a diagnosis returns: the measured rotations and the findings."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from torch import Tensor

from rope.diagnose.codes import CODES, Text
from rope.extensions import Extension


@dataclass(frozen=True)
class Finding:
    """One fault or note: what was measured, what to do about it, and where the book explains it.

    code: identifies the cause. severity: "fault" or "note". sentence: what was measured. remedy:
    what to do. section: the book's section. source: the code or issues behind a configuration note.
    """

    code: str
    severity: str
    sentence: str
    remedy: str
    section: str
    source: str = ""

    def __str__(self) -> str:
        sentence, remedy = (text[:1].upper() + text[1:] for text in (self.sentence, self.remedy))
        source = f"\n  Source: {self.source}." if self.source else ""
        return (
            f'{self.severity} {self.code}: {sentence}.\n  {remedy}. See "{self.section}".{source}'
        )


def finding(code: str | Text, variant: str = "", /, **facts: object) -> Finding:
    """Return the finding for a code. variant: the sentence to use. facts: the values to fill in."""
    text = CODES[code] if isinstance(code, str) else code
    sentence = text.sentence if isinstance(text.sentence, str) else text.sentence[variant]
    said = sentence.format(**facts)
    return Finding(text.code, text.severity, said, text.remedy, text.section, text.source)


def all_notes(findings: Iterable[Finding]) -> bool:
    """Return True if no finding is a fault."""
    return all(finding.severity == "note" for finding in findings)


@dataclass(frozen=True)
class Rotation:
    """Hold the measured rotation of one tensor. A field is None if it could not be measured.

    layout: how the input's coordinates form planes: "half", "interleaved", or "other".
    rotary_dim: R, counted up to the last plane that visibly rotates.
    inv_freq: the frequencies, float64 `[R/2]`, in radians per position, without signs.
    base, extension: the formula that explains the frequencies, in as few digits as possible.
    attention_scaling: the factor on cos and sin, or None after a norm, which hides the factor.
    direction: +1 if all planes rotate counter-clockwise, -1 if clockwise, 0 if they differ.
    offset: the rotation at position 0, expressed in positions.
    angle_error: the largest error of an angle, in radians. The reference is the expected
    frequencies, or else base and extension, or else inv_freq.
    off_from: the first probed position with an angle error above 0.01 radians.
    """

    layout: str | None = None
    rotary_dim: int | None = None
    inv_freq: Tensor | None = None
    base: float | None = None
    extension: Extension | None = None
    attention_scaling: float | None = None
    direction: int | None = None
    offset: float | None = None
    angle_error: float | None = None
    off_from: int | None = None

    def __str__(self) -> str:
        if self.inv_freq is None:
            return "not measured"
        name = f"frequencies {self.inv_freq.max():.4g} to {self.inv_freq.min():.4g}"
        if self.base is not None:
            name = f"base {self.base:.10g}, {self.extension or 'an unknown extension'}"
        if planes := int((self.inv_freq == 0).sum()):
            name += f" ({planes} of {len(self.inv_freq)} planes don't rotate)"
        far = "" if self.off_from is None else f", above 0.01 from position {self.off_from} on"
        factor = self.attention_scaling
        return (
            f"{self.layout}, rotary_dim {self.rotary_dim}; {name}; "
            f"attention_scaling {'hidden' if factor is None else f'{factor:.6g}'}; "
            f"direction {self.direction:+d}; angle error {self.angle_error:.2g}{far}"
        )


@dataclass(frozen=True)
class Report:
    """Hold the result of a diagnosis: the rotations of `query` and `key`, and the `findings`.

    reach: the farthest position that was probed. dtype: the dtype of the vectors that were passed.
    unexamined: what can still be wrong, because the diagnosis did not look at it.
    """

    query: Rotation = Rotation()
    key: Rotation = Rotation()
    findings: list[Finding] = field(default_factory=list)
    reach: int | None = None
    dtype: str = ""
    unexamined: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Return True if no finding is a fault.

        >>> Report().ok
        True
        """
        return all_notes(self.findings)

    def __str__(self) -> str:
        lines = [
            f"{'no ' * self.ok}fault found (probed in {self.dtype} up to position {self.reach})"
        ]
        lines += [f"not examined: {'; '.join(self.unexamined)}"] * bool(self.unexamined)
        return "\n".join(
            [*lines, f"query: {self.query}", f"key:   {self.key}", *map(str, self.findings)]
        )
