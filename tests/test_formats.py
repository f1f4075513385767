"""Test other orders of the axes, packed tokens, and one row of positions for a batch."""

import itertools
from functools import partial

import pytest
import torch
from strategies import check_raises, normal, tables

from rope import RotaryEmbedding, reference, rotary_embedding, rotary_embedding_qk
from rope.axes import MixedRotaryEmbedding, MultiAxisRotaryEmbedding
from rope.positions import packed_position_ids
from rope.xpos import XPos


def stored(x, tensor_format):
    """Return x `[1, H, S, D]` as a contiguous tensor in another format."""
    x = x.transpose(1, 2).contiguous()
    return x[0] if tensor_format == "thd" else x


@pytest.mark.parametrize("tensor_format", ["bshd", "thd"])
@pytest.mark.parametrize("inplace", [False, True])
def test_other_formats_are_rotated_in_their_own_memory(tensor_format, inplace):
    q, k = normal((1, 4, 5, 8), 0), normal((1, 2, 5, 8), 1)
    ids = packed_position_ids([3, 2])
    rotary = RotaryEmbedding(6)
    cos, sin = tables(9, 6)
    flags = {"inplace": inplace, "tensor_format": tensor_format}
    for pair, single in (
        (lambda *x, **o: rotary(*x, ids, **o), lambda x, **o: rotary.rotate(x, ids, **o)),
        (
            lambda *x, **o: rotary_embedding_qk(*x, cos, sin, ids, **o),
            lambda x, **o: rotary_embedding(x, cos, sin, ids, **o),
        ),
    ):
        given = stored(q, tensor_format), stored(k, tensor_format)
        expected = [stored(x, tensor_format) for x in pair(q, k)]
        for out, right, x in zip(pair(*given, **flags), expected, given, strict=True):
            assert torch.equal(out, right) and out.is_contiguous()
            assert (out.data_ptr() == x.data_ptr()) == inplace
        x_only = stored(q, tensor_format)
        assert torch.equal(single(x_only, **flags), expected[0])
        assert torch.equal(x_only, expected[0]) == inplace


def test_an_unknown_format_or_shape_raises():
    rotary, x = RotaryEmbedding(8), torch.ones(2, 5, 3, 8)
    for name, words in (("sbhd", "'sbhd' 'bhsd' 'bshd' 'thd'"), ("thd", "q [2, 5, 3, 8] 'thd' 3")):
        check_raises(partial(rotary, x, x, tensor_format=name), ValueError, words)


def test_one_row_of_positions_serves_a_batch():
    x, ids = normal((3, 2, 4, 8), 0), torch.tensor([[4, 0, 9, 2]])
    for module in (RotaryEmbedding(8), XPos(8)):
        for one, each in zip(module(x, x, ids), module(x, x, ids.expand(3, -1)), strict=True):
            assert torch.equal(one, each)
    cos, sin = tables(10, 8)
    assert torch.equal(rotary_embedding(x, cos, sin, ids), rotary_embedding(x, cos, sin, ids[0]))
    on_axes = torch.stack((ids, ids.flip(1)))
    for module in (MultiAxisRotaryEmbedding.axial(8), MixedRotaryEmbedding(8, 2)):
        expected = module.rotate(x, on_axes.expand(2, 3, -1))
        assert torch.equal(module.rotate(x, on_axes), expected)


def test_queries_and_keys_of_other_lengths_go_one_by_one():
    """Rotate q and k separately, as in cross-attention or with several new keys for one query."""
    rotary = RotaryEmbedding(8, interleaved=True)
    q, k = normal((1, 2, 1, 8), 0), normal((1, 2, 5, 8), 1)
    check_raises(partial(rotary, q, k), ValueError, "q k [1, 2, 5, 8] rotate")
    scores = rotary.rotate(q, offset=7) @ rotary.rotate(k, offset=3).mT
    theta = reference.inverse_frequencies(8)
    for head, n in itertools.product(range(2), range(5)):
        right = reference.score(q[0, head, 0], k[0, head, n], 7, 3 + n, theta)
        assert float(scores[0, head, 0, n]) == pytest.approx(right, abs=1e-13)


def test_tables_of_transformers_come_in_by_a_slice():
    """Check that tables `[1, S, R]`, which repeat each plane, must be sliced before use."""
    x = normal((1, 2, 5, 16), 0).float()
    for width in (4, 8, 16):  # a quarter of a head, half of it, and all of it
        angles = torch.arange(5)[:, None] * 10000.0 ** (-torch.arange(0, width, 2) / width)
        cos, sin = (torch.cat((t, t), dim=-1)[None] for t in (angles.cos(), angles.sin()))
        right = rotary_embedding(x, cos[:, None, :, : width // 2], sin[:, None, :, : width // 2])
        mine = rotary_embedding(x, *tables(5, width, torch.float32))
        torch.testing.assert_close(right, mine, rtol=0, atol=1e-6)
        given = partial(rotary_embedding, x, cos, sin)
        check_raises(given, ValueError, f"cos [1, 5, {width}] transformers")
    given = partial(rotary_embedding, x, cos[:, None], sin[:, None])
    check_raises(given, ValueError, "32 head_dim 16")
