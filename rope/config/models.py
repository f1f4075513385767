"""What a configuration leaves to its model: the layout, and the numbers of the family.

Chapter "Two layouts". Configurations do not say which coordinates make a plane; the code that
reads them does. Facts of transformers 5.23, each run by `tests/test_config_models.py` against the
model's own rotation. Text models alone: vision towers rotate along two axes, see `rope.axes`.
"""

from typing import Any


def _names(text: str) -> frozenset[str]:
    """The words of a text, a list of names that reads as one."""
    return frozenset(text.split())


#: Plane j holds coordinates (2j, 2j+1).
INTERLEAVED = _names(
    """
    axk2 bailing_hybrid blt_global_transformer blt_local_decoder blt_local_encoder blt_patcher
    codegen cohere cohere2 cohere2_moe deepseek_v2 deepseek_v32 dots3_note_text ernie4_5
    ernie4_5_moe glm glm4 glm4v_text glm_moe_dsa glm_ocr_text gptj helium llama4_text longcat_flash
    mistral_large4_text openai_privacy_filter roformer
    """
)

#: The key `rope_interleave` decides; transformers takes True where it is absent. The MLA models
#: of this and the previous list pair neighbours but write the result in halves, for the queries
#: and for the keys alike. That is one permutation of both, so every score is the interleaved one.
LAYOUT_BY_KEY = _names("axk1 deepseek_v3 glm4_moe_lite mistral4 youtu")

#: Plane j holds coordinates (j, j + R/2).
HALF = _names(
    """
    afmoe apertus arcee aria_text bamba beam bitnet chameleon cohere_compass_text
    cosmos3_edge_text csm csm_depth_decoder_model cwm dbrx deepseek_ocr2_text dia_decoder
    dia_encoder diffllama diffusion_gemma_text doge dots1 embedding_gemma2_text emu3_text_model
    eurobert evolla exaone4 exaone_moe falcon falcon_h1 flex_olmo flint gemma gemma2 gemma3_text
    gemma3n_text gemma4_text gemma4_unified_text glm4_moe glm4v_moe_text glm_image_text gpt_neox
    gpt_neox_japanese gpt_oss granite granite4_vision_text granite_docling_text granite_swa
    granitemoe granitemoe_swa granitemoehybrid granitemoeshared gte higgs_audio_v2 hrm_text
    hunyuan_v1_dense hunyuan_v1_moe hy_v3 hy_v4 hyperclovax idefics jais2 jetmoe
    jina_embeddings_v3 kolibri1 laguna lfm2 lfm2_moe lfm3 llama mellum mimo_v2_flash minicpm3
    minimax minimax_m2 ministral ministral3 mistral mixtral mllama_text_model modernbert
    modernbert-decoder molmo2_text moshi muse_glimmer_text muse_spark_text nemotron neomme
    nomic_bert olmo olmo2 olmo3 olmo_hybrid olmoe paddleocr_vl_text persimmon phi phi3
    phi4_multimodal phimoe qwen2 qwen2_5_omni_talker qwen2_5_omni_text qwen2_5_vl qwen2_5_vl_text
    qwen2_moe qwen2_vl qwen2_vl_text qwen3 qwen3_5_moe_text qwen3_5_text qwen3_moe qwen3_next
    qwen3_omni_moe_talker_code_predictor qwen3_omni_moe_talker_text qwen3_omni_moe_text
    qwen3_vl_moe_text qwen3_vl_text qwen4_exp_text recurrent_gemma seed_oss smollm3 solar_open
    stablelm starcoder2 step3p5 t5_gemma_module t5gemma2_decoder t5gemma2_text ultrabert
    unlimited_ocr_text vaultgemma voxtral_realtime_text zaya
    """
)

KNOWN = INTERLEAVED | LAYOUT_BY_KEY | HALF

#: Models whose rotation the settings cannot say: the fact, and the way out.
NOT_COVERED = {
    "nanochat": "it turns clockwise: leave model_type out, pass interleaved=False, and rotate with "
    "inverse=True",
    "deepseek_v4": "it rotates the last coordinates of each head: make a RotaryEmbedding of that "
    "width and rotate x[..., -dim:] yourself",
    "ernie4_5_vl_moe_text": "its planes follow height and width in turn, then time: for text "
    "alone read it as model_type ernie4_5_moe, otherwise pass your own frequencies to "
    "MultiAxisRotaryEmbedding",
    "hunyuan_vl_text": "its sections cut through planes: for text alone read it as model_type "
    "hunyuan_v1_dense without the sections",
}

#: M-RoPE models whose sections take turns plane by plane (T H W T H W ...).
INTERLEAVED_SECTIONS = _names(
    """
    cohere_compass_text cosmos3_edge_text qwen3_5_moe_text qwen3_5_text qwen3_omni_moe_talker_text
    qwen3_omni_moe_text qwen3_vl_moe_text qwen3_vl_text qwen4_exp_text
    """
)

#: MLA models whose code leaves the YaRN temperature out of the softmax.
PLAIN_SOFTMAX = frozenset({"dots3_note_text"})

#: Models whose defaults are a whole extension or one RoPE a layer type: too much to fill in.
NEEDS_PARAMETERS = _names(
    """
    apertus beam cohere_compass_text cwm diffusion_gemma_text dots3_note_text embedding_gemma2_text
    gemma4_text gemma4_unified_text gpt_oss higgs_audio_v2 laguna lfm3 mellum mimo_v2_flash
    ministral3 mistral4 mistral_large4_text neomme openai_privacy_filter step3p5 ultrabert zaya
    """
)

#: The older spelling of one RoPE a layer type: key of the base, its default, whether
#: `rope_scaling` is meant for it.
_GEMMA_LAYERS = {
    "full_attention": ("rope_theta", 1e6, True),
    "sliding_attention": ("rope_local_base_freq", 1e4, False),
}
_BERT_LAYERS = {
    "full_attention": ("global_rope_theta", 1.6e5, True),
    "sliding_attention": ("local_rope_theta", 1e4, True),
}
_OLMO_LAYERS = {
    "full_attention": ("rope_theta", 5e5, True),
    "sliding_attention": ("rope_theta", 5e5, False),
}
LAYERED: dict[str, dict[str, tuple[str, float, bool]]] = {
    "gemma3_text": _GEMMA_LAYERS,
    "gemma3n_text": _GEMMA_LAYERS,
    "t5gemma2_decoder": _GEMMA_LAYERS,
    "t5gemma2_text": _GEMMA_LAYERS,
    "modernbert": _BERT_LAYERS,
    "modernbert-decoder": _BERT_LAYERS,
    "olmo3": _OLMO_LAYERS,
}

_BASES = {
    1e3: "nomic_bert",
    2e4: "jina_embeddings_v3",
    1e5: "helium",
    1.6e5: "gte",
    5e5: "bitnet blt_global_transformer blt_local_decoder blt_local_encoder cohere csm "
    "csm_depth_decoder_model ernie4_5 ernie4_5_moe evolla flex_olmo llama4_text mllama_text_model "
    "muse_spark_text paddleocr_vl_text qwen3_vl_moe_text qwen3_vl_text",
    1e6: "emu3_text_model lfm2 lfm2_moe minimax mixtral phimoe qwen2_5_omni_talker "
    "qwen2_5_omni_text qwen2_5_vl qwen2_5_vl_text qwen2_vl qwen2_vl_text qwen3_omni_moe_text "
    "solar_open",
    2e6: "smollm3",
    5e6: "minimax_m2",
    6e6: "bailing_hybrid",
    1e7: "longcat_flash",
    11_158_840.0: "hy_v3",
    1e8: "cosmos3_edge_text",
}
_PARTIAL = {
    0.25: "gpt_neox qwen3_5_moe_text qwen3_5_text qwen3_next stablelm",
    0.5: "bamba glm glm4 glm4_moe glm4v_moe_text nemotron persimmon phi recurrent_gemma",
}
_HEAD_DIMS = {
    64: "muse_spark_text",
    128: "afmoe cohere2_moe cosmos3_edge_text dia_decoder dia_encoder ernie4_5 flint glm glm4 "
    "helium hrm_text hy_v3 jetmoe kolibri1 llama4_text minimax_m2 molmo2_text muse_glimmer_text "
    "paddleocr_vl_text qwen2_5_omni_talker qwen3 qwen3_omni_moe_talker_code_predictor "
    "qwen3_vl_text seed_oss solar_open",
    256: "gemma gemma2 gemma3_text gemma3n_text qwen3_5_moe_text qwen3_5_text qwen3_next "
    "qwen4_exp_text t5_gemma_module t5gemma2_decoder t5gemma2_text vaultgemma",
}
_ROTARY_DIMS = {64: "codegen gptj"}
_SECTIONS = {
    (8, 12, 12): "glm4v_moe_text glm4v_text glm_image_text glm_ocr_text",
    (11, 11, 10): "qwen3_5_moe_text qwen3_5_text qwen4_exp_text",
    (16, 24, 24): "paddleocr_vl_text qwen2_5_omni_talker qwen2_5_omni_text qwen2_5_vl "
    "qwen2_5_vl_text qwen2_vl qwen2_vl_text",
    (24, 20, 20): "cohere_compass_text cosmos3_edge_text qwen3_omni_moe_talker_text "
    "qwen3_omni_moe_text qwen3_vl_moe_text qwen3_vl_text",
}


def family_default(model_type: str | None, key: str) -> Any:
    """What transformers fills in where the configuration of a known model lacks the key.

    >>> family_default("phi", "partial_rotary_factor"), family_default("llama", "rope_theta")
    (0.5, 10000.0)
    >>> family_default("my_model", "rope_theta")
    """
    tables: dict[str, Any] = {
        "rope_theta": _BASES,
        "partial_rotary_factor": _PARTIAL,
        "head_dim": _HEAD_DIMS,
        "rotary_dim": _ROTARY_DIMS,
        "mrope_section": _SECTIONS,
    }
    for value, families in tables[key].items():
        if model_type in families.split():
            return value
    return 10000.0 if key == "rope_theta" and model_type in KNOWN - NEEDS_PARAMETERS else None
