"""Test context extensions against transformers, the papers' formulas and published numbers."""

import math
from dataclasses import asdict, replace

import hypothesis.strategies as st
import pytest
import torch
import truth
from hypothesis import given
from strategies import quick

from rope import inverse_frequencies
from rope.extensions import (
    NTK,
    REGISTRY,
    Default,
    DynamicNTK,
    Linear,
    Llama3,
    LongRoPE,
    Proportional,
    YaRN,
    mscale,
)

L = 4096
SHORT = tuple(1 + j / 100 for j in range(64))
LONG = tuple(1 + j for j in range(64))
BANDS = Llama3(32.0, L, low_freq_factor=2.0, high_freq_factor=10.0)
# Extension, dim, base, and how much a blend amplifies the error of its inputs.
CASES = {
    "default": (Default(), 128, 10000.0, 0),
    "linear": (Linear(8.0), 128, 10000.0, 0),
    "ntk": (NTK(3.0), 128, 10000.0, 1),
    "dynamic": (DynamicNTK(2.0, L), 128, 10000.0, 1),
    "dynamic, odd factor": (DynamicNTK(7.3, L), 64, 5e5, 1),
    "yarn": (YaRN(10.0, L), 128, 10000.0, 0),
    "yarn, attention factor": (YaRN(4.0, L, attention_factor=1.5), 128, 1e6, 0),
    "yarn, mscale": (YaRN(40.0, L, mscale=1.0, mscale_all_dim=0.7), 64, 10000.0, 0),
    "yarn, half of mscale": (YaRN(40.0, L, mscale=0.7), 64, 10000.0, 0),
    "yarn, short": (YaRN(4.0, 128), 64, 10000.0, 0),  # the ramp starts below 0
    # Here, the ramp ends beyond dim - 1 = 15.
    "yarn, long": (YaRN(4.0, 10**6, beta_fast=1e4), 16, 100.0, 0),
    "yarn, betas": (YaRN(2.5, L, beta_fast=16.0, beta_slow=2.0), 96, 10000.0, 0),
    "yarn, not truncated": (YaRN(32.0, L, truncate=False), 64, 150000.0, 64 / 9),
    "llama3": (Llama3(8.0, 8192), 128, 5e5, 4 / 3),
    "llama3, other bands": (BANDS, 64, 10000.0, 10 / 8),
    "longrope": (LongRoPE(SHORT, LONG, L, factor=32.0), 128, 10000.0, 0),
    "longrope, given": (LongRoPE(SHORT, LONG, L, attention_factor=1.2), 128, 10000.0, 0),
    "proportional": (Proportional(0.25), 128, 1e6, 0),
    "proportional, scaled": (Proportional(0.3, factor=4.0), 64, 10000.0, 0),
}
EACH = pytest.mark.parametrize(("extension", "dim", "base", "gain"), CASES.values(), ids=CASES)
LENGTHS = (None, 1, L - 1, L, L + 1, 4 * L)


def allowed(dtype, base, gain):
    """Return the allowed error as a fraction of the plain frequency.

    The exponent's two roundings change the power by 2 ln(base) half-units. The power adds two and
    later operations at most six. A blend's weight has the same error, multiplied by the gain.
    """
    return (1 + gain) * (math.log(base) + 5) * torch.finfo(dtype).eps


def llama(extension, dim, base):
    """Return a transformers configuration with the extension's own field names and values."""
    config = pytest.importorskip("transformers").LlamaConfig
    numbers = {key: value for key, value in asdict(extension).items() if value is not None}
    for key in ("short_factor", "long_factor"):
        if key in numbers:
            numbers[key] = list(numbers[key])
    trained = numbers.get("original_max_position_embeddings", L)
    return config(
        hidden_size=dim,
        num_attention_heads=1,
        max_position_embeddings=trained,
        rope_parameters={"rope_type": extension.name, "rope_theta": base, **numbers},
    )


@pytest.mark.parametrize("name", [name for name in CASES if name not in ("default", "ntk")])
def test_transformers_makes_the_same_spectrum(name):
    extension, dim, base, gain = CASES[name]
    rope_utils = pytest.importorskip("transformers.modeling_rope_utils")
    initialise = rope_utils.ROPE_INIT_FUNCTIONS[extension.name]
    plain = inverse_frequencies(dim, base)
    for length in LENGTHS:
        theirs, scaling = initialise(llama(extension, dim, base), "cpu", seq_len=length)
        ours = inverse_frequencies(dim, base, extension=extension, seq_len=length)
        slack = allowed(torch.float32, base, gain) * plain
        assert ((ours - theirs.double()).abs() <= slack).all()
        assert extension.attention_scaling == pytest.approx(scaling, rel=4 * 2**-52)


@EACH
def test_fifty_digits_of_the_papers_formula(extension, dim, base, gain):
    """Compare with the formulas in the papers, computed with mpmath."""
    slack = (allowed(torch.float64, base, gain) * inverse_frequencies(dim, base)).tolist()
    for length in LENGTHS:
        ours = inverse_frequencies(dim, base, extension=extension, seq_len=length).tolist()
        exact = truth.spectrum(dim, base, extension, length)
        assert all(abs(a - b) <= room for a, b, room in zip(ours, exact, slack, strict=True))
    factor = truth.attention_scaling(extension)
    assert abs(extension.attention_scaling - factor) <= 4 * 2**-53 * factor


def agrees(value, text):
    """Return True if the value, rounded to as many digits as the text has, equals the text."""
    digits = len(text.split("e")[0].replace(".", "").lstrip("0"))
    return float(f"{value:.{digits - 1}e}") == float(text)


PUBLISHED = [
    (None, 10000.0, None, {1: "0.86596", 63: "1.1548e-4"}),
    (DynamicNTK(10.0, 2048), 10000.0, 16384, {63: "1.6265e-6"}),
    (YaRN(10.0, 2048), 10000.0, None, {17: "8.3479e-2", 41: "2.7384e-4"}),
    (Llama3(10.0, 2048), 10000.0, None, {31: "1.0730e-2", 40: "3.4539e-4"}),
    (Llama3(8.0, 8192), 5e5, None, {28: "3.211446e-3", 29: "2.166571e-3"}),
    (Llama3(8.0, 8192), 5e5, None, {35: "9.556212e-5", 63: "3.068926e-7"}),
]


@pytest.mark.parametrize(("extension", "base", "length", "numbers"), PUBLISHED)
def test_published_frequencies(extension, base, length, numbers):
    """Compare with published values; Llama 3.1's are float32, so only seven digits count."""
    theta = inverse_frequencies(128, base, extension=extension, seq_len=length).tolist()
    assert all(agrees(theta[j], text) for j, text in numbers.items())


@pytest.mark.parametrize(
    ("yarn", "dim", "base", "low", "high"),
    [
        (YaRN(10.0, 2048, truncate=False), 128, 10000.0, 16.128, 40.210),
        (YaRN(10.0, 4096, truncate=False), 128, 10000.0, 20.945, 45.027),
        (YaRN(40.0, 4096, truncate=False), 64, 10000.0, 10.472, 22.513),  # DeepSeek-V3
        (YaRN(32.0, 4096, truncate=False), 64, 150000.0, 8.093, 17.398),  # gpt-oss
    ],
)
def test_published_correction_dimensions(yarn, dim, base, low, high):
    ends = yarn.correction_range(dim, base)
    assert ends == pytest.approx((low, high), abs=1e-3)  # one unit in the last published digit
    whole = replace(yarn, truncate=True).correction_range(dim, base)
    assert whole == (math.floor(ends[0]), math.ceil(ends[1]))


def test_published_attention_factors():
    assert [f"{mscale(s):.5f}" for s in (16, 32, 40)] == ["1.27726", "1.34657", "1.36889"]
    assert YaRN(40.0, L, mscale=1.0, mscale_all_dim=1.0).attention_scaling == 1  # DeepSeek-V3
    assert mscale(0.5) == mscale(1) == 1


@pytest.mark.parametrize(("beta", "end"), [(1.5, 42.21), (1.6, 41.76)])
def test_equal_betas_make_a_step(beta, end):
    """Check that all planes before the step are kept and all planes after it are divided."""
    yarn = YaRN(4.0, L, beta_fast=beta, beta_slow=beta, truncate=False)
    plain = inverse_frequencies(128)
    assert yarn.correction_range(128, 10000.0) == pytest.approx((end, end), abs=0.005)
    expected = torch.where(torch.arange(64) < end, plain, plain / 4)
    torch.testing.assert_close(yarn.scale(plain, 10000.0), expected, rtol=2 * 2**-53, atol=0)


factors = st.floats(1, 1000)
lengths, long = st.integers(2, 10**6), st.integers(16, 10**6)
per_plane = st.lists(st.floats(1, 100), min_size=8, max_size=8)
low, high = st.floats(0.5, 2), st.floats(2.5, 40)
EXTENSIONS = st.one_of(
    st.just(Default()),
    st.builds(Linear, factors),
    st.builds(NTK, factors),
    st.builds(DynamicNTK, factors, lengths),
    st.builds(YaRN, factors, long, beta_fast=high, beta_slow=low, truncate=st.booleans()),
    st.builds(Llama3, factors, lengths, low_freq_factor=low, high_freq_factor=high),
    st.builds(LongRoPE, per_plane, per_plane, lengths, factor=factors),
    st.builds(Proportional, st.floats(0, 1), factor=factors),
)


@given(EXTENSIONS, st.one_of(st.none(), st.integers(0, 10**7)))
@quick
def test_no_frequency_grows_or_becomes_negative(extension, length):
    plain = inverse_frequencies(16)
    changed = inverse_frequencies(16, extension=extension, seq_len=length)
    assert changed.dtype == torch.float64
    assert (changed >= 0).all()
    assert (changed <= plain * (1 + 2 * 2**-53)).all()  # a blend's two shares may round up
    assert extension.attention_scaling >= 1


@given(EXTENSIONS, st.integers(0, 10**7), st.integers(0, 10**7))
@quick
def test_lengths_of_one_regime_share_one_spectrum(extension, one, two):
    assert extension.length_dependent or extension.regime(one) == extension.regime(two)
    assert extension.regime(None) is None
    if extension.regime(one) == extension.regime(two):
        spectra = (inverse_frequencies(16, extension=extension, seq_len=n) for n in (one, two))
        assert torch.equal(*spectra)
    assert hash(extension.regime(one)) is not None


def test_the_registry_has_every_type_of_transformers():
    theirs = pytest.importorskip("transformers.modeling_rope_utils").ROPE_INIT_FUNCTIONS
    assert set(theirs) | {"default", "ntk"} == set(REGISTRY)


def test_equal_band_factors_make_a_step():
    plain = torch.tensor([2.0, 1.0, 0.5], dtype=torch.float64)
    edge = 100 / (2 * torch.pi)
    step = Llama3(8.0, 100, low_freq_factor=edge, high_freq_factor=edge)
    assert step.scale(plain, 1e4).tolist() == [2.0, 0.125, 0.0625]
