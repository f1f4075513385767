"""Every finding by its code: what it says, how to mend it, and where the book explains it.

`CODES` are those of a function, `DANGERS` those of a configuration. One fault has one code, that of
its cause; a code whose causes are told apart has a sentence for each, by name.
"""

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True)
class Kind:
    """What all findings of a code say: a sentence, or several by name, whose braces take facts.

    source: of the claim, with the thread where it went wrong before; it has braces, too.
    """

    severity: ClassVar[str] = "fault"
    sentence: str | dict[str, str]
    remedy: str
    section: str
    source: str = ""


class Note(Kind):
    """What may be meant so."""

    severity = "note"


CODES = {
    "positions-ignored": Kind(
        {
            "still": "the {name} is alike at all positions",
            "lone": "the {name} is turned otherwise in a call of one token than in a longer one",
            "counted": "the {name} is turned by its place in the call, and its id is not read",
            "others": "the {name} changes where the id has not changed: one id is taken for others",
            "unseen": "the rotation is of no plane that can be seen",
        },
        "look cos and sin up by position_ids, row by row, in q and k",
        "Rotary attention: padding",
    ),
    "wrong-axis": Kind(
        "heads of the {name} are turned by their own number, or by the id of that token",
        "give cos and sin an axis for the heads, [B, 1, S, R]",
        "From maths to PyTorch",
    ),
    "tokens-mixed": Kind(
        "another {name} at one token changes the {other} elsewhere by up to {off:.2g}",
        "normalise and rotate along the last axis, each token and tensor alone",
        "Rotary attention",
    ),
    "batch-mixed": Kind(
        "the {name} of row {row} of three differs by {off:.2g} from that row alone",
        "keep the batch axis of position_ids in cos and sin",
        "Rotary attention: padding",
    ),
    "query-unrotated": Kind(
        "{share} of {heads} heads of the query follow the position",
        "rotate all queries, as the keys are",
        "Rotation in two dimensions",
    ),
    "key-unrotated": Kind(
        "{share} of {heads} heads of the key follow the position",
        "rotate all keys, as the queries are",
        "Rotation in two dimensions",
    ),
    "directions-differ": Kind(
        "query and key are turned in opposite directions",
        "use one sign of sin for both",
        "Rotation in two dimensions: m − n or n − m?",
    ),
    "layouts-differ": Kind(
        "the query is {query} and the key {key}",
        "pair the same coordinates in both",
        "Two layouts: which mixtures are not equivalent?",
    ),
    "spectra-differ": Kind(
        "plane {plane} turns by {query:.6g} a position in the query, {key:.6g} in the key",
        "take the frequencies of both from one table",
        "Longer than the training text",
    ),
    "query-key-offset": Kind(
        "the query is turned by its position {query:+g} and the key by {key:+g}",
        "count the positions of both from one origin",
        "Rotary attention: the KV cache",
    ),
    "pairing": Kind(
        "coordinates {a} and {b} of the {name} do not turn as one plane: {off:.2g} is no rotation",
        "one angle for both, cat((f, f)) for halves, repeat_interleave for neighbours",
        "Two layouts",
    ),
    "norm-after": Kind(
        "the {name} is no rotation of what it is at position 0: a norm or gain adds {off:.2g}",
        "normalise first, then rotate, or use one gain a plane",
        "Rotary attention: QK-norm",
    ),
    "frequencies": Kind(
        {
            "expected": "plane {plane} of the {name} turns by {measured:.6g} a position, "
            "not {expected:.6g}",
            "named": "plane {plane} of the {name} turns by {measured:.6g} a position, "
            "not {expected:.6g}, as of base {known[0]:.6g} and {known[1]}",
            "unknown": "plane 0 of the {name} turns by {measured:.6g} a position, and all are "
            "neither a ladder from at most 1 nor a known change of one",
        },
        "use base**(−2j/R) and the extension: see rope.inverse_frequencies",
        "Many dimensions",
    ),
    "position-map": Kind(
        "from position {begin} on the {name}'s angles are no multiples of the position",
        "use the position itself, unless a method that groups positions is meant",
        "Many dimensions",
    ),
    "low-precision-angles": Kind(
        {
            "positions": "the {name} is turned by rounded angles, from position {begin} on, "
            "off by {off:.2g}",
            "frequencies": "the {name} has frequencies rounded to {dtype}",
            "narrower": "the {name} given as {dtype} is off by {off:.2g} from position {begin} on: "
            "positions or frequencies are so rounded",
        },
        "keep positions, frequencies and products in float32 or better",
        "How exact must it be?",
    ),
    "low-precision-tables": Kind(
        "cos and sin of the {name} are off by {off:.2g}, near and far alike: rounded",
        "keep cos and sin, and the products with them, in float32",
        "How exact must it be?",
    ),
    "clamped": Kind(
        "from position {begin} on the {name} is turned no further",
        "make the table longer, or refuse what lies beyond it",
        "How exact must it be?",
    ),
    "wraps": Kind(
        "position {begin} of the {name} is turned as position {lowest}, and so on",
        "make the table longer, and the type of the ids wide enough",
        "How exact must it be?",
    ),
    "length-dependent": Kind(
        {
            "moved": "a longer text moves the same positions by {off:.2g} of their size",
            "kept": "a longer text moves the same positions by {off:.2g} of their size; with a "
            "cache, scores of keys from the shorter one are off by {kept:.2g} of |q| |k|",
            "sized": "a longer text moves the same positions by {off:.2g} of their size; with a "
            "cache, scores of keys from the shorter one are multiplied by up to {kept:.3g}",
        },
        "fix the length, or centre, that they follow before caching keys",
        "Longer than the training text",
    ),
    "stateful": Kind(
        {
            "again": "called once more with the same arguments, it returns another {name}, "
            "{off:.2g} apart",
            "later": "after longer calls with the same arguments, it returns another {name}, "
            "{off:.2g} apart",
        },
        "keep nothing of earlier calls; eval() stops dropout",
        "Longer than the training text",
    ),
    "layout": Kind(
        "the {name} is {measured}, not {expected}",
        "rotate in the weights' layout, or convert them by rope.layouts",
        "Two layouts",
    ),
    "width": Kind(
        "{measured} coordinates of the {name} are rotated, not {expected}",
        "rotate as many as the configuration says",
        "Rotary attention: part of a head",
    ),
    "attention-scaling": Kind(
        "the query is multiplied by {query:.6g}, the key by {key:.6g}, not {expected:.6g}",
        "multiply cos and sin by attention_scaling, once",
        "Longer than the training text",
    ),
    "rest-changed": Kind(
        {
            "position": "coordinate {a} of the {name}, which has no plane, changes with the "
            "position",
            "factor": "coordinate {a} of the {name}, which has no plane, comes out multiplied by "
            "{factor:.4g}",
        },
        "leave what is beyond the rotated width as it is",
        "Rotary attention: part of a head",
    ),
    "cache-shift": Kind(
        {
            "still": "a key in the cache, shifted by {shift:+d}, is left where it was",
            "reversed": "a key in the cache, shifted by {shift:+d}, goes the other way",
            "sized": "a key in the cache, shifted by {shift:+d}, is multiplied by {factor:.6g}",
            "moved": "a key in the cache, shifted by {shift:+d}, is off by {off:.2g}",
        },
        "rotate it by the shift: same planes and frequencies, cos and sin of radius 1",
        "Keys that move",
    ),
    "input-changed": Kind(
        "it writes into {name}",
        "write into a new tensor, or clone first",
        "From maths to PyTorch",
    ),
    "dtype-changed": Kind(
        "given {dtype}, it returns {returned}",
        "cast the result to the dtype that was given",
        "How exact must it be?",
    ),
    "not-finite": Kind(
        "from position {begin} on results are NaN or infinite",
        "make angles in float32, and initialise what was built on meta",
        "How exact must it be?",
    ),
    "not-relative": Kind(
        "scores move by {off:.2g} of their size when positions shift by {by}",
        "compare with rope.RotaryEmbedding at two positions",
        "Rotation in two dimensions",
    ),
    "direction": Note(
        "query and key are both turned clockwise",
        "nothing, if the weights were trained so",
        "Rotation in two dimensions: m − n or n − m?",
    ),
    "first-position": Note(
        "position 0 is turned as position {offset:g}",
        "nothing: no score changes",
        "Many dimensions: does it matter where positions start?",
    ),
    "temperature": Note(
        "the query is multiplied by a factor that follows its position, {off:+.0%} at {by}",
        "nothing, if the model sharpens its softmax so",
        "Longer than the training text",
    ),
    "decay": Note(
        "queries change by e**{off:+.2g} a position in the fastest plane, and keys by the inverse",
        "nothing, if xPos is meant",
        "Properties: is the decay real?",
    ),
    "reach": Note(
        {
            "refused": "position {position} was refused ({error})",
            "others": "position {position} makes others 1000 times as large",
            "sizes": "sizes follow the position, and at {position} are {sizes}",
        },
        "nothing, if no position lies beyond",
        "From maths to PyTorch",
    ),
    "refused": Note(
        "a batch of 3 rows of {length} was refused ({error})",
        "nothing, if it is never called so",
        "From maths to PyTorch",
    ),
}

# A fault is what transformers reads otherwise than the file says; a note, what other code does.
# Facts of transformers 5.23 are run by `tests/test_diagnose_configuration.py`.
DANGERS = {
    "configuration": Kind(
        "{error}",
        "correct it, since what it means cannot be known",
        "Longer than the training text",
        "rope.config",
    ),
    "ignored-key": Kind(
        {
            "changed": "no code of {model} in transformers reads {key} = {value!r}: {field} is "
            "{read}, not {written}",
            "unreadable": "no code of {model} in transformers reads {key} = {value!r}: without it, "
            "{error}",
        },
        "remove the key, or name the class that reads it in model_type",
        "Rotary attention: part of a head",
        "transformers {version}, models/{model}; huggingface/transformers#48241",
    ),
    "two-holders": Kind(
        "both rope_scaling and rope_parameters are given, and transformers "
        "drops {lost} of the second",
        "keep rope_parameters alone, with all in it",
        "Longer than the training text: rope_theta",
        "transformers 5.23, RotaryEmbeddingConfigMixin.convert_rope_params_to_dict",
    ),
    "nested-parameters": Kind(
        "one dict a layer type is given ({kinds}), and {model} has no layer types: "
        "it takes base 10000",
        "write one flat dict, or name the class that has layer types",
        "Longer than the training text",
        "transformers {version}, RotaryEmbeddingConfigMixin.nested_rope_parameter_keys",
    ),
    "no-rope-reversed": Kind(
        "the flags are the reverse of no_rope_layer_interval {interval}: "
        "{turning} of {all} layers rotate",
        "write 1 in no_rope_layers for each layer that rotates and 0 for the others",
        "Rotary attention",
        "transformers 5.23, SmolLM3Attention.use_rope; huggingface/transformers#43756",
    ),
    "truncate-nested": Note(
        "for {kind} truncate is false, and transformers looks for it outside that dict: "
        "it truncates",
        "compare with what the model was trained by",
        "Longer than the training text",
        "transformers 5.23, _compute_yarn_parameters",
    ),
    "moved-base": Note(
        'the base {base:g} is rope_theta {where}; getattr(config, "rope_theta", 1e4) gives 1e4',
        'read config.rope_parameters["rope_theta"]',
        "Longer than the training text: rope_theta",
        "transformers 5.23; deepspeedai/DeepSpeed#8345, sgl-project/sglang#14745",
    ),
    "trained-length": Note(
        "no original_max_position_embeddings is given; max_position_embeddings, {length}, "
        "stands for it",
        "add the length before the extension",
        "Longer than the training text: what does factor mean?",
        "transformers 5.23, standardize_rope_params; NVIDIA-NeMo/Automodel#2652",
    ),
    "lengths": Note(
        "the factor {factor:g} makes {product} of the trained {trained}, "
        "not the {longest} of the model",
        "make the three agree",
        "Longer than the training text: what does factor mean?",
        "transformers 5.23 takes the factor, older ones the ratio: huggingface/transformers#38224",
    ),
    "mscale": Note(
        "with mscale {mscale} and mscale_all_dim {mscale_all_dim} "
        "cos and sin take {read:.6g}, or {unread:.6g} unread",
        "compare the engine's tables at one position",
        "Longer than the training text: attention_factor",
        "vllm-project/vllm#48621 against turboderp-org/exllamav3#259",
    ),
    "mscale-alone": Note(
        "only {key} is given, and transformers reads mscale and mscale_all_dim together or not",
        "give both, or attention_factor",
        "Longer than the training text: attention_factor",
        "transformers 5.23, _compute_yarn_parameters",
    ),
    "attention-factor": Note(
        "the attention_factor is {given:.6g}, and engines that do not read it take {formula:.6g}",
        "compare the engine's tables at one position",
        "Longer than the training text: attention_factor",
        "vllm-project/vllm#48351, PrimeIntellect-ai/prime-rl#2802, ml-explore/mlx-lm#1507",
    ),
    "no-rope-flags": Note(
        "the flag 1 of no_rope_layers is for layers that rotate; these do not: {layers}",
        "read the flag as use_rope",
        "Rotary attention",
        "transformers 5.23, SmolLM3Attention.use_rope; huggingface/transformers#37344",
    ),
    "unrotated-layers": Note(
        "some layers do not rotate, and engines have rotated all: {layers}",
        "check such a layer's keys at two positions: they must be equal",
        "Rotary attention",
        "timtoole02/Camelid#535, airockchip/rknn-llm#501",
    ),
    "layer-types": Note(
        "each layer type has a spectrum of its own: {spectra}",
        "make one table for each",
        "Longer than the training text",
        "Avarok-Cybersecurity/atlas#276",
    ),
    "partial-mrope": Note(
        "of {head_dim} coordinates {dim} rotate, and under M-RoPE that share has been dropped",
        "check that the other {rest} come out as they went in",
        "Rotary attention: part of a head",
        "AI-Hypercomputer/maxtext#4616",
    ),
    "length-dependent": Note(
        "beyond {trained} tokens all frequencies change, and keys cached before do not fit",
        "fix the length before the first key is cached",
        "Longer than the training text: the KV cache",
        "huggingface/transformers#25104, vllm-project/vllm#5093",
    ),
    "beyond-reach": Note(
        "the length {length} is beyond the {reach} that the configuration is made for",
        "use an extension that reaches so far",
        "Longer than the training text",
        "this configuration",
    ),
}
