"""Is my rotary embedding right? A rotation that we do not know, identified from outside.

A rotation is known by what it does to vectors at several positions. `diagnose` calls the function,
recovers from its results which coordinates make a plane and how fast each turns, and names what is
wrong by its cause. The modules, in order: `probe` calls it, `influence` sees what depends on what,
`planes` and `spectrum` are the mathematics, `measure` puts them together, `causes` judges.
"""

from collections.abc import Callable
from typing import Any

import torch

from rope.checks import FLOATING, check_count, check_dim
from rope.config import RotarySettings, rotary_settings
from rope.diagnose import causes
from rope.diagnose.influence import NAMES, SHORT, Influence, influences, short_text
from rope.diagnose.measure import measured, rotation
from rope.diagnose.planes import structure, turns
from rope.diagnose.probe import WIDEST_FIRST, Probe, Refusal
from rope.diagnose.report import CODES, Finding, Report, Rotation, finding
from rope.module import RotaryEmbedding

__all__ = ["CODES", "Finding", "Report", "Rotation", "diagnose"]


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
) -> Report:
    """Identify a rotation by calling it, and name what is wrong with it.

    rotate: any callable of q `[B, H, S, D]`, k `[B, H_kv, S, D]` and position_ids `[B, S]`, int64,
    that returns the pair rotated; it may normalise first, and gets copies. head_dim: D.
    expected: what it should be: a RotaryEmbedding, a configuration, or `rope.config`'s settings.
    num_heads, num_kv_heads: H and H_kv. dtype: of q and k, the widest that is taken when None.
    device: where they are. max_position: positions probed lie below it.
    Raises TypeError for what is no callable, an expected of another kind or a dtype that is not
    floating; ValueError for an odd head_dim, other bad numbers, a callable that refuses every call
    or returns something else than the pair.

    >>> rotary = RotaryEmbedding(16)
    >>> report = diagnose(rotary, 16)
    >>> report.ok, report.query.layout, report.query.base
    (True, 'half', 10000.0)
    >>> late = diagnose(lambda q, k, ids: (rotary.rotate(q, ids + 1), rotary.rotate(k, ids)), 16)
    >>> [each.code for each in late.findings]
    ['query-key-offset']
    """
    if not callable(rotate):
        raise TypeError(
            f"rotate is {rotate!r}; it must be callable as rotate(q, k, position_ids): pass a "
            "function or a module"
        )
    check_dim(head_dim, "head_dim")
    for name, count in (("num_heads", num_heads), ("num_kv_heads", num_kv_heads)):
        check_count(name, count)
    check_count("max_position", max_position, smallest=32)
    if dtype is not None and dtype not in FLOATING:
        raise TypeError(
            f"dtype is {dtype!r}; it must be float64, float32, bfloat16 or float16: leave it out "
            "for the widest that is taken"
        )
    if expected is not None and not isinstance(expected, (RotaryEmbedding, RotarySettings)):
        expected = rotary_settings(expected)
    dtypes = WIDEST_FIRST if dtype is None else (dtype,)
    probe = _begin(rotate, head_dim, (num_heads, num_kv_heads), dtypes, device)
    influence = influences(probe, max_position)
    query = key = Rotation()
    findings: list[Finding] = []
    if influence.code is not None:
        findings.append(finding(influence.code, influence.sentence))
    elif probe.heads != (num_heads, num_kv_heads):
        raise ValueError(
            f"rotate refuses {len(SHORT)} tokens beside {num_heads} and {num_kv_heads} heads and "
            "takes as many heads as tokens alone; it must take any number of tokens: wrap it in a "
            "function that does"
        )
    else:
        query, key, findings = _identified(probe, influence, expected)
    if probe.changed:
        findings.append(
            finding("input-changed", f"it writes into {', '.join(sorted(probe.changed))}")
        )
    findings += [
        finding("refused" if "batch" in each else "reach", each) for each in influence.refused
    ]
    kind = str(probe.dtype).removeprefix("torch.")
    return Report(query, key, findings, influence.far, kind)


def _begin(
    rotate: Callable[..., Any],
    head_dim: int,
    heads: tuple[int, int],
    dtypes: tuple[torch.dtype, ...],
    device: torch.device | str | None,
) -> Probe:
    """A probe in the widest dtype that is taken and comes back, or else in the last one taken."""
    taken, refused = None, ""
    # Positions along the heads need as many heads as tokens.
    for shape in (heads, (len(SHORT), len(SHORT))):
        for dtype in dtypes:
            probe = Probe(rotate, head_dim, shape, dtype, device)
            try:
                probe(short_text(probe), SHORT)
            except Refusal as error:
                refused = refused or str(error)
                continue
            taken = probe
            if probe.returned[dtype] == dtype:
                return probe
        if taken is not None:
            return taken
    raise ValueError(
        f"rotate raised {refused}; it must take q [1, {heads[0]}, {len(SHORT)}, {head_dim}], k "
        f"[1, {heads[1]}, {len(SHORT)}, {head_dim}] and position_ids [1, {len(SHORT)}]: wrap it in "
        "a function that does, or pass num_heads, num_kv_heads, dtype or device"
    )


def _identified(
    probe: Probe, influence: Influence, expected: Any
) -> tuple[Rotation, Rotation, list[Finding]]:
    """The rotations of q and k, and the first cause with its notes."""
    far = influence.far
    found = structure(probe, far)
    turned = turns(probe, found, far)
    said = causes.of_structure(found, turned, probe.eps)
    if said is None and not all(len(each.planes) for each in found):
        said = "not-relative", "results change with the position, and no plane is seen to turn"
    if said is not None:
        return Rotation(), Rotation(), [finding(*said)]
    q, k = (measured(each, turn, probe.eps) for each, turn in zip(found, turned, strict=True))
    wanted = None if expected is None else causes.wanted(expected, far + 1)
    if wanted is not None:
        for each in (q, k):
            each.widen(wanted, far)
    query, key = (
        rotation(each, wanted, each_linear)
        for each, each_linear in zip((q, k), influence.linear, strict=True)
    )
    fault = next(causes.in_order(probe, influence, q, k, expected, wanted), None)
    if fault is None and influence.nan_from is not None:
        fault = "not-finite", f"from position {influence.nan_from} on results are NaN or infinite"
    findings = [finding(*fault)] if fault is not None else [*causes.notes(q, k)]
    if influence.moved and not (fault or expected):
        findings.append(finding("length-dependent", causes.follows(influence), note=True))
    return query, key, findings
