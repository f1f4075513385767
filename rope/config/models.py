"""List, by model type, properties of the rotation that only the model's code specifies.

The lists describe transformers 5.23; `tests/test_config_models.py` compares each model type with
the model's own rotation. The lists contain only text models; for vision towers, see `rope.axes`.
"""

from typing import Any

_names = str.split

#: Model types whose classes add no defaults: the base is 10000, and the entire head rotates.
GENERAL = _names(
    "falcon granite llama ministral mistral olmo olmo2 olmoe phi3 qwen2 qwen2_moe "
    "qwen3_moe starcoder2"
)

_HALVES = _names(
    "afmoe apertus arcee aria_text bamba beam bitnet chameleon cohere_compass_text cwm dbrx "
    "diffllama doge dots1 emu3_text_model eurobert exaone4 exaone_moe falcon_h1 flex_olmo flint "
    "gemma gemma2 gemma3_text gemma3n_text gemma4_text gemma4_unified_text glm4_moe glm4v_moe_text "
    "gpt_neox gpt_neox_japanese gpt_oss granite_swa granitemoe granitemoe_swa granitemoehybrid "
    "granitemoeshared hrm_text hunyuan_v1_dense hunyuan_v1_moe hy_v3 hy_v4 hyperclovax internlm3 "
    "iquestcoder jais2 jetmoe kolibri1 laguna lfm2 lfm2_moe lfm3 mellum mimo_v2_flash minicpm3 "
    "minimax minimax_m2 minimax_m3_vl_text ministral3 mixtral mllama_text_model modernbert "
    "modernbert-decoder moshi nemotron nomic_bert olmo3 olmo_hybrid persimmon phi phi4_multimodal "
    "phimoe qwen2_5_omni_text qwen2_5_vl qwen2_5_vl_text qwen2_vl qwen2_vl_text qwen3 "
    "qwen3_5_moe_text qwen3_5_text qwen3_next qwen3_omni_moe_text qwen3_vl_moe_text qwen3_vl_text "
    "qwen4_exp_text recurrent_gemma seed_oss smollm3 solar_open stablelm step3p5 vaultgemma zaya"
)
_PAIRS = _names(
    "axk2 bailing_hybrid codegen cohere cohere2 cohere2_moe deepseek_v2 deepseek_v32 deepseek_v4 "
    "dots3_note_text ernie4_5 ernie4_5_moe glm glm4 glm4v_text glm_moe_dsa gptj helium llama4_text "
    "longcat_flash moonshine_streaming roformer"
)
_BY_KEY = _names("axk1 deepseek_v3 glm4_moe_lite mistral4 youtu")
#: Maps each model type to True for planes (2j, 2j+1), False for planes (j, j + R/2), or None if
#: the key rope_interleave determines the layout. Model code that reads rope_interleave returns
#: interleaved queries and keys in half-split order; the scores are the same.
LAYOUTS: dict[str, bool | None] = {
    **dict.fromkeys([*GENERAL, *_HALVES], False),
    **dict.fromkeys(_PAIRS, True),
    **dict.fromkeys(_BY_KEY),
}

#: Models whose configurations have no key for the base. Their code uses 10000.
FIXED_BASE = _names("codegen gptj roformer")

#: Models whose code can rotate only part of a head even if the rope_type is "default".
PARTIAL = _names(
    "bamba codegen glm glm4 glm4_moe glm4v_moe_text glm4v_text gpt_neox gpt_neox_japanese gptj "
    "laguna mellum mimo_v2_flash minimax_m2 minimax_m3_vl_text moonshine_streaming nemotron "
    "persimmon phi phi3 phi4_multimodal qwen3_5_moe_text qwen3_5_text qwen3_next qwen4_exp_text "
    "recurrent_gemma solar_open stablelm step3p5 zaya"
)

#: Maps layer types to DeepSeek-V4's names for their RoPE parameters.
_COMPRESSED = ("compressed_sparse_attention", "heavily_compressed_attention")
LABELS: dict[Any, str] = {"sliding_attention": "main", **dict.fromkeys(_COMPRESSED, "compress")}

#: Maps M-RoPE sections to the models that use them if the configuration specifies no sections.
SECTIONS = {
    (8, 12, 12): _names("glm4v_moe_text glm4v_text"),
    (11, 11, 10): _names("qwen3_5_moe_text qwen3_5_text qwen4_exp_text"),
    (16, 24, 24): _names("qwen2_5_omni_text qwen2_5_vl qwen2_5_vl_text qwen2_vl qwen2_vl_text"),
    (24, 20, 20): _names("cohere_compass_text qwen3_omni_moe_text qwen3_vl_moe_text qwen3_vl_text"),
}
#: Models whose planes follow the axes in turn (T H W T H W ...). Others have one block per axis.
INTERLEAVED_SECTIONS = SECTIONS[11, 11, 10] + SECTIONS[24, 20, 20]

#: Models that rotate only in layers with a sliding window. If the configuration has no
#: sliding_window, models in ONLY_WINDOWS_IF_ANY rotate in all layers.
ONLY_WINDOWS = _names("afmoe cohere2 cohere2_moe flint")
ONLY_WINDOWS_IF_ANY = _names("exaone4 exaone_moe kolibri1")
