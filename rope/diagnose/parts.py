"""Diagnose heads or axes that rotate differently, and say what was not examined.

Shapes: A axes, B batch, S sequence, D head dimension, R rotated width.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from rope.axes import section_frequencies
from rope.diagnose.influence import PLACES, Influence
from rope.diagnose.measure import Measurement
from rope.diagnose.probe import Probe
from rope.diagnose.report import Finding, Report, finding
from rope.diagnose.spectrum import rounding

Rotate = Callable[..., Any]
HEADS_DIFFER = ("query-unrotated", "key-unrotated", "heads")


def by_head(
    probe: Probe, again: Callable[[Rotate], Report], code: str, known: bool
) -> Report | None:
    """Return one report on all heads, or None if it explains a finding no better.

    again: diagnoses a function of one query head and one key head. Each query head must rotate like
    its key head, so the function is called with as many key heads as query heads. code: the code of
    the finding. known: True if the frequencies are known; if not, a head may have any.
    """
    count, rotated, first = probe.heads[0], [], None
    for head in range(count):
        try:
            report = again(_one_head(probe.rotate, head, count))
        except ValueError:  # single heads can't be called, as from a file
            return None
        if any(each.code == "positions-ignored" for each in report.findings):
            continue
        for fault in report.findings:
            if fault.severity == "note" or (fault.code == "frequencies" and not known):
                continue
            if fault.code == code:
                return None
            said = replace(fault, sentence=f"in head {head}, {fault.sentence}")
            return replace(report, findings=[said])
        rotated.append(str(head))
        first = first or report
    if first is None:
        return None
    notes = [each for each in first.findings if each.severity == "note"]
    note = finding("heads", heads=", ".join(rotated), count=count)
    return replace(first, findings=[note, *notes])


def _one_head(rotate: Rotate, head: int, count: int) -> Rotate:
    """Return a function that rotates one query head `[B, 1, S, D]` and its key head."""

    def alone(q: Tensor, k: Tensor, position_ids: Tensor) -> tuple[Tensor, Tensor]:
        q, k = (x.repeat(1, count, 1, 1) for x in (q, k))
        return tuple(x[:, [head]] for x in rotate(q, k, position_ids))

    return alone


def along_axis(q: Measurement, k: Measurement, expected: Any) -> tuple[int | None, Finding | None]:
    """Expect only the frequencies of the axis that the ids move, in q and in k.

    Returns that axis, or None if all axes move together, and a fault if planes rotate that the
    model gives to another axis.
    """
    theta, slack = q.spectrum
    sections, every = getattr(expected, "sections", None), q.expected_theta
    if sections is None or every is None or len(theta) != len(every):
        return None, None
    turns = expected.interleaved_sections
    rows = torch.stack([every, *section_frequencies(every, sections, interleaved_sections=turns)])
    off = (rows - theta).abs() > slack + 2 * rounding(rows)  # [1 + A, R/2]
    axis = int(off.sum(1).argmin()) - 1
    if axis < 0:
        return None, None
    q.expected_theta = k.expected_theta = row = rows[axis + 1]
    if not (off[axis + 1] & ((row == 0) | (theta == 0))).any():
        return axis, None
    planes = theta.nonzero()[:, 0].tolist()
    return axis, finding("sections", axis=axis, first=planes[0], last=planes[-1])


def unexamined(
    influence: Influence, heads: tuple[int, int], expected: Any, faulty: bool
) -> list[str]:
    """Return what the diagnosis did not look at, as a list of phrases."""
    phrases = ["what this fault hides"] * faulty
    axes = "positions on several axes"
    if several := getattr(expected, "sections", None):
        together = influence.axis is None
        seen = "apart, since they moved together" if together else f"other than {influence.axis}"
        axes = f"the model's {len(several)} axes {seen} (wrap each axis, the others at 0)"
    phrases += [axes, "other head counts than {} and {}, negative positions".format(*heads)]
    phrases += [f"places beyond token {influence.tokens} of a call"] * (influence.tokens < PLACES)
    return [*phrases, "other text lengths, masks, values and the KV cache", "norms, other layers"]
