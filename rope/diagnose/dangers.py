"""The checks of a configuration: which dangers of the catalogue it has, and in what numbers."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rope.config import RotarySettings, rotary_settings
from rope.config.parameters import Entries
from rope.diagnose.report import Finding, danger
from rope.extensions import Llama3, LongRoPE, YaRN, mscale

#: Keys that some classes read and others do not.
_OWN = (
    *("rotary_dim", "rotary_pct", "rotary_emb_base", "partial_rotary_factor"),
    *("rope_local_base_freq", "global_rope_theta", "local_rope_theta", "layer_rope_theta"),
    *("rope_scaling_layers", "no_rope_layers", "no_rope_layer_interval"),
)
_TRAINED = "original_max_position_embeddings"


@dataclass(frozen=True)
class Case:
    """A configuration as read: its facts, the class's, entries and settings by layer type."""

    facts: dict[str, Any]
    standard: dict[str, Any]
    entries: Entries
    settings: dict[str | None, RotarySettings]
    length: int | None = None


def dangers(case: Case) -> list[Finding]:
    """All that is found, each once."""
    checks = (_holders, _ignored, _layers, _base, _lengths, _factors)
    return list(dict.fromkeys(danger for check in checks for danger in check(case)))


@cache
def _code(model: Any) -> tuple[str, str] | None:
    """The class's configuration and its model in transformers, as text; None if not found."""
    spec = find_spec("transformers")
    if spec is None or not isinstance(model, str):
        return None
    for name in (model, model.removesuffix("_text")):
        folder = Path(str(spec.origin)).parent / "models" / name
        files = [folder / f"{part}_{name}.py" for part in ("configuration", "modeling")]
        if all(file.is_file() for file in files):
            configuration, modeling = (file.read_text(encoding="utf-8") for file in files)
            return configuration, modeling
    return None


def _reads(code: tuple[str, str], key: str) -> bool:
    """Whether the configuration has such a field, or the model asks for it."""
    configuration, modeling = code
    asked = rf"config\.{key}\b|[\"']{key}[\"']"
    return key in configuration or re.search(asked, modeling) is not None


def _holders(case: Case) -> Iterator[Finding]:
    """What convert_rope_params_to_dict loses: rope_scaling replaces rope_parameters whole."""
    old, new = (case.facts.get(key) or {} for key in ("rope_scaling", "rope_parameters"))
    kept = {"rope_theta": 10000.0, "rope_type": old.get("type", "default"), **case.facts, **old}
    lost = [key for key, value in new.items() if kept.get(key) != value]
    if old and lost:
        yield danger("two-holders", lost=", ".join(lost))


def _ignored(case: Case) -> Iterator[Finding]:
    """Keys without which the class, which does not read them, would rotate otherwise."""
    model, code = case.facts.get("model_type"), _code(case.facts.get("model_type"))
    if code is None:
        return
    known = dict(model=model, version=version("transformers"))
    if None not in case.entries and not _reads(code, "layer_types"):
        yield danger("nested-parameters", kinds=", ".join(map(str, case.entries)), **known)
    for kind, ours in case.settings.items():
        # Every other type's function reads the share, and multi-head latent attention has none.
        shared = ours.extension.name != "default" or "qk_rope_head_dim" in case.facts
        for key in _OWN:
            entry = case.entries.get(kind) or case.entries.get(None) or {}
            value = case.facts.get(key, entry.get(key))
            if value is None or _reads(code, key) or (key == "partial_rotary_factor" and shared):
                continue
            yield from _change(ours, case.facts, kind, key=key, value=value, **known)


def _change(
    ours: RotarySettings, facts: dict[str, Any], kind: str | None, *, key: str, **known: Any
) -> Iterator[Finding]:
    """How a class rotates that does not read the key; nothing where it is all the same."""
    try:
        theirs = rotary_settings(_without(facts, key), layer_type=kind)
    except ValueError as error:
        yield danger("ignored-key", "unreadable", key=key, error=error, **known)
        return
    for name in (field.name for field in fields(ours)):
        read, written = (_plain(getattr(settings, name)) for settings in (theirs, ours))
        if read != written:
            change = dict(key=key, field=name, read=read, written=written)
            yield danger("ignored-key", "changed", **change, **known)
            return


def _without(facts: Mapping[str, Any], key: str) -> dict[str, Any]:
    """The configuration less one key, at the top and inside."""
    return {
        name: _without(value, key) if isinstance(value, Mapping) else value
        for name, value in facts.items()
        if name != key
    }


def _plain(value: Any) -> Any:
    """Which layers rotate in words, anything else as it is."""
    if value is None or (isinstance(value, tuple) and set(value) <= {True, False}):
        layers = unrotated(value)
        return f"false in {layers}" if layers else "true in all layers"
    return value


def unrotated(rotates: tuple[bool, ...] | None) -> str:
    """The numbers of the layers that do not rotate."""
    return ", ".join(str(layer) for layer, turns in enumerate(rotates or ()) if not turns)


def _layers(case: Case) -> Iterator[Finding]:
    """Which layers rotate, and whether by one spectrum."""
    complete = {**case.standard, **case.facts}
    turning = [bool(flag) for flag in complete.get("no_rope_layers") or ()]
    interval = complete.get("no_rope_layer_interval")
    code = _code(case.facts.get("model_type"))
    unread = code is not None and not _reads(code, "no_rope_layers")
    reverse = [(layer + 1) % interval == 0 for layer in range(len(turning))] if interval else []
    if turning and turning == reverse and not unread:
        flags = dict(interval=interval, turning=sum(turning), all=len(turning))
        yield danger("no-rope-reversed", **flags)
    for layers in {unrotated(settings.rotates) for settings in case.settings.values()}:
        if layers and "no_rope_layers" not in case.facts:
            yield danger("unrotated-layers", layers=layers)
        elif layers and not unread:
            yield danger("no-rope-flags", layers=layers)
    kinds = {(ours.base, ours.extension): kind for kind, ours in case.settings.items()}
    if len(kinds) > 1:
        spectra = [f"{kind} base {base:g}, {ext.name}" for (base, ext), kind in kinds.items()]
        yield danger("layer-types", spectra="; ".join(spectra))
    for settings in case.settings.values():
        dim, head_dim = settings.dim, settings.head_dim
        if settings.sections is not None and dim < head_dim:
            yield danger("partial-mrope", dim=dim, head_dim=head_dim, rest=head_dim - dim)


def _base(case: Case) -> Iterator[Finding]:
    """A base that code written for another version of transformers does not find."""
    places = {
        "at the top": any(key in case.facts for key in ("rope_theta", "rotary_emb_base")),
        "in rope_parameters": any(
            entry and "rope_theta" in entry for entry in case.entries.values()
        ),
    }
    where = " and ".join(place for place, holds in places.items() if holds)
    for settings in case.settings.values():
        if where and settings.base != 10000:
            yield danger("moved-base", base=settings.base, where=where)


def _lengths(case: Case) -> Iterator[Finding]:
    """The trained length, the factor and the longest context against each other."""
    for kind, settings in case.settings.items():
        extension, longest = settings.extension, settings.max_position_embeddings
        entry = case.entries.get(kind) or case.entries.get(None) or {}
        if isinstance(extension, (YaRN, LongRoPE, Llama3)):
            trained, product = extension.original_max_position_embeddings, extension.reach
            # Llama 3.1's own 8 x 8192 is half of its 131072.
            fits = longest in (None, trained, product) or extension.name == "llama3"
            if _TRAINED not in entry and _TRAINED not in case.facts:
                yield danger("trained-length", length=longest)
            elif not fits or (longest or trained) < trained:
                lengths = dict(product=product, trained=trained, longest=longest)
                yield danger("lengths", factor=extension.factor or 1, **lengths)
        if extension.length_dependent:
            yield danger("length-dependent", trained=getattr(extension, _TRAINED))
        reach = max(extension.reach or 0, longest or 0)
        if case.length is not None and reach and case.length > reach:
            yield danger("beyond-reach", length=case.length, reach=reach)


def _factors(case: Case) -> Iterator[Finding]:
    """YaRN's factor on cos and sin, and its ramp."""
    for kind, settings in case.settings.items():
        extension = settings.extension
        if not isinstance(extension, YaRN):
            continue
        given, formula = extension.attention_scaling, mscale(extension.factor)
        pair = {key: getattr(extension, key) for key in ("mscale", "mscale_all_dim")}
        if extension.attention_factor is not None:
            if abs(given - formula) > 1e-6:
                yield danger("attention-factor", given=given, formula=formula)
        elif all(pair.values()):
            yield danger("mscale", read=given, unread=formula, **pair)
        elif any(pair.values()):
            yield danger("mscale-alone", key=next(key for key, value in pair.items() if value))
        if kind is not None and None not in case.entries and not extension.truncate:
            yield danger("truncate-nested", kind=kind)
