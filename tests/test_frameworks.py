"""What loads, trains and traces models around the layer: none of it reaches the tables."""

import copy
import io
import pickle

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from rope import RotaryEmbedding
from rope.config import example
from rope.functional import rotary_embedding_
from tests.strategies import normal

DIM = 8


def tables():
    return RotaryEmbedding(DIM, 1024)


def assert_tables_right(rotary):
    rows = len(rotary.cos)
    assert torch.equal(rotary.cos, tables().cos[:rows])
    assert torch.equal(rotary.sin, tables().sin[:rows])


def test_the_tables_are_no_buffers():
    """FSDP casts buffers, DDP broadcasts them, both behind the module's back."""
    rotary = RotaryEmbedding(DIM)
    assert not list(rotary.buffers())
    assert not list(rotary.parameters())
    assert not rotary.state_dict()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_transformers_from_pretrained_does_not_write_over_them(tmp_path, dtype):
    """It gives each non-persistent buffer new memory, and leaves what is in there."""
    pytest.importorskip("transformers")
    from transformers import PretrainedConfig, PreTrainedModel

    class Config(PretrainedConfig):
        model_type = "rope_book_test"

    class Model(PreTrainedModel):
        config_class = Config

        def __init__(self, config):
            super().__init__(config)
            self.linear = nn.Linear(DIM, DIM)
            self.rotary = RotaryEmbedding(DIM, 16)
            self.post_init()

    Model(Config()).save_pretrained(tmp_path)
    model = Model.from_pretrained(tmp_path, dtype=dtype)
    assert model.linear.weight.dtype == dtype
    x = normal((1, 1, 12, DIM), 0, dtype)
    assert torch.equal(model.rotary.rotate(x), tables().rotate(x))
    assert_tables_right(model.rotary)


def test_averaging_a_model_whose_tables_have_grown():
    model = nn.Sequential(nn.Linear(2, 2), RotaryEmbedding(DIM, 8))
    average = torch.optim.swa_utils.AveragedModel(model)
    model[1].rotate(torch.ones(1, 1, 20, DIM))
    average.update_parameters(model)
    assert_tables_right(average.module[1])


def test_a_failing_move_leaves_the_tables_whole():
    model = nn.Sequential(RotaryEmbedding(DIM, 16), nn.Linear(2, 2))

    def fails(tensor):
        if tensor.dim() == 2:
            raise RuntimeError("no memory left")
        return tensor.bfloat16()

    with pytest.raises(RuntimeError, match="no memory left"):
        model._apply(fails)
    assert model[0].cos.dtype == model[0].sin.dtype == torch.float32
    assert_tables_right(model[0])


def grow_under_fake(rotary):
    with FakeTensorMode(allow_non_fake_inputs=True):
        rotary.rotate(torch.ones(1, 1, 20, DIM))


def grow_under_make_fx(rotary):
    make_fx(lambda x: rotary.rotate(x), tracing_mode="fake")(torch.ones(1, 1, 20, DIM))


def grow_under_grad(rotary):
    torch.func.grad(lambda x: rotary.rotate(x).sum())(torch.ones(1, 1, 20, DIM))


def grow_under_jvp(rotary):
    x = torch.ones(1, 1, 20, DIM)
    torch.func.jvp(rotary.rotate, (x,), (x,))


def grow_under_functionalize(rotary):
    torch.func.functionalize(rotary.rotate)(torch.ones(1, 1, 20, DIM))


@pytest.mark.parametrize(
    "grow",
    [
        grow_under_fake,
        grow_under_make_fx,
        grow_under_grad,
        grow_under_jvp,
        grow_under_functionalize,
    ],
)
def test_growing_inside_a_tracer_or_transform_leaves_nothing_of_it(grow):
    rotary = RotaryEmbedding(DIM, 8)
    grow(rotary)
    assert type(rotary.cos) is torch.Tensor
    assert_tables_right(rotary)
    assert_tables_right(copy.deepcopy(rotary))
    assert_tables_right(pickle.loads(pickle.dumps(rotary)))
    torch.save(rotary, io.BytesIO())
    x = normal((1, 1, 40, DIM), 0, torch.float32)
    assert torch.equal(rotary.rotate(x), tables().rotate(x))


@pytest.mark.parametrize("in_dims", [(0, 0), (None, 0)])
def test_vmap_over_position_ids(in_dims):
    rotary, x = RotaryEmbedding(DIM, 4), normal((3, 1, 2, 5, DIM), 0, torch.float32)
    ids = torch.randint(0, 60, (3, 5), generator=torch.Generator().manual_seed(0))
    given = x if in_dims[0] == 0 else x[0]
    mapped = torch.func.vmap(rotary.rotate, in_dims=in_dims)(given, ids)
    for i in range(3):
        assert torch.equal(mapped[i], tables().rotate(x[i] if in_dims[0] == 0 else x[0], ids[i]))
    with pytest.raises(ValueError, match="holds -1"):
        torch.func.vmap(rotary.rotate)(x, ids - 1 - ids.min())


@pytest.mark.parametrize("far", [2**20, 2**30, 2**40])
def test_one_far_position_costs_its_row_alone(far):
    """A table of all rows up to there would take gigabytes."""
    rotary, x = RotaryEmbedding(DIM, 16), normal((1, 1, 1, DIM), 0, torch.float32)
    assert torch.isfinite(rotary.rotate(x, torch.tensor([far]))).all()
    assert torch.equal(rotary.rotate(x, offset=far), rotary.rotate(x, torch.tensor([far])))
    assert len(rotary.cos) == 16


def test_far_rows_are_those_a_longer_table_holds():
    near, long = RotaryEmbedding(DIM, 16), RotaryEmbedding(DIM, 2**18)
    x, ids = normal((1, 1, 3, DIM), 0, torch.float32), torch.tensor([0, 2**17, 2**18 - 1])
    assert torch.equal(near.rotate(x, ids), long.rotate(x, ids))
    assert (len(near.cos), len(long.cos)) == (16, 2**18)


OVERLAPS = {
    "one head": lambda b: (b[:, 0:2], b[:, 1:3]),
    "a later token of an earlier head": lambda b: (b[:, 0:2, 1:3], b[:, 1:3, 0:2]),
    "other strides": lambda b: (b[:, 0:2], b.transpose(2, 3)[:, 1:3]),
}
APART = {
    "heads": lambda b: (b[:, 0:2], b[:, 2:4]),
    "tokens": lambda b: (b[:, :, 0:1], b[:, :, 1:2]),
    "a packed projection": lambda b: (b[..., :2], b[..., 2:]),
}


@pytest.mark.parametrize("name", OVERLAPS)
def test_in_place_refuses_queries_and_keys_that_share_memory(name):
    buffer = normal((1, 4, 4, 4), 0, torch.float32)
    before = buffer.clone()
    q, k = OVERLAPS[name](buffer)
    with pytest.raises(ValueError, match="share places"):
        RotaryEmbedding(4)(q, k, inplace=True)
    assert torch.equal(buffer, before)


@pytest.mark.parametrize("name", APART)
def test_in_place_takes_parts_of_one_buffer(name):
    buffer = normal((1, 4, 4, 4), 0, torch.float32)
    q, k = APART[name](buffer)
    rotary = RotaryEmbedding(q.shape[-1])
    expected = rotary(q, k)
    rotary(q, k, inplace=True)
    assert torch.equal(q, expected[0])
    assert torch.equal(k, expected[1])


def leaf_view():
    return torch.ones(1, 1, 2, 4, requires_grad=True)[:, :, :2]


def chunk():
    return (torch.ones(1, 2, 2, 4, requires_grad=True) * 1).chunk(2, dim=1)[0]


def made_in_inference():
    with torch.inference_mode():
        return torch.ones(1, 1, 2, 4)


@pytest.mark.parametrize("make", [leaf_view, chunk, made_in_inference])
def test_what_torch_will_not_write_into_is_refused_before_q_is_turned(make):
    q, k = torch.ones(1, 1, 2, 4), make()
    with pytest.raises(RuntimeError):
        RotaryEmbedding(4)(q, k, inplace=True)
    assert torch.equal(q, torch.ones(1, 1, 2, 4))
    with pytest.raises(RuntimeError):
        rotary_embedding_(k, *(table[:2] for table in (tables().cos[:, :2], tables().sin[:, :2])))


def test_the_softmax_scale_of_a_configuration_is_on_the_layer():
    rotary = RotaryEmbedding.from_config(example("deepseek-v3"))
    assert rotary.softmax_scale == pytest.approx(1.8738, abs=1e-4)
    assert "softmax_scale=1.87" in repr(rotary)
    assert RotaryEmbedding.from_config(example("llama-3.1-8b")).softmax_scale == 1


def test_seq_len_grows_tables_that_compiled_code_then_need_not():
    rotary = RotaryEmbedding(DIM, 8)
    compiled = torch.compile(rotary, fullgraph=True, backend="eager")
    x, ids = normal((1, 1, 2, DIM), 0, torch.float32), torch.tensor([20, 3])
    assert torch.equal(compiled(x, x, ids, seq_len=32)[0], tables().rotate(x, ids))
