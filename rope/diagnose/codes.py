"""Define what a diagnosis returns, and read the texts of all findings from `findings.txt`.

Each code has a severity, a section of the book, a sentence, a remedy, and perhaps a source. A
variant of a code may have its own sentence and remedy. A note may describe intended behavior.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from importlib.resources import files
from typing import NamedTuple

from torch import Tensor

from rope.extensions import Extension


class Text(NamedTuple):
    """Hold a code's texts. Sentences (with {facts} to fill in) and remedies depend on a variant."""

    code: str
    severity: str
    sentences: dict[str, str]
    remedies: dict[str, str]
    section: str
    source: str


def _texts(block: str) -> dict[str, Text]:
    """Parse a block of entries, and return their texts keyed by code."""
    texts = {}
    for entry in re.split(r"\n(?=\S)", block.strip()):
        head, *lines = re.sub(r"\n {4}", " ", entry).split("\n  ")
        severity, code, section = re.findall(r"^(\w+) (\S+) \((.*)\)$", head)[0]
        source = lines.pop().removeprefix("Source: ") if lines[-1].startswith("Source: ") else ""
        parts: dict[str, dict[str, str]] = {"": {}, "> ": {}}
        for mark, variant, text in re.findall(r"^(> )?(?:(\w+): )?(.*)$", "\n".join(lines), re.M):
            parts[mark][variant] = text
        texts[code] = Text(code, severity, parts[""], parts["> "], section, source)
    return texts


_FILE = files("rope.diagnose").joinpath("findings.txt").read_text(encoding="utf-8")
_, _functions, _configurations, _others, USAGE = re.split("^# .*\n", _FILE, flags=re.MULTILINE)
CODES = _texts(_functions)
CONFIGURATION = _texts(_configurations)
UNEXAMINED = dict(line.split(": ", 1) for line in _others.strip().splitlines())


@dataclass(frozen=True)
class Finding:
    """Hold a fault or note: what was measured, what to do about it, and where the book explains it.

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
        sentence, remedy = (  # a key such as rope_type keeps its case
            re.sub(r"^[a-z](?!\w*_)", lambda first: first[0].upper(), text)
            for text in (self.sentence, self.remedy)
        )
        source = f"\n  Source: {self.source}." if self.source else ""
        return (
            f'{self.severity} {self.code}: {sentence}.\n  {remedy}. See "{self.section}".{source}'
        )


def finding(code: str | Text, variant: str = "", /, **facts: object) -> Finding:
    """Return the finding for a code. variant: which sentence to use. facts: values to fill in."""
    text = CODES[code] if isinstance(code, str) else code
    said, remedy = text.sentences[variant], text.remedies.get(variant) or text.remedies[""]
    said = said.format(**facts)
    return Finding(text.code, text.severity, said, remedy, text.section, text.source)


def listed(noun: str, numbers: Tensor) -> str:
    """Return a noun with numbers, such as "head 1" or "planes 0 to 3, 7"."""
    n = sorted(numbers.flatten().tolist())
    runs = zip((m for m in n if m - 1 not in n), (m for m in n if m + 1 not in n), strict=True)
    said = ", ".join(f"{a} to {b}" if a < b else f"{a}" for a, b in runs)
    return f"{noun}{'s' * (len(n) > 1)} {said}"


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
    angle_error: the largest error of an angle at the probed positions, in radians, compared with
    the expected frequencies, or else with base and extension or, without these, with inv_freq.
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
        verdict = f"{'no ' * self.ok}fault found"
        lines = [f"{verdict} (probed in {self.dtype} up to position {self.reach})"]
        lines += [f"not examined: {'; '.join(self.unexamined)}"] * bool(self.unexamined)
        lines += [f"query: {self.query}", f"key:   {self.key}"]
        return "\n".join([*lines, *map(str, self.findings)])
