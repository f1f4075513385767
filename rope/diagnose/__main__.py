"""Diagnose a function, an engine, or a configuration; `findings.txt` has the usage."""

import argparse
import importlib
import re
import sys
from operator import attrgetter
from pathlib import Path
from typing import Any

from rope.config.source import read_config
from rope.diagnose import ConfigurationReport, Report, diagnose, diagnose_configuration
from rope.diagnose.codes import USAGE
from rope.diagnose.configuration import model_settings
from rope.diagnose.replay import compare_answers, diagnose_answers, write_probes

OPTIONS = {
    "head_dim=": "--head-dim ",
    "head_dim": "--head-dim",
    "num_heads and num_kv_heads": "--heads",
    "max_position": "--length",
    "write_probes": "python -m rope.diagnose probes",
}


def main(argv: list[str] | None = None) -> int:
    """Print a report or write probes, and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m rope.diagnose", description=USAGE)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    add = parser.add_argument
    add("subject", help="module:function, a config.json or its folder, or probes, answers, compare")
    add("answers", nargs="?", default="answers.safetensors", help="the file of an engine's answers")
    add("other", nargs="?", help="another engine's answers, for compare")
    add("--head-dim", type=int, help="the head dimension of the queries and keys")
    add("--heads", type=int, nargs=2, default=(), metavar=("H", "H_KV"), help="how many heads")
    add("--expected", help="a configuration that the function should follow")
    add("--layer-type", help="the layer type, if the configuration has several")
    add("--length", type=int, help="the longest text's length; all positions are below it")
    add("--cache", action="store_true", help="check the function as one whose keys are cached")
    add("-o", "--output", default="probes.safetensors", help="the file to write probes to")
    add("--probes", default="probes.safetensors", help="the file of probes that were answered")
    arguments = parser.parse_args(argv)
    try:
        report = _report(arguments)
    except (AttributeError, ImportError, OSError, TypeError, ValueError) as error:
        message = str(error)
        for name, option in OPTIONS.items():
            message = re.sub(rf"(?<!\w){name}(?![a-z_])", option, message)
        print(message, file=sys.stderr)
        return 2
    if report is None:
        return 0
    print(report)
    return 0 if report.ok else 1


def _report(arguments: argparse.Namespace) -> Report | ConfigurationReport | None:
    """Return the requested report, or write probes and return None."""
    subject, layer_type = arguments.subject, arguments.layer_type
    is_function = ":" in subject and not Path(subject).exists()
    if not is_function and subject not in ("probes", "answers", "compare"):
        try:
            read_config(subject)
        except ValueError as error:
            hint = "; if you mean a function, write " + re.sub(r"\.(\w+)$", r":\1", subject)
            raise ValueError(f"{subject} can't be read ({error}){hint}") from error
        return diagnose_configuration(subject, layer_type=layer_type, length=arguments.length)
    numbers = dict(zip(("num_heads", "num_kv_heads"), arguments.heads, strict=False))
    if arguments.length is not None:
        numbers["max_position"] = arguments.length
    if subject not in ("answers", "compare") and arguments.head_dim is None:
        raise ValueError("--head-dim is missing; add it, for example --head-dim 128")
    if subject == "probes":
        write_probes(arguments.output, arguments.head_dim, **numbers)
        return None
    expected = arguments.expected and model_settings(arguments.expected, layer_type)
    options: dict[str, Any] = {"expected": expected, "cache": arguments.cache}
    if subject == "compare":
        if arguments.other is None:
            raise ValueError("compare needs two files of answers; name both")
        return compare_answers(arguments.answers, arguments.other, arguments.probes)
    if subject == "answers":
        return diagnose_answers(arguments.answers, arguments.probes, **options)
    module, _, name = subject.partition(":")
    sys.path.insert(0, "")  # find modules in the current folder, as python -c does
    rotate = attrgetter(name)(importlib.import_module(module))
    return diagnose(rotate, arguments.head_dim, **options, **numbers)


if __name__ == "__main__":
    raise SystemExit(main())
