"""Is my rotary embedding right? A rotation that we do not know, identified from outside.

A rotation is known by what it does to vectors at several positions. `diagnose` calls the function,
recovers from its results which coordinates make a plane and how fast each turns, and names what is
wrong by its cause. The modules, in order: `probe` calls it, `influence` sees what depends on what,
`planes` and `spectrum` are the mathematics, `measure` puts them together, `causes` judges.
A configuration is explained by `configuration`, with its `dangers`; what is no Python is asked and
answers by files, `replay`. `codes` has every sentence.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from rope.checks import FLOATING, check_count
from rope.config import RotarySettings, rotary_settings
from rope.diagnose import causes
from rope.diagnose.codes import CODES, DANGERS
from rope.diagnose.configuration import ConfigurationReport, diagnose_configuration
from rope.diagnose.influence import SHORT, Influence, influences, short_text
from rope.diagnose.measure import measure, rotation
from rope.diagnose.planes import fit_structures, fit_turns
from rope.diagnose.probe import WIDEST_FIRST, Probe, Refusal
from rope.diagnose.report import Finding, Report, Rotation, finding
from rope.frequencies import inverse_frequencies
from rope.module import RotaryEmbedding
from rope.scalars import check_dim, check_flag

__all__ = [
    "CODES",
    "DANGERS",
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
    """Identify a rotation by calling it, and name what is wrong with it.

    Of several faults the first is named, a cause before its consequences: mend it, and diagnose
    again. The wrapper that makes such a function of your model is diagnosed along with it.

    rotate: any callable of q `[B, H, S, D]`, k `[B, H_kv, S, D]` and position_ids `[B, S]`, int64,
    that returns the pair rotated; it may normalise first, and gets copies. head_dim: D.
    expected: what it should be: a RotaryEmbedding, a configuration, or `rope.config`'s settings.
    num_heads, num_kv_heads: H and H_kv. dtype: of q and k, the widest that is taken when None.
    device: where they are. max_position: positions probed lie below it. cache: keys of earlier
    calls are kept and not rotated anew, so nothing may follow the length of a call.
    Raises TypeError for an expected of another kind or a dtype that is not floating; ValueError for
    an odd head_dim, other bad numbers, a rotate that refuses every call, or is no callable, or
    returns something else than the pair.

    >>> rotary = RotaryEmbedding(16)
    >>> report = diagnose(rotary, 16)
    >>> report.ok, report.query.layout, report.query.base
    (True, 'half', 10000.0)
    >>> late = diagnose(lambda q, k, ids: (rotary.rotate(q, ids + 1), rotary.rotate(k, ids)), 16)
    >>> [each.code for each in late.findings]
    ['query-key-offset']
    """
    check_dim(head_dim, "head_dim")
    for name, count in (("num_heads", num_heads), ("num_kv_heads", num_kv_heads)):
        check_count(name, count)
    check_count("max_position", max_position, smallest=32)
    check_flag("cache", cache)
    if dtype is not None and dtype not in FLOATING:
        raise TypeError(
            f"dtype is {dtype!r}; it must be float64, float32, bfloat16 or float16: leave it out "
            "for the widest that is taken"
        )
    if expected is not None and not isinstance(expected, (RotaryEmbedding, RotarySettings)):
        expected = rotary_settings(expected)
    dtypes = WIDEST_FIRST if dtype is None else (dtype,)
    probe = _begin(rotate, head_dim, (num_heads, num_kv_heads), dtypes, device)
    query = key = Rotation()
    try:
        influence = influences(probe, max_position, cache)
        if influence.fault is not None:
            findings = [influence.fault]
        elif probe.heads == (num_heads, num_kv_heads):
            query, key, findings = _identified(probe, influence, expected)
        else:
            raise Refusal(f"an error unless there are {len(SHORT)} heads, as many as tokens")
    except Refusal as error:
        raise ValueError(
            f"rotate raised {error}; having taken {len(SHORT)} tokens it must take others: wrap it "
            "in a function that does"
        ) from error
    if probe.changed:
        findings.append(finding("input-changed", name=", ".join(sorted(probe.changed))))
    return Report(
        query, key, findings + influence.refused, influence.far, causes.plain(probe.dtype)
    )


def _begin(
    rotate: Callable[..., Any],
    head_dim: int,
    heads: tuple[int, int],
    dtypes: tuple[torch.dtype, ...],
    device: torch.device | str | None,
) -> Probe:
    """A probe in the widest dtype that is taken and comes back, or else in the last one taken."""
    taken, refused, length = None, "", len(SHORT)
    for shape in (heads, (length, length)):  # positions along the heads need as many of them
        for dtype in dtypes:
            probe = Probe(rotate, head_dim, shape, dtype, device)
            try:
                probe(short_text(probe), SHORT)
            except Refusal as error:
                refused = refused or str(error)
                continue
            taken = probe
            if probe.returned[dtype] == dtype:
                break
        if taken is not None:
            return taken
    raise ValueError(
        f"rotate raised {refused}; it must take q [1, {heads[0]}, {length}, {head_dim}], k "
        f"[1, {heads[1]}, {length}, {head_dim}] and position_ids [1, {length}]: wrap it in a "
        "function that does, or pass num_heads, num_kv_heads, dtype or device"
    )


def _identified(
    probe: Probe, influence: Influence, expected: Any
) -> tuple[Rotation, Rotation, list[Finding]]:
    """The rotations of q and k, and the first cause, or notes."""
    structures = fit_structures(probe, influence.far)
    turns = fit_turns(probe, structures, influence.far)
    for fault in causes.of_structure(structures, turns, probe.eps):
        return Rotation(), Rotation(), [fault]
    expected_theta = None
    if expected is not None:
        expected_theta = inverse_frequencies(
            expected.dim,
            expected.base,
            extension=expected.extension,
            seq_len=influence.far + 1,
            device="cpu",
        )
    q, k = (
        measure(structure, turn, probe.eps).widened(expected_theta, influence.far)
        for structure, turn in zip(structures, turns, strict=True)
    )
    query, key = (
        rotation(measured, expected_theta, linear)
        for measured, linear in zip((q, k), influence.linear, strict=True)
    )
    for fault in causes.in_order(probe, influence, q, k, expected, expected_theta):
        return query, key, [fault]
    if influence.nan_from is not None:
        return query, key, [finding("not-finite", begin=influence.nan_from)]
    findings = list(causes.notes(q, k))
    if influence.moved and expected is None:
        findings.append(replace(influence.length_dependence(), severity="note"))
    return query, key, findings
