"""Test that `rope.diagnose` recovers random widths, bases and extensions.

If the diagnosis names a base and extension without an expectation, they must explain every measured
angle, up to rounding in float64 or float32, or to the rounding of bfloat16 vectors.
"""

import random

import pytest
import torch

import rope
from rope.diagnose import diagnose
from rope.extensions import NTK, DynamicNTK, Linear, Llama3, LongRoPE, Proportional, YaRN

WIDTHS = (32, 64, 128, 256)
#: Allowed errors of angles, by the dtype of the vectors.
ALLOWED = {torch.float64: 2.0**-30, torch.float32: 2.0**-10, torch.bfloat16: 2.0**-1}


def check(report, true, allowed=ALLOWED[torch.float64]):
    """Assert that the named base and extension give the true angles."""
    for side in (report.query, report.key):
        assert side.rotary_dim == 2 * len(true), str(report)
        if side.extension is not None:
            theta = rope.inverse_frequencies(side.rotary_dim, side.base, extension=side.extension)
            assert ((theta - true).abs() * report.reach).max() < allowed, str(report)
            assert side.angle_error < allowed, str(report)


def drawn(draw):
    """Draw the settings of a rotation that can be recovered."""
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
            LongRoPE((1.0,) * planes, tuple(1 + j**1.2 for j in range(planes)), 4096, factor=8.0),
        ]
    )
    return dim, rotary_dim, base, extension, draw.random() < 0.5


def recovered(draw):
    """Draw a rotation, and check its report."""
    dim, rotary_dim, base, extension, interleaved = settings = drawn(draw)
    dtype, far = draw.choice([*ALLOWED]), draw.choice([64, 100, 1000, 4096, 33000, 1 << 17])
    try:
        rotary = rope.RotaryEmbedding(
            rotary_dim, base=base, extension=extension, interleaved=interleaved
        )
    except ValueError:  # YaRN has no plane to change in this spectrum
        return
    if interleaved and isinstance(extension, Proportional):
        return  # planes at the end that don't rotate can't be seen

    def rotate(q, k, ids):
        return tuple(
            torch.cat((rotary.rotate(x[..., :rotary_dim], ids), x[..., rotary_dim:]), -1)
            for x in (q, k)
        )

    report = diagnose(rotate, dim, max_position=far, dtype=dtype)
    message = f"{settings} {dtype} {far}\n{report}"
    assert report.ok and {each.code for each in report.findings} <= {"length-dependent"}, message
    assert diagnose(rotate, dim, expected=rotary, max_position=far, dtype=dtype).ok, message
    true = rope.inverse_frequencies(rotary_dim, base, extension=extension, seq_len=report.reach + 1)
    if dtype != torch.bfloat16 or not interleaved:  # where the slowest plane can't be seen
        check(report, true, ALLOWED[dtype])
        seen = ("interleaved" if interleaved else "half", 1)
        assert {(side.layout, side.direction) for side in (report.query, report.key)} == {seen}, (
            message
        )


@pytest.mark.parametrize(
    "seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 30))]
)
def test_random_rotations_are_recovered_without_an_expectation(seed):
    draw = random.Random(seed)
    for _ in range(14):
        recovered(draw)
