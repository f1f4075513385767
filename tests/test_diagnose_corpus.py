"""The corpus: public defects that must be named, and right implementations never accused.

A file of tests/defects has `rotate`, the faulty rotation as a function of ours for heads 64 wide,
`EXPECTED`, the code, and perhaps `AGAINST`, the expectation without which nothing would be wrong,
and `HEADS`, where queries and keys must have as many. The right ones are classes of transformers,
with their own rotary modules and functions.
"""

import importlib.util
import inspect
import re
from pathlib import Path

import pytest
import torch
from test_config_models import annotation, configuration, layer_types, modeling

from rope.config import rotary_settings
from rope.diagnose import diagnose

DEFECTS = sorted((Path(__file__).parent / "defects").glob("*.py"))
MODELS = """
    afmoe apertus arcee bamba bitnet chameleon codegen cohere cohere2 deepseek_v2 deepseek_v3
    diffllama doge dots1 ernie4_5 eurobert exaone4 falcon falcon_h1 gemma gemma2 gemma3_text
    gemma4_text glm glm4 gpt_neox gpt_neox_japanese gpt_oss gptj granite helium hunyuan_v1_dense
    jetmoe lfm2 llama llama4_text minicpm3 minimax minimax_m2 ministral3 mistral mistral4 mixtral
    moonshine_streaming nemotron olmo olmo2 olmo3 persimmon phi phi3 phimoe qwen2 qwen2_5_vl_text
    qwen2_vl_text qwen3 qwen3_next qwen3_vl_text recurrent_gemma roformer seed_oss smollm3 stablelm
    starcoder2 youtu zaya
"""
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 4096}
SCALED = {
    "linear": {"rope_type": "linear", "factor": 4.0},
    "dynamic": {"rope_type": "dynamic", "factor": 4.0},
    "yarn": YARN,
    "yarn not truncated": {**YARN, "truncate": False},
    "llama3": {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    },
    "longrope": {
        "rope_type": "longrope",
        "short_factor": [1.0 + 0.01 * j for j in range(64)],
        "long_factor": [1.0 + 0.5 * j for j in range(64)],
        "factor": 8.0,
        "original_max_position_embeddings": 4096,
    },
}


def load(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("path", DEFECTS, ids=lambda path: path.stem)
def test_a_public_defect_is_named_by_one_finding(path):
    defect = load(path)
    assert re.search(r"^Source: [\w.-]+/[\w.-]+#\d+$", defect.__doc__, re.MULTILINE)
    report = diagnose(
        defect.rotate,
        64,
        expected=getattr(defect, "AGAINST", None),
        num_kv_heads=getattr(defect, "HEADS", 2),
    )
    assert [each.code for each in report.findings] == [defect.EXPECTED], report


def rotary_module(config, module):
    kinds = [
        kind
        for name, kind in vars(module).items()
        if name.endswith("RotaryEmbedding")
        and not name.endswith(("VisionRotaryEmbedding", "DiTRotaryEmbedding"))
    ]
    named = [kind for kind in kinds if type(config).__name__ in str(annotation(kind))]
    return (named or kinds)[0](config=config)


def rotation_of(config, layer_type=None):
    """The model's own rotation as a function of q, k and position_ids."""
    module, kind = modeling(config), config.model_type
    if kind in ("gptj", "codegen"):
        table = module.create_sinusoidal_positions(4096, config.rotary_dim)

        def rotate(q, k, position_ids):
            sin, cos = table[position_ids].to(q).chunk(2, dim=-1)
            whole = []
            for x in (q.transpose(1, 2), k.transpose(1, 2)):
                turned = module.apply_rotary_pos_emb(x[..., : config.rotary_dim], sin, cos)
                whole.append(torch.cat((turned, x[..., config.rotary_dim :]), -1).transpose(1, 2))
            return tuple(whole)

        return rotate
    if kind == "roformer":
        table = module.RoFormerSinusoidalPositionalEmbedding(4096, 64)
        weight = table.create_weight()

        def rotate(q, k, position_ids):
            rows = weight[position_ids][:, None].to(q)
            apply = module.RoFormerSelfAttention.apply_rotary_position_embeddings
            return apply(rows, q, q)[0], apply(rows, k, k)[0]

        return rotate
    rotary = rotary_module(config, module)
    takes = inspect.signature(type(rotary).forward).parameters
    arguments = {"layer_type": layer_type} if "layer_type" in takes else {}

    def tables(q, position_ids):
        if hasattr(rotary, "mrope_section"):
            position_ids = position_ids.expand(3, *position_ids.shape)
        return rotary(q, position_ids, **arguments)

    def rotate(q, k, position_ids):
        made = tables(q, position_ids)
        if torch.is_tensor(made):
            if kind == "llama4_text":  # its heads stand behind its sequence
                q, k = q.transpose(1, 2), k.transpose(1, 2)
                return tuple(x.transpose(1, 2) for x in module.apply_rotary_emb(q, k, made))
            return module.apply_rotary_emb(q, k, made)
        if "apply_rotary_pos_emb_interleave" in vars(module):
            return module.apply_rotary_pos_emb_interleave(q, k, *made)
        if next(iter(inspect.signature(module.apply_rotary_pos_emb).parameters)) == "x":
            return tuple(module.apply_rotary_pos_emb(x, *made) for x in (q, k))
        return module.apply_rotary_pos_emb(q, k, *made)

    return rotate


@pytest.mark.slow
@pytest.mark.parametrize("model_type", MODELS.split())
def test_a_model_of_transformers_is_not_accused(model_type):
    config, facts = configuration(model_type)
    for layer_type in layer_types(facts):
        settings = rotary_settings(facts, layer_type=layer_type)
        rotate = rotation_of(config, layer_type)
        width = settings.head_dim if model_type in ("gptj", "codegen") else settings.dim
        width = 64 if model_type == "roformer" else width
        report = diagnose(rotate, width)
        assert report.ok, (layer_type, str(report))
        report = diagnose(rotate, width, expected=settings)
        assert report.ok, (layer_type, str(report))
        assert report.query.rotary_dim == settings.dim
        assert report.query.layout == ("interleaved" if settings.interleaved else "half")
        assert report.query.direction == report.key.direction == 1


@pytest.mark.parametrize("scaling", SCALED)
def test_a_scaled_llama_is_not_accused(scaling):
    config, _ = configuration("llama")
    config.head_dim = 128
    config.rope_parameters = {"rope_theta": 5e5, **SCALED[scaling]}
    for expected in (None, config):
        report = diagnose(rotation_of(config), 128, expected=expected)
        assert report.ok, str(report)
