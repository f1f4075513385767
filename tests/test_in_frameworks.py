"""Test that compilers, exporters, tracers and wrappers give the same numbers and leave no trace.

torch.compile must need no graph break and no spurious recompilation. The tests also cover
torch.export, ONNX, fake tensors, make_fx, functionalization, hooks and checkpointing. Derivatives
are in `test_autograd`.
"""

import copy
import io
import pickle
import warnings

import pytest
import torch
from strategies import EXTENSIONS, TRAINED, normal, tables, tolerance
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils.checkpoint import checkpoint

from rope import RotaryEmbedding, rotary_embedding
from rope.extensions import YaRN

LENGTHS = (8, 2, 40)  # 2 equals the batch size; the compiler specializes 0 and 1


class Counter:
    """A backend that counts graphs: one per compilation, plus one per graph break."""

    def __init__(self):
        torch.compiler.reset()
        self.graphs = 0

    def __call__(self, graph, inputs):
        self.graphs += 1
        return graph

    def compile(self, f):
        return torch.compile(f, fullgraph=True, backend=self)


def graphs_of(rotary, calls, fresh=None):
    """Return the number of graphs for these calls; check that each gives the eager result."""
    counter = Counter()
    compiled = counter.compile(rotary)
    for x, options in calls:
        assert_same(compiled(*x, **options), (fresh or rotary)(*x, **options))
    return counter.graphs


def pair(length, dtype=torch.float32, batch=2):
    return normal((batch, 3, length, 10), length, dtype), normal((batch, 2, length, 10), 1, dtype)


def assert_same(actual, expected):
    for a, b in zip(actual, expected, strict=True):
        assert torch.equal(a, b)


def make(name, rows=256, **options):
    return RotaryEmbedding(8, rows, extension=EXTENSIONS[name], **options)


ROWS = torch.arange(80).view(2, 40).flip(1)
FIXED = {"seq_len": 200}
# Each case: the module, its calls (length, ids, options), and the most graphs they may need. That
# is one for the first call and one for all other lengths and offsets, per regime of an extension.
GRAPHS = {
    "counted": (
        make("none", interleaved=True),
        [(n, None, {"offset": 3 * n + 1, "seq_len": 200}) for n in LENGTHS],
        2,
    ),
    "ids": (make("none"), [(n, ROWS[0, :n], FIXED) for n in LENGTHS], 2),
    "decoding, scaled": (
        make("dynamic"),
        [(1, None, {"offset": n, **FIXED}) for n in (2, 3, 7, 40)],
        2,
    ),
    "dynamic, given": (make("dynamic"), [(8, None, {"seq_len": n}) for n in (20, 33, 64, 24)], 4),
    "longrope, given": (make("longrope"), [(8, None, {"seq_len": n}) for n in (20, 33, 64)], 4),
    "longrope, followed": (make("longrope"), [(n, None, {}) for n in (8, 9, 40)], 3),
    "too few rows": (make("none", rows=4), [(n, None, FIXED) for n in (8, 40)], 2),
}


@pytest.mark.parametrize(("rotary", "calls", "most"), GRAPHS.values(), ids=GRAPHS)
def test_few_graphs_give_what_eager_gives(rotary, calls, most):
    """Vary the length, the offset and the number of table rows."""
    calls = [((*pair(length), ids), options) for length, ids, options in calls]
    assert graphs_of(rotary, calls, fresh=copy.deepcopy(rotary)) <= most


@pytest.mark.parametrize(("name", "dtype"), [("none", torch.float64), ("yarn", torch.bfloat16)])
def test_other_dtypes(name, dtype):
    calls = [((*pair(n, dtype), ROWS[0, :n]), FIXED) for n in (8, 5)]
    assert graphs_of(make(name), calls) <= 2


@pytest.mark.parametrize(
    ("given", "interleaved", "inplace"),
    [("rows", False, False), ("ids", True, True), ("four axes", True, False)],
)
def test_functions(given, interleaved, inplace):
    counter = Counter()
    compiled = counter.compile(rotary_embedding)
    flags = {"interleaved": interleaved, "inplace": inplace}
    for length in LENGTHS:
        x = pair(length)[0].transpose(1, 2).contiguous().transpose(1, 2)
        cos, sin = tables(64, 8, torch.float32)
        arguments = (cos[:length], sin[:length])
        if given == "ids":
            arguments = (cos, sin, torch.arange(length).flip(0))
        elif given == "four axes":
            arguments = tuple(t.expand(2, 3, length, 4) for t in arguments)
        expected = rotary_embedding(x, *arguments, interleaved=interleaved)
        assert torch.equal(compiled(x, *arguments, **flags), expected)
        assert torch.equal(x, expected) == inplace
    assert counter.graphs <= 2


@pytest.mark.parametrize("inplace", [False, True])
def test_compiled_gradients_are_eager_ones(inplace):
    torch.compiler.reset()
    rotary = make("yarn")

    def loss(q, k):
        q, k = rotary(q * 1, k * 1, offset=5, inplace=inplace)
        return (q.square() * torch.arange(10)).sum() + k[..., 0].sum()

    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    inputs = [x.requires_grad_() for x in pair(4)]
    found, expected = (torch.autograd.grad(f(*inputs), inputs) for f in (compiled, loss))
    for a, b in zip(found, expected, strict=True):
        size = float(b.abs().max())
        torch.testing.assert_close(a, b, rtol=0, atol=tolerance(torch.float32, size, 8))


def test_a_bad_call_raises_when_compiled_too():
    torch.compiler.reset()
    q, k = pair(3)
    compiled = torch.compile(make("none", rows=16), backend="aot_eager")
    for options in (
        {"position_ids": torch.tensor([0, 1, 16])},
        {"offset": torch.tensor([14, 0])},
        {"offset": torch.tensor([0, -1])},
    ):
        with pytest.raises(RuntimeError, match="below 16"):
            compiled(q, k, **options)
    with pytest.raises(RuntimeError, match=r"position_ids.*0"):
        compiled(q.double(), k.double(), torch.tensor([0, 1, -1]))
    compiled = torch.compile(rotary_embedding, fullgraph=True, backend="eager")
    for outside in (9, -1):
        with pytest.raises(RuntimeError, match="below 9"):
            compiled(q, *tables(9, 8), torch.tensor([0, outside, 2]))


def test_compiled_code_asks_for_the_length_it_cannot_read():
    rotary, (q, k), ids = make("dynamic"), pair(3), torch.tensor([0, 40, 2])
    compiled = Counter().compile(rotary)
    assert_same(compiled(q, k, ids, seq_len=41), rotary(q, k, ids))
    # torch 2.6 reports that an exception was raised, but not which one.
    with pytest.raises(Exception, match=r"seq_len.*fix_length|Observed exception"):
        compiled(q, k, ids)
    rotary.fix_length(41)
    assert_same(compiled(q, k, ids), rotary(q, k, ids))


@pytest.mark.slow
def test_inductor():
    """Compare Inductor with eager; its C++ may fuse a product and a sum into one rounding."""
    torch.compiler.reset()
    rotary, (q, k) = make("yarn", interleaved=True), pair(40)
    compiled = torch.compile(rotary, fullgraph=True)
    try:
        outs = compiled(q, k, offset=3)
    except Exception as error:
        if "compiler" in str(error).lower():
            pytest.skip(f"Inductor found no C++ compiler: {error}")
        raise
    for a, b in zip(outs, rotary(q, k, offset=3), strict=True):
        size = float(b.abs().max()) * rotary.attention_scaling
        torch.testing.assert_close(a, b, rtol=0, atol=tolerance(torch.float32, size, 8))


class Block(nn.Module):
    """A module that uses both layouts, partial rotation, offsets and position ids."""

    def __init__(self):
        super().__init__()
        self.halves = RotaryEmbedding(8, 64, extension=YaRN(4.0, TRAINED))
        self.pairs = RotaryEmbedding(10, 64, interleaved=True)

    def forward(self, q, k, position_ids):
        q, k = self.halves(q, k, position_ids)
        q, k = self.pairs(q, k)
        return self.pairs.rotate(q, offset=3), self.halves.rotate(k, position_ids, inverse=True)


LENGTH = torch.export.Dim("length", min=2, max=48)
DYNAMIC = ({2: LENGTH}, {2: LENGTH}, {1: LENGTH})


def inputs(length):
    return *pair(length), torch.arange(2 * length).view(2, length).flip(1) % 50


def test_exported_with_a_dynamic_length():
    block = Block()
    program = torch.export.export(block, inputs(6), dynamic_shapes=DYNAMIC).module()
    for length in (2, 6, 48):
        assert_same(program(*inputs(length)), block(*inputs(length)))


@pytest.mark.filterwarnings("ignore")
def test_onnx_runs_to_the_same_numbers(tmp_path, capsys):
    pytest.importorskip("onnxscript")
    onnxruntime = pytest.importorskip("onnxruntime")
    block, path, names = Block(), tmp_path / "block.onnx", ["q", "k", "position_ids"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            block,
            inputs(6),
            path,
            dynamo=True,
            input_names=names,
            dynamic_shapes=DYNAMIC,
            verbose=False,
        )
    capsys.readouterr()
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    for size in (2, 6, 48):
        found = session.run(None, {n: x.numpy() for n, x in zip(names, inputs(size), strict=True)})
        for out, expected in zip(found, block(*inputs(size)), strict=True):
            # Each side computes three rotations, each with two products and a sum.
            atol = 2 * tolerance(torch.float32, float(expected.abs().max()) * 2, operations=9)
            torch.testing.assert_close(torch.from_numpy(out), expected, rtol=0, atol=atol)
    # ONNX drops the assertions, so position -1 selects the last row, as "Using rope" warns.
    given = {n: x.numpy() for n, x in zip(names, inputs(6), strict=True)}
    below, last = (
        session.run(None, given | {"position_ids": torch.full((2, 6), at).numpy()})
        for at in (-1, 63)
    )
    assert (below[0] == last[0]).all()


def test_vmap_and_compile_are_combined():
    rotary, many = make("none"), normal((4, 1, 2, 6, 10), 0)
    f = Counter().compile(torch.func.vmap(lambda x: rotary.rotate(x, offset=2)))
    assert_same(f(many), [rotary.rotate(x, offset=2) for x in many])


def grow_under_fake(rotary, x):
    with FakeTensorMode(allow_non_fake_inputs=True):
        rotary.rotate(torch.ones(x.shape))


GROW = {
    "fake": grow_under_fake,
    "make_fx": lambda rotary, x: make_fx(lambda x: rotary.rotate(x), tracing_mode="fake")(x),
    "grad": lambda rotary, x: torch.func.grad(lambda x: rotary.rotate(x).sum())(x),
    "jvp": lambda rotary, x: torch.func.jvp(rotary.rotate, (x,), (x,)),
    "functionalize": lambda rotary, x: torch.func.functionalize(rotary.rotate)(x),
}


@pytest.mark.parametrize("grow", GROW)
def test_growing_inside_a_tracer_or_transform_leaves_nothing_of_it(grow):
    rotary = make("none", rows=8)
    GROW[grow](rotary, torch.ones(1, 1, 20, 8))
    assert type(rotary.cos) is torch.Tensor
    torch.save(rotary, io.BytesIO())
    for same in (rotary, copy.deepcopy(rotary), pickle.loads(pickle.dumps(rotary))):
        rows = len(same.cos)
        assert_same((same.cos, same.sin), tables(rows, 8, torch.float32))
    x = normal((1, 1, 40, 8), 0, torch.float32)
    assert torch.equal(rotary.rotate(x), make("none").rotate(x))


def test_wrappers_and_hooks_see_an_ordinary_module():
    rotary, seen = make("yarn"), []
    rotary.register_forward_hook(lambda module, args, out: seen.append(len(out)))
    q, k = (x.requires_grad_() for x in pair(3))
    expected = rotary(q, k)
    assert seen == [2]
    assert_same(torch.func.functional_call(rotary, {}, (q, k)), expected)
    again = checkpoint(rotary, q, k, use_reentrant=False)
    assert_same(again, expected)
    gradients = [
        torch.autograd.grad(sum(x.pow(3).sum() for x in out), (q, k)) for out in (again, expected)
    ]
    assert_same(*gradients)
