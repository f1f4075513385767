"""From nothing at all to more elements than 32 bits can count."""

import itertools

import pytest
import torch
from strategies import normal, tolerance

from rope import RotaryEmbedding, inverse_frequencies, rotary_tables
from rope.extensions import DynamicNTK, LongRoPE, YaRN
from rope.functional import rotary_embedding, rotary_embedding_

RAMP = (1.0, 1.5, 2.0, 3.0)
EXTENSIONS = (None, YaRN(4.0, 8), DynamicNTK(4.0, 8), LongRoPE(RAMP, RAMP[::-1], 8, factor=4.0))
layouts = pytest.mark.parametrize("interleaved", [False, True])


@layouts
@pytest.mark.parametrize("extension", EXTENSIONS)
@pytest.mark.parametrize(
    "empty", [s for n in (1, 2, 3) for s in itertools.combinations("BHS", n)], ids="".join
)
def test_empty_axes(empty, extension, interleaved):
    """Any of batch, heads and sequence may be 0; gradients and in place included."""
    shape = [0 if axis in empty else size for axis, size in zip("BHS", (2, 3, 4), strict=True)]
    rotary = RotaryEmbedding(8, 4, extension=extension, interleaved=interleaved)
    x = torch.zeros(*shape, 10, requires_grad=True)
    ids = torch.zeros(shape[0], shape[2], dtype=torch.long)
    for where in (
        {},
        {"offset": 9},
        {"position_ids": ids},
        {"position_ids": ids[0] if len(ids) else ids.new_zeros(shape[2])},
    ):
        q, k = rotary(x, x[:, :1], **where)
        assert (q.shape, k.shape) == (x.shape, x[:, :1].shape)
        q.sum().backward()
        assert x.grad.shape == x.shape
        copies = [x.detach().clone() for _ in range(2)]
        for out, y in zip(rotary(*copies, **where, inplace=True), copies, strict=True):
            assert out is y
        assert rotary(x.detach().double(), x.detach().double(), **where)[0].shape == x.shape


@layouts
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_the_smallest_head_is_one_plane(interleaved, dtype):
    """D = R = 2: both layouts are the same plane, and it turns by the position itself."""
    x = normal((1, 1, 7, 2), 0, dtype)
    out = RotaryEmbedding(2, 1, interleaved=interleaved).rotate(x)
    turns = torch.polar(torch.ones(7, dtype=torch.float64), torch.arange(7, dtype=torch.float64))
    expected = torch.view_as_real(torch.view_as_complex(x.double()) * turns)
    wide = torch.promote_types(dtype, torch.float32)
    atol = tolerance(wide, 4.0, operations=4) + tolerance(dtype, 4.0, operations=1)
    torch.testing.assert_close(out.double(), expected, rtol=0, atol=atol)
    wider = torch.cat((x, normal((1, 1, 7, 5), 1, dtype)), dim=-1)  # R = 2 of an odd D = 7
    turned = RotaryEmbedding(2, 1, interleaved=interleaved).rotate(wider)
    assert torch.equal(turned, torch.cat((out, wider[..., 2:]), dim=-1))


@layouts
@pytest.mark.parametrize("length", [65_535, 65_536, 65_537, 131_073])
def test_sequences_past_the_limit_of_a_grid_axis(length, interleaved):
    """CUDA's grid.y and grid.z end at 65,535; positions there must not."""
    x = normal((1, 1, 1, 4), 0, torch.float32).expand(1, 1, length, 4)
    rotary = RotaryEmbedding(4, 16, interleaved=interleaved)
    out = rotary.rotate(x)
    assert torch.equal(out, rotary.rotate(x.contiguous(), torch.arange(length)))
    for at in (0, 65_534, length - 2, length - 1):
        assert torch.equal(out[:, :, at : at + 1], rotary.rotate(x[:, :, :1], offset=at))
    norms = out.double().norm(dim=-1)
    wanted = x.double().norm(dim=-1)
    atol = tolerance(torch.float32, 2 * float(wanted.max()), operations=4)
    torch.testing.assert_close(norms, wanted, rtol=0, atol=atol)


@pytest.mark.parametrize("shape", [(65_537, 1, 2, 4), (1, 65_537, 2, 4)])
def test_many_batches_and_many_heads(shape):
    x = normal((1, 1, 2, 4), 0).expand(shape)
    out = RotaryEmbedding(4, 16).rotate(x)
    assert torch.equal(out, RotaryEmbedding(4, 16).rotate(x[:1, :1]).expand(shape))


@pytest.mark.parametrize("position", [2**24 + 1, 2**31 - 1, 2**31 + 1, 2**40 + 1])
def test_positions_past_what_float32_and_int32_count(position):
    """By tables for those positions alone, since no layer holds 2^31 rows."""
    mpmath = pytest.importorskip("mpmath")
    theta = inverse_frequencies(8)
    cos, sin = rotary_tables(torch.tensor([position]), theta)
    with mpmath.workdps(50):
        for table, function in ((cos, mpmath.cos), (sin, mpmath.sin)):
            exact = [float(function(position * mpmath.mpf(float(t)))) for t in theta]
            # The float64 product is rounded: an angle of size a is off by a eps/2.
            angles = position * theta.abs()
            atol = angles * tolerance(torch.float64, operations=1) + tolerance(torch.float32)
            assert ((table[0].double() - torch.tensor(exact).double()).abs() <= atol).all()


HUGE = (4, 64, 70_001, 128)  # 2.3e9 elements; expanded or on meta they take no memory


def test_more_elements_than_an_int32_counts_on_meta():
    q = torch.empty(HUGE, device="meta", dtype=torch.bfloat16)
    k = torch.empty(HUGE[0], HUGE[2], 8, 128, device="meta", dtype=torch.bfloat16).transpose(1, 2)
    assert q.numel() > 2**31
    rotary = RotaryEmbedding(128, 16, device="meta")
    for out, x in zip(rotary(q, k), (q, k), strict=True):
        assert (out.shape, out.stride(), out.dtype) == (x.shape, x.stride(), x.dtype)
    assert rotary(q, k, inplace=True)[0] is q
    cos, sin = (torch.empty(HUGE[2], 64, device="meta") for _ in range(2))
    assert rotary_embedding(q, cos, sin, interleaved=True).shape == q.shape


@layouts
def test_offsets_into_memory_past_an_int32(interleaved):
    """A few vectors whose places in memory lie more than 2^31 elements apart."""
    span = 2**31 + 8
    try:
        # Pages that are never touched cost nothing: 4.3 GB of addresses, a few KB of memory.
        memory = torch.empty(span + 64, dtype=torch.bfloat16)
    except RuntimeError:
        pytest.skip("this system gives no addresses without memory")
    x = memory.as_strided((2, 1, 3, 8), (span, 8, 8, 1))
    x.copy_(normal((2, 1, 3, 8), 0, torch.bfloat16))
    cos, sin = rotary_tables(3, inverse_frequencies(6))
    expected = rotary_embedding(x.contiguous(), cos, sin, interleaved=interleaved)
    assert torch.equal(rotary_embedding(x, cos, sin, interleaved=interleaved), expected)
    assert rotary_embedding_(x, cos, sin, interleaved=interleaved) is x
    assert torch.equal(x, expected)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors is in prototype")
@layouts
@pytest.mark.parametrize("layout", [torch.strided, torch.jagged])
def test_nested_tensors_are_refused_with_a_sentence(layout, interleaved):
    """Sequences of unequal lengths have no [B, H, S, D]; unbound, each is rotated as it is."""
    rows = [normal((3, length, 8), length, torch.float32) for length in (2, 5)]
    kept = {"layout": layout}
    if layout == torch.jagged:  # its ragged axis must be the first after the batch
        nested = torch.nested.nested_tensor([row.transpose(0, 1) for row in rows], **kept)
        nested = nested.transpose(1, 2)
    else:
        nested = torch.nested.nested_tensor(rows, **kept)
    rotary = RotaryEmbedding(8, 16, interleaved=interleaved)
    for call in (rotary.rotate, lambda x: rotary(x, x)):
        with pytest.raises((ValueError, TypeError), match="nested"):
            call(nested)
    cos, sin = rotary_tables(5, inverse_frequencies(8))
    for form in (rotary_embedding, rotary_embedding_):
        with pytest.raises((ValueError, TypeError), match="nested"):
            form(nested, cos, sin)
    for part, row in zip(nested.unbind(), rows, strict=True):
        assert torch.equal(rotary.rotate(part[None]), rotary.rotate(row[None]))


@pytest.mark.parametrize("make", [torch.Tensor.to_sparse, torch.Tensor.to_mkldnn])
def test_other_storage_is_refused_or_right(make):
    """Sparse and oneDNN tensors have no strides: a sentence, never a wrong answer."""
    if make is torch.Tensor.to_mkldnn and not torch.backends.mkldnn.is_available():
        pytest.skip("this torch has no oneDNN")
    x = make(normal((1, 2, 3, 8), 0, torch.float32))
    with pytest.raises((TypeError, ValueError), match="strided"):
        RotaryEmbedding(8, 16).rotate(x)
