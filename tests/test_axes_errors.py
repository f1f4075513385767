import pytest
import torch

from rope import inverse_frequencies
from rope.axes import (
    MixedRotaryEmbedding,
    MultiAxisRotaryEmbedding,
    axial_frequencies,
    axis_tables,
    grid_positions,
    join_spectra,
    mrope_position_ids,
    section_frequencies,
)
from rope.extensions import DynamicNTK

NAN = torch.tensor([[0.0, float("nan")], [1.0, 1.0]])
THETA, IDS = inverse_frequencies(12), grid_positions(2, 3)
AXIAL, MIXED = MultiAxisRotaryEmbedding.axial(8), MixedRotaryEmbedding(8, 4)
Q, GIVEN = torch.ones(1, 4, 6, 8), axial_frequencies(8)
BAD = {
    "dim and axes": (lambda: axial_frequencies(10), ValueError, "dim is 10; 2 axes.*4: pass 8,"),
    "dim too small": (
        lambda: axial_frequencies(4, 3),
        ValueError,
        "dim is 4.*multiple of 6: pass 6,",
    ),
    "odd dim": (lambda: axial_frequencies(7, 1), ValueError, "dim is 7.*even"),
    "no axes": (lambda: axial_frequencies(8, 0), ValueError, "axes is 0.*at least 1"),
    "axes float": (lambda: axial_frequencies(8, 2.0), TypeError, "axes is 2.0.*integer"),
    "axes word": (lambda: axial_frequencies(8, "xy"), TypeError, "axes is 'xy'.*integer"),
    "widths": (lambda: axial_frequencies(8, (2, 4)), ValueError, r"\(2, 4\) sum to 6.*dim, 8"),
    "odd width": (lambda: axial_frequencies(8, (3, 5)), ValueError, r"axes\[0\] is 3.*even"),
    "base": (lambda: axial_frequencies(8, base=-1), ValueError, "base is -1.*positive"),
    "no spectra": (lambda: join_spectra(), ValueError, "0 spectra.*at least one"),
    "float32 spectrum": (lambda: join_spectra(THETA.float()), TypeError, "spectrum 0.*float64"),
    "empty spectrum": (lambda: join_spectra(THETA, THETA[:0]), ValueError, r"spectrum 1.*\[0\]"),
    "sum": (
        lambda: section_frequencies(THETA, (2, 2, 1)),
        ValueError,
        r"sections \(2, 2, 1\) sum to 5; they must sum to 6.*planes",
    ),
    "coordinates": (lambda: section_frequencies(THETA, (4, 4, 4)), ValueError, "not of coordin"),
    "negative section": (
        lambda: section_frequencies(THETA, (4, 3, -1)),
        ValueError,
        r"sections\[2\] is -1.*at least 0",
    ),
    "float section": (lambda: section_frequencies(THETA, (3.0, 3)), TypeError, r"\[0\] is 3.0"),
    "one section": (lambda: section_frequencies(THETA, 6), TypeError, "sections is 6.*tuple"),
    "no section": (lambda: section_frequencies(THETA, ()), ValueError, "sections is empty"),
    "deal": (
        lambda: section_frequencies(THETA, (1, 2, 3), interleaved_sections=True),
        ValueError,
        r"axis 2 3 planes.*at most 2.*move planes to axis 0",
    ),
    "flag": (
        lambda: section_frequencies(THETA, (3, 3), interleaved_sections=1),
        TypeError,
        "interleaved_sections is 1",
    ),
    "size": (lambda: grid_positions(2, 0), ValueError, r"sizes\[1\] is 0.*at least 1"),
    "sizes": (lambda: grid_positions((2, 3)), TypeError, r"sizes\[0\] is \(2, 3\).*integer"),
    "no sizes": (lambda: grid_positions(), ValueError, "0 sizes.*one axis"),
    "segments": (lambda: mrope_position_ids(5), TypeError, r"segments is 5.*pass \[3"),
    "two sizes": (lambda: mrope_position_ids([(2, 3)]), ValueError, r"\(2, 3\).*\(1, h, w\)"),
    "no rows": (lambda: mrope_position_ids([3, (1, 0, 2)]), ValueError, r"\[1\]\[1\] is 0"),
    "minus text": (lambda: mrope_position_ids([-3]), ValueError, r"segments\[0\] is -3"),
    "step": (lambda: mrope_position_ids([(2, 1, 1, -0.5)]), ValueError, r"\[3\] is -0.5"),
    "half positions": (
        lambda: axis_tables(IDS.half(), GIVEN),
        TypeError,
        r"position_ids is torch\.float16.*float32 or float64 alone",
    ),
    "bfloat16 positions": (lambda: AXIAL(Q, Q, IDS.bfloat16()), TypeError, "bfloat16.*half types"),
    "mask": (lambda: axis_tables(IDS > 0, GIVEN), TypeError, r"position_ids is torch\.bool"),
    "list": (lambda: axis_tables([[0], [1]], GIVEN), TypeError, "position_ids is a list"),
    "axis count": (lambda: axis_tables(IDS[:1], GIVEN), ValueError, r"\[1, 6\]; .*2 axes.*stack"),
    "flat ids": (lambda: axis_tables(IDS[0], GIVEN), ValueError, r"\[6\]; it must be \[2, seq"),
    "nan": (lambda: axis_tables(NAN, GIVEN), ValueError, "holds nan.*finite"),
    "inf": (lambda: AXIAL.rotate(Q, IDS / 0.0), ValueError, "holds (nan|inf).*finite"),
    "elsewhere": (lambda: axis_tables(IDS.to("meta"), GIVEN), ValueError, "cpu and position_ids"),
    "float32 theta": (lambda: axis_tables(IDS, GIVEN.float()), TypeError, "frequencies.*float64"),
    "flat theta": (lambda: axis_tables(IDS, GIVEN[0]), ValueError, r"frequencies has shape \[4\]"),
    "table dtype": (
        lambda: axis_tables(IDS, GIVEN, dtype=torch.int64),
        TypeError,
        "dtype is torch",
    ),
    "scale": (lambda: axis_tables(IDS, GIVEN, scale=0.0), ValueError, "scale is 0.0.*above 0"),
    "theta a head": (
        lambda: MultiAxisRotaryEmbedding(GIVEN.expand(4, 2, 4)),
        ValueError,
        r"\[4, 2, 4\].*Mixed",
    ),
    "theta on meta": (
        lambda: MultiAxisRotaryEmbedding(GIVEN.to("meta")),
        ValueError,
        "on meta.*device='cpu'",
    ),
    "theta learned": (
        lambda: MultiAxisRotaryEmbedding(GIVEN.clone().requires_grad_()),
        ValueError,
        "detach",
    ),
    "theta nan": (lambda: MultiAxisRotaryEmbedding(GIVEN / 0), ValueError, "frequencies holds "),
    "one length": (
        lambda: MultiAxisRotaryEmbedding.mrope(8, (2, 2), extension=DynamicNTK(2.0, 64)),
        ValueError,
        r"DynamicNTK.*keeps one spectrum",
    ),
    "sequence": (lambda: AXIAL(Q, Q, IDS[:, :5]), ValueError, r"\[2, 5\]; it must be \[2, 6\]"),
    "batch": (lambda: MIXED(Q, Q, IDS[[0, 0, 1]]), ValueError, r"\[3, 6\]; it must be \[2, 6\]"),
    "three batches": (
        lambda: MIXED(Q, Q, IDS[:, None].expand(2, 3, 6)),
        ValueError,
        r"\[2, 3, 6\]; it must be \[2, 6\] or \[2, 1, 6\]",
    ),
    "pair": (lambda: AXIAL(Q, Q[:, :, :3], IDS), ValueError, "only their heads"),
    "head_dim": (lambda: AXIAL(Q[..., :6], Q[..., :6], IDS), ValueError, "head_dim 6"),
    "integers": (lambda: AXIAL.rotate(Q.long(), IDS), TypeError, r"x is torch\.int64"),
    "inverse": (lambda: AXIAL(Q, Q, IDS, inverse=None), TypeError, "inverse is None"),
    "on meta": (lambda: AXIAL.rotate(Q.to("meta"), IDS), ValueError, "x is on meta and position_"),
    "configuration": (lambda: MultiAxisRotaryEmbedding.from_config(7), TypeError, "config is a in"),
    "shared keys": (lambda: MIXED(Q, Q[:, :1], IDS), ValueError, "k has 1 heads.*4.*repeat"),
    "no heads": (lambda: MixedRotaryEmbedding(8, 0), ValueError, "num_heads is 0"),
    "mixed dim": (lambda: MixedRotaryEmbedding(10, 2), ValueError, "dim is 10; 2 axes"),
    "mixed widths": (lambda: MixedRotaryEmbedding(8, 2, (4, 4)), TypeError, "axes is .4, 4.*int"),
}


@pytest.mark.parametrize(("call", "kind", "message"), BAD.values(), ids=BAD)
def test_bad_calls_are_refused_in_a_sentence(call, kind, message):
    with pytest.raises(kind, match=message) as caught:
        call()
    assert caught.type is kind
    assert any(mark in str(caught.value) for mark in (":", ";", ","))
