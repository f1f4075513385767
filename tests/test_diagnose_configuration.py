"""Test the warnings about configurations, and what the warnings claim about transformers."""

import copy
import importlib

import pytest
from strategies import LLAMA
from test_diagnose import words

from rope.config import EXAMPLES, example
from rope.diagnose import diagnose_configuration

PLAIN = LLAMA | {"num_hidden_layers": 8}


def without(config, key):
    return {name: value for name, value in config.items() if name != key}


BASELESS = without(PLAIN, "rope_theta")
SMOL = PLAIN | {"model_type": "smollm3"}
YARN = {"rope_type": "yarn", "factor": 16.0, "original_max_position_embeddings": 4096}
LONG = PLAIN | {"head_dim": 64, "max_position_embeddings": 65536, "rope_scaling": YARN}
UNTRAINED = LONG | {"rope_scaling": without(YARN, "original_max_position_embeddings")}
NEW = {"rope_type": "default", "rope_theta": 5e5}


def yarn(**changed):
    return LONG | {"rope_scaling": YARN | changed}


# The warnings about published configurations; the configurations not listed have no warning.
PUBLISHED = {
    "deepseek-v3": ["attention-factor"],
    "gemma-3-27b": ["moved-base"],
    "gpt-oss-20b": ["moved-base"],
    "llama-3.1-8b": ["moved-base"],
    "phi-3-mini-128k": ["length-dependent"],
    "qwen2.5-7b-yarn": ["moved-base"],
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_published_configurations_have_no_fault(name):
    report = diagnose_configuration(example(name))
    assert report.ok and report.settings
    assert [finding.code for finding in report.findings] == PUBLISHED.get(name, [])


# Each case: a configuration, the code of its warning, and words that the warning must contain.
PLANTED = [
    (PLAIN | {"rope_scaling": {"factor": 8.0}}, "configuration", "factor"),
    (SMOL, "unrotated-layers", "3 7"),
    (PLAIN | {"rope_theta": 5e5}, "moved-base", "500000 top"),
    (BASELESS | {"rope_parameters": NEW}, "moved-base", "500000 rope_parameters"),
    (PLAIN | {"rope_parameters": NEW, "rope_theta": 5e5}, "moved-base", "top rope_parameters"),
    (UNTRAINED, "trained-length", "65536"),
    (yarn(mscale=1.0, mscale_all_dim=1.0), "attention-factor", "1 1.27726"),
    (yarn(attention_factor=1.0), "attention-factor", "1 1.27726"),
    (yarn(llama_4_scaling_beta=0.1), "query-scale", "llama_4_scaling_beta 0.1 queries"),
    (PLAIN | {"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}, "length-dependent", "256"),
]


@pytest.mark.parametrize(("config", "code", "expected"), PLANTED)
def test_a_planted_setting_has_a_warning(config, code, expected):
    report = diagnose_configuration(config)
    (finding,) = [finding for finding in report.findings if finding.code == code]
    assert set(expected.split()) <= words(finding), finding.sentence
    assert report.ok == (finding.severity == "note") == (code != "configuration")


@pytest.mark.parametrize(
    "config", [PLAIN, LONG, yarn(mscale=0.707), SMOL | {"no_rope_layers": [1] * 8}]
)
def test_a_plain_configuration_has_no_warning(config):
    assert not diagnose_configuration(config).findings


def built(config):
    auto = pytest.importorskip("transformers.models.auto.configuration_auto")
    facts = copy.deepcopy(without(config, "model_type"))  # the class modifies its dicts
    return auto.CONFIG_MAPPING[config["model_type"]](**facts)


def test_what_the_warnings_say_of_transformers():
    """Check that transformers moves the base, fills in the length, and uses mscale as a pair."""
    assert not hasattr(built(PLAIN | {"rope_theta": 5e5}), "rope_theta")
    assert built(UNTRAINED).rope_parameters["original_max_position_embeddings"] == 65536
    yarn_of = importlib.import_module("transformers.modeling_rope_utils").ROPE_INIT_FUNCTIONS[
        "yarn"
    ]
    _, plain = yarn_of(built(LONG), "cpu")
    assert yarn_of(built(yarn(mscale=0.707)), "cpu")[1] == plain
    assert yarn_of(built(yarn(mscale=1.0, mscale_all_dim=1.0)), "cpu")[1] == 1.0 != plain
