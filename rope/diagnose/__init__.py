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

#: Other shapes to try if a function rejects the first one.
OTHERWISE: dict[str, Any] = {
    "head_dim": (8, 16, 32, 48, 64, 80, 96, 128, 160, 192, 256, 512),
    "heads": ((4, 4), (32, 8), (1, 1), (8, 8), (12, 12), (16, 16), (32, 32)),
}
HEADS_DIFFER = ("query-unrotated", "key-unrotated", "heads")

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
    options = dict(
        num_heads=num_heads, num_kv_heads=num_kv_heads, dtype=dtype, device=device,
        max_position=max_position, cache=cache,
    )  # fmt: skip
    dtypes = WIDEST_FIRST if dtype is None else (dtype,)
    # A function that rotates heads by their index fails unless there are as many heads as tokens.
    heads = [(num_heads, num_kv_heads), (len(SHORT), len(SHORT))]
    probes = [Probe(rotate, head_dim, each, one, device) for each in heads for one in dtypes]
    probe = _accepted(probes)
    options |= dict(num_heads=1, num_kv_heads=1, dtype=probe.dtype)

    def one_head(rotate: Callable[..., Any]) -> Report:
        return diagnose(rotate, head_dim, expected=expected, **options)  # type: ignore[arg-type]

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
    if findings and findings[0].code in HEADS_DIFFER and num_heads > 1:
        report = parts.by_head(probe, one_head, expected is not None)
        code = findings[0].code
        mixed = report is not None and code in {each.code for each in report.findings}
        if report is not None and (code == "heads" or not mixed):
            query, key, findings = report.query, report.key, report.findings
    if probe.changed:
        findings.append(finding("input-changed", name=", ".join(sorted(probe.changed))))
    findings += [note for note in influence.notes if note not in findings]
    faulty = not all_notes(findings)
    missed = parts.unexamined(influence, probe.heads, expected, faulty)
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
    first = probes[0]
    q, k = (list(x.shape) for x in short_text(first))
    said = (
        f"rotate raised {errors[0]}; it must accept q {q}, k {k} and position_ids [1, {len(SHORT)}]"
    )
    for name, sizes in OTHERWISE.items():
        for size in sizes:
            other = replace(first, **{name: size})
            try:
                other(short_text(other), SHORT)
            except (CallError, ValueError):
                continue
            changed = f"head_dim={size}"
            if name == "heads":
                changed = "num_heads={} and num_kv_heads={}".format(*size)
            raise ValueError(f"{said}. It accepts {changed}, so pass that")
    raise ValueError(f"{said}. Wrap it in a function that does, or pass its dtype or device")


def _measured(
    probe: Probe, influence: Influence, expected: Any, cache: bool
) -> tuple[Rotation, Rotation, list[Finding]]:
    """Return the rotations of q and k, with the first fault or, if there is none, all notes."""
    structures = fit_structures(probe, influence.far)
    if any(each.apart > max(0.01, 4 * probe.eps) for each in structures):
        return Rotation(), Rotation(), [finding("heads", "own")]
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
    q, k, influence.axis, mismatch = parts.along_axis(q, k, expected)
    query, key = (rotation(*each) for each in zip((q, k), influence.linear, strict=True))
    if mismatch is not None:
        return query, key, [mismatch]
    for fault in causes.rotation_faults(probe, influence, q, k, expected, cache):
        return query, key, [fault]
    if influence.nan_from is not None:
        return query, key, [finding("not-finite", begin=influence.nan_from)]
    findings = list(causes.notes(q, k))
    if influence.length_change and expected is None:
        fault = finding("length-dependent", off=influence.length_change)
        findings.append(replace(fault, severity="note"))
    return query, key, findings
