import copy
import pickle

import numpy as np
import pytest
import torch
from strategies import normal
from torch import nn

from rope import RotaryEmbedding, inverse_frequencies, rotary_embedding, rotary_tables


def exact(rows=16, dim=8):
    return rotary_tables(rows, inverse_frequencies(dim))


def assert_exact(rotary, rows=16, dim=8):
    for table, expected in zip((rotary.cos, rotary.sin), exact(rows, dim), strict=True):
        assert table.dtype == torch.float32
        assert torch.equal(table, expected)
    assert torch.equal(rotary.inv_freq, inverse_frequencies(dim))


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize(
    "ids", [None, torch.tensor([3, 9, 9]), torch.tensor([[0, 1, 2], [7, 5, 3]])]
)
def test_forward_is_the_operation_on_both(interleaved, ids):
    rotary = RotaryEmbedding(8, 16, interleaved=interleaved)
    q, k = normal((2, 4, 3, 10), 0, torch.float32), normal((2, 2, 3, 10), 1, torch.bfloat16)
    where = torch.arange(3) if ids is None else ids
    for out, x in zip(rotary(q, k, ids), (q, k), strict=True):
        assert out.dtype == x.dtype
        assert torch.equal(out, rotary_embedding(x, *exact(), where, interleaved=interleaved))


@pytest.mark.parametrize(
    "ids", [None, torch.tensor([3, 9, 9]), torch.tensor([[0, 1, 2], [7, 5, 3]])]
)
def test_float64_vectors_get_float64_tables(ids):
    rotary = RotaryEmbedding(8, 16)
    q, k = normal((2, 4, 3, 10), 0), normal((2, 2, 3, 10), 1, torch.float32)
    where = torch.arange(3) if ids is None else ids
    wide = rotary_tables(16, inverse_frequencies(8), dtype=torch.float64)
    assert torch.equal(rotary(q, k, ids)[0], rotary_embedding(q, *wide, where))
    assert torch.equal(rotary(q, k, ids)[1], rotary_embedding(k, *exact(), where))
    assert torch.equal(rotary(k, q, ids)[1], rotary_embedding(q, *wide, where))
    assert_exact(rotary)


def test_the_base_is_that_of_the_tables():
    rotary = RotaryEmbedding(8, 4, base=100.0)
    rotary.grow(16)
    assert torch.equal(rotary.inv_freq, inverse_frequencies(8, 100.0))
    for table, expected in zip(
        (rotary.cos, rotary.sin), rotary_tables(16, inverse_frequencies(8, 100.0)), strict=True
    ):
        assert torch.equal(table, expected)


@pytest.mark.parametrize(
    "change",
    [
        lambda model: model.to(torch.bfloat16),
        lambda model: model.half(),
        lambda model: model.double(),
        lambda model: model.bfloat16().float(),
        lambda model: model.to("cpu", torch.float16),
        lambda model: model.to("meta").to_empty(device="cpu"),
        lambda model: model.to_empty(device="cpu"),
        copy.deepcopy,
        lambda model: pickle.loads(pickle.dumps(model)),
        lambda model: model.share_memory(),
        lambda model: model.requires_grad_(False).eval(),
    ],
)
def test_tables_survive(change):
    model = change(nn.Sequential(nn.Linear(2, 2), RotaryEmbedding(8, 16)))
    assert_exact(model[1])
    assert not model[1].cos.requires_grad


def test_tables_follow_the_device():
    rotary = RotaryEmbedding(8, 16).to("meta")
    assert rotary.cos.is_meta
    assert rotary.sin.is_meta
    assert rotary.inv_freq.is_meta


def test_built_on_meta():
    with torch.device("meta"):
        model = nn.Sequential(nn.Linear(2, 2), RotaryEmbedding(8, 16))
    assert model[1].cos.is_meta
    assert_exact(model.to_empty(device="cpu")[1])
    assigned = RotaryEmbedding(8, 16, device="meta")
    assigned.load_state_dict({}, assign=True)
    x = normal((1, 1, 3, 8), 0, torch.float32)
    assert torch.equal(assigned(x, x)[0], RotaryEmbedding(8, 16)(x, x)[0])
    assert_exact(assigned)


def test_meta_queries_leave_real_tables_where_they_are():
    rotary, x = RotaryEmbedding(8, 4), torch.ones(1, 1, 9, 8, device="meta")
    assert rotary(x, x)[0].is_meta
    assert_exact(rotary)


def test_state_dict_holds_nothing_of_ours():
    model = nn.Sequential(nn.Linear(2, 2), RotaryEmbedding(8, 16))
    assert set(model.state_dict()) == {"0.weight", "0.bias"}
    longer = nn.Sequential(nn.Linear(2, 2), RotaryEmbedding(8, 64))
    longer.load_state_dict(model.state_dict())
    assert_exact(longer[1], rows=64)


def test_grows_on_demand_and_never_shrinks():
    rotary, x = RotaryEmbedding(8, 10).half(), torch.zeros(1, 1, 11, 8)
    assert_exact(rotary, rows=10)
    rotary(x[:, :, :10], x[:, :, :10])
    assert_exact(rotary, rows=10)
    rotary(x, x)
    assert_exact(rotary, rows=16)
    rotary(x[:, :, :1], x[:, :, :1], torch.tensor([100]))
    assert_exact(rotary, rows=128)
    rotary.grow(128)
    rotary(x, x)
    assert_exact(rotary, rows=128)


def test_growing_changes_no_row():
    rotary, x = RotaryEmbedding(8, 4), normal((1, 1, 4, 8), 0)
    before = rotary(x, x)[0]
    rotary.grow(5000)
    assert torch.equal(rotary(x, x)[0], before)


@pytest.mark.parametrize(
    "prepare",
    [
        lambda: RotaryEmbedding(8, 16),
        lambda: RotaryEmbedding(8, 4),  # grows
        lambda: RotaryEmbedding(8, 16, device="meta").to_empty(device="cpu"),
        lambda: RotaryEmbedding(8, 16, device="meta"),  # filled at the first call
    ],
)
def test_tables_met_in_inference_mode_can_be_trained_with(prepare):
    x = normal((1, 1, 9, 8), 0, torch.float32)
    with torch.inference_mode():
        rotary = prepare().half()
        rotary(x, x)
    x.requires_grad_()
    rotary(x, x)[0].sum().backward()
    assert_exact(rotary)


def test_lengths_of_numpy_and_of_export():
    rotary, x = RotaryEmbedding(8, 4), normal((1, 1, 3, 8), 0)
    rotary.grow(np.int64(9))
    assert_exact(rotary)
    length = torch.export.Dim("length", max=16)
    exported = torch.export.export(rotary, (x, x), dynamic_shapes=({2: length}, {2: length}))
    longer = normal((1, 1, 11, 8), 1)
    assert torch.equal(exported.module()(longer, longer)[0], rotary(longer, longer)[0])


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compiles_without_a_break(backend):
    torch.compiler.reset()
    rotary = RotaryEmbedding(8, 16)
    compiled = torch.compile(rotary, fullgraph=True, backend=backend)
    x = normal((2, 2, 3, 8), 0, torch.float32)
    for ids in (None, torch.tensor([1, 2, 15])):
        assert torch.equal(compiled(x, x, ids)[0], rotary(x, x, ids)[0])
        assert torch.equal(compiled(x.double(), x, ids)[0], rotary(x.double(), x, ids)[0])
    with pytest.raises(RuntimeError, match=r"within the rows of the tables"):
        compiled(x, x, torch.tensor([1, 2, 16]))
    with pytest.raises(RuntimeError, match="must be at least 0"):
        compiled(x.double(), x.double(), torch.tensor([1, 2, -1]))


def test_gradients_reach_both():
    q, k = (normal((1, 1, 3, 8), seed).requires_grad_() for seed in (0, 1))
    assert torch.autograd.gradcheck(RotaryEmbedding(8, 16), (q, k))


def test_repr():
    assert repr(RotaryEmbedding(8, 16)) == (
        "RotaryEmbedding(dim=8, rows=16, base=10000.0, interleaved=False)"
    )
