"""From the command line: a function is probed, or a configuration is explained.

    python -m rope.diagnose package.module:function --head-dim 128 --expected config.json
    python -m rope.diagnose config.json --layer-type full_attention --length 131072

An engine that is no Python is asked by one file, and answers by another:

    python -m rope.diagnose probes --head-dim 128 -o probes.safetensors
    python -m rope.diagnose answers answers.safetensors --probes probes.safetensors

The exit status is 1 on a fault, and 2 for what can be neither called nor read.
"""

import argparse
import dataclasses
import importlib
import json
import sys
from pathlib import Path
from typing import Any

import torch

from rope.config import rotary_settings
from rope.diagnose import ConfigurationReport, Report, diagnose, diagnose_configuration
from rope.diagnose.replay import diagnose_answers, write_probes
from rope.extensions import Extension


def main(argv: list[str] | None = None) -> int:
    """Print what is found, and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m rope.diagnose", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("subject", help="package.module:function, config.json or a model's folder")
    parser.add_argument("answers", nargs="?", help="their file, answers.safetensors if none")
    parser.add_argument("--head-dim", type=int, help="of the function's queries and keys")
    parser.add_argument("--heads", type=int, nargs=2, default=(), metavar=("H", "H_KV"))
    parser.add_argument("--expected", help="a configuration that the function should follow")
    parser.add_argument("--layer-type", help="which layers, where they differ")
    parser.add_argument("--length", type=int, help="the length in use, the model's own otherwise")
    parser.add_argument("--cache", action="store_true", help="keys of earlier calls are kept")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("-o", "--output", help="the probes to write, probes.safetensors if none")
    parser.add_argument("--probes", help="those that are answered, probes.safetensors if none")
    parser.add_argument("--axes", default="bhsd", help="of the probes' q and k: bhsd or bshd")
    arguments = parser.parse_args(argv)
    try:
        if arguments.subject == "probes":
            return _probes(arguments)
        answered = arguments.subject == "answers"
        probed = ":" in arguments.subject and not Path(arguments.subject).exists()
        judge = _answers if answered else _function if probed else _configuration
        report = judge(arguments)
    except (AttributeError, ImportError, OSError, TypeError, ValueError) as error:
        print(error, file=sys.stderr)
        return 2
    print(_json(report) if arguments.json else report)
    return 0 if report.ok else 1


def _function(arguments: argparse.Namespace) -> Report:
    if arguments.head_dim is None:
        raise ValueError("--head-dim is missing; a function must have one: add --head-dim 128, say")
    module, _, name = arguments.subject.partition(":")
    sys.path.insert(0, "")  # as python -c has it
    rotate = importlib.import_module(module)
    for part in name.split("."):
        rotate = getattr(rotate, part)
    options = _expected(arguments) | _numbers(arguments)
    return diagnose(rotate, arguments.head_dim, **options)  # type: ignore[arg-type]


def _probes(arguments: argparse.Namespace) -> int:
    if arguments.answers or arguments.probes or arguments.expected:
        raise ValueError("probes are written to -o, and know no answers and no --expected")
    path = arguments.output or "probes.safetensors"
    write_probes(path, arguments.head_dim, axes=arguments.axes, **_numbers(arguments))
    return 0


def _answers(arguments: argparse.Namespace) -> Report:
    if arguments.output:
        raise ValueError("-o is for probes, and answers are read: leave it out")
    answers, probes = arguments.answers, arguments.probes
    return diagnose_answers(
        answers or "answers.safetensors", probes or "probes.safetensors", **_expected(arguments)
    )


def _expected(arguments: argparse.Namespace) -> dict[str, Any]:
    expected = arguments.expected
    if expected is not None:
        expected = rotary_settings(expected, layer_type=arguments.layer_type)
    return {"expected": expected, "cache": arguments.cache}


def _numbers(arguments: argparse.Namespace) -> dict[str, Any]:
    options = dict(zip(("num_heads", "num_kv_heads"), arguments.heads, strict=False))
    return options | ({} if arguments.length is None else {"max_position": arguments.length})


def _configuration(arguments: argparse.Namespace) -> ConfigurationReport:
    if arguments.expected is not None:
        raise ValueError(
            "--expected is for a function, and a configuration is compared with none: leave it out"
        )
    return diagnose_configuration(
        arguments.subject, layer_type=arguments.layer_type, length=arguments.length
    )


def _json(value: Any) -> str:
    def plain(part: Any) -> Any:
        if isinstance(part, torch.Tensor):
            return part.tolist()
        name = {"name": part.name} if isinstance(part, Extension) else {}
        return name | {field.name: getattr(part, field.name) for field in dataclasses.fields(part)}

    return json.dumps(value, indent=1, default=plain)


if __name__ == "__main__":
    raise SystemExit(main())
