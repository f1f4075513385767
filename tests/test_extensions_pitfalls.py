"""Bad numbers for a context extension, and what transformers gets wrong with good ones."""

import dataclasses

import pytest
import torch

from rope import RotaryEmbedding, inverse_frequencies
from rope.extensions import (
    NTK,
    DynamicNTK,
    Linear,
    Llama3,
    LongRoPE,
    Proportional,
    YaRN,
    mscale,
)

ONES = (1.0,) * 8


def longrope(short=ONES, long=ONES, trained=64, **options):
    return LongRoPE(short, long, trained, **{"factor": 4.0, **options})


def factor_of(kind, *rest):
    """The refusals that every extension with a factor shares."""
    name = kind.__name__
    for value, error, message in (
        (0.5, ValueError, "factor is 0.5; it must be at least 1: pass"),
        (0, ValueError, "factor is 0; it must be at least 1: pass"),
        (-2.0, ValueError, "factor is -2.0; it must be at least 1: pass"),
        (float("nan"), ValueError, "factor is nan; it must be finite, such as"),
        (float("inf"), ValueError, "factor is inf; it must be finite, such as"),
        (10**400, ValueError, "factor is inf; it must be finite, such as"),
        (True, TypeError, "factor is True; it must be a real number such as"),
        ("2", TypeError, "factor is '2'; it must be a real number such as"),
        (2j, TypeError, "factor is 2j; it must be a real number such as"),
        (None, TypeError, "factor is None; it must be a real number such as"),
    ):
        yield f"{name} {value!r:.9}", (lambda v=value: kind(v, *rest), error, message)


def trained_of(make, name):
    """The refusals of an original length."""
    what = "original_max_position_embeddings is"
    for value, error, message in (
        (0, ValueError, f"{what} 0; it must be at least 1, so pass"),
        (-1, ValueError, f"{what} -1; it must be at least 1, so pass"),
        (64.0, TypeError, f"{what} 64.0; it must be an integer, so pass int"),
        (True, TypeError, f"{what} True; it must be an integer, so pass int"),
        ("64", TypeError, f"{what} '64'; it must be an integer, so pass int"),
        (None, TypeError, f"{what} None; it must be an integer, so pass int"),
    ):
        yield f"{name} L {value!r}", (lambda v=value: make(v), error, message)


V, T = ValueError, TypeError
BAD = {
    **dict(factor_of(Linear)),
    **dict(factor_of(NTK)),
    **dict(factor_of(DynamicNTK, 64)),
    **dict(factor_of(YaRN, 64)),
    **dict(factor_of(Llama3, 64)),
    **dict(trained_of(lambda n: DynamicNTK(2.0, n), "dynamic")),
    **dict(trained_of(lambda n: YaRN(2.0, n), "yarn")),
    **dict(trained_of(lambda n: Llama3(2.0, n), "llama3")),
    **dict(trained_of(lambda n: longrope(trained=n), "longrope")),
    "betas swapped": (lambda: YaRN(2.0, 64, 1.0, 32.0), V, "beta_fast is 1.0.*32.0.*swap"),
    "beta 0": (lambda: YaRN(2.0, 64, 32.0, 0), V, "beta_slow is 0; it must be above 0: pass"),
    "beta negative": (lambda: YaRN(2.0, 64, -1.0), V, "beta_fast is -1.0; it must be above 0"),
    "beta bool": (lambda: YaRN(2.0, 64, True), T, "beta_fast is True; it must be a real number"),
    "beta nan": (lambda: YaRN(2.0, 64, float("nan")), V, "beta_fast is nan; it must be finite"),
    "attention 0": (
        lambda: YaRN(2.0, 64, attention_factor=0.0),
        V,
        "attention_factor is 0.0; it must be above 0: pass",
    ),
    "attention text": (
        lambda: YaRN(2.0, 64, attention_factor="auto"),
        T,
        "attention_factor is 'auto'; it must be a real number such as",
    ),
    "mscale negative": (lambda: YaRN(2.0, 64, mscale=-1.0), V, "mscale is -1.0.*at least 0: pass"),
    "mscale_all_dim nan": (
        lambda: YaRN(2.0, 64, mscale_all_dim=float("nan")),
        V,
        "mscale_all_dim is nan; it must be finite, such as",
    ),
    "truncate 1": (lambda: YaRN(2.0, 64, truncate=1), T, "truncate is 1; it must be True or False"),
    "yarn base 1": (
        lambda: inverse_frequencies(8, 1.0, extension=YaRN(2.0, 64)),
        V,
        "base is 1.0; YaRN must have one above 1, such as 10000",
    ),
    # Within 4 positions no plane turns once, within 32,768 at base 10 each turns 540 times.
    "yarn too short": (
        lambda: YaRN(4.0, 4).scale(inverse_frequencies(128), 1e4),
        V,
        "original_max_position_embeddings is 4; for dim 128 and base 10000 .*beta_slow, 1, turns "
        "within it: use Linear.4.",
    ),
    "yarn too long": (
        lambda: inverse_frequencies(128, 10.0, extension=YaRN(4.0, 32768)),
        V,
        "is 32768; for dim 128 and base 10 .*at most beta_fast, 32, turns within it: use Default",
    ),
    "yarn between planes": (
        lambda: YaRN(4.0, 6, truncate=False).correction_range(8, 1e4),
        V,
        "original_max_position_embeddings is 6; for dim 8",
    ),
    "bands swapped": (lambda: Llama3(2.0, 64, 4.0, 1.0), V, "is 1.0 and low_freq_factor 4.0.*swap"),
    "bands equal": (lambda: Llama3(2.0, 64, 4.0, 4.0), V, "is 4.0 and low_freq_factor 4.0.*larger"),
    "band 0": (lambda: Llama3(2.0, 64, 0), V, "low_freq_factor is 0; it must be above 0: pass"),
    "band inf": (lambda: Llama3(2.0, 64, 1, float("inf")), V, "high_freq_factor is inf.*finite"),
    "factors missing": (lambda: longrope(()), V, "short_factor has 0 numbers.*8; they must be"),
    "factors uneven": (lambda: longrope(long=ONES[1:]), V, "has 8 numbers and long_factor 7;"),
    "factors too few": (
        lambda: inverse_frequencies(18, extension=longrope()),
        V,
        "have 8 numbers; for a dim of 18 they must have 9, one a plane: pass",
    ),
    "factor zero": (lambda: longrope((*ONES[1:], 0.0)), V, "short_factor is 0.0.*above 0: pass"),
    "factor negative": (lambda: longrope(long=(*ONES[1:], -3)), V, "long_factor is -3.*above 0"),
    "factor nan": (lambda: longrope((*ONES[1:], float("nan"))), V, "is nan; it must be finite"),
    "factor bool": (lambda: longrope((*ONES[1:], True)), T, "is True; it must be a real number"),
    "factors a number": (lambda: longrope(2.0), T, "short_factor is a float; it must be a list"),
    "factors text": (lambda: longrope(long="11111111"), T, "long_factor is a str; it must be a l"),
    "longrope without": (lambda: longrope(factor=None), V, "factor is None.*one must be.*: pass"),
    "longrope below 1": (lambda: longrope(factor=0.5), V, "factor is 0.5; it must be at least 1"),
    "longrope attention": (
        lambda: longrope(attention_factor=-1.0),
        V,
        "attention_factor is -1.0; it must be above 0: pass",
    ),
    "longrope of length 1": (lambda: longrope(trained=1), V, "is 1; it must be at least 2.*: pass"),
    "share above 1": (lambda: Proportional(1.5), V, "partial_rotary_factor is 1.5.*most 1.*: pass"),
    "share negative": (lambda: Proportional(-0.1), V, "partial_rotary_factor is -0.1.*at least 0"),
    "share bool": (lambda: Proportional(True), T, "partial_rotary_factor is True; it must be a r"),
    "share's factor": (lambda: Proportional(0.5, 0.5), V, "factor is 0.5; it must be at least 1"),
    "one plane": (
        lambda: inverse_frequencies(2, extension=NTK(2.0)),
        V,
        "dim is 2;.*at least two planes.*: pass dim=4",
    ),
    "by name": (lambda: inverse_frequencies(8, extension="yarn"), T, "extension is 'yarn'; it m"),
    "by class": (lambda: RotaryEmbedding(8, extension=Linear), T, "extension is <class.*: make"),
    "length negative": (
        lambda: inverse_frequencies(8, extension=DynamicNTK(2.0, 64), seq_len=-1),
        V,
        "seq_len is -1; it must be at least 0, so pass",
    ),
    "length float": (
        lambda: inverse_frequencies(8, extension=DynamicNTK(2.0, 64), seq_len=128.0),
        T,
        "seq_len is 128.0; it must be an integer, so pass int",
    ),
    "mscale of text": (lambda: mscale("4"), T, "factor is '4'; it must be a real number such as"),
}


@pytest.mark.parametrize(("call", "kind", "message"), BAD.values(), ids=BAD)
def test_bad_numbers_are_refused_in_a_sentence(call, kind, message):
    with pytest.raises(kind, match=message) as caught:
        call()
    assert caught.type is kind


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


def change(extension, plain, base):
    """theta'_j / theta_j, or None where the extension refuses."""
    try:
        return extension.scale(plain, base) / plain
    except ValueError:
        return None


@pytest.mark.parametrize(("dim", "base", "trained"), [(4, 1e4, 4), (128, 1e4, 7), (8, 10.0, 1)])
def test_yarn_keeps_fast_planes_and_divides_slow_ones_wherever_it_is_allowed(dim, base, trained):
    """From the shortest length that it takes up to the longest: never the other way round."""
    plain, allowed = inverse_frequencies(dim, base), 0
    for length in (trained * 2**n for n in range(40)):
        turns = plain * (length / (2 * torch.pi))
        ratio = change(YaRN(4.0, length), plain, base)
        if ratio is None:
            assert (turns < 1).all() or (turns > 32).all()
            continue
        allowed += 1
        assert (ratio.diff() <= 0).all()
        # An end within a plane is rounded outwards, so the planes next to it are in the ramp.
        assert ((ratio == 1) | (turns <= 32 * base ** (2 / dim))).all()
        assert ((ratio == 0.25) | (turns >= base ** (-2 / dim))).all()
    assert allowed
