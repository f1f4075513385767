"""`rope.diagnose` on rotations made to order: right ones, and one fault at a time."""

import re

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given
from strategies import assert_refused, normal, quick
from torch import nn

import rope
from rope.diagnose import CODES, diagnose
from rope.extensions import DynamicNTK, Llama3, LongRoPE, Proportional, YaRN
from rope.layouts import half_to_interleaved, interleaved_to_half
from rope.xpos import XPos, decay_rates

D = 32
ROTARY = rope.RotaryEmbedding(D)
THETA = rope.inverse_frequencies(D)
INTER = rope.RotaryEmbedding(D, interleaved=True)


def codes(rotate, dim=D, **options):
    return [each.code for each in diagnose(rotate, dim, **options).findings]


def both(function):
    """A rotation of q and k alike, from one of x and position_ids."""
    return lambda q, k, ids: (function(q, ids), function(k, ids))


def tables(ids, inv_freq=None, dtype=torch.float64):
    inv_freq = rope.inverse_frequencies(D) if inv_freq is None else inv_freq
    return rope.rotary_tables(ids[:, None], inv_freq, dtype=dtype)


def turned(x, cos, sin, **options):
    return rope.rotary_embedding(x, cos, sin, **options)


def by_angle(angle):
    """The rotation by angles `[B, 1, S, D/2]` that a function makes of ids `[B, 1, S, 1]`."""

    def rotate(x, ids):
        made = angle(ids[:, None, :, None])
        return turned(x, made.double().cos(), made.double().sin())

    return both(rotate)


def cat_half(x):
    return torch.cat((-x[..., D // 2 :], x[..., : D // 2]), -1)


def gains(seed):
    return 1 + 0.3 * normal((D,), seed).tanh()


def rms(x):
    return x / x.square().mean(-1, keepdim=True).sqrt()


def layer_norm(x, seed=5):
    return nn.functional.layer_norm(x, x.shape[-1:]) * gains(seed).to(x) + gains(seed + 1).to(x)


def over_all(x):
    return x / x.square().mean((1, 3), keepdim=True).sqrt()


EIGHT = rope.RotaryEmbedding(8)
YARN_OF_8 = rope.RotaryEmbedding(8, extension=YaRN(32.0, 4096))


def by_factors(of_query, of_key=None):
    """Rotated, then query and key multiplied by factors `[B, 1, S, 1 or D]` of the ids."""

    def rotate(q, k, ids):
        given = ROTARY(q, k, ids)
        factors = [each(ids[:, None, :, None].double()) for each in (of_query, of_key or of_one)]
        return tuple((x.double() * f).to(x.dtype) for x, f in zip(given, factors, strict=True))

    return rotate


def of_one(m):
    return torch.ones_like(m)


def stretch(centre=lambda m: 0.0, sign=1, scale_base=512.0):
    """xPos's factor around a centre, which may follow the call."""
    rates = decay_rates(D).repeat(2)
    return lambda m: rates ** (sign * (m - centre(m)) / scale_base)


def retention(sign):
    def factor(m):
        heads = 4 if sign > 0 else 2
        rates = (1 - 2.0 ** (-9 - torch.arange(2.0))).repeat_interleave(heads // 2)
        return rates.double()[:, None, None] ** (sign * m)

    return factor


def middle(m):
    return (m.max() + 1) // 2


def half_of_the_call(m):
    return m.shape[2] // 2


def first_of_partial(x, ids):
    return EIGHT.rotate(x, ids)


def one_row(q, k, ids):
    if len(q) > 1:
        raise ValueError("one row at a time")
    return ROTARY(q, k, ids)


def in_one_dtype(dtype, rotary=ROTARY):
    def rotate(q, k, ids):
        if q.dtype != dtype:
            raise TypeError(f"only {dtype}")
        return rotary(q, k, ids)

    return rotate


def reaching(length):
    def rotate(q, k, ids):
        if ids.max() >= length:
            raise IndexError(f"position {int(ids.max())} of {length}")
        return ROTARY(q, k, ids)

    return rotate


def at_most_100_tokens(q, k, ids):
    if ids.shape[1] > 100:
        raise ValueError(f"{ids.shape[1]} tokens")
    return ROTARY(q, k, ids)


RIGHT = {
    "few tokens a call": at_most_100_tokens,
    "half": ROTARY,
    "interleaved": rope.RotaryEmbedding(D, interleaved=True),
    "first coordinates": both(first_of_partial),
    "last coordinates": both(
        lambda x, ids: torch.cat((x[..., :-8], first_of_partial(x[..., -8:], ids)), -1)
    ),
    "permuted on the way": both(lambda x, ids: ROTARY.rotate(interleaved_to_half(x), ids)),
    "permuted back": both(
        lambda x, ids: half_to_interleaved(ROTARY.rotate(interleaved_to_half(x), ids))
    ),
    "scaled query": lambda q, k, ids: ROTARY(q / D**0.5, k, ids),
    "rms norm": both(lambda x, ids: ROTARY.rotate(rms(x), ids)),
    "rms norm with gain": both(lambda x, ids: ROTARY.rotate(rms(x) * gains(3).to(x), ids)),
    "layer norm": both(lambda x, ids: ROTARY.rotate(layer_norm(x), ids)),
    "layer norm without gain": both(
        lambda x, ids: ROTARY.rotate(nn.functional.layer_norm(x, x.shape[-1:]), ids)
    ),
    "norm over all heads": both(lambda x, ids: ROTARY.rotate(over_all(x), ids)),
    "gains by head": both(
        lambda x, ids: ROTARY.rotate(
            rms(x) * (1 + torch.arange(x.shape[1])[:, None, None]).to(x), ids
        )
    ),
    "norm after, without gain": both(lambda x, ids: rms(ROTARY.rotate(x, ids))),
    "gain after, one a plane": both(
        lambda x, ids: ROTARY.rotate(x, ids) * (1 + torch.arange(D) % (D // 2) / D).to(x)
    ),
    "float64 alone": in_one_dtype(torch.float64),
    "bfloat16 alone": in_one_dtype(torch.bfloat16),
    "one row at a time": one_row,
    "reach": reaching(1000),
    "tables of Llama 3": rope.RotaryEmbedding(
        D, base=5e5, extension=Llama3(8.0, 8192), interleaved=True
    ),
    "YaRN": rope.RotaryEmbedding(D, base=1e6, extension=YaRN(4.0, 32768)),
    "dynamic": rope.RotaryEmbedding(D, extension=DynamicNTK(2.0, 4096)),
    "p-RoPE": rope.RotaryEmbedding(D, extension=Proportional(0.5)),
    "longrope": rope.RotaryEmbedding(
        D, extension=LongRoPE((1.0,) * 16, tuple(1.0 + j**1.5 for j in range(16)), 4096, 8.0)
    ),
    "clockwise": lambda q, k, ids: (
        ROTARY.rotate(q, ids, inverse=True),
        ROTARY.rotate(k, ids, inverse=True),
    ),
    "from position 1": lambda q, k, ids: ROTARY(q, k, ids + 1),
    "xpos": XPos(D),
    "xpos from the middle": XPos(D, 4096.0, centre=65536.0, interleaved=True),
    "xpos in bfloat16 alone, whose centre is far": in_one_dtype(
        torch.bfloat16, XPos(D, centre=16384.0)
    ),
    "xpos centred on the text": by_factors(stretch(middle), stretch(middle, -1)),
    "xpos centred on the call": by_factors(
        stretch(half_of_the_call), stretch(half_of_the_call, -1)
    ),
    "retention": by_factors(retention(1), retention(-1)),
    "temperature": by_factors(lambda m: (m + 1).log().div(6.0).clamp(min=1)),
    "angles in float32": by_angle(lambda ids: ids.float() * rope.inverse_frequencies(D).float()),
    "one head each": ROTARY,
    "layer norm, from position 1": both(
        lambda x, ids: ROTARY.rotate(nn.functional.layer_norm(x, x.shape[-1:]), ids + 1)
    ),
    "YaRN on a part of a scaled query": lambda q, k, ids: tuple(
        YARN_OF_8.rotate(x, ids) for x in (q * 0.3, k)
    ),
}
NOTES = {
    "one row at a time": ["refused"],
    "reach": ["reach"],
    "dynamic": ["length-dependent"],
    "longrope": ["length-dependent"],
    "clockwise": ["direction"],
    "from position 1": ["first-position"],
    "layer norm, from position 1": ["first-position"],
    "xpos": ["decay"],
    "xpos from the middle": ["decay"],
    "xpos in bfloat16 alone, whose centre is far": ["decay", "reach"],
    "xpos centred on the text": ["decay", "length-dependent", "reach"],
    "xpos centred on the call": ["decay", "length-dependent"],
    "retention": ["decay"],
    "temperature": ["temperature"],
}


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_implementation_is_not_accused(name):
    heads = {"num_heads": 1, "num_kv_heads": 1} if name == "one head each" else {}
    report = diagnose(RIGHT[name], D, **heads)
    assert report.ok, str(report)
    assert [each.code for each in report.findings] == NOTES.get(name, [])


def stateful():
    kept = {}

    def rotate(q, k, ids):
        kept["base"] = max(kept.get("base", 0), 1e4 + int(ids.max()))
        return rope.RotaryEmbedding(D, base=kept["base"])(q, k, ids)

    return rotate


def wrong_rest(x, ids):
    return torch.cat((first_of_partial(x[..., :8], ids), 0 * x[..., 8:]), -1)


def cos_of_rest(x, ids):
    cos, _ = tables(ids)
    return torch.cat((first_of_partial(x[..., :8], ids), x[..., 8:] * cos[..., 3:4]), -1)


def in_place(q, k, ids):
    return ROTARY(q, k, ids, inplace=True)


def pairing(x, ids):
    cos, sin = (each.repeat_interleave(2, -1).to(x) for each in tables(ids))
    return x * cos + cat_half(x) * sin


def neighbours_with_cat(x, ids):
    cos, sin = (torch.cat((each, each), -1).to(x) for each in tables(ids))
    return x * cos + torch.stack((-x[..., 1::2], x[..., ::2]), -1).flatten(-2) * sin


def mirrored(x, ids):
    cos, sin = (torch.cat((each, each), -1).to(x) for each in tables(ids))
    return x * cos + x.roll(D // 2, -1) * sin


def overwritten(x, ids):
    cos, sin = (each.to(x) for each in tables(ids))
    first = x[..., : D // 2] * cos - x[..., D // 2 :] * sin
    return torch.cat((first, x[..., D // 2 :] * cos + first * sin), -1)


def rolled(x, ids):
    cos, sin = (torch.cat((each, each), -1).to(x) for each in tables(ids))
    return x * cos + x.roll(1, -1) * sin


def q_and_k(of_q, of_k):
    return lambda q, k, ids: (of_q.rotate(q, ids), of_k.rotate(k, ids))


OTHER = rope.RotaryEmbedding(D, base=5e5)
FAULTS = {
    "ids not read": ("positions-ignored", lambda q, k, ids: ROTARY(q, k)),
    "not read for k": (
        "positions-ignored",
        lambda q, k, ids: (ROTARY.rotate(q, ids), ROTARY.rotate(k)),
    ),
    "from the first": (
        "positions-ignored",
        lambda q, k, ids: ROTARY(q, k, ids[:, :1] + torch.arange(ids.shape[1])),
    ),
    "the first for all": (
        "positions-ignored",
        lambda q, k, ids: ROTARY(q, k, ids[:, :1].expand_as(ids)),
    ),
    "the last for all": (
        "positions-ignored",
        lambda q, k, ids: ROTARY(q, k, ids[:, -1:].expand_as(ids)),
    ),
    "one ahead in decoding": (
        "positions-ignored",
        lambda q, k, ids: (ROTARY.rotate(q, ids + (ids.shape[1] == 1)), ROTARY.rotate(k, ids)),
    ),
    "not at all": ("positions-ignored", lambda q, k, ids: (q.clone(), k.clone())),
    "a norm alone": ("positions-ignored", lambda q, k, ids: (layer_norm(q), layer_norm(k))),
    "query as it is": ("query-unrotated", lambda q, k, ids: (q.clone(), ROTARY.rotate(k, ids))),
    "key as it is": ("key-unrotated", lambda q, k, ids: (ROTARY.rotate(q, ids), k.clone())),
    "key normalised alone": ("key-unrotated", lambda q, k, ids: (ROTARY.rotate(q, ids), rms(k))),
    "first heads alone": (
        "query-unrotated",
        lambda q, k, ids: (
            torch.cat((ROTARY.rotate(q[:, :1], ids), q[:, 1:]), 1),
            ROTARY.rotate(k, ids),
        ),
    ),
    "heads for tokens, neighbours": (
        "wrong-axis",
        both(lambda x, ids: INTER.rotate(x.transpose(1, 2)).transpose(1, 2)),
    ),
    "heads for tokens": (
        "wrong-axis",
        both(lambda x, ids: ROTARY.rotate(x.transpose(1, 2)).transpose(1, 2)),
    ),
    "ids along the heads": (
        "wrong-axis",
        both(lambda x, ids: turned(x.transpose(1, 2), *tables(ids)).transpose(1, 2)),
    ),
    "norm over the tokens": (
        "tokens-mixed",
        both(lambda x, ids: ROTARY.rotate(x / x.square().mean(2, keepdim=True).sqrt(), ids)),
    ),
    "a cumulative sum": ("tokens-mixed", both(lambda x, ids: ROTARY.rotate(x.cumsum(2), ids))),
    "first row for all": (
        "batch-mixed",
        lambda q, k, ids: ROTARY(q, k, ids[:1].expand(len(q), -1)),
    ),
    "rows reversed": ("batch-mixed", lambda q, k, ids: ROTARY(q, k, ids.flip(0))),
    "opposite": (
        "directions-differ",
        lambda q, k, ids: (ROTARY.rotate(q, ids), ROTARY.rotate(k, ids, inverse=True)),
    ),
    "two layouts": ("layouts-differ", q_and_k(ROTARY, INTER)),
    "two widths": ("layouts-differ", q_and_k(ROTARY, rope.RotaryEmbedding(16))),
    "one permuted": (
        "layouts-differ",
        lambda q, k, ids: (
            ROTARY.rotate(interleaved_to_half(q), ids),
            ROTARY.rotate(k, ids),
        ),
    ),
    "two bases": ("spectra-differ", q_and_k(ROTARY, OTHER)),
    "late query": (
        "query-key-offset",
        lambda q, k, ids: (ROTARY.rotate(q, ids + 1), ROTARY.rotate(k, ids)),
    ),
    "late key": (
        "query-key-offset",
        lambda q, k, ids: (ROTARY.rotate(rms(q), ids), ROTARY.rotate(rms(k), ids + 7)),
    ),
    "key rotated twice": (
        "query-key-offset",
        lambda q, k, ids: ROTARY(q, ROTARY.rotate(k, torch.full_like(ids, 5000)), ids),
    ),
    "repeat_interleave with halves": ("pairing", both(pairing)),
    "cat with neighbours": ("pairing", both(neighbours_with_cat)),
    "no minus": ("pairing", both(mirrored)),
    "overwritten too early": ("pairing", both(overwritten)),
    "rolled by one": ("pairing", both(rolled)),
    "gain after": ("norm-after", both(lambda x, ids: rms(ROTARY.rotate(x, ids)) * gains(1).to(x))),
    "layer norm after": ("norm-after", both(lambda x, ids: layer_norm(ROTARY.rotate(x, ids)))),
    "layer norm after, no gain": (
        "norm-after",
        both(lambda x, ids: nn.functional.layer_norm(ROTARY.rotate(x, ids), (D,))),
    ),
    "growing frequencies": ("frequencies", by_angle(lambda ids: ids / rope.inverse_frequencies(D))),
    "one repeated": (
        "frequencies",
        by_angle(lambda ids: ids * rope.inverse_frequencies(D)[torch.arange(16) // 2 * 2]),
    ),
    "shifted by a plane": (
        "frequencies",
        by_angle(lambda ids: ids * 1e4 ** (-2 * (torch.arange(16).double() - 1) / D)),
    ),
    "grouped": ("position-map", lambda q, k, ids: ROTARY(q, k, ids // 4)),
    "self-extend": (
        "position-map",
        lambda q, k, ids: ROTARY(q, k, torch.where(ids < 512, ids, ids // 4 + 384)),
    ),
    "bfloat16 ids": ("low-precision-angles", lambda q, k, ids: ROTARY(q, k, ids.bfloat16().long())),
    "bfloat16 frequencies": (
        "low-precision-angles",
        by_angle(lambda ids: ids * rope.inverse_frequencies(D).bfloat16().double()),
    ),
    "float16 frequencies": (
        "low-precision-angles",
        by_angle(lambda ids: ids * rope.inverse_frequencies(D).half().double()),
    ),
    "bfloat16 angles": (
        "low-precision-angles",
        by_angle(lambda ids: (ids * rope.inverse_frequencies(D)).bfloat16()),
    ),
    "bfloat16 all": (
        "low-precision-angles",
        by_angle(lambda ids: ids.bfloat16() * rope.inverse_frequencies(D).bfloat16()),
    ),
    "TF32 ids": (
        "low-precision-angles",
        lambda q, k, ids: ROTARY(
            q, k, (ids.float().view(torch.int32) & -8192).view(torch.float32).long()
        ),
    ),
    "ids of the vectors' dtype": (
        "low-precision-angles",
        lambda q, k, ids: ROTARY(q, k, ids.to(q.dtype).long()),
    ),
    "bfloat16 tables": (
        "low-precision-tables",
        both(lambda x, ids: turned(x, *(t.to(x) for t in tables(ids, dtype=torch.bfloat16)))),
    ),
    "float16 tables": (
        "low-precision-tables",
        both(lambda x, ids: turned(x, *(t.to(x) for t in tables(ids, dtype=torch.float16)))),
    ),
    "products in bfloat16": (
        "low-precision-tables",
        both(lambda x, ids: ROTARY.rotate(x.bfloat16(), ids).to(x)),
    ),
    "last row beyond": ("clamped", lambda q, k, ids: ROTARY(q, k, ids.clamp(max=2047))),
    "identity beyond": (
        "clamped",
        lambda q, k, ids: ROTARY(q, k, torch.where(ids < 1000, ids, torch.zeros_like(ids))),
    ),
    "a table read round": ("wraps", lambda q, k, ids: ROTARY(q, k, ids % 4096)),
    "ids in 8 bits": ("wraps", lambda q, k, ids: ROTARY(q, k, ids.to(torch.uint8))),
    "ids in 8 bits with a sign": ("wraps", by_angle(lambda ids: ids.to(torch.int8) * THETA)),
    "ids in 16 bits with a sign": ("wraps", by_angle(lambda ids: ids.to(torch.int16) * THETA)),
    "state": ("stateful", stateful()),
    "dropout": ("stateful", both(lambda x, ids: nn.functional.dropout(ROTARY.rotate(x, ids), 0.1))),
    "late key after layer norm": (
        "query-key-offset",
        lambda q, k, ids: (
            ROTARY.rotate(layer_norm(q), ids),
            ROTARY.rotate(layer_norm(k), ids + 3),
        ),
    ),
    "rest zeroed": ("rest-changed", both(wrong_rest)),
    "rest times cos": ("rest-changed", both(cos_of_rest)),
    "in place": ("input-changed", in_place),
    "float32 back": (
        "dtype-changed",
        lambda q, k, ids: tuple(
            x if x.dtype == torch.float64 else x.float() for x in ROTARY(q, k, ids)
        ),
    ),
    "not finite": ("not-finite", lambda q, k, ids: (q * torch.nan, k)),
    "not finite far": (
        "not-finite",
        both(lambda x, ids: ROTARY.rotate(x, ids) + (ids[:, None, :, None] > 60000) * torch.nan),
    ),
    "scale by position": (
        "not-relative",
        both(lambda x, ids: ROTARY.rotate(x, ids) * (1 + ids[:, None, :, None].to(x) / 1000)),
    ),
    "key stretched like its query": ("not-relative", by_factors(stretch(), stretch())),
    "decay of the query alone": ("not-relative", by_factors(stretch())),
    "temperature of the key": ("not-relative", by_factors(of_one, lambda m: 1 + (m + 1).log())),
}


@pytest.mark.parametrize("name", FAULTS)
def test_one_fault_is_one_finding(name):
    code, rotate = FAULTS[name]
    report = diagnose(rotate, D)
    assert [each.code for each in report.findings] == [code], str(report)
    assert not report.ok


AGAINST = {
    "layout": (ROTARY, INTER),
    "width": (rope.RotaryEmbedding(16), ROTARY),
    "frequencies": (ROTARY, OTHER),
    "attention-scaling": (
        ROTARY,
        rope.RotaryEmbedding(D, extension=YaRN(1.0, 4096, attention_factor=1.2)),
    ),
    "length-dependent": (rope.RotaryEmbedding(D, extension=DynamicNTK(2.0, 4096)), ROTARY),
}


@pytest.mark.parametrize("code", AGAINST)
def test_a_difference_from_the_expectation_is_one_finding(code):
    rotate, expected = AGAINST[code]
    assert codes(rotate, expected=expected) == [code]
    assert diagnose(expected, D, expected=expected).ok


def test_another_fault_comes_before_the_dtype():
    _, float32_back = FAULTS["float32 back"]
    assert codes(float32_back, expected=INTER) == ["layout"]


@pytest.mark.parametrize("heads", [(1, 1), (3, 1), (12, 4)])
@pytest.mark.parametrize("dim", [2, 4, 6])
def test_few_coordinates_and_heads_are_enough(dim, heads):
    rotary = rope.RotaryEmbedding(dim, interleaved=True)
    for expected in (None, rotary):
        made = diagnose(rotary, dim, expected=expected, num_heads=heads[0], num_kv_heads=heads[1])
        assert made.ok, str(made)


def test_one_plane_may_be_of_either_layout():
    rotary = rope.RotaryEmbedding(6, extension=Proportional(1 / 3), interleaved=True)
    assert diagnose(rotary, 6, expected=rotary).ok


def test_numbers_are_named_in_few_digits():
    spectrum = rope.inverse_frequencies(D, 5e5, extension=Llama3(8.0, 8192))
    spectrum[-1] *= 1 + 1.3e-5  # as far as powers in float32 may leave it
    assert diagnose(by_angle(lambda ids: ids * spectrum), D).query.extension == Llama3(8.0, 8192)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("dim", [32, 64])
@pytest.mark.parametrize("base", [41829.366, 12345.678901, 1e4 * 4 ** (64 / 62)])
def test_a_base_is_rounded_only_where_the_angles_are_those_of_the_round_number(base, dim, dtype):
    found = diagnose(rope.RotaryEmbedding(dim, base=base), dim, dtype=dtype).query
    exact = dtype == torch.float64
    assert found.extension == rope.extensions.Default()
    assert abs(found.base / base - 1) < (2.0**-43 if exact else 2.0**-21)
    assert found.angle_error < (1e-9 if exact else 1e-4) and found.off_from is None


@pytest.mark.parametrize(
    "name", ["xpos centred on the text", "xpos centred on the call", "dynamic"]
)
def test_what_follows_the_length_spoils_keys_that_are_kept(name):
    report = diagnose(RIGHT[name], D, cache=True)
    (fault,) = (each for each in report.findings if each.severity == "fault")
    assert fault.code == "length-dependent"
    growth = re.search(r"multiplied by up to (\S+)$", fault.sentence)
    if name == "dynamic":
        assert "off by" in fault.sentence and growth is None
        assert not diagnose(RIGHT[name], D, expected=RIGHT[name], cache=True).ok
    else:  # between a text of 16 and the longest, or calls of one token and of seven
        by = {"text": (report.reach + 1) // 2 - 8, "call": 3}[name.split()[-1]]
        assert float(growth[1]) == pytest.approx((1.4 / 0.4) ** (by / 512), rel=0.01)


def test_a_fixed_centre_and_a_temperature_leave_kept_keys_right():
    grown = by_factors(lambda m: torch.full_like(m, 1 + m.shape[2] / 100))  # the query's, by length
    for rotate in (XPos(D), ROTARY, RIGHT["temperature"], grown):
        assert diagnose(rotate, D, cache=True).ok


def test_angles_are_compared_with_those_of_the_expected():
    query = diagnose(FAULTS["last row beyond"][1], D, expected=ROTARY).query  # clamped to 2047
    assert query.off_from == 2048 and 3 < query.angle_error <= torch.pi


def test_the_position_that_a_narrow_type_takes_is_named():
    for name, begin in (("ids in 8 bits with a sign", 128), ("ids in 16 bits with a sign", 32768)):
        (found,) = diagnose(FAULTS[name][1], D).findings
        assert f"position {begin} of the query is turned as position {-begin}," in found.sentence


def test_every_code_is_tried():
    noted = {code for codes in NOTES.values() for code in codes}
    shown_by_files = {"cache-shift"}
    assert {code for code, _ in FAULTS.values()} | {*AGAINST} | noted | shown_by_files == {*CODES}


SINGLE = [name for name, (code, _) in FAULTS.items() if code not in ("stateful", "rest-changed")]


@quick
@given(st.sampled_from(SINGLE), st.sampled_from([torch.float64, torch.float32]), st.integers(1, 5))
def test_a_fault_is_named_in_other_dtypes_and_heads(name, dtype, heads):
    code, rotate = FAULTS[name]
    found = codes(rotate, dtype=dtype, num_heads=2 * heads, num_kv_heads=heads)
    assert found == [code]


def test_a_stranger_gets_copies_and_makes_no_gradients():
    weight = torch.ones(D, requires_grad=True)

    def rotate(q, k, ids):
        assert not torch.is_grad_enabled()
        q, k = ROTARY(q * weight.to(q), k, ids)
        ids.zero_()
        return q, k

    report = diagnose(rotate, D)
    assert [each.code for each in report.findings] == ["input-changed"]
    assert "position_ids" in report.findings[0].sentence


@pytest.mark.parametrize("most", [32, 33, 100, 1000])
def test_a_short_reach_is_enough(most):
    for rotary in (ROTARY, INTER, RIGHT["YaRN"], RIGHT["layer norm"]):
        for dtype in (None, torch.float32, torch.bfloat16):
            report = diagnose(rotary, D, max_position=most, dtype=dtype)
            assert report.ok and report.reach == most - 1, str(report)


def test_a_function_that_cannot_be_probed_is_refused_in_a_sentence():
    calls = iter(range(10))
    values = {
        "rotate raised ValueError": lambda: diagnose(ROTARY, 16),
        "having taken 7 tokens": lambda: diagnose(lambda *x: (next(calls), ROTARY(*x))[1], D),
        r"rotate returned torch.float64 \[1, 7, 4, 32\] on cpu and torch": lambda: diagnose(
            lambda q, k, i: (q.transpose(1, 2), k), D
        ),
        "rotate returned a NoneType; it": lambda: diagnose(lambda q, k, ids: None, D),
        "rotate returned nothing; it": lambda: diagnose(lambda q, k, ids: (), D),
        "on meta and .* on meta; it": lambda: diagnose(
            lambda q, k, i: (q.to("meta"), k.to("meta")), D
        ),
        "rotate returned torch.int64 .*floating": lambda: diagnose(
            lambda q, k, ids: (q.long(), k.long()), D
        ),
        "or pass .* device": lambda: diagnose(ROTARY, D, device="meta"),
        "TypeError: 'int' object is not callable": lambda: diagnose(3, D),
    }
    types = {
        "dtype is torch.int64": lambda: diagnose(ROTARY, D, dtype=torch.int64),
        "cache is 'no'.*True or False": lambda: diagnose(ROTARY, D, cache="no"),
    }
    for message in values | types:
        assert_refused(message, values, types)
