"""From whatever holds a configuration to the facts in it: a flat dict of the text model's keys.

A transformers object, its dict, JSON text or a file; nothing is downloaded and nothing changed.
"""

import copy
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

#: Keys about rotation, so that a new or misspelt one is refused rather than dropped.
ABOUT_ROTATION = re.compile(r"(^|_)(m?rope|rotary|yarn|ntk|longrope)(_|$)")

#: Those that say how to rotate, and those that say which layers or parts.
HOW = (
    "rope_theta rotary_emb_base rope_local_base_freq global_rope_theta local_rope_theta "
    "rope_scaling rope_parameters partial_rotary_factor rotary_pct rotary_dim qk_rope_head_dim "
    "rope_interleave"
)
WHICH = (
    "layer_rope_theta rope_scaling_layers use_mem_rope rotary_value no_rope_layers "
    "no_rope_layer_interval indexer_rope_interleave"
)


def read_facts(config: Any) -> dict[str, Any]:
    """The text model's keys, with those that hold None left out; a copy.

    config: an object with `to_dict`, a mapping, JSON text, or the path of a JSON file. Where it
    has a `text_config`, that part is read.
    Raises TypeError for anything else and for keys that are no strings, ValueError for text that
    is no JSON or says one key twice, and for a part that contradicts the whole.

    >>> read_facts('{"model_type": "llama", "rope_theta": 10000.0, "rope_scaling": null}')
    {'model_type': 'llama', 'rope_theta': 10000.0}
    """
    if isinstance(config, (str, os.PathLike)):
        config = _parsed(os.fspath(config))
    elif callable(getattr(config, "to_dict", None)) and not isinstance(config, type):
        config = config.to_dict()
    if not isinstance(config, Mapping):
        raise TypeError(
            f"config is a {type(config).__name__}; it must be a configuration object with "
            "to_dict(), a dict, JSON text or the path of a JSON file: pass one of these"
        )
    facts = present("config", copy.deepcopy(dict(config)))
    if "text_config" not in facts:
        return facts
    text = present("text_config", held(dict, "text_config", facts))
    for key in filter(ABOUT_ROTATION.search, facts):
        agree(key, "outside text_config", facts[key], "inside", text.get(key))
    return {"model_type": facts.get("model_type"), **text}


def refuse_unknown_keys(facts: Mapping[str, Any]) -> None:
    """Refuse a key about rotation that nothing here reads."""
    known = f"{HOW} {WHICH}"
    for key in filter(ABOUT_ROTATION.search, facts):
        if key not in known.split():
            raise ValueError(
                f"the configuration holds {key!r}, which is not known here; the keys about "
                f"rotation are {known}: rename it to one of these, or remove it if the rotation "
                "does not depend on it"
            )


def present(name: str, facts: Mapping[Any, Any]) -> dict[str, Any]:
    """What does not hold None; refuses a key that is no string, which no JSON has."""
    for key in facts:
        if not isinstance(key, str):
            raise TypeError(
                f"{name} holds the key {key!r}; its keys must be strings, as those of JSON are: "
                f"rename it to {str(key)!r}, or remove it"
            )
    return {key: value for key, value in facts.items() if value is not None}


def held(kind: type, key: str, facts: Mapping[str, Any]) -> Any:
    """The dict or list under a key, empty where there is none."""
    value = facts.get(key, kind())
    if not isinstance(value, Mapping if kind is dict else (list, tuple)):
        raise TypeError(f"{key} is {value!r}; it must be a {kind.__name__}: pass one, or None")
    return kind(value)


def agree(key: str, here: str, one: Any, there: str, other: Any) -> None:
    """Refuse two sayings of one thing that differ."""
    if one != other:
        raise ValueError(
            f"{key} is {one!r} {here} and {other!r} {there}; they must be the same: remove or "
            "correct the one that is not meant"
        )


def _parsed(text: str) -> Any:
    """What a JSON text or file holds."""
    if not text.lstrip().startswith("{"):
        if not Path(text).is_file():
            raise ValueError(
                f"config is {text!r}, and there is no such file; nothing is downloaded: pass the "
                "path of a config.json, its text or a dict"
            )
        text = Path(text).read_text(encoding="utf-8")
    try:
        return json.loads(text, object_pairs_hook=_once)
    except json.JSONDecodeError as error:
        raise ValueError(f"config is no JSON ({error}); pass the text of a config.json") from None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object's keys, refused where one is said twice: Python would take the last."""
    facts: dict[str, Any] = {}
    for key, value in pairs:
        if key in facts:
            raise ValueError(
                f"config holds {key!r} twice, {facts[key]!r} and {value!r}; each key must stand "
                "once in its object: remove the one that is not meant"
            )
        facts[key] = value
    return facts
