"""Test that `rope.diagnose` recovers widths, bases, extensions and decays that are drawn.

No right rotation has a fault. A base and extension found without an expectation explain every
measured angle, up to the rounding of float64 or float32, or of the vectors in bfloat16.
"""

import random
from itertools import product

import pytest
import torch

import rope
from rope.diagnose import diagnose
from rope.extensions import NTK, DynamicNTK, Linear, Llama3, LongRoPE, Proportional, YaRN
from rope.xpos import XPos, decay_rates

WIDTHS = (32, 64, 128, 256)
#: How far angles may be off: rounding in float64; 2^-24 of 2^17; 64 roundings of bfloat16 vectors.
ALLOWED = {torch.float64: 2.0**-30, torch.float32: 2.0**-10, torch.bfloat16: 2.0**-1}


def check(report, true, allowed=ALLOWED[torch.float64]):
    """Each name is a spectrum whose angles are the measured ones, and the true ones."""
    for found in (report.query, report.key):
        assert found.rotary_dim == 2 * len(true), str(report)
        if found.extension is not None:
            made = rope.inverse_frequencies(found.rotary_dim, found.base, extension=found.extension)
            assert ((made - true).abs() * report.reach).max() < allowed, str(report)
            assert found.angle_error < allowed, str(report)


EACH = [
    (32, 64, 64.0),
    (32, 64, 4096.0),
    (32, 1 << 17, 64.0),
    (64, 4096, 512.0),
    (128, 1 << 17, 4096.0),
]


@pytest.mark.parametrize(("dim", "far", "scale_base"), EACH)
@pytest.mark.parametrize("interleaved", [False, True])
def test_xpos_is_recognized_at_every_length(dim, far, scale_base, interleaved):
    rotate = XPos(dim, scale_base, interleaved=interleaved)
    report = diagnose(rotate, dim, max_position=far)
    notes = {each.code for each in report.findings}
    beyond = {"reach"} if far - 1 > rotate.reach(torch.float64) else set()
    assert report.ok and notes == {"decay"} | beyond, str(report)
    assert (report.query.base, report.key.base) == (10000, 10000)
    check(report, rope.inverse_frequencies(dim))


def drawn(draw):
    """The settings of a rotation that `name` can recover."""
    dim = draw.choice([4, 6, 8, *WIDTHS])
    rotary_dim = draw.choice([dim, dim, *(each for each in (4, 8, 32, 64) if each < dim)])
    base = 10 ** draw.uniform(2, 8)
    base = draw.choice([base, float(f"{base:.{draw.randint(1, 9)}g}"), 1e4, 5e5])
    trained, planes = draw.choice([2048, 4096, 8192, 32768]), rotary_dim // 2
    extension = draw.choice(
        [
            None,
            Linear(draw.choice([4.0, draw.uniform(1.1, 32)])),
            NTK(draw.choice([4.0, draw.uniform(1.1, 32)])),
            DynamicNTK(4.0, trained),
            YaRN(draw.choice([4.0, 32.0, 2.5]), trained),
            Llama3(draw.choice([8.0, 32.0]), trained),
            Proportional(draw.choice([0.5, 0.75])),
            LongRoPE((1.0,) * planes, tuple(1 + j**1.2 for j in range(planes)), 4096, 8.0),
        ]
    )
    return dim, rotary_dim, base, extension, draw.random() < 0.5


def recovered(draw, dtypes, decays=False):
    """Draw a rotation, perhaps with a decay or a temperature, and hold its report against it."""
    dim, rotary_dim, base, extension, interleaved = settings = drawn(draw)
    dtype, far = draw.choice(dtypes), draw.choice([64, 100, 1000, 4096, 33000, 1 << 17])
    try:
        rotary = rope.RotaryEmbedding(
            rotary_dim, base=base, extension=extension, interleaved=interleaved
        )
    except ValueError:  # a spectrum in which YaRN has no plane to change
        return
    if interleaved and isinstance(extension, Proportional):
        return  # planes that stand still behind the others are no planes to be seen
    kind = draw.choice(["xpos", "query", "head"] if decays else ["none", "clockwise"])
    scale_base, rates = draw.choice([64.0, 512.0, 4096.0]), decay_rates(rotary_dim)
    rates = rates.repeat_interleave(2) if interleaved else rates.repeat(2)
    rates = torch.cat((rates, torch.ones(dim - rotary_dim)))

    def rotate(q, k, ids):
        given, m = [], ids[:, None, :, None].double()
        for x, sign in ((q, 1), (k, -1)):
            turned = rotary.rotate(x[..., :rotary_dim], ids, inverse=kind == "clockwise")
            turned = torch.cat((turned, x[..., rotary_dim:]), -1)
            heads = 2.0 ** (-12 - torch.arange(2.0)).repeat_interleave(x.shape[1] // 2)
            factor = {
                "none": 1.0,
                "clockwise": 1.0,
                "xpos": rates ** (sign * m / scale_base),
                "query": (1 + m).log().div(6).clamp(min=1) if sign > 0 else 1.0,
                "head": (1 - heads.double()[:, None, None]) ** (sign * m),
            }[kind]
            given.append((turned.double() * factor).to(x))
        return tuple(given)

    report = diagnose(rotate, dim, max_position=far, dtype=dtype)
    told = f"{kind} {settings} {dtype} {far} {scale_base}\n{report}"
    notes = {"xpos": "decay", "head": "decay", "query": "temperature", "clockwise": "direction"}
    allowed = {notes[kind]} if kind in notes else set()
    codes = {each.code for each in report.findings}
    assert report.ok and codes <= allowed | {"length-dependent", "reach"}, told
    assert dtype == torch.bfloat16 or far == 64 or allowed <= codes or kind == "query", told
    if kind == "none":
        assert diagnose(rotate, dim, expected=rotary, max_position=far, dtype=dtype).ok, told
    true = rope.inverse_frequencies(rotary_dim, base, extension=extension, seq_len=report.reach + 1)
    if dtype != torch.bfloat16 or not interleaved:  # where the slowest cannot be seen
        check(report, true, ALLOWED[dtype])
        seen = ("interleaved" if interleaved else "half", -1 if kind == "clockwise" else 1)
        assert {(side.layout, side.direction) for side in (report.query, report.key)} == {seen}, (
            told
        )


@pytest.mark.parametrize("decays", [False, True])
@pytest.mark.parametrize(
    "seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 30))]
)
def test_what_is_drawn_is_recovered_without_an_expectation(seed, decays):
    draw = random.Random(f"{seed} {decays}")
    for _ in range(14):
        recovered(draw, [torch.float64, torch.float32, torch.bfloat16], decays)


def test_learned_frequencies_have_no_name():
    """Near a ladder, and off it by more than powers in float32 are."""
    noise = torch.Generator().manual_seed(0)
    for dim, off in product((32, 64), (1e-4, 1e-2)):
        theta = rope.inverse_frequencies(dim)
        theta = theta * (1 + off * torch.randn(dim // 2, generator=noise, dtype=torch.float64))

        def rotate(q, k, ids, theta=theta):
            tables = rope.rotary_tables(ids[:, None], theta, dtype=torch.float64)
            return tuple(rope.rotary_embedding(x, *(t.to(x) for t in tables)) for x in (q, k))

        report = diagnose(rotate, dim)
        assert [each.code for each in report.findings] == ["frequencies"], str(report)
        assert report.query.extension is None and report.query.angle_error < 1e-9
