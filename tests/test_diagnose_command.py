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
    assert capsys.readouterr().out.startswith("no fault found (probed in float64 up to")
    assert main([WRONG, "--head-dim", "64", "--heads", "2", "2", "--length", "4096"]) == 1
    out = capsys.readouterr().out
    assert out.startswith("not right (probed in float64 up to position 4095)")
    assert "fault frequencies: Plane 0 of the query turns by 2 a position, and" in out
    expected = config(example("llama-3.1-8b") | {"head_dim": 64})
    assert main([RIGHT, "--head-dim", "64", "--expected", expected, "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert [finding["code"] for finding in report["findings"]] == ["frequencies"]
    assert report["query"]["layout"] == "half" and len(report["query"]["inv_freq"]) == 32


def test_a_cache_makes_what_follows_the_length_a_fault(capsys):
    dynamic = ["tests.defects.dynamic_base_per_call:rotate", "--head-dim", "64"]
    assert main(dynamic) == 0 and "note length-dependent" in capsys.readouterr().out
    assert main([*dynamic, "--cache"]) == 1
    assert "fault length-dependent" in capsys.readouterr().out


def test_a_configuration_is_explained(capsys, config):
    path = config(example("llama-3.1-8b"))
    for length, planes in (([], "131072: 39"), (["--length", "8192"], "8192: 32")):
        assert main([path, *length]) == 0
        assert f"planes that finish a turn within {planes} of 64" in capsys.readouterr().out
    assert main([path, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    settings = report["settings"]["all layers"]
    assert settings["base"] == 5e5 and settings["extension"]["name"] == "llama3"
    assert [finding["code"] for finding in report["findings"]] == ["moved-base"]
    assert main([config(example("llama-3.1-8b") | {"rope_scaling": {"factor": 8.0}})]) == 1
    assert "fault configuration: 'factor' is no parameter" in capsys.readouterr().out


def test_layer_types_are_explained_one_by_one(capsys, config):
    pytest.importorskip("transformers")
    path = config(example("gemma-3-27b"))
    assert main([path]) == 0
    out = capsys.readouterr().out
    assert "sliding_attention:\n" in out and "full_attention:\n" in out
    assert main([path, "--layer-type", "full_attention"]) == 0
    assert "sliding" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([RIGHT], "--head-dim is missing"),
        (["config.json", "--expected", "config.json"], "--expected is for a function"),
        (["nothing.there:rotate", "--head-dim", "64"], "No module named 'nothing'"),
        (["rope:nothing", "--head-dim", "64"], "no attribute 'nothing'"),
    ],
)
def test_what_can_be_neither_called_nor_read(arguments, words, capsys):
    assert main(arguments) == 2
    assert words in capsys.readouterr().err
