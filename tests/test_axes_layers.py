import copy
import pickle
from functools import partial

import pytest
import torch
from strategies import DTYPES, normal, tolerance
from torch import nn

from rope import RotaryEmbedding, inverse_frequencies, rotary_embedding
from rope.axes import (
    MixedRotaryEmbedding,
    MultiAxisRotaryEmbedding,
    axis_tables,
    grid_positions,
)
from rope.extensions import YaRN

AXES, DIM, SECTIONS = 3, 12, (2, 2, 2)
GRID = grid_positions(2, 1, 3)  # [3, 6]
X = normal((2, 4, 6, DIM), 0)
MAKE = {
    "axial": partial(MultiAxisRotaryEmbedding.axial, DIM, AXES),
    "mrope": partial(MultiAxisRotaryEmbedding.mrope, DIM, SECTIONS),
    "dealt": partial(MultiAxisRotaryEmbedding.mrope, DIM, SECTIONS, interleaved_sections=True),
    "mixed": partial(MixedRotaryEmbedding, DIM, 4, AXES),
}
layers = pytest.mark.parametrize("make", MAKE.values(), ids=MAKE)


@pytest.mark.parametrize("dealt", [False, True])
@pytest.mark.parametrize("extension", [None, YaRN(4.0, 64)])
@pytest.mark.parametrize("dtype", DTYPES)
def test_text_in_mrope_is_rope_bit_for_bit(dealt, extension, dtype):
    plain = RotaryEmbedding(DIM, 256, extension=extension)
    rotary = MultiAxisRotaryEmbedding.mrope(
        DIM, SECTIONS, interleaved_sections=dealt, extension=extension
    )
    ids = torch.arange(256).expand(3, -1)
    cos, sin = axis_tables(ids, rotary.frequencies, scale=rotary.attention_scaling)
    assert torch.equal(cos, plain.cos)
    assert torch.equal(sin, plain.sin)
    q, k = X[:, :, :1].expand(2, 4, 256, DIM).to(dtype), X[:, :1, :1].expand(2, 1, 256, DIM)
    for ours, one_axis in zip(rotary(q, k, ids), plain(q, k), strict=True):
        assert torch.equal(ours, one_axis)


@layers
@pytest.mark.parametrize("dtype", DTYPES)
def test_layers_round_their_tables_once(make, dtype):
    rotary = make()
    ids = GRID * (14 / 24)  # resized: real positions, float32
    assert ids.dtype == torch.float32
    width = torch.float64 if dtype == torch.float64 else torch.float32
    tables = axis_tables(ids, rotary.frequencies.double(), dtype=width)
    q, k = X.to(dtype), X.flip(0)
    out_q, out_k = rotary(q, k, ids)
    assert torch.equal(out_q, rotary_embedding(q, *tables))
    exact = axis_tables(ids, rotary.frequencies.double(), dtype=torch.float64)
    assert torch.equal(out_k, rotary_embedding(k, *exact))
    assert torch.equal(rotary.rotate(q, ids), out_q)
    back = rotary(out_q, out_k, ids, inverse=True)[1]
    torch.testing.assert_close(back, k, rtol=0, atol=tolerance(torch.float64, scale=8))


def test_inverse_undoes_the_attention_scaling():
    rotary = MultiAxisRotaryEmbedding.mrope(DIM, SECTIONS, extension=YaRN(16.0, 64))
    assert rotary.attention_scaling > 1.2
    out = rotary.rotate(X, GRID)
    torch.testing.assert_close(out.norm(), X.norm() * rotary.attention_scaling, rtol=1e-14, atol=0)
    torch.testing.assert_close(rotary.rotate(out, GRID, inverse=True), X, rtol=0, atol=1e-14)


def test_mixed_with_one_entry_a_column_is_axial():
    mixed, axial = MAKE["mixed"](), MAKE["axial"]()
    theta = axial.frequencies.float()
    with torch.no_grad():
        mixed.frequencies.copy_(theta)
    axial = MultiAxisRotaryEmbedding(theta.double())
    assert torch.equal(mixed.rotate(X, GRID), axial.rotate(X, GRID))


def test_mixed_starts_as_axial_in_a_turned_frame():
    torch.manual_seed(0)
    for axes, dim in ((1, 4), (2, 16), (3, 12)):
        theta = MixedRotaryEmbedding(dim, 500, axes).frequencies.detach().double()
        spectrum = inverse_frequencies(dim // axes, 10.0)
        frames = theta.unflatten(-1, (axes, -1)) / spectrum  # [H, A, run, planes]
        torch.testing.assert_close(frames, frames[..., :1].expand_as(frames), rtol=0, atol=4e-7)
        frame = frames[..., 0]
        torch.testing.assert_close(
            frame.mT @ frame, torch.eye(axes).double().expand_as(frame), rtol=0, atol=1e-6
        )
        assert (torch.linalg.det(frame) > 0).all()
        # Uniform: the mean of 500 entries of variance 1/A is 0 within five standard deviations.
        assert axes == 1 or frame.mean(0).abs().max() < 5 / (axes * 500) ** 0.5


@layers
def test_gradients(make):
    rotary = make()
    x, ids = normal((1, 4, 2, DIM), 3).requires_grad_(), normal((AXES, 2), 4).requires_grad_()
    learned = {name: p.detach().double() for name, p in rotary.named_parameters()}
    theta = [p.requires_grad_() for p in learned.values()]

    def run(x, ids, *theta):
        given = dict(zip(learned, theta, strict=True))
        return torch.func.functional_call(rotary, given, (x, x, ids))

    assert torch.autograd.gradcheck(run, (x, ids, *theta))


def test_learned_frequencies_learn():
    rotary = MAKE["mixed"]().to(torch.bfloat16)
    q, k = rotary(X.bfloat16(), X.bfloat16(), GRID)
    (q @ k.mT).float().square().sum().backward()
    gradient = rotary.frequencies.grad
    assert gradient.dtype == torch.float32
    assert (gradient.abs().sum((0, 2)) > 0).tolist() == [True, False, True]  # row 1 stands still


CHANGES = {
    "bfloat16": lambda model: model.to(torch.bfloat16),
    "half": lambda model: model.half(),
    "double": lambda model: model.double(),
    "there and back": lambda model: model.half().float(),
    "with a device": lambda model: model.to("cpu", torch.float16),
    "deepcopy": copy.deepcopy,
    "pickle": lambda model: pickle.loads(pickle.dumps(model)),
    "shared": lambda model: model.share_memory(),
    "frozen": lambda model: model.requires_grad_(False).eval(),
}


@layers
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_frequencies_survive(make, change):
    rotary = make()
    before = rotary.frequencies.detach().clone()
    after = change(nn.Sequential(nn.Linear(2, 2), rotary))[1]
    assert after.frequencies.dtype == before.dtype
    assert torch.equal(after.frequencies, before)
    assert after.rotate(X, GRID).isfinite().all()


@pytest.mark.parametrize("fixed", ["axial", "mrope", "dealt"])
def test_fixed_frequencies_are_written_again_after_meta(fixed):
    expected = MAKE[fixed]()
    assert not expected.state_dict()
    with torch.device("meta"):
        built = MAKE[fixed]()
    assert built.frequencies.is_meta
    assigned = copy.deepcopy(built)
    for rotary in (built.to_empty(device="cpu"), assigned, MAKE[fixed]().to_empty(device="cpu")):
        assert torch.equal(rotary.rotate(X, GRID), expected.rotate(X, GRID))
        assert torch.equal(rotary.frequencies, expected.frequencies)
    with torch.inference_mode():
        made = MAKE[fixed]()
        made.half()
    made.rotate(X.clone().requires_grad_(), GRID).sum().backward()


def test_learned_frequencies_after_meta_and_from_a_checkpoint():
    torch.manual_seed(0)
    trained = MAKE["mixed"]()
    state = trained.state_dict()
    assert list(state) == ["frequencies"]
    with torch.device("meta"):
        built = MAKE["mixed"]()
    built.to_empty(device="cpu")
    lengths = built.frequencies.square().sum(1)
    torch.testing.assert_close(lengths, trained.frequencies.square().sum(1))  # drawn afresh
    built.load_state_dict(state)
    assert torch.equal(built.rotate(X, GRID), trained.rotate(X, GRID))
    half = {name: value.half() for name, value in state.items()}
    built.load_state_dict(half)
    assert built.frequencies.dtype == torch.float32
    built.load_state_dict(half, assign=True)
    with pytest.raises(TypeError, match=r"frequencies is torch\.float16.*without assign"):
        built.rotate(X, GRID)


@pytest.mark.parametrize("make", [MAKE["axial"], MAKE["mixed"]])
def test_compiles_without_a_break(make):
    torch.compiler.reset()
    rotary = make()
    for inverse, ids in ((False, GRID), (True, torch.stack((GRID, GRID + 1), dim=1) * 0.5)):
        compiled = torch.compile(
            partial(rotary, inverse=inverse), fullgraph=True, backend="aot_eager"
        )
        for ours, eager in zip(
            compiled(X, X, ids), rotary(X, X, ids, inverse=inverse), strict=True
        ):
            assert torch.equal(ours, eager)
    with pytest.raises(RuntimeError, match="position_ids must be finite"):
        compiled(X, X, ids * float("inf"))


def test_a_mrope_configuration():
    config = {
        "model_type": "qwen2_vl",
        "hidden_size": 1536,
        "num_attention_heads": 12,
        "max_position_embeddings": 32768,
        "rope_theta": 1e6,
        "rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]},
    }
    rotary = MultiAxisRotaryEmbedding.from_config(config)
    expected = MultiAxisRotaryEmbedding.mrope(128, (16, 24, 24), 1e6)
    assert torch.equal(rotary.frequencies, expected.frequencies)
    assert rotary.attention_scaling == 1
    assert not rotary.interleaved
    del config["rope_scaling"]
    with pytest.raises(ValueError, match=r"no mrope_section.*RotaryEmbedding\.from_config"):
        MultiAxisRotaryEmbedding.from_config({**config, "model_type": "llama"})
