"""Diagnose heads or axes that rotate differently, and say what was not examined.

Shapes: A axes, B batch, S sequence, D head dimension, R rotated width.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from rope.axes import section_frequencies
from rope.diagnose.influence import PLACES, SHORT, Influence, short_text
from rope.diagnose.measure import Measurement
from rope.diagnose.planes import wrapped
from rope.diagnose.probe import CallError, Probe
from rope.diagnose.report import Finding, Report, finding
from rope.diagnose.spectrum import rounding

Rotate = Callable[..., Any]
UNROTATED = "positions-ignored"
ORDERS = ("blocks", "turns")


def by_head(probe: Probe, again: Callable[[Rotate], Report], known: bool) -> Report | None:
    """Return one report on all heads, or None if single heads can't be called, as from a file.

    again: diagnoses a function of one query head and one key head. Each query head must rotate like
    its key head, so the function is called with as many key heads as query heads if it can be.
    known: True if the frequencies are known; if not, a head may have any.
    """
    count = probe.heads[0]
    for heads in ((count, count), probe.heads):
        try:
            equal = replace(probe, heads=heads, returned={}, changed=set())
            equal(short_text(equal), SHORT)
            break
        except (CallError, ValueError):
            continue
    try:
        reports = [again(_one_head(probe.rotate, head, heads)) for head in range(count)]
    except ValueError:
        return None
    codes = [{each.code for each in report.findings} for report in reports]
    rotated = [head for head in range(count) if UNROTATED not in codes[head]]
    if not rotated:
        return None
    for head in rotated:
        faults = [each for each in reports[head].findings if each.severity == "fault"]
        for fault in faults if known or (faults and faults[0].code != "frequencies") else ():
            said = replace(fault, sentence=f"in head {head}, {fault.sentence}")
            return replace(reports[head], findings=[said])
    rates = [report.query.inv_freq for report in (reports[head] for head in rotated)]
    variant = "dealt" if _is_dealt([rate for rate in rates if rate is not None]) else "own"
    if len(rotated) < count and variant == "own":
        variant = "some"
    facts = dict(heads=", ".join(map(str, rotated)), count=count)
    each_note = (note for head in rotated for note in reports[head].findings)
    notes = dict.fromkeys(note for note in each_note if note.severity == "note")
    return replace(reports[rotated[0]], findings=[finding("heads", variant, **facts), *notes])


def _one_head(rotate: Rotate, head: int, heads: tuple[int, int]) -> Rotate:
    """Return a function that rotates one query head `[B, 1, S, D]` and its key head."""

    def alone(q: Tensor, k: Tensor, position_ids: Tensor) -> tuple[Tensor, Tensor]:
        q, k = rotate(q.repeat(1, heads[0], 1, 1), k.repeat(1, heads[1], 1, 1), position_ids)
        return q[:, [head]], k[:, [head * heads[1] // heads[0]]]

    return alone


def _is_dealt(rates: list[Tensor]) -> bool:
    """Return True if the |theta| of all heads, in a row, are powers of one number."""
    theta = torch.cat([rate[rate > 0] for rate in rates])
    if len(rates) < 2 or len(theta) < 2 * len(rates):
        return False
    slope, slowest = float(theta.log().diff().median()), int(theta.argmin())
    steps = torch.arange(len(theta)) - slowest
    powers = theta[slowest] * (slope * steps).exp()  # some may rotate by over half a turn
    return bool(((wrapped(powers).abs() - theta).abs() <= 1e-3 * powers).all() and slope)


def along_axis(
    q: Measurement, k: Measurement, expected: Any
) -> tuple[Measurement, Measurement, int | None, Finding | None]:
    """Return q and k with the frequencies expected along the axis that the ids move.

    Also returns that axis, or None if all axes move together, and a fault if the model's axes take
    turns but the function's stand in blocks, or the reverse.
    """
    theta, slack = q.spectrum
    sections, every = getattr(expected, "sections", None), q.expected_theta
    if sections is None or every is None or len(theta) != len(every):
        return q, k, None, None
    right = expected.interleaved_sections
    for turns in (right, not right):
        try:
            rows = section_frequencies(every, sections, interleaved_sections=turns)
        except ValueError:  # too many planes of one axis to take turns
            continue
        for axis, row in enumerate(rows):
            if ((theta - row).abs() > slack + 2 * rounding(row)).any():
                continue
            if turns == right:
                q, k = (replace(side, expected_theta=row) for side in (q, k))
                return q, k, axis, None
            planes = theta.nonzero()[:, 0].tolist()
            facts = dict(axis=axis, first=planes[0], last=planes[-1])
            named = dict(found=ORDERS[turns], expected=ORDERS[right])
            return q, k, axis, finding("sections", **named, **facts)
    return q, k, None, None


def unexamined(
    influence: Influence, heads: tuple[int, int], expected: Any, faulty: bool
) -> list[str]:
    """Return what the diagnosis did not look at, as a list of phrases."""
    phrases = ["what this fault hides"] * faulty
    if several := getattr(expected, "sections", None):
        seen = (
            "apart, since they moved together"
            if influence.axis is None
            else f"other than {influence.axis}"
        )
        phrases.append(f"the model's {len(several)} axes {seen} (wrap each axis, the others at 0)")
    else:
        phrases.append("positions on several axes")
    phrases.append("other head counts than {} and {}, negative positions".format(*heads))
    if influence.tokens < PLACES[0]:
        phrases.append(f"places in calls of more than {influence.tokens} tokens")
    still = [str(i) for i, each in enumerate(getattr(expected, "rotates", None) or ()) if not each]
    layers = f"layers {', '.join(still)}, which must not rotate" if still else "other layers"
    return [*phrases, "masks, values and the KV cache", layers]
