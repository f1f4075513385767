"""Theta through what frameworks do to a model: loading, casting, threads, meta, a failed move."""

import threading

import pytest
import torch
from strategies import normal
from torch import nn

from rope.axes import MultiAxisRotaryEmbedding, grid_positions
from rope.extensions import YaRN

DIM, IDS = 8, grid_positions(2, 3)
X = normal((1, 2, 6, DIM), 0, torch.float32)


def made(device=None):
    return MultiAxisRotaryEmbedding.axial(DIM, device=device)


EXPECTED, THETA = made().rotate(X, IDS), made().frequencies


def test_it_is_no_buffer_and_says_what_it_is():
    rotary = made()
    assert not [*rotary.buffers(), *rotary.parameters(), *rotary.state_dict()]
    assert (rotary.dim, rotary.axes) == (8, 2)
    assert repr(rotary) == "MultiAxisRotaryEmbedding(axes=2, dim=8, interleaved=False)"
    yarn = MultiAxisRotaryEmbedding.mrope(DIM, (2, 1, 1), extension=YaRN(4.0, 64))
    assert (yarn.dim, yarn.axes) == (8, 3)
    assert repr(yarn).endswith("interleaved=False, attention_scaling=1.13863)")
    with pytest.raises(AttributeError):
        rotary.frequencies = THETA.float()


@pytest.mark.parametrize("dtype", [None, torch.bfloat16])
def test_from_pretrained_leaves_theta_alone(dtype, tmp_path):
    """It builds on meta and writes each buffer that no file holds over with torch.empty_like."""
    transformers = pytest.importorskip("transformers")

    class Config(transformers.PreTrainedConfig):
        model_type = "turning"

    class Model(transformers.PreTrainedModel):
        config_class = Config

        def __init__(self, config):
            super().__init__(config)
            self.linear, self.rotary = nn.Linear(DIM, DIM), made()
            self.post_init()

        def forward(self, x):
            return self.rotary.rotate(self.linear(x), IDS)

    model = Model(Config())
    model.save_pretrained(tmp_path)
    junk = [torch.full((2, 4), 7.0, dtype=torch.float64) for _ in range(50)]
    del junk  # so that uninitialised memory holds sevens
    loaded = Model.from_pretrained(tmp_path, dtype=dtype or torch.float32)
    assert torch.equal(loaded.rotary.rotate(X, IDS), EXPECTED)
    assert torch.equal(loaded.rotary.frequencies, THETA)
    assert loaded(X.to(dtype)).dtype == (dtype or torch.float32)


def test_a_cast_in_one_thread_does_not_reach_a_rotation_in_another():
    rotary, stop, wrong = made(), threading.Event(), []

    def cast():
        while not stop.is_set():
            rotary.to(torch.bfloat16)

    def turn():
        try:
            for _ in range(500):
                if not torch.equal(rotary.rotate(X, IDS), EXPECTED):
                    wrong.append("another rotation")
        except Exception as error:
            wrong.append(error)
        stop.set()

    threads = [threading.Thread(target=work) for work in (cast, turn)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_move_that_fails_leaves_it_as_it_was():
    def fail(tensor):
        raise RuntimeError("out of memory")

    rotary = made()
    with pytest.raises(RuntimeError, match="out of memory"):
        rotary._apply(fail)
    assert torch.equal(rotary.frequencies, THETA)
    rotary._apply(lambda tensor: torch.full_like(tensor, 7).bfloat16())
    assert torch.equal(rotary.frequencies, THETA)


def test_a_call_on_meta_has_its_shape_and_leaves_nothing_behind():
    rotary = made()
    out = rotary.rotate(X.to("meta"), IDS.to("meta"))
    assert out.is_meta and out.shape == X.shape
    assert torch.equal(rotary.frequencies, THETA)
    built = made("meta")
    assert built.frequencies.is_meta
    assert torch.equal(built.rotate(X, IDS), EXPECTED)  # it follows the queries, and stays
    assert torch.equal(built.frequencies, THETA)


def test_what_a_transform_or_a_tracer_made_does_not_outlive_it():
    def grad(rotary):
        torch.func.grad(lambda x: rotary.rotate(x, IDS).sum())(X)

    def functionalize(rotary):
        torch.func.functionalize(lambda x: rotary.rotate(x, IDS))(X)

    def fake(rotary):
        mode = pytest.importorskip("torch._subclasses.fake_tensor").FakeTensorMode
        with mode(allow_non_fake_inputs=True):
            rotary.rotate(torch.ones(1, 2, 6, DIM), grid_positions(2, 3))

    for within in (grad, functionalize, fake):
        rotary = made("meta")
        within(rotary)
        assert torch.equal(rotary.rotate(X, IDS), EXPECTED)


@pytest.mark.parametrize("strict", [False, True])
def test_exports(strict):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.rotary = made()

        def forward(self, x, ids):
            return self.rotary.rotate(x, ids)

    program = torch.export.export(Model(), (X, IDS), strict=strict)
    assert torch.equal(program.module()(X, IDS), EXPECTED)
    assert not program.state_dict
