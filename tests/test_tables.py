"""Test that a layer's tables are shared, aren't pickled, and have the values of its settings."""

import copy
import gc
import io
import math
import pickle
import weakref

import numpy as np
import pytest
import torch
from strategies import check_raises, normal, tolerance

from rope import (
    RotaryEmbedding,
    inverse_frequencies,
    reference,
    rotary_embedding,
    rotary_tables,
)
from rope.axes import MultiAxisRotaryEmbedding
from rope.config import example, rotary_settings
from rope.extensions import DynamicNTK, Linear, YaRN

DEVICE = "cuda" if torch.cuda.is_available() else "meta"
PLAIN = {"dim": 16, "max_seq_len": 16, "extension": YaRN(16.0, 4096)}
#: The difference of the other module: an argument, or the dtype of the vectors that it rotates.
DIFFERENT = {
    "base": {"base": 5e5},
    "dim": {"dim": 8},
    "rows": {"max_seq_len": 5},
    "factor": {"extension": YaRN(8.0, 4096)},
    "attention factor": {"extension": YaRN(16.0, 4096, attention_factor=1.0)},
    "parameter": {"extension": YaRN(16.0, 4096, beta_fast=8.0)},
    "extension": {"extension": Linear(16.0)},
    "layout": {"interleaved": True},
    "device": {"device": DEVICE},
    "float64": {"dtype": torch.float64},
    "bfloat16": {"dtype": torch.bfloat16},
}


def factor_of(extension):
    """Return the given attention factor, or the factor by the YaRN paper's equation 22."""
    if isinstance(extension, Linear):
        return 1.0
    return extension.attention_factor or 0.1 * math.log(extension.factor) + 1


def assert_values(rotary, theta, factor, dtype):
    """Compare tables, and vectors rotated within and far beyond them, with the reference.

    A table entry is rounded once to float32. A vector is rotated in float32 or wider, then rounded.
    """
    x, rows = normal((1, 1, 3, rotary.dim), 0, dtype), len(rotary.cos)
    wide = torch.promote_types(dtype, torch.float32)
    for start in (0, rows - 2, 40, 2**18):
        where = np.arange(start, start + 3)
        right = factor * reference.rotate_matrix(
            x.double().numpy(), where, theta, interleaved=rotary.interleaved
        )
        atol = tolerance(wide, 8 * factor) + start * tolerance(torch.float64, 8 * factor)
        allowed = {"rtol": tolerance(dtype, operations=1.01), "atol": atol}
        for out in (rotary.rotate(x, offset=start), rotary.rotate(x, torch.from_numpy(where))):
            np.testing.assert_allclose(out.double(), right, **allowed)
        back = rotary.rotate(torch.from_numpy(right), offset=start, inverse=True)
        np.testing.assert_allclose(back, x.double(), rtol=0, atol=atol)
    angles = reference.angles(np.arange(len(rotary.cos)), theta)
    for table, right in ((rotary.cos, np.cos(angles)), (rotary.sin, np.sin(angles))):
        assert table.dtype == torch.float32
        atol = tolerance(torch.float32, factor, operations=1.01)
        np.testing.assert_allclose(table, factor * right, rtol=0, atol=atol)


@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize("name", DIFFERENT)
def test_two_modules_that_differ_in_one_thing_each_have_their_own_values(name, swapped):
    """Check two modules that exist at once, so that they could wrongly share tables."""
    made = []
    for options in (PLAIN, PLAIN | DIFFERENT[name])[:: -1 if swapped else 1]:
        options = {"dtype": torch.float32, "device": "cpu", **options}
        dtype = options.pop("dtype")
        made.append((RotaryEmbedding(**options).to(dtype), dtype))
        assert made[-1][0].cos.device.type == options["device"]
    for rotary, dtype in made:  # each grows during the calls
        theta = inverse_frequencies(rotary.dim, rotary.base, extension=rotary.extension)
        assert_values(rotary, theta.numpy(), factor_of(rotary.extension), dtype)


def test_modules_of_one_spectrum_hold_one_pair_of_tables():
    layers = [RotaryEmbedding(8, 512, base=77.0, interleaved=bool(i % 2)) for i in range(4)]
    for rows in (512, 8192):
        for layer in layers:
            layer.grow(rows - 5)
        assert len(layers[0].cos) == rows
        assert len({id(layer.cos) for layer in layers}) == 1
        assert len({id(layer.sin) for layer in layers}) == 1


def test_shared_tables_are_freed_with_the_last_module():
    layer = RotaryEmbedding(8, 64, base=79.0)
    held = weakref.ref(layer.cos)
    twin = RotaryEmbedding(8, 64, base=79.0)
    del layer
    gc.collect()
    assert held() is twin.cos
    del twin
    gc.collect()
    assert held() is None


def through_file(module):
    stream = io.BytesIO()
    torch.save(module, stream)
    assert stream.tell() < 10_000  # so it contains no tables
    stream.seek(0)
    return torch.load(stream, weights_only=False)


@pytest.mark.parametrize(
    "way", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m)), through_file]
)
def test_copies_make_their_tables_again(way):
    rotary = RotaryEmbedding(8, 3000, extension=DynamicNTK(2.0, 100))
    rotary.fix_length(5000)
    twin = way(rotary)
    assert torch.equal(twin.cos, rotary.cos) and torch.equal(twin.sin, rotary.sin)
    assert repr(twin) == repr(rotary)
    twin.grow(10_000)
    assert (len(rotary.cos), len(twin.cos)) == (5000, 16_384)
    assert way(rotary.to("meta")).cos.is_meta
    axial = MultiAxisRotaryEmbedding.axial(8)
    assert torch.equal(way(axial).frequencies, axial.frequencies)


def test_what_the_tables_are_made_with_cannot_be_changed():
    rotary, axial = RotaryEmbedding(8, 8), MultiAxisRotaryEmbedding.axial(8)
    for module, names in (
        (rotary, ("dim", "base", "interleaved", "extension", "attention_scaling", "fixed_length")),
        (axial, ("dim", "axes", "interleaved", "attention_scaling")),
    ):
        for name in names:
            before = getattr(module, name)
            with pytest.raises(AttributeError, match=f"{name}.*(new module|fix_length)$"):
                setattr(module, name, 4)
            assert getattr(module, name) == before
    rotary.softmax_scale = 2.0  # no table depends on it


def test_a_fixed_length_makes_tables_with_its_spectrum():
    rotary = RotaryEmbedding(8, 16, extension=DynamicNTK(2.0, 100))
    for length, rows in ((400, 400), (300, 400), (None, 400)):
        rotary.fix_length(length)
        assert (rotary.fixed_length, len(rotary.cos)) == (length, rows)
        # Dynamic NTK: base (2 n / 100 - 1)^(8/6) for a length n beyond 100.
        base = 1e4 * (2 * (length or 100) / 100 - 1) ** (8 / 6)
        right = rotary_tables(rows, inverse_frequencies(8, base))
        torch.testing.assert_close((rotary.cos, rotary.sin), right, rtol=0, atol=1e-7)
    rotary.fix_length(400)
    rotary.grow(500)
    right = rotary_tables(512, inverse_frequencies(8, 1e4 * 7 ** (8 / 6)))
    torch.testing.assert_close((rotary.cos, rotary.sin), right, rtol=0, atol=1e-7)


def test_the_farthest_position_is_the_farthest_offset():
    rotary, x = RotaryEmbedding(8, 16), torch.ones(1, 1, 1, 8)
    last = rotary.rotate(x, torch.tensor([2**53]))
    assert torch.equal(last, rotary.rotate(x, offset=2**53))
    beyond = torch.tensor([2**53 + 1])
    check_raises(lambda: rotary.rotate(x, beyond), ValueError, "position_ids 54 2**53")
    assert rotary.rotate(x[:, :, :0], torch.tensor([], dtype=torch.long)).shape == (1, 1, 0, 8)


def test_the_first_rows_are_those_of_the_configuration():
    rotary = RotaryEmbedding.from_config(example("llama-3.1-8b"))
    assert len(rotary.cos) == rotary_settings(example("llama-3.1-8b")).max_position_embeddings
    assert len(RotaryEmbedding.from_config(example("llama-3.1-8b"), max_seq_len=64).cos) == 64


@pytest.mark.parametrize("ids", [torch.tensor([3, 1]), torch.tensor([[3, 1], [0, 9]])])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_tables_at_positions_are_those_of_a_call(ids, dtype):
    rotary = RotaryEmbedding(8, 4, extension=Linear(2.0), interleaved=True)
    x = normal((2, 3, 2, 8), 0).to(dtype)
    cos, sin = rotary.tables_at(ids, dtype=dtype)
    expected = rotary.rotate(x, ids)
    assert torch.equal(rotary_embedding(x, cos, sin, interleaved=True), expected)


def test_compiled_decoding_reaches_far_with_few_graphs(traced):
    backend, graphs = traced
    rotary, q = RotaryEmbedding(8, 64), torch.ones(1, 1, 1, 8)
    step = torch.compile(lambda q, at: rotary(q, q, offset=at)[0], fullgraph=True, backend=backend)
    eager = RotaryEmbedding(8)
    with torch.no_grad():
        for at in (0, 1, 2, 3, *(2**i + d for i in range(3, 18) for d in (-1, 0, 1))):
            assert torch.equal(step(q, at), eager.rotate(q, offset=at))
    assert len(graphs) <= 4 and len(rotary.cos) == 64


def test_a_module_on_meta_takes_a_checkpoint_and_moves():
    """Follow from_pretrained, which builds models on meta, assigns parameters and moves them."""
    with torch.device("meta"):
        model = torch.nn.ModuleDict({"rotary": RotaryEmbedding(8), "head": torch.nn.Linear(2, 2)})
    state = torch.nn.ModuleDict({"head": torch.nn.Linear(2, 2)}).state_dict()
    model.load_state_dict(state, assign=True)
    model.to("cpu")
    assert torch.equal(model["rotary"].cos, RotaryEmbedding(8).cos)


def test_modules_created_after_a_write_to_shared_tables_get_right_ones():
    first, base = RotaryEmbedding(8, 64, base=123.0), RotaryEmbedding(8, 64, base=123.0)
    assert base.cos is first.cos
    right = first.cos.clone()
    first.cos.mul_(2)
    later = RotaryEmbedding(8, 64, base=123.0)
    assert torch.equal(later.cos, right) and torch.equal(later.sin, first.sin)
