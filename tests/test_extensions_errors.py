"""What extensions refuse, a reader's own, and what transformers gets wrong with good numbers."""

import copy
import dataclasses
import pickle
from dataclasses import dataclass

import pytest
import torch

from rope import RotaryEmbedding, inverse_frequencies
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

ONES = (1.0,) * 8
V, T = ValueError, TypeError
freq = inverse_frequencies


def longrope(short=ONES, long=ONES, trained=64, **options):
    return LongRoPE(short, long, trained, **{"factor": 4.0, **options})


#: What every factor refuses, and every trained length.
FACTORS = (
    (0.5, V, "factor is 0.5; it must be at least 1: pass"),
    (float("nan"), V, "factor is nan; it must be finite, so pass"),
    (True, T, "factor is True; it must be a real number, so pass"),
    ("2", T, "factor is '2'; it must be a real number, so pass"),
)
LENGTHS = (
    (0, V, "original_max_position_embeddings is 0; it must be at least 1, so pass"),
    (64.0, T, "original_max_position_embeddings is 64.0; it must be an integer, so pass int"),
)
FACTORS_OF = (
    Linear,
    NTK,
    lambda s: DynamicNTK(s, 64),
    lambda s: YaRN(s, 64),
    lambda s: Llama3(s, 64),
    lambda s: Proportional(0.5, s),
)
LENGTHS_OF = (
    lambda n: DynamicNTK(2.0, n),
    lambda n: YaRN(2.0, n),
    lambda n: Llama3(2.0, n),
    lambda n: longrope(trained=n),
)
BAD = [
    ((lambda make=make, value=value: make(value)), kind, message)
    for makers, values in ((FACTORS_OF, FACTORS), (LENGTHS_OF, LENGTHS))
    for make in makers
    for value, kind, message in values
] + [
    (lambda: YaRN(2.0, 64, 1.0, 32.0), V, "beta_fast is 1.0.*32.0.*swap"),
    (lambda: YaRN(2.0, 64, 32.0, 0), V, "beta_slow is 0; it must be above 0: pass"),
    (lambda: YaRN(2.0, 64, float("nan")), V, "beta_fast is nan; it must be finite"),
    (lambda: YaRN(2.0, 64, attention_factor=0.0), V, "attention_factor is 0.0; it must be above 0"),
    (lambda: YaRN(2.0, 64, mscale=-1.0), V, "mscale is -1.0.*at least 0: pass"),
    (lambda: YaRN(2.0, 64, mscale_all_dim=float("nan")), V, "mscale_all_dim is nan; it"),
    (lambda: YaRN(2.0, 64, truncate=1), T, "truncate is 1; it must be True or False"),
    (lambda: freq(8, 1.0, extension=YaRN(2.0, 64)), V, "base is 1.0; YaRN must have one above"),
    # Within 4 positions no plane turns once, within 32,768 at base 10 each turns 540 times.
    (
        lambda: YaRN(4.0, 4).scale(freq(128), 1e4),
        V,
        "is 4; for dim 128 and base 10000 .*beta_slow, 1, turns.*: use Linear.4.",
    ),
    (
        lambda: freq(128, 10.0, extension=YaRN(4.0, 32768)),
        V,
        "is 32768; for dim 128.*at most beta_fast, 32.*: use Default",
    ),
    (lambda: YaRN(4.0, 6, truncate=False).correction_range(8, 1e4), V, "is 6; for dim 8"),
    (lambda: Llama3(2.0, 64, 4.0, 1.0), V, "is 1.0 and low_freq_factor 4.0.*swap"),
    (lambda: Llama3(2.0, 64, 4.0, 4.0), V, "is 4.0 and low_freq_factor 4.0.*larger"),
    (lambda: Llama3(2.0, 64, 0), V, "low_freq_factor is 0; it must be above 0: pass"),
    (lambda: Llama3(2.0, 64, 1, float("inf")), V, "high_freq_factor is inf.*finite"),
    (lambda: longrope(long=ONES[1:]), V, "has 8 numbers and long_factor 7;"),
    (lambda: freq(18, extension=longrope()), V, "have 8 numbers; for a dim of 18 they"),
    (lambda: longrope((*ONES[1:], 0.0)), V, "short_factor is 0.0.*above 0: pass"),
    (lambda: longrope(long=(*ONES[1:], float("nan"))), V, "long_factor is nan; it must be"),
    (lambda: longrope(2.0), T, "short_factor is a float; it must be a list"),
    (lambda: longrope(long="11111111"), T, "long_factor is a str; it must be a l"),
    (lambda: longrope(factor=0.5), V, "factor is 0.5; it must be at least 1"),
    (lambda: longrope(factor=None), V, "factor is None.*one must be.*: pass"),
    (lambda: longrope(attention_factor=-1.0), V, "attention_factor is -1.0; it"),
    (lambda: longrope(trained=1), V, "is 1; it must be at least 2.*: pass"),
    (lambda: Proportional(1.5), V, "partial_rotary_factor is 1.5.*most 1.*: pass"),
    (lambda: Proportional(-0.1), V, "partial_rotary_factor is -0.1.*at least 0"),
    (lambda: freq(2, extension=NTK(2.0)), V, "dim is 2;.*at least two planes.*: pass dim=4"),
    (lambda: RotaryEmbedding(8, extension=Linear), T, "extension is <class.*: make"),
    (lambda: freq(8, seq_len=-1), V, "seq_len is -1; it must be at least 0"),
    (lambda: freq(8, seq_len=128.0), T, "seq_len is 128.0; it must be an int"),
]


@pytest.mark.parametrize(("call", "kind", "message"), BAD, ids=[bad[2] for bad in BAD])
def test_bad_numbers_are_refused_in_a_sentence(call, kind, message):
    with pytest.raises(kind, match=message) as caught:
        call()
    assert caught.type is kind


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


RETURNS = {
    "a plane": (lambda f: f[:1], V, r"Returning.scale returned shape \[1\].*must be \[4\].*freq"),
    "elsewhere": (lambda f: f.to("meta"), V, r"\[4\] on meta; it must be \[4\] on cpu"),
    "float32": (lambda f: f.float(), T, r"returned torch.float32; it must be a float64 tensor"),
    "a list": (lambda f: f.tolist(), T, "returned list; it must be a float64 tensor"),
    "infinite": (lambda f: f / 0, V, "returned holds inf; all must be finite: stop"),
    "nan": (lambda f: f * float("nan"), V, "returned holds nan; all must be finite: stop"),
}


@pytest.mark.parametrize(("what", "kind", "message"), RETURNS.values(), ids=RETURNS)
def test_what_scale_returns_is_looked_at(what, kind, message):
    with pytest.raises(kind, match=message):
        inverse_frequencies(8, extension=Returning(what))
    with pytest.raises(kind, match=message):
        RotaryEmbedding(8, extension=Returning(what))


def test_frequencies_that_no_number_can_be_read_from_are_let_through():
    """On meta, in a tracer and in compiled code a look at the values would fail."""
    extension, plain = Slotted(2.0), inverse_frequencies(8)
    make = lambda **options: inverse_frequencies(8, extension=extension, **options)
    assert make(device="meta").is_meta
    torch.compiler.reset()
    compiled = torch.compile(make, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(), plain / 2)
    fake = pytest.importorskip("torch._subclasses.fake_tensor")
    with fake.FakeTensorMode():
        assert make().shape == (4,)
    refused = torch.compile(
        lambda: inverse_frequencies(8, extension=Returning(lambda f: f / 0)), backend="aot_eager"
    )
    with pytest.raises(RuntimeError, match=r"Returning.scale returned must be finite"):
        refused()


def test_numbers_that_are_no_fields_are_refused_when_the_class_is_written():
    """Half(2.0) == Half(3.0) would be true: no field tells them apart."""
    for base in (Extension, Linear):
        with pytest.raises(TypeError, match=r"Half has an __init__ of its own.*@dataclass\(frozen"):

            class Half(base):
                def __init__(self, factor):
                    self.by = factor

    assert Slotted(2.0) == Slotted(2.0) != Slotted(3.0)
    assert hash(Slotted(2.0)) == hash(copy.deepcopy(Slotted(2.0)))
    assert pickle.loads(pickle.dumps(Slotted(2.0))) == Slotted(2.0)


def llama(trained, **parameters):
    module = pytest.importorskip("transformers.models.llama.modeling_llama")
    config = module.LlamaConfig(
        hidden_size=16,
        num_attention_heads=1,
        max_position_embeddings=trained,
        rope_parameters={"rope_theta": 10000.0, **parameters},
    )
    return module.LlamaRotaryEmbedding(config)


def cosines(module, *lengths):
    """transformers' cosines of the last call, `[n, R/2]`, after calls of these lengths."""
    for n in lengths:
        cos, _ = module(torch.zeros(1), torch.arange(n)[None])
    return cos[0, :, :8]


def test_dynamic_ntk_is_a_function_of_the_call_alone():
    """transformers 46624: what a call returns there depends on the calls before it.

    In 5.23 a short call does reset the spectrum. A call of the trained length itself does not, nor
    does one between the trained and the longest length so far.
    """
    numbers = {"rope_type": "dynamic", "factor": 2.0}
    for short, same in ((32, True), (64, False), (96, False)):
        fresh = cosines(llama(64, **numbers), short)
        after = cosines(llama(64, **numbers), 256, short)
        assert torch.equal(fresh, after) is same, short

        x = torch.ones(1, 1, short, 16)
        extension = DynamicNTK(2.0, 64)
        used = RotaryEmbedding(16, 64, extension=extension)
        used.rotate(torch.ones(1, 1, 256, 16))
        expected = RotaryEmbedding(16, 64, extension=extension).rotate(x)
        assert torch.equal(used.rotate(x), expected)
        assert (expected[0, 0, :, :8] + expected[0, 0, :, 8:] - 2 * fresh).abs().max() < 1e-4


def test_longrope_switch_leaves_no_stale_keys_once_the_length_is_fixed():
    """transformers 33129: keys cached below the trained length do not fit queries above it."""
    long = tuple(1.0 + j for j in range(8))
    parameters = {"short_factor": list(ONES), "long_factor": list(long), "factor": 4.0}
    theirs = llama(64, rope_type="longrope", original_max_position_embeddings=64, **parameters)
    cached, whole = cosines(theirs, 64), cosines(theirs, 65)
    assert (cached - whole[:64]).abs().max() > 0.1  # of the same 64 positions

    rotary = RotaryEmbedding(16, 64, extension=longrope(long=long))
    keys = torch.ones(1, 1, 65, 16)
    whole = rotary.rotate(keys)
    assert not torch.equal(rotary.rotate(keys[:, :, :64]), whole[:, :, :64])
    first = rotary.rotate(keys[:, :, :64], seq_len=65)
    last = rotary.rotate(keys[:, :, 64:], offset=64, seq_len=65)
    assert torch.equal(torch.cat((first, last), dim=2), whole)


def test_truncate_is_read_from_the_layer_it_stands_in():
    """transformers 5.23 looks for `truncate` beside the layer types instead of in them."""
    config = pytest.importorskip("transformers").Gemma3TextConfig
    initialise = pytest.importorskip("transformers.modeling_rope_utils").ROPE_INIT_FUNCTIONS["yarn"]
    yarn = YaRN(32.0, 4096, truncate=False)
    numbers = {"rope_type": "yarn", "rope_theta": 150000.0, "factor": 32.0, "truncate": False}
    numbers["original_max_position_embeddings"] = 4096
    nested = config(
        head_dim=64,
        rope_parameters={
            "full_attention": numbers,
            "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
        },
    )
    theirs, _ = initialise(nested, "cpu", layer_type="full_attention")

    def distance(extension):
        ours = inverse_frequencies(64, 150000.0, extension=extension)
        return (theirs.double() / ours - 1).abs().max()

    assert distance(dataclasses.replace(yarn, truncate=True)) < 1e-5
    assert distance(yarn) > 0.1


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
