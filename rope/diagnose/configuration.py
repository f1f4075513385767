"""Explain what a configuration says about rotation, and warn about settings that engines misread.

A configuration that can't be read is a fault, and so is a key that the model's code ignores. All
other warnings are notes.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from textwrap import shorten
from types import SimpleNamespace
from typing import Any

from rope.config import RotarySettings, rotary_settings
from rope.config.classes import class_facts
from rope.config.models import FIXED_BASE, LAYOUTS, PARTIAL
from rope.config.parameters import TRAINED, entry_key, layer_entries
from rope.config.source import read_config, text_facts
from rope.diagnose.codes import CONFIGURATION as TEXTS
from rope.diagnose.codes import Finding, all_notes, finding
from rope.extensions import Default, Llama3, LongRoPE, YaRN, mscale
from rope.frequencies import inverse_frequencies


@dataclass(frozen=True)
class ConfigurationReport:
    """Hold an explained configuration: the `settings` of each layer type, and the `findings`.

    length: the length in use, or None for the model's own length.
    """

    settings: dict[str, RotarySettings] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    length: int | None = None

    @property
    def ok(self) -> bool:
        """Return True if no finding is a fault.

        >>> ConfigurationReport().ok
        True
        """
        return all_notes(self.findings)

    def __str__(self) -> str:
        explained = [
            "\n  ".join([f"{kind}:", *_explained(settings, self.length)])
            for kind, settings in self.settings.items()
        ]
        verdict = "no fault found" if self.ok else "fault found"
        return "\n".join([verdict, *explained, *map(str, self.findings)])


def model_settings(config: Any, layer_type: str | None = None) -> SimpleNamespace:
    """Return a namespace with a configuration's keys and its rotary settings."""
    settings = rotary_settings(config, layer_type=layer_type)
    return SimpleNamespace(**{**text_facts(read_config(config)), **vars(settings)})


def diagnose_configuration(
    config: Any,
    *,
    layer_type: str | None = None,
    layer: int | None = None,
    length: int | None = None,
) -> ConfigurationReport:
    """Return a report on what a configuration says about rotation, including warnings.

    config: as in `rope.config.rotary_settings`. layer_type, layer: the only type or the only layer
    to explain, or None to explain all. length: the length in use, or None for the model's own.
    Raises TypeError if config is not a configuration.

    >>> from rope.config import example
    >>> report = diagnose_configuration(example("deepseek-v3"))
    >>> report.ok, [finding.code for finding in report.findings]
    (True, ['attention-factor'])
    """
    try:
        facts = text_facts(read_config(config))
        entries = layer_entries(facts)
        standard = class_facts(facts, entries)  # what the model's class in transformers adds
        complete = {**layer_entries(standard), **entries}
        merged = {**standard, **facts}
        types = merged.get("layer_types") or complete
        bases = {base: number for number, base in enumerate(merged.get("layer_rope_theta") or ())}
        name = layer_type if layer is None else f"layer {layer}"
        choices: dict[str | None, tuple[str | None, int | None]] = {name: (layer_type, layer)}
        if layer_type is None and layer is None:
            named = [kind for kind in types if complete.get(entry_key(complete, kind))]
            choices = {kind: (kind, None) for kind in named} or choices
            if len(bases) > 1:  # the layers differ within a type
                choices = {f"base {base:g}": (None, bases[base]) for base in bases if base}
        by_type = {
            name: rotary_settings(config, layer_type=kind, layer=number)
            for name, (kind, number) in choices.items()
        }
    except ValueError as error:
        fault = finding(TEXTS["configuration"], error=error)
        return ConfigurationReport(findings=[fault], length=length)
    findings: dict[Finding, None] = {}
    for kind, ours in by_type.items():
        entry = entries.get(kind) or entries.get(None) or {}
        findings |= dict.fromkeys(config_warnings(facts, entry, ours))
    settings = {kind or "all layers": settings for kind, settings in by_type.items()}
    return ConfigurationReport(settings, list(findings), length)


def _explained(settings: RotarySettings, length: int | None) -> list[str]:
    """Return the settings in words, as a list of lines."""
    length = length or settings.max_position_embeddings
    extension, width = settings.extension, settings.dim
    theta = inverse_frequencies(width, settings.base, extension=extension, seq_len=length)
    layout = "interleaved, planes (2j, 2j+1)" if settings.interleaved else "half, planes (j, j+R/2)"
    axes = [f"axes: M-RoPE, planes by axis {list(settings.sections or ())}"]
    return [
        f"layout: {layout}",
        f"width: {width} of {settings.head_dim} coordinates of a head, {width // 2} planes",
        f"base: {settings.base:g}, frequencies {theta.max():.4g} to {theta.min():.4g}",
        f"extension: {shorten(str(extension), 160)}",
        f"factor on cos and sin: {extension.attention_scaling:.6g}, applied by the rotation",
        f"factor on the softmax's scale: {settings.softmax_scale:.6g}, applied by the attention",
        *(axes if settings.sections else ()),
    ]


def config_warnings(
    facts: Mapping[str, Any], entry: Mapping[str, Any], settings: RotarySettings
) -> Iterator[Finding]:
    """Yield warnings for a layer type. facts: the configuration. entry: the type's rotary keys."""
    extension, model_type = settings.extension, facts.get("model_type")
    widths = {"partial_rotary_factor", "rotary_pct", "rotary_dim"} & {**facts, **entry}.keys()
    reads_share = model_type in PARTIAL or extension != Default()
    reads = reads_share if widths != {"rotary_dim"} else model_type in (*FIXED_BASE, "minimax_m2")
    if settings.dim < settings.head_dim and model_type in LAYOUTS and not reads:
        keys = " and ".join(sorted(widths))
        sizes = dict(dim=settings.dim, head_dim=settings.head_dim)
        yield finding(TEXTS["ignored-key"], keys=keys, model_type=model_type, **sizes)
    places = [("at the top", facts), ("in rope_parameters", entry)]
    where = " and ".join(place for place, keys in places if keys.get("rope_theta") == settings.base)
    if where and settings.base != 10000:
        yield finding(TEXTS["moved-base"], base=settings.base, where=where)
    if beta := entry.get("llama_4_scaling_beta"):
        yield finding(TEXTS["query-scale"], beta=beta)
    unrotated = [str(i) for i, rotates in enumerate(settings.rotates or ()) if not rotates]
    if unrotated:
        yield finding(TEXTS["unrotated-layers"], layers=", ".join(unrotated))
    if isinstance(extension, (YaRN, LongRoPE, Llama3)) and TRAINED not in {**entry, **facts}:
        yield finding(TEXTS["trained-length"], length=settings.max_position_embeddings)
    if extension.length_dependent:
        yield finding(TEXTS["length-dependent"], length=getattr(extension, TRAINED))
    if isinstance(extension, YaRN):
        factor, formula = extension.attention_scaling, mscale(extension.factor)
        if abs(factor - formula) > 1e-6:
            yield finding(TEXTS["attention-factor"], factor=factor, formula=formula)
