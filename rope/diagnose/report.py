"""What a diagnosis says: the rotation that was recovered, and the findings on it.

Each finding names one cause. `CODES` lists them all, each with its remedy and the section of the
book that explains it.
"""

from dataclasses import dataclass, field

from torch import Tensor

from rope.extensions import Extension

_LAYOUTS = "Two layouts: which mixtures of layouts are not equivalent?"
_STEP = "How exact must it be? Which step must not be rounded?"
_PLACES = "Rotary attention: does it matter where positions start?"
_EXTENSIONS = "Longer than the training text: what do PI, NTK, YaRN, Llama 3 and LongRoPE change?"
_CACHE = "Longer than the training text: is my KV cache still valid when the length grows?"
_SIGN = "Rotation in two dimensions: m − n or n − m, clockwise or not?"
_RELATIVE = "Rotation in two dimensions: why does rotation make scores relative?"
_NORM = "Rotary attention: QK-norm, before or after the rotation?"
_PADDING = "Rotary attention: padding on the left"
_FREQUENCIES = "Many dimensions: why more than one frequency?"
_CACHED = "Rotary attention: with a KV cache, are the keys stored rotated, and at what offset?"
_FACTOR = "Longer than the training text: what is attention_factor, and who applies it?"
_PART = "Rotary attention: part of a head"
_OWN = "How exact must it be? How do I check my own?"

#: Every code: the remedy, and where the book explains it.
CODES: dict[str, tuple[str, str]] = {
    "positions-ignored": ("look cos and sin up by position_ids, row by row, for both", _CACHED),
    "wrong-axis": ("give cos and sin the axis of the heads: [B, 1, S, R] for [B, H, S, D]", _CACHED),
    "tokens-mixed": ("normalise and rotate along the last axis alone", _RELATIVE),
    "batch-mixed": ("keep the batch axis of position_ids in cos and sin", _PADDING),
    "query-unrotated": ("rotate the queries as the keys are", _RELATIVE),
    "key-unrotated": ("rotate the keys as the queries are", _RELATIVE),
    "directions-differ": ("use one sign of sin for queries and keys", _SIGN),
    "layouts-differ": ("pair the same coordinates in queries and keys", _LAYOUTS),
    "spectra-differ": ("take the frequencies of queries and keys from one table", _EXTENSIONS),
    "query-key-offset": ("count the positions of queries and keys from one origin", _CACHED),
    "pairing": ("give both coordinates of a plane one angle: cat((f, f)) for halves, "
                "repeat_interleave for neighbours, and (c, −s; s, c) for the signs", _LAYOUTS),
    "norm-after": ("normalise first, then rotate, or use one gain for both of a plane", _NORM),
    "frequencies": ("make them base**(−2j/R) for j = 0 ... R/2−1, then the extension's change; "
                    "compare with rope.inverse_frequencies", _FREQUENCIES),
    "position-map": ("use the token's position itself; if a method that groups positions is meant, "
                     "its scores must be compared with its own definition", _RELATIVE),
    "low-precision-angles": ("keep positions, frequencies and their product in float32 or float64, "
                             "out of autocast and of model.to(bfloat16)", _STEP),
    "low-precision-tables": ("keep cos and sin, and the products with them, in float32", _STEP),
    "clamped": ("make the table longer, or refuse positions beyond it", _OWN),
    "wraps": ("make the table longer, and the type of the ids wide enough", _OWN),
    "length-dependent": ("fix the length that the spectrum follows before keys are cached", _CACHE),
    "stateful": ("let the result depend on the arguments alone: keep no spectrum or length of "
                 "an earlier call", _CACHE),
    "layout": ("rotate in the weights' layout, or convert them: rope.layouts", _LAYOUTS),
    "width": ("rotate as many coordinates as the configuration says", _PART),
    "attention-scaling": ("multiply cos and sin by the extension's attention_scaling, once",
                          _FACTOR),
    "rest-changed": ("leave the coordinates beyond the rotated width as they are", _PART),
    "input-changed": ("write into a new tensor, or clone first", _OWN),
    "dtype-changed": ("cast the result back to the dtype of the queries", _STEP),
    "not-finite": ("make angles in float32 or float64, and initialise what was built on meta",
                   _STEP),
    "not-relative": ("compare with rope.RotaryEmbedding on one vector and two positions", _RELATIVE),
    "direction": ("nothing: scores are the same; weights must come from the same direction", _SIGN),
    "first-position": ("nothing: no score changes", _PLACES),
    "decay": ("nothing, if xPos is meant", _RELATIVE),
    "reach": ("nothing, if no position lies beyond", _OWN),
    "refused": ("nothing, if it is never called so", _OWN),
}  # fmt: skip
NOTES = frozenset(("direction", "first-position", "decay", "reach", "refused"))


@dataclass(frozen=True)
class Finding:
    """One cause: its code, "fault" or "note", a sentence, the remedy, the section of the book."""

    code: str
    severity: str
    sentence: str
    remedy: str
    section: str

    def __str__(self) -> str:
        sentence = self.sentence[:1].upper() + self.sentence[1:]
        lines = [f"{self.severity} {self.code}: {sentence}."]
        return "\n  ".join([*lines, f"Remedy: {self.remedy}.", f"See: {self.section}"])


def finding(code: str, sentence: str, note: bool = False) -> Finding:
    """A finding of this code, with its remedy and section; a note where the code is one."""
    severity = "note" if note or code in NOTES else "fault"
    return Finding(code, severity, sentence, *CODES[code])


@dataclass(frozen=True)
class Rotation:
    """What was recovered of one tensor's rotation; None where it could not be.

    layout: "half", "interleaved" or "other", of the coordinates that go in. rotary_dim: R.
    inv_freq: float64 `[R/2]`, radians per position, without sign. base, extension: where the
    spectrum has a name. attention_scaling: None after a norm, which hides it. direction: +1
    counter-clockwise, −1 clockwise. offset: the rotation at position 0, in positions. angle_error:
    the largest, in radians, from the expected spectrum, or else the named or fitted one; off_from:
    the first probed position where it exceeds 0.01. table_error: of the length of (cos, sin).
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
        parts = [f"layout {self.layout}, rotary_dim {self.rotary_dim}"]
        if self.base is not None:
            parts.append(f"base {self.base:.10g}, {self.extension or 'no known extension'}")
        else:
            parts.append(f"frequencies {self.inv_freq.max():.4g} ... {self.inv_freq.min():.4g}")
        if self.attention_scaling is not None:
            parts.append(f"attention_scaling {self.attention_scaling:.6g}")
        parts.append(f"direction {self.direction:+d}" if self.direction else "both directions")
        if self.angle_error is not None:
            far = f", above 0.01 from {self.off_from}" if self.off_from is not None else ""
            parts.append(f"angles within {self.angle_error:.2g}{far}")
        return "; ".join(parts)


@dataclass(frozen=True)
class Report:
    """A diagnosis: `query` and `key` as recovered, `findings`, and `ok`, which is no fault.

    reach: the farthest position that was probed; dtype: of the tensors given.
    """

    query: Rotation
    key: Rotation
    findings: list[Finding] = field(default_factory=list)
    reach: int | None = None
    dtype: str = ""

    @property
    def ok(self) -> bool:
        """Whether no finding is a fault.

        >>> Report(Rotation(), Rotation()).ok
        True
        """
        return all(each.severity != "fault" for each in self.findings)

    def __str__(self) -> str:
        probed = f"probed in {self.dtype} up to position {self.reach}"
        verdict = "no fault found" if self.ok else "not right"
        lines = [f"{verdict} ({probed})", f"query: {self.query}", f"key:   {self.key}"]
        return "\n".join([*lines, *map(str, self.findings)])
