"""Bad calls: the type, and a sentence with the value, what is allowed and the way out."""

import copy

import numpy as np
import pytest
import torch

from rope import (
    RotaryEmbedding,
    inverse_frequencies,
    layouts,
    reference,
    rotary_embedding,
    rotary_tables,
)
from rope.attention import (
    KVCache,
    RotaryAttention,
    linear_attention,
    packed_mask,
    packed_position_ids,
    segment_ids,
)

X = torch.ones(2, 3, 4, 8)
COS, SIN = rotary_tables(4, inverse_frequencies(8))
THETA = reference.inverse_frequencies(4)
IDS = torch.arange(4)
META = torch.empty(2, 3, 4, 8, device="meta")


def turn(x=X, cos=COS, sin=SIN, ids=None, **options):
    return rotary_embedding(x, cos, sin, ids, **options)


def attend(x=None, cache=None, **options):
    layer = RotaryAttention(16, 4, 2)
    with torch.no_grad():
        return layer(torch.ones(2, 5, 16) if x is None else x, cache=cache, **options)


def linear(q=X, k=X, v=X):
    return linear_attention(q, k, v, COS, SIN)


BAD = {
    "odd dim": (lambda: inverse_frequencies(7), ValueError, "dim is 7.*even.*pass 6"),
    "dim 0": (lambda: inverse_frequencies(0), ValueError, "dim is 0.*at least 2"),
    "dim float": (lambda: inverse_frequencies(8.0), TypeError, "dim is 8.0.*integer.*int"),
    "dim bool": (lambda: RotaryEmbedding(True), TypeError, "dim is True.*integer"),
    "base 0": (lambda: inverse_frequencies(8, 0), ValueError, "base is 0.*positive.*10000"),
    "base negative": (lambda: RotaryEmbedding(8, base=-1.0), ValueError, "base is -1;.*positive"),
    "base nan": (lambda: inverse_frequencies(8, float("nan")), ValueError, "base is nan.*finite"),
    "base inf": (lambda: inverse_frequencies(8, float("inf")), ValueError, "base is inf.*finite"),
    "base huge": (lambda: RotaryEmbedding(8, base=10**400), ValueError, "base is inf.*finite"),
    "base text": (lambda: inverse_frequencies(8, "1e4"), TypeError, "base is '1e4'.*real"),
    "base complex": (lambda: inverse_frequencies(8, 1j), TypeError, "base is 1j.*real"),
    "max_seq_len 0": (lambda: RotaryEmbedding(8, 0), ValueError, "max_seq_len is 0.*at least 1"),
    "max_seq_len float": (lambda: RotaryEmbedding(8, 1e3), TypeError, "max_seq_len is 1000.0.*int"),
    "layout by name": (
        lambda: RotaryEmbedding(8, interleaved="half"),
        TypeError,
        "interleaved is 'half'.*True or",
    ),
    "rows negative": (
        lambda: rotary_tables(-1, inverse_frequencies(8)),
        ValueError,
        "positions is -1.*at least 0",
    ),
    "float positions": (
        lambda: rotary_tables(IDS.float(), inverse_frequencies(8)),
        TypeError,
        "float32.*arange",
    ),
    "inv_freq [1, R/2]": (
        lambda: rotary_tables(IDS, inverse_frequencies(8)[None]),
        ValueError,
        r"inv_freq has shape \[1, 4\].*\[planes\].*take it",
    ),
    "inv_freq float32": (
        lambda: rotary_tables(4, inverse_frequencies(8).float()),
        TypeError,
        "float32.*float64",
    ),
    "integer tables": (
        lambda: rotary_tables(4, inverse_frequencies(8), dtype=torch.int32),
        TypeError,
        "int32",
    ),
    "integer x": (lambda: turn(X.long()), TypeError, r"x is torch.int64.*float32.*\.to"),
    "complex x": (lambda: turn(X.cfloat()), TypeError, "x is torch.complex64.*view_as_real"),
    "bool x": (lambda: turn(X.bool()), TypeError, "x is torch.bool"),
    "x no tensor": (lambda: turn(X.numpy()), TypeError, "x is a ndarray.*as_tensor"),
    "x [S, D]": (lambda: turn(X[0, 0]), ValueError, r"x has shape \[4, 8\].*unsqueeze"),
    "dim > head": (lambda: turn(X[..., :6]), ValueError, "rotate 8.*head_dim 6.*at most 6"),
    "sin shorter": (lambda: turn(sin=SIN[:3]), ValueError, r"\[4, 4\] and sin \[3, 4\].*same"),
    "sin float64": (lambda: turn(sin=SIN.double()), TypeError, "float32 and sin torch.float64"),
    "integer table": (lambda: turn(cos=COS.long()), TypeError, "cos is torch.int64"),
    "tables 3-D": (
        lambda: turn(cos=COS[None], sin=SIN[None]),
        ValueError,
        r"\[1, 4, 4\].*unsqueeze",
    ),
    "tables 1-D": (lambda: turn(cos=COS[0], sin=SIN[0]), ValueError, r"\[4\].*\[rows, planes\]"),
    "tables empty": (
        lambda: turn(cos=COS[:, :0], sin=SIN[:, :0]),
        ValueError,
        r"\[4, 0\].*one plane.*dim",
    ),
    "too short": (lambda: turn(cos=COS[:3], sin=SIN[:3]), ValueError, "3 rows.*of 4.*longer"),
    "one row": (lambda: turn(cos=COS[:1], sin=SIN[:1]), ValueError, "1 rows.*of 4"),
    "too long": (lambda: turn(X[:, :, :3]), ValueError, r"4 rows.*of 3.*cos\[:S\]"),
    "4-D tables": (
        lambda: turn(cos=COS[None, None, :3], sin=SIN[None, None, :3]),
        ValueError,
        "axis S is 3.*1 or 4.*slice",
    ),
    "4-D heads": (
        lambda: turn(cos=COS.expand(1, 2, 4, 4), sin=SIN.expand(1, 2, 4, 4)),
        ValueError,
        "axis H is 2.*1 or 3",
    ),
    "4-D with ids": (
        lambda: turn(cos=COS[None, None], sin=SIN[None, None], ids=IDS),
        ValueError,
        "with position_ids.*leave position_ids out",
    ),
    "past the table": (lambda: turn(ids=IDS + 1), ValueError, "holds 4.*4 rows.*rotary_tables"),
    "negative position": (lambda: turn(ids=IDS - 1), ValueError, "holds -1.*start at 0.*mask"),
    "ids bool": (lambda: turn(ids=IDS.bool()), TypeError, "position_ids is torch.bool.*arange"),
    "ids float": (lambda: turn(ids=IDS.float()), TypeError, "position_ids is torch.float32"),
    "ids uint32": (
        lambda: turn(ids=IDS.to(torch.uint32)),
        TypeError,
        "position_ids is torch.uint32.*int64",
    ),
    "ids list": (lambda: turn(ids=[0, 1, 2, 3]), TypeError, "position_ids is a list.*tensor"),
    "ids short": (lambda: turn(ids=IDS[:1]), ValueError, r"\[1\].*\[4\] or \[2, 4\].*expand"),
    "ids [1, S]": (lambda: turn(ids=IDS[None]), ValueError, r"\[1, 4\].*\[2, 4\]"),
    "ids scalar": (lambda: turn(ids=IDS[0]), ValueError, r"shape \[\]"),
    "x elsewhere": (lambda: turn(META), ValueError, r"x is on meta and cos on cpu.*\.to"),
    "sin elsewhere": (
        lambda: turn(sin=SIN.to("meta")),
        ValueError,
        "cos is on cpu and sin on meta",
    ),
    "ids elsewhere": (lambda: turn(ids=IDS.to("meta")), ValueError, "position_ids on meta"),
    "layout by number": (
        lambda: turn(interleaved=1),
        TypeError,
        "interleaved is 1.*True or False",
    ),
    "reference layout": (
        lambda: reference.rotate_matrix(np.ones((1, 4)), [1], THETA, interleaved="half"),
        TypeError,
        "interleaved is 'half'.*True or False",
    ),
    "inverse by number": (lambda: turn(inverse=1), TypeError, "inverse is 1.*True or False"),
    "wide rotary_dim": (
        lambda: layouts.interleaved_to_half(X, 10),
        ValueError,
        "is 10; x has 8.*at most",
    ),
    "odd rotary_dim": (
        lambda: layouts.half_to_interleaved(X, 3),
        ValueError,
        "rotary_dim is 3.*even",
    ),
    "odd axis": (
        lambda: layouts.interleaved_to_half(X[..., :5]),
        ValueError,
        "last axis of x is 5",
    ),
    "layout of an array": (
        lambda: layouts.half_to_interleaved(X.numpy()),
        TypeError,
        "x is a ndarray.*as_tensor",
    ),
    "projection as a list": (
        lambda: layouts.projection_half_to_interleaved([1.0, 2.0], 1),
        TypeError,
        "weight is a list.*as_tensor",
    ),
    "no axis": (lambda: layouts.interleaved_to_half(X[0, 0, 0, 0]), ValueError, "no axes"),
    "heads do not divide": (
        lambda: layouts.projection_interleaved_to_half(X[0, 0], 3),
        ValueError,
        r"\[4, 8\].*H = 3",
    ),
    "kv heads": (lambda: RotaryAttention(16, 4, 3), ValueError, "num_kv_heads is 3.*divide.*4"),
    "embed_dim": (
        lambda: RotaryAttention(18, 4),
        ValueError,
        "embed_dim is 18.*multiple.*head_dim",
    ),
    "odd head": (lambda: RotaryAttention(12, 4), ValueError, "3.*even"),
    "rotary > head": (
        lambda: RotaryAttention(16, 4, rotary_dim=6),
        ValueError,
        "rotary_dim is 6.*4 coord",
    ),
    "odd rotary_dim of a head": (
        lambda: RotaryAttention(16, 4, rotary_dim=3),
        ValueError,
        "rotary_dim is 3.*even.*pass 2",
    ),
    "rotary_dim text": (
        lambda: RotaryAttention(16, 4, rotary_dim="4"),
        TypeError,
        "rotary_dim is '4'.*int",
    ),
    "x [S, E]": (lambda: attend(torch.ones(5, 16)), ValueError, r"\[5, 16\].*unsqueeze"),
    "segments": (
        lambda: attend(segment_ids=IDS),
        ValueError,
        r"segment_ids has shape \[4\].*\[5\]",
    ),
    "segments bool": (
        lambda: attend(segment_ids=torch.ones(5).bool()),
        TypeError,
        "segment_ids is torch.bool",
    ),
    "segments list": (
        lambda: attend(segment_ids=[0, 0, 1, 1, 1]),
        TypeError,
        "segment_ids is a list.*tensor",
    ),
    "segments elsewhere": (
        lambda: attend(segment_ids=torch.zeros(5, dtype=torch.long, device="meta")),
        ValueError,
        r"x is on cpu and segment_ids on meta.*\.to",
    ),
    "causal by name": (lambda: attend(causal="no"), TypeError, "causal is 'no'.*True or False"),
    "cache, not causal": (
        lambda: attend(cache=KVCache(2, 2, 9, 4), causal=False),
        ValueError,
        "causal is False",
    ),
    "cache, packed": (
        lambda: attend(cache=KVCache(2, 2, 9, 4), segment_ids=torch.arange(5)),
        ValueError,
        "cache",
    ),
    "cache too small": (
        lambda: attend(cache=KVCache(2, 2, 4, 4)),
        ValueError,
        "0 of 4 tokens; 5 more.*at least 5",
    ),
    "cache of another shape": (
        lambda: attend(cache=KVCache(2, 4, 9, 4)),
        ValueError,
        r"k has shape \[2, 2, 5, 4\].*4, S",
    ),
    "cache of another dtype": (
        lambda: attend(cache=KVCache(2, 2, 9, 4, dtype=torch.float64)),
        TypeError,
        "dtype=torch.flo",
    ),
    "cache elsewhere": (
        lambda: attend(cache=KVCache(2, 2, 9, 4, device="meta")),
        ValueError,
        "cache.keys is on meta and k on cpu.*device",
    ),
    "cache with gradients": (
        lambda: RotaryAttention(16, 4, 2)(torch.ones(2, 5, 16), cache=KVCache(2, 2, 9, 4)),
        ValueError,
        "gradients.*no_grad",
    ),
    "cache size": (lambda: KVCache(0, 2, 9, 4), ValueError, "batch is 0.*at least 1"),
    "no lengths": (lambda: packed_position_ids([]), ValueError, "lengths is empty"),
    "lengths tensor": (
        lambda: segment_ids(torch.tensor([3, 2])),
        TypeError,
        r"lengths is tensor\(\[3, 2\]\).*tolist",
    ),
    "length 0": (lambda: segment_ids([3, 0]), ValueError, "lengths is 0.*at least 1"),
    "mask of floats": (
        lambda: packed_mask(torch.ones(3)),
        TypeError,
        "segment_ids is torch.float32",
    ),
    "linear heads": (
        lambda: linear(k=X[:, :1]),
        ValueError,
        r"\[2, 1, 4, 8\].*repeat the key heads",
    ),
    "linear rotate": (
        lambda: linear_attention(X, X, X, COS, SIN, rotate=0),
        TypeError,
        "rotate is 0.*True or False",
    ),
    "linear causal": (
        lambda: linear_attention(X, X, X, COS, SIN, causal=None),
        TypeError,
        "causal is None.*True or False",
    ),
    "linear integers": (lambda: linear(v=X.long()), TypeError, "v is torch.int64"),
    "reference odd": (lambda: reference.inverse_frequencies(5), ValueError, "dim is 5.*even"),
    "reference complex": (
        lambda: reference.rotate_complex(np.ones((1, 4)) * 1j, [1], THETA),
        TypeError,
        "complex128",
    ),
    "reference rows": (
        lambda: reference.rotate_matrix(np.ones((2, 4)), [1], THETA),
        ValueError,
        r"\[2, 4\].*\[1, 4\]",
    ),
    "reference nan": (lambda: reference.angles([np.nan], THETA), ValueError, "positions.*finite"),
    "reference positions": (lambda: reference.angles([[1]], THETA), ValueError, r"\[1, 1\].*ravel"),
    "reference many": (lambda: reference.rotation_matrix([1, 2], THETA), ValueError, "one number"),
    "reference score": (
        lambda: reference.score([[1.0, 2]], [1.0, 2], 0, 1, [1.0]),
        ValueError,
        "one vector",
    ),
}


@pytest.mark.parametrize(("call", "kind", "message"), BAD.values(), ids=BAD)
def test_bad_calls_are_refused_in_a_sentence(call, kind, message):
    with pytest.raises(kind, match=message) as caught:
        call()
    assert caught.type is kind
    assert any(mark in str(caught.value) for mark in (":", ";", ","))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((X, X[:, :, :3]), "only their heads"),
        ((X, X[:1]), "only their heads"),
        ((X, META), "q is on cpu and k on meta"),
        ((X[..., :6], X[..., :6]), "head_dim 6"),
        ((X.expand(2, 3, 4, 8), X, IDS - 1), "holds -1"),
        ((X, X, IDS.expand(3, 4) + 90), r"\[3, 4\]"),
        ((torch.ones(1, 1, 99, 8), torch.ones(2, 1, 99, 8)), "only their heads"),
    ],
)
def test_the_module_is_unchanged_by_a_bad_call(arguments, message):
    rotary = RotaryEmbedding(8, 4)
    before = copy.deepcopy(rotary)
    with pytest.raises(ValueError, match=message):
        rotary(*arguments)
    assert torch.equal(rotary.cos, before.cos)
    assert torch.equal(rotary.sin, before.sin)


def test_a_far_and_a_negative_position_together_grow_nothing():
    rotary = RotaryEmbedding(8, 4)
    with pytest.raises(ValueError, match="holds -5"):
        rotary(X, X, torch.tensor([0, 1, 99, -5]))
    assert len(rotary.cos) == 4


def test_keys_of_integers_grow_nothing():
    rotary, q = RotaryEmbedding(8, 4), torch.ones(1, 1, 99, 8)
    with pytest.raises(TypeError, match=r"k is torch\.int64"):
        rotary(q, q.long())
    assert len(rotary.cos) == 4


def test_tables_on_meta_stay_there_after_a_bad_call():
    rotary = RotaryEmbedding(8, 4, device="meta")
    with pytest.raises(TypeError, match="float32"):
        rotary(X, X, IDS.float())
    assert rotary.cos.is_meta


def test_bad_segments_grow_nothing():
    layer = RotaryAttention(16, 4, max_seq_len=2)
    with pytest.raises(TypeError, match=r"segment_ids is torch\.bool"):
        layer(torch.ones(2, 5, 16), segment_ids=torch.ones(5).bool())
    assert len(layer.rotary.cos) == 2


def test_the_cache_is_unchanged_by_a_bad_call():
    cache, good = KVCache(1, 1, 4, 2), torch.ones(1, 1, 3, 2)
    cache.append(good, good)
    for k, v in (
        (good, good),
        (good[:, :, :1], good[:, :, :2]),
        (good.double(), good),
        (good[0], good),
        (good[:, :, :1], good[:, :, :1].clone().requires_grad_()),
    ):
        with pytest.raises((ValueError, TypeError)):
            cache.append(k * 7, v * 7)
        assert cache.length == 3
        assert cache.keys.sum() == cache.values.sum() == 6


def test_a_full_cache_leaves_the_layer_as_it_was():
    layer, cache = RotaryAttention(16, 4, max_seq_len=4), KVCache(1, 4, 5, 4)
    with torch.no_grad(), pytest.raises(ValueError, match="do not fit"):
        layer(torch.ones(1, 6, 16), cache=cache)
    assert len(layer.rotary.cos) == 4
    assert cache.length == 0
