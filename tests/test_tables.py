"""Tables with context extensions, offsets, a length that is fixed, and the way back."""

import pytest
import torch
from strategies import normal, tolerance

from rope import RotaryEmbedding, inverse_frequencies, rotary_embedding, rotary_tables
from rope.extensions import DynamicNTK, Linear, LongRoPE, YaRN

L = 32  # the trained length of these toys
LONG = LongRoPE((1.0, 1.5, 2.0, 2.5), (2.0, 3.0, 5.0, 8.0), L, factor=8.0)
EXTENSIONS = [None, Linear(4.0), YaRN(4.0, L), DynamicNTK(4.0, L), LONG]


def rows(positions, extension, seq_len, dtype=torch.float32):
    """The definition: tables of these positions, from the spectrum of that length."""
    frequencies = inverse_frequencies(8, extension=extension, seq_len=seq_len)
    scale = 1.0 if extension is None else extension.attention_scaling
    return rotary_tables(positions, frequencies, dtype=dtype, scale=scale)


@pytest.mark.parametrize("extension", EXTENSIONS, ids=str)
@pytest.mark.parametrize("offset", [0, 5, L - 3, L - 2, 100])
def test_each_call_has_the_spectrum_of_its_length(extension, offset):
    rotary = RotaryEmbedding(8, 4, extension=extension)
    x = normal((1, 2, 3, 8), 0, torch.float32)
    rotary(x, x, offset=500)  # what was called before does not matter
    positions = torch.arange(offset, offset + 3)
    expected = rotary_embedding(x, *rows(positions, extension, offset + 3))
    assert torch.equal(rotary(x, x, offset=offset)[0], expected)
    assert torch.equal(rotary(x, x, positions)[1], expected)
    assert torch.equal(rotary(x, x, positions[None])[1], expected)
    assert torch.equal(rotary.rotate(x, offset=offset), expected)
    wide = rotary_embedding(x.double(), *rows(positions, extension, offset + 3, torch.float64))
    assert torch.equal(rotary.rotate(x.double(), offset=offset), wide)


@pytest.mark.parametrize("extension", EXTENSIONS, ids=str)
def test_a_length_can_be_said_or_fixed(extension):
    rotary = RotaryEmbedding(8, 4, extension=extension)
    x, positions = normal((1, 2, 3, 8), 0, torch.float32), torch.tensor([[7, 1, 40]])
    expected = rotary_embedding(x, *rows(torch.tensor([7, 1, 40]), extension, 200))
    assert torch.equal(rotary(x, x, positions, seq_len=200)[0], expected)
    rotary.fix_length(200)
    assert torch.equal(rotary(x, x, positions)[0], expected)
    assert torch.equal(rotary.inv_freq, inverse_frequencies(8, extension=extension, seq_len=200))
    plain = rotary_embedding(x, *rows(torch.tensor([7, 1, 40]), extension, L))
    assert torch.equal(rotary(x, x, positions, seq_len=L)[0], plain)
    rotary.fix_length(None)
    assert torch.equal(
        rotary(x[:, :, :2], x[:, :, :2], offset=3)[0],
        rotary_embedding(x[:, :, :2], *rows(torch.arange(3, 5), extension, 5)),
    )


@pytest.mark.parametrize("extension", EXTENSIONS, ids=str)
@pytest.mark.parametrize("inplace", [False, True])
def test_the_way_back_undoes_the_attention_scaling_too(extension, inplace):
    rotary, x = RotaryEmbedding(8, extension=extension), normal((2, 2, 40, 8), 0)
    there = rotary.rotate(x)
    norms = there.norm(dim=-1) / x.norm(dim=-1)
    torch.testing.assert_close(norms, torch.full_like(norms, rotary.attention_scaling))
    back = rotary.rotate(there.clone(), inverse=True, inplace=inplace)
    torch.testing.assert_close(back, x, rtol=0, atol=tolerance(torch.float64, 8, 8))


def test_in_place_is_the_same_and_in_its_place():
    rotary = RotaryEmbedding(6, 16, interleaved=True)
    q, k = normal((2, 4, 5, 8), 0, torch.float32), normal((2, 2, 5, 8), 1, torch.bfloat16)
    expected = rotary(q, k, offset=2)
    turned = rotary(q, k, offset=2, inplace=True)
    assert turned[0] is q and turned[1] is k
    assert torch.equal(q, expected[0]) and torch.equal(k, expected[1])


def test_a_score_depends_on_the_offset_alone_at_one_length_and_not_across_two():
    """Keys kept from a shorter length do not fit later queries: transformers 25104 and 33129."""
    q, k = normal((1, 1, 1, 8), 0), normal((1, 1, 1, 8), 1)

    def score(rotary, m, n, query_length, key_length):
        query = rotary.rotate(q, offset=m, seq_len=query_length)
        return (query * rotary.rotate(k, offset=n, seq_len=key_length)).sum()

    for extension in (DynamicNTK(4.0, L), LONG):
        rotary = RotaryEmbedding(8, extension=extension)
        near, far = (score(rotary, n + 5, n, 100, 100) for n in (0, 90))
        torch.testing.assert_close(near, far, rtol=0, atol=tolerance(torch.float64, 100, 32))
        near, far = (score(rotary, n + 5, n, 100, L) for n in (0, 90))
        assert (near - far).abs() > 0.01


def test_the_extension_shows():
    rotary = RotaryEmbedding(8, 16, extension=Linear(2.0))
    rotary.fix_length(64)
    assert repr(rotary) == (
        "RotaryEmbedding(dim=8, rows=16, base=10000.0, extension=Linear(factor=2.0), "
        "fixed_length=64, interleaved=False)"
    )


BAD = {
    "extension by name": (lambda: RotaryEmbedding(8, extension="yarn"), TypeError,
                          "extension is 'yarn'.*REGISTRY"),
    "extension that does not fit": (lambda: RotaryEmbedding(6, extension=LONG), ValueError,
                                    "have 4 numbers.*must have 3"),
    "offset negative": (lambda r, x: r(x, x, offset=-1), ValueError, "offset is -1.*at least 0"),
    "offset float": (lambda r, x: r(x, x, offset=1.0), TypeError, "offset is 1.0.*integer"),
    "offset and ids": (lambda r, x: r(x, x, torch.arange(3), offset=2), ValueError,
                       "offset is 2 beside position_ids.*add the offset"),
    "seq_len 0": (lambda r, x: r(x, x, seq_len=0), ValueError, "seq_len is 0.*at least 1"),
    "seq_len text": (lambda r, x: r(x, x, seq_len="8k"), TypeError, "seq_len is '8k'.*integer"),
    "fixed 0": (lambda r, x: r.fix_length(0), ValueError, "seq_len is 0.*at least 1"),
    "inverse number": (lambda r, x: r(x, x, inverse=1), TypeError, "inverse is 1.*True or False"),
    "inplace text": (lambda r, x: r(x, x, inplace="no"), TypeError, "inplace is 'no'.*True or"),
    "one tensor in place": (lambda r, x: r(x, x, inplace=True), ValueError,
                            "share places in memory.*k.clone"),
    "leaf in place": (lambda r, x: r.rotate(x.clone().requires_grad_(), inplace=True), ValueError,
                      "x is a leaf.*x.clone"),
    "shared memory in place": (
        lambda r, x: r(x, x[:1].expand(2, 2, 3, 8), inplace=True), ValueError,
        r"k has shape \[2, 2, 3, 8\] and strides \[0, .*k.contiguous"),
    "negative ids": (lambda r, x: r(x, x, torch.tensor([-1, 0, 1])), ValueError, "holds -1"),
    "negative ids in float64": (
        lambda r, x: r.rotate(x.double(), torch.tensor([-1, 0, 1])), ValueError, "holds -1"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_bad_calls_change_nothing(case):
    call, kind, message = BAD[case]
    rotary, x = RotaryEmbedding(8, 4, extension=DynamicNTK(4.0, L)), torch.ones(2, 2, 3, 8)
    with pytest.raises(kind, match=message):
        call(rotary, x) if call.__code__.co_argcount else call()
    assert torch.equal(x, torch.ones(2, 2, 3, 8))
    assert len(rotary.cos) == 4 and rotary.fixed_length is None


def test_compiled_code_asks_for_the_length_it_cannot_read():
    rotary = RotaryEmbedding(8, extension=DynamicNTK(4.0, L))
    compiled = torch.compile(rotary, fullgraph=True, backend="eager")
    x, ids = normal((1, 1, 3, 8), 0, torch.float32), torch.tensor([0, 40, 2])
    assert torch.equal(compiled(x, x, ids, seq_len=41)[0], rotary(x, x, ids)[0])
    # torch 2.6 says that there was a refusal, and not which.
    with pytest.raises(Exception, match=r"pass seq_len, or call fix_length|Observed exception"):
        compiled(x, x, ids)
    rotary.fix_length(41)
    assert torch.equal(compiled(x, x, ids)[0], rotary(x, x, ids)[0])
