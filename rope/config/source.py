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

from rope.config.layers import check_keys

#: Keys about rotation, so that a new or misspelt one is refused rather than dropped.
ABOUT_ROTATION = re.compile(r"(^|_)(m?rope|rotary|yarn|ntk|longrope)(_|$)")

#: Those that are read, and those that say which layers or parts rotate rather than how.
KNOWN_KEYS = (
    "rope_theta rotary_emb_base rope_local_base_freq global_rope_theta local_rope_theta "
    "rope_scaling rope_parameters partial_rotary_factor rotary_pct rotary_dim qk_rope_head_dim "
    "rope_interleave layer_rope_theta rope_scaling_layers use_mem_rope rotary_value "
    "no_rope_layers no_rope_layer_interval indexer_rope_interleave"
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
        facts = _parse(config)
    elif isinstance(config, Mapping):
        facts = dict(config)
    elif callable(getattr(config, "to_dict", None)) and not isinstance(config, type):
        facts = dict(config.to_dict())
    else:
        raise TypeError(
            f"config is a {type(config).__name__}; it must be a configuration object with "
            "to_dict(), a dict, JSON text or the path of a JSON file: pass one of these"
        )
    check_keys("config", facts)
    facts = {key: value for key, value in copy.deepcopy(facts).items() if value is not None}
    if "text_config" in facts:
        facts = _text_part(facts)
    return facts


def refuse_unknown_keys(facts: Mapping[str, Any]) -> None:
    """Refuse a key about rotation that nothing here reads.

    >>> refuse_unknown_keys({"model_type": "llama", "rope_theta": 10000.0})
    """
    for key in facts:
        if ABOUT_ROTATION.search(key) and key not in KNOWN_KEYS.split():
            raise ValueError(
                f"the configuration holds {key!r}, which is not known here; the keys about "
                f"rotation are {KNOWN_KEYS}: rename it to one of these, or remove it if the "
                "rotation does not depend on it"
            )


def _parse(config: str | os.PathLike[str]) -> dict[str, Any]:
    """The JSON object in a text or a file."""
    text = os.fspath(config)
    if not text.lstrip().startswith("{"):
        if not Path(text).is_file():
            raise ValueError(
                f"config is {text!r}, and there is no such file; nothing is downloaded: pass the "
                "path of a config.json, its text or a dict"
            )
        text = Path(text).read_text(encoding="utf-8")
    try:
        facts = json.loads(text, object_pairs_hook=_once)
    except json.JSONDecodeError as error:
        raise ValueError(f"config is no JSON ({error}); pass the text of a config.json") from None
    if not isinstance(facts, dict):
        raise TypeError(
            f"config is a JSON {type(facts).__name__}; it must be a JSON object: {{...}}"
        )
    return facts


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


def _text_part(facts: dict[str, Any]) -> dict[str, Any]:
    """The `text_config`, which must not contradict what the whole says about rotation."""
    part = facts["text_config"]
    if not isinstance(part, Mapping):
        raise TypeError(
            f"text_config is a {type(part).__name__}; it must be a dict: pass the text model's "
            "configuration itself"
        )
    check_keys("text_config", part)
    text = {key: value for key, value in part.items() if value is not None}
    for key, value in facts.items():
        if ABOUT_ROTATION.search(key) and text.get(key) != value:
            raise ValueError(
                f"{key} is {value!r} outside text_config and {text.get(key)!r} inside; they must "
                "agree: pass the one that is meant, config['text_config'] or the rest"
            )
    return {"model_type": facts.get("model_type"), **text}
