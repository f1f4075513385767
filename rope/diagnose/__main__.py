"""From the command line: a function is probed, or a configuration is explained.

    python -m rope.diagnose package.module:function --head-dim 128 --expected config.json
    python -m rope.diagnose config.json --layer-type full_attention --length 131072

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
from rope.extensions import Extension


def main(argv: list[str] | None = None) -> int:
    """Print what is found, and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m rope.diagnose", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("subject", help="package.module:function, config.json or a model's folder")
    parser.add_argument("--head-dim", type=int, help="of the function's queries and keys")
    parser.add_argument("--heads", type=int, nargs=2, default=(4, 2), metavar=("H", "H_KV"))
    parser.add_argument("--expected", help="a configuration that the function should follow")
    parser.add_argument("--layer-type", help="which layers, where they differ")
    parser.add_argument("--length", type=int, help="the length in use, the model's own otherwise")
    parser.add_argument("--cache", action="store_true", help="keys of earlier calls are kept")
    parser.add_argument("--json", action="store_true", help="print JSON")
    arguments = parser.parse_args(argv)
    try:
        probes = ":" in arguments.subject and not Path(arguments.subject).exists()
        report = _function(arguments) if probes else _configuration(arguments)
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
    expected = arguments.expected
    if expected is not None:
        expected = rotary_settings(expected, layer_type=arguments.layer_type)
    heads = dict(zip(("num_heads", "num_kv_heads"), arguments.heads, strict=True))
    options = {"cache": arguments.cache}
    options |= {} if arguments.length is None else {"max_position": arguments.length}
    return diagnose(rotate, arguments.head_dim, expected=expected, **heads, **options)  # type: ignore[arg-type]


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
