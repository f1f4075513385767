"""Diagnose a rotary embedding from its results: what does the function do, and is it right?

`probe` calls the function, and `influence` checks which inputs change which results. `planes` and
`spectrum` fit planes, angles, and frequencies. `measure` combines the fits. `causes` names the
first fault, with a text from `codes`. `replay` diagnoses an engine in any language through two
files. `configuration` explains a configuration.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from rope.checks import check_count, check_dim
from rope.config import RotarySettings, rotary_settings
from rope.diagnose import causes
from rope.diagnose.codes import CODES
from rope.diagnose.configuration import ConfigurationReport, diagnose_configuration
from rope.diagnose.influence import SHORT, Influence, measure_influence, short_text
from rope.diagnose.measure import measure, rotation
from rope.diagnose.planes import fit_angles, fit_structures
from rope.diagnose.probe import WIDEST_FIRST, CallError, Probe
from rope.diagnose.report import Finding, Report, Rotation, finding
from rope.frequencies import inverse_frequencies
from rope.module import RotaryEmbedding

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

    The report names the first fault that is found, and any inputs that rotate overwrites. Fix the
    fault, and then diagnose again.

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
    # A function that rotates heads by their index fails unless there are as many heads as tokens.
    heads = [(num_heads, num_kv_heads), (len(SHORT), len(SHORT))]
    probes = [Probe(rotate, head_dim, each, one, device) for each in heads for one in dtypes]
    probe = _accepted(probes)
    query = key = Rotation()
    try:
        influence = measure_influence(probe, max_position)
        if influence.fault is not None:
            findings = [influence.fault]
        elif probe.heads == heads[0]:
            query, key, findings = _measured(probe, influence, expected, cache)
        else:
            raise CallError(f"an error unless there are {len(SHORT)} heads for {len(SHORT)} tokens")
    except CallError as error:
        raise ValueError(
            f"rotate raised {error}; it accepted {len(SHORT)} tokens, so it must also accept this "
            "call. Wrap it in a function that does"
        ) from error
    if probe.changed:
        findings.append(finding("input-changed", name=", ".join(sorted(probe.changed))))
    return Report(query, key, findings + influence.notes, influence.far, causes.plain(probe.dtype))


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
    raise ValueError(
        f"rotate raised {errors[0]}; it must accept q {q}, k {k} and position_ids [1, {len(SHORT)}]"
        ". Wrap it in a function that does, or pass num_heads, num_kv_heads, dtype or device"
    )


def _measured(
    probe: Probe, influence: Influence, expected: Any, cache: bool
) -> tuple[Rotation, Rotation, list[Finding]]:
    """Return the rotations of q and k, with the first fault or, if there is none, all notes."""
    structures = fit_structures(probe, influence.far)
    fitted = fit_angles(probe, structures, influence.far)
    for fault in causes.structure_faults(structures, fitted, probe.eps):
        return Rotation(), Rotation(), [fault]
    expected_theta, length = None, influence.far + 1
    if expected is not None:
        expected_theta = inverse_frequencies(
            expected.dim, expected.base, extension=expected.extension, seq_len=length, device="cpu"
        )
    q, k = (
        measure(structure, angles, probe.eps, expected_theta)
        for structure, angles in zip(structures, fitted, strict=True)
    )
    query, key = (rotation(*each) for each in zip((q, k), influence.linear, strict=True))
    for fault in causes.rotation_faults(probe, influence, q, k, expected, cache):
        return query, key, [fault]
    if influence.nan_from is not None:
        return query, key, [finding("not-finite", begin=influence.nan_from)]
    findings = list(causes.notes(q, k))
    if influence.length_change and expected is None:
        fault = finding("length-dependent", off=influence.length_change)
        findings.append(replace(fault, severity="note"))
    return query, key, findings
