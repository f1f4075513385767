"""Test tables of every extension against 50 digits, and the published errors of float32 angles."""

import random

import mpmath
import pytest
import torch
import truth

from rope import extensions, inverse_frequencies, rotary_tables
from rope.config import example, rotary_settings

HALF_UNIT = 2.0**-25  # the rounding of a cosine to float32
ANGLE = 2.0**-30  # the largest error of a float64 angle up to 2**20
LAST = 2**20
EXTENSIONS = (  # extensions and rotated widths; a comment names the model with these settings
    (extensions.Default(), 128),
    (extensions.Linear(8.0), 128),
    (extensions.NTK(8.0), 128),
    (extensions.DynamicNTK(2.0, 32768), 128),  # InternLM2
    (extensions.YaRN(4.0, 32768), 128),  # Qwen2.5
    (extensions.YaRN(40.0, 4096, mscale=1.0, mscale_all_dim=1.0), 64),  # DeepSeek-V3
    (extensions.YaRN(32.0, 4096, truncate=False), 64),  # gpt-oss
    (extensions.Llama3(8.0, 8192), 128),  # Llama 3.1
    (rotary_settings(example("phi-3-mini-128k")).extension, 96),
    (extensions.Proportional(0.25), 128),
)
BASES = (10_000.0, 150_000.0, 500_000.0, 1_000_000.0)


def test_every_extension_is_listed():
    assert {extension.name for extension, _ in EXTENSIONS} == set(extensions.REGISTRY)


@pytest.mark.parametrize("number", range(len(EXTENSIONS)))
def test_tables_are_within_their_bounds_up_to_a_million(number):
    """Check neighbors of powers of two and random positions up to 2**20.

    An attention factor above 1 raises entries above 1, where a unit in the last place doubles.
    """
    (extension, dim), base = EXTENSIONS[number], BASES[number % len(BASES)]
    near = {2**power + step for power in range(21) for step in (-1, 0, 1)} - {LAST + 1}
    positions = sorted(near | set(random.Random(number).sample(range(LAST), 40)))
    theta = truth.spectrum(dim, base, extension, LAST + 1)
    inv_freq = inverse_frequencies(dim, base, extension=extension, seq_len=LAST + 1)
    scale, exact_scale = extension.attention_scaling, truth.attention_scaling(extension)
    exact = [truth.exact_row(position, theta, exact_scale) for position in positions]
    rounding = {torch.float64: 0.0, torch.float32: HALF_UNIT * (2 if scale > 1 else 1)}
    for dtype, room in rounding.items():
        tables = rotary_tables(torch.tensor(positions), inv_freq, dtype=dtype, scale=scale)
        for *rows, pairs in zip(*(table.tolist() for table in tables), exact, strict=True):
            for cos, sin, true in zip(*rows, pairs, strict=True):
                error = max(abs(mpmath.mpf(cos) - true[0]), abs(mpmath.mpf(sin) - true[1]))
                assert error <= room + ANGLE


@pytest.mark.parametrize(
    ("last", "published"), [(8191, 2.8e-4), (131071, 4.2e-3), (1048575, 2.5e-2)]
)
def test_float32_angles_are_off_as_published(last, published):
    """Check the last positions of 8K, 131K and 1M with base 10,000 and d = 128.

    The error of our tables stays at 3e-8.
    """
    row = truth.exact_row(last, truth.spectrum(128, 10000.0, extensions.Default()))
    exact = torch.tensor([[float(cosine) for cosine, _ in row]], dtype=torch.float64)
    frequencies = 1.0 / 10000.0 ** (torch.arange(0, 128, 2).float() / 128)
    theirs = (last * frequencies).cos()
    ours, _ = rotary_tables(torch.tensor([last]), inverse_frequencies(128))
    assert float((theirs - exact).abs().max()) == pytest.approx(published, rel=0.02)  # two digits
    assert 2.5e-8 < float((ours - exact).abs().max()) <= HALF_UNIT + ANGLE
