"""What a configuration means, by layer type, and what is dangerous in it."""

import math
from dataclasses import dataclass, field
from textwrap import shorten
from typing import Any

from rope.checks import check_count
from rope.config import RotarySettings, rotary_settings
from rope.config.classes import class_facts
from rope.config.parameters import layer_entries
from rope.config.source import read_config, text_facts
from rope.diagnose.dangers import Case, dangers, unrotated
from rope.diagnose.report import Finding, danger, faults, verdict
from rope.frequencies import inverse_frequencies


@dataclass(frozen=True)
class ConfigurationReport:
    """A configuration explained: `settings` by layer type, and `findings`.

    length: the one in use, for which it is explained; None for the model's own.
    """

    settings: dict[str, RotarySettings] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    length: int | None = None

    @property
    def ok(self) -> bool:
        """Whether no finding is a fault.

        >>> ConfigurationReport().ok
        True
        """
        return not faults(self.findings)

    def __str__(self) -> str:
        meant = [
            "\n  ".join([f"{kind}:", *_explained(settings, self.length)])
            for kind, settings in self.settings.items()
        ]
        return "\n".join([verdict(self.findings), *meant, *map(str, self.findings)])


def diagnose_configuration(
    config: Any, *, layer_type: str | None = None, length: int | None = None
) -> ConfigurationReport:
    """Explain what a configuration says about rotation, and name what is dangerous in it.

    config: as `rope.config.rotary_settings` takes it. layer_type: that type alone; all without.
    length: the length in use, where it is not the model's own.
    A fault is what cannot be read, or what transformers reads otherwise than it is written; a
    note, what other code has read otherwise. Raises TypeError for what is no configuration,
    ValueError for a length below 1.

    >>> from rope.config import example
    >>> report = diagnose_configuration(example("deepseek-v3"))
    >>> report.ok, [each.code for each in report.findings]
    (True, ['mscale'])
    >>> plain = {"model_type": "llama", "head_dim": 64, "max_position_embeddings": 2048}
    >>> [each.code for each in diagnose_configuration(plain | {"rotary_dim": 32}).findings]
    ['ignored-key']
    """
    if length is not None:
        check_count("length", length)
    try:
        facts = text_facts(read_config(config))
        entries = layer_entries(facts)
        standard = class_facts(facts, entries)  # what the model's class in transformers adds
        theirs = {**layer_entries(standard), **entries}
        types = {**standard, **facts}.get("layer_types") or theirs
        named = [kind for kind in types if theirs.get(kind)]
        kinds = dict.fromkeys([layer_type] if layer_type is not None else named)
        by_type = {kind: rotary_settings(config, layer_type=kind) for kind in kinds or (None,)}
    except ValueError as error:
        return ConfigurationReport(findings=[danger("configuration", error=error)], length=length)
    findings = dangers(Case(facts, standard, entries, by_type, length))
    settings = {kind or "all layers": settings for kind, settings in by_type.items()}
    return ConfigurationReport(settings, findings, length)


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
        f"extension: {shorten(str(extension), 160)}, for up to {extension.reach or 'any length'}",
        f"factor on cos and sin: {extension.attention_scaling:.6g}, applied by the rotation",
        f"factor on the softmax's scale: {settings.softmax_scale:.6g}, applied by the attention",
    ]
    if settings.sections is not None:
        lines.append(f"axes: M-RoPE, planes by axis {list(settings.sections)}")
    if unrotated(settings.rotates):
        lines.append(f"layers without rotation: {unrotated(settings.rotates)}")
    if length is not None:
        turned = int((theta * length >= 2 * math.pi).sum())
        lines.append(f"planes that finish a turn within {length}: {turned} of {width // 2}")
    return lines
