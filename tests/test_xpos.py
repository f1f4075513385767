import math

import mpmath
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from strategies import DTYPES, check_raises, even, layouts, normal, quick, seeds, tolerance

from rope import RotaryEmbedding
from rope.layouts import half_to_interleaved
from rope.xpos import XPos

positions = st.integers(0, 2000)
F64 = torch.float64
# Roundings of angles up to 2,000, of exponents up to 3,000/512 ln 3.5 = 7.4, and of later steps.
RELATIVE = 2000 * tolerance(F64, operations=4) + 7.4 * tolerance(F64, operations=8)


def at(*places):
    return torch.tensor(places)


def law(q, k, m, n, dim, scale_base=512.0, base=10000.0):
    """Return the score by the formula in the module's docstring, with fifty digits."""
    with mpmath.workdps(50):
        total = mpmath.mpf(0)
        for j in range(dim // 2):
            a, b = (mpmath.mpc(*(x[i].item() for i in (2 * j, 2 * j + 1))) for x in (q, k))
            zeta = (mpmath.mpf(2 * j) / dim + mpmath.mpf("0.4")) / mpmath.mpf("1.4")
            angle = (m - n) * mpmath.mpf(base) ** (-mpmath.mpf(2 * j) / dim)
            plane = a * mpmath.conj(b) * mpmath.expj(angle)
            total += zeta ** ((m - n) / mpmath.mpf(scale_base)) * mpmath.re(plane)
        return float(total)


@quick
@given(even, positions, positions, layouts, seeds)
def test_the_score_law(dim, m, n, interleaved, seed):
    q, k = normal((2, dim), seed)
    expected = law(q, k, m, n, dim)
    if not interleaved:
        half = [torch.cat((x[0::2], x[1::2])) for x in (q, k)]
        assert torch.equal(half_to_interleaved(half[0]), q)
        q, k = half
    xpos = XPos(dim, interleaved=interleaved)
    q, k = q.expand(1, 1, 1, dim), k.expand(1, 1, 1, dim)
    score = (xpos.rotate_queries(q, at(m)) * xpos.rotate_keys(k, at(n))).sum()
    # A key at a later position is amplified by up to 3.5 ** (2,000/512).
    allowed = RELATIVE * float(q.norm() * k.norm()) * max(1.0, 3.5 ** ((n - m) / 512))
    assert abs(score.item() - expected) <= allowed


@quick
@given(even, positions, layouts, seeds)
def test_inverse_undoes_both(dim, m, interleaved, seed):
    xpos = XPos(dim, interleaved=interleaved)
    q, k = normal((2, 1, 2, 3, dim + 1), seed)
    back = xpos(*xpos(q, k, at(m, 0, m)), at(m, 0, m), inverse=True)
    for there, x in zip(back, (q, k), strict=True):
        torch.testing.assert_close(there, x, rtol=0, atol=tolerance(F64, scale=8, operations=8))


@pytest.mark.parametrize("dtype", DTYPES)
def test_within_reach_the_scales_take_half_of_the_exponents(dtype):
    x, half = torch.ones(1, 1, 1, 8, dtype=dtype), torch.finfo(dtype).tiny ** 0.5
    far = math.floor(XPos(8).reach(dtype))
    for ids in (at(far), at(-far)):
        for out in XPos(8)(x, x, ids):
            size = out[..., ::4].double().norm()  # plane 0: sqrt(2) times its scale
            assert out.isfinite().all()
            assert half / 2 < size < 2 / half
    with pytest.raises(ValueError, match=rf"{far + 1}.*scale_base"):
        XPos(8)(x, x, offset=far + 1)


@pytest.mark.parametrize("dtype", DTYPES)
def test_without_decay_it_is_rope(dtype):
    """Check that a huge scale_base, where every scale rounds to 1, gives RotaryEmbedding's bits."""
    q, k = normal((2, 4, 9, 10), 0, dtype), normal((2, 2, 9, 10), 1, dtype)
    plain = RotaryEmbedding(8)(q, k, offset=5)
    for ours, theirs in zip(XPos(8, scale_base=1e30)(q, k, offset=5), plain, strict=True):
        assert torch.equal(ours, theirs)


def test_positions_can_be_given_in_every_way():
    xpos = XPos(8)
    q, k = normal((2, 4, 3, 8), 0), normal((2, 2, 3, 8), 1)
    ids = torch.tensor([[7, 8, 9], [4, 0, 4]])
    out = xpos(q, k, ids)
    for row in range(2):
        one_row = xpos(q[row : row + 1], k[row : row + 1], ids[row])
        assert all(torch.equal(a[row], b[0]) for a, b in zip(out, one_row, strict=True))
    assert torch.equal(xpos(q, k, offset=7)[0][0], out[0][0])
    assert xpos(q[:, :, :0], k[:, :, :0])[0].shape == (2, 4, 0, 8)


def test_decoding_with_a_cache_is_the_whole_sequence():
    """Check that keys rotated once and cached match later queries."""
    xpos = XPos(8, scale_base=16.0)
    q, k = normal((1, 2, 40, 8), 0), normal((1, 2, 40, 8), 1)
    whole_q, whole_k = xpos(q, k)
    cache = [xpos.rotate_keys(k[:, :, n : n + 1], offset=n) for n in range(40)]
    assert torch.equal(torch.cat(cache, dim=2), whole_k)
    assert torch.equal(xpos.rotate_queries(q[:, :, 39:], offset=39), whole_q[:, :, 39:])


def test_rotary_embedding_torch():
    peer_module = pytest.importorskip("rotary_embedding_torch")
    dim, length = 32, 50
    peer = peer_module.RotaryEmbedding(dim=dim, use_xpos=True)
    q, k = normal((2, 1, 2, length, dim), 0, torch.float32)
    ours, theirs = (
        q @ k.mT
        for q, k in (
            XPos(dim, interleaved=True)(q, k, torch.arange(length) - length // 2),
            peer.rotate_queries_and_keys(q, k),
        )
    )
    # Their angles, up to 50, and their scales are in float32.
    allowed = 12 * (length + 8) * torch.finfo(torch.float32).eps * float(ours.abs().max())
    torch.testing.assert_close(ours, theirs.detach(), rtol=0, atol=allowed)


def test_compiles_without_a_break():
    torch.compiler.reset()
    xpos, (q, k) = XPos(8), normal((2, 2, 2, 3, 8), 0)
    compiled = torch.compile(xpos, fullgraph=True, backend="eager")
    ids = torch.tensor([[0, 7, 9], [1, 1, 1]])
    eager = xpos(q, k, ids, inverse=True)
    for ours, theirs in zip(compiled(q, k, ids, inverse=True), eager, strict=True):
        assert torch.equal(ours, theirs)
    with pytest.raises(RuntimeError, match="144760"):
        compiled(q, k, ids + 10**6, inverse=True)


Q = torch.ones(1, 2, 3, 8)
V, T = ValueError, TypeError
BAD = [  # (call, exception, words in its message)
    (lambda: XPos(7), V, "dim 7"),
    (lambda: XPos(8, 0.0), V, "scale_base 0.0"),
    (lambda: XPos(8, interleaved=1), T, "interleaved 1"),
    (lambda: XPos(8)(Q, Q, offset=18_000), V, "18002 scale_base=512 17847"),
    (lambda: XPos(8)(Q, Q, offset=17_846), V, "17848"),
    (lambda: XPos(8)(Q, Q, at(0, -20_000, 5)), V, "-20000 17847"),
    (lambda: XPos(8)(Q, Q.half(), offset=2000), V, "2002 1983"),
    (lambda: XPos(8)(Q, Q, offset=-1), V, "offset -1"),
    (lambda: XPos(8)(Q, Q[:, :, :2]), V, "q [1, 2, 3, 8] k [1, 2, 2, 8]"),
    (lambda: XPos(8)(Q, Q, at(0.0, 1, 2)), T, "position_ids torch.float32"),
    (lambda: XPos(8)(Q, Q, inverse="no"), T, "inverse 'no'"),
]


@pytest.mark.parametrize(("call", "kind", "words"), BAD, ids=[bad[2] for bad in BAD])
def test_bad_calls_are_named(call, kind, words):
    check_raises(call, kind, words)
