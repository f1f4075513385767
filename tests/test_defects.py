"""The defects that other implementations have or had, each with the test that we are free of it.

The last test reads this folder: every defect on the list has a test of the name that it is given.
"""

import ast
import inspect
from pathlib import Path

import pytest
import torch
from strategies import normal, tolerance
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import rope
from rope import RotaryEmbedding, inverse_frequencies, rotary_tables
from rope.attention import KVCache, RotaryAttention
from rope.extensions import DynamicNTK, YaRN
from rope.functional import rotary_embedding, rotary_embedding_
from rope.positions import (
    cumulative_position_ids,
    left_padded_position_ids,
    packed_position_ids,
)

PACKAGE = Path(rope.__file__).parent


def tables(rows=64, dim=8):
    return rotary_tables(rows, inverse_frequencies(dim))


def poisoned(model):
    """Built on meta and given memory, as large models are, and the memory made the worst."""
    torch.use_deterministic_algorithms(True)  # torch.empty then fills with NaN
    try:
        return model.to_empty(device="cpu")
    finally:
        torch.use_deterministic_algorithms(False)


def test_bf16_inputs_make_no_bf16_positions():
    """rotary-embedding-torch counts in the input's dtype: of 2,048 positions 641 are left."""
    theirs = pytest.importorskip("rotary_embedding_torch").RotaryEmbedding(8)
    x = torch.ones(1, 1, 2048, 8, dtype=torch.bfloat16)
    counted = theirs.get_seq_pos(2048, device=x.device, dtype=x.dtype)
    assert len(counted.unique()) == 641
    rotary = RotaryEmbedding(8, 16, interleaved=True)
    wide = rotary.rotate(x.float())
    assert torch.equal(rotary.rotate(x), wide.bfloat16())
    assert len(wide[0, 0].unique(dim=0)) == 2048


def test_a_call_in_bf16_leaves_later_calls_in_fp32_alone():
    """rotary-embedding-torch keeps the angles of its first call, whatever their dtype."""
    package, x = pytest.importorskip("rotary_embedding_torch"), torch.ones(1, 1, 2048, 8)
    theirs, fresh = package.RotaryEmbedding(8), package.RotaryEmbedding(8)
    theirs.rotate_queries_or_keys(x.bfloat16())
    spoilt = theirs.rotate_queries_or_keys(x) - fresh.rotate_queries_or_keys(x)
    assert spoilt.abs().max() > 1
    ours, expected = RotaryEmbedding(8, 16), RotaryEmbedding(8, 2048).rotate(x)
    ours.rotate(x.bfloat16())
    assert torch.equal(ours.rotate(x), expected)


def test_a_cast_of_the_model_leaves_the_frequencies_alone():
    """transformers 29285 and others: inv_freq is a buffer, and buffers are cast."""
    transformers = pytest.importorskip("transformers")
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    config = transformers.LlamaConfig(hidden_size=256, num_attention_heads=2)
    theirs, ids = LlamaRotaryEmbedding(config), torch.arange(4096)[None]
    before = theirs(torch.ones(1), ids)[0]
    assert (theirs.to(torch.bfloat16)(torch.ones(1), ids)[0] - before).abs().max() > 1
    ours, x = RotaryEmbedding(128, 16), torch.ones(1, 1, 4096, 128)
    expected = ours.rotate(x)
    assert torch.equal(ours.to(torch.bfloat16).rotate(x), expected)


class Recorder(TorchDispatchMode):
    """The names of the operations that are run."""

    def __init__(self):
        super().__init__()
        self.seen = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.seen.add(func.overloadpacket.__name__)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("extension", [None, YaRN(4.0, 16), DynamicNTK(4.0, 16)])
def test_angles_go_through_no_matrix_product(extension):
    """transformers 48428: with TF32 an angle by matmul rounds every position past 2,048."""
    with Recorder() as recorder:
        rotary = RotaryEmbedding(8, 4, extension=extension)
        for dtype in (torch.float32, torch.float64):
            x = normal((1, 1, 40, 8), 0, dtype)
            rotary(x, x, torch.arange(40))
    assert {"mul", "cos", "sin"} <= recorder.seen
    # outer, einsum and matmul arrive here as one of these, or as mul if they are elementwise.
    assert not recorder.seen & {"mm", "bmm", "addmm", "baddbmm", "mv", "dot", "addr"}


@pytest.mark.parametrize("position", [8_191, 131_071, 1_048_575])
def test_angles_are_not_float32(position):
    """A float32 angle is off by up to 2.5e-2 at a million; ours is rounded at the end alone."""
    mpmath = pytest.importorskip("mpmath")
    cos, _ = rotary_tables(torch.tensor([position]), inverse_frequencies(128))
    with mpmath.workdps(40):
        base = mpmath.mpf(10) ** 4
        exact = [float(mpmath.cos(position * base ** (-mpmath.mpf(j) / 64))) for j in range(64)]
    exact = torch.tensor(exact, dtype=torch.float64)
    # The exponent (of ln base = 9.2), theta and the product are each rounded in float64.
    angle = position * tolerance(torch.float64, operations=12)
    atol = angle + tolerance(torch.float32, operations=1)
    torch.testing.assert_close(cos[0].double(), exact, rtol=0, atol=atol)
    plain = (torch.tensor(float(position)) * inverse_frequencies(128).float()).cos()
    assert (plain.double() - exact).abs().max() > 50 * atol


@pytest.mark.parametrize("extension", [None, YaRN(4.0, 16)])
def test_frequencies_are_never_uninitialised_after_meta(extension):
    """A non-persistent inv_freq buffer is left unwritten by to_empty: transformers, torchtitan."""
    with torch.device("meta"):
        model = nn.Sequential(nn.Linear(8, 8), RotaryEmbedding(8, 16, extension=extension))
        theirs = nn.Module()
        theirs.register_buffer("inv_freq", torch.ones(4), persistent=False)
    model, theirs = poisoned(model), poisoned(theirs)
    assert model[0].weight.isnan().all()
    assert theirs.inv_freq.isnan().all()  # what the plain buffer gets
    fresh, x = RotaryEmbedding(8, 16, extension=extension), normal((1, 1, 9, 8), 0, torch.float32)
    assert torch.equal(model[1].rotate(x), fresh.rotate(x))
    assert torch.equal(model[1].inv_freq, fresh.inv_freq)


def test_transformers_leaves_them_to_a_step_of_its_own():
    """Its module alone, after meta and to_empty, holds whatever the memory held."""
    transformers = pytest.importorskip("transformers")
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    config = transformers.LlamaConfig(hidden_size=32, num_attention_heads=4)
    with torch.device("meta"):
        theirs = LlamaRotaryEmbedding(config)
    assert poisoned(theirs).inv_freq.isnan().all()


def test_in_place_marks_its_input_as_changed():
    """A kernel that writes behind autograd's back gives wrong gradients in silence: unsloth."""
    x = normal((1, 2, 3, 8), 0).requires_grad_() * 1
    needs_the_old_values, version = x.exp().sum() + x.square().sum(), x._version
    rotary_embedding_(x, *tables(3))
    assert x._version > version
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        needs_the_old_values.backward()


def test_backward_does_not_overwrite_the_gradient_it_is_given():
    """unsloth 5001: the second reader of that gradient then saw it rotated."""
    cos, sin = tables(3)
    for form in (rotary_embedding, rotary_embedding_):
        leaf, upstream = normal((1, 2, 3, 8), 0).requires_grad_(), normal((1, 2, 3, 8), 1)
        before = upstream.clone()
        x = leaf * 1
        kept = x.clone()  # the sum below hands one gradient to it and to the rotation
        total = form(x, cos, sin) + kept
        total.backward(upstream)
        assert torch.equal(upstream, before)
        expected = before + rotary_embedding(before, cos, sin, inverse=True)
        torch.testing.assert_close(
            leaf.grad, expected, rtol=0, atol=tolerance(torch.float64, 8.0, operations=8)
        )


@pytest.mark.parametrize("call", ["offset", "ids", "batch", "function"])
def test_negative_offset_of_left_padding_is_refused(call):
    """fla 967: position −1 read the memory before the table; in Python it wraps to the last row."""
    rotary, x = RotaryEmbedding(8, 16), normal((2, 1, 3, 8), 0)
    ids = torch.tensor([-2, -1, 0])
    calls = {
        "offset": lambda: rotary.rotate(x, offset=-2),
        "ids": lambda: rotary(x, x, ids),
        "batch": lambda: rotary.rotate(x.float(), ids.expand(2, 3)),
        "function": lambda: rotary_embedding(x, *tables(), ids),
    }
    with pytest.raises(ValueError, match=r"-2"):
        calls[call]()


def test_left_padding_has_positions_of_its_own():
    """Padded on the left, a text's tokens are rotated as if it stood alone."""
    mask = torch.tensor([[0, 0, 1, 1, 1], [1, 1, 1, 1, 1], [0, 0, 0, 0, 0]])
    ids = left_padded_position_ids(mask)
    assert ids.min() >= 0
    rotary, x = RotaryEmbedding(8, 16), normal((3, 2, 5, 8), 0)
    out = rotary.rotate(x, ids)
    assert torch.equal(out[:1, :, 2:], rotary.rotate(x[:1, :, 2:]))
    assert torch.equal(out[1:2], rotary.rotate(x[1:2]))


def test_packed_positions_are_reset():
    """torchtitan 2559: packed documents were one long text to the rotation."""
    lengths = [3, 1, 4]
    ids = packed_position_ids(lengths)
    assert ids.tolist() == [0, 1, 2, 0, 0, 1, 2, 3]
    assert torch.equal(cumulative_position_ids(torch.tensor([0, 3, 4, 8])), ids)
    rotary, x = RotaryEmbedding(8, 16), normal((1, 2, 8, 8), 0)
    apart = torch.cat([rotary.rotate(part) for part in x.split(lengths, dim=2)], dim=2)
    assert torch.equal(rotary.rotate(x, ids), apart)
    assert not torch.equal(rotary.rotate(x), apart)


def test_decode_offset_is_not_ignored():
    """NeoX's fused kernel rotated each new token to position 0."""
    rotary, x = RotaryEmbedding(8, 4), normal((1, 2, 9, 8), 0, torch.float32)
    whole = rotary.rotate(x)
    for offset in range(9):
        one = rotary.rotate(x[:, :, offset : offset + 1], offset=offset)
        assert torch.equal(one, whole[:, :, offset : offset + 1])
    torch.manual_seed(0)
    layer, tokens = RotaryAttention(16, 2).double(), normal((1, 9, 16), 0)
    cache = KVCache(1, 2, 9, 8, dtype=torch.float64)
    with torch.no_grad():
        steps = torch.cat([layer(token, cache=cache) for token in tokens.split(1, dim=1)], dim=1)
        # Sums in another order, 16 of them deep.
        torch.testing.assert_close(
            steps, layer(tokens), rtol=0, atol=tolerance(torch.float64, 4.0, operations=64)
        )


def test_no_device_is_named_in_the_code():
    """rotary-embedding-torch 46: autocast(enabled=False, device_type="cuda") on a CPU."""
    calls = [
        (f"{path.relative_to(PACKAGE)}:{node.lineno}", node)
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and "autocast" in ast.unparse(node.func)
    ]
    assert calls
    named = {"cuda", "cpu", "mps", "xpu"}
    for place, call in calls:
        constants = {n.value for n in ast.walk(call) if isinstance(n, ast.Constant)}
        assert not constants & named, place
    x = normal((1, 1, 5, 8), 0, torch.float32)
    expected = RotaryEmbedding(8).rotate(x)
    for enabled in (True, False):
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            assert torch.equal(RotaryEmbedding(8).rotate(x), expected)


def test_autocast_of_another_device_is_no_concern():
    """Autocast that is on for a device which x is not on neither warns nor fails."""
    x = normal((1, 1, 5, 8), 0, torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        assert RotaryEmbedding(8, device="meta").rotate(x.to("meta")).dtype == torch.float32


def test_no_spurious_recompiles():
    """flash-attention 911: each new length, and each new offset, was compiled anew."""
    torch.compiler.reset()
    graphs = []
    rotary = RotaryEmbedding(8, 128)

    def backend(graph, inputs):
        graphs.append(graph)
        return graph

    compiled = torch.compile(rotary.rotate, fullgraph=True, backend=backend)
    for length, offset in ((8, 2), (9, 3), (30, 50), (17, 4), (64, 64), (2, 33)):
        x = normal((1, 1, length, 8), 0, torch.float32)
        assert torch.equal(compiled(x, offset=offset), rotary.rotate(x, offset=offset))
    assert len(graphs) == 2  # the first call's, and one for every length and offset


def test_sequence_is_not_bounded_by_a_grid_axis():
    """65,535 is the most that CUDA's grid.y holds; position 65,536 and later must be rotated."""
    x = torch.ones(1, 1, 65_540, 2)
    out = RotaryEmbedding(2, 16).rotate(x)
    at = torch.arange(65_530, 65_540, dtype=torch.float64)
    expected = torch.stack((at.cos() - at.sin(), at.sin() + at.cos()), dim=-1)
    atol = tolerance(torch.float32, 2.0, operations=4)
    torch.testing.assert_close(out[0, 0, -10:].double(), expected, rtol=0, atol=atol)


def test_position_past_the_table_is_never_a_silent_identity():
    """flash-attn leaves such tokens unrotated, others read past its end; ours grows, or refuses."""
    x = normal((1, 1, 2, 8), 0)
    for ids in (torch.tensor([63, 64]), torch.tensor([[64, 0]])):
        with pytest.raises(ValueError, match=r"holds 64; the tables have 64 rows"):
            rotary_embedding(x, *tables(64), ids)
        with pytest.raises(ValueError, match=r"holds 64"):
            rotary_embedding_(x.clone(), *tables(64), ids)
    with pytest.raises(ValueError, match="1 rows and x a sequence of 2"):
        rotary_embedding(x, *tables(1))
    rotary = RotaryEmbedding(8, 4)
    expected = rotary_embedding(x.float(), *tables(2000), torch.tensor([7, 1999]))
    assert torch.equal(rotary.rotate(x.float(), torch.tensor([7, 1999])), expected)
    assert not torch.equal(expected, x.float())


#: Each defect and the test that shows us free of it, in whichever file it stands.
FREE_OF = {
    "bf16 inputs make bf16 positions": "test_bf16_inputs_make_no_bf16_positions",
    "bf16 poisons later fp32 calls": "test_a_call_in_bf16_leaves_later_calls_in_fp32_alone",
    "a cast of the model casts inv_freq": "test_a_cast_of_the_model_leaves_the_frequencies_alone",
    "angles through matmul or einsum": "test_angles_go_through_no_matrix_product",
    "angles in float32": "test_angles_are_not_float32",
    "dynamic NTK remembers its longest call": "test_dynamic_ntk_is_a_function_of_the_call_alone",
    "LongRoPE: stale keys": "test_longrope_switch_leaves_no_stale_keys_once_the_length_is_fixed",
    "inv_freq uninitialised after meta": "test_frequencies_are_never_uninitialised_after_meta",
    "in-place kernels that do not mark": "test_in_place_marks_its_input_as_changed",
    "backward overwrites": "test_backward_does_not_overwrite_the_gradient_it_is_given",
    "negative offset from left padding": "test_negative_offset_of_left_padding_is_refused",
    "packed positions never reset": "test_packed_positions_are_reset",
    "decode offset ignored": "test_decode_offset_is_not_ignored",
    "rope_scaling silently dropped": "test_rope_scaling_is_never_silently_dropped",
    "YaRN's mscale ignored": "test_yarn_mscale_is_not_ignored",
    "hard-coded cuda autocast": "test_no_device_is_named_in_the_code",
    "spurious recompiles": "test_no_spurious_recompiles",
    "grid.y": "test_sequence_is_not_bounded_by_a_grid_axis",
    "position past the table": "test_position_past_the_table_is_never_a_silent_identity",
}


@pytest.mark.parametrize("defect", FREE_OF)
def test_every_defect_has_its_test(defect):
    trees = [ast.parse(path.read_text()) for path in Path(__file__).parent.glob("test_*.py")]
    names = {
        node.name for tree in trees for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)
    }
    assert FREE_OF[defect] in names


def test_the_tests_named_here_assert_something():
    """An empty function of the right name would pass the test above."""
    for name in set(FREE_OF.values()) & set(globals()):
        source = inspect.getsource(globals()[name])
        assert "assert" in source or "raises" in source
