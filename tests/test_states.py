"""What models go through: casts, devices, meta, autocast, copies, checkpoints, threads."""

import copy
import io
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from strategies import DTYPES, normal
from torch import nn

from rope import RotaryEmbedding, inverse_frequencies, rotary_tables
from rope.extensions import DynamicNTK, Llama3, LongRoPE, YaRN

DIM, TRAINED = 8, 32
RAMP = (1.0, 1.5, 2.0, 3.0)
EXTENSIONS = {
    "none": None,
    "yarn": YaRN(4.0, TRAINED),
    "llama3": Llama3(4.0, TRAINED),
    "dynamic": DynamicNTK(4.0, TRAINED),
    "longrope": LongRoPE(RAMP, tuple(4 * f for f in RAMP), TRAINED, factor=4.0),
}
extended = pytest.mark.parametrize("name", EXTENSIONS)


def make(name, **options):
    return RotaryEmbedding(DIM, 16, extension=EXTENSIONS[name], **options)


def expected(name, x, ids, seq_len, dtype=None):
    """From the frequencies alone: no module, so no state."""
    wide = torch.float64 if x.dtype == torch.float64 else torch.float32
    extension = EXTENSIONS[name]
    theta = inverse_frequencies(DIM, extension=extension, seq_len=seq_len)
    scale = 1.0 if extension is None else extension.attention_scaling
    cos, sin = rotary_tables(ids, theta, dtype=wide, scale=scale)
    first, second = x[..., :4].to(wide), x[..., 4:8].to(wide)
    turned = torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)
    return torch.cat((turned.to(x.dtype), x[..., 8:]), dim=-1)


def assert_right(rotary, name, dtype=torch.float32):
    """At the trained length, beyond it, and back, by both calls."""
    for length, offset in ((5, 0), (50, 0), (3, 0), (1, 70), (7, 2)):
        q, k = normal((2, 3, length, 10), length, dtype), normal((2, 1, length, 10), 1, dtype)
        ids = torch.arange(offset, offset + length)
        for where in ({"offset": offset}, {"position_ids": ids}):
            for out, x in zip(rotary(q, k, **where), (q, k), strict=True):
                assert out.dtype == dtype
                assert torch.equal(out, expected(name, x, ids, offset + length))


def through_file(model):
    stream = io.BytesIO()
    torch.save(model, stream)
    stream.seek(0)
    return torch.load(stream, weights_only=False)


def used(model):
    """Grown in float32 and called in half precision first: what was called before must not show."""
    for dtype in (torch.bfloat16, torch.float64, torch.float32):
        x = normal((1, 1, 40, DIM), 0, dtype)
        model[1](x, x)
    return model


CHANGES = {
    "nothing": lambda model: model,
    "bfloat16": lambda model: model.to(torch.bfloat16),
    "half": lambda model: model.half(),
    "double": lambda model: model.double(),
    "there and back": lambda model: (
        model.to(torch.float16).to("meta").to_empty(device="cpu").float()
    ),
    "device and dtype": lambda model: model.to("cpu", torch.bfloat16),
    "to_empty": lambda model: model.to_empty(device="cpu"),
    "deepcopy": copy.deepcopy,
    "pickle": lambda model: pickle.loads(pickle.dumps(model)),
    "torch.save": through_file,
    "share_memory": lambda model: model.share_memory(),
    "apply": lambda model: model.apply(lambda part: part.requires_grad_(False)),
    "type": lambda model: model.type(torch.float16),
    "used before": used,
    "used, then cast": lambda model: used(model).half(),
    "copied after use": lambda model: copy.deepcopy(used(model)),
}


@extended
@pytest.mark.parametrize("change", CHANGES)
def test_whatever_happens_to_the_model_the_rotation_stays(change, name):
    model = CHANGES[change](nn.Sequential(nn.Linear(2, 2), make(name)))
    for dtype in DTYPES:
        assert_right(model[1], name, dtype)
    assert model[1].cos.dtype == model[1].sin.dtype == torch.float32
    assert len(model.state_dict()) == 2  # the linear layer's


def test_a_copy_is_a_copy():
    """Growing one leaves the other alone."""
    first = make("none")
    second = copy.deepcopy(first)
    second.grow(1000)
    assert (len(first.cos), len(second.cos)) == (16, 1024)


@extended
@pytest.mark.parametrize("assign", [False, True])
def test_built_on_meta_then_loaded(name, assign):
    source = nn.Sequential(nn.Linear(2, 2), make(name))
    with torch.device("meta"):
        model = nn.Sequential(nn.Linear(2, 2), make(name))
    assert model[1].cos.is_meta
    if not assign:
        model.to_empty(device="cpu")
    result = model.load_state_dict(source.state_dict(), assign=assign)
    assert not result.missing_keys + result.unexpected_keys
    assert_right(model[1], name)
    assert_right(model[1], name, torch.bfloat16)


@extended
def test_meta_vectors_get_shapes(name):
    rotary = make(name, device="meta")
    q, k = torch.empty(2, 3, 50, 10, device="meta"), torch.empty(2, 1, 50, 10, device="meta")
    ids = torch.empty(2, 50, dtype=torch.long, device="meta")
    for where in ({}, {"offset": 100}, {"position_ids": ids}, {"inverse": True}):
        out = rotary(q, k, **where)
        assert [x.shape for x in out] == [q.shape, k.shape]
        assert all(x.is_meta for x in out)


@extended
@pytest.mark.parametrize("strict", [False, True])
def test_checkpoints_of_other_libraries_load_as_any_module_would(name, strict):
    """Old checkpoints hold `rotary.inv_freq`: refused if strict, else left alone, never copied."""
    model = nn.Sequential(nn.Linear(2, 2), make(name))
    state = model.state_dict()
    assert not [key for key in state if not key.startswith("0.")]
    state["1.inv_freq"] = torch.full((DIM // 2,), 7.0)
    state["1.cos"] = torch.full((16, DIM // 2), 7.0)
    if strict:
        with pytest.raises(RuntimeError, match=r"Unexpected key.*inv_freq"):
            model.load_state_dict(state)
    else:
        assert model.load_state_dict(state, strict=False).unexpected_keys
    assert_right(model[1], name)


@extended
@pytest.mark.parametrize("lowered", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("dtype", DTYPES)
def test_autocast_changes_nothing(name, dtype, lowered):
    """Rotation has no matrix product to lower, and its sums must not be lowered."""
    q, k = normal((2, 3, 50, 10), 0, dtype), normal((2, 1, 50, 10), 1, dtype)
    outside, theta = make(name)(q, k), inverse_frequencies(DIM)
    with torch.autocast("cpu", lowered):
        inside = make(name)(q, k)
        in_place = make(name)(q.clone(), k.clone(), inplace=True)
        tables = rotary_tables(50, inverse_frequencies(DIM), dtype=dtype)
    for out in (inside, in_place):
        for a, b in zip(out, outside, strict=True):
            assert a.dtype == dtype
            assert torch.equal(a, b)
    for table, outer in zip(tables, rotary_tables(50, theta, dtype=dtype), strict=True):
        assert torch.equal(table, outer)


@extended
def test_under_autocast_the_layer_before_lowers_and_the_rotation_follows(name):
    x, linear = normal((1, 1, 50, DIM), 0, torch.float32), nn.Linear(DIM, DIM)
    with torch.autocast("cpu", torch.bfloat16):
        lowered = linear(x)
        out = make(name).rotate(lowered)
    assert out.dtype == lowered.dtype == torch.bfloat16
    wide = make(name).rotate(lowered.float())
    assert torch.equal(out, wide.bfloat16())


@extended
@pytest.mark.parametrize("default", [torch.float64, torch.bfloat16, torch.float16])
def test_the_default_dtype_does_not_matter(name, default):
    """A model is often built under torch.set_default_dtype."""
    before = torch.get_default_dtype()
    try:
        torch.set_default_dtype(default)
        assert_right(make(name), name)
    finally:
        torch.set_default_dtype(before)


@extended
def test_modes_and_seeds_are_left_alone(name):
    state = torch.get_rng_state()
    training = make(name)
    out = training(*(normal((1, 1, 50, DIM), 0),) * 2)
    evaluating = make(name).eval()(*(normal((1, 1, 50, DIM), 0),) * 2)
    assert torch.equal(out[0], evaluating[0])
    assert torch.equal(torch.get_rng_state(), state)
    assert not list(training.parameters())
    assert not out[0].requires_grad


@extended
@pytest.mark.parametrize("inference", [False, True])
def test_threads_growing_and_rotating_at_once(name, inference):
    """Eight threads, calls of many lengths through one module, each answer exact."""
    rotary, start = make(name), threading.Barrier(8)
    lengths = [1, 3, 17, 31, 32, 33, 64, 65, 130, 257, 600, 1025]

    def worker(seed):
        start.wait()
        wrong = []
        for turn in range(3):
            for i in range(len(lengths)):
                length = lengths[(i * 5 + seed + turn) % len(lengths)]
                x = normal((1, 1, 2, DIM), length)
                x = x if seed % 2 else x.float()
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


def test_threads_copying_casting_and_growing_at_once():
    """A cast in one thread reaches no answer of another."""
    rotary, start = make("yarn"), threading.Barrier(8)
    x, ids = normal((1, 1, 2, DIM), 0, torch.float32), torch.tensor([3, 9])
    right = expected("yarn", x, ids, 10)

    def worker(seed):
        start.wait()
        wrong = 0
        for i in range(40):
            if seed == 0:
                rotary.to((torch.bfloat16, torch.float32)[i % 2])
            elif seed == 1:
                rotary.grow(16 * (i + seed))
            elif seed == 2:
                copy.deepcopy(rotary)
            else:
                wrong += not torch.equal(rotary.rotate(x, ids), right)
        return wrong

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(worker, range(8))) == 0
    assert_right(rotary, "yarn")


def test_forward_hooks_and_wrappers_see_an_ordinary_module():
    rotary, seen = make("none"), []
    rotary.register_forward_hook(lambda module, args, out: seen.append(len(out)))
    x = normal((1, 1, 3, DIM), 0)
    rotary(x, x)
    assert seen == [2]
    assert torch.equal(
        torch.func.functional_call(rotary, dict(rotary.named_buffers()), (x, x))[0], rotary(x, x)[0]
    )
    assert torch.equal(
        torch.utils.checkpoint.checkpoint(rotary, x, x, use_reentrant=False)[0], rotary(x, x)[0]
    )
