"""The state of a layer: its tables are shared, are in no pickle, and cannot half change."""

import copy
import gc
import io
import pickle
import weakref

import pytest
import torch
from strategies import normal

from rope import RotaryEmbedding, inverse_frequencies, rotary_embedding
from rope.axes import MultiAxisRotaryEmbedding
from rope.config import example, rotary_settings
from rope.extensions import DynamicNTK, Linear


def test_modules_of_one_spectrum_hold_one_pair_of_tables():
    layers = [RotaryEmbedding(8, 512, base=77.0, interleaved=bool(i % 2)) for i in range(4)]
    assert len({id(layer.cos) for layer in layers}) == len({id(layer.sin) for layer in layers}) == 1
    for layer in layers:
        layer.grow(5000)
    assert len({id(layer.cos) for layer in layers}) == 1 and len(layers[0].cos) == 8192
    for other in (
        RotaryEmbedding(8, 8192, base=78.0),
        RotaryEmbedding(8, 8192, base=77.0, extension=Linear(2.0)),
        RotaryEmbedding(8, 4096, base=77.0),
    ):
        assert other.cos is not layers[0].cos


def test_shared_tables_go_with_the_last_module():
    layer = RotaryEmbedding(8, 64, base=79.0)
    held = weakref.ref(layer.cos)
    twin = RotaryEmbedding(8, 64, base=79.0)
    del layer
    gc.collect()
    assert held() is twin.cos
    del twin
    gc.collect()
    assert held() is None


def saved(module):
    stream = io.BytesIO()
    torch.save(module, stream)
    size = stream.tell()
    stream.seek(0)
    return torch.load(stream, weights_only=False), size


@pytest.mark.parametrize("way", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_copies_make_their_tables_again(way):
    rotary = RotaryEmbedding(8, 300, extension=DynamicNTK(2.0, 100))
    rotary.fix_length(500)
    twin = way(rotary)
    assert torch.equal(twin.cos, rotary.cos) and torch.equal(twin.sin, rotary.sin)
    assert repr(twin) == repr(rotary)
    twin.grow(1000)
    assert (len(rotary.cos), len(twin.cos)) == (500, 1024)
    assert way(rotary.to("meta")).cos.is_meta


def test_no_file_holds_tables():
    rotary = RotaryEmbedding(128, 100_000)
    twin, size = saved(rotary)
    assert size < 10_000 and torch.equal(twin.cos, rotary.cos)
    axial, _ = saved(MultiAxisRotaryEmbedding.axial(8))
    assert torch.equal(axial.frequencies, MultiAxisRotaryEmbedding.axial(8).frequencies)


def test_what_the_tables_are_made_with_cannot_be_changed():
    rotary, axial = RotaryEmbedding(8, 8), MultiAxisRotaryEmbedding.axial(8)
    for module, names in (
        (rotary, ("dim", "base", "interleaved", "extension", "fixed_length")),
        (axial, ("dim", "axes", "interleaved", "attention_scaling")),
    ):
        for name in names:
            before = getattr(module, name)
            with pytest.raises(AttributeError, match=rf"{name} is .*make a new module"):
                setattr(module, name, 4)
            assert getattr(module, name) == before
    rotary.softmax_scale = 2.0  # which no table holds


def test_a_fixed_length_makes_its_rows():
    rotary = RotaryEmbedding(8, 16, extension=DynamicNTK(2.0, 100))
    rotary.fix_length(400)
    assert len(rotary.cos) == 400 and rotary.fixed_length == 400
    rotary.fix_length(None)
    assert rotary.fixed_length is None
    assert torch.equal(rotary.cos[:16], RotaryEmbedding(8, 16).cos)


@pytest.mark.parametrize("huge", [10**30, 10**400])
def test_huge_lengths_are_refused_in_a_sentence(huge):
    rotary = RotaryEmbedding(8, 16, extension=DynamicNTK(2.0, 100))
    for call in (
        lambda: rotary.fix_length(huge),
        lambda: rotary.grow(huge),
        lambda: RotaryEmbedding(huge),
        lambda: RotaryEmbedding(8, huge),
        lambda: rotary.rotate(torch.ones(1, 1, 1, 8), offset=huge),
        lambda: rotary.rotate(torch.ones(1, 1, 1, 8), seq_len=huge),
    ):
        with pytest.raises(ValueError, match=r"bits; it must be at most 2\*\*53"):
            call()
    assert rotary.fixed_length is None and len(rotary.cos) == 16


def test_the_farthest_position_is_the_farthest_offset():
    rotary, x = RotaryEmbedding(8, 16), torch.ones(1, 1, 1, 8)
    last = rotary.rotate(x, torch.tensor([2**53]))
    assert torch.equal(last, rotary.rotate(x, offset=2**53))
    words = r"position_ids has 54 bits; it must be at most 2\*\*53"
    with pytest.raises(ValueError, match=words):
        rotary.rotate(x, torch.tensor([2**53 + 1]))
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


@pytest.mark.parametrize("name", ["inv_freq", "freqs"])
def test_frequencies_in_a_checkpoint_must_be_ours(name):
    """Old Llama files hold inv_freq, rotary-embedding-torch's freqs; both in half types too."""
    model = torch.nn.ModuleDict({"rotary_emb": RotaryEmbedding(8)})
    kept = inverse_frequencies(8).bfloat16()
    assert model.load_state_dict({f"rotary_emb.{name}": kept}).unexpected_keys == []
    for half in (torch.float32, torch.bfloat16, torch.float16):  # and widened again
        upcast = inverse_frequencies(8).to(half).float()
        assert model.load_state_dict({f"rotary_emb.{name}": upcast})
    wrong_ones = (inverse_frequencies(8, base=10090.0).float(), inverse_frequencies(6))
    for wrong in (*wrong_ones, inverse_frequencies(8, base=500.0).bfloat16()):
        with pytest.raises(RuntimeError, match=rf"rotary_emb.{name} of the checkpoint is not"):
            model.load_state_dict({f"rotary_emb.{name}": wrong})
    with pytest.raises(RuntimeError, match="Unexpected"):
        model.load_state_dict({"rotary_emb.weight": kept})


def test_a_module_on_meta_takes_a_checkpoint_and_moves():
    """As from_pretrained loads: made on meta, parameters assigned, then moved."""
    with torch.device("meta"):
        model = torch.nn.ModuleDict({"rotary": RotaryEmbedding(8), "head": torch.nn.Linear(2, 2)})
    state = torch.nn.ModuleDict({"head": torch.nn.Linear(2, 2)}).state_dict()
    model.load_state_dict(state | {"rotary.inv_freq": inverse_frequencies(8)}, assign=True)
    model.to("cpu")
    assert torch.equal(model["rotary"].cos, RotaryEmbedding(8).cos)
