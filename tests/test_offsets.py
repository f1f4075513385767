"""Test `offset` as a tensor, one start per row, in `RotaryEmbedding` and `XPos`."""

import pytest
import torch
from strategies import DTYPES, normal

from rope import RotaryEmbedding
from rope.extensions import DynamicNTK, YaRN
from rope.kernels import disabled
from rope.positions import packed_position_ids
from rope.xpos import XPos

STARTS = torch.tensor([30, 3, 0])
Q, K = normal((3, 4, 5, 10), 0), normal((3, 2, 5, 10), 1)
LAYERS = {
    "plain": RotaryEmbedding(8, 64),
    "interleaved": RotaryEmbedding(8, 4, interleaved=True, extension=YaRN(4.0, 32)),
    "xpos": XPos(8),
}
INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


def rows(layer, q, k, **options):
    """Return the oracle: each row rotated separately, with its start as an int."""
    each = [
        layer(q[row : row + 1], k[row : row + 1], offset=start, **options)
        for row, start in enumerate(STARTS.tolist())
    ]
    return [torch.cat(parts) for parts in zip(*each, strict=True)]


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_each_row_is_rotated_as_by_itself(name, dtype):
    layer, (q, k) = LAYERS[name], (Q.to(dtype), K.to(dtype))
    for inverse in (False, True):
        expected = rows(layer, q, k, inverse=inverse)
        for offset in (STARTS, STARTS.to(torch.uint8), STARTS.int()):
            out = layer(q, k, offset=offset, inverse=inverse)
            assert all(map(torch.equal, out, expected))
    with disabled():
        assert all(map(torch.equal, layer(q, k, offset=STARTS), rows(layer, q, k)))


def test_rotate_formats_and_in_place_take_offsets_too():
    layer, xpos = LAYERS["plain"], LAYERS["xpos"]
    q, k = layer(Q, K, offset=STARTS)
    assert torch.equal(layer.rotate(Q, offset=STARTS), q)
    out = layer(Q.transpose(1, 2), K.transpose(1, 2), offset=STARTS, tensor_format="bshd")
    assert torch.equal(out[0].transpose(1, 2), q)
    assert torch.equal(layer.rotate(Q.clone(), offset=STARTS, inplace=True), q)
    q, k = xpos(Q, K, offset=STARTS)
    assert torch.equal(xpos.rotate_queries(Q, offset=STARTS), q)
    assert torch.equal(xpos.rotate_keys(K, offset=STARTS), k)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_far_starts_do_not_wrap_in_a_narrow_dtype(dtype):
    """Start at the largest value of each dtype; the next rows are beyond it."""
    layer, x, most = RotaryEmbedding(8), normal((1, 2, 5, 8), 2), min(torch.iinfo(dtype).max, 2**40)
    offset = torch.tensor([most], dtype=dtype)
    assert torch.equal(layer.rotate(x, offset=offset), layer.rotate(x, offset=most))


def test_tables_grow_and_one_spectrum_holds_for_all_rows():
    layer = RotaryEmbedding(8, 4)
    layer.rotate(Q.float(), offset=STARTS)
    assert len(layer.cos) == 64
    layer = RotaryEmbedding(8, extension=DynamicNTK(4.0, 32))
    together = layer.rotate(Q, offset=STARTS)  # up to position 34, so the spectrum for length 35
    for row, start in enumerate(STARTS.tolist()):
        single = layer.rotate(Q[row : row + 1], offset=start, seq_len=35)
        assert torch.equal(together[row : row + 1], single)


@pytest.mark.parametrize("name", ["plain", "xpos"])
def test_compiled_and_on_meta(name):
    layer = LAYERS[name]
    torch.compiler.reset()
    step = torch.compile(lambda q, k, at: layer(q, k, offset=at), fullgraph=True, backend="eager")
    for at in (STARTS, STARTS + 7, STARTS.flip(0)):
        assert all(map(torch.equal, step(Q, K, at), layer(Q, K, offset=at)))
    out = layer(Q.to("meta"), K.to("meta"), offset=STARTS.to("meta"))
    assert [x.shape for x in out] == [Q.shape, K.shape] and out[0].is_meta


def test_exported_with_a_dynamic_batch():
    class Step(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.rotary = RotaryEmbedding(8, 64)

        def forward(self, q, offset):
            return self.rotary.rotate(q, offset=offset)

    batch = torch.export.Dim("batch", min=2, max=9)
    sizes = {"q": {0: batch}, "offset": {0: batch}}
    program = torch.export.export(Step(), (Q.float(), STARTS), dynamic_shapes=sizes).module()
    two = Q[:2].float(), STARTS[:2]
    assert torch.equal(program(*two), Step()(*two))


def test_packed_tokens_take_ids_made_of_their_sequences_starts():
    """Check packed sequences with starts, which must be passed as position ids."""
    layer, lengths = LAYERS["plain"], torch.tensor([2, 3])
    x = Q[0].transpose(0, 1)  # [T, H, D]
    ids = packed_position_ids(lengths.tolist())
    ids = ids + torch.tensor([7, 30]).repeat_interleave(lengths)
    packed = layer.rotate(x, ids, tensor_format="thd")
    for first, last, start in ((0, 2, 7), (2, 5, 30)):
        single = layer.rotate(x[first:last], offset=start, tensor_format="thd")
        assert torch.equal(packed[first:last], single)


WRONG = {
    r"offset.*\[\].*\[3\]": (ValueError, STARTS[0]),
    r"offset.*\[1\].*\[3\]": (ValueError, STARTS[:1]),
    r"offset.*\[3, 1\]": (ValueError, STARTS[:, None]),
    "cpu.*offset.*meta": (ValueError, STARTS.to("meta")),
    "offset.*-1": (ValueError, STARTS - 1),
    "offset.*float32": (TypeError, STARTS.float()),
    "offset.*bool": (TypeError, STARTS.bool()),
}


@pytest.mark.parametrize("names", WRONG)
def test_a_wrong_offset_is_named_and_changes_nothing(names):
    kind, offset = WRONG[names]
    layer = RotaryEmbedding(8, 4)
    for each in (layer, LAYERS["xpos"]):
        with pytest.raises(kind, match=names):
            each(Q, K, offset=offset)
    assert len(layer.cos) == 4


def test_an_offset_that_does_not_fit_the_other_arguments_is_named():
    layer = LAYERS["plain"]
    with pytest.raises(ValueError, match=r"at most 2"):
        layer(Q, K, offset=STARTS + 2**53)
    with pytest.raises(ValueError, match=r"offset.*position_ids"):
        layer(Q, K, torch.arange(5), offset=STARTS)
