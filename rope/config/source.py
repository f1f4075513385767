"""Read a configuration into a flat dict of the text model's keys.

The source can be a transformers object, a dict, JSON text, a JSON file, or a model's folder.
Nothing is downloaded, and the source is not changed.
"""

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

#: Matches the names of RoPE keys. An unknown RoPE key raises an error instead of being ignored.
ABOUT_ROTATION = re.compile(r"(^|_)(m?rope|rotary|yarn|ntk|longrope)(_|$)", re.IGNORECASE)

#: The RoPE keys that this package reads.
READ = (
    "rope_theta rotary_emb_base rope_local_base_freq global_rope_theta local_rope_theta "
    "swa_rope_theta compress_rope_theta layer_rope_theta rope_scaling rope_parameters "
    "partial_rotary_factor partial_rotary_factors rotary_pct rotary_dim qk_rope_head_dim "
    "rope_interleave rotary rotary_value no_rope_layers no_rope_layer_interval "
    "indexer_rope_interleave yarn_only_types"
)
#: The keys of the dicts whose contents `rope.config.parameters` checks.
HOLDERS = ("rope_scaling", "rope_parameters")
#: Keys of parts that don't describe a text model. `check_unread` also skips other models' parts.
NOT_A_MODEL = ("vision_config", "audio_config", "label2id", "quantization_config")
#: Keys to keep even if their value is None, because the class sets a number for absent keys.
KEEP_NONE = ("rotary_dim", "sliding_window")


def read_config(config: Any) -> dict[str, Any]:
    """Return the entire configuration as a new dict.

    config: an object with `to_dict`, a mapping, JSON text, or the path of a JSON file or of a
    folder that contains a config.json.
    Raises TypeError for any other type, and ValueError for a missing file or invalid JSON.
    """
    if isinstance(config, (str, os.PathLike)):
        text = os.fsdecode(config).lstrip("\ufeff \t\r\n")
        if not text.startswith("{"):
            path = Path(config)
            path = path / "config.json" if path.is_dir() else path
            if not path.is_file():
                raise ValueError(
                    f"config is {text[:80]!r}; this file doesn't exist, and nothing is downloaded; "
                    "pass the path of a config.json or of its folder, JSON text, or a dict"
                )
            text = path.read_text(encoding="utf-8-sig")
        config = json.loads(text)
    elif callable(getattr(config, "to_dict", None)) and not isinstance(config, type):
        config = config.to_dict()
    if not isinstance(config, Mapping):
        raise TypeError(
            f"config has type {type(config).__name__}; it must be an object with to_dict(), a "
            "dict, JSON text, or the path of a JSON file"
        )
    return dict(config)


def text_facts(whole: Mapping[str, Any]) -> dict[str, Any]:
    """Return the text model's keys. Drop keys whose value is None, except those in KEEP_NONE.

    Reads `text_config` if there is one. Raises ValueError if an outer RoPE key contradicts it.
    """
    facts = present(whole)
    if "text_config" in facts:
        text = present(get_as(dict, "text_config", facts))
        for key in filter(ABOUT_ROTATION.search, facts):
            check_equal(key, "outside text_config", facts[key], "inside", text.get(key))
        whole, facts = facts["text_config"], {"model_type": facts.get("model_type"), **text}
    alias = {"model_type": "deepseek_v3"} if facts.get("model_type") == "kimi_k2" else {}
    return facts | alias | {key: None for key in KEEP_NONE if key in whole and whole[key] is None}


def check_unread(part: Mapping[Any, Any], path: str = "") -> None:
    """Raise ValueError for a RoPE key that this package would ignore.

    path: the keys that lead to the part, or "" for the entire configuration.
    """
    is_read = path in ("", "text_config.")
    for key, value in part.items():
        about_rotation = value not in (None, []) and ABOUT_ROTATION.search(str(key))
        if about_rotation and not (is_read and key in READ.split()):
            raise ValueError(
                f"the configuration has the unknown key {f'{path}{key}'!r}; remove it if the "
                f"rotation doesn't depend on it, or use one of these top-level keys: {READ}"
            )
        inside = dict(enumerate(value)) if isinstance(value, (list, tuple)) else value
        if not isinstance(inside, Mapping) or (is_read and key in HOLDERS):
            continue
        other = key in NOT_A_MODEL or inside.get("model_type") or "num_hidden_layers" in inside
        if not other or f"{path}{key}" == "text_config":
            check_unread(inside, f"{path}{key}.")


def present(facts: Mapping[Any, Any]) -> dict[Any, Any]:
    """Return the items whose value is not None."""
    return {key: value for key, value in facts.items() if value is not None}


def get_as(kind: type, key: str, facts: Mapping[Any, Any]) -> Any:
    """Return a key's value, or an empty `kind` if absent. Raise TypeError unless it is a `kind`."""
    value = facts.get(key, kind())
    if not isinstance(value, Mapping if kind is dict else (list, tuple)):
        raise TypeError(f"{key} is {value!r}; it must be a {kind.__name__} or None")
    return kind(value)


def check_equal(key: str, here: str, value: Any, there: str, other: Any) -> None:
    """Raise ValueError if two places give different values for a key."""
    if value != other:
        raise ValueError(
            f"{key} is {value!r} {here} but {other!r} {there}; correct or remove one of them"
        )
