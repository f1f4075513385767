"""`python -m rope.diagnose`: what it prints, and its exit status."""

import json

import pytest

from rope.config import example
from rope.diagnose.__main__ import main

RIGHT = "tests.defects.te_base_fixed:rotate"
WRONG = "tests.defects.mlxcel_doubled:rotate"


@pytest.fixture
def config(tmp_path):
    def write(facts):
        (tmp_path / "config.json").write_text(json.dumps(facts))
        return str(tmp_path / "config.json")

    return write


def test_a_function_is_probed(capsys, config):
    assert main([RIGHT, "--head-dim", "64"]) == 0
    assert capsys.readouterr().out.startswith("no fault found")
    assert main([WRONG, "--head-dim", "64", "--heads", "2", "2", "--length", "4096"]) == 1
    told = capsys.readouterr().out
    assert told.startswith("not right (probed in float64 up to position 4095)")
    assert "fault frequencies" in told
    expected = config(example("llama-3.1-8b") | {"head_dim": 64})
    assert main([RIGHT, "--head-dim", "64", "--expected", expected]) == 1
    assert "fault frequencies" in capsys.readouterr().out


def test_a_function_is_probed_into_json(capsys):
    assert main([WRONG, "--head-dim", "64", "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert [each["code"] for each in report["findings"]] == ["frequencies"]
    assert report["query"]["layout"] == "half" and len(report["query"]["inv_freq"]) == 32


def test_a_configuration_is_explained(capsys, config):
    path = config(example("llama-3.1-8b"))
    assert main([path]) == 0
    told = capsys.readouterr().out
    assert "layout: half" in told and "Llama3(factor=8.0" in told
    assert "planes that finish a turn within 131072: 39 of 64" in told
    assert main([path, "--length", "8192"]) == 0
    assert "planes that finish a turn within 8192: 32 of 64" in capsys.readouterr().out
    assert main([path, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["all layers"]
    assert told["base"] == 5e5 and told["extension"]["name"] == "llama3"


def test_layer_types_are_explained_one_by_one(capsys, config):
    pytest.importorskip("transformers")
    path = config(example("gemma-3-27b"))
    assert main([path]) == 0
    told = capsys.readouterr().out
    assert "sliding_attention:\n" in told and "full_attention:\n" in told
    assert main([path, "--layer-type", "full_attention"]) == 0
    assert "sliding" not in capsys.readouterr().out


def test_what_a_configuration_says_wrongly_is_the_fault(capsys, config):
    wrong = example("llama-3.1-8b") | {"rope_scaling": {"factor": 8.0}}
    assert main([config(wrong)]) == 1
    assert "fault: 'factor' is no parameter of rope_type 'default'" in capsys.readouterr().out
    assert main([config(wrong), "--json"]) == 1
    assert "factor" in json.loads(capsys.readouterr().out)["fault"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([RIGHT], "--head-dim is missing"),
        (["nothing.there:rotate", "--head-dim", "64"], "No module named 'nothing'"),
        (["rope:nothing", "--head-dim", "64"], "no attribute 'nothing'"),
        (["nothing.json"], "nothing.json"),
    ],
)
def test_what_can_be_neither_called_nor_read(arguments, words, capsys):
    assert main(arguments) in (1, 2)
    told = capsys.readouterr()
    assert words in told.out + told.err
