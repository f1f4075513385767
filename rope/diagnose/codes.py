"""Every finding by its code: what it says, how to mend it, and where the book explains it.

A line with the code and the sentence, whose braces take measured numbers; a line with the remedy
and the section. One fault has one code, that of its cause.
"""

from dataclasses import dataclass
from typing import Any

_TABLE = """
positions-ignored | the {name} {how}
    look cos and sin up by position_ids, row by row, in q and k | Rotary attention: padding
wrong-axis | heads of the {name} are turned by their own number, or by the id of that token
    give cos and sin an axis for the heads, [B, 1, S, R] | From maths to PyTorch
tokens-mixed | another {name} at one token changes the {other} elsewhere by up to {off:.2g}
    normalise and rotate along the last axis, each token and tensor alone | Rotary attention
batch-mixed | the {name} of row {row} of three differs by {off:.2g} from that row alone
    keep the batch axis of position_ids in cos and sin | Rotary attention: padding
query-unrotated | {share} of {heads} heads of the query follow the position
    rotate all queries, as the keys are | Rotation in two dimensions
key-unrotated | {share} of {heads} heads of the key follow the position
    rotate all keys, as the queries are | Rotation in two dimensions
directions-differ | query and key are turned in opposite directions
    use one sign of sin for both | Rotation in two dimensions: m − n or n − m?
layouts-differ | the query is {one} and the key {other}
    pair the same coordinates in both | Two layouts: which mixtures are not equivalent?
spectra-differ | plane {plane} turns by {one:.6g} a position in the query, {other:.6g} in the key
    take the frequencies of both from one table | Longer than the training text
query-key-offset | the query is turned by its position {one:+g} and the key by {other:+g}
    count the positions of both from one origin | Rotary attention: the KV cache
pairing | coordinates {a} and {b} of the {name} do not turn as one plane: {off:.2g} is no rotation
    one angle for both, cat((f, f)) for halves, repeat_interleave for neighbours | Two layouts
norm-after | the {name} is no rotation of what it is at position 0: a norm or gain adds {off:.2g}
    normalise first, then rotate, or use one gain a plane | Rotary attention: QK-norm
frequencies | plane {plane} of the {name} turns by {one:.6g} a position, {other}
    use base**(−2j/R) and the extension: see rope.inverse_frequencies | Many dimensions
position-map | from position {begin} on the {name}'s angles are no multiples of the position
    use the position itself, unless a method that groups positions is meant | Many dimensions
low-precision-angles | the {name} {how}
    keep positions, frequencies and products in float32 or better | How exact must it be?
low-precision-tables | cos and sin of the {name} are off by {off:.2g}, near and far alike: rounded
    keep cos and sin, and the products with them, in float32 | How exact must it be?
clamped | from position {begin} on the {name} is turned no further
    make the table longer, or refuse what lies beyond it | How exact must it be?
wraps | position {begin} of the {name} is turned as position {lowest}, and so on
    make the table longer, and the type of the ids wide enough | How exact must it be?
length-dependent | a longer text moves the same positions by {off:.2g} of their size{cached}
    fix the length, or centre, that they follow before caching keys | Longer than the training text
stateful | {when} with the same arguments, it returns another {name}, {off:.2g} apart
    keep nothing of earlier calls; eval() stops dropout | Longer than the training text
layout | the {name} is {one}, not {other}
    rotate in the weights' layout, or convert them by rope.layouts | Two layouts
width | {one} coordinates of the {name} are rotated, not {other}
    rotate as many as the configuration says | Rotary attention: part of a head
attention-scaling | the query is multiplied by {one:.6g}, the key by {other:.6g}, not {right:.6g}
    multiply cos and sin by attention_scaling, once | Longer than the training text
rest-changed | coordinate {a} of the {name}, which has no plane, {how}
    leave what is beyond the rotated width as it is | Rotary attention: part of a head
input-changed | it writes into {name}
    write into a new tensor, or clone first | From maths to PyTorch
dtype-changed | given {one}, it returns {other}
    cast the result to the dtype that was given | How exact must it be?
not-finite | from position {begin} on results are NaN or infinite
    make angles in float32, and initialise what was built on meta | How exact must it be?
not-relative | scores move by {off:.2g} of their size when positions shift by {by}
    compare with rope.RotaryEmbedding at two positions | Rotation in two dimensions
direction | query and key are both turned clockwise
    nothing, if the weights were trained so | Rotation in two dimensions: m − n or n − m?
first-position | position 0 is turned as position {one:g}
    nothing: no score changes | Many dimensions: does it matter where positions start?
temperature | the query is multiplied by a factor that follows its position, {off:+.0%} at {by}
    nothing, if the model sharpens its softmax so | Longer than the training text
decay | queries change by e**{off:+.2g} a position in the fastest plane, and keys by the inverse
    nothing, if xPos is meant | Properties: is the decay real?
reach | {why}
    nothing, if no position lies beyond | From maths to PyTorch
refused | {why}
    nothing, if it is never called so | From maths to PyTorch
"""
_PAIRS = zip(*[iter(_TABLE.strip().splitlines())] * 2, strict=True)
#: The sentence, the remedy and the section of each code.
CODES: dict[str, tuple[str, str, str]] = {}
for _said, _mended in _PAIRS:
    _code, _sentence = _said.split(" | ")
    _remedy, _section = _mended.strip().split(" | ")
    CODES[_code] = _sentence, _remedy, _section
NOTES = frozenset(("direction", "first-position", "temperature", "decay", "reach", "refused"))


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


def finding(code: str, note: bool = False, **measured: Any) -> Finding:
    """The finding of this code with its numbers; a note where the code is one, or if said."""
    sentence, remedy, section = CODES[code]
    severity = "note" if note or code in NOTES else "fault"
    return Finding(code, severity, sentence.format(**measured), remedy, section)
