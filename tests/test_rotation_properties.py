"""Test the laws of rotations for random shapes, strides, dtypes, layouts, positions, extensions.

Laws that rounding disturbs are tested with an error bound, and all others bit for bit. The bound
for one rotation counts one rounding each of table, product and sum in the arithmetic's dtype, on
pairs of length at most sqrt(2) max |x|, and then one rounding to x's dtype.
"""

import math
from dataclasses import dataclass

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from strategies import DTYPES, even, layouts, normal, quick, seeds, sizes, tolerance

from rope import RotaryEmbedding
from rope.extensions import NTK, DynamicNTK, Linear, Llama3, LongRoPE, Proportional, YaRN

FAR = 2000  # the largest position drawn


def allowed(x, times=1, reach=FAR):
    """Return the error bound for `times` rotations of x: arithmetic, rounding, float64 angle."""
    size = float(x.abs().max()) if x.numel() else 0.0
    wide = torch.promote_types(x.dtype, torch.float32)
    arithmetic = tolerance(wide, size * math.sqrt(2), operations=3)
    rounding = tolerance(x.dtype, size * math.sqrt(2), operations=1)
    subnormal = torch.finfo(x.dtype).smallest_normal * torch.finfo(x.dtype).eps
    # Roundings of theta and of its product with the position, here and in the oracle.
    angle = tolerance(torch.float64, reach * size * math.sqrt(2), operations=4)
    return times * (arithmetic + rounding + subnormal + angle)


@st.composite
def views(draw, shape, dtype):
    """Draw a tensor of this shape with a random memory layout: dense, stepped, expanded, sliced."""
    seed, kind = draw(seeds), draw(st.sampled_from(("dense", "stepped", "expanded", "inner")))
    order = draw(st.permutations(range(4)))
    back = [order.index(axis) for axis in range(4)]
    stored = [shape[axis] for axis in order]
    at = draw(st.integers(0, 3))
    if kind == "dense":
        return normal(stored, seed, dtype).permute(back)
    if kind == "stepped":
        stored[at] *= 2
        return normal(stored, seed, dtype)[(slice(None),) * at + (slice(1, None, 2),)].permute(back)
    if kind == "expanded":
        single = [1 if axis == at else size for axis, size in enumerate(stored)]
        return normal(single, seed, dtype).expand(stored).permute(back)
    stored[at] += 3  # a slice of a wider tensor, as q is of qkv
    return normal(stored, seed, dtype).narrow(at, 2, stored[at] - 3).permute(back)


@dataclass
class Case:
    q: torch.Tensor
    k: torch.Tensor
    rotary: RotaryEmbedding
    where: dict  # the position arguments for a call
    ids: torch.Tensor  # the same positions as ids [B, S]


@st.composite
def cases(draw, dtypes=DTYPES):
    dtype, dim, spare = draw(st.sampled_from(dtypes)), draw(even), draw(st.integers(0, 3))
    batch, heads, kv_heads, length = (draw(sizes) for _ in range(4))
    q = draw(views((batch, heads, length, dim + spare), dtype))
    k = draw(views((batch, kv_heads, length, dim + spare), dtype))
    kind = draw(st.sampled_from(("none", "offset", "rows", "batch", "packed")))
    position = st.integers(0, FAR)
    where, ids = {}, torch.arange(length)
    if kind == "offset":
        where["offset"] = draw(position)
        ids = ids + where["offset"]
    elif kind == "rows":
        ids = torch.tensor(draw(st.lists(position, min_size=length, max_size=length)))
    elif kind == "batch":
        row = st.lists(position, min_size=length, max_size=length)
        ids = torch.tensor(draw(st.lists(row, min_size=batch, max_size=batch)))
    elif kind == "packed":
        ids = ids % draw(st.integers(1, length))
    if kind in ("rows", "batch", "packed"):
        where["position_ids"] = ids.to(draw(st.sampled_from((torch.int16, torch.int64))))
    rotary = RotaryEmbedding(dim, 4, interleaved=draw(layouts))
    return Case(q, k, rotary, where, ids.expand(batch, length))


@quick
@given(cases())
def test_norm_is_kept(case):
    out = case.rotary.rotate(case.q, **case.where)
    norms = [x.double().norm(dim=-1) for x in (out, case.q)]
    # Each coordinate is off by at most `allowed`, so the norm by at most sqrt(D) times that.
    atol = allowed(case.q) * math.sqrt(case.q.shape[-1])
    torch.testing.assert_close(*norms, rtol=0, atol=atol)


@quick
@given(cases())
def test_group_law(case):
    """Check R_a R_b = R_(a+b), with a different a and b for every token."""
    more = case.ids.flip(-1)
    twice = case.rotary.rotate(case.rotary.rotate(case.q, **case.where), more)
    once = case.rotary.rotate(case.q, case.ids + more)
    torch.testing.assert_close(twice, once, rtol=0, atol=allowed(case.q, times=4, reach=2 * FAR))


@quick
@given(cases(), st.integers(0, FAR))
def test_scores_depend_on_relative_positions_only(case, shift):
    near, far = (case.rotary(case.q, case.k, ids) for ids in (case.ids, case.ids + shift))
    scores = [(q.double()[:, :1] @ k.double()[:, :1].mT) for q, k in (near, far)]
    sizes = [x.abs().max() * x.shape[-1] for x in (case.q.double(), case.k.double())]
    atol = 2 * sum(
        # Two scores, each with errors in both vectors, and the products of these errors.
        allowed(x, reach=2 * FAR) * float(size) * math.sqrt(2) * 2
        for x, size in zip((case.q, case.k), reversed(sizes), strict=True)
    )
    torch.testing.assert_close(*scores, rtol=0, atol=atol)


@quick
@given(cases((torch.float32, torch.float64)), st.floats(-4, 4), st.floats(-4, 4), seeds)
def test_linear(case, a, b, seed):
    y = normal(case.q.shape, seed, case.q.dtype)
    of_sum = case.rotary.rotate(a * case.q + b * y, **case.where)
    x, y_rotated = (case.rotary.rotate(z, **case.where) for z in (case.q, y))
    # Both sides compute two products and a sum in addition to the rotation.
    atol = sum(4 * abs(factor) * allowed(z) for factor, z in ((a, case.q), (b, y)))
    tiny = torch.finfo(case.q.dtype).smallest_normal
    torch.testing.assert_close(of_sum, a * x + b * y_rotated, rtol=0, atol=atol + tiny)


@quick
@given(cases(), st.data())
def test_each_vector_is_rotated_by_itself(case, data):
    """Check bit for bit that the other rows, heads and tokens don't affect a vector's rotation."""
    whole = case.rotary.rotate(case.q, **case.where)
    b, h, s = (data.draw(st.integers(0, size - 1)) for size in case.q.shape[:3])
    single = case.rotary.rotate(case.q[b, h, s][None, None, None], case.ids[b, s : s + 1])
    assert torch.equal(single[0, 0, 0], whole[b, h, s])


@quick
@given(cases())
def test_positions_of_every_form_are_the_same(case):
    out = case.rotary.rotate(case.q, **case.where)
    assert torch.equal(out, case.rotary.rotate(case.q, case.ids))
    for x, both in zip((case.q, case.k), case.rotary(case.q, case.k, case.ids), strict=True):
        assert torch.equal(both, case.rotary.rotate(x, **case.where))
    still = torch.zeros(case.q.shape[2], dtype=torch.long)
    assert torch.equal(case.rotary.rotate(case.q, still), case.q)


@quick
@given(cases(), layouts)
def test_strides_do_not_show(case, inverse):
    """Check that a view gives the same result as its contiguous copy and stays unchanged."""
    before = case.q.clone(memory_format=torch.contiguous_format)
    out = case.rotary.rotate(case.q, **case.where, inverse=inverse)
    assert torch.equal(out, case.rotary.rotate(before, **case.where, inverse=inverse))
    assert torch.equal(case.q, before)
    assert out.data_ptr() != case.q.data_ptr()


@quick
@given(cases(), layouts)
def test_in_place_is_the_same_map(case, inverse):
    expected = case.rotary(case.q, case.k, **case.where, inverse=inverse)
    if 0 in case.q.stride() + case.k.stride():
        case.q, case.k = (x.clone(memory_format=torch.contiguous_format) for x in (case.q, case.k))
    outs = case.rotary(case.q, case.k, **case.where, inverse=inverse, inplace=True)
    for out, x, y in zip(outs, (case.q, case.k), expected, strict=True):
        assert out is x
        assert torch.equal(out, y)


def extensions(dim):
    ramp = tuple(1 + j / dim for j in range(dim // 2))
    return {
        "linear": Linear(4.0),
        "ntk": NTK(4.0),
        "dynamic": DynamicNTK(4.0, 64),
        "yarn": YaRN(4.0, 64),
        "yarn with weights": YaRN(40.0, 64, mscale=0.707, mscale_all_dim=1.0),
        "llama3": Llama3(8.0, 64),
        "longrope": LongRoPE(ramp, tuple(4 * f for f in ramp), 64, factor=4.0),
        "proportional": Proportional(0.5),
    }


@pytest.mark.parametrize("name", extensions(4))
@quick
@given(cases(), st.sampled_from((4, 8, 16)), st.booleans())
def test_inverse_undoes_it(name, case, dim, inplace):
    """Check that the inverse undoes the rotation, including the attention scaling."""
    extension = extensions(dim)[name]
    x = torch.cat([case.q] * math.ceil(dim / case.q.shape[-1]), dim=-1)
    rotary = RotaryEmbedding(dim, 4, extension=extension, interleaved=case.rotary.interleaved)
    there = rotary.rotate(x, **case.where)
    scaled = there[..., :dim].double().norm(dim=-1)
    plain = x[..., :dim].double().norm(dim=-1) * extension.attention_scaling
    atol = 2 * allowed(x) * math.sqrt(dim) * max(1, extension.attention_scaling)
    torch.testing.assert_close(scaled, plain, rtol=0, atol=atol)
    back = rotary.rotate(there, **case.where, inverse=True, inplace=inplace)
    worst = max(extension.attention_scaling, 1 / extension.attention_scaling)
    torch.testing.assert_close(back, x, rtol=0, atol=4 * worst * allowed(x))


@quick
@given(cases(), seeds)
def test_backward_is_the_inverse_rotation(case, seed):
    x = case.q.clone().requires_grad_()
    upstream = normal(x.shape, seed, x.dtype)
    (gradient,) = torch.autograd.grad(case.rotary.rotate(x, **case.where), x, upstream)
    expected = case.rotary.rotate(upstream, **case.where, inverse=True)
    # The two parts of the gradient are rounded to x's dtype before they are added.
    torch.testing.assert_close(gradient, expected, rtol=0, atol=4 * allowed(upstream))
