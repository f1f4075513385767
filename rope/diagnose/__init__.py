"""Diagnose a rotary embedding from its results: what does the function do, and is it right?

`probe` calls the function, and `influence` checks which inputs change which results. `planes` and
`spectrum` fit planes, angles, and frequencies. `measure` combines the fits. `causes` names the
first fault, with a text from `codes`. `replay` diagnoses an engine in any language through two
files. `configuration` explains a configuration.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from rope.checks import check_count, check_dim
from rope.config import RotarySettings, rotary_settings
from rope.diagnose import causes, parts
from rope.diagnose.codes import CODES
from rope.diagnose.configuration import ConfigurationReport, diagnose_configuration
from rope.diagnose.influence import SHORT, Influence, measure_influence, short_text
from rope.diagnose.measure import measure, rotation
from rope.diagnose.planes import fit_angles, fit_structures
from rope.diagnose.probe import WIDEST_FIRST, CallError, Probe
from rope.diagnose.report import Finding, Report, Rotation, all_notes, finding
from rope.frequencies import inverse_frequencies
from rope.module import RotaryEmbedding

#: Other head dimensions to try if a function rejects the first one.
WIDTHS = (8, 16, 32, 48, 64, 80, 96, 128, 160, 192, 256, 512)

__all__ = [
    "CODES",
    "ConfigurationReport",
    "Finding",
    "Report",
    "Rotation",
    "diagnose",
    "diagnose_configuration",
]


def diagnose(
    rotate: Callable[..., Any],
    head_dim: int,
    *,
    expected: Any = None,
    num_heads: int = 4,
    num_kv_heads: int = 2,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
    max_position: int = 1 << 17,
    cache: bool = False,
) -> Report:
    """Return a report on a rotation: what it does and, if it is wrong, the cause.

    The report names the first fault that is found, any inputs that rotate overwrites, and what was
    not examined. Fix the fault, and then diagnose again.

    rotate: a callable that takes q `[B, H, S, D]`, k `[B, H_kv, S, D]` and int64 position_ids
    `[B, S]` and returns the rotated pair. It receives copies, and may normalize before it rotates.
    head_dim: D. expected: what rotate should do, as a RotaryEmbedding, a configuration, or
    `RotarySettings`. num_heads, num_kv_heads: H and H_kv. dtype: the dtype of q and k; None means
    the widest dtype that rotate supports. device: the device of q and k. max_position: all probed
    positions are below this number. cache: True if you keep keys from earlier calls; results that
    depend on the length of the text are then a fault.
    Raises TypeError if expected has another type. Raises ValueError if head_dim is odd, if
    max_position is below 32, or if rotate fails for every dtype or doesn't return a pair.

    >>> rotary = RotaryEmbedding(16)
    >>> report = diagnose(rotary, 16)
    >>> report.ok, report.query.layout, report.query.base
    (True, 'half', 10000.0)
    >>> late = diagnose(lambda q, k, ids: (rotary.rotate(q, ids + 1), rotary.rotate(k, ids)), 16)
    >>> [finding.code for finding in late.findings]
    ['query-key-offset']
    """
    check_dim(head_dim, "head_dim")
    check_count("max_position", max_position, smallest=32)
    if expected is not None and not isinstance(expected, (RotaryEmbedding, RotarySettings)):
        expected = rotary_settings(expected)
    dtypes = WIDEST_FIRST if dtype is None else (dtype,)
    # A function that rotates heads by their index may need as many heads as tokens.
    heads = [(num_heads, num_kv_heads), (len(SHORT), len(SHORT))]
    probe = _accepted([Probe(rotate, head_dim, n, one, device) for n in heads for one in dtypes])
    one_head = partial(
        diagnose, head_dim=head_dim, expected=expected, num_heads=1, num_kv_heads=1,
        dtype=probe.dtype, device=device, max_position=max_position, cache=cache,
    )  # fmt: skip
    query = key = Rotation()
    try:
        influence = measure_influence(probe, max_position)
        if influence.fault is not None:
            findings = [influence.fault]
        else:
            query, key, findings = _measured(probe, influence, expected, cache)
    except CallError as error:
        raise ValueError(
            f"rotate raised {error}; it accepted {len(SHORT)} tokens, so it must also accept this "
            "call. Wrap it in a function that does"
        ) from error
    if findings and findings[0].code in parts.HEADS_DIFFER and num_heads > 1:
        report = parts.by_head(probe, one_head, findings[0].code, expected is not None)
        if report is not None:
            query, key, findings = report.query, report.key, report.findings
    if probe.changed:
        findings.append(finding("input-changed", name=", ".join(sorted(probe.changed))))
    if not all_notes(findings):  # name the first fault only
        influence.notes = [each for each in influence.notes if each.severity == "note"]
    findings += [note for note in influence.notes if note not in findings]
    missed = parts.unexamined(influence, probe.heads, expected, not all_notes(findings))
    return Report(query, key, findings, influence.far, causes.plain(probe.dtype), missed)


def _accepted(probes: list[Probe]) -> Probe:
    """Return the first probe whose dtype rotate keeps, or else the last probe that it accepts."""
    accepted: list[Probe] = []
    errors = []
    for probe in probes:
        if accepted and probe.heads != accepted[0].heads:
            break
        try:
            probe(short_text(probe), SHORT)
        except CallError as error:
            errors.append(error)
            continue
        accepted.append(probe)
        if probe.returned[probe.dtype] == probe.dtype:
            break
    if accepted:
        return accepted[-1]
    q, k = (list(x.shape) for x in short_text(probes[0]))
    ids = f"position_ids [1, {len(SHORT)}]"
    said = f"rotate raised {errors[0]}; it must accept q {q}, k {k} and {ids}"
    for width in WIDTHS:
        other = replace(probes[0], head_dim=width)
        try:
            other(short_text(other), SHORT)
        except (CallError, ValueError):
            continue
        raise ValueError(f"{said}. It accepts head_dim={width}, so pass that")
    raise ValueError(f"{said}. Wrap it in a function that does, or pass num_heads and num_kv_heads")


def _measured(
    probe: Probe, influence: Influence, expected: Any, cache: bool
) -> tuple[Rotation, Rotation, list[Finding]]:
    """Return the rotations of q and k, with the first fault or, if there is none, all notes."""
    structures = fit_structures(probe, influence.far)
    if any(each.apart > max(0.01, 4 * probe.eps) for each in structures):
        return Rotation(), Rotation(), [finding("heads", heads="all", count=probe.heads[0])]
    fitted = fit_angles(probe, structures, influence.far)
    for fault in causes.structure_faults(structures, fitted, probe.eps):
        return Rotation(), Rotation(), [fault]
    theta = None
    if expected is not None:
        theta = inverse_frequencies(
            expected.dim, expected.base, extension=expected.extension, seq_len=influence.far + 1,
            device="cpu",
        )  # fmt: skip
    q, k = (
        measure(structure, angles, probe.eps, theta)
        for structure, angles in zip(structures, fitted, strict=True)
    )
    influence.axis, mismatch = parts.along_axis(q, k, expected)
    if q.row_length is not None and q.row_length == k.row_length:
        return Rotation(), Rotation(), [finding("axes", row=q.row_length)]
    query, key = (rotation(*each) for each in zip((q, k), influence.linear, strict=True))
    if mismatch is not None:
        return query, key, [mismatch]
    for fault in causes.rotation_faults(probe, influence, q, k, expected, cache):
        return query, key, [fault]
    findings = list(causes.notes(q, k))
    if influence.length_change and expected is None:
        fault = finding("length-dependent", off=influence.length_change)
        findings.append(replace(fault, severity="note"))
    return query, key, findings
