"""From whatever holds a configuration to the facts in it: a flat dict of the text model's keys.

A transformers object, its dict, JSON text, a file or a model's folder; nothing is downloaded and
nothing changed.
"""

import json
import os
import re
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

#: Keys about rotation, so that a new or misspelt one is refused rather than dropped.
ABOUT_ROTATION = re.compile(r"(^|_)(m?rope|rotary|yarn|ntk|longrope)(_|$)")

#: Those that are read: how to rotate, and which layers or parts.
READ = (
    "rope_theta rotary_emb_base rope_local_base_freq global_rope_theta local_rope_theta "
    "rope_scaling rope_parameters partial_rotary_factor rotary_pct rotary_dim qk_rope_head_dim "
    "rope_interleave rotary rotary_value no_rope_layers no_rope_layer_interval "
    "indexer_rope_interleave"
)
#: All that a key may be a near miss of, and a neighbour of MLA's that is none.
KNOWN = f"{READ} head_dim original_max_position_embeddings qk_nope_head_dim".split()
ALSO_CALLED = {"theta": "rope_theta", "base": "rope_theta"}
#: Read whole by `parameters`; and what says nothing of this model's rotation, beside parts that
#: hold a model_type.
HOLDERS = ("rope_scaling", "rope_parameters")
NOT_A_MODEL = ("vision_config", "audio_config", "label2id", "quantization_config")
#: Where None is not as good as absent: a class would fill in a number.
NONE_SAYS = ("rotary_dim", "sliding_window")


def read_config(config: Any) -> dict[str, Any]:
    """The whole of a configuration, a new dict.

    config: an object with `to_dict`, a mapping, JSON text, or the path of a JSON file or of the
    folder that holds its config.json.
    Raises TypeError for anything else, ValueError for what is no JSON or says one key twice.
    """
    if isinstance(config, (str, os.PathLike)):
        config = _parsed(os.fsdecode(config))
    elif callable(getattr(config, "to_dict", None)) and not isinstance(config, type):
        config = config.to_dict()
    if not isinstance(config, Mapping):
        raise TypeError(
            f"config is a {type(config).__name__}; it must be a configuration object with "
            "to_dict(), a dict, JSON text or the path of a JSON file: pass one of these"
        )
    return dict(config)


def text_facts(whole: Mapping[str, Any]) -> dict[str, Any]:
    """The text model's keys, those that hold None left out unless None says something.

    Where there is a `text_config`, that part is read.
    Raises ValueError for a part that contradicts the whole.

    >>> text_facts({"model_type": "llama", "rope_theta": 10000.0, "rope_scaling": None})
    {'model_type': 'llama', 'rope_theta': 10000.0}
    """
    facts = present(whole)
    if "text_config" in facts:
        text = present(held(dict, "text_config", facts))
        for key in filter(ABOUT_ROTATION.search, facts):
            agree(key, "outside text_config", facts[key], "inside", text.get(key))
        whole, facts = facts["text_config"], {"model_type": facts.get("model_type"), **text}
    return facts | {key: None for key in NONE_SAYS if key in whole and whole[key] is None}


def refuse_unread(part: Mapping[Any, Any], path: str = "") -> None:
    """Refuse a key about rotation, or a near miss of one, where nothing here reads it.

    path: where the part stands in the whole, "" for the whole itself.
    """
    read = path in ("", "text_config.")
    for key, value in part.items():
        if value is not None:
            _check_name(str(key), path, read)
        inside = dict(enumerate(value)) if isinstance(value, (list, tuple)) else value
        if not isinstance(inside, Mapping) or (read and key in HOLDERS):
            continue
        other = key in NOT_A_MODEL or inside.get("model_type") or "num_hidden_layers" in inside
        if not other or f"{path}{key}" == "text_config":
            refuse_unread(inside, f"{path}{key}.")


def _check_name(key: str, path: str, read: bool) -> None:
    """Refuse one key; path: where it stands; read: whether keys about rotation are read there."""
    name = key.lower()
    about = ABOUT_ROTATION.search(name)
    if key in KNOWN and (read or not about):
        return
    rotating = read or re.search("att|pos|rope|rotar", path)  # elsewhere "base" means much
    also = ALSO_CALLED.get(name, name) if rotating else name
    meant = get_close_matches(also, KNOWN, 1, cutoff=0.9)
    if about or meant:
        way_out = f"rename it to {meant[0]}" if meant else f"the keys are {READ}: rename it"
        raise ValueError(
            f"the configuration holds {path + key!r}, which is not known here; "
            f"{'move it to the top' if key in KNOWN else way_out}, or remove it if the rotation "
            "does not depend on it"
        )


def present(facts: Mapping[Any, Any]) -> dict[Any, Any]:
    """What does not hold None."""
    return {key: value for key, value in facts.items() if value is not None}


def held(kind: type, key: str, facts: Mapping[str, Any]) -> Any:
    """The dict or list under a key, empty where there is none."""
    value = facts.get(key, kind())
    if not isinstance(value, Mapping if kind is dict else (list, tuple)):
        raise TypeError(f"{key} is {value!r}; it must be a {kind.__name__}: pass one, or None")
    return kind(value)


def agree(key: str, here: str, value: Any, there: str, other: Any) -> None:
    """Refuse two values of one thing that differ."""
    if value != other:
        raise ValueError(
            f"{key} is {value!r} {here} and {other!r} {there}; they must be the same: remove or "
            "correct the one that is not meant"
        )


def _parsed(text: str) -> Any:
    """What JSON text holds, a file of it, or a model's folder."""
    path = None
    if not text.lstrip("\ufeff \t\r\n").startswith("{"):
        path = os.path.join(text, "config.json") if os.path.isdir(text) else text
        if not os.path.isfile(path):
            raise ValueError(
                f"config is {text[:80]!r}, and there is no file {path[-80:]!r}; nothing is "
                "downloaded: pass the path of a config.json or its folder, its text or a dict"
            )
    text = Path(path).read_text(encoding="utf-8") if path else text
    return json.loads(text.removeprefix("\ufeff"), object_pairs_hook=_once)


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
