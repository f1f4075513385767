"""What a diagnosis returns: the rotations that were recovered, and the findings."""

from dataclasses import dataclass, field

from torch import Tensor

from rope.diagnose.codes import CODES, DANGERS, Kind
from rope.extensions import Extension


@dataclass(frozen=True)
class Finding:
    """One cause: its code, "fault" or "note", a sentence, the remedy, the section of the book.

    source: whose code it is about, with its version or its thread; empty for the code at hand.
    """

    code: str
    severity: str
    sentence: str
    remedy: str
    section: str
    source: str = ""

    def __str__(self) -> str:
        sentence = self.sentence[:1].upper() + self.sentence[1:]
        source = f"\n  source: {self.source}" if self.source else ""
        return (
            f"{self.severity} {self.code}: {sentence}.\n  {self.remedy} ({self.section}).{source}"
        )


def finding(code: str, variant: str = "", /, **facts: object) -> Finding:
    """What a function shows, by its code and facts; variant: which sentence, of several."""
    return _filled(CODES[code], code, variant, facts)


def danger(code: str, variant: str = "", /, **facts: object) -> Finding:
    """What a configuration shows, likewise."""
    return _filled(DANGERS[code], code, variant, facts)


def _filled(kind: Kind, code: str, variant: str, facts: dict[str, object]) -> Finding:
    sentence = kind.sentence if isinstance(kind.sentence, str) else kind.sentence[variant]
    texts = (sentence, kind.remedy, kind.section, kind.source)
    return Finding(code, kind.severity, *(text.format(**facts) for text in texts))


def faults(findings: list[Finding]) -> list[Finding]:
    """Those that are no notes."""
    return [finding for finding in findings if finding.severity == "fault"]


def verdict(findings: list[Finding]) -> str:
    """The first line of a report."""
    return "not right" if faults(findings) else "no fault found"


@dataclass(frozen=True)
class Rotation:
    """What was recovered of one tensor's rotation; None where it could not be.

    layout: "half", "interleaved" or "other", of the coordinates that go in; rotary_dim: R, as far
    as planes are seen to turn. inv_freq: float64 `[R/2]`, radians per position, without sign;
    base, extension: where they explain all angles, in as few digits as do. attention_scaling: None
    after a norm, which hides it. direction: +1 counter-clockwise, −1 clockwise, 0 both. offset:
    the turn at position 0, in positions. angle_error: the largest, in radians, against the
    spectrum expected, or else named, or fitted; off_from: the first position probed where it
    exceeds 0.01. table_error: of the radius of (cos, sin).
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
    table_error: float | None = None

    def __str__(self) -> str:
        if self.inv_freq is None:
            return "not recovered"
        name = f"frequencies {self.inv_freq.max():.4g} to {self.inv_freq.min():.4g}"
        if self.base is not None:
            name = f"base {self.base:.10g}, {self.extension or 'an extension without a name'}"
        far = "" if self.off_from is None else f", more than 0.01 from {self.off_from}"
        factor = self.attention_scaling
        return (
            f"{self.layout}, rotary_dim {self.rotary_dim}; {name}; "
            f"attention_scaling {'hidden' if factor is None else f'{factor:.6g}'}; "
            f"direction {self.direction:+d}; angles within {self.angle_error:.2g}{far}"
        )


@dataclass(frozen=True)
class Report:
    """A diagnosis: `query` and `key` as recovered, and `findings`.

    reach: the farthest position probed; dtype: of the tensors given.
    """

    query: Rotation = Rotation()
    key: Rotation = Rotation()
    findings: list[Finding] = field(default_factory=list)
    reach: int | None = None
    dtype: str = ""

    @property
    def ok(self) -> bool:
        """Whether no finding is a fault.

        >>> Report().ok
        True
        """
        return not faults(self.findings)

    def __str__(self) -> str:
        lines = [f"{verdict(self.findings)} (probed in {self.dtype} up to position {self.reach})"]
        return "\n".join(
            [*lines, f"query: {self.query}", f"key:   {self.key}", *map(str, self.findings)]
        )
