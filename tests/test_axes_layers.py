"""Test layers with several axes: results, parity with other libraries, and changes to models."""

import copy
import math
from functools import partial

import pytest
import torch
from strategies import CHANGES, DTYPES, check_raises, normal, tolerance
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map_only

from rope import RotaryEmbedding, inverse_frequencies, rotary_embedding
from rope.axes import (
    MixedRotaryEmbedding,
    MultiAxisRotaryEmbedding,
    axial_frequencies,
    axis_tables,
    grid_positions,
    mrope_position_ids,
)
from rope.extensions import DynamicNTK, YaRN

AXES, DIM, SECTIONS = 3, 12, (2, 2, 2)
GRID = grid_positions(2, 1, 3)  # [3, 6]
X = normal((2, 4, 6, DIM), 0)
F32, F64 = torch.float32, torch.float64
EPS = torch.finfo(F32).eps
# Two products of values below 6 and their sum are three roundings.
EXACT = tolerance(F64, scale=6, operations=3)
MAKE = {
    "axial": partial(MultiAxisRotaryEmbedding.axial, DIM, AXES),
    "mrope": partial(MultiAxisRotaryEmbedding.mrope, DIM, SECTIONS),
    "dealt": partial(MultiAxisRotaryEmbedding.mrope, DIM, SECTIONS, interleaved_sections=True),
    "mixed": partial(MixedRotaryEmbedding, DIM, 4, AXES),
}
axial, mixed = MAKE["axial"], MAKE["mixed"]
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
    tables = axis_tables(ids, rotary.frequencies, scale=rotary.attention_scaling)
    for table, row in zip(tables, (plain.cos, plain.sin), strict=True):
        assert torch.equal(table, row)
    q, k = X[:, :, :1].expand(2, 4, 256, DIM).to(dtype), X[:, :1, :1].expand(2, 1, 256, DIM)
    for ours, one_axis in zip(rotary(q, k, ids), plain(q, k), strict=True):
        assert torch.equal(ours, one_axis)


@layers
@pytest.mark.parametrize("dtype", DTYPES)
def test_layers_round_their_tables_once(make, dtype):
    rotary = make()
    ids = GRID * (14 / 24)  # real positions of a resized image, float32
    width = F64 if dtype == F64 else F32
    tables = axis_tables(ids, rotary.frequencies.double(), dtype=width)
    q, k = X.to(dtype), X.flip(0).to(dtype)
    out_q, out_k = rotary(q, k, ids)
    assert torch.equal(out_q, rotary_embedding(q, *tables))
    assert torch.equal(out_k, rotary_embedding(k, *tables))
    assert torch.equal(rotary.rotate(q, ids), out_q)
    assert torch.equal(rotary(q, q[:, ::2] if make is not mixed else q, ids)[0], out_q)
    back = rotary(out_q, out_k, ids, inverse=True)[1]
    torch.testing.assert_close(back, k, rtol=0, atol=tolerance(dtype, scale=8, operations=8))


def test_inverse_undoes_the_attention_scaling():
    rotary = MultiAxisRotaryEmbedding.mrope(DIM, SECTIONS, extension=YaRN(16.0, 64))
    assert rotary.attention_scaling == pytest.approx(1 + 0.1 * math.log(16), rel=1e-15)
    out = rotary.rotate(X, GRID)
    torch.testing.assert_close(out.norm(), X.norm() * rotary.attention_scaling, rtol=1e-14, atol=0)
    torch.testing.assert_close(rotary.rotate(out, GRID, inverse=True), X, rtol=0, atol=1e-14)


def test_mixed_starts_as_axial_in_a_rotated_frame():
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
        # For uniform frames, the mean of 500 entries with variance 1/A is within 5 deviations of 0.
        assert axes == 1 or frame.mean(0).abs().max() < 5 / (axes * 500) ** 0.5


def test_mixed_is_the_complex_product_of_the_paper():
    """Compare with RoPE-ViT's x e^{i (theta_x p_x + theta_y p_y)} on pairs, per head."""
    torch.manual_seed(0)
    rotary = MixedRotaryEmbedding(16, 3, interleaved=True)
    x, ids = normal((2, 3, 20, 16), 0), grid_positions(4, 5).flip(0)
    theta = rotary.frequencies.detach().double()[:, :, None]  # [H, A, 1, R/2]
    angle = theta[:, 0] * ids[0, :, None] + theta[:, 1] * ids[1, :, None]
    pairs = torch.view_as_complex(x.unflatten(-1, (-1, 2)))
    expected = torch.view_as_real(pairs * torch.polar(torch.ones_like(angle), angle)).flatten(-2)
    torch.testing.assert_close(rotary.rotate(x, ids), expected, rtol=0, atol=EXACT)


@pytest.mark.parametrize(
    ("version", "rotary_class", "config", "sections", "dealt"),
    [
        ("qwen2_vl", "Qwen2VLRotaryEmbedding", "Qwen2VLTextConfig", (16, 24, 24), False),
        ("qwen3_vl", "Qwen3VLTextRotaryEmbedding", "Qwen3VLTextConfig", (24, 20, 20), True),
    ],
)
def test_sections_of_qwen(version, rotary_class, config, sections, dealt):
    qwen = pytest.importorskip(f"transformers.models.{version}.modeling_{version}")
    width, base = 128, 1e6
    parameters = {"rope_type": "default", "rope_theta": base, "mrope_section": list(sections)}
    config = getattr(qwen, config)(
        hidden_size=2 * width, num_attention_heads=2, head_dim=width, rope_parameters=parameters
    )
    ids = mrope_position_ids([7, (1, 4, 6), 5, (3, 4, 2), 2])
    ids = torch.stack((ids, ids.flip(1)), dim=1)  # [3, B, S]
    theirs = getattr(qwen, rotary_class)(config)(torch.ones(1), ids)
    rotary = MultiAxisRotaryEmbedding.mrope(width, sections, base, interleaved_sections=dealt)
    # Their frequencies and angles are float32 and both rounded; the table adds one more rounding.
    allowed = (int(ids.max()) + 1) * EPS
    for their, our in zip(theirs, axis_tables(ids, rotary.frequencies), strict=True):
        torch.testing.assert_close(their[..., : width // 2], our[:, 0], rtol=0, atol=allowed)
    # Compare the rotations with equal tables.
    q, k = normal((2, 4, ids.shape[-1], width), 0), normal((2, 2, ids.shape[-1], width), 1)
    tables = axis_tables(ids, rotary.frequencies, dtype=F64)
    doubled = (torch.cat((table[:, 0],) * 2, dim=-1) for table in tables)
    theirs = qwen.apply_rotary_pos_emb(q, k, *doubled)
    for our, their in zip(rotary(q, k, ids), theirs, strict=True):
        torch.testing.assert_close(our, their, rtol=0, atol=EXACT)


@pytest.mark.parametrize("sizes", [(5,), (4, 7), (3, 4, 5)])
def test_axial_frequencies_of_rotary_embedding_torch(sizes):
    lucidrains = pytest.importorskip("rotary_embedding_torch")
    width = 16
    other = lucidrains.RotaryEmbedding(dim=width)
    freqs = other.get_axial_freqs(*sizes).flatten(0, -2).detach()  # [S, A width]
    x = normal((2, 3, freqs.shape[0], freqs.shape[1]), 0)
    rotary = MultiAxisRotaryEmbedding.axial(width * len(sizes), len(sizes), interleaved=True)
    theirs = lucidrains.apply_rotary_emb(freqs.double(), x)
    ours = rotary.rotate(x, grid_positions(*sizes))
    torch.testing.assert_close(ours, theirs, rtol=0, atol=12 * (max(sizes) + 1) * EPS)


def test_a_mrope_configuration():
    config = {"model_type": "qwen2_vl", "head_dim": 128, "max_position_embeddings": 32768}
    sections = {"rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]}}
    rotary = MultiAxisRotaryEmbedding.from_config(config | sections | {"rope_theta": 1e6})
    expected = MultiAxisRotaryEmbedding.mrope(128, (16, 24, 24), 1e6)
    assert torch.equal(rotary.frequencies, expected.frequencies)
    assert (rotary.attention_scaling, rotary.interleaved) == (1, False)
    with pytest.raises(ValueError, match="layer is 99"):
        MultiAxisRotaryEmbedding.from_config(config | sections, layer=99)
    with pytest.raises(ValueError, match=r"mrope_section.*RotaryEmbedding\.from_config"):
        MultiAxisRotaryEmbedding.from_config(config | {"model_type": "llama"})


@layers
def test_gradients(make):
    rotary = make()
    x, ids = normal((1, 4, 2, DIM), 3).requires_grad_(), normal((AXES, 2), 4).requires_grad_()
    learned = {name: p.detach().double() for name, p in rotary.named_parameters()}
    theta = [p.requires_grad_() for p in learned.values()]

    def run(x, ids, *theta):
        parameters = dict(zip(learned, theta, strict=True))
        return torch.func.functional_call(rotary, parameters, (x, x, ids))

    assert torch.autograd.gradcheck(run, (x, ids, *theta))


@pytest.mark.parametrize("make", [axial, mixed])
def test_compiles_without_a_break(make):
    torch.compiler.reset()
    rotary, ids = make(), torch.stack((GRID, GRID + 1), dim=1) * 0.5
    compiled = torch.compile(rotary, fullgraph=True, backend="eager")
    for ours, eager in zip(compiled(X, X, ids), rotary(X, X, ids), strict=True):
        assert torch.equal(ours, eager)
    with pytest.raises(RuntimeError, match=r"position_ids.*finite"):
        compiled(X, X, ids * float("inf"))


@layers
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_frequencies_survive(make, change):
    rotary = make()
    before = rotary.frequencies.detach().clone()
    after = change(nn.Sequential(nn.Linear(2, 2), rotary))[1]
    assert after.frequencies.dtype == before.dtype
    assert torch.equal(after.frequencies, before)
    assert after.rotate(X, GRID).isfinite().all()


def test_fixed_frequencies_are_not_in_the_state():
    rotary = axial()
    assert not [*rotary.buffers(), *rotary.parameters(), *rotary.state_dict()]
    assert (rotary.dim, rotary.axes) == (DIM, AXES)


@pytest.mark.parametrize("fixed", ["axial", "mrope", "dealt"])
def test_fixed_frequencies_are_made_again_after_meta(fixed):
    expected = MAKE[fixed]()
    with torch.device("meta"):
        built = MAKE[fixed]()
    assert built.frequencies.is_meta
    followed = copy.deepcopy(built)
    for rotary in (built.to_empty(device="cpu"), followed, MAKE[fixed]().to_empty(device="cpu")):
        assert torch.equal(rotary.rotate(X, GRID), expected.rotate(X, GRID))
        assert torch.equal(rotary.frequencies, expected.frequencies)
    out = rotary.rotate(X.to("meta"), GRID.to("meta"))
    assert out.is_meta and out.shape == X.shape
    assert torch.equal(rotary.frequencies, expected.frequencies)
    with torch.inference_mode():
        built = MAKE[fixed]().half()
    built.rotate(X.clone().requires_grad_(), GRID).sum().backward()


def test_learned_frequencies_after_meta_and_from_a_checkpoint():
    torch.manual_seed(0)
    trained = mixed()
    state = trained.state_dict()
    assert list(state) == ["frequencies"]
    with torch.device("meta"):
        built = mixed()
    built.to_empty(device="cpu")
    lengths = built.frequencies.square().sum(1)
    torch.testing.assert_close(lengths, trained.frequencies.square().sum(1))
    built.load_state_dict(state)
    assert torch.equal(built.rotate(X, GRID), trained.rotate(X, GRID))
    half = {name: value.half() for name, value in state.items()}
    built.load_state_dict(half)
    assert built.frequencies.dtype == F32
    built.load_state_dict(half, assign=True)
    with pytest.raises(TypeError, match=r"frequencies.*torch\.float16.*assign"):
        built.rotate(X, GRID)


class OnMPS(Tensor):
    """A tensor on an imitated device."""


class MPS(TorchFunctionMode):
    """Imitate the device of OnMPS tensors, which has no float64 and sees no other device's data."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        leaves = tree_leaves((args, kwargs or {}))
        inside = {isinstance(leaf, OnMPS) for leaf in leaves if isinstance(leaf, Tensor)}
        if func == Tensor.device.__get__ and inside == {True}:
            return torch.device("mps")
        to = [leaf for leaf in leaves if isinstance(leaf, torch.device)]
        assert to or len(inside) < 2, f"{func} takes tensors on two devices"
        args, kwargs = tree_map_only(torch.device, lambda _: "cpu", (args, kwargs or {}))
        args, kwargs = tree_map_only(OnMPS, lambda t: t.as_subclass(Tensor), (args, kwargs))
        result = func(*args, **kwargs)
        placed = to[-1].type == "mps" if to else True in inside
        return tree_map_only(Tensor, self.place, result) if placed else result

    @staticmethod
    def place(tensor):
        assert tensor.dtype != F64, "Cannot convert a MPS Tensor to float64 dtype"
        return tensor.as_subclass(OnMPS)


@layers
@pytest.mark.parametrize("ids", [GRID, GRID * 0.5], ids=["integers", "real"])
def test_angles_are_computed_on_the_cpu_for_a_device_without_float64(make, ids):
    rotary, x = make(), X.float()
    expected = rotary.rotate(x, ids)
    for parameter in rotary.parameters():
        parameter.data = parameter.data.as_subclass(OnMPS)
    with MPS():
        result = rotary.rotate(x.as_subclass(OnMPS), ids.as_subclass(OnMPS))
    assert isinstance(result, OnMPS)
    assert torch.equal(result.as_subclass(Tensor), expected)


def test_a_spectrum_for_a_length_is_computed_on_the_cpu_for_a_device_without_float64():
    rotary, ids = RotaryEmbedding(DIM, 16, extension=DynamicNTK(2.0, 4)), torch.arange(6)
    expected = rotary.rotate(X.float(), ids)
    with MPS():
        result = rotary.rotate(X.float().as_subclass(OnMPS), ids.as_subclass(OnMPS))
    assert torch.equal(result.as_subclass(Tensor), expected)


THETA, IDS, Q = axial_frequencies(8), grid_positions(2, 3), torch.ones(1, 4, 6, 8)
FIXED, MIXED = MultiAxisRotaryEmbedding.axial(8), MixedRotaryEmbedding(8, 4)
mrope, LEARNED = MultiAxisRotaryEmbedding.mrope, MIXED.frequencies[0].double()
V, T = ValueError, TypeError
BAD = [  # (call, exception, words in its message)
    (lambda: MultiAxisRotaryEmbedding(THETA.expand(4, 2, 4)), V, "[4, 2, 4] Mixed"),
    (lambda: MultiAxisRotaryEmbedding(LEARNED), V, "requires_grad=True"),
    (lambda: MultiAxisRotaryEmbedding(THETA / 0), V, "frequencies inf"),
    (lambda: mrope(8, (2, 2), extension=DynamicNTK(2.0, 64)), V, "extension DynamicNTK seq_len"),
    (lambda: FIXED(Q, Q, IDS[:, :5]), V, "position_ids [2, 5] [2, 6]"),
    (lambda: MIXED(Q, Q, IDS[:, None].expand(2, 3, 6)), V, "[2, 3, 6] [2, 1, 6]"),
    (lambda: FIXED(Q[..., :6], Q[..., :6], IDS), V, "q head_dim 6 8"),
    (lambda: MIXED(Q, Q[:, :1], IDS), V, "k 1 4 repeat_interleave"),
    (lambda: MixedRotaryEmbedding(10, 2), V, "dim 5 even"),
]


@pytest.mark.parametrize(("call", "kind", "words"), BAD, ids=[bad[2] for bad in BAD])
def test_bad_calls_raise(call, kind, words):
    check_raises(call, kind, words)
