"""Define the texts of all findings about a function: what is wrong, and what to do about it.

Each fault has one code, named after its cause. Each code has one sentence per symptom. The codes in
`NOTES` are for properties that are intentional in some models.
"""

from typing import NamedTuple


class Text(NamedTuple):
    """A sentence with {facts} to fill in (or one per variant), a remedy, and a book section."""

    sentence: str | dict[str, str]
    remedy: str
    section: str


FAULTS = {
    "positions-ignored": Text(
        {
            "still": "the {name} is the same at every position",
            "lone": "the {name} is rotated differently in a call with only one token",
            "counted": "the {name} is rotated by its index in the call, not by its position id",
            "others": "the {name} changes at tokens whose position id did not change",
            "unseen": "the query or the key has no plane that rotates visibly",
        },
        "look up cos and sin by position_ids, separately for each row, for both q and k",
        "Rotary attention: padding",
    ),
    "wrong-axis": Text(
        "the heads of the {name} are rotated by the head's index, not by the token's position",
        "give cos and sin an axis of length 1 for the heads: [B, 1, S, R]",
        "From maths to PyTorch",
    ),
    "tokens-mixed": Text(
        "changing one token of the {name} also changes other results for the {other}, by up to "
        "{off:.2g}",
        "normalize and rotate along the last axis, separately for each token and for q and k",
        "Rotary attention",
    ),
    "batch-mixed": Text(
        "row {row} of the {name} differs by {off:.2g} between a batch of 3 and a call with only "
        "that row",
        "keep the batch axis of position_ids in cos and sin",
        "Rotary attention: padding",
    ),
    "query-unrotated": Text(
        "only {share} of {heads} query heads follow the position",
        "rotate all query heads in the same way as the keys",
        "Rotation in two dimensions",
    ),
    "key-unrotated": Text(
        "only {share} of {heads} key heads follow the position",
        "rotate all key heads in the same way as the queries",
        "Rotation in two dimensions",
    ),
    "directions-differ": Text(
        "the query and the key are rotated in opposite directions",
        "use the same sign of sin for the query and the key",
        "Rotation in two dimensions: m − n or n − m?",
    ),
    "layouts-differ": Text(
        "the layout of the query is {query}, but the layout of the key is {key}",
        "pair the same coordinates in the query and the key",
        "Two layouts: which mixtures are not equivalent?",
    ),
    "spectra-differ": Text(
        "plane {plane} rotates by {query:.6g} radians per position in the query, but by {key:.6g} "
        "in the key",
        "use the same frequencies for the query and the key",
        "Longer than the training text",
    ),
    "query-key-offset": Text(
        "the query is rotated as if its position were shifted by {query:+g}, but the key as if its "
        "position were shifted by {key:+g}",
        "count the positions of the query and the key from the same origin",
        "Rotary attention: the KV cache",
    ),
    "pairing": Text(
        "coordinates {a} and {b} of the {name} do not rotate as one plane; the error is {off:.2g}",
        "use one angle per plane: cat((f, f)) for the half layout, repeat_interleave for the "
        "interleaved layout",
        "Two layouts",
    ),
    "norm-after": Text(
        "the {name} is not a rotation of its value at position 0; a norm or gain after the "
        "rotation changes it by {off:.2g}",
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
            "no base with a known extension fits all frequencies",
        },
        "use base**(−2j/R) and the model's extension, as rope.inverse_frequencies does",
        "Many dimensions",
    ),
    "position-map": Text(
        "from position {begin} on, the angles of the {name} are not proportional to the position",
        "rotate by the position itself, unless your method groups positions on purpose",
        "Many dimensions",
    ),
    "low-precision-angles": Text(
        {
            "positions": "from position {begin} on, the {name} is rotated by rounded angles, with "
            "errors of up to {off:.2g} radians",
            "frequencies": "the frequencies of the {name} are rounded to {dtype}",
            "narrower": "if the {name} is {dtype}, it is off by up to {off:.2g} from position "
            "{begin} on: positions or frequencies are also rounded to {dtype}",
        },
        "keep positions, frequencies and their products in float32 or float64",
        "How exact must it be?",
    ),
    "low-precision-tables": Text(
        "cos and sin for the {name} are rounded: they are off by {off:.2g} even at small positions",
        "keep cos and sin, and their products with q and k, in float32",
        "How exact must it be?",
    ),
    "clamped": Text(
        "the angles of the {name} stay the same from position {begin} on",
        "make the table longer, or raise an error for positions beyond it",
        "How exact must it be?",
    ),
    "wraps": Text(
        "the {name} at position {begin} is rotated as at position {lowest}, and later positions "
        "continue from there",
        "make the table longer, and store the position ids in a wide enough integer type",
        "How exact must it be?",
    ),
    "length-dependent": Text(
        "a longer text changes the results at the same positions by {off:.2g} relative to their "
        "size",
        "fix the length that sets the frequencies, or xPos's center, before you cache keys",
        "Longer than the training text",
    ),
    "stateful": Text(
        {
            "again": "calling the function again with the same arguments changes the {name} by "
            "{off:.2g}",
            "later": "after longer calls, the same arguments give a {name} that differs by "
            "{off:.2g}",
        },
        "keep no state from earlier calls, and turn dropout off with eval()",
        "Longer than the training text",
    ),
    "layout": Text(
        "the layout of the {name} is {measured}, not {expected}",
        "rotate in the layout of the weights, or convert the weights with rope.layouts",
        "Two layouts",
    ),
    "width": Text(
        "{measured} coordinates of the {name} are rotated, not {expected}",
        "rotate as many coordinates as the configuration specifies",
        "Rotary attention: part of a head",
    ),
    "attention-scaling": Text(
        "the query is multiplied by {query:.6g} and the key by {key:.6g}, not by {expected:.6g}",
        "multiply cos and sin by attention_scaling exactly once",
        "Longer than the training text",
    ),
    "rest-changed": Text(
        {
            "position": "coordinate {a} of the {name} is in no plane, but depends on the position",
            "factor": "coordinate {a} of the {name} is in no plane, but is multiplied by "
            "{factor:.4g}",
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
        "rotate the key by the shift, with the same frequencies and without attention_scaling",
        "Keys that move",
    ),
    "input-changed": Text(
        "the function writes into its inputs ({name})",
        "write the result into a new tensor, or clone the input first",
        "From maths to PyTorch",
    ),
    "dtype-changed": Text(
        "given {dtype} tensors, the function returns {returned}",
        "cast the result to the dtype of the input",
        "How exact must it be?",
    ),
    "not-finite": Text(
        "results are NaN or infinite from position {begin} on",
        "compute the angles in float32, and initialize buffers created on the meta device",
        "How exact must it be?",
    ),
    "not-relative": Text(
        "scores change by {off:.2g} relative to their size when all positions shift by {by}",
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
        "Rotary attention: does it matter where positions start?",
    ),
    "temperature": Text(
        "the query is multiplied by a factor that depends on its position: {off:+.0%} at position "
        "{by}",
        "nothing to fix if the model sharpens its softmax this way",
        "Longer than the training text",
    ),
    "decay": Text(
        "in one plane, queries are scaled by e**{off:+.2g} per position, and keys by the inverse",
        "nothing to fix if the model uses xPos",
        "Properties: is the decay real?",
    ),
    "reach": Text(
        {
            "raised": "the function raised an error at position {position} ({error})",
            "others": "position {position} makes results at other positions over 1,000 times as "
            "large",
            "sizes": "the size of the results depends on the position; at position {position} they "
            "are {sizes}",
        },
        "nothing to fix if no position is that large",
        "From maths to PyTorch",
    ),
    "batch-rejected": Text(
        "the function raised an error for a batch of 3 rows of length {length} ({error})",
        "nothing to fix if you never call it with such a batch",
        "From maths to PyTorch",
    ),
}

CODES = FAULTS | NOTES
