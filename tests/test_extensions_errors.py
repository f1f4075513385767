"""Test bad extensions, user-defined extensions, and extensions that depend on the length."""

from dataclasses import dataclass
from functools import partial

import pytest
import torch
from strategies import check_raises, normal, tolerance

from rope import RotaryEmbedding, inverse_frequencies, reference
from rope.extensions import (
    NTK,
    DynamicNTK,
    Extension,
    Linear,
    Llama3,
    LongRoPE,
    Proportional,
    YaRN,
)

ONES, RISING = (1.0,) * 8, tuple(1.0 + j for j in range(8))
V, T = ValueError, TypeError
freq = inverse_frequencies
yarn = partial(YaRN, 2.0, 64)


def longrope(short=ONES, long=ONES, **options):
    return LongRoPE(short, long, 64, **{"factor": 4.0, **options})


BAD = [  # (call, exception, words in its message)
    (lambda: Linear(0.5), V, "factor 0.5"),
    (lambda: Linear(float("nan")), V, "factor nan"),
    (lambda: Linear("2"), T, "factor '2'"),
    (lambda: NTK(0.5), V, "factor 0.5"),
    (lambda: YaRN(0.5, 64), V, "factor 0.5"),
    (lambda: Llama3(0.5, 64), V, "factor 0.5"),
    (lambda: Proportional(0.5, factor=0.5), V, "factor 0.5"),
    (lambda: longrope(factor=0.5), V, "factor 0.5"),
    (lambda: Llama3(2.0, 64.0), T, "original_max_position_embeddings 64.0"),
    (lambda: yarn(beta_fast=1.0, beta_slow=32.0), V, "beta_fast 1.0 beta_slow 32.0"),
    (lambda: yarn(attention_factor=0.0), V, "attention_factor 0.0"),
    (lambda: freq(8, 1.0, extension=yarn()), V, "base 1.0 YaRN"),
    # In 4 positions, no plane turns once; in 32,768 at base 10, each plane turns over 500 times.
    (lambda: YaRN(4.0, 4).scale(freq(128), 1e4), V, "4 128 10000 beta_slow Linear"),
    (lambda: freq(128, 10.0, extension=YaRN(4.0, 32768)), V, "32768 128 beta_fast Default"),
    (lambda: Llama3(2.0, 64, high_freq_factor=0.5), V, "high_freq_factor 0.5 low_freq_factor"),
    (lambda: freq(16, extension=longrope(long=ONES[1:])), V, "short_factor 8 long_factor 7"),
    (lambda: freq(18, extension=longrope()), V, "short_factor 8 18 9"),
    (lambda: longrope(factor=None), V, "factor attention_factor None"),
    (lambda: longrope(attention_factor=-1.0), V, "attention_factor -1.0"),
    (lambda: Proportional(1.5), V, "partial_rotary_factor 1.5"),
    (lambda: freq(2, extension=NTK(2.0)), V, "NTK.scale nan"),
]


@pytest.mark.parametrize(("call", "kind", "words"), BAD, ids=[bad[2] for bad in BAD])
def test_bad_numbers_are_named(call, kind, words):
    check_raises(call, kind, words)


@dataclass(frozen=True)
class ByLength(Extension):
    """An extension that divides the frequencies by the length in use and inherits `regime`."""

    name = "by length"
    length_dependent = True

    def scale(self, inv_freq, base, seq_len=None):
        return inv_freq / (1 if seq_len is None else seq_len)


@dataclass(frozen=True, slots=True)
class Custom(Extension):
    """An extension that applies the function `change` to the frequencies."""

    change: object
    name = "custom"

    def scale(self, inv_freq, base, seq_len=None):
        return self.change(inv_freq)


def halved(inv_freq):
    return inv_freq / 2


def test_each_length_has_its_own_frequencies_by_default():
    extension = ByLength()
    assert [extension.regime(n) for n in (None, 3, 4)] == [None, 3, 4]
    x = torch.ones(1, 1, 1, 8)
    rotary = RotaryEmbedding(8, 16, extension=extension)
    for length in (2, 3):
        expected = RotaryEmbedding(8, 16, extension=Linear(float(length)))
        for options in ({"offset": length - 1}, {"offset": 1, "seq_len": length}):
            assert torch.equal(rotary.rotate(x, **options), expected.rotate(x, **options))


RESULTS = [
    (lambda f: f[:1], V, "Custom.scale [1] [4]"),
    (lambda f: f.float(), T, "Custom.scale torch.float32 float64"),
    (lambda f: f / 0, V, "Custom.scale inf"),
]


@pytest.mark.parametrize(("change", "kind", "words"), RESULTS, ids=[bad[2] for bad in RESULTS])
def test_the_result_of_scale_is_checked(change, kind, words):
    for create in (inverse_frequencies, RotaryEmbedding):
        check_raises(lambda create=create: create(8, extension=Custom(change)), kind, words)


def test_frequencies_without_readable_values_are_accepted():
    """Check meta tensors, tracers and compiled code, where values cannot be read."""
    plain = inverse_frequencies(8)
    make = lambda **options: inverse_frequencies(8, extension=Custom(halved), **options)
    assert make(device="meta").is_meta
    torch.compiler.reset()
    compiled = torch.compile(make, fullgraph=True, backend="eager")
    assert torch.equal(compiled(), plain / 2)
    fake = pytest.importorskip("torch._subclasses.fake_tensor")
    with fake.FakeTensorMode():
        assert make().shape == (4,)
    infinite = torch.compile(
        lambda: inverse_frequencies(8, extension=Custom(lambda f: f / 0)), backend="eager"
    )
    with pytest.raises(RuntimeError, match=r"Custom\.scale"):
        infinite()


def dynamic(theta, n):
    """Apply the rule in YaRN, section 3.3, for L = 64 and s = 2: the factor 2 n/64 - 1 past 64."""
    scale = max(1.0, 2 * n / 64 - 1)
    return theta * [scale ** (-j / 7) for j in range(8)]


LENGTH_RULES = {
    "dynamic": (DynamicNTK(2.0, 64), dynamic, 1.0),
    "longrope": (
        longrope(long=RISING),
        lambda theta, n: theta / (RISING if n > 64 else ONES),
        (4 / 3) ** 0.5,  # 1 + ln 4 / ln 64 = 4/3
    ),
}


@pytest.mark.parametrize(("extension", "rule", "scale"), LENGTH_RULES.values(), ids=LENGTH_RULES)
def test_frequencies_depend_only_on_the_length_of_the_call(extension, rule, scale):
    """Check that no earlier call matters, unlike in transformers (issue 46624).

    With a fixed length, cached keys and later queries have the same frequencies (issue 33129).
    """
    rotary = RotaryEmbedding(16, 64, extension=extension)
    x = normal((1, 1, 256, 16), 0)

    def expected(n, length):
        theta = rule(reference.inverse_frequencies(16), length)
        rows = scale * reference.rotate_matrix(x[0, 0, :n], range(n), theta, interleaved=False)
        return torch.from_numpy(rows)[None, None]

    slack = dict(rtol=0, atol=tolerance(torch.float64, 6 * 256, operations=4))
    for n in (256, 32, 64, 65, 96):
        torch.testing.assert_close(rotary.rotate(x[:, :, :n]), expected(n, n), **slack)
        single = rotary.rotate(x[:, :, :n].float()).double()
        torch.testing.assert_close(
            single, expected(n, n), rtol=0, atol=tolerance(torch.float32, 6 * scale, operations=6)
        )
    first = rotary.rotate(x[:, :, :64], seq_len=65)
    last = rotary.rotate(x[:, :, 64:65], offset=64, seq_len=65)
    torch.testing.assert_close(torch.cat((first, last), dim=2), expected(65, 65), **slack)
