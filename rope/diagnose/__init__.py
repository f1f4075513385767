"""Diagnose a rotary embedding from its results: what does the function do, and is it correct?

`influence` calls the function and finds which inputs affect which results. `planes` fits planes and
angles, and `measure` fits frequencies. `causes` names the first fault, with texts from `codes`.
`replay` diagnoses an engine through two files. `configuration` explains a configuration.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import chain
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from rope.checks import check_count, check_dim
from rope.config import RotarySettings
from rope.config.parameters import TRAINED
from rope.diagnose import causes, codes
from rope.diagnose.codes import CODES, UNEXAMINED, Finding, Report, Rotation, all_notes, finding
from rope.diagnose.configuration import ConfigurationReport, diagnose_configuration, model_settings
from rope.diagnose.influence import DTYPES, SHORT, CallError, Probe, first_mixture, short_text
from rope.diagnose.measure import along_axis, measure, rotation
from rope.diagnose.planes import fit
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
    """Return a report on a rotation: what it does and, if it is wrong, why.

    The report names the first fault, any inputs that rotate overwrites, and what was not examined.
    Fix the fault, and then diagnose again.
    rotate: a callable that takes q `[B, H, S, D]`, k `[B, H_kv, S, D]` and int64 position_ids
    `[B, S]` and returns the rotated pair. It receives copies, and may normalize before it rotates.
    head_dim: D. expected: a RotaryEmbedding, `RotarySettings`, or configuration that says what
    rotate should do. A configuration's model_type also implies where a norm belongs. num_heads,
    num_kv_heads: H and H_kv. dtype: the dtype of q and k; None means the widest dtype that rotate
    supports. device: the device of q and k. max_position: all probed positions are below this
    number. cache: True if you keep keys from earlier calls. It is then a fault if results depend on
    the length of the text.
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
    if not isinstance(expected, RotaryEmbedding | RotarySettings | SimpleNamespace | None):
        expected = model_settings(expected)
    dtypes = DTYPES if dtype is None else (dtype,)
    # A function that rotates heads by their index may need as many heads as tokens.
    heads = [(num_heads, num_kv_heads), (len(SHORT), len(SHORT))]
    usual = (head_dim, expected, cache, device)
    probe = _accepted([Probe(rotate, *usual, n, one) for n in heads for one in dtypes])
    query = key = Rotation()
    try:
        fault = first_mixture(probe, max_position)
        query, key, findings = (query, key, [fault]) if fault else _measured(probe)
    except CallError as error:
        raise ValueError(
            f"rotate raised {error}; it accepted {len(SHORT)} tokens, so it must accept this call "
            "too; wrap it in a function that does"
        ) from error
    again = partial(
        diagnose, head_dim=head_dim, expected=expected, num_heads=num_heads, dtype=probe.dtype,
        num_kv_heads=num_kv_heads, device=device, max_position=max_position, cache=cache,
    )  # fmt: skip
    code = findings[0].code if findings else ""
    if code in ("query-unrotated", "key-unrotated", "heads") and num_heads > 1:
        report = _by_head(probe, partial(again, num_heads=1, num_kv_heads=1), code)
        if report is not None:
            query, key, findings = report.query, report.key, report.findings
    if all_notes(findings) and expected is not None:
        findings = [*_other_lengths(probe, partial(again, rotate)), *findings]
    if probe.changed:
        findings.append(finding("input-changed", name=", ".join(sorted(probe.changed))))
    faulty = not all_notes(findings)
    hidden = [*findings, *(note for note in probe.notes if faulty and note.severity == "fault")]
    findings += [note for note in probe.notes if note not in hidden]
    kind = causes.plain(probe.dtype)
    return Report(query, key, findings, probe.far, kind, _unexamined(probe, faulty))


def _accepted(probes: list[Probe]) -> Probe:
    """Return the first probe whose dtype `rotate` preserves, or else the last one it accepts."""
    accepted, errors = None, []
    for probe in probes:
        if accepted is not None and probe.heads != accepted.heads:
            break
        try:
            probe(short_text(probe), SHORT)
        except CallError as error:
            errors.append(error)
            continue
        accepted = probe
        if probe.returned[probe.dtype] == probe.dtype:
            break
    if accepted is not None:
        return accepted
    q, k = (list(x.shape) for x in short_text(probes[0]))
    ids = f"position_ids [1, {len(SHORT)}]"
    said = f"rotate raised {errors[0]}; it must accept q {q}, k {k} and {ids}"
    for width in range(8, 513, 8):
        other = replace(probes[0], head_dim=width)
        try:
            other(short_text(other), SHORT)
        except (CallError, ValueError):
            continue
        raise ValueError(f"{said}. It accepts head_dim={width}; pass that")
    raise ValueError(f"{said}; wrap it in a function that does, or pass num_heads and num_kv_heads")


def _measured(
    probe: Probe, norm: Finding | None = None
) -> tuple[Rotation, Rotation, list[Finding]]:
    """Return the rotations of q and k, and the first fault or, if there is none, all notes.

    norm: the finding on a norm after the rotation if the probe undoes its gains, otherwise None.
    """
    query = key = Rotation()
    expected, structures = probe.expected, fit(probe)
    if any(each.apart > max(0.01, 4 * probe.eps) for each in structures):
        return query, key, [finding("heads", heads="all", count=probe.heads[0])]
    for fault in causes.structure_faults(structures, probe.eps):
        if norm is not None or fault.code != "norm-after":
            return query, key, [norm or fault]
        probe.gains = [*map(causes.later_gains, structures)]
        probe.first = [y * gains for y, gains in zip(probe.first, probe.gains, strict=True)]
        return _measured(probe, fault)
    theta, length = None, probe.far + 1
    if expected is not None:
        extended = dict(extension=expected.extension, seq_len=length, device="cpu")
        theta = inverse_frequencies(expected.dim, expected.base, **extended)
    q, k = (measure(structure, probe.eps, theta) for structure in structures)
    mismatch = along_axis(q, k, probe)
    if q.row_length is not None and q.row_length == k.row_length:
        return query, key, [finding("axes", row=q.row_length, layout=q.layout)]
    query, key = (rotation(*each) for each in zip((q, k), probe.linear, strict=True))
    norm = causes.norm_order(norm, structures, probe)
    for found in chain((mismatch, norm), causes.rotation_faults(probe, q, k)):
        if found is not None and found.severity == "fault":
            return query, key, [found]
    findings = [each for each in (norm, *causes.notes(q, k)) if each is not None]
    if probe.length_change and expected is None:
        change = finding("length-dependent", off=probe.length_change)
        findings.append(replace(change, severity="note"))
    return query, key, findings


def _other_lengths(probe: Probe, again: Callable[..., Report]) -> Iterator[Finding]:
    """Yield the first fault (a note if keys are cached) in texts of about the trained length.

    again: a function that repeats the diagnosis with another max_position.
    """
    extension = probe.expected.extension
    trained = getattr(extension, TRAINED, 0) if extension.length_dependent else 0
    try:
        for length in (trained, trained + 1) if 0 < trained < probe.far else ():
            for fault in again(max_position=length).findings:
                if fault.severity == "fault":
                    said = f"in a text of {length} tokens, {fault.sentence}"
                    yield replace(fault, sentence=said, severity="note" if probe.cache else "fault")
                    return
    except ValueError:  # the probes come from a file, or cover too few positions
        probe.missed.append(f"texts of about {trained} tokens")
    if trained > probe.far:
        probe.missed.append(f"texts of more than {trained} tokens")


def _by_head(probe: Probe, again: Callable[..., Report], code: str) -> Report | None:
    """Diagnose the heads one by one. Return a report, or None if it would add nothing.

    again: a function that diagnoses a rotation of one query head and one key head. These two have
    the same index, because they must rotate alike. code: the code of the finding on all heads.
    A head may have any frequencies if none are expected.
    """
    count, rotated, first = probe.heads[0], [], None

    def alone(head: int, *arguments: Tensor) -> tuple[Tensor, ...]:
        q, k = (x.repeat(1, count, 1, 1) for x in arguments[:2])
        return tuple(x[:, [head]] for x in probe.rotate(q, k, arguments[2]))

    for head in range(count):
        try:
            report = again(partial(alone, head))
        except ValueError:  # single heads can't be called, for example if the answers are in a file
            return None
        faults = [each for each in report.findings if each.severity == "fault"]
        if "positions-ignored" in [each.code for each in faults]:
            continue
        for fault in faults:
            if probe.expected is not None or fault.code != "frequencies":
                said = replace(fault, sentence=f"in head {head}, {fault.sentence}")
                return None if fault.code == code else replace(report, findings=[said])
        theta, first = report.query.inv_freq, first or report
        planes = "unknown" if theta is None else codes.listed("plane", theta.nonzero())
        rotated.append(f"{head} ({planes})")
    if first is None:
        return None
    notes = [each for each in first.findings if each.severity == "note"]
    note = finding("heads", heads=", ".join(rotated), count=count)
    return replace(first, findings=[note, *notes])


def _unexamined(probe: Probe, faulty: bool) -> list[str]:
    """Return a list of phrases that name what the diagnosis did not examine."""
    given = {
        "fault": not faulty,
        "expected": probe.expected is not None,
        "axes": getattr(probe.expected, "sections", None) is not None,
        "cache": probe.cache,
    }
    texts = [text for name, text in UNEXAMINED.items() if not given.get(name)]
    return [*probe.missed, *(text.format(heads=probe.heads) for text in texts)]
