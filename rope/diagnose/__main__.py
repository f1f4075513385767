"""From the command line: a function is probed, or a configuration is explained.

    python -m rope.diagnose package.module:function --head-dim 128 --expected config.json
    python -m rope.diagnose config.json --layer-type full_attention --length 131072

The exit status is 1 on a fault, and 2 for what can be neither called nor read.
"""

import argparse
import dataclasses
import importlib
import json
import math
import sys
from pathlib import Path
from typing import Any

import torch

from rope.config import RotarySettings, rotary_settings
from rope.config.classes import class_facts
from rope.config.parameters import layer_entries
from rope.config.source import read_config, text_facts
from rope.diagnose import diagnose
from rope.extensions import Extension
from rope.frequencies import inverse_frequencies


def main(arguments: list[str] | None = None) -> int:
    """Print what is found, and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m rope.diagnose", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("subject", help="package.module:function, config.json or a model's folder")
    parser.add_argument("--head-dim", type=int, help="of the function's queries and keys")
    parser.add_argument("--heads", type=int, nargs=2, default=(4, 2), metavar=("H", "H_KV"))
    parser.add_argument("--expected", help="a configuration that the function should follow")
    parser.add_argument("--layer-type", help="which layers, where they differ")
    parser.add_argument("--length", type=int, help="the length in use, the model's own otherwise")
    parser.add_argument("--json", action="store_true", help="print JSON")
    given = parser.parse_args(arguments)
    try:
        if ":" in given.subject and not Path(given.subject).exists():
            return _function(given)
        return _configuration(given)
    except (AttributeError, ImportError, OSError, TypeError, ValueError) as error:
        print(error, file=sys.stderr)
        return 2


def _function(given: argparse.Namespace) -> int:
    if given.head_dim is None:
        raise ValueError("--head-dim is missing; a function must have one: add --head-dim 128, say")
    module, _, name = given.subject.partition(":")
    sys.path.insert(0, "")  # as python -c has it
    rotate = importlib.import_module(module)
    for part in name.split("."):
        rotate = getattr(rotate, part)
    expected = given.expected
    if expected is not None:
        expected = rotary_settings(expected, layer_type=given.layer_type)
    heads = dict(zip(("num_heads", "num_kv_heads"), given.heads, strict=True))
    options = {} if given.length is None else {"max_position": given.length}
    report = diagnose(rotate, given.head_dim, expected=expected, **heads, **options)  # type: ignore[arg-type]
    print(_json(report) if given.json else report)
    return 0 if report.ok else 1


def _configuration(given: argparse.Namespace) -> int:
    """What a configuration means, by layer type; what is refused in it is the fault."""
    try:
        facts = text_facts(read_config(given.subject))
        entries = layer_entries(facts)
        standard = class_facts(facts, entries)  # what the model's class in transformers adds
        entries = {**layer_entries(standard), **entries}
        types = {**standard, **facts}.get("layer_types") or entries
        named = [kind for kind in types if entries.get(kind)]
        kinds = dict.fromkeys([given.layer_type] if given.layer_type is not None else named)
        found = {
            kind or "all layers": rotary_settings(given.subject, layer_type=kind)
            for kind in kinds or (None,)
        }
    except ValueError as error:
        print(_json({"fault": str(error)}) if given.json else f"fault: {error}")
        return 1
    if given.json:
        print(_json(found))
        return 0
    for kind, settings in found.items():
        print("\n  ".join([f"{kind}:", *_explained(settings, given.length)]))
    return 0


def _explained(settings: RotarySettings, length: int | None) -> list[str]:
    """Lines for people: what these settings mean."""
    length = length or settings.max_position_embeddings
    extension, width = settings.extension, settings.dim
    theta = inverse_frequencies(width, settings.base, extension=extension, seq_len=length)
    layout = "interleaved, planes (2j, 2j+1)" if settings.interleaved else "half, planes (j, j+R/2)"
    lines = [
        f"layout: {layout}",
        f"width: {width} of {settings.head_dim} coordinates of a head, {width // 2} planes",
        f"base: {settings.base:g}, frequencies {theta.max():.4g} to {theta.min():.4g}",
        f"extension: {extension}, made for up to {extension.reach or 'any length'}",
        f"factor on cos and sin: {extension.attention_scaling:.6g}, applied by the rotation",
        f"factor on the softmax's scale: {settings.softmax_scale:.6g}, applied by the attention",
    ]
    if settings.sections is not None:
        lines.append(f"axes: M-RoPE, planes by axis {list(settings.sections)}")
    if settings.rotates is not None and not all(settings.rotates):
        still = [str(layer) for layer, turns in enumerate(settings.rotates) if not turns]
        lines.append(f"layers without rotation: {', '.join(still)}")
    if length is not None:
        turned = int((theta * length >= 2 * math.pi).sum())
        lines.append(f"planes that finish a turn within {length}: {turned} of {width // 2}")
    return lines


def _json(value: Any) -> str:
    def plain(each: Any) -> Any:
        if isinstance(each, torch.Tensor):
            return each.tolist()
        fields = {field.name: getattr(each, field.name) for field in dataclasses.fields(each)}
        return {"name": each.name, **fields} if isinstance(each, Extension) else fields

    return json.dumps(value, indent=1, default=plain)


if __name__ == "__main__":
    raise SystemExit(main())
