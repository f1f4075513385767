"""The CPU's blocks and few operations give the bits of the formulas, however they are cut."""

import itertools
import os
import subprocess
import sys

import pytest
import torch

from rope import _blocks, _few, rotary_embedding, rotary_embedding_qk
from rope._formula import formula
from rope.kernels import use_backend
from tests.strategies import DTYPES, normal

BATCH, LENGTH = 3, 23


@pytest.fixture
def threads():
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


def tables(dtype, planes, form):
    """Lined up with the vectors as `form` says: shared, or its own rows for some axes."""
    axes = {"B": (BATCH, 1, LENGTH), "H": (1, 5, LENGTH), "BH": (BATCH, 5, LENGTH)}
    shape = axes.get(form, (1, 1, 1 if form == "one row" else LENGTH))
    angles = normal((*shape, planes), 3)
    wide = torch.promote_types(dtype, torch.float32)
    cos, sin = angles.cos().to(wide), angles.sin().to(wide)
    return (cos[0, 0], sin[0, 0]) if form == "plain" else (cos, sin)


def expected(x, cos, sin, interleaved=False):
    """The plain formulas, in the arithmetic's dtype."""
    wide = torch.promote_types(x.dtype, cos.dtype)
    cos, sin = cos.to(wide), sin.to(wide)
    return formula(
        x, *((cos[None, None], sin[None, None]) if cos.dim() == 2 else (cos, sin)), interleaved
    )


def vectors(dtype, width, storage, heads):
    shape = (BATCH, heads, LENGTH, width + 4)
    x = normal(shape, heads, dtype)
    if storage == "tokens":
        x = x.transpose(1, 2).contiguous().transpose(1, 2)
    if storage == "slice":
        x = torch.cat((x, x), 3)[..., 1 : 1 + x.shape[3]]
    return x


CASES = list(
    itertools.product(
        (False, True),
        ("plain", "B", "H", "BH", "one row"),
        (("heads", 12), ("tokens", 32), ("slice", 32)),
        (1, 3),
    )
)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("sizes", [(64, 256), (256, 1024), (1 << 15, 1 << 16)])
def test_every_cut_gives_the_bits_of_the_formulas(dtype, sizes, monkeypatch, threads):
    chunk, block = sizes
    monkeypatch.setattr(_blocks, "_CHUNK", chunk)
    monkeypatch.setattr(_blocks, "_CHUNK_WIDENED", chunk - 32)
    monkeypatch.setattr(_blocks, "_BLOCK", block)
    for interleaved, form, (storage, width), count in CASES:
        threads(count)
        cos, sin = tables(dtype, width // 2, form)
        heads = (5, 5) if "H" in form else (5, 1 if storage == "tokens" else 2)
        xs = [vectors(dtype, width, storage, n) for n in heads]
        right = [expected(x, cos, sin, interleaved) for x in xs]
        outs = [torch.full_like(x, float("nan")) for x in xs]
        inplace = [x.clone() for x in xs]
        versions = [x._version for x in (*outs, *inplace)]
        found = _blocks.rotate_all(xs, cos, sin, interleaved)
        assert _blocks.rotate_all(xs, cos, sin, interleaved, outs) == outs
        _blocks.rotate_all(inplace, cos, sin, interleaved, inplace)
        for made in (found, outs, inplace):
            for one, other in zip(made, right, strict=True):
                assert torch.equal(one, other), (interleaved, form, storage, count)
        after = [x._version for x in (*outs, *inplace)]
        assert all(new > old for new, old in zip(after, versions, strict=True))


@pytest.mark.parametrize("dtype", DTYPES)
def test_few_operations_give_the_bits_of_the_formulas(dtype, threads):
    ways = 0
    for interleaved, form, count in itertools.product(
        (False, True), ("plain", "B", "H", "one row"), (1, 3)
    ):
        threads(count)
        cos, sin = tables(dtype, 32, form)
        heads = (5, 5) if "H" in form else (5, 1 if count == 1 else 2)
        xs = [normal((BATCH, n, LENGTH, 64), n, dtype) for n in heads]
        for some in (xs, xs[:1]):
            found = _few.few(some, cos, sin, interleaved)
            if found is None:
                continue
            ways += 1
            for x, made in zip(some, found, strict=True):
                assert torch.equal(made, expected(x, cos, sin, interleaved))
                assert not made._is_view() and made.is_contiguous()
    assert ways >= 16


def test_what_has_no_rows_goes_by_the_formulas_beside_what_has():
    cos, sin = tables(torch.float32, 4, "plain")
    one = normal((BATCH, 2, LENGTH, 8), 1, torch.float32)
    other = one.mT.contiguous().mT
    empty = one[:, :0]
    made = _blocks.rotate_all((one, other, empty), cos, sin, False)
    assert torch.equal(made[0], made[1]) and made[2].shape == empty.shape


@pytest.mark.parametrize("grad", [False, True])
def test_one_of_two_records_gradients(grad):
    """Then both go one by one, and only the one that asks gets a gradient."""
    cos, sin = tables(torch.float32, 4, "plain")
    q, k = (normal((BATCH, n, LENGTH, 8), n, torch.float32) for n in (4, 2))
    q.requires_grad_(grad)
    right = [expected(x.detach(), cos, sin) for x in (q, k)]
    found = rotary_embedding_qk(q, k, cos, sin)
    assert [x.requires_grad for x in found] == [grad, False]
    assert all(torch.equal(x.detach(), y) for x, y in zip(found, right, strict=True))
    changed, kept = rotary_embedding_qk(q * 1, k.clone(), cos, sin, inplace=True)
    assert [x.requires_grad for x in (changed, kept)] == [grad, False]
    assert torch.equal(changed.detach(), right[0]) and torch.equal(kept, right[1])


def test_number_formats_may_differ():
    cos, sin = tables(torch.float32, 4, "plain")
    q = normal((BATCH, 4, LENGTH, 8), 1, torch.float64)
    k = normal((BATCH, 2, LENGTH, 8), 2, torch.bfloat16)
    outs = torch.empty_like(q), torch.empty_like(k)
    assert rotary_embedding_qk(q, k, cos, sin, out=outs) == outs
    for x, made, filled in zip((q, k), rotary_embedding_qk(q, k, cos, sin), outs, strict=True):
        assert torch.equal(made, filled)
        assert torch.equal(made, expected(x, cos, sin))


@pytest.mark.parametrize("backend", ["eager", "triton"])
def test_two_buffers_are_filled_with_what_would_be_returned(backend):
    pytest.importorskip("triton") if backend == "triton" else None
    cos, sin = tables(torch.float32, 4, "plain")
    q, k = (normal((BATCH, n, LENGTH, 8), n, torch.float32) for n in (4, 2))
    cache = torch.full((BATCH, 2, 2 * LENGTH, 8), float("nan"))
    with use_backend(backend):
        right = rotary_embedding_qk(q, k, cos, sin)
        out = torch.full_like(q, float("nan")), cache[:, :, LENGTH:]
        versions = [x._version for x in out]
        found = rotary_embedding_qk(q, k, cos, sin, out=out)
    assert all(x._version > old for x, old in zip(out, versions, strict=True))
    assert found[0] is out[0] and found[1] is out[1]
    assert torch.equal(out[0], right[0]) and torch.equal(cache[:, :, LENGTH:], right[1])
    assert cache[:, :, :LENGTH].isnan().all()


Q, K = torch.zeros(1, 4, 3, 8), torch.zeros(1, 2, 3, 8)
BAD = {
    "one tensor": (Q, {}, TypeError, r"out is a Tensor; it must be two tensors.*out=\(for_q"),
    "three": ((Q, K, K), {}, TypeError, "out is a tuple of 3; it must be two tensors"),
    "a number": ((Q.clone(), 1), {}, TypeError, r"out\[1\] is a int; it must be a tensor"),
    "shape": ((Q.clone(), Q.clone()), {}, ValueError, r"out\[1\] has shape \[1, 4, 3, 8\].*k is"),
    "dtype": ((Q.double(), K.clone()), {}, TypeError, r"out\[0\] is torch.float64.*q is: make"),
    "q itself": ((Q, K.clone()), {}, ValueError, r"q and out\[0\] share places.*in place"),
    "k over q": ((Q.clone(), Q[:, 1:3]), {}, ValueError, r"q and out\[1\] share places"),
    "in place too": ((Q.clone(), K.clone()), {"inplace": True}, ValueError, "leave one away"),
    "gradient": ((Q.clone(), K.clone().requires_grad_()), {}, ValueError, r"out\[1\] requires a"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_buffers_are_refused_and_nothing_is_changed(case):
    out, more, kind, message = BAD[case]
    quarter = torch.zeros(3, 4), torch.ones(3, 4)
    with pytest.raises(kind, match=message):
        rotary_embedding_qk(Q + 0 if case == "a number" else Q, K, *quarter, out=out, **more)
    for t in (Q, K, *(out if isinstance(out, tuple) else ())):
        assert not isinstance(t, torch.Tensor) or not t.any()


def test_buffers_over_each_other_are_refused():
    memory = torch.zeros(1, 5, 3, 8)
    quarter = torch.zeros(3, 4), torch.ones(3, 4)
    with pytest.raises(ValueError, match=r"out\[0\] and out\[1\] share places"):
        rotary_embedding_qk(Q + 1, K + 1, *quarter, out=(memory[:, :4], memory[:, 3:]))
    assert not memory.any()
    rotary_embedding_qk(Q + 1, K + 1, *quarter, out=(memory[:, :4], torch.zeros_like(K)))
    assert memory[:, :4].all()


def test_tables_of_any_stride_and_vectors_cut_out_of_others():
    """What torch calls contiguous may have steps that no complex number has."""
    transposed = [normal((32, LENGTH), seed, torch.float32).T for seed in (1, 2)]
    whole = normal((BATCH, 4, LENGTH, 64), 3, torch.float32)
    token = normal((3, 2, 1, 33), 4, torch.float32)[:1, :1, :, :32]
    assert token.is_contiguous() and token.stride(1) % 2
    for interleaved in (False, True):
        for x, (cos, sin) in (
            (whole, transposed),
            (whole.double(), transposed),
            (whole.bfloat16(), transposed),
            (token, [t[:1, :16] for t in transposed]),
            (whole[:0, ..., ::2], [t[:, :16] for t in transposed]),
            (whole[:0, ..., 1:33], [t[:, :16] for t in transposed]),
        ):
            made = rotary_embedding(x, cos, sin, interleaved=interleaved)
            assert torch.equal(made, expected(x, cos, sin, interleaved))


def test_fewer_threads_than_asked_for_change_no_bit():
    code = (
        "import torch; from rope import rotary_embedding; from rope._formula import formula\n"
        "torch.set_num_threads(5)\n"
        "x, c, s = torch.randn(1, 1, 10245, 32), torch.randn(10245, 16), torch.randn(10245, 16)\n"
        "made = rotary_embedding(x, c, s, interleaved=True)\n"
        "assert torch.equal(made, formula(x, c[None, None], s[None, None], True))"
    )
    limited = {**os.environ, "OMP_THREAD_LIMIT": "4"}
    subprocess.run([sys.executable, "-c", code], env=limited, check=True)


def test_queries_that_lie_over_themselves_and_other_sizes_of_number_are_refused():
    far = 60
    memory = torch.ones(4 * far + 4)
    q = memory.as_strided((1, 2, far, 2), (10 * far, 2, 2, 1))
    over = memory.as_strided((1, 1, far, 2), (10 * far, 2, 2, 1), 2 * far)
    tables = torch.ones(far, 1), torch.ones(far, 1)
    with pytest.raises(ValueError, match=r"q and out\[1\] share places"):
        rotary_embedding_qk(q, over.clone(), *tables, out=(torch.empty(q.shape), over))
    memory = torch.zeros(256, dtype=torch.uint8)
    q = memory.view(torch.float32).as_strided((1, 1, 3, 2), (32, 32, 8, 1))
    k = memory.view(torch.float64).as_strided((1, 1, 3, 2), (32, 32, 8, 1), 3)
    with pytest.raises(ValueError, match="share places"):
        rotary_embedding_qk(q, k, tables[0][:3], tables[1][:3], inplace=True)


def test_a_buffer_gets_no_history_from_learned_tables():
    x, cos = normal((1, 2, 4, 8), 1, torch.float32), torch.ones(4, 4, requires_grad=True)
    out = torch.empty_like(x), torch.empty_like(x)
    rotary_embedding(x, cos, cos.detach(), out=out[0])
    rotary_embedding_qk(x, x, cos, cos.detach(), out=out)
    assert not out[0].requires_grad and not out[1].requires_grad


def test_a_refused_call_leaves_autograd_alone():
    q = normal((1, 2, 4, 8), 1, torch.float32).requires_grad_().exp()
    k, cos = torch.randn(1, 1, 4, 8).expand(1, 2, 4, 8), torch.ones(4, 4)
    for call in (
        lambda: rotary_embedding_qk(q, k, cos, cos, inplace=True),
        lambda: rotary_embedding_qk(q.detach(), k, cos, cos, out=(q.detach(), k)),
    ):
        with pytest.raises(ValueError, match="place"):
            call()
    assert q._version == 0
    q.sum().backward()


def test_fake_buffers_are_filled_with_nothing():
    with torch._subclasses.FakeTensorMode():
        x, cos = torch.ones(1, 4, 8, 32), torch.ones(8, 16)
        assert rotary_embedding(x, cos, cos, out=torch.empty_like(x)).shape == x.shape
