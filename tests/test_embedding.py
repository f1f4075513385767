"""Test that `RotaryEmbedding` is exact for each length, whatever happens to the model.

The tests cover casts, devices, meta, autocast, copies, checkpoints and threads.
`test_in_frameworks` tests compilers and transforms, and `test_errors` tests bad calls.
"""

import copy
import io
import math
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from strategies import CHANGES, DTYPES, EXTENSIONS, TRAINED, normal, tolerance
from torch import nn

from rope import (
    RotaryEmbedding,
    inverse_frequencies,
    reference,
    rotary_embedding,
    rotary_tables,
)
from rope.config import example
from rope.kernels import disabled

DIM = 8
BOTH = (False, True)
extended = pytest.mark.parametrize("name", EXTENSIONS)
#: One spectrum, one spectrum per length, and two spectra with an attention factor.
some = pytest.mark.parametrize("name", ["none", "dynamic", "longrope"])


def make(name, rows=16, **options):
    return RotaryEmbedding(DIM, rows, extension=EXTENSIONS[name], **options)


def exact(name, positions, seq_len=None, dtype=torch.float32):
    """Return the tables at these positions by definition, with the spectrum for this length."""
    extension = EXTENSIONS[name]
    theta = inverse_frequencies(DIM, extension=extension, seq_len=seq_len)
    scale = 1.0 if extension is None else extension.attention_scaling
    return rotary_tables(positions, theta, dtype=dtype, scale=scale)


def expected(name, x, ids, seq_len, interleaved=False, wide=torch.float32):
    """Return x rotated with tables computed from the frequencies, without a module's state."""
    wide = torch.float64 if x.dtype == torch.float64 else wide
    tables = exact(name, ids.flatten(), seq_len, wide)
    if ids.dim() == 2:
        tables = [table.unflatten(0, ids.shape)[:, None] for table in tables]
    return rotary_embedding(x, *tables, interleaved=interleaved)


def assert_right(rotary, name, dtype=torch.float32):
    """Check calls within and beyond the trained length, with an offset and with ids."""
    for length, offset in ((5, 0), (50, 0), (3, TRAINED - 3), (3, TRAINED - 2), (1, 70), (7, 2)):
        q, k = normal((2, 3, length, 10), length, dtype), normal((2, 1, length, 10), 1, dtype)
        ids = torch.arange(offset, offset + length)
        for where in ({"offset": offset}, {"position_ids": ids}, {"position_ids": ids[None]}):
            for out, x in zip(rotary(q, k, **where), (q, k), strict=True):
                assert out.dtype == dtype
                assert torch.equal(out, expected(name, x, ids, offset + length))


def assert_exact(rotary, rows=16):
    for table, right in zip((rotary.cos, rotary.sin), exact("none", rows), strict=True):
        assert table.dtype == torch.float32 and not table.requires_grad
        assert torch.equal(table, right)
    assert torch.equal(rotary.inv_freq, inverse_frequencies(DIM))


IDS = [None, torch.tensor([3, 9, 9]), torch.tensor([[0, 1, 2], [7, 5, 3]])]


@pytest.mark.parametrize("interleaved", BOTH)
@pytest.mark.parametrize("ids", IDS, ids=["none", "of all", "of each"])
def test_the_layer_is_the_function_on_both(interleaved, ids):
    """Check q and k with all pairs of dtypes; if one is float64, both get float64 tables."""
    rotary, where = make("none", interleaved=interleaved), torch.arange(3) if ids is None else ids
    for q_dtype in DTYPES:
        for k_dtype in DTYPES:
            q, k = normal((2, 4, 3, 10), 0, q_dtype), normal((2, 2, 3, 10), 1, k_dtype)
            for out, x in zip(rotary(q, k, ids), (q, k), strict=True):
                assert out.dtype == x.dtype
                wide = torch.float64 if torch.float64 in (q_dtype, k_dtype) else torch.float32
                assert torch.equal(out, expected("none", x, where, None, interleaved, wide))
    assert_exact(rotary)


def test_an_extension_reaches_the_vectors():
    """Check that linear scaling by 4 rotates 4m like m, and dynamic NTK changes the base."""
    x, ids = normal((1, 2, 3, 8), 0), torch.tensor([1, 5, 50])
    theta, base = reference.inverse_frequencies(8), 1e4 * (4 * 400 / TRAINED - 3) ** (8 / 6)
    for name, where, spectrum in (
        ("linear", 4 * ids, theta),
        ("dynamic", ids, reference.inverse_frequencies(8, base)),
    ):
        right = torch.from_numpy(
            reference.rotate_matrix(x, ids.numpy(), spectrum, interleaved=False)
        )
        out = make(name).rotate(x, where, seq_len=400)
        torch.testing.assert_close(out, right, rtol=0, atol=1e-12)


@extended
def test_a_length_can_be_passed_or_fixed(name):
    rotary, x = make(name, 4), normal((1, 2, 3, 8), 0, torch.float32)
    ids = torch.tensor([[7, 1, 40]])
    assert torch.equal(rotary(x, x, ids, seq_len=200)[0], expected(name, x, ids, 200))
    rotary.fix_length(200)
    assert torch.equal(rotary(x, x, ids)[0], expected(name, x, ids, 200))
    theta = inverse_frequencies(DIM, extension=EXTENSIONS[name], seq_len=200)
    assert torch.equal(rotary.inv_freq, theta)
    near = ids % TRAINED
    assert torch.equal(rotary(x, x, near, seq_len=TRAINED)[0], expected(name, x, near, TRAINED))
    if rotary.extension.length_dependent:
        with pytest.raises(ValueError, match=r"seq_len is 40.*position is 40.*exceed"):
            rotary(x, x, ids, seq_len=40)
        rotary(x, x, ids, seq_len=41)  # exceeds all positions
    rotary.fix_length(None)
    assert_right(rotary, name)


@extended
@pytest.mark.parametrize("interleaved", BOTH)
def test_the_inverse_is_the_transpose_over_the_attention_factor(name, interleaved):
    """Check that R_m transposed is R_{-m}, within the trained length and beyond it."""
    rotary, x = make(name, 4, interleaved=interleaved), normal((1, 2, 3, 8), 0)
    factor = {"yarn": 1 + 0.1 * math.log(4), "longrope": math.sqrt(1 + math.log(8, 32))}
    for offset in (0, 100):
        where = np.arange(offset, offset + 3)
        theta = inverse_frequencies(DIM, extension=EXTENSIONS[name], seq_len=offset + 3)
        right = reference.rotate_matrix(x, -where, theta, interleaved=interleaved)
        right = torch.from_numpy(right / factor.get(name, 1.0))
        for dtype in (torch.float32, torch.float64):  # stored tables; rows computed for the call
            back = rotary.rotate(x.to(dtype), offset=offset, inverse=True)
            atol = tolerance(dtype, 8) + offset * tolerance(torch.float64, 8)
            torch.testing.assert_close(back.double(), right, rtol=0, atol=atol)


def test_tables_grow_on_demand_never_shrink_and_change_no_row():
    rotary, x = RotaryEmbedding(DIM, 10).half(), torch.zeros(1, 1, 11, 8)
    for call, rows in (
        (lambda: None, 10),
        (lambda: rotary(x[:, :, :10], x[:, :, :10]), 10),
        (lambda: rotary(x, x), 16),
        (lambda: rotary(x[:, :, :1], x[:, :, :1], torch.tensor([100])), 128),
        (lambda: rotary.grow(128), 128),
        (lambda: rotary(x, x), 128),
        (lambda: rotary.grow(np.int64(129)), 256),
    ):
        call()
        assert_exact(rotary, rows)


@pytest.mark.parametrize("far", [2**18 - 1, 2**20, 2**30, 2**40])
def test_a_far_position_costs_only_its_own_row(far):
    """Check far positions, for which a table of all rows would take gigabytes."""
    rotary, x = make("none"), normal((1, 1, 2, DIM), 0, torch.float32)
    ids = torch.tensor([0, far])
    assert torch.equal(rotary.rotate(x, ids), expected("none", x, ids, None))
    ids = torch.tensor([far, far + 1])
    assert torch.equal(rotary.rotate(x, offset=far), expected("none", x, ids, None))
    assert len(rotary.cos) == 16


def through_file(model):
    stream = io.BytesIO()
    torch.save(model, stream)
    stream.seek(0)
    return torch.load(stream, weights_only=False)


def used(model):
    """Call the model in several dtypes and grow its tables, which must change no result."""
    for dtype in (torch.bfloat16, torch.float64, torch.float32):
        x = normal((1, 1, 40, DIM), 0, dtype)
        model[1](x, x)
    return model


CHANGES = CHANGES | {
    "nothing": lambda model: model,
    "through meta": lambda model: model.half().to("meta").to_empty(device="cpu").float(),
    "to_empty": lambda model: model.to_empty(device="cpu"),
    "torch.save": through_file,
    "type": lambda model: model.type(torch.float16),
    "used before": used,
    "used, then cast": lambda model: used(model).half(),
    "copied after use": lambda model: copy.deepcopy(used(model)),
}


@some
@pytest.mark.parametrize("change", CHANGES)
def test_whatever_happens_to_the_model_the_rotation_stays(change, name):
    model = CHANGES[change](nn.Sequential(nn.Linear(2, 2), make(name)))
    for dtype in DTYPES:
        assert_right(model[1], name, dtype)
    assert model[1].cos.dtype == model[1].sin.dtype == torch.float32
    if name == "none":
        assert_exact(model[1], len(model[1].cos))


def test_the_tables_are_no_buffers():
    """Check that tables aren't buffers, which FSDP casts, DDP broadcasts and checkpoints store."""
    rotary = make("none")
    assert not list(rotary.buffers())
    assert not list(rotary.parameters())
    assert not rotary.state_dict()


def test_from_pretrained_of_transformers_does_not_write_over_the_tables(tmp_path):
    """Check from_pretrained, which gives non-persistent buffers new, uninitialized memory."""
    transformers = pytest.importorskip("transformers")

    class Model(transformers.PreTrainedModel):
        config_class = type("Config", (transformers.PretrainedConfig,), {"model_type": "rope_test"})

        def __init__(self, config):
            super().__init__(config)
            self.linear, self.rotary = nn.Linear(DIM, DIM), make("none")
            self.post_init()

    Model(Model.config_class()).save_pretrained(tmp_path)
    model = Model.from_pretrained(tmp_path, dtype=torch.bfloat16)
    assert model.linear.weight.dtype == torch.bfloat16
    assert_right(model.rotary, "none", torch.bfloat16)


@extended
def test_meta_vectors_get_shapes_and_leave_real_tables_where_they_are(name):
    q, k = torch.empty(2, 3, 50, 10, device="meta"), torch.empty(2, 1, 50, 10, device="meta")
    ids = torch.empty(2, 50, dtype=torch.long, device="meta")
    for where in ({}, {"offset": 100}, {"position_ids": ids}, {"inverse": True}):
        for rotary in (make(name), make(name, device="meta"), make(name).to("meta")):
            before = rotary.cos.device
            out = rotary(q, k, **where)
            assert [x.shape for x in out] == [q.shape, k.shape]
            assert all(x.is_meta for x in out)
            assert rotary.cos.device == rotary.sin.device == before


@some
def test_autocast_changes_nothing(name):
    """Check autocast: a rotation has no matrix product, and its sums must stay in float32."""
    for dtype in DTYPES:
        q, k = normal((2, 3, 50, 10), 0, dtype), normal((2, 1, 50, 10), 1, dtype)
        right = [expected(name, x, torch.arange(50), 50) for x in (q, k)]
        with torch.autocast("cpu", torch.bfloat16):
            inside = make(name)(q, k)
            in_place = make(name)(q.clone(), k.clone(), inplace=True)
            with disabled():
                plain = make(name)(q, k)
        for found in (inside, in_place, plain):
            assert all(map(torch.equal, found, right))
            assert all(x.dtype == dtype for x in found)


@some
@pytest.mark.parametrize("default", [torch.float64, torch.bfloat16])
def test_the_default_dtype_does_not_matter(name, default):
    """Build the layer under torch.set_default_dtype, as models often are."""
    before = torch.get_default_dtype()
    try:
        torch.set_default_dtype(default)
        assert_right(make(name), name)
    finally:
        torch.set_default_dtype(before)


@pytest.mark.parametrize(
    "prepare",
    [
        lambda: make("none"),
        lambda: make("none", 4),  # its tables grow
        lambda: make("none", device="meta").to_empty(device="cpu"),
        lambda: make("none", device="meta"),  # its tables are filled at the first call
    ],
)
def test_tables_met_in_inference_mode_can_be_trained_with(prepare):
    x = normal((1, 1, 9, DIM), 0, torch.float32)
    with torch.inference_mode():
        rotary = prepare().half()
        rotary(x, x)
    rotary.rotate(x.requires_grad_()).sum().backward()
    assert_exact(rotary)


@some
@pytest.mark.parametrize("inference", BOTH)
def test_threads_rotating_growing_casting_and_copying_at_once(name, inference):
    """Call one module from eight threads with many lengths; each result must be exact."""
    rotary, start = make(name), threading.Barrier(8)
    lengths = [1, 3, 17, 31, 32, 33, 64, 65, 130, 257, 600, 1025]

    def worker(seed):
        start.wait()
        wrong = []
        for i in range(len(lengths)):
            length = lengths[(i * 5 + seed) % len(lengths)]
            if seed == 0:
                rotary.to((torch.bfloat16, torch.float32)[i % 2])
                copy.deepcopy(rotary)
            x = normal((1, 1, 2, DIM), length, torch.float64 if seed % 2 else torch.float32)
            ids = torch.arange(length, length + 2)
            with torch.inference_mode(inference):
                for where in ({"offset": length}, {"position_ids": ids}):
                    out = rotary.rotate(x, **where)
                    if not torch.equal(out, expected(name, x, ids, length + 2)):
                        wrong.append((length, where))
        return wrong

    with ThreadPoolExecutor(8) as pool:
        assert [wrong for found in pool.map(worker, range(8)) for wrong in found] == []
    assert len(rotary.cos) == len(rotary.sin)
    assert_right(rotary, name)


def test_the_softmax_scale_of_a_configuration_is_on_the_layer():
    """Check DeepSeek-V3's softmax scale, (0.1 ln 40 + 1)^2."""
    rotary = RotaryEmbedding.from_config(example("deepseek-v3"))
    assert rotary.softmax_scale == pytest.approx((0.1 * math.log(40) + 1) ** 2, rel=1e-12)
    assert "softmax_scale=1.87" in repr(rotary)
    assert RotaryEmbedding.from_config(example("llama-3.1-8b")).softmax_scale == 1
