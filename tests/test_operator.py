"""Test the operator `rope::rotate`: its gradient, its calls, and the report of its kernel."""

import inspect
import itertools
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from strategies import Recorder, normal, tables
from test_kernels import with_loop

import rope
from rope import RotaryEmbedding, kernels, rotary_embedding
from rope.extensions import YaRN
from rope.kernels.formula import formula, rows_of

PACKAGE = Path(rope.__file__).parent
COMPILER = shutil.which("cc")
ROWS = 40


@pytest.mark.parametrize("inplace", [False, True])
@pytest.mark.parametrize("extension", [None, YaRN(4.0, 16)], ids=str)
def test_the_layer_calls_the_operator_once(extension, inplace):
    rotary = RotaryEmbedding(8, 64, extension=extension)
    q, k = normal((2, 5, 6, 8), 0, torch.float32), normal((2, 2, 6, 8), 0, torch.float32)
    for where in ({}, {"offset": 9}, {"position_ids": torch.arange(12).view(2, 6)}):
        with Recorder() as recorder:
            rotary(q, k, **where, inplace=inplace)
        assert recorder.operators() == ["rope.rotate_" if inplace else "rope.rotate_only"]


def operands(dtype=torch.float64):
    return normal((2, 3, 5, 12), 1, dtype), normal((2, 2, 5, 12), 2, dtype)


FORMS = {
    "ids of each": (*tables(ROWS, 8), torch.tensor([[4, 0, 39, 7, 7], [1, 2, 3, 4, 0]])),
    "ids of all": (*tables(ROWS, 8), torch.tensor([4, 0, 39, 7, 7])),
    "four axes": (*(t[None, None] for t in tables(5, 8)), None),
    "rows": (*tables(5, 8), None),
}


@pytest.mark.parametrize("form", ["ids of each", "four axes"])
def test_opcheck(form):
    given = FORMS[form]
    q, k = operands()
    torch.library.opcheck(torch.ops.rope.rotate_, (q.clone(), k.clone(), *given, True, False))
    torch.library.opcheck(torch.ops.rope.rotate, (q, k[:, :0], *given, True, True))
    q, k = (x.requires_grad_() for x in (q, k))
    torch.library.opcheck(torch.ops.rope.rotate, (q, k, *given, False, False))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("inverse", [False, True])
def test_the_gradient_of_the_operator_is_its_inverse(form, interleaved, inverse):
    given = FORMS[form]
    q, k = (x.requires_grad_() for x in operands())
    upstream = operands(torch.float64)

    def rotate(q, k, inverse=inverse):
        return torch.ops.rope.rotate(q, k, *given, interleaved, inverse)

    found = torch.autograd.grad(rotate(q, k), (q, k), upstream)
    assert all(map(torch.equal, found, rotate(*upstream, not inverse)))
    # Also check the gradient of q alone, and the gradient of a gradient.
    (half,) = torch.autograd.grad(rotate(q, k)[0].pow(3).sum(), q, create_graph=True)
    (second,) = torch.autograd.grad(half.pow(2).sum(), q)
    x = q.detach().clone().requires_grad_()
    cos, sin, ids = given
    cos, sin = (cos, sin) if ids is None else rows_of(cos, sin, ids)
    plain = formula(x, cos, -sin if inverse else sin, interleaved)
    (first,) = torch.autograd.grad(plain.pow(3).sum(), x, create_graph=True)
    (expected,) = torch.autograd.grad(first.pow(2).sum(), x)
    torch.testing.assert_close(half, first)
    torch.testing.assert_close(second, expected)


def test_explain_says_which_kernel_runs():
    x, rows = normal((1, 2, 6, 8), 1, torch.float32), tables(6, 8, torch.float32)
    right, usual = rotary_embedding(x, *rows), kernels.explain()
    assert "the loop in C" in usual
    with kernels.disabled():
        with pytest.raises(KeyError), kernels.disabled():  # nested blocks are counted
            raise KeyError
        assert "disabled() block is active" in kernels.explain(torch.device("cpu:0"))
        with Recorder() as recorder:
            assert torch.equal(rotary_embedding(x, *rows), right)
        assert not recorder.operators()
    assert kernels.explain() == usual
    assert "no kernel exists" in kernels.explain("mps")
    assert "Triton" in kernels.explain("cuda")


@pytest.fixture
def tree(tmp_path):
    """Copy the files that install the package, without the compiled loop."""
    ignored = shutil.ignore_patterns("__pycache__", "*.so", "*.pyd", "recorded", "book")
    shutil.copytree(PACKAGE, tmp_path / "rope", ignore=ignored)
    for name in ("setup.py", "pyproject.toml", "README.md"):
        shutil.copy(PACKAGE.parent / name, tmp_path)
    return tmp_path


def run(tree, *words, **environment):
    """Run Python in the tree, because another version of the loop needs another process."""
    environment |= {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": str(tree)}
    command, env = [sys.executable, *words], os.environ | environment
    done = subprocess.run(command, cwd=tree, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def build(tree, **environment):
    run(tree, "setup.py", "-q", "build_ext", "--inplace", "--force", **environment)


ALONE = """
import os, sys, torch, rope.kernels
from pathlib import Path
q, k = torch.ones(1, 1, 1, 2).requires_grad_(), torch.ones(1, 0, 1, 2)
sin = torch.ones(1, 1)
torch.ops.rope.rotate(q, k, 0 * sin, sin, None, False, False)[0][..., 0].backward()
assert q.grad.flatten().tolist() == [0, -1]
assert "rope.module" not in sys.modules
"""
CHECK = """
import rope
from rope.kernels import cpu, explain
from rope.kernels.formula import formula
assert Path(rope.__file__).is_relative_to(Path.cwd())
TABLES = rope.rotary_tables(999, torch.rand(32).double())
LOADED = Path("rope/kernels/rotate.abi3.so")
def check(*words):
    cpu.library.cache_clear()
    assert all(word in explain() for word in words), explain()
    for dtype in (torch.float32, torch.bfloat16):
        x, cos, sin = torch.randn(1, 4, 999, 72).to(dtype), *TABLES
        for interleaved in (False, True):
            out = rope.rotary_embedding(x, cos, sin, interleaved=interleaved)
            assert torch.equal(out, formula(x, cos, sin, interleaved))
            flags = {"interleaved": interleaved, "inplace": True}
            assert rope.rotary_embedding(x.clone(), cos, sin, **flags).equal(out)
    assert torch.tensor(1e-40) * 1 > 0
"""
WITHOUT = """
check("it was not built in", str(Path.cwd()), "C compiler", "--force-reinstall", "install -e")
LOADED.write_text("no library")
check("does not load", "C compiler")
if Path("older.so").exists():
    os.replace("older.so", LOADED)
    check("another version of its source", "C compiler")
"""
BUILT = """
check("the loop in C rotates", str(Path.cwd()))

import multiprocessing
torch.set_num_threads(2)
x, tables = torch.randn(1, 8, 512, 64), rope.rotary_tables(512, torch.rand(32).double())
right = rope.rotary_embedding(x, *tables)
def child():
    torch.set_num_threads(1)  # as the workers of a DataLoader do
    assert rope.rotary_embedding(x, *tables).equal(right)
process = multiprocessing.get_context("fork").Process(target=child)
process.start()
process.join(300)  # if it hangs, it hangs forever
ended = process.exitcode
process.kill()
assert ended == 0, ended
"""


def test_without_the_loop_the_bits_are_the_same_and_it_says_so(tree):
    """Check a loop that isn't built, can't be loaded, or comes from another version of its source.

    The other version's arguments have a different size, so the loop must not be called. The
    gradient must work if only the kernels are imported.
    """
    build(tree, CC="false", LDSHARED="false")
    assert not list(tree.rglob("*.so"))
    if COMPILER:
        source = tree / "rope/kernels/rotate.c"
        text = source.read_text(encoding="utf-8")
        text = text.replace("int64_t dtype, interleaved,", "int64_t one_more, dtype, interleaved,")
        source.write_text(text, encoding="utf-8")
        build(tree, CFLAGS="-O0")
        (tree / "rope/kernels/rotate.abi3.so").rename(tree / "older.so")
    run(tree, "-W", "error", "-c", ALONE + CHECK + WITHOUT)


@with_loop
@pytest.mark.skipif(not COMPILER, reason="no C compiler was found; Debian: apt-get install gcc")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_the_loop_is_exact_whatever_the_compiler_is_told_and_survives_a_fork(tree):
    """Check compiler flags and a fork, which lacks the threads that GNU's OpenMP would wait for."""
    build(tree, CFLAGS="-ffast-math -march=native")
    run(tree, "-c", ALONE + CHECK + BUILT)


@with_loop
@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("where", ["nowhere", "offset", "offsets", "position_ids"])
def test_a_call_is_short(where, grad):
    """Check that a call runs at most 26 of our functions in at most 8 files.

    It may return to an outer function and go on there at most 4 times, so that readers can follow.
    """
    rotary = RotaryEmbedding(128)
    q, k = torch.ones(1, 32, 9, 128, requires_grad=grad), torch.ones(1, 8, 9, 128)
    given = {
        "nowhere": {},
        "offset": {"offset": 5},
        "offsets": {"offset": torch.tensor([5])},
        "position_ids": {"position_ids": torch.arange(5, 14)[None]},
    }[where]
    rotary(q, k, **given)
    calls, depths = [], []

    def count(frame, event, _):
        if event == "call" and frame.f_code.co_filename.startswith(str(PACKAGE)):
            calls.append(frame.f_code.co_filename)
            depths.append(len(inspect.stack(0)))

    sys.setprofile(count)
    try:
        rotary(q, k, **given)
    finally:
        sys.setprofile(None)
    assert 3 <= len(calls) <= 26 + 8 * grad and len(set(calls)) <= 8, calls
    climbs = sum(after < before for before, after in itertools.pairwise(depths))
    assert climbs <= 4 + 2 * grad, calls


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_cuda_graph_replays_it():
    rotary = RotaryEmbedding(12, 64, device="cuda")
    q, k = (x.cuda() for x in operands(torch.float32))
    ids = torch.arange(5, device="cuda")
    rotary(q, k, ids, seq_len=64)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = rotary(q, k, ids, seq_len=64)
    ids.add_(10)
    graph.replay()
    assert all(map(torch.equal, out, rotary(q, k, ids, seq_len=64)))
