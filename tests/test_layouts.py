import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from strategies import check_raises, even, normal, quick, seeds, tolerance

from rope import inverse_frequencies, layouts, rotary_embedding, rotary_tables


@quick
@given(even, st.integers(0, 3), seeds)
def test_one_rotation_in_two_orders(dim, spare, seed):
    x = normal((1, 2, 5, dim + spare), seed)
    cos, sin = rotary_tables(5, inverse_frequencies(dim), dtype=torch.float64)
    half = rotary_embedding(layouts.interleaved_to_half(x, dim), cos, sin)
    interleaved = rotary_embedding(x, cos, sin, interleaved=True)
    assert torch.equal(half, layouts.interleaved_to_half(interleaved, dim))


@quick
@given(even, st.integers(0, 3), seeds)
def test_conversions_are_inverse_and_copy(dim, spare, seed):
    x = normal((3, dim + spare), seed)
    before = x.clone()
    there = layouts.interleaved_to_half(x, dim)
    assert torch.equal(layouts.half_to_interleaved(there, dim), x)
    assert torch.equal(layouts.interleaved_to_half(layouts.half_to_interleaved(x, dim), dim), x)
    there.zero_()
    assert torch.equal(x, before)


@pytest.mark.parametrize("rotary_dim", [None, 4])
@pytest.mark.parametrize("shape", [(18, 5), (18,)])
def test_projections_convert_head_by_head(shape, rotary_dim):
    weight = torch.nn.Parameter(normal(shape, 0))
    before = weight.detach().clone()
    half = layouts.projection_interleaved_to_half(weight, 3, rotary_dim)
    heads = weight.unflatten(0, (3, 6)).movedim(1, -1)  # [H, E, D]
    expected = layouts.interleaved_to_half(heads, rotary_dim).movedim(-1, 1).flatten(0, 1)
    assert torch.equal(half, expected)
    assert half.shape == weight.shape
    for to_half, start, wanted in ((True, weight, half), (False, half, weight)):
        options = {"to_half": to_half, "rotary_dim": rotary_dim}
        converted = layouts.convert_state_dict({"q.weight": start}, {"q.*": 3}, **options)
        assert torch.equal(converted["q.weight"], wanted)
    half.detach().zero_()
    assert torch.equal(weight, before)


def test_a_converted_projection_gives_the_same_scores():
    x, (w_q, w_k) = normal((1, 7, 12), 0), normal((2, 12, 12), 1)
    tables = rotary_tables(7, inverse_frequencies(6), dtype=torch.float64)

    def scores(w_q, w_k, interleaved):
        q, k = ((x @ w.T).unflatten(-1, (2, 6)).transpose(1, 2) for w in (w_q, w_k))
        q, k = (rotary_embedding(y, *tables, interleaved=interleaved) for y in (q, k))
        return q @ k.mT

    convert = layouts.projection_interleaved_to_half
    expected = scores(w_q, w_k, True)
    allowed = tolerance(torch.float64, scale=expected.abs().max().item(), operations=40)
    converted = scores(convert(w_q, 2), convert(w_k, 2), False)
    torch.testing.assert_close(converted, expected, rtol=0, atol=allowed)
    assert (scores(w_q, w_k, False) - expected).abs().max() > 1  # the weights' layout matters


def checkpoint(num_layers=2):
    """Return a state dict with two query heads and one key head of 8 coordinates each."""
    return {
        f"layers.{layer}.{name}.{kind}": torch.randn(shape)
        for layer in range(num_layers)
        for name, rows in (("q_proj", 16), ("k_proj", 8), ("v_proj", 8), ("o_proj", 16))
        for kind, shape in (("weight", (rows, 6)), ("bias", (rows,)))
    }


@pytest.mark.parametrize("rotary_dim", [None, 4])
def test_a_whole_checkpoint_is_converted_by_name_patterns(rotary_dim):
    before, heads = checkpoint(), {"*.q_proj.*": 2, "*.k_proj.*": 1}
    copies = {name: tensor.clone() for name, tensor in before.items()}
    after = layouts.convert_state_dict(before, heads, to_half=True, rotary_dim=rotary_dim)
    assert list(after) == list(before)
    for name, tensor in after.items():
        assert torch.equal(before[name], copies[name])
        if ".v_proj" in name or ".o_proj" in name:
            assert tensor is before[name]
        else:
            num_heads = 2 if ".q_proj" in name else 1
            expected = layouts.projection_interleaved_to_half(before[name], num_heads, rotary_dim)
            assert torch.equal(tensor, expected)
    back = layouts.convert_state_dict(after, heads, to_half=False, rotary_dim=rotary_dim)
    assert all(torch.equal(back[name], before[name]) for name in before)


BAD = [  # (heads by pattern, words in the message)
    ({"*.query.*": 2}, "*.query.* 16"),
    ({"*.q_proj.*": 2, "layers.0.*": 1}, "layers.0.q_proj.weight layers.0.*"),
    ({"*.q_proj.*": 3}, "layers.0.q_proj.weight 3"),
    ({"*.[qk]_proj.*": 2}, "[4, 8]"),
]


@pytest.mark.parametrize(("heads", "words"), BAD, ids=[bad[1] for bad in BAD])
def test_a_checkpoint_that_does_not_fit_raises(heads, words):
    convert = lambda: layouts.convert_state_dict(checkpoint(), heads, to_half=True)
    check_raises(convert, ValueError, words)


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("qkv_proj.weight", torch.float32),
        ("h.0.query_key_value.bias", torch.float32),
        ("h.0.c_attn.weight", torch.float32),
        ("q_proj.lora_A.weight", torch.float32),
        ("q_proj.lora_down.weight", torch.float32),
        ("q_proj.qweight", torch.int32),
        ("q_proj.scales", torch.float32),
        ("q_proj.weight", torch.float8_e4m3fn),
        ("q_proj.weight", torch.int32),
    ],
)
def test_tensors_without_one_row_per_coordinate_raise(name, dtype):
    state = {name: torch.ones(16, 6).to(dtype)}
    convert = lambda: layouts.convert_state_dict(state, {"*": 4}, to_half=True)
    check_raises(convert, ValueError, name)


def test_the_second_factor_of_lora_is_converted():
    lora = {"q_proj.lora_A.weight": torch.randn(16, 6), "q_proj.lora_B.weight": NORM}
    second = layouts.convert_state_dict(lora, {"*.lora_B.*": 4}, to_half=True)
    assert second["q_proj.lora_A.weight"] is lora["q_proj.lora_A.weight"]
    expected = layouts.projection_interleaved_to_half(NORM, 4)
    assert torch.equal(second["q_proj.lora_B.weight"], expected)


NORM = torch.arange(16.0)


def test_a_norm_within_heads_is_converted_as_one_head():
    converted = layouts.convert_state_dict({"q_norm.weight": NORM}, {"q_norm.*": 1}, to_half=True)
    assert torch.equal(converted["q_norm.weight"], layouts.interleaved_to_half(NORM))


def test_a_state_dict_keeps_its_metadata():
    state = torch.nn.Linear(6, 16).state_dict()
    converted = layouts.convert_state_dict(state, {"*": 2}, to_half=True)
    assert type(converted) is type(state) and converted._metadata == state._metadata
