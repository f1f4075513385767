"""Test `rope.diagnose` on correct rotations, and on rotations with one fault each."""

import re

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given
from strategies import normal, quick
from torch import nn
from torch.nn.functional import dropout

import rope
from rope.axes import MultiAxisRotaryEmbedding
from rope.config import rotary_settings
from rope.diagnose import diagnose
from rope.extensions import DynamicNTK, LongRoPE, Proportional, YaRN
from rope.layouts import interleaved_to_half
from rope.xpos import XPos, decay_rates

D = 32
ROTARY = rope.RotaryEmbedding(D)
THETA = rope.inverse_frequencies(D)
INTER = rope.RotaryEmbedding(D, interleaved=True)
OTHER = rope.RotaryEmbedding(D, base=5e5)
EIGHT = rope.RotaryEmbedding(8)


def codes(report):
    return [each.code for each in report.findings]


def words(finding):
    """Return the numbers and names in a finding's sentence."""
    return set(re.findall(r"[+-]?\w[\w.+-]*\w|[+-]?\w", finding.sentence))


def apart(of_query, of_key):
    """Return a rotation that applies one function of (x, position_ids) to q and another to k."""
    return lambda q, k, ids: (of_query(q, ids), of_key(k, ids))


def both(rotate):
    return apart(rotate, rotate)


def at(moved):
    """Return a rotation at the positions that a function computes from the ids."""
    return lambda q, k, ids: ROTARY(q, k, moved(ids))


def late(by):
    return lambda x, ids: ROTARY.rotate(x, ids + by)


def late_in(heads=slice(None), planes=slice(None)):
    """Return a rotation one position too far, in some heads or planes only."""

    def rotate(x, ids):
        m = ids[:, None, :, None].repeat(1, x.shape[1], 1, D // 2)
        m[:, heads, :, planes] += 1
        return rope.rotary_embedding(x, *((f(m * THETA).to(x)) for f in (torch.cos, torch.sin)))

    return rotate


def before(norm, rotate=ROTARY.rotate):
    """Return a rotation that first applies a norm."""
    return both(lambda x, ids: rotate(norm(x), ids))


def after(norm):
    """Return a rotation that applies a norm afterward."""
    return both(lambda x, ids: norm(ROTARY.rotate(x, ids)))


def tables(ids, dtype=torch.float64):
    return rope.rotary_tables(ids[:, None], THETA, dtype=dtype)


def by_angle(angle):
    """Return a rotation by angles `[B, 1, S, D/2]` that `angle` gives for ids `[B, 1, S, 1]`."""

    def rotate(x, ids):
        angles = angle(ids[:, None, :, None]).double()
        return rope.rotary_embedding(x, angles.cos(), angles.sin())

    return both(rotate)


def rounded_tables(x, ids):
    return rope.rotary_embedding(x, *(table.to(x) for table in tables(ids, torch.bfloat16)))


def gains(seed):
    return 1 + 0.3 * normal((D,), seed).tanh()


def rms(x):
    return x / x.square().mean(-1, keepdim=True).sqrt()


def mean_removed(x):
    return nn.functional.layer_norm(x, x.shape[-1:])


def layer_norm(x):
    return mean_removed(x) * gains(5).to(x) + gains(6).to(x)


def by_factors(of_query, of_key=torch.ones_like):
    """Return a rotation that then multiplies q and k by factors `[B, 1, S, 1 or D]` of the ids."""

    def rotate(q, k, ids):
        pairs = zip(ROTARY(q, k, ids), (of_query, of_key), strict=True)
        return tuple((x * factor(ids[:, None, :, None].double())).to(x) for x, factor in pairs)

    return rotate


def xpos_factor(sign=1, center=lambda m: 0.0):
    """Return xPos's factor as a function of m, around a center that may depend on the call."""
    rates = decay_rates(D).repeat(2)
    return lambda m: rates ** (sign * (m - center(m)) / 512.0)


def centered(center):
    return by_factors(xpos_factor(1, center), xpos_factor(-1, center))


def taking(fits, rotate=ROTARY):
    """Return a rotation that raises unless `fits(q, ids)` is true."""

    def checked(q, k, ids):
        if not fits(q, ids):
            raise ValueError("too much")
        return rotate(q, k, ids)

    return checked


def per_head(q_shift=0):
    """Return a rotation in which each head has its own frequencies."""
    theta = torch.rand(16, D // 2, generator=torch.manual_seed(0), dtype=torch.float64)

    def rotate(x, ids, shift=0):
        angles = ids[:, None, :, None] * theta[shift : shift + x.shape[1], None]
        return rope.rotary_embedding(x, *(table.to(x) for table in (angles.cos(), angles.sin())))

    return apart(lambda x, ids: rotate(x, ids, q_shift), rotate)


def of_heads(heads, rotate=ROTARY.rotate):
    """Return a rotation that leaves all other heads alone."""
    return lambda x, ids: torch.cat((rotate(x[:, :heads], ids), x[:, heads:]), 1)


def by_tables(cos, sin):
    """Return x cos + quarter(x) sin for functions of the angles."""

    def rotate(x, ids):
        angles = ids[:, None, :, None] * THETA
        a, b, c, s = *x.chunk(2, -1), cos(angles).to(x), sin(angles).to(x)
        return torch.cat((a * c - b * s, a * s + b * c), -1)

    return both(rotate)


def drifting(angle):
    """Return cos and sin of float32 angles, reduced by a float32 2 pi, as fast intrinsics do."""
    turn, angle = torch.tensor(2 * torch.pi, dtype=torch.float32), angle.float()
    return angle - (angle / turn).round() * turn


def along(layer, axes):
    """Return a rotation at the positions that a function computes from the ids, one per axis."""
    return lambda q, k, ids: layer(q, k, torch.stack(axes(ids)))


def one_axis(layer, axis):
    """Return a rotation along one axis, with the other positions at 0."""
    return along(layer, lambda ids: [ids * (a == axis) for a in range(layer.axes)])


PIXELS = torch.linspace(1, 5, D // 2, dtype=torch.float64) * torch.pi
TURNS = rotary_settings(
    {"model_type": "qwen3_vl_text", "head_dim": 128, "max_position_embeddings": 4096}
    | {"rope_scaling": {"mrope_section": [24, 20, 20], "mrope_interleaved": True}}
)
IN_TURNS, IN_BLOCKS = (
    MultiAxisRotaryEmbedding.mrope(128, (24, 20, 20), TURNS.base, interleaved_sections=turns)
    for turns in (True, False)
)

RIGHT = {
    "half": ROTARY,
    "interleaved": INTER,
    "first coordinates": both(EIGHT.rotate),
    "permuted on the way": before(interleaved_to_half),
    "shuffled on the way": before(
        lambda x: x[..., torch.randperm(D, generator=torch.manual_seed(0))]
    ),
    "scaled query": lambda q, k, ids: ROTARY(q / D**0.5, k, ids),
    "layer norm": before(layer_norm),
    "gain after": after(lambda x: rms(x) * gains(1).to(x)),
    "gain after, one a plane": after(lambda x: x * (1 + torch.arange(D) % (D // 2) / D).to(x)),
    "only bfloat16": taking(lambda q, ids: q.dtype == torch.bfloat16),
    "one row at a time": taking(lambda q, ids: len(q) == 1),
    "reach": taking(lambda q, ids: ids.max() < 1000),
    "YaRN": rope.RotaryEmbedding(D, base=1e6, extension=YaRN(4.0, 32768)),
    "dynamic": rope.RotaryEmbedding(D, extension=DynamicNTK(2.0, 4096)),
    "clockwise": both(lambda x, ids: ROTARY.rotate(x, ids, inverse=True)),
    "from position 1": both(late(1)),
    "xpos": XPos(D),
    "xpos centered on the text": centered(lambda m: (m.max() + 1) // 2),
    "temperature": by_factors(lambda m: (m + 1).log().div(6.0).clamp(min=1)),
    "frequencies per head": per_head(),
    "head 0 alone": both(of_heads(1)),
    "rows of 14": along(
        MultiAxisRotaryEmbedding.axial(D, 2, 50.0), lambda ids: [ids // 14, ids % 14]
    ),
    "frames of 14 by 9": along(
        MultiAxisRotaryEmbedding.axial(D, (16, 8, 8), 50.0),
        lambda ids: [ids // 126, ids // 9 % 14, ids % 9],
    ),
    "pixels": by_angle(lambda ids: 2 * ids / 31 * PIXELS),
    "patches from the center": by_angle(lambda ids: (ids - 3.5) * 1.5 * THETA),
    "axis 1 of 2": one_axis(MultiAxisRotaryEmbedding.axial(D, 2), 1),
    "two axes alike": lambda q, k, ids: MultiAxisRotaryEmbedding.axial(D, 2, interleaved=True)(
        q, k, ids.expand(2, *ids.shape)
    ),
    "angles in float32": by_angle(lambda ids: ids.float() * THETA.float()),
}
NOTES = {
    "one row at a time": ["batch-rejected"],
    "reach": ["reach"],
    "gain after": ["norm-after"],
    "dynamic": ["length-dependent"],
    "clockwise": ["direction"],
    "from position 1": ["first-position"],
    "xpos": ["decay"],
    "xpos centered on the text": ["decay", "length-dependent", "reach"],
    "temperature": ["temperature"],
    "frequencies per head": ["heads"],
    "head 0 alone": ["heads"],
    "rows of 14": ["axes"],
    "frames of 14 by 9": ["axes"],
    "patches from the center": ["first-position"],
}
SAID = {"head 0 alone": ": 0 (planes 0 to 15)", "rows of 14": "planes, in the half layout"}


@pytest.mark.parametrize("name", RIGHT)
def test_a_correct_rotation_has_no_fault(name):
    report = diagnose(RIGHT[name], D)
    assert report.ok and SAID.get(name, "") in str(report), str(report)
    assert codes(report) == NOTES.get(name, [])


def with_rest(change):
    """Return a rotation of 8 coordinates that applies `change` to the remaining coordinates."""
    return both(
        lambda x, ids: torch.cat((EIGHT.rotate(x[..., :8], ids), change(x[..., 8:], ids)), -1)
    )


def overwritten(x, ids):
    cos, sin = (table.to(x) for table in tables(ids))
    first = x[..., : D // 2] * cos - x[..., D // 2 :] * sin
    return torch.cat((first, x[..., D // 2 :] * cos + first * sin), -1)


def spilled(x, ids):  # in the next head
    y = ROTARY.rotate(x, ids)
    return torch.cat((y[:, :1], torch.cat((y[:, :-1, :, -4:], y[:, 1:, :, 4:]), -1)), 1)


def rolled(x, ids):
    cos, sin = (torch.cat((table, table), -1).to(x) for table in tables(ids))
    return x * cos + x.roll(1, -1) * sin


BY_CODE = {
    "positions-ignored": {
        "not read for k": apart(ROTARY.rotate, lambda x, ids: ROTARY.rotate(x)),
        "from the first": at(lambda ids: ids[:, :1] + torch.arange(ids.shape[1])),
        "one ahead in decoding": apart(
            lambda x, ids: ROTARY.rotate(x, ids + (ids.shape[1] == 1)), ROTARY.rotate
        ),
        "not at all": lambda q, k, ids: (q.clone(), k.clone()),
        "one head not written": both(
            lambda x, ids: ROTARY.rotate(x, ids) * (torch.arange(x.shape[1]) != 1).view(-1, 1, 1)
        ),
        "chunks of 2048": at(lambda ids: ids + torch.arange(ids.shape[1]) // 2048 * 2048),
    },
    "query-unrotated": {"query as it is": apart(lambda x, ids: x.clone(), ROTARY.rotate)},
    "key-unrotated": {"key only normalized": apart(ROTARY.rotate, lambda x, ids: rms(x))},
    "wrong-axis": {
        "heads for tokens": both(lambda x, ids: INTER.rotate(x.transpose(1, 2)).transpose(1, 2)),
        "with ids": both(lambda x, ids: INTER.rotate(x.transpose(1, 2), ids).transpose(1, 2)),
    },
    "strides-ignored": {
        "strides of contiguous tensors": before(
            lambda x: torch.as_strided(x, x.shape, torch.empty(x.shape).stride())
        ),
    },
    "tokens-mixed": {
        "a cumulative sum": before(lambda x: x.cumsum(2)),
        "over the next head": both(spilled),
    },
    "batch-mixed": {
        "first row for all": at(lambda ids: ids[:1].expand_as(ids)),
    },
    "directions-differ": {
        "opposite": apart(ROTARY.rotate, lambda x, ids: ROTARY.rotate(x, ids, inverse=True))
    },
    "layouts-differ": {
        "two layouts": apart(ROTARY.rotate, INTER.rotate),
        "one permuted": lambda q, k, ids: ROTARY(interleaved_to_half(q), k, ids),
    },
    "spectra-differ": {
        "two bases": apart(ROTARY.rotate, OTHER.rotate),
        "other heads' frequencies": per_head(4),
    },
    "rotated-twice": {
        "key twice": lambda q, k, ids: (ROTARY.rotate(q, ids), ROTARY(k, k, 2 * ids)[1]),
    },
    "table-changes": {
        "other frequencies": by_angle(lambda ids: ids * THETA * torch.where(ids < 4096, 1, 0.7)),
    },
    "not-a-rotation": {
        "only cosines": by_tables(torch.cos, torch.cos),
        "sines one column on": by_tables(torch.cos, lambda angles: angles.roll(-1, -1).sin()),
        "squashed after": after(lambda x: x.tanh()),
        "another kernel for long calls": before(lambda x: x * (1 + (x.shape[2] > 2000))),
    },
    "query-key-offset": {
        "late key after layer norm": lambda q, k, ids: apart(ROTARY.rotate, late(3))(
            layer_norm(q), layer_norm(k), ids
        ),
        "a head late": apart(late_in(heads=[1]), ROTARY.rotate),
        "planes late": apart(ROTARY.rotate, late_in(planes=slice(4, 8))),
        "key rotated twice": lambda q, k, ids: ROTARY(
            q, ROTARY.rotate(k, torch.full_like(ids, 5000)), ids
        ),
    },
    "pairing": {
        "overwritten too early": both(overwritten),
        "rolled by one": both(rolled),
    },
    "norm-after": {
        "layer norm after": after(layer_norm),
    },
    "frequencies": {
        "growing frequencies": by_angle(lambda ids: ids / THETA),
        "learned": by_angle(lambda ids: ids * THETA * (1 + 1e-4 * normal((D // 2,), 0))),
        "shifted by a plane": by_angle(lambda ids: ids * 1e4 ** (2 / D) * THETA),
        "planes both ways": by_angle(lambda ids: ids * THETA * (-1.0) ** torch.arange(D // 2)),
    },
    "position-map": {
        "self-extend": at(lambda ids: torch.where(ids < 512, ids, ids // 4 + 384)),
        "groups of four": at(lambda ids: ids // 4),
    },
    "low-precision-angles": {
        "bfloat16 ids": at(lambda ids: ids.bfloat16().long()),
        "bfloat16 frequencies": by_angle(lambda ids: ids * THETA.bfloat16().double()),
        "float8 frequencies": by_angle(lambda ids: ids * THETA.to(torch.float8_e4m3fn).double()),
        "fast intrinsics": by_angle(lambda ids: drifting(ids * THETA)),
        "ids of the vectors' dtype": lambda q, k, ids: ROTARY(q, k, ids.to(q.dtype).long()),
    },
    "low-precision-tables": {
        "bfloat16 tables": both(rounded_tables),
    },
    "clamped": {
        "last row beyond": at(lambda ids: ids.clamp(max=2047)),
    },
    "wraps": {
        "a table read round": at(lambda ids: ids % 4096),
        "ids in 8 bits with a sign": by_angle(lambda ids: ids.to(torch.int8) * THETA),
    },
    "stateful": {"dropout": after(lambda x: dropout(x, 0.1))},
    "rest-changed": {
        "rest not copied": with_rest(lambda x, ids: 0 * x),
        "last coordinate doubled": with_rest(
            lambda x, ids: x * (1 + (torch.arange(24) == 23)).to(x)
        ),
    },
    "input-changed": {
        "ids in place": lambda q, k, ids: (*ROTARY(q, k, ids), ids.zero_())[:2],
    },
    "dtype-changed": {
        "float32 back": lambda q, k, ids: tuple(
            x if x.dtype == torch.float64 else x.float() for x in ROTARY(q, k, ids)
        )
    },
    "not-finite": {
        "not finite far": by_factors(lambda m: torch.where(m > 60000, torch.nan, 1.0)),
    },
    "not-relative": {
        "scale by position": by_factors(lambda m: 1 + m / 1000, lambda m: 1 + m / 1000),
        "key scaled like its query": by_factors(xpos_factor(), xpos_factor()),
    },
}
FAULTS = {name: (code, rotate) for code, group in BY_CODE.items() for name, rotate in group.items()}
# Words that each finding's sentence must contain.
WORDS = {
    "one ahead in decoding": {"query", "only", "one", "token"},
    "not read for k": {"index"},
    "one head not written": {"query", "head", "1"},
    "over the next head": {"head", "0", "1"},
    "another kernel for long calls": {"2050", "100"},
    "a head late": {"query", "head", "1", "+1", "+0"},
    "planes late": {"key", "planes", "4", "7", "+1", "+0"},
    "sines one column on": {"size", "changes"},
    "fast intrinsics": {"127", "angles"},
    "last coordinate doubled": {"multiplied"},
    "key rotated twice": {"+0", "+5000"},
    "shifted by a plane": {f"{1e4 ** (2 / D):.6g}"},
    "self-extend": {"513"},
    "chunks of 2048": {"2048"},
    "key twice": {"key", "query"},
    "other frequencies": {"4096", "0.7"},
    "float8 frequencies": {"float8_e4m3fn"},
    "bfloat16 ids": {"257"},
    "ids of the vectors' dtype": {"bfloat16", "263"},
    "last row beyond": {"2048"},
    "a table read round": {"4096", "0"},
    "ids in 8 bits with a sign": {"128", "-128"},
    "not finite far": {"60001"},
}


@pytest.mark.parametrize("name", FAULTS)
def test_one_fault_is_one_finding(name):
    code, rotate = FAULTS[name]
    report = diagnose(rotate, D)
    assert codes(report) == [code] and not report.ok and f"fault {code}" in str(report)
    (fault,) = report.findings
    assert WORDS.get(name, set()) <= words(fault)


ONE_SIDED = [
    "from the first",
    "a cumulative sum",
    "layer norm after",
    "self-extend",
    "bfloat16 tables",
]


@pytest.mark.parametrize("side", ["query", "key"])
@pytest.mark.parametrize("name", ONE_SIDED)
def test_the_tensor_at_fault_is_named(name, side):
    code, wrong = FAULTS[name]

    def rotate(q, k, ids):
        right, spoiled = ROTARY(q, k, ids), wrong(q, k, ids)
        return (spoiled[0], right[1]) if side == "query" else (right[0], spoiled[1])

    (fault,) = diagnose(rotate, D).findings
    assert fault.code == code and words(fault) & {"query", "key"} == {side}


AGAINST = {
    "layout": (ROTARY, INTER, {"half", "interleaved"}),
    "width": (rope.RotaryEmbedding(16), ROTARY, {"8", "16"}),
    "frequencies": (ROTARY, OTHER, {f"{THETA[2]:.6g}", f"{OTHER.inv_freq[2]:.6g}"}),
    "attention-scaling": (
        ROTARY,
        rope.RotaryEmbedding(D, extension=YaRN(1.0, 4096, attention_factor=1.2)),
        {"1", "1.2"},
    ),
    "length-dependent": (RIGHT["dynamic"], ROTARY, set()),
}


@pytest.mark.parametrize("code", AGAINST)
def test_a_difference_from_the_expectation_is_one_finding(code):
    rotate, expected, expected_words = AGAINST[code]
    (fault,) = diagnose(rotate, D, expected=expected).findings
    assert fault.code == code and expected_words <= words(fault)
    assert diagnose(expected, D, expected=expected).ok


@pytest.mark.parametrize("kind", ["hunyuan_v1_dense", "qwen3"])
def test_the_model_type_says_whether_a_norm_comes_last(kind):
    config = {"model_type": kind, "head_dim": D, "max_position_embeddings": 4096}
    first, last = before(lambda x: rms(x) * gains(1).to(x)), RIGHT["gain after"]
    right, wrong = (first, last) if kind == "qwen3" else (last, first)
    report = diagnose(right, D, expected=config)
    assert report.ok and not report.findings and report.query.base == 1e4, str(report)
    (fault,) = diagnose(wrong, D, expected=config).findings
    assert (fault.code, fault.severity) == ("norm-after", "fault")
    assert "the order of norm and rotation" in str(diagnose(first, D))


def test_frequencies_that_follow_the_length_are_compared_below_and_above_it():
    factors = torch.linspace(1, 16, D // 2).tolist()
    long, late = (LongRoPE(16 * (1.0,), factors, n, attention_factor=1.0) for n in (4096, 8192))
    layer = rope.RotaryEmbedding(D, extension=long)
    assert diagnose(layer, D, expected=layer).ok
    theta = rope.inverse_frequencies(D, extension=long, seq_len=4097)
    wrong = {4096: by_angle(lambda ids: ids * theta), 4097: rope.RotaryEmbedding(D, extension=late)}
    worst = int((THETA - theta).abs().argmax())
    for length, rotate in wrong.items():
        (fault,) = diagnose(rotate, D, expected=layer).findings
        told = {*map(str, (length, worst)), f"{THETA[worst]:.6g}", f"{theta[worst]:.6g}"}
        assert fault.code == "frequencies" and told <= words(fault), str(fault)
    (missed, *_) = diagnose(layer, D, expected=layer, max_position=99).unexamined
    assert missed == "texts of more than 4096 tokens"
    fixed = by_angle(lambda ids: ids * theta)  # for the longest text, as some engines do
    report = diagnose(fixed, D, expected=layer, cache=True)
    assert report.ok and codes(report) == ["frequencies"], str(report)


def test_axes_are_compared_one_by_one_and_said_to_be_unexamined():
    for axis in range(3):
        report = diagnose(one_axis(IN_TURNS, axis), 128, expected=TURNS)
        assert report.ok and f"3 axes other than {axis} " in str(report), str(report)
    (fault,) = diagnose(one_axis(IN_BLOCKS, 1), 128, expected=TURNS).findings
    assert fault.code == "sections" and {"1", "24", "43"} <= words(fault)
    text = diagnose(
        lambda q, k, ids: IN_BLOCKS(q, k, ids.expand(3, *ids.shape)), 128, expected=TURNS
    )
    assert text.ok and "not examined: the model's 3 axes separately" in str(text)


def test_the_report_says_what_was_not_examined():
    short = taking(lambda q, ids: ids.shape[1] < 2000)
    line = str(diagnose(short, D, num_heads=6)).splitlines()[1]
    given = {"pass expected": dict(expected=ROTARY), "pass cache": dict(cache=True)}
    for part in ("several axes", "than 6 and 2", "negative", "beyond token 7", "masks", *given):
        assert part in line, line
        assert part not in given or part not in str(diagnose(short, D, **given[part]))
    assert "what this fault hides" not in line
    assert "what this fault hides" in diagnose(FAULTS["two bases"][1], D).unexamined


def test_a_clockwise_rotation_is_a_fault_only_if_the_expected_one_is_known():
    (note,) = diagnose(RIGHT["clockwise"], D).findings
    (fault,) = diagnose(RIGHT["clockwise"], D, expected=ROTARY).findings
    assert (note.code, note.severity) == ("direction", "note")
    assert (fault.code, fault.severity) == ("direction", "fault")


def test_a_query_may_carry_the_scale_of_attention():
    report = diagnose(RIGHT["scaled query"], D, expected=ROTARY)
    assert report.ok and report.query.attention_scaling == pytest.approx(D**-0.5)


@pytest.mark.parametrize(("dim", "heads", "kv_heads"), [(2, 1, 1), (4, 3, 1), (6, 12, 4)])
def test_few_coordinates_and_heads_are_enough(dim, heads, kv_heads):
    rotary = rope.RotaryEmbedding(dim, interleaved=True)
    for expected in (None, rotary):
        report = diagnose(rotary, dim, expected=expected, num_heads=heads, num_kv_heads=kv_heads)
        assert report.ok, str(report)
    one_plane = rope.RotaryEmbedding(6, extension=Proportional(1 / 3), interleaved=True)
    assert diagnose(one_plane, 6, expected=one_plane).ok


def test_a_base_keeps_the_digits_that_its_angles_show():
    query = diagnose(rope.RotaryEmbedding(32, base=41829.366), 32).query
    assert query.base == pytest.approx(41829.366, rel=2.0**-43) and query.angle_error < 1e-9


@pytest.mark.parametrize("name", ["dynamic", "xpos centered on the text", "temperature", "xpos"])
def test_cached_keys_that_depend_on_the_length_are_a_fault(name):
    report = diagnose(RIGHT[name], D, cache=True)
    faulty = "length-dependent" in NOTES[name]
    assert report.ok != faulty and ("length-dependent" in codes(report)) == faulty
    if name == "dynamic":
        report = diagnose(RIGHT[name], D, expected=RIGHT[name], cache=True)
        assert codes(report) == ["length-dependent"] and not report.ok


STABLE = [name for name, (code, _) in FAULTS.items() if code not in ("stateful", "rest-changed")]


@quick
@given(st.sampled_from(STABLE), st.sampled_from([torch.float64, torch.float32]), st.integers(1, 5))
def test_a_fault_is_named_in_other_dtypes_and_heads(name, dtype, heads):
    code, rotate = FAULTS[name]
    report = diagnose(rotate, D, dtype=dtype, num_heads=2 * heads, num_kv_heads=heads)
    assert [each.code for each in report.findings if each.severity == "fault"] == [code]


REJECTED = {
    "head_dim=32; pass": dict(head_dim=16),
    "pass num_heads and num_kv_heads": dict(rotate=taking(lambda q, ids: q.shape[1] == 1)),
    "7 tokens": dict(rotate=taking(lambda q, ids: ids.shape[1] < 9)),
    r"float64 \[1, 7, 4, 32\].*\[1, 4, 7, 32\]": dict(
        rotate=lambda q, k, i: (q.transpose(1, 2), k)
    ),
    "meta device": dict(rotate=lambda q, k, ids: (q.to("meta"), k.to("meta"))),
}


@pytest.mark.parametrize("message", REJECTED)
def test_a_function_that_cannot_be_probed_raises(message):
    with pytest.raises(ValueError, match=message):
        diagnose(**dict(rotate=ROTARY, head_dim=D) | REJECTED[message])
