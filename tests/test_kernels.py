"""Test that the C loop, the blocked formula and the Triton kernel give the formula's bits.

Each kernel is compared with `rope.kernels.formula`, bit for bit, and with float64 complex products.
Without a GPU, the Triton kernel runs in Triton's interpreter. `test_operator` tests the callers.
"""

import itertools
import math

import pytest
import torch
from strategies import DTYPES, normal, tables

from rope import rotary_embedding
from rope.kernels import cpu
from rope.kernels.formula import formula, rows_of

CUDA = torch.cuda.is_available()
with_loop = pytest.mark.skipif(
    cpu.library()[0] is None,
    reason="the C loop was not built; install a compiler (Debian: apt-get install gcc), "
    "remove .venv/.ready and run make again",
)
ROWS, BOTH = 40, (False, True)


def loop(q, k, outs, cos, sin, ids, *, interleaved, inverse):
    cpu.rotate_into(outs, (q, k), cos, sin, ids, interleaved=interleaved, inverse=inverse)


def blocks(q, k, outs, cos, sin, ids, *, interleaved, inverse):
    cos, sin = (cos, sin) if ids is None else rows_of(cos, sin, ids)
    for x, out in zip((q, k), outs, strict=True):
        cpu.in_blocks(x, out, cos, -sin if inverse else sin, interleaved)


def triton(q, k, outs, *tables, interleaved, inverse):
    pytest.importorskip("triton", reason="Triton has no wheels for this system")
    from rope.kernels.triton import launch

    launch(q, k, *outs, *tables, interleaved=interleaved, inverse=inverse)


ENGINES = {"loop": loop, "blocks": blocks, "triton": triton}
DEVICES = {"loop": "cpu", "blocks": "cpu", "triton": "cuda" if CUDA else "cpu"}
LOOP = pytest.param("loop", marks=with_loop)


def lined_up(x, cos, sin, ids):
    """Return cos and sin for each token of x, `[B, H, S, R/2]`."""
    if ids is not None:
        cos, sin = (t[ids.long()] for t in (cos, sin))
        if ids.dim() == 2:
            cos, sin = cos[:, None], sin[:, None]
    return [t.expand(*x.shape[:3], t.shape[-1]) for t in (cos, sin)]


def in_complex_numbers(x, cos, sin, interleaved):
    """Return x rotated by complex multiplication in float64, and the length of each pair."""
    x, width = x.double(), 2 * cos.shape[-1]
    split = (-1, 2) if interleaved else (2, -1)
    planes = x[..., :width].unflatten(-1, split)
    planes = planes if interleaved else planes.mT
    z = torch.view_as_complex(planes.contiguous()) * torch.complex(cos.double(), sin.double())
    planes = torch.view_as_real(z)
    planes = planes if interleaved else planes.mT
    return torch.cat((planes.flatten(-2), x[..., width:]), dim=-1), z.abs()


def assert_right(found, x, cos, sin, ids, *, interleaved, inverse, bits=True):
    """Check that each pair's error is at most 2 eps times its length; NaN never passes.

    Triton's interpreter needs that much, because it truncates to bfloat16 where a GPU rounds.
    """
    found, x, cos, sin = (t.cpu() for t in (found, x, *lined_up(x, cos, sin, ids)))
    sin = -sin if inverse else sin
    width = 2 * cos.shape[-1]
    assert torch.equal(found[..., width:], x[..., width:]), (
        "coordinates that are not rotated must not change"
    )
    if bits:
        assert torch.equal(found, formula(x, cos, sin, interleaved))
    expected, lengths = in_complex_numbers(x, cos, sin, interleaved)
    error = (found.double() - expected).abs()[..., :width]
    error = error.unflatten(-1, (-1, 2) if interleaved else (2, -1))
    error = error.amax(-1 if interleaved else -2)
    assert (error <= 2 * torch.finfo(x.dtype).eps * lengths).all()


def stored(shape, order, step, dtype, device, seed=None):
    """Return a buffer of NaN and, inside it, a view with this order of axes and last stride."""
    sizes = [shape[axis] for axis in order]
    buffer = torch.full((*sizes[:3], sizes[3] * step + 3), math.nan, dtype=dtype, device=device)
    view = buffer[..., : sizes[3] * step : step].permute([order.index(axis) for axis in range(4)])
    if seed is not None:
        view.copy_(normal(shape, seed, torch.float32))
    return buffer, view


# (D, R), (B, H, H_kv, S), order in memory, step. A tile of the Triton kernel has four heads.
CASES = (
    ((8, 8), (1, 5, 6, 1), (0, 1, 2, 3), 1),  # one token; two tiles of query and of key heads
    ((12, 6), (1, 2, 5, 3), (0, 2, 1, 3), 1),  # part of the head; only k has a second tile of heads
    ((24, 24), (1, 1, 1, 3), (2, 0, 3, 1), 1),  # not a power of two
    ((10, 2), (1, 1, 1, 18), (0, 2, 1, 3), 1),  # one plane; more tokens than fit in a tile
    ((64, 20), (1, 2, 2, 2), (0, 1, 2, 3), 1),  # many unrotated coordinates
    ((6, 6), (2, 2, 2, 2), (3, 1, 0, 2), 1),  # coordinates far apart, sequences adjacent
    ((8, 4), (2, 1, 3, 2), (1, 2, 0, 3), 2),  # every second element
)
FORMS = ("rows", "one row", "ids of all", "ids of each", "each sequence", "each head")


def tables_of(form, batch, heads, length, width, dtype, device):
    """Return cos, sin and position ids; cos and sin have different strides."""
    sizes = {
        "rows": (1, 1, length),
        "one row": (1, 1, 1),
        "each sequence": (batch, 1, length),
        "each head": (1, heads, length),
    }
    angle = normal((*sizes.get(form, (ROWS,)), width // 2), 5)
    cos, sin = angle.cos().to(device, dtype), angle.mT.contiguous().mT.sin().to(device, dtype)
    if form in ("rows", "ids of all", "each head"):  # in the others, sin's last stride isn't 1
        sin = torch.nn.functional.pad(sin, (0, 3))[..., : width // 2]
    if not form.startswith("ids"):
        return cos, sin, None
    size = (length,) if form == "ids of all" else (batch, length)
    ids = torch.randint(ROWS, size, generator=torch.Generator().manual_seed(7))
    return cos, sin, ids.to(device)


EACH = [
    (engine, dtype)
    for engine, dtype in itertools.product(ENGINES, DTYPES)
    if engine != "triton" or dtype != torch.float64
]


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize(("engine", "dtype"), EACH, ids=str)
def test_every_combination(engine, dtype, interleaved, subtests):
    """Run all cases, but only one case per combination in Triton's slow interpreter."""
    wide, device = torch.promote_types(dtype, torch.float32), DEVICES[engine]
    bits = engine != "triton" or not (CUDA or dtype == torch.bfloat16)
    first = DTYPES.index(dtype) + 4 * interleaved
    for i, (form, inverse, inplace) in enumerate(itertools.product(FORMS, BOTH, BOTH)):
        cases, flags = CASES, {"interleaved": interleaved, "inverse": inverse}
        if engine == "triton":  # fewer for dtypes that differ only in load and store
            other = dtype != torch.float32 and (i + i // 4 + interleaved) % 2
            cases = () if other else (CASES[(i + first) % len(CASES)],)
        for (dim, width), (batch, heads, heads_k, length), order, step in cases:
            heads_k = heads if form == "each head" else heads_k
            cos, sin, ids = tables_of(form, batch, heads, length, width, wide, device)
            shapes = [(batch, h, length, dim) for h in (heads, heads_k)]
            how = order, step, dtype, device
            around, xs = zip(*(stored(x, *how, 1) for x in shapes), strict=True)
            before, outs = [x.clone() for x in xs], xs
            if not inplace:
                around, outs = zip(*(stored(x, *how) for x in shapes), strict=True)
            with subtests.test(form=form, shapes=shapes, width=width, inplace=inplace, **flags):
                ENGINES[engine](*xs, outs, cos, sin, ids, **flags)
                for out, x, buffer in zip(outs, before, around, strict=True):
                    assert_right(out.clone(), x, cos, sin, ids, **flags, bits=bits)
                    out.fill_(math.nan)
                    assert buffer.isnan().all(), "the kernel must not write outside the output"


FORWARD = {"interleaved": False, "inverse": False}


@pytest.mark.parametrize("engine", [LOOP, "blocks", "triton"])
@pytest.mark.parametrize("axis", [0, 3])
def test_offsets_have_64_bits(engine, axis):
    """Place sequences or coordinates over 2**31 elements apart, in a mostly untouched buffer."""
    apart = 2**31 + 64
    buffer = torch.empty(apart + 8, dtype=torch.float16, device=DEVICES[engine])
    steps = (apart, 8, 8, 1) if axis == 0 else (8, 8, 8, apart // 7)
    x = buffer.as_strided((2 if axis == 0 else 1, 1, 1, 8), steps)
    x.copy_(normal(x.shape, 1, torch.float32))
    zero = torch.zeros(1, 1, 1, 4, device=DEVICES[engine])
    before, quarter = x.clone(), (zero, zero + 1, None)
    ENGINES[engine](x, x[:, :0], (x, x[:, :0]), *quarter, **FORWARD)
    assert_right(x, before, *quarter, **FORWARD)


@pytest.mark.parametrize("engine", [LOOP, "blocks", "triton"])
@pytest.mark.parametrize("shape", [(0, 2, 3, 4), (2, 0, 3, 4), (2, 2, 0, 4)])
def test_nothing_to_do(engine, shape):
    x, rows = (torch.empty(size, device=DEVICES[engine]) for size in (shape, (shape[2], 2)))
    ENGINES[engine](x, x.clone(), (x.clone(), x.clone()), rows, rows, None, **FORWARD)


@pytest.mark.parametrize("engine", [LOOP, "blocks"])
@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_large_tensors_are_cut_for_threads_and_caches(engine, interleaved, dtype):
    wide = torch.promote_types(dtype, torch.float32)
    q, k = normal((1, 3, 6001, 64), 1, dtype), normal((1, 2, 6001, 64), 2, dtype)
    threads = torch.get_num_threads()
    for form in ("rows", "one row", "ids of each", "each sequence"):
        given = tables_of(form, 1, 3, 6001, 48, wide, "cpu")
        outs = [torch.full_like(x, math.nan) for x in (q, k)]
        try:
            torch.set_num_threads(3)
            ENGINES[engine](q, k, outs, *given, interleaved=interleaved, inverse=False)
        finally:
            torch.set_num_threads(threads)
        for x, out in zip((q, k), outs, strict=True):
            assert torch.equal(out, formula(x, *lined_up(x, *given), interleaved))


SPECIAL = (0.0, -0.0, 1.0, 3e-45, -1e-40, 6e-8, 6.1e-5, 65519.0, 65520.0, 3e38, math.inf, math.nan)


@with_loop
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("interleaved", [False, True])
def test_the_loop_rounds_every_kind_of_number_as_torch_does(dtype, interleaved):
    """Check signed zeros, subnormal numbers, ties, overflow, infinity and NaN."""
    edges = torch.tensor(SPECIAL, dtype=torch.float64)
    bits = torch.arange(2**16, dtype=torch.int32).to(torch.int16).view(torch.bfloat16)
    values = torch.cat((edges, -edges, bits.double(), normal((4107,), 2))).to(dtype)
    values = torch.cat((values, values.new_zeros(-len(values) % 64)))
    x = torch.cat((values, values.roll(7), values.flip(0))).view(1, 3, -1, 64)
    cos = torch.linspace(-1, 1, x.shape[2] * 32).view(-1, 32)
    cos = cos.to(torch.promote_types(dtype, torch.float32))
    sin = (1 - cos**2).sqrt()
    cos[:2], sin[:2] = torch.tensor([[1.0], [-0.0]]), torch.tensor([[0.0], [1.0]])
    found = rotary_embedding(x, cos, sin, interleaved=interleaved)
    plain = formula(x, cos, sin, interleaved)
    torch.testing.assert_close(found, plain, rtol=0, atol=0, equal_nan=True)
    numbers = ~plain.isnan()
    assert torch.equal(found[numbers].signbit(), plain[numbers].signbit())


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int32, torch.int64], ids=str)
def test_to_triton_a_position_outside_the_tables_is_nan(dtype):
    """Check that outside positions give NaN, because the host can't check positions on a GPU."""
    cos, sin = (t.to(DEVICES["triton"]) for t in tables(4, 6, torch.float32))
    ids = torch.tensor([3, 200 if dtype == torch.uint8 else -1, 0, 4]).to(cos.device, dtype)
    x = normal((2, 1, 4, 8), 1, torch.float32).to(cos.device)
    out, inside = torch.zeros_like(x), [0, 2]
    triton(x, x[:, :0], (out, out[:, :0]), cos, sin, ids, **FORWARD)
    assert out[:, :, [1, 3], :6].isnan().all()
    given = (out[:, :, inside], x[:, :, inside], cos, sin, ids[inside])
    assert_right(*given, **FORWARD, bits=not CUDA)


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))))
def test_results_are_stored_as_x_is_and_are_no_views(order):
    """Check strides, and that results aren't views, which autograd may not change in place."""
    shape, back = (2, 3, 5, 8), [order.index(axis) for axis in range(4)]
    x = normal([shape[axis] for axis in order], 0, torch.float32).permute(back)
    for interleaved, grad in itertools.product(BOTH, BOTH):
        leaf = x.clone().requires_grad_(grad)
        for width in (6, 8):
            out = rotary_embedding(leaf, *tables(5, width, torch.float32), interleaved=interleaved)
            assert out.stride() == x.stride() and not out._is_view()
            out.mul_(2).sum().backward() if grad else out.mul_(2)


def test_memory_that_is_not_what_it_seems():
    """Check negated and zero tensors, which store other values, and functional tensors."""
    cos, sin = tables(5, 8, torch.float32)
    x = normal((2, 3, 5, 8), 1, torch.float32)
    right = rotary_embedding(x, cos, sin)
    negated = torch.complex(cos, -sin).conj().imag
    assert negated.is_neg() and torch.equal(rotary_embedding(x, cos, negated), right)
    zero = torch._efficientzerotensor(cos.shape)
    assert torch.equal(rotary_embedding(x, cos, zero), rotary_embedding(x, cos, sin * 0))
    functional = rotary_embedding(x, torch._to_functional_tensor(cos.clone()), sin)
    if torch._is_functional_tensor(functional):
        functional = torch._from_functional_tensor(functional)
    assert torch.equal(functional, right)
    assert torch.equal(rotary_embedding(torch._neg_view(-x), cos, sin), right)


@pytest.mark.skipif(not CUDA, reason="needs 13 GB of GPU memory")
def test_more_than_2_31_elements():
    x = torch.randn((1, 2, 2**23 + 1, 128), dtype=torch.bfloat16, device="cuda")
    cos, sin = (t.cuda() for t in tables(x.shape[2], 128, torch.float32))
    out = rotary_embedding(x, cos, sin)
    last = (out[:, :, -3:], x[:, :, -3:], cos[-3:], sin[-3:], None)
    assert_right(*last, **FORWARD, bits=False)
    assert torch.equal(rotary_embedding(x, cos, sin, inplace=True), out)
