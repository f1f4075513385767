"""What is dangerous in a configuration that can be read, each with where it went wrong before.

A fault is what transformers reads otherwise than the file says; a note, what other code does.
Four lines each: severity and code, the sentence, the remedy and the section of the book, the
source. Facts of transformers 5.23 are run by `tests/test_diagnose_configuration.py`.
"""

from typing import Any

from rope.diagnose.codes import Finding

_TABLE = """
fault configuration
    {why}
    correct it, since what it means cannot be known | Longer than the training text
    rope.config
fault ignored-key
    no code of {model} in transformers reads {key} = {value!r}: {how}
    remove the key, or name the class that reads it in model_type | Rotary attention: part of a head
    transformers {version}, models/{model}; huggingface/transformers#48241
fault two-holders
    both rope_scaling and rope_parameters are given, and transformers drops {lost} of the second
    keep rope_parameters alone, with all in it | Longer than the training text: rope_theta
    transformers 5.23, RotaryEmbeddingConfigMixin.convert_rope_params_to_dict
fault nested-parameters
    one dict a layer type is given ({kinds}), and {model} has no layer types: it takes base 10000
    write one flat dict, or name the class that has layer types | Longer than the training text
    transformers {version}, RotaryEmbeddingConfigMixin.nested_rope_parameter_keys
fault no-rope-reversed
    the flags are the reverse of no_rope_layer_interval {interval}: {turning} of {all} layers rotate
    write 1 in no_rope_layers for each layer that rotates and 0 for the others | Rotary attention
    transformers 5.23, SmolLM3Attention.use_rope; huggingface/transformers#43756
note truncate-nested
    for {kind} truncate is false, and transformers looks for it outside that dict: it truncates
    compare with what the model was trained by | Longer than the training text
    transformers 5.23, _compute_yarn_parameters
note moved-base
    the base {base:g} is rope_theta {where}; getattr(config, "rope_theta", 1e4) gives 1e4
    read config.rope_parameters["rope_theta"] | Longer than the training text: rope_theta
    transformers 5.23; deepspeedai/DeepSpeed#8345, sgl-project/sglang#14745
note trained-length
    no original_max_position_embeddings is given; max_position_embeddings, {length}, stands for it
    add the length before the extension | Longer than the training text: what does factor mean?
    transformers 5.23, standardize_rope_params; NVIDIA-NeMo/Automodel#2652
note lengths
    the factor {factor:g} makes {product} of the trained {trained}, not the {longest} of the model
    make the three agree | Longer than the training text: what does factor mean?
    transformers 5.23 takes the factor, older ones the ratio: huggingface/transformers#38224
note mscale
    with mscale {one} and mscale_all_dim {other} cos and sin take {read:.6g}, or {unread:.6g} unread
    compare the engine's tables at one position | Longer than the training text: attention_factor
    vllm-project/vllm#48621 against turboderp-org/exllamav3#259
note mscale-alone
    only {key} is given, and transformers reads mscale and mscale_all_dim together or not
    give both, or attention_factor | Longer than the training text: attention_factor
    transformers 5.23, _compute_yarn_parameters
note attention-factor
    the attention_factor is {given:.6g}, and engines that do not read it take {formula:.6g}
    compare the engine's tables at one position | Longer than the training text: attention_factor
    vllm-project/vllm#48351, PrimeIntellect-ai/prime-rl#2802, ml-explore/mlx-lm#1507
note no-rope-flags
    the flag 1 of no_rope_layers is for layers that rotate; these do not: {layers}
    read the flag as use_rope | Rotary attention
    transformers 5.23, SmolLM3Attention.use_rope; huggingface/transformers#37344
note unrotated-layers
    some layers do not rotate, and engines have rotated all: {layers}
    check such a layer's keys at two positions: they must be equal | Rotary attention
    timtoole02/Camelid#535, airockchip/rknn-llm#501
note layer-types
    each layer type has a spectrum of its own: {spectra}
    make one table for each | Longer than the training text
    Avarok-Cybersecurity/atlas#276
note partial-mrope
    of {head_dim} coordinates {dim} rotate, and under M-RoPE that share has been dropped
    check that the other {rest} come out as they went in | Rotary attention: part of a head
    AI-Hypercomputer/maxtext#4616
note length-dependent
    beyond {trained} tokens all frequencies change, and keys cached before do not fit
    fix the length before the first key is cached | Longer than the training text: the KV cache
    huggingface/transformers#25104, vllm-project/vllm#5093
note beyond-reach
    the length {length} is beyond the {reach} that the configuration is made for
    use an extension that reaches so far | Longer than the training text
    this configuration
"""
_LINES = zip(*[iter(_TABLE.strip().splitlines())] * 4, strict=True)
#: Severity, sentence, remedy, section and source of each code.
DANGERS = {
    head.split()[1]: (head.split()[0], said.strip(), *mended.strip().split(" | "), source.strip())
    for head, said, mended, source in _LINES
}


def danger(code: str, **numbers: Any) -> Finding:
    """The finding of this code with its numbers."""
    severity, sentence, remedy, section, source = DANGERS[code]
    told = (each.format(**numbers) for each in (sentence, remedy, section, source))
    return Finding(code, severity, *told)
