"""Test the output and the exit status of `python -m rope.diagnose`."""

import json

import pytest

import rope
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
    out = capsys.readouterr().out
    assert "float64" in out and "131071" in out and "base 10000" in out
    assert main([WRONG, "--head-dim", "64", "--heads", "2", "2", "--length", "4096"]) == 1
    out = capsys.readouterr().out
    assert "4095" in out and "fault frequencies" in out and "query rotates by 2 " in out
    dynamic = ["tests.defects.dynamic_base_per_call:rotate", "--head-dim", "64"]
    assert [main(dynamic), main([*dynamic, "--cache"])] == [0, 1]
    assert "note length-dependent" in (out := capsys.readouterr().out) and "fault length" in out
    expected = config(example("llama-3.1-8b") | {"head_dim": 64})
    assert main([RIGHT, "--head-dim", "64", "--expected", expected]) == 1
    assert "fault frequencies" in (out := capsys.readouterr().out) and "query: half" in out


def test_a_configuration_is_explained(capsys, config):
    path = config(example("llama-3.1-8b"))
    theta = rope.RotaryEmbedding.from_config(path).inv_freq
    assert main([path]) == 0
    out = capsys.readouterr().out
    assert f"base: 500000, frequencies 1 to {theta.min():.4g}" in out and "Llama3(" in out
    assert "note moved-base" in out and "fault " not in out.partition("\n")[2]
    assert main([config(example("llama-3.1-8b") | {"rope_scaling": {"factor": 8.0}})]) == 1
    out = capsys.readouterr().out
    assert "fault configuration" in out and "'factor'" in out


def test_layer_types_are_explained_one_by_one(capsys, config):
    pytest.importorskip("transformers")
    path = config(example("gemma-3-27b"))
    assert main([path]) == 0
    out = capsys.readouterr().out
    assert "sliding_attention:\n" in out and "full_attention:\n" in out
    assert main([path, "--layer-type", "full_attention"]) == 0
    assert "sliding" not in capsys.readouterr().out


# Each case: the arguments, and what the message must contain.
UNREADABLE = [
    ("nope.json", "nope.json"),
    ("tests.defects.te_base_fixed.rotate", "write tests.defects.te_base_fixed:rotate"),
    ("{}/broken.json", "broken.json can't be read"),
    (f"{RIGHT} --head-dim 48", "It accepts --head-dim 64"),
    (f"{RIGHT} --head-dim 15", "--head-dim is 15"),
    (f"{RIGHT} --head-dim 64 --length 8", "--length is 8"),
    ("compare answers.json", "compare needs two files"),
    ("nothing.there:rotate --head-dim 64", "'nothing'"),
    ("rope:nothing --head-dim 64", "'nothing'"),
    (RIGHT, "--head-dim is missing"),
    ("answers {}/none.json --probes {}/none.json", "none.json"),
    ("answers {}/broken.json --probes {}/broken.json", "broken.json"),
    ("answers {}/x.safetensors --probes {}/x.safetensors", "x.safetensors"),
    ("answers {}/empty.json --probes {}/empty.json", "python -m rope.diagnose probes"),
    ("probes --head-dim 64 -o {}/x.txt", "x.txt; it must end with .safetensors"),
    (f"probes --head-dim 8 --length {2**31}", "--length is 2147483648; it must be below 2**31"),
]


@pytest.mark.parametrize(("arguments", "message"), UNREADABLE)
def test_what_cannot_be_read_exits_with_2_and_says_what_to_change(
    arguments, message, tmp_path, capsys
):
    for name, text in {"broken.json": '{"a":', "x.safetensors": "{}x", "empty.json": "{}"}.items():
        (tmp_path / name).write_text(text)
    assert main(arguments.replace("{}", str(tmp_path)).split()) == 2
    assert message in capsys.readouterr().err
