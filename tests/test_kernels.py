"""The kernel against the float64 reference: on a GPU, or in Triton's interpreter elsewhere."""

import pytest
import torch

from rope.frequencies import inverse_frequencies, rotary_tables
from rope.functional import rotary_embedding, rotary_embedding_
from tests.strategies import normal

pytest.importorskip("triton", reason="triton has no wheels for this system")

from rope.kernels.triton import launch

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
DTYPES = (torch.float32, torch.bfloat16, torch.float16)
POISON = float("nan")


def reference(x, cos, sin, interleaved, inverse):
    """Complex multiplication in double precision; cos and sin line up with x, `[B, H, S, R/2]`."""
    x, width = x.double(), 2 * cos.shape[-1]
    turned = x[..., :width]
    pairs = turned.unflatten(-1, (-1, 2)) if interleaved else turned.unflatten(-1, (2, -1)).mT
    z = torch.view_as_complex(pairs.contiguous())
    z = z * torch.complex(cos.double(), -sin.double() if inverse else sin.double())
    parts = torch.view_as_real(z)
    turned = parts.flatten(-2) if interleaved else parts.mT.flatten(-2)
    return torch.cat((turned, x[..., width:]), dim=-1)


def close(found, x, cos, sin, interleaved, inverse):
    """Each pair within 2 eps of its length, the bound of the whole package; NaN never passes.

    It leaves room for the interpreter, which cuts bfloat16 off where a GPU rounds it.
    """
    expected = reference(x, cos, sin, interleaved, inverse)
    width = 2 * cos.shape[-1]
    assert torch.equal(found[..., width:], x[..., width:]), "what is not rotated must not change"
    error = (found[..., :width].double() - expected[..., :width]).abs()
    split = (-1, 2) if interleaved else (2, -1)
    axis = -1 if interleaved else -2
    length = expected[..., :width].unflatten(-1, split).norm(dim=axis, keepdim=True)
    allowed = 2 * torch.finfo(x.dtype).eps * length
    assert (error.unflatten(-1, split) <= allowed).all()


def stored(shape, order, dtype, seed):
    """Random values whose axes lie in memory in this order, inside a larger poisoned buffer."""
    sizes = [shape[axis] for axis in order]
    buffer = torch.full((*sizes[:3], sizes[3] + 3), POISON, dtype=dtype, device=DEVICE)
    view = buffer[..., : sizes[3]].permute([order.index(axis) for axis in range(4)])
    view.copy_(normal(shape, seed, torch.float32))
    return buffer, view


def lined_up(cos, sin, ids, x):
    """The tables of every token of x, `[B, H, S, R/2]`."""
    if ids is not None:
        cos, sin = cos[ids.long()], sin[ids.long()]
        if ids.dim() == 2:
            cos, sin = cos[:, None], sin[:, None]
    return (t.expand(*x.shape[:3], t.shape[-1]) for t in (cos, sin))


# D, R; B, H, H_kv, S; order in memory: powers of two and not, a rest, one token and more than a
# tile of them, heads that do not fill a tile, coordinates that lie apart.
CASES = (
    ((8, 8), (2, 5, 3, 1), (0, 1, 2, 3)),
    ((12, 6), (1, 4, 2, 17), (0, 2, 1, 3)),
    ((24, 24), (1, 1, 1, 3), (2, 0, 3, 1)),
    ((10, 2), (2, 6, 1, 33), (0, 2, 1, 3)),
    ((64, 20), (1, 2, 2, 5), (0, 1, 2, 3)),
)


@pytest.mark.parametrize("inverse", [False, True])
@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("form", ["lined up", "ids of all", "ids of each"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_combination_against_the_reference(dtype, form, interleaved, inverse):
    for (dim, rotary_dim), (batch, heads, heads_k, length), order in CASES:
        rows = length if form == "lined up" else 40
        cos, sin = rotary_tables(rows, inverse_frequencies(rotary_dim, 100.0))
        cos, sin = cos.to(DEVICE), sin.to(DEVICE)
        ids = None
        if form != "lined up":
            size = (length,) if form == "ids of all" else (batch, length)
            ids = torch.randint(rows, size, generator=torch.Generator().manual_seed(7)).to(DEVICE)
        _, q = stored((batch, heads, length, dim), order, dtype, 1)
        _, k = stored((batch, heads_k, length, dim), order, dtype, 2)
        around, outs = zip(*(stored(x.shape, order, dtype, 3) for x in (q, k)), strict=True)
        for buffer in around:
            buffer.fill_(POISON)
        tables = (cos, sin) if ids is not None else (cos[None, None], sin[None, None])
        flags = {"interleaved": interleaved, "inverse": inverse}
        launch(q, k, *outs, *tables, ids, **flags)
        for x, out, buffer in zip((q, k), outs, around, strict=True):
            close(out, x, *lined_up(cos, sin, ids, x), interleaved, inverse)
            assert buffer[..., -3:].isnan().all() or order[3] != 3, "wrote beside the output"


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_in_place_touches_nothing_else(dtype, interleaved):
    cos, sin = (t.to(DEVICE)[None, None] for t in rotary_tables(9, inverse_frequencies(6)))
    buffer, x = stored((2, 5, 9, 12), (0, 2, 1, 3), dtype, 1)
    before = x.clone()
    launch(x, None, x, None, cos, sin, None, interleaved=interleaved, inverse=False)
    close(x, before, *lined_up(cos, sin, None, x), interleaved, False)
    assert buffer[..., 12:].isnan().all()


@pytest.mark.skipif(DEVICE.type == "cuda", reason="a GPU fuses multiplications and additions")
@pytest.mark.parametrize("interleaved", [False, True])
def test_interpreted_float32_has_the_bits_of_the_eager_path(interleaved):
    cos, sin = rotary_tables(21, inverse_frequencies(20))
    x = normal((2, 3, 21, 24), 5, torch.float32)
    out = torch.full_like(x, POISON)
    flags = {"interleaved": interleaved, "inverse": False}
    launch(x, None, out, None, cos[None, None], sin[None, None], None, **flags)
    assert torch.equal(out, rotary_embedding(x, cos, sin, interleaved=interleaved))


@pytest.mark.parametrize("batch_tables", [False, True])
@pytest.mark.parametrize("heads_tables", [False, True])
def test_tables_of_each_sequence_and_of_each_head(batch_tables, heads_tables):
    """Mixed frequencies have tables for each head; documents of their own, for each sequence."""
    angle = normal((2 if batch_tables else 1, 5 if heads_tables else 1, 7, 3), 0, torch.float32)
    cos, sin = angle.cos().to(DEVICE), angle.sin().to(DEVICE)
    x = normal((2, 5, 7, 8), 1, torch.float32).to(DEVICE)
    for interleaved in (False, True):
        out = torch.full_like(x, POISON)
        launch(x, None, out, None, cos, sin, None, interleaved=interleaved, inverse=False)
        close(out, x, *lined_up(cos, sin, None, x), interleaved, False)


def test_cosines_and_sines_stored_otherwise():
    cos, sin = rotary_tables(5, inverse_frequencies(8))
    sin = sin.T.contiguous().T
    x = normal((1, 2, 5, 8), 1, torch.float32).to(DEVICE)
    out = torch.full_like(x, POISON)
    tables = cos.to(DEVICE)[None, None], sin.to(DEVICE)[None, None]
    launch(x, None, out, None, *tables, None, interleaved=False, inverse=False)
    close(out, x, *lined_up(*tables, None, x), False, False)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int32, torch.int64], ids=str)
def test_a_position_outside_the_tables_is_nan_and_the_others_right(dtype):
    """No host looks at positions; a row that does not exist must not be another's in silence."""
    cos, sin = (t.to(DEVICE) for t in rotary_tables(4, inverse_frequencies(6)))
    positions = [3, 200 if dtype == torch.uint8 else -1, 0, 4]
    ids = torch.tensor(positions, dtype=dtype, device=DEVICE)
    x = normal((2, 3, 4, 8), 1, torch.float32).to(DEVICE)
    out = torch.zeros_like(x)
    launch(x, None, out, None, cos, sin, ids, interleaved=False, inverse=False)
    inside = [0, 2]
    assert out[:, :, [1, 3], :6].isnan().all()
    rows = ids[inside]
    close(
        out[:, :, inside], x[:, :, inside], *lined_up(cos, sin, rows, x[:, :, inside]), False, False
    )


@pytest.mark.parametrize("shape", [(0, 2, 3, 4), (2, 0, 3, 4), (2, 2, 0, 4)])
def test_nothing_to_do(shape):
    x = torch.empty(shape, device=DEVICE)
    tables = (torch.ones(1, 1, shape[2], 2, device=DEVICE),) * 2
    launch(x, x.clone(), x.clone(), x.clone(), *tables, None, interleaved=False, inverse=False)


def test_offsets_have_64_bits():
    """Two sequences 2**31 elements apart; the memory between them is never touched."""
    apart = 2**31 + 64
    buffer = torch.empty(apart + 8, dtype=torch.float16, device=DEVICE)
    x = buffer.as_strided((2, 1, 1, 8), (apart, 8, 8, 1))
    x.copy_(normal((2, 1, 1, 8), 1, torch.float32))
    before = x.clone()
    cos, sin = (t.to(DEVICE)[None, None] for t in rotary_tables(1, inverse_frequencies(8)))
    cos, sin = cos * 0, sin + 1  # a quarter turn
    launch(x, None, x, None, cos, sin, None, interleaved=True, inverse=False)
    close(x, before, *lined_up(cos, sin, None, x), True, False)


@pytest.mark.skipif(DEVICE.type != "cuda", reason="asks for 13 GB of a GPU's memory")
def test_more_than_2_31_elements():
    shape = (1, 2, 2**23 + 1, 128)
    x = torch.randn(shape, dtype=torch.bfloat16, device=DEVICE)
    cos, sin = (t.to(DEVICE) for t in rotary_tables(shape[2], inverse_frequencies(128)))
    out = rotary_embedding(x, cos, sin)
    close(
        out[:, :, -3:],
        x[:, :, -3:],
        *lined_up(cos[-3:], sin[-3:], None, x[:, :, -3:]),
        False,
        False,
    )
    rotary_embedding_(x, cos, sin)
    assert torch.equal(x, out)
