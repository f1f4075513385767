"""Test `rope.diagnose` on public defects, and on correct implementations by others.

A file in tests/defects defines `rotate`, the faulty rotation for 64 coordinates, and `EXPECTED`,
the code of its finding. It may define `AGAINST`, the correct rotation, and `HEADS`, the number of
key heads. SETTINGS has the defects that are one wrong setting.
"""

import importlib.util
import inspect
import re
from pathlib import Path

import pytest
import torch
from test_config_models import MODELS, annotation, configuration, layer_types, modeling

import rope
from rope.config import rotary_settings
from rope.diagnose import diagnose
from rope.extensions import Proportional, YaRN

DEFECTS = sorted((Path(__file__).parent / "defects").glob("*.py"))
Rotary = rope.RotaryEmbedding
FULL = Rotary(64)
GLM = [Rotary(n, interleaved=True) for n in (64, 32)]
FACTOR = [Rotary(64, extension=YaRN(64.0, 4096, attention_factor=x)) for x in (None, 1.0)]
TWICE = [Rotary(64, extension=YaRN(128.0, 4096, attention_factor=x)) for x in (2.2058, None)]
# Each defect: its source, the code of its finding, the wrong rotation, and the right one.
SETTINGS = [
    ("AI-Hypercomputer/maxtext#4616", "width", FULL, Rotary(16)),  # partial_rotary_factor ignored
    (
        "pie-project/pie#602",
        "width",
        Rotary(64, extension=Proportional(0.25)),
        Rotary(16),
    ),  # wrong pairs
    ("ml-explore/mlx-lm#1698", "width", *GLM),  # GLM's default partial_rotary_factor ignored
    ("sgl-project/sglang#30342", "layout", GLM[0], FULL),  # adjacent pairs in a fused kernel
    ("ml-explore/mlx-lm#1507", "attention-scaling", *FACTOR),  # attention_factor 1 ignored
    ("sgl-project/sglang#33558", "attention-scaling", *TWICE),  # 1.4852 multiplied twice
]
# One model for each kind of module and function; the tests of all other models are slow.
SAMPLE = "deepseek_v3 glm llama4_text mimo_v2_flash qwen2_vl_text recurrent_gemma"
OWN_TABLES = {"codegen", "gptj", "roformer"}  # their models have no rotary module


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


@pytest.mark.parametrize(("source", "code", "wrong", "right"), SETTINGS)
def test_a_wrong_setting_is_named_by_one_finding(source, code, wrong, right):
    report = diagnose(wrong, 64, expected=right)
    assert [each.code for each in report.findings] == [code], (source, report)


def rotation_of(config, layer_type=None):
    """Return the model's own rotation as a function of q, k and position_ids."""
    module, kind = modeling(config), config.model_type
    kinds = [
        each
        for name, each in vars(module).items()
        if name.endswith("RotaryEmbedding") and "Vision" not in name
    ]
    named = [each for each in kinds if type(config).__name__ in str(annotation(each))]
    rotary = (named or kinds)[0](config=config)
    takes = inspect.signature(type(rotary).forward).parameters
    arguments = {"layer_type": layer_type} if "layer_type" in takes else {}

    def tables(q, position_ids):
        if hasattr(rotary, "mrope_section"):
            position_ids = position_ids.expand(3, *position_ids.shape)
        return rotary(q, position_ids, **arguments)

    def rotate(q, k, position_ids):
        rows = tables(q, position_ids)
        if torch.is_tensor(rows):
            if kind == "llama4_text":  # [B, S, H, D]
                q, k = q.transpose(1, 2), k.transpose(1, 2)
                return tuple(x.transpose(1, 2) for x in module.apply_rotary_emb(q, k, rows))
            return module.apply_rotary_emb(q, k, rows)
        if "apply_rotary_pos_emb_interleave" in vars(module):
            return module.apply_rotary_pos_emb_interleave(q, k, *rows)
        if next(iter(inspect.signature(module.apply_rotary_pos_emb).parameters)) == "x":
            return tuple(module.apply_rotary_pos_emb(x, *rows) for x in (q, k))
        return module.apply_rotary_pos_emb(q, k, *rows)

    return rotate


OTHERS = sorted(set(MODELS) - set(SAMPLE.split()) - OWN_TABLES)
SLOW = [pytest.param(each, marks=pytest.mark.slow) for each in OTHERS]


@pytest.mark.parametrize("model_type", [*SAMPLE.split(), *SLOW])
def test_a_model_of_transformers_has_no_fault(model_type):
    config, facts = configuration(model_type)
    for layer_type in layer_types(facts):
        settings = rotary_settings(facts, layer_type=layer_type)
        rotate = rotation_of(config, layer_type)
        for expected in (None, settings):
            report = diagnose(rotate, settings.dim, expected=expected)
            assert report.ok, (layer_type, str(report))
        assert report.query.rotary_dim == settings.dim
        assert report.query.layout == ("interleaved" if settings.interleaved else "half")
        assert report.query.direction == report.key.direction == 1


def test_rotary_embedding_torch_has_no_fault():
    package = pytest.importorskip("rotary_embedding_torch")
    theirs = package.RotaryEmbedding(dim=32)

    def rotate(q, k, ids):
        freqs = theirs(ids)[:, None]
        return package.apply_rotary_emb(freqs, q), package.apply_rotary_emb(freqs, k)

    for expected in (None, rope.RotaryEmbedding(32, interleaved=True)):
        report = diagnose(rotate, 64, expected=expected)
        assert report.ok and not report.findings, str(report)
        assert (report.query.layout, report.query.rotary_dim) == ("interleaved", 32)
