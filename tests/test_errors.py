"""Test bad calls: the exception's type, and the names and values in its message."""

import copy

import numpy as np
import pytest
import torch
from strategies import EXTENSIONS, check_raises

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
)
from rope.extensions import DynamicNTK

THETA, THETA_8 = reference.inverse_frequencies(4), inverse_frequencies(8)
X, ROW, IDS = torch.ones(2, 3, 4, 8), np.ones((1, 4)), torch.arange(4)
COS, SIN = rotary_tables(4, THETA_8)
COS_4, TWO_HEADS = COS[None, None], COS.expand(1, 2, 4, 4)
META = torch.empty(2, 3, 4, 8, device="meta")
LAYER = RotaryAttention(16, 4, 2)
SEGMENTS_ON_META = torch.zeros(5, device="meta").long()
V, T = ValueError, TypeError


def rotate(x=X, cos=COS, sin=SIN, ids=None, **options):
    return rotary_embedding(x, cos, sin, ids, **options)


def attend(x=None, cache=None, **options):
    with torch.no_grad():
        return LAYER(torch.ones(2, 5, 16) if x is None else x, cache=cache, **options)


def cache(heads=2, rows=9, **options):
    return KVCache(2, heads, rows, 4, **options)


CALLS = [  # (exception, words in its message, call)
    # frequencies and tables
    (V, "dim 0 2", lambda: inverse_frequencies(0)),
    (V, "dim 7 even 6", lambda: inverse_frequencies(7)),
    (T, "dim True int", lambda: RotaryEmbedding(True)),
    (V, "base 1e-10 1e-09", lambda: inverse_frequencies(8, 1e-10)),
    (V, "base nan finite", lambda: inverse_frequencies(8, float("nan"))),
    (T, "base '1e4' float", lambda: inverse_frequencies(8, "1e4")),
    (V, "max_seq_len 0 1", lambda: RotaryEmbedding(8, 0)),
    (V, "max_seq_len 100 bits 2**53", lambda: RotaryEmbedding(8, 10**30)),
    (T, "max_seq_len 1000.0 int", lambda: RotaryEmbedding(8, 1e3)),
    (T, "interleaved 'half' True", lambda: RotaryEmbedding(8, interleaved="half")),
    (V, "4 3", lambda: RotaryEmbedding(6, extension=EXTENSIONS["longrope"])),
    (V, "inv_freq nan inverse_frequencies", lambda: rotary_tables(4, THETA_8 * float("nan"))),
    (V, "inv_freq [1, 4]", lambda: rotary_tables(IDS, THETA_8[None])),
    (T, "inv_freq float32 float64", lambda: rotary_tables(4, THETA_8.float())),
    (T, "positions [1, 2]", lambda: rotary_tables([1, 2], THETA_8)),
    (T, "positions float32 .long()", lambda: rotary_tables(IDS.float(), THETA_8)),
    (T, "dtype int32", lambda: rotary_tables(4, THETA_8, dtype=torch.int32)),
    (V, "scale 0", lambda: rotary_tables(4, THETA_8, scale=0.0)),
    (V, "[2, 5, 64]", lambda: RotaryEmbedding(8).tables_at(IDS.new_ones(2, 5, 64))),
    (V, "position_ids -1", lambda: RotaryEmbedding(8).tables_at(-IDS[1:2])),
    # a rotation
    (V, "x [4, 8] heads", lambda: rotate(X[0, 0])),
    (V, "8 head_dim 6", lambda: rotate(X[..., :6])),
    (V, "cos sin [4, 4] [3, 4]", lambda: rotate(sin=SIN[:3])),
    (T, "cos sin float32 float64", lambda: rotate(sin=SIN.double())),
    (T, "cos int64", lambda: rotate(cos=COS.long())),
    (V, "cos [1, 4, 4] transformers", lambda: rotate(cos=COS[None], sin=SIN[None])),
    (V, "cos [4, 0]", lambda: rotate(cos=COS[:, :0], sin=SIN[:, :0])),
    (V, "cos 3 4 position_ids", lambda: rotate(cos=COS[:3], sin=SIN[:3])),
    (V, "cos H 2 1 3", lambda: rotate(cos=TWO_HEADS, sin=TWO_HEADS)),
    (V, "[3] [4] [1, 4] [2, 4]", lambda: rotate(ids=IDS[:3])),
    (V, "[3] [4] [1, 4]", lambda: rotate(X[:1], ids=IDS[:3])),
    (V, "[3, 4] [2, 4]", lambda: rotate(ids=IDS.expand(3, 4))),
    (V, "position_ids []", lambda: rotate(ids=IDS[0])),
    (V, "cos [1, 1, 4, 4] position_ids", lambda: rotate(cos=COS_4, sin=COS_4, ids=IDS)),
    (V, "position_ids 4 rotary_tables", lambda: rotate(ids=IDS + 1)),
    (V, "position_ids -1 0 mask", lambda: rotate(ids=IDS - 1)),
    (V, "x cos meta cpu .to", lambda: rotate(META)),
    (V, "cos sin cpu meta", lambda: rotate(sin=SIN.to("meta"))),
    (V, "position_ids meta", lambda: rotate(ids=IDS.to("meta"))),
    (T, "x int64 float32", lambda: rotate(X.long())),
    (T, "x complex64", lambda: rotate(X.cfloat())),
    (T, "x list", lambda: rotate(X.tolist())),
    (T, "position_ids list as_tensor", lambda: rotate(ids=[0, 1, 2, 3])),
    (T, "position_ids ndarray as_tensor", lambda: rotate(ids=np.arange(4))),
    (T, "cos float16 x float32 float32", lambda: rotate(cos=COS.half(), sin=SIN.half())),
    (T, "interleaved 1", lambda: rotate(interleaved=1)),
    (T, "position_ids bool", lambda: rotate(ids=IDS.bool())),
    (T, "position_ids float32", lambda: rotate(ids=IDS.float())),
    (T, "position_ids uint32 int64", lambda: rotate(ids=IDS.to(torch.uint32))),
    # layouts
    (V, "10 8", lambda: layouts.interleaved_to_half(X, 10)),
    (V, "rotary_dim 3 even", lambda: layouts.half_to_interleaved(X, 3)),
    (V, "x 5", lambda: layouts.interleaved_to_half(X[..., :5])),
    (V, "[4, 8] 3", lambda: layouts.projection_interleaved_to_half(X[0, 0], 3)),
    # attention
    (V, "embed_dim 18 4 head_dim", lambda: RotaryAttention(18, 4)),
    (V, "[5, 4, 4] heads", lambda: attend(torch.ones(5, 16))),
    (V, "segment_ids cpu meta .to", lambda: attend(segment_ids=SEGMENTS_ON_META)),
    (T, "segment_ids bool", lambda: attend(segment_ids=torch.ones(5).bool())),
    (V, "causal False", lambda: attend(cache=cache(), causal=False)),
    (V, "0 4 5", lambda: attend(cache=cache(rows=4))),
    (V, "k [2, 2, 5, 4] 4", lambda: attend(cache=cache(heads=4))),
    (V, "cache.keys k meta cpu", lambda: attend(cache=cache(device="meta"))),
    (T, "dtype=torch.float32", lambda: attend(cache=cache(dtype=torch.float64))),
    (V, "gradients no_grad", lambda: LAYER(torch.ones(2, 5, 16), cache=cache())),
    # the reference
    (V, "dim 5 even", lambda: reference.inverse_frequencies(5)),
    (V, "[2, 4] [1, 4]", lambda: reference.rotate_matrix(np.ones((2, 4)), [1], THETA)),
    (T, "interleaved 'no'", lambda: reference.rotate_matrix(ROW, [1], THETA, interleaved="no")),
    (T, "complex128", lambda: reference.rotate_complex(ROW * 1j, [1], THETA)),
]


@pytest.mark.parametrize(("kind", "words", "call"), CALLS)
def test_bad_calls_raise(kind, words, call):
    check_raises(call, kind, words)


LAYER_CALLS = [
    (V, "q k [2, 3, 3, 8] heads", lambda r, x: r(x, x[:, :, :3])),
    (V, "q k cpu meta", lambda r, x: r(x, META)),
    (V, "position_ids [3, 4]", lambda r, x: r(x, x, IDS.expand(3, 4) + 90)),
    (V, "position_ids -5", lambda r, x: r(x, x, torch.tensor([0, 1, 99, -5]))),
    (V, "offset -1 0", lambda r, x: r(x, x, offset=-1)),
    (V, "offset 2 position_ids", lambda r, x: r(x, x, IDS, offset=2)),
    (T, "offset 1.0 int", lambda r, x: r(x, x, offset=1.0)),
    (V, "seq_len 0 1", lambda r, x: r(x, x, seq_len=0)),
    (T, "seq_len '8k' int", lambda r, x: r(x, x, seq_len="8k")),
    (V, "seq_len -3 1", lambda r, x: r.fix_length(-3)),
    (V, "q k k.clone()", lambda r, x: r(x, x, inplace=True)),
    (V, "overlaps", lambda r, x: r.rotate(x.view(1, 1, -1).unfold(2, 8, 4), inplace=True)),
    (T, "inplace 'no' True", lambda r, x: r(x, x, inplace="no")),
    (
        V,
        "k [2, 3, 4, 8] [0, k.contiguous()",
        lambda r, x: r(x, x[:1].expand(2, 3, 4, 8), inplace=True),
    ),
    (T, "k int64", lambda r, x: r(x.new_ones(1, 1, 99, 8), x.new_ones(1, 1, 99, 8).long())),
]


@pytest.mark.parametrize(("kind", "words", "call"), LAYER_CALLS)
def test_a_bad_call_leaves_the_layer_and_the_vectors_unchanged(kind, words, call):
    rotary, x = RotaryEmbedding(8, 4, extension=DynamicNTK(4.0, 32)), X.clone()
    before = copy.deepcopy(rotary)
    check_raises(lambda: call(rotary, x), kind, words)
    assert torch.equal(rotary.cos, before.cos) and torch.equal(rotary.sin, before.sin)
    assert torch.equal(x, X) and rotary.fixed_length is None


def test_tables_on_meta_stay_there_after_a_bad_call():
    rotary = RotaryEmbedding(8, 4, device="meta")
    check_raises(lambda: rotary(X, X, IDS.float()), T, "position_ids float32")
    assert rotary.cos.is_meta


def test_a_bad_call_of_the_attention_grows_nothing():
    layer, cache = RotaryAttention(16, 4, rotary=RotaryEmbedding(4, 2)), KVCache(1, 4, 5, 4)
    bools = torch.ones(5).bool()
    check_raises(lambda: layer(torch.ones(2, 5, 16), segment_ids=bools), T, "segment_ids bool")
    with torch.no_grad():
        check_raises(lambda: layer(torch.ones(1, 6, 16), cache=cache), V, "0 5 6")
    assert (len(layer.rotary.cos), cache.length) == (2, 0)


def test_a_bad_call_leaves_the_cache_unchanged():
    cache, good = KVCache(1, 1, 4, 2), torch.ones(1, 1, 3, 2)
    cache.append(good, good)
    for k, v, kind, words in (
        (good, good, V, "3 4"),
        (good[:, :, :1], good[:, :, :2], V, "k v [1, 1, 1, 2] [1, 1, 2, 2]"),
        (good.double(), good, T, "k float64"),
        (good[0], good, V, "k [1, 3, 2]"),
        (good[:, :, :1], good[:, :, :1].clone().requires_grad_(), V, "no_grad"),
    ):
        check_raises(lambda k=k, v=v: cache.append(k * 7, v * 7), kind, words)
        assert cache.length == 3
        assert cache.keys.sum() == cache.values.sum() == 6


@pytest.mark.parametrize(
    ("kind", "words", "ids"),
    [
        (V, "position_ids [4]", {"position_ids": IDS}),
        (T, "position_ids float32", {"position_ids": torch.ones(3)}),
    ],
)
def test_ids_that_do_not_fit_leave_the_cache_unchanged(kind, words, ids):
    held, good = cache(), torch.ones(2, 2, 3, 4)
    check_raises(lambda: held.append(good, good, **ids), kind, words)
    assert held.length == 0 and held.keys.sum() == 0
    assert held.slots.next_position_ids(1) is None
