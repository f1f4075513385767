"""The texts of all findings about a function: what is wrong, and what to do about it.

Each fault has one code, named after its cause; a code has one sentence per symptom. Models have the
properties in `NOTES` on purpose.
"""

from typing import NamedTuple


class Text(NamedTuple):
    """A sentence with {facts} to fill in, or one per variant; the remedy; a section of the book."""

    sentence: str | dict[str, str]
    remedy: str
    section: str


FAULTS = {
    "positions-ignored": Text(
        {
            "still": "the {name} is the same at every position",
            "lone": "the {name} is rotated differently in a call with one token",
            "counted": "the {name} is rotated by its index in the call, not by its position id",
            "others": "the {name} changes at tokens whose position id did not change",
            "unseen": "no plane of the query or no plane of the key rotates visibly",
        },
        "look up cos and sin by position_ids, row by row, for q and for k",
        "Rotary attention: padding",
    ),
    "wrong-axis": Text(
        "heads of the {name} are rotated by their own index, not by the position of the token",
        "give cos and sin an axis of length 1 for the heads: [B, 1, S, R]",
        "From maths to PyTorch",
    ),
    "tokens-mixed": Text(
        "changing one token of the {name} changes the {other} elsewhere, by up to {off:.2g}",
        "normalize and rotate along the last axis, separately for each token and for q and k",
        "Rotary attention",
    ),
    "batch-mixed": Text(
        "the {name} in row {row} of a batch of 3 differs by {off:.2g} from that row by itself",
        "keep the batch axis of position_ids in cos and sin",
        "Rotary attention: padding",
    ),
    "query-unrotated": Text(
        "{share} of {heads} query heads follow the position",
        "rotate all query heads, as the keys are rotated",
        "Rotation in two dimensions",
    ),
    "key-unrotated": Text(
        "{share} of {heads} key heads follow the position",
        "rotate all key heads, as the queries are rotated",
        "Rotation in two dimensions",
    ),
    "directions-differ": Text(
        "the query and the key are rotated in opposite directions",
        "use the same sign of sin for both",
        "Rotation in two dimensions: m − n or n − m?",
    ),
    "layouts-differ": Text(
        "the planes of the query are {query}, but those of the key {key}",
        "pair the same coordinates in both",
        "Two layouts: which mixtures are not equivalent?",
    ),
    "spectra-differ": Text(
        "plane {plane} rotates by {query:.6g} per position in the query, but {key:.6g} in the key",
        "take the frequencies of both from one table",
        "Longer than the training text",
    ),
    "query-key-offset": Text(
        "the query is rotated by its position {query:+g}, but the key by its position {key:+g}",
        "count the positions of both from the same origin",
        "Rotary attention: the KV cache",
    ),
    "pairing": Text(
        "coordinates {a} and {b} of the {name} do not rotate as one plane: off by {off:.2g}",
        "use one angle per plane: cat((f, f)) for halves, repeat_interleave for neighbors",
        "Two layouts",
    ),
    "norm-after": Text(
        "the {name} is not a rotation of its value at position 0: a norm or gain adds {off:.2g}",
        "normalize before you rotate, or use the same gain for both coordinates of a plane",
        "Rotary attention: QK-norm",
    ),
    "frequencies": Text(
        {
            "expected": "plane {plane} of the {name} rotates by {measured:.6g} radians per "
            "position, not by {expected:.6g}",
            "named": "plane {plane} of the {name} rotates by {measured:.6g} radians per position, "
            "not by {expected:.6g}; its frequencies fit base {base:.6g} and {extension}",
            "unknown": "plane 0 of the {name} rotates by {measured:.6g} radians per position, and "
            "no base and known extension fit all frequencies",
        },
        "use base**(−2j/R) and the model's extension, as rope.inverse_frequencies does",
        "Many dimensions",
    ),
    "position-map": Text(
        "the angles of the {name} are not multiples of the position, from position {begin} on",
        "rotate by the position itself, unless your method groups positions on purpose",
        "Many dimensions",
    ),
    "low-precision-angles": Text(
        {
            "positions": "the {name} is rotated by rounded angles, from position {begin} on, off "
            "by up to {off:.2g} radians",
            "frequencies": "the frequencies of the {name} are rounded to {dtype}",
            "narrower": "the {name} is off by {off:.2g} from position {begin} on if it is {dtype}: "
            "positions or frequencies are rounded to that dtype, too",
        },
        "keep positions, frequencies and their products in float32 or float64",
        "How exact must it be?",
    ),
    "low-precision-tables": Text(
        "cos and sin of the {name} are off by {off:.2g}, near and far alike: they are rounded",
        "keep cos and sin, and their products with q and k, in float32",
        "How exact must it be?",
    ),
    "clamped": Text(
        "the angles of the {name} stay the same from position {begin} on",
        "make the table longer, or raise an error for positions beyond it",
        "How exact must it be?",
    ),
    "wraps": Text(
        "the {name} at position {begin} is rotated like position {lowest}, and so on",
        "make the table longer, and store the position ids in a wide enough integer type",
        "How exact must it be?",
    ),
    "length-dependent": Text(
        "a longer text changes the results at the same positions by {off:.2g} of their size",
        "fix the length that sets the frequencies, or xPos's center, before you cache keys",
        "Longer than the training text",
    ),
    "stateful": Text(
        {
            "again": "calling it again with the same arguments changes the {name} by {off:.2g}",
            "later": "after longer calls, the same arguments give a different {name}, by {off:.2g}",
        },
        "keep no state from earlier calls, and switch dropout off with eval()",
        "Longer than the training text",
    ),
    "layout": Text(
        "the layout of the {name} is {measured}, not {expected}",
        "rotate in the layout of the weights, or convert the weights with rope.layouts",
        "Two layouts",
    ),
    "width": Text(
        "{measured} coordinates of the {name} are rotated, not {expected}",
        "rotate as many coordinates as the configuration says",
        "Rotary attention: part of a head",
    ),
    "attention-scaling": Text(
        "the query is multiplied by {query:.6g} and the key by {key:.6g}, not by {expected:.6g}",
        "multiply cos and sin by attention_scaling exactly once",
        "Longer than the training text",
    ),
    "rest-changed": Text(
        {
            "position": "coordinate {a} of the {name} is in no plane, but follows the position",
            "factor": "coordinate {a} of the {name} is in no plane, but multiplied by {factor:.4g}",
        },
        "leave the coordinates beyond the rotated width unchanged",
        "Rotary attention: part of a head",
    ),
    "cache-shift": Text(
        {
            "still": "shifting a cached key by {shift:+d} positions leaves it unchanged",
            "reversed": "shifting a cached key by {shift:+d} positions rotates it the wrong way",
            "sized": "shifting a cached key by {shift:+d} positions multiplies it by {factor:.6g}",
            "moved": "a cached key that was shifted by {shift:+d} positions is off by {off:.2g}",
        },
        "rotate it by the shift, with the same frequencies and without attention_scaling",
        "Keys that move",
    ),
    "input-changed": Text(
        "the function writes into {name}",
        "write the result into a new tensor, or clone the input first",
        "From maths to PyTorch",
    ),
    "dtype-changed": Text(
        "given {dtype}, the function returns {returned}",
        "cast the result to the dtype of the input",
        "How exact must it be?",
    ),
    "not-finite": Text(
        "results are NaN or infinite from position {begin} on",
        "compute the angles in float32, and initialize buffers that were created on meta",
        "How exact must it be?",
    ),
    "not-relative": Text(
        "scores change by {off:.2g} of their size when all positions shift by {by}",
        "compare the function with rope.RotaryEmbedding at two positions",
        "Rotation in two dimensions",
    ),
}

NOTES = {
    "direction": Text(
        "the query and the key are both rotated clockwise",
        "nothing to fix if the model was trained this way",
        "Rotation in two dimensions: m − n or n − m?",
    ),
    "first-position": Text(
        "position 0 is rotated as if it were position {offset:g}",
        "nothing to fix, because no score changes",
        "Many dimensions: does it matter where positions start?",
    ),
    "temperature": Text(
        "the query is multiplied by a factor that depends on its position: {off:+.0%} at {by}",
        "nothing to fix if the model sharpens its softmax this way",
        "Longer than the training text",
    ),
    "decay": Text(
        "queries are scaled by e**{off:+.2g} per position in one plane, keys by the inverse",
        "nothing to fix if the model uses xPos",
        "Properties: is the decay real?",
    ),
    "reach": Text(
        {
            "raised": "the function raised at position {position} ({error})",
            "others": "position {position} makes other positions' results 1,000 times as large",
            "sizes": "results change in size with the position, and at {position} are {sizes}",
        },
        "nothing to fix if no position is that large",
        "From maths to PyTorch",
    ),
    "batch-rejected": Text(
        "the function raised for a batch of 3 rows, {length} tokens each ({error})",
        "nothing to fix if you never call it with such a batch",
        "From maths to PyTorch",
    ),
}

CODES = FAULTS | NOTES
