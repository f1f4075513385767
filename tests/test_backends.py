"""Which code turns the vectors, and that all of it gives the same: forced, chosen, compiled."""

import ast
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import rope
from rope import RotaryEmbedding, rotary_embedding, rotary_embedding_, rotary_embedding_qk
from rope._backend import backend_for
from rope._compiler import build, compiler
from rope._formula import formula
from rope.axes import MixedRotaryEmbedding, grid_positions
from rope.extensions import YaRN
from rope.kernels import BACKENDS, use_backend, why_not
from tests.strategies import normal

CPU = torch.device("cpu")
KERNELS = Path(rope.__file__).parent / "kernels"
TRITON_INTERPRETED = why_not("triton", CPU) is None
with_kernel = pytest.mark.skipif(not TRITON_INTERPRETED, reason="Triton's interpreter is not here")
COMPILER = " ".join(compiler() or ())
with_compiler = pytest.mark.skipif(compiler() is None, reason="there is no C compiler here")
DIM, ROWS = 8, 40


def tables():
    return rope.rotary_tables(ROWS, rope.inverse_frequencies(DIM))


def pair(dtype=torch.float32, length=5, storage="heads"):
    shape = (2, 3, length, DIM + 4) if storage == "heads" else (2, length, 3, DIM + 4)
    q, k = normal(shape, 1, dtype), normal(shape, 2, dtype)
    return (
        (q, k[:, :2]) if storage == "heads" else (q.mT.mT.transpose(1, 2), k.transpose(1, 2)[:, :2])
    )


def run(code, **environment):
    env = {**os.environ, **environment}
    return subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)


@with_kernel
@pytest.mark.parametrize("inplace", [False, True])
@pytest.mark.parametrize("inverse", [False, True])
@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("storage", ["heads", "tokens"])
@pytest.mark.parametrize("ids", [None, "all", "each"])
def test_the_kernel_gives_what_the_eager_path_gives(ids, storage, interleaved, inverse, inplace):
    q, k = pair(storage=storage)
    cos, sin = tables()
    positions = None if ids is None else torch.tensor([4, 0, 39, 7, 7])
    if ids == "each":
        positions = torch.stack((positions, positions.flip(0)))
    if ids is None:
        cos, sin = cos[:5], sin[:5]
    flags = {"interleaved": interleaved, "inverse": inverse, "inplace": inplace}
    expected = rotary_embedding_qk(q.clone(), k.clone(), cos, sin, positions, **flags)
    with use_backend("triton"):
        found = rotary_embedding_qk(q, k, cos, sin, positions, **flags)
    for x, y, given in zip(found, expected, (q, k), strict=True):
        assert torch.equal(x, y)
        assert x.stride() == given.stride() or given is k
        assert (x is given) is inplace


@with_kernel
@pytest.mark.parametrize("extension", [None, YaRN(4.0, 16)], ids=str)
def test_the_module_takes_the_kernel_with_one_launch(extension, monkeypatch):
    import rope.kernels.operator as operator

    launches = []
    real = operator.launch
    monkeypatch.setattr(operator, "launch", lambda *a, **k: (launches.append(1), real(*a, **k)))
    rotary, (q, k) = RotaryEmbedding(DIM, 16, extension=extension), pair()
    ids = torch.tensor([[3, 30, 2, 1, 0], [0, 1, 2, 3, 4]])
    for arguments in ({}, {"offset": 30}, {"position_ids": ids}):
        expected = rotary(q, k, **arguments)
        launches.clear()
        with use_backend("triton"):
            found = rotary(q, k, **arguments)
        assert len(launches) == 1
        assert all(map(torch.equal, found, expected))
        with use_backend("triton"):
            back = rotary(*found, **arguments, inverse=True)
        torch.testing.assert_close(back, (q, k), rtol=0, atol=16 * 2**-24)


@with_kernel
def test_gradients_of_the_kernel():
    """Also when autograd asks for the gradient of a gradient, and with half of it missing."""
    cos, sin = tables()
    ids = torch.tensor([4, 0, 39, 7, 7])
    weights = normal((2, 3, 5, DIM + 4), 9, torch.float32)

    def gradients(q, k):
        out, _ = rotary_embedding_qk(q, k, cos, sin, ids, interleaved=True)
        (first,) = torch.autograd.grad((out * weights).pow(2).sum(), q, create_graph=True)
        (second,) = torch.autograd.grad(first.pow(2).sum(), q)
        return first, second

    inputs = [x.requires_grad_() for x in pair()]
    expected = gradients(*inputs)
    with use_backend("triton"):
        found = gradients(*inputs)
    # One rounding of each of the two sums of squares apart, at most.
    torch.testing.assert_close(found, expected, rtol=8 * 2**-24, atol=8 * 2**-24)


@with_kernel
def test_backward_keeps_the_tables_alone():
    cos, sin = tables()
    q, k = (x.requires_grad_() for x in pair())
    for backend in ("eager", "triton"):
        kept = []

        def keep(tensor, kept=kept):
            kept.append(tensor.numel())
            return tensor

        hooks = torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor)
        with use_backend(backend), hooks:
            rotary_embedding_qk(q, k, cos[:5], sin[:5])
        assert 0 < sum(kept) <= 2 * (cos[:5].numel() + sin[:5].numel())


@with_kernel
def test_opcheck():
    from rope.kernels import operator  # noqa: F401, which registers the operators

    cos, sin = tables()
    ids = torch.tensor([[4, 0, 39, 7, 7]] * 2)
    q, k = pair()
    lined = cos[:5][None, None], sin[:5][None, None]
    for xs, rest in (
        ([q, k], (cos, sin, ids, False, False)),
        ([q.requires_grad_(), k.requires_grad_()], (cos, sin, ids[0], True, False)),
        ([q], (*lined, None, True, True)),
    ):
        torch.library.opcheck(torch.ops.rope.rotate, (xs, *rest))
    detached = [x.detach().clone() for x in (q, k)]
    torch.library.opcheck(torch.ops.rope.rotate_, (detached, cos, sin, ids, False, False))
    outs = [torch.empty_like(x) for x in detached]
    into = torch.ops.rope.rotate_into
    torch.library.opcheck(into, (detached, outs, cos, sin, ids, True, False))
    into(detached, outs, cos, sin, ids, True, False)
    assert all(map(torch.equal, outs, torch.ops.rope.rotate(detached, cos, sin, ids, True, False)))


@with_kernel
def test_compiled_code_calls_the_operator_and_stays_whole():
    torch._dynamo.reset()
    graphs = []

    def backend(graph, inputs):
        graphs.append([str(node.target) for node in graph.graph.nodes])
        return graph

    rotary = RotaryEmbedding(DIM, 64)
    with use_backend("triton"):
        compiled = torch.compile(rotary, fullgraph=True, backend=backend, dynamic=True)
        for length in (3, 7, 12):
            q, k = pair(length=length)
            assert all(map(torch.equal, compiled(q, k, offset=length), rotary(q, k, offset=length)))
    assert len(graphs) <= 2
    assert any("rope.rotate" in name for name in graphs[-1])


@with_kernel
def test_checkpointing_and_autocast():
    rotary = RotaryEmbedding(DIM, 64)
    q, k = (x.requires_grad_() for x in pair())
    with use_backend("triton"):
        plain = torch.autograd.grad(sum(x.pow(3).sum() for x in rotary(q, k)), (q, k))
        again = checkpoint(lambda q, k: rotary(q, k), q, k, use_reentrant=False)
        kept = torch.autograd.grad(sum(x.pow(3).sum() for x in again), (q, k))
        assert all(map(torch.equal, plain, kept))
        with torch.autocast("cpu", torch.bfloat16):
            assert all(map(torch.equal, rotary(q, k), RotaryEmbedding(DIM)(q, k)))


@with_kernel
def test_what_the_kernel_cannot_do_goes_by_the_formulas():
    cos, sin = tables()
    x = pair()[0]
    with use_backend("triton"):
        wide = rotary_embedding(x.double(), cos[:5], sin[:5])
        learned = cos[:5].clone().requires_grad_()
        rotary_embedding(x, learned, sin[:5]).sum().backward()
        mapped = torch.func.vmap(lambda v: rotary_embedding(v[None], cos[:5], sin[:5])[0])(x)
        _, tangent = torch.func.jvp(lambda v: rotary_embedding(v, cos[:5], sin[:5]), (x,), (x,))
        mixed = MixedRotaryEmbedding(8, num_heads=3)
        turned = mixed.rotate(x[:, :, :4], grid_positions(2, 2))
    assert wide.dtype == torch.float64
    assert learned.grad is not None
    plain = rotary_embedding(x, cos[:5], sin[:5])
    assert torch.equal(mapped, plain)
    assert torch.equal(tangent, plain)
    assert torch.equal(turned, mixed.rotate(x[:, :, :4], grid_positions(2, 2)))


@with_kernel
def test_out_and_in_place_with_gradients():
    cos, sin = (t[:5] for t in tables())
    x = pair()[0]
    expected = rotary_embedding(x, cos, sin)
    with use_backend("triton"):
        out = torch.full_like(x, float("nan"))
        assert rotary_embedding(x, cos, sin, out=out) is out
        assert torch.equal(out, expected)
        leaf = x.clone().requires_grad_()
        rotary_embedding_(leaf * 1, cos, sin).sum().backward()
    ones = rotary_embedding(torch.ones_like(x), cos, sin, inverse=True)
    torch.testing.assert_close(leaf.grad, ones)


@with_compiler
def test_compile_gives_the_bits_of_eager_and_counts_its_writing():
    cos, sin = (t[:6] for t in tables())
    x = normal((1, 2, 6, DIM + 4), 1, torch.float32)
    for interleaved in (False, True):
        with use_backend("eager"):
            expected = rotary_embedding(x, cos, sin, interleaved=interleaved)
        with use_backend("compile"):
            assert torch.equal(rotary_embedding(x, cos, sin, interleaved=interleaved), expected)
            inplace, out = x.clone(), torch.full_like(x, float("nan"))
            before = inplace._version, out._version
            rotary_embedding_(inplace, cos, sin, interleaved=interleaved)
            assert rotary_embedding(x, cos, sin, interleaved=interleaved, out=out) is out
        assert torch.equal(inplace, expected) and torch.equal(out, expected)
        assert inplace._version > before[0] and out._version > before[1]


SPECIAL = (
    0.0,
    -0.0,
    1.0,
    -1.0,
    3e-45,
    -1e-40,
    6e-8,
    6.1e-5,
    65519.0,
    65520.0,
    3e38,
    math.inf,
    math.nan,
)


@with_compiler
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("interleaved", [False, True])
def test_what_is_compiled_rounds_every_kind_of_number_as_torch_does(dtype, interleaved):
    """Zeros with their signs, the least numbers, ties, overflow, infinity and NaN."""
    edges = torch.tensor(SPECIAL, dtype=torch.float64)
    bits = torch.arange(2**16, dtype=torch.int32).to(torch.int16).view(torch.bfloat16)
    values = torch.cat((edges, bits.double(), normal((4107,), 2, torch.float64))).to(dtype)
    values = torch.cat((values, values.new_zeros(-len(values) % 64)))
    x = torch.cat((values, values.roll(7), values.flip(0))).view(1, 3, -1, 64)
    wide = torch.promote_types(dtype, torch.float32)
    length = x.shape[2]
    cos = torch.linspace(-1, 1, length * 32, dtype=wide).view(length, 32)
    sin = (1 - cos**2).sqrt()
    cos[:2], sin[:2] = torch.tensor([[1.0], [-0.0]]), torch.tensor([[0.0], [1.0]])
    with use_backend("compile"):
        found = rotary_embedding(x, cos, sin, interleaved=interleaved)
    with use_backend("eager"):
        expected = rotary_embedding(x, cos, sin, interleaved=interleaved)
    plain = formula(x, cos[None, None], sin[None, None], interleaved)
    for result in (found, expected):
        torch.testing.assert_close(result, plain, rtol=0, atol=0, equal_nan=True)
        numbers = ~plain.isnan()
        assert torch.equal(result[numbers].signbit(), plain[numbers].signbit())


@with_compiler
def test_what_is_compiled_turns_backwards_for_autograd_and_at_given_positions():
    cos, sin = tables()
    ids = torch.tensor([[3, 1, 4, 1, 5], [9, 2, 6, 5, 3]])
    x, grad = normal((2, 3, 5, DIM), 1, torch.float32), normal((2, 3, 5, DIM), 2, torch.float32)
    outs = {}
    for backend in ("eager", "compile"):
        leaf = x.clone().requires_grad_()
        with use_backend(backend):
            out = rotary_embedding(leaf, cos, sin, ids, interleaved=True)
            outs[backend] = out, *torch.autograd.grad(out, leaf, grad)
            outs[backend] += (rotary_embedding(x, cos, sin, ids, inverse=True),)
            with torch.inference_mode():
                made = x.clone()
                outs[backend] += (rotary_embedding_(made, cos, sin, ids),)
    assert all(map(torch.equal, outs["eager"], outs["compile"]))


@with_compiler
def test_what_is_compiled_uses_all_threads_for_large_tensors(monkeypatch):
    monkeypatch.setattr("rope._compiled._GRAIN", 1)
    cos, sin = (t[:7] for t in tables())
    x = normal((3, 5, 7, DIM), 1, torch.float32)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        with use_backend("compile"):
            found = rotary_embedding(x, cos, sin)
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(found, rotary_embedding(x, cos, sin))


def test_without_a_compiler_compile_is_refused_with_the_way_out(monkeypatch, tmp_path):
    monkeypatch.setattr("rope._compiled._built", [])
    monkeypatch.setenv("CC", "no-such-compiler")
    with use_backend("compile"), pytest.raises(RuntimeError, match="compile needs a C compiler"):
        rotary_embedding(torch.ones(1, 1, 1, 2), *(torch.ones(1, 1),) * 2)
    with pytest.raises(RuntimeError, match="there is no C compiler"):
        build(tmp_path / "absent.c")


@with_compiler
def test_a_compiler_that_fails_is_quoted(tmp_path):
    wrong = tmp_path / "wrong.c"
    wrong.write_text("int rotate( { return 0; }\n")
    with pytest.raises(RuntimeError, match=r"cannot build wrong\.c: .*wrong\.c:1"):
        build(wrong)


@pytest.mark.skipif(sys.platform == "win32", reason="the compiler that fails is a shell script")
def test_a_compiler_that_fails_leaves_queries_and_keys_as_they_were(tmp_path):
    """Those that have no rows too, which need no loop."""
    failing = tmp_path / "gcc"
    failing.write_text("#!/bin/sh\nexit 1\n")
    failing.chmod(0o755)
    code = (
        "import torch, rope\n"
        "q, k, c = torch.ones(1, 4, 32, 8).mT, torch.ones(1, 2, 8, 32), torch.full((8, 16), 0.5)\n"
        "try: rope.rotary_embedding_qk(q, k, c, c, inplace=True)\n"
        "except RuntimeError: print(bool((q == 1).all() and (k == 1).all()))"
    )
    done = run(code, CC=str(failing), ROPE_BACKEND="compile")
    assert done.stdout.split() == ["True"], done.stderr


@with_compiler
def test_a_compiler_that_warns_hangs_or_is_none_is_told_apart(monkeypatch, tmp_path):
    source = tmp_path / "one.c"
    source.write_text("int one(void) { return 1; }\n")

    def command(text):
        path = tmp_path / "compiler"
        path.write_text(text)
        path.chmod(0o755)
        monkeypatch.setenv("CC", str(path))

    command("#!/bin/sh\nprintf 'warning: \\377\\n' >&2\nexec " + COMPILER + ' "$@"\n')
    assert build(source).one() == 1
    command("#!/bin/sh\nsleep 5\n")
    monkeypatch.setattr("rope._compiler._SECONDS", 0.1)
    with pytest.raises(RuntimeError, match=r"it did not end within 0\.1 seconds"):
        build(source)
    command("no program at all")
    with pytest.raises(RuntimeError, match="it does not start"):
        build(source)
    monkeypatch.setenv("CC", f"{COMPILER} 'x")
    with pytest.raises(RuntimeError, match="there is no C compiler"):
        build(source)


@with_compiler
def test_a_failure_is_remembered_and_a_loop_that_is_built_stays(monkeypatch):
    x, rows = torch.ones(1, 1, 1, 2), torch.ones(1, 1)
    with use_backend("compile"):
        rotary_embedding(x, rows, rows)
        monkeypatch.setenv("CC", "no-such-compiler")
        rotary_embedding(x, rows, rows)  # nobody is asked again
        monkeypatch.delenv("CC")
        asked = []

        def failing(source):
            asked.append(source)
            raise RuntimeError("cc cannot build rotate.c: no space left")

        monkeypatch.setattr("rope._compiled._built", [])
        monkeypatch.setattr("rope._compiled._failed", [])
        monkeypatch.setattr("rope._compiled.build", failing)
        for _ in range(2):
            with pytest.raises(RuntimeError, match="no space left"):
                rotary_embedding(x, rows, rows)
    assert len(asked) == 1


@with_compiler
def test_fast_arithmetic_does_not_get_in():
    code = (
        "import torch, rope\n"
        "x = torch.ones(1, 1, 1, 2)\n"
        "rope.rotary_embedding(x, x[0, 0, :, :1], x[0, 0, :, :1])\n"
        "print(float(torch.tensor(1e-40) * 1) > 0)"
    )
    done = run(code, ROPE_BACKEND="compile", CC=f"{COMPILER} -ffast-math")
    assert done.stdout.split() == ["True"], done.stderr


@with_compiler
@pytest.mark.parametrize("backend", ["eager", "compile"])
def test_memory_that_is_not_what_it_seems_goes_by_the_formulas(backend):
    """Negated and zero tensors have no numbers of their own in memory."""
    cos, sin = (t[:5] for t in tables())
    x = normal((2, 3, 5, DIM), 1, torch.float32)
    lazy = torch.polar(torch.ones(5, DIM // 2), torch.full((5, DIM // 2), 0.7)).conj()
    nothing = torch._efficientzerotensor(5, DIM // 2)
    with use_backend(backend):
        turned = rotary_embedding(x, lazy.real, lazy.imag)
        assert torch.equal(turned, rotary_embedding(x, lazy.real, lazy.imag.resolve_neg()))
        assert torch.equal(rotary_embedding(x, cos, nothing), rotary_embedding(x, cos, sin * 0))
        out = torch._neg_view(torch.zeros_like(x))
        rotary_embedding(x, cos, sin, out=out)
        assert torch.equal(out, rotary_embedding(x, cos, sin))
        functional = torch._to_functional_tensor(cos.clone())
        made = rotary_embedding(x, functional, sin)
        made = torch._from_functional_tensor(made) if torch._is_functional_tensor(made) else made
        assert torch.equal(made, rotary_embedding(x, cos, sin))


@pytest.mark.parametrize("backend", ["eager", pytest.param("compile", marks=with_compiler)])
def test_results_are_no_views_whatever_the_storage(backend):
    """Autograd forbids to change in place what it takes for a view made where it did not look."""
    cos, sin = (t[:6] for t in tables())
    leaf = normal((2, 6, 3, DIM), 1, torch.float32).requires_grad_()
    weight = torch.ones((), requires_grad=True)
    with use_backend(backend):
        made = rotary_embedding((leaf * 1).transpose(1, 2), cos, sin)
        assert not made._is_view() and made.stride() == leaf.transpose(1, 2).stride()
        made.mul_(2)
        rotary_embedding_(made, cos, sin).sum().backward()
        with torch.no_grad():
            made = rotary_embedding(leaf.detach().transpose(1, 2), cos, sin)
        made.mul_(weight).sum().backward()
    assert leaf.grad is not None and weight.grad is not None


@with_compiler
def test_torch_compile_traces_through_whatever_is_forced():
    x, rows = normal((1, 2, 6, DIM), 1, torch.float32), [t[:6] for t in tables()]
    torch._dynamo.reset()
    with use_backend("compile"):
        compiled = torch.compile(rotary_embedding, fullgraph=True, backend="eager")
        assert torch.equal(compiled(x, *rows), rotary_embedding(x, *rows))


def test_another_default_device_changes_nothing():
    x = normal((2, 32, 80, 64), 1, torch.bfloat16)
    rows = rope.rotary_tables(80, rope.inverse_frequencies(64))
    expected = rotary_embedding(x, *rows)
    with torch.device("meta"), use_backend("eager"):
        assert torch.equal(rotary_embedding(x, *rows), expected)


def test_a_backend_is_forced_for_a_block_alone(monkeypatch):
    monkeypatch.setattr("rope._backend._no_compiler", lambda: None)
    assert BACKENDS == ("eager", "triton", "compile")
    assert backend_for(CPU) == "eager"
    with use_backend("compile"):
        assert backend_for(CPU) == "compile"
        with use_backend(None):
            assert backend_for(CPU) == "eager"
        assert backend_for(CPU) == "compile"
    assert backend_for(CPU) == "eager"
    with pytest.raises(KeyError), use_backend("compile"):
        raise KeyError
    assert backend_for(CPU) == "eager"


def test_an_unknown_backend_is_refused_by_name():
    with pytest.raises(ValueError, match="'cuda'; it must be one of eager, triton, compile"):
        use_backend("cuda").__enter__()
    result = run("import rope", ROPE_BACKEND="fast")
    assert "the backend is 'fast'; it must be one of eager, triton, compile" in result.stderr


def test_a_forced_backend_that_cannot_run_says_so():
    code = "import torch, rope; rope.RotaryEmbedding(4)(*2 * [torch.ones(1, 1, 1, 4)])"
    result = run(code, ROPE_BACKEND="triton", TRITON_INTERPRET="0")
    reason = "triton needs a GPU" if TRITON_INTERPRETED else "triton is not installed"
    assert f"RuntimeError: the backend is forced to triton, and {reason}" in result.stderr
    assert run(code, ROPE_BACKEND="eager").returncode == 0


def test_a_rotation_on_the_cpu_imports_no_triton():
    code = (
        "import sys, torch, rope\n"
        "before = 'triton' in sys.modules\n"
        "x = torch.ones(1, 1, 3, 4)\n"
        "rope.RotaryEmbedding(4)(x, x)\n"
        "print(before, 'triton' in sys.modules)"
    )
    assert run(code, TRITON_INTERPRET="0").stdout.split() == ["False", "False"]


def test_nothing_in_the_kernels_waits_for_the_device():
    """A read of a tensor's value would stop the host, and cannot be captured in a CUDA graph."""
    waits = {"item", "tolist", "cpu", "numpy", "nonzero", "any", "all", "synchronize", "contains"}
    for path in KERNELS.glob("*.py"):
        called = {
            node.func.attr
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
        }
        assert not called & waits, path


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_cuda_graph_replays_it():
    rotary = RotaryEmbedding(DIM, 64, device="cuda")
    q, k = (x.cuda() for x in pair())
    ids = torch.arange(5, device="cuda")
    rotary(q, k, ids, seq_len=64)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = rotary(q, k, ids, seq_len=64)
    ids.add_(10)
    graph.replay()
    expected = rotary(q, k, ids, seq_len=64)
    assert all(map(torch.equal, out, expected))


def awkward(dtype):
    """Plain, of other strides, expanded, at an odd offset, with gaps, and empty."""
    base = normal((2, 3, 6, DIM), 3, torch.float32).to(dtype)
    yield base
    yield base.transpose(1, 2).contiguous().transpose(1, 2)
    yield base[:1].expand(2, 3, 6, DIM)
    yield normal((2, 3, 6, DIM + 1), 4, torch.float32).to(dtype)[..., 1:]
    yield normal((2, 3, 6, 2 * DIM), 5, torch.float32).to(dtype)[..., ::2]
    yield base.mT.contiguous().mT
    yield base[:, :1].expand(2, 3, 6, DIM)[:, :1]
    yield from (base[:0], base[:, :0], base[:, :, :0])


@with_compiler
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("form", ["rows", "four axes", "by head and sequence", "float64"])
def test_what_is_compiled_is_eager_for_every_stride(dtype, interleaved, form):
    for x in awkward(dtype):
        cos, sin = (t[: x.shape[2]] for t in tables())
        if form == "four axes":
            cos, sin = (t[None, None].expand(*x.shape[:3], -1) for t in (cos, sin))
        elif form == "by head and sequence":
            scale = torch.arange(1.0, 1 + x.shape[0] * x.shape[1]).view(*x.shape[:2], 1, 1)
            cos, sin = (
                (t * scale).transpose(1, 2).contiguous().transpose(1, 2) for t in (cos, sin)
            )
        elif form == "float64":
            cos, sin = cos.double(), sin.double()
        with use_backend("eager"):
            expected = rotary_embedding(x, cos, sin, interleaved=interleaved)
        with use_backend("compile"):
            found = rotary_embedding(x, cos, sin, interleaved=interleaved)
            out = torch.full_like(expected, float("nan"))
            rotary_embedding(x, cos, sin, interleaved=interleaved, out=out)
            inplace = x.clone()
            rotary_embedding_(inplace, cos, sin, interleaved=interleaved)
        for result in (found, out, inplace):
            assert torch.equal(result, expected)


def test_compile_is_refused_on_a_gpu():
    assert "compile is for a CPU" in why_not("compile", torch.device("cuda"))
