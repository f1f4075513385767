"""Define the texts of all findings about a function: what is wrong, and what to do about it.

Each fault has one code, named after its cause. Each code has one sentence per symptom. The codes in
`NOTES` are for properties that are intentional in some models. Below, a code comes with a section
of the book, then a sentence, or one per variant, and then the remedy. Lines may continue, indented.
"""

import re
from typing import NamedTuple


class Text(NamedTuple):
    """A sentence with {facts} to fill in (or one per variant), a remedy, and a book section."""

    sentence: str | dict[str, str]
    remedy: str
    section: str


def _texts(block: str) -> dict[str, Text]:
    """Return the texts in a block by code."""
    texts = {}
    for entry in re.split(r"\n(?=\S)", block.strip()):
        head, *lines = re.sub(r"\n {4}", " ", entry).split("\n  ")
        code, _, section = head.removesuffix(")").partition(" (")
        sentences = dict(re.findall(r"^(?:(\w+): )?(.*)$", line)[0] for line in lines[:-1])
        remedy = lines[-1].removeprefix("> ")
        texts[code] = Text(sentences.get("", sentences), remedy, section)
    return texts


FAULTS = _texts("""
positions-ignored (Rotary attention: padding)
  still: the {name} is the same at every position
  lone: the {name} is rotated differently in a call with only one token
  counted: the {name} is rotated by its index in the call, not by its position id
  others: the {name} changes at tokens whose position id did not change
  place: from token {begin} of a call on, the {name} is rotated by its place in the call as well as
    by its position id
  unseen: the query or the key has no plane that rotates visibly
  > look up cos and sin by position_ids, separately for each row, for both q and k
wrong-axis (From maths to PyTorch)
  the heads of the {name} are rotated by the head's index, not by the token's position
  > give cos and sin an axis of length 1 for the heads: [B, 1, S, R]
tokens-mixed (Rotary attention)
  changing one token of the {name} also changes other results for the {other}, by up to {off:.2g}
  > normalize and rotate along the last axis, separately for each token and for q and k
batch-mixed (Rotary attention: padding)
  row {row} of the {name} differs by {off:.2g} between a batch of 3 and a call with only that row
  > keep the batch axis of position_ids in cos and sin
query-unrotated (Rotation in two dimensions)
  only {share} of {heads} query heads follow the position
  > rotate all query heads in the same way as the keys
key-unrotated (Rotation in two dimensions)
  only {share} of {heads} key heads follow the position
  > rotate all key heads in the same way as the queries
directions-differ (Rotation in two dimensions: m − n or n − m?)
  the query and the key are rotated in opposite directions
  > use the same sign of sin for the query and the key
layouts-differ (Two layouts: which mixtures are not equivalent?)
  the layout of the query is {query}, but the layout of the key is {key}
  > pair the same coordinates in the query and the key
spectra-differ (Longer than the training text)
  plane {plane} rotates by {query:.6g} radians per position in the query, but by {key:.6g} in the
    key
  > use the same frequencies for the query and the key
query-key-offset (Rotary attention: the KV cache)
  the query is rotated as if its position were shifted by {query:+g}, but the key as if its position
    were shifted by {key:+g}
  > count the positions of the query and the key from the same origin
pairing (Two layouts)
  apart: coordinates {a} and {b} of the {name} do not rotate as one plane; the error is {off:.2g}
  tables: coordinates {a} and {b} of the {name} get cos and sin of different angles: cos² + sin² is
    {low:.2g} at one position and {high:.2g} at another
  > use one angle per plane: cat((f, f)) for the half layout, repeat_interleave for the interleaved
    layout; in a table, check the column where the sines begin
not-a-rotation (Rotation in two dimensions)
  sizes: coordinates {a} and {b} of the {name} are not rotated: their size changes with the position
    by factors from {low:.2g} to {high:.2g}
  alone: coordinate {a} of the {name} is multiplied by a number that depends on the position, but no
    two coordinates are mixed
  zero: the {name} is 0 at position 0, so both of its tables may hold sines
  mixed: the {name} is not its value at position 0, rotated in pairs of coordinates; the error is
    {off:.2g}
  > compute (a cos − b sin, a sin + b cos) for each pair, with one angle, and then stop
rotated-twice (Rotary attention: the KV cache)
  one: every angle of the {name} is twice that of the {other}: the {name} is rotated twice
  both: every angle is twice as large as it should be, and the factor is {query:.6g}, the square of
    {factor:.6g}: the query and the key are rotated twice
  > rotate once: either in the layer or in the kernel that writes the cache
table-changes (Longer than the training text)
  frequencies: from position {begin} on, the table is another one: plane {plane} rotates by
    {new:.6g} instead of {old:.6g} radians per position, and the factor is {factor:.6g} times as
    large
  factor: from position {begin} on, the table is another one: its factor is {factor:.6g} times as
    large
  > compute all rows of a table from the same frequencies and the same factor
norm-after (Rotary attention: QK-norm)
  the {name} is not a rotation of its value at position 0; a norm or gain after the rotation changes
    it by {off:.2g}
  > normalize before you rotate, or use the same gain for both coordinates of a plane
frequencies (Many dimensions)
  expected: plane {plane} of the {name} rotates by {measured:.6g} radians per position, not by
    {expected:.6g}
  named: plane {plane} of the {name} rotates by {measured:.6g} radians per position, not by
    {expected:.6g}; its frequencies fit base {base:.6g} and {extension}
  twice: plane {plane} of the {name} rotates by {measured:.6g} radians per position, twice
    {expected:.6g}, and so do all others: it is rotated twice, or its positions or frequencies are
    doubled
  unknown: plane 0 of the {name} rotates by {measured:.6g} radians per position, and no base with a
    known extension fits all frequencies
  > use base**(−2j/R) and the model's extension, as rope.inverse_frequencies does
position-map (Many dimensions)
  from position {begin} on, the angles of the {name} are not proportional to the position
  > rotate by the position itself, unless your method groups positions on purpose
low-precision-angles (How exact must it be?)
  positions: from position {begin} on, the {name} is rotated by rounded angles, with errors of up to
    {off:.2g} radians
  frequencies: the frequencies of the {name} are rounded to {dtype}
  vanish: the frequencies of the {name} are rounded to {dtype}, in which {still} of them are 0
  drift: exact angles of the {name} drift: from position {begin} on, they are off by up to {off:.2g}
    radians, because cos and sin reduce large angles inexactly
  narrower: if the {name} is {dtype}, it is off by up to {off:.2g} from position {begin} on:
    positions or frequencies are also rounded to {dtype}
  > keep positions, frequencies and their products in float32 or float64
low-precision-tables (How exact must it be?)
  cos and sin for the {name} are rounded: they are off by {off:.2g} even at small positions
  > keep cos and sin, and their products with q and k, in float32
clamped (How exact must it be?)
  the angles of the {name} stay the same from position {begin} on
  > make the table longer, or raise an error for positions beyond it
wraps (How exact must it be?)
  the {name} at position {begin} is rotated as at position {lowest}, and later positions continue
    from there
  > make the table longer, and store the position ids in a wide enough integer type
length-dependent (Longer than the training text)
  a longer text changes the results at the same positions by {off:.2g} relative to their size
  > fix the length that sets the frequencies, or xPos's center, before you cache keys
stateful (Longer than the training text)
  again: calling the function again with the same arguments changes the {name} by {off:.2g}
  later: after longer calls, the same arguments give a {name} that differs by {off:.2g}
  > keep no state from earlier calls, and turn dropout off with eval()
sections (Images and video: more than one axis)
  along axis {axis}, planes from {first} to {last} rotate: the axes stand in {found}, but the
    model's stand in {expected}
  > assign the planes to the axes as rope.axes.section_frequencies does
layout (Two layouts)
  the layout of the {name} is {measured}, not {expected}
  > rotate in the layout of the weights, or convert the weights with rope.layouts
width (Rotary attention: part of a head)
  {measured} coordinates of the {name} are rotated, not {expected}
  > rotate as many coordinates as the configuration specifies
attention-scaling (Longer than the training text)
  the query is multiplied by {query:.6g} and the key by {key:.6g}, not by {expected:.6g}
  > multiply cos and sin by attention_scaling exactly once
rest-changed (Rotary attention: part of a head)
  position: coordinate {a} of the {name} is in no plane, but depends on the position
  factor: coordinate {a} of the {name} is in no plane, but is multiplied by {factor:.4g}
  > leave the coordinates beyond the rotated width unchanged
cache-shift (Keys that move)
  still: shifting a cached key by {shift:+d} positions leaves it unchanged
  reversed: shifting a cached key by {shift:+d} positions rotates it the wrong way
  sized: shifting a cached key by {shift:+d} positions multiplies it by {factor:.6g}
  moved: a cached key that was shifted by {shift:+d} positions is off by {off:.2g}
  > rotate the key by the shift, with the same frequencies and without attention_scaling
engines-differ (How exact must it be?)
  the two files differ in the {name} from position {begin} on, by up to {off:.2g} relative to its
    size
  > diagnose each file with answers, and make the two agree before you train on the scores
input-changed (From maths to PyTorch)
  the function writes into its inputs ({name})
  > write the result into a new tensor, or clone the input first
dtype-changed (How exact must it be?)
  given {dtype} tensors, the function returns {returned}
  > cast the result to the dtype of the input
not-finite (How exact must it be?)
  results are NaN or infinite from position {begin} on
  > compute the angles in float32, and initialize buffers created on the meta device
not-relative (Rotation in two dimensions)
  scores change by {off:.2g} relative to their size when all positions shift by {by}
  > compare the function with rope.RotaryEmbedding at two positions
""")

NOTES = _texts("""
heads (Images and video: more than one axis)
  some: of {count} heads, only number {heads} follow the position
  own: each head has its own frequencies
  dealt: one ladder of frequencies is dealt over {count} heads: number {heads} rotate
  > nothing to fix if the model was trained this way; otherwise rotate all heads alike
axes (Images and video: more than one axis)
  the position ids number a grid of {sizes} × any patches row by row, and each axis has its planes
  > nothing to fix if the ids number patches row by row
direction (Rotation in two dimensions: m − n or n − m?)
  the query and the key are both rotated clockwise
  > nothing to fix if the model was trained this way
first-position (Rotary attention: does it matter where positions start?)
  position 0 is rotated as if it were position {offset:g}
  > nothing to fix, because no score changes
temperature (Longer than the training text)
  the query is multiplied by a factor that depends on its position: {off:+.0%} at position {by}
  > nothing to fix if the model sharpens its softmax this way
decay (Properties: is the decay real?)
  in one plane, queries are scaled by e**{off:+.2g} per position, and keys by the inverse
  > nothing to fix if the model uses xPos
reach (From maths to PyTorch)
  raised: the function raised an error at position {position} ({error})
  others: position {position} makes results at other positions over 1,000 times as large
  sizes: the size of the results depends on the position; at position {position} they are {sizes}
  > nothing to fix if no position is that large
batch-rejected (From maths to PyTorch)
  the function raised an error for a batch of 3 rows of length {length} ({error})
  > nothing to fix if you never call it with such a batch
""")

CODES = FAULTS | NOTES
