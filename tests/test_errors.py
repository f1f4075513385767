"""Bad calls: the type, and a sentence with the value, what is allowed and the way out."""

import copy

import numpy as np
import pytest
import torch
from strategies import EXTENSIONS, assert_refused

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
    packed_position_ids,
    segment_ids,
)
from rope.extensions import DynamicNTK

X = torch.ones(2, 3, 4, 8)
COS, SIN = rotary_tables(4, inverse_frequencies(8))
COS_4 = COS[None, None]
THETA, ROW = reference.inverse_frequencies(4), np.ones((1, 4))
IDS = torch.arange(4)
META = torch.empty(2, 3, 4, 8, device="meta")
LAYER = RotaryAttention(16, 4, 2)
THETA_8 = inverse_frequencies(8)
LONG = EXTENSIONS["longrope"]
JOINT = torch.randn(1, 1, 4, 16)  # vectors and tables in one storage
FUSED = torch.ones(2, 6, 4, 8).requires_grad_() * 1  # queries and keys of one projection


def rotate(x=X, cos=COS, sin=SIN, ids=None, **options):
    return rotary_embedding(x, cos, sin, ids, **options)


def attend(x=None, cache=None, **options):
    with torch.no_grad():
        return LAYER(torch.ones(2, 5, 16) if x is None else x, cache=cache, **options)


def cache(heads=2, rows=9, **options):
    return KVCache(2, heads, rows, 4, **options)


def started():
    held = cache()
    attend(cache=held)
    return held


def linear(q=X, k=X, v=X):
    return linear_attention(q, k, v, COS, SIN)


# What the sentence says, and the call that it refuses.
VALUES = {
    "dim is 7.*even.*pass 6": lambda: inverse_frequencies(7),
    "dim is 0.*at least 2": lambda: inverse_frequencies(0),
    "base is 0.*positive.*10000": lambda: inverse_frequencies(8, 0),
    "base is -1;.*positive": lambda: RotaryEmbedding(8, base=-1.0),
    "base is nan.*finite": lambda: inverse_frequencies(8, float("nan")),
    "base is inf.*finite, so pass": lambda: RotaryEmbedding(8, base=10**400),
    "max_seq_len is 0.*at least 1": lambda: RotaryEmbedding(8, 0),
    r"shape \[2, 5, 64\]; it must": lambda: RotaryEmbedding(8).tables_at(IDS.new_ones(2, 5, 64)),
    "holds -1.*start at 0": lambda: RotaryEmbedding(8).tables_at(-IDS[1:2]),
    "inv_freq holds nan.*inverse_freq": lambda: rotary_tables(4, THETA_8 * float("nan")),
    r"x and the tables lie in one storage.*clone": lambda: rotary_embedding(
        JOINT[..., :8], JOINT[0, 0, :, 8:12], JOINT[0, 0, :, 12:], inplace=True
    ),
    "split or chunk": lambda: RotaryEmbedding(8)(*FUSED.chunk(2, dim=1), inplace=True),
    "positions is -1.*at least 0": lambda: rotary_tables(-1, inverse_frequencies(8)),
    r"inv_freq has shape \[1, 4\]; it must": lambda: rotary_tables(IDS, THETA_8[None]),
    r"x has shape \[4, 8\].*unsqueeze": lambda: rotate(X[0, 0]),
    "rotate 8.*head_dim 6.*at most 6": lambda: rotate(X[..., :6]),
    r"\[4, 4\] and sin torch.float32 \[3, 4\].*same": lambda: rotate(sin=SIN[:3]),
    r"\[1, 4, 4\].*unsqueeze": lambda: rotate(cos=COS[None], sin=SIN[None]),
    r"\[4, 0\]; it must .*one plane": lambda: rotate(cos=COS[:, :0], sin=SIN[:, :0]),
    "3 rows.*of 4.*longer": lambda: rotate(cos=COS[:3], sin=SIN[:3]),
    "1 rows.*of 4": lambda: rotate(cos=COS[:1], sin=SIN[:1]),
    "axis S is 3.*1 or 4.*slice": lambda: rotate(cos=COS_4[:, :, :3], sin=COS_4[:, :, :3]),
    "axis H is 2.*1 or 3": lambda: rotate(cos=COS.expand(1, 2, 4, 4), sin=SIN.expand(1, 2, 4, 4)),
    r"has shape \[3\]; it must be \[4\], \[1, 4\] or \[2, 4\],": lambda: rotate(ids=IDS[:3]),
    r"has shape \[3\]; it must be \[4\] or \[1, 4\],": lambda: rotate(X[:1], ids=IDS[:3]),
    "with position_ids.*leave position_ids out": lambda: rotate(cos=COS_4, sin=COS_4, ids=IDS),
    "holds 4.*4 rows.*rotary_tables": lambda: rotate(ids=IDS + 1),
    "holds -1.*start at 0.*mask": lambda: rotate(ids=IDS - 1),
    r"\[3, 4\].*\[2, 4\]": lambda: rotate(ids=IDS.expand(3, 4)),
    r"shape \[\]": lambda: rotate(ids=IDS[0]),
    r"x is on meta and cos on cpu.*\.to": lambda: rotate(META),
    "cos is on cpu and sin on meta": lambda: rotate(sin=SIN.to("meta")),
    "position_ids on meta": lambda: rotate(ids=IDS.to("meta")),
    "is 10; x has 8.*at most": lambda: layouts.interleaved_to_half(X, 10),
    "rotary_dim is 3.*even": lambda: layouts.half_to_interleaved(X, 3),
    "last axis of x is 5": lambda: layouts.interleaved_to_half(X[..., :5]),
    "no axes.*pass a vector": lambda: layouts.interleaved_to_half(X[0, 0, 0, 0]),
    r"\[4, 8\].*H = 3": lambda: layouts.projection_interleaved_to_half(X[0, 0], 3),
    "num_kv_heads is 3.*divide.*4": lambda: RotaryAttention(16, 4, 3),
    "embed_dim is 18.*multiple.*head_dim": lambda: RotaryAttention(18, 4),
    r"\[5, 4, 4\].*unsqueeze": lambda: attend(torch.ones(5, 16)),
    r"segment_ids has shape \[4\].*\[5\]": lambda: attend(segment_ids=IDS),
    r"x is on cpu and segment_ids on meta.*\.to": lambda: attend(
        segment_ids=torch.zeros(5, device="meta").long()
    ),
    "causal is False": lambda: attend(cache=cache(), causal=False),
    "segment_ids was given after 5 tokens.*with the prompt": lambda: attend(
        torch.ones(2, 4, 16), cache=started(), segment_ids=IDS
    ),
    "0 of 4 tokens; 5 more.*grow it to 5": lambda: attend(cache=cache(rows=4)),
    r"k has shape \[2, 2, 5, 4\].*4, S": lambda: attend(cache=cache(heads=4)),
    "cache.keys is on meta and k on cpu.*device": lambda: attend(cache=cache(device="meta")),
    "gradients.*no_grad": lambda: LAYER(torch.ones(2, 5, 16), cache=cache()),
    "lengths is empty": lambda: packed_position_ids([]),
    "lengths is 0.*at least 1": lambda: segment_ids([3, 0]),
    r"\[2, 1, 4, 8\].*repeat the key heads": lambda: linear(k=X[:, :1]),
    "dim is 5.*even": lambda: reference.inverse_frequencies(5),
    r"\[2, 4\].*\[1, 4\]": lambda: reference.rotate_matrix(np.ones((2, 4)), [1], THETA),
    "positions.*finite": lambda: reference.angles([np.nan], THETA),
    r"\[1, 1\].*ravel": lambda: reference.angles([[1]], THETA),
    "one number": lambda: reference.rotation_matrix([1, 2], THETA),
    "one vector": lambda: reference.score([[1.0, 2]], [1.0, 2], 0, 1, [1.0]),
}

TYPES = {
    "dim is 8.0.*integer.*int": lambda: inverse_frequencies(8.0),
    "dim is True.*integer": lambda: RotaryEmbedding(True),
    "base is '1e4'.*real": lambda: inverse_frequencies(8, "1e4"),
    "base is 1j.*real": lambda: inverse_frequencies(8, 1j),
    "max_seq_len is 1000.0.*int": lambda: RotaryEmbedding(8, 1e3),
    "interleaved is 'half'.*True or": lambda: RotaryEmbedding(8, interleaved="half"),
    r"positions is \[1, 2\]; it must be": lambda: rotary_tables([1, 2], inverse_frequencies(8)),
    r"float32.*\.long\(\)": lambda: rotary_tables(IDS.float(), inverse_frequencies(8)),
    "float32.*float64": lambda: rotary_tables(4, inverse_frequencies(8).float()),
    "position_ids is torch.float32.*whole": lambda: RotaryEmbedding(8).tables_at(torch.ones(2, 5)),
    "int32": lambda: rotary_tables(4, inverse_frequencies(8), dtype=torch.int32),
    r"x is torch.int64.*float32.*\.to": lambda: rotate(X.long()),
    "x is torch.complex64.*view_as_real": lambda: rotate(X.cfloat()),
    "x is torch.bool": lambda: rotate(X.bool()),
    r"float32 \[4, 4\] and sin torch.float64": lambda: rotate(sin=SIN.double()),
    "cos is torch.int64": lambda: rotate(cos=COS.long()),
    "position_ids is torch.bool.*whole": lambda: rotate(ids=IDS.bool()),
    "position_ids is torch.float32": lambda: rotate(ids=IDS.float()),
    "position_ids is torch.uint32.*int64": lambda: rotate(ids=IDS.to(torch.uint32)),
    "interleaved is 'pairs'.*True or False": lambda: reference.rotate_matrix(
        ROW, [1], THETA, interleaved="pairs"
    ),
    "segment_ids is torch.bool": lambda: attend(segment_ids=torch.ones(5).bool()),
    "dtype=torch.flo": lambda: attend(cache=cache(dtype=torch.float64)),
    "v is torch.int64": lambda: linear(v=X.long()),
    "complex128": lambda: reference.rotate_complex(ROW * 1j, [1], THETA),
}


@pytest.mark.parametrize("message", VALUES | TYPES)
def test_bad_calls_are_refused_in_a_sentence(message):
    assert_refused(message, VALUES, TYPES)


# The same of the layer, which is then as it was: its tables, its length, and the vectors.
LAYER_VALUES = {
    r"k \[2, 3, 3, 8\]; only their heads may differ": lambda r, x: r(x, x[:, :, :3]),
    "only their heads": lambda r, x: r(x, x[:1]),
    r"\[1, 1, 99, 8\].*only their heads": lambda r, x: r(
        x.new_ones(1, 1, 99, 8), x.new_ones(2, 1, 99, 8)
    ),
    "q is on cpu and k on meta": lambda r, x: r(x, META),
    "head_dim 6": lambda r, x: r(x[..., :6], x[..., :6]),
    r"\[3, 4\]": lambda r, x: r(x, x, IDS.expand(3, 4) + 90),
    "holds -5": lambda r, x: r(x, x, torch.tensor([0, 1, 99, -5])),
    "offset is -1.*at least 0": lambda r, x: r(x, x, offset=-1),
    "offset is 2 beside position_ids.*add the offset": lambda r, x: r(x, x, IDS, offset=2),
    "seq_len is 0.*at least 1": lambda r, x: r(x, x, seq_len=0),
    "seq_len is -3.*at least 1": lambda r, x: r.fix_length(-3),
    "share places in memory, as one tensor.*k.clone": lambda r, x: r(x, x, inplace=True),
    "x is a leaf.*x.clone": lambda r, x: r.rotate(x.clone().requires_grad_(), inplace=True),
    r"k has shape \[2, 3, 4, 8\] and strides \[0, .*k.contiguous": (
        lambda r, x: r(x, x[:1].expand(2, 3, 4, 8), inplace=True)
    ),
    "have 4 numbers.*must have 3": lambda r, x: RotaryEmbedding(
        6, extension=EXTENSIONS["longrope"]
    ),
}
LAYER_TYPES = {
    "offset is 1.0.*integer": lambda r, x: r(x, x, offset=1.0),
    "seq_len is '8k'.*integer": lambda r, x: r(x, x, seq_len="8k"),
    r"k is torch\.int64": lambda r, x: r(x.new_ones(1, 1, 99, 8), x.new_ones(1, 1, 99, 8).long()),
    "extension is 'yarn'.*REGISTRY": lambda r, x: RotaryEmbedding(8, extension="yarn"),
}


@pytest.mark.parametrize("message", LAYER_VALUES | LAYER_TYPES)
def test_the_layer_is_unchanged_by_a_bad_call(message):
    rotary, x = RotaryEmbedding(8, 4, extension=DynamicNTK(4.0, 32)), X.clone()
    before = copy.deepcopy(rotary)
    with pytest.raises(ValueError if message in LAYER_VALUES else TypeError, match=message):
        (LAYER_VALUES | LAYER_TYPES)[message](rotary, x)
    assert torch.equal(rotary.cos, before.cos) and torch.equal(rotary.sin, before.sin)
    assert torch.equal(x, X) and rotary.fixed_length is None


def test_tables_on_meta_stay_there_after_a_bad_call():
    rotary = RotaryEmbedding(8, 4, device="meta")
    with pytest.raises(TypeError, match="float32"):
        rotary(X, X, IDS.float())
    assert rotary.cos.is_meta


def test_bad_segments_grow_nothing():
    layer = RotaryAttention(16, 4, rotary=RotaryEmbedding(4, 2))
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


@pytest.mark.parametrize(
    ("message", "ids"),
    {
        r"segment_ids has shape \[2\].*\[1, 3\] or \[2, 3\]": {"segment_ids": IDS[:2]},
        r"segment_ids has shape \[3, 3\]": {"segment_ids": IDS.new_ones(3, 3)},
        r"segment_ids is torch\.float32": {"segment_ids": torch.ones(3)},
        r"x is on cpu and segment_ids on meta": {"segment_ids": IDS[:3].to("meta")},
        r"position_ids has shape \[4\]": {"position_ids": IDS},
        r"position_ids has shape \[3, 3\]": {"position_ids": IDS.new_ones(3, 3)},
        r"position_ids is torch\.float32": {"position_ids": torch.ones(3)},
    }.items(),
)
def test_ids_that_do_not_fit_leave_the_cache_unchanged(message, ids):
    held, good = cache(), torch.ones(2, 2, 3, 4)
    with pytest.raises((ValueError, TypeError), match=message):
        held.append(good, good, **ids)
    assert held.length == 0 and held.keys.sum() == 0
    assert held.tokens.next_ids(1) == (None, None)


def test_a_cache_of_inference_mode_is_refused_outside_it():
    with torch.inference_mode():
        held, good = cache(), torch.ones(2, 2, 3, 4)
        held.append(good, good)
    with torch.no_grad(), pytest.raises(ValueError, match=r"inference_mode\(\).*make it outside"):
        held.append(good, good)
    assert held.length == 3


def test_a_full_cache_leaves_the_layer_as_it_was():
    layer, cache = RotaryAttention(16, 4, rotary=RotaryEmbedding(4, 4)), KVCache(1, 4, 5, 4)
    with torch.no_grad(), pytest.raises(ValueError, match="do not fit"):
        layer(torch.ones(1, 6, 16), cache=cache)
    assert len(layer.rotary.cos) == 4
    assert cache.length == 0
