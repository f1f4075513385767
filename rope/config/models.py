"""The models that neither a configuration nor its class in transformers tells about, by name.

Facts of transformers 5.23, each run by `tests/test_config_models.py` against the model's own
rotation. Text models alone: vision towers rotate along two axes, see `rope.axes`.
"""


def _names(text: str) -> frozenset[str]:
    """The words of a text, a list of names that reads as one."""
    return frozenset(text.split())


#: Families whose classes add nothing: base 10000, all of hidden_size / num_attention_heads turns.
GENERAL = _names(
    "falcon granite llama ministral mistral olmo olmo2 olmoe phi3 qwen2 qwen2_moe "
    "qwen3_moe starcoder2"
)

#: Families with planes (j, j + R/2), and with planes (2j, 2j+1) whose code cannot be asked. For
#: others it is, which takes some seconds the first time.
HALF = GENERAL | _names("exaone4 gemma gemma2 gemma3_text gpt_neox gpt_oss mixtral olmo3 phi qwen3")
INTERLEAVED = _names("codegen deepseek_v2 gptj llama4_text roformer")

#: Models without a key for the base: their code says 10000.
FIXED_BASE = _names("codegen gptj roformer")

#: M-RoPE: the sections that the code takes where the configuration has none.
SECTIONS = {
    (8, 12, 12): _names("glm4v_moe_text glm4v_text glm_image_text glm_ocr_text"),
    (11, 11, 10): _names("qwen3_5_moe_text qwen3_5_text qwen4_exp_text"),
    (16, 24, 24): _names(
        "paddleocr_vl_text qwen2_5_omni_talker qwen2_5_omni_text qwen2_5_vl qwen2_5_vl_text "
        "qwen2_vl qwen2_vl_text"
    ),
    (24, 20, 20): _names(
        "cohere_compass_text cosmos3_edge_text qwen3_omni_moe_talker_text qwen3_omni_moe_text "
        "qwen3_vl_moe_text qwen3_vl_text"
    ),
}
#: Those whose axes take turns plane by plane (T H W T H W ...); the others' stand in blocks.
TAKING_TURNS = SECTIONS[11, 11, 10] | SECTIONS[24, 20, 20]

#: Models whose code rotates in layers with a sliding window alone, and those that do so where
#: there is such a window, but rotate in all layers where sliding_window is None.
WINDOWS_ALONE = _names("afmoe cohere2 cohere2_moe flint")
ALL_OR_WINDOWS = _names("exaone4 exaone_moe kolibri1")

#: MLA models whose code leaves the YaRN temperature out of the softmax.
PLAIN_SOFTMAX = _names("dots3_note_text")

#: Models whose rotation the settings cannot say: the fact, and the way out.
NOT_COVERED = {
    **dict.fromkeys(
        ("dinov3_vit", "eomt_dinov3", "sapiens2"),
        "it rotates along the two axes of an image: build rope.axes.MultiAxisRotaryEmbedding",
    ),
    "nanochat": "it turns clockwise: leave model_type out, pass interleaved=False, and rotate with "
    "inverse=True",
    "deepseek_v4": "it rotates the last coordinates of each head: make a RotaryEmbedding of that "
    "width and rotate x[..., -dim:] yourself",
    "ernie4_5_vl_moe_text": "its planes follow height and width in turn, then time: for text "
    "alone read it as model_type ernie4_5_moe, otherwise pass your own frequencies to "
    "MultiAxisRotaryEmbedding",
    "hunyuan_vl_text": "its sections cut through planes: for text alone read it as model_type "
    "hunyuan_v1_dense without the sections",
    "qwen2_5_omni_dit": "it rotates the first head alone: leave model_type out, and pass that head",
}
