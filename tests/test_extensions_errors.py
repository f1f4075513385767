"""What extensions refuse, extensions of a reader's own, and lengths that change the spectrum."""

import copy
import pickle
from dataclasses import dataclass
from functools import partial

import pytest
import torch
from strategies import check_refused, normal, tolerance

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
llama3, yarn = partial(Llama3, 2.0, 64), partial(YaRN, 2.0, 64)


def longrope(short=ONES, long=ONES, trained=64, **options):
    return LongRoPE(short, long, trained, **{"factor": 4.0, **options})


TRAINED = "original_max_position_embeddings"
BAD = [  # the call, the exception, what its message names
    (lambda: Linear(0.5), V, "factor 0.5"),
    (lambda: Linear(float("nan")), V, "factor nan"),
    (lambda: Linear(True), T, "factor True"),
    (lambda: Linear("2"), T, "factor '2'"),
    (lambda: NTK(0.5), V, "factor 0.5"),
    (lambda: DynamicNTK(0.5, 64), V, "factor 0.5"),
    (lambda: YaRN(0.5, 64), V, "factor 0.5"),
    (lambda: Llama3(0.5, 64), V, "factor 0.5"),
    (lambda: Proportional(0.5, 0.5), V, "factor 0.5"),
    (lambda: longrope(factor=0.5), V, "factor 0.5"),
    (lambda: DynamicNTK(2.0, 0), V, f"{TRAINED} 0"),
    (lambda: YaRN(2.0, 0), V, f"{TRAINED} 0"),
    (lambda: Llama3(2.0, 64.0), T, f"{TRAINED} 64.0"),
    (lambda: longrope(trained=0), V, f"{TRAINED} 0"),
    (lambda: yarn(1.0, 32.0), V, "beta_fast 1.0 beta_slow 32.0"),
    (lambda: yarn(float("nan")), V, "beta_fast nan"),
    (lambda: yarn(attention_factor=0.0), V, "attention_factor 0.0"),
    (lambda: yarn(mscale=-1.0), V, "mscale -1.0"),
    (lambda: yarn(truncate=1), T, "truncate 1"),
    (lambda: freq(8, 1.0, extension=yarn()), V, "base 1.0 YaRN"),
    # Within 4 positions no plane turns once, within 32,768 at base 10 each turns 540 times.
    (lambda: YaRN(4.0, 4).scale(freq(128), 1e4), V, f"{TRAINED} 4 128 10000 beta_slow Linear(4)"),
    (
        lambda: freq(128, 10.0, extension=YaRN(4.0, 32768)),
        V,
        f"{TRAINED} 32768 128 beta_fast 32 Default()",
    ),
    (lambda: llama3(4.0, 4.0), V, "high_freq_factor 4.0 low_freq_factor"),
    (lambda: llama3(0), V, "low_freq_factor 0"),
    (lambda: longrope(long=ONES[1:]), V, "short_factor 8 long_factor 7"),
    (lambda: freq(18, extension=longrope()), V, "short_factor 8 18 9"),
    (lambda: longrope((*ONES[1:], 0.0)), V, "short_factor 0.0"),
    (lambda: longrope(2.0), T, "short_factor float"),
    (lambda: longrope(factor=None), V, "factor attention_factor None"),
    (lambda: longrope(attention_factor=-1.0), V, "attention_factor -1.0"),
    (lambda: longrope(trained=1), V, f"{TRAINED} 1 2 attention_factor"),
    (lambda: Proportional(1.5), V, "partial_rotary_factor 1.5"),
    (lambda: Proportional(-0.1), V, "partial_rotary_factor -0.1"),
    (lambda: freq(2, extension=NTK(2.0)), V, "dim 2 dim=4"),
    (lambda: RotaryEmbedding(8, extension=Linear), T, "extension Linear"),
    (lambda: freq(8, seq_len=-1), V, "seq_len -1"),
    (lambda: freq(8, seq_len=128.0), T, "seq_len 128.0"),
]


@pytest.mark.parametrize(("call", "kind", "words"), BAD, ids=[bad[2] for bad in BAD])
def test_bad_numbers_are_refused_by_name(call, kind, words):
    check_refused(call, kind, words)


@dataclass(frozen=True)
class Following(Extension):
    """Slower with each position in use, without a word on regimes."""

    name = "following"
    paper = "none"

    @property
    def length_dependent(self):
        return True

    def scale(self, inv_freq, base, seq_len=None):
        return inv_freq / (1 if seq_len is None else seq_len)


@dataclass(frozen=True)
class Returning(Extension):
    """Whatever it is made with."""

    what: object
    name = "returning"
    paper = "none"

    def scale(self, inv_freq, base, seq_len=None):
        return self.what(inv_freq)


@dataclass(frozen=True, slots=True)
class Slotted(Extension):
    """A dataclass with slots is made twice over, and must be allowed."""

    factor: float
    name = "slotted"
    paper = "none"

    def scale(self, inv_freq, base, seq_len=None):
        return inv_freq / self.factor


def test_each_length_is_a_regime_unless_the_class_says_otherwise():
    extension = Following()
    assert [extension.regime(n) for n in (None, 3, 4)] == [None, 3, 4]
    x = torch.ones(1, 1, 1, 8)
    rotary = RotaryEmbedding(8, 16, extension=extension)
    for length in (2, 3):
        expected = RotaryEmbedding(8, 16, extension=Linear(float(length)))
        for options in ({"offset": length - 1}, {"offset": 1, "seq_len": length}):
            assert torch.equal(rotary.rotate(x, **options), expected.rotate(x, **options))


RETURNS = [
    (lambda f: f[:1], V, "Returning.scale [1] [4]"),
    (lambda f: f.float(), T, "Returning.scale torch.float32 float64"),
    (lambda f: f.tolist(), T, "Returning.scale list float64"),
    (lambda f: f / 0, V, "Returning.scale inf"),
]


@pytest.mark.parametrize(("what", "kind", "words"), RETURNS, ids=[bad[2] for bad in RETURNS])
def test_what_scale_returns_is_checked(what, kind, words):
    for made in (inverse_frequencies, RotaryEmbedding):
        check_refused(lambda made=made: made(8, extension=Returning(what)), kind, words)


def test_frequencies_that_no_number_can_be_read_from_are_let_through():
    """On meta, in a tracer and in compiled code a look at the values would fail."""
    extension, plain = Slotted(2.0), inverse_frequencies(8)
    make = lambda **options: inverse_frequencies(8, extension=extension, **options)
    assert make(device="meta").is_meta
    torch.compiler.reset()
    compiled = torch.compile(make, fullgraph=True, backend="eager")
    assert torch.equal(compiled(), plain / 2)
    fake = pytest.importorskip("torch._subclasses.fake_tensor")
    with fake.FakeTensorMode():
        assert make().shape == (4,)
    refused = torch.compile(
        lambda: inverse_frequencies(8, extension=Returning(lambda f: f / 0)), backend="eager"
    )
    with pytest.raises(RuntimeError, match=r"Returning\.scale"):
        refused()


def test_numbers_that_are_no_fields_are_refused_when_the_class_is_written():
    """Half(2.0) == Half(3.0) would be true: no field tells them apart."""
    for base in (Extension, Linear):
        with pytest.raises(TypeError, match=r"Half.*__init__.*@dataclass\(frozen=True\)"):

            class Half(base):
                def __init__(self, factor):
                    self.by = factor

    assert Slotted(2.0) == Slotted(2.0) != Slotted(3.0)
    assert hash(Slotted(2.0)) == hash(copy.deepcopy(Slotted(2.0)))
    assert pickle.loads(pickle.dumps(Slotted(2.0))) == Slotted(2.0)


def dynamic(theta, n):
    """The rule of YaRN's section 3.3, for L = 64 and s = 2: the factor 2 n/64 - 1 past 64."""
    stretch = max(1.0, 2 * n / 64 - 1)
    return theta * [stretch ** (-j / 7) for j in range(8)]


LENGTH_RULES = {
    "dynamic": (DynamicNTK(2.0, 64), dynamic, 1.0),
    "longrope": (
        longrope(long=RISING),
        lambda theta, n: theta / (RISING if n > 64 else ONES),
        (4 / 3) ** 0.5,  # 1 + ln 4 / ln 64 = 4/3
    ),
}


@pytest.mark.parametrize(("extension", "rule", "scale"), LENGTH_RULES.values(), ids=LENGTH_RULES)
def test_the_spectrum_is_that_of_the_call_whatever_came_before(extension, rule, scale):
    """Nor does a call see the one before: in transformers it does (issue 46624).

    With a cache (issue 33129) a fixed length gives keys and later queries one spectrum.
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


@pytest.mark.parametrize(("dim", "base", "trained"), [(4, 1e4, 4), (128, 1e4, 7), (8, 10.0, 1)])
def test_yarn_keeps_fast_planes_and_divides_slow_ones_wherever_it_is_allowed(dim, base, trained):
    """From the shortest length that it takes up to the longest: never the other way round."""
    plain, allowed = inverse_frequencies(dim, base), 0
    for length in (trained * 2**n for n in range(40)):
        turns = plain * (length / (2 * torch.pi))
        try:
            ratio = YaRN(4.0, length).scale(plain, base) / plain
        except ValueError:
            assert (turns < 1).all() or (turns > 32).all()
            continue
        allowed += 1
        assert (ratio.diff() <= 0).all()
        # An end within a plane is rounded outwards, so the planes next to it are in the ramp.
        assert ((ratio == 1) | (turns <= 32 * base ** (2 / dim))).all()
        assert ((ratio == 0.25) | (turns >= base ** (-2 / dim))).all()
    assert allowed
