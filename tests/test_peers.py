"""Compare with independent oracles: transformers, rotary-embedding-torch and mpmath."""

import mpmath
import pytest
import torch
from strategies import normal, tolerance

from rope import RotaryEmbedding, inverse_frequencies, rotary_embedding, rotary_tables

llama = pytest.importorskip("transformers.models.llama.modeling_llama")
lucidrains = pytest.importorskip("rotary_embedding_torch")

DIM, LENGTH = 64, 50
# Two products of values below 6 and their sum are three roundings.
EXACT = tolerance(torch.float64, scale=6, operations=3)
# Both packages compute angles as float32 products, with errors up to eps times the largest angle.
ANGLE = LENGTH * torch.finfo(torch.float32).eps


def by_transformers(x):
    cos, sin = rotary_tables(LENGTH, inverse_frequencies(DIM), dtype=x.dtype)
    doubled = (torch.cat((table, table), dim=-1)[None] for table in (cos, sin))
    return llama.apply_rotary_pos_emb(x, x, *doubled)[1]


def by_lucidrains(x):
    freqs = torch.outer(torch.arange(LENGTH).double(), inverse_frequencies(DIM))
    return lucidrains.apply_rotary_emb(freqs.repeat_interleave(2, dim=-1), x)


@pytest.mark.parametrize(
    ("theirs", "interleaved"), [(by_transformers, False), (by_lucidrains, True)]
)
def test_their_functions_are_our_two_layouts(theirs, interleaved):
    x = normal((2, 4, LENGTH, DIM), 0)
    tables = rotary_tables(LENGTH, inverse_frequencies(DIM), dtype=torch.float64)
    ours = rotary_embedding(x, *tables, interleaved=interleaved)
    torch.testing.assert_close(ours, theirs(x), rtol=0, atol=EXACT)


def test_their_layers_agree_up_to_float32_angles():
    x = normal((2, 4, LENGTH, DIM), 0).float()
    config = llama.LlamaConfig(hidden_size=4 * DIM, num_attention_heads=4)
    cos, sin = llama.LlamaRotaryEmbedding(config)(x, torch.arange(LENGTH)[None])
    half = llama.apply_rotary_pos_emb(x, x, cos, sin)[0]
    pairs = lucidrains.RotaryEmbedding(dim=DIM).rotate_queries_or_keys(x)
    for theirs, interleaved in ((half, False), (pairs, True)):
        ours, _ = RotaryEmbedding(DIM, interleaved=interleaved)(x, x)
        torch.testing.assert_close(ours, theirs, rtol=0, atol=12 * ANGLE)


@pytest.mark.parametrize("m", [1234, 1_000_003])
@pytest.mark.parametrize("interleaved", [False, True])
def test_against_mpmath(interleaved, m):
    """Compare each plane with a complex product in 40 digits; float32 angles could not pass."""
    x = normal((1, 1, 1, 8), 0)
    cos, sin = rotary_tables(torch.tensor([m]), inverse_frequencies(8), dtype=torch.float64)
    out = rotary_embedding(x, cos, sin, interleaved=interleaved)[0, 0, 0]
    for j in range(4):
        a, b = (2 * j, 2 * j + 1) if interleaved else (j, j + 4)
        with mpmath.workdps(40):
            rotation = mpmath.expj(m * mpmath.mpf(10000) ** (-mpmath.mpf(2 * j) / 8))
            exact = mpmath.mpc(x[0, 0, 0, a].item(), x[0, 0, 0, b].item()) * rotation
        allowed = 2 * m * tolerance(torch.float64, scale=6)  # the float64 angle
        assert abs(out[a].item() - float(exact.real)) < allowed
        assert abs(out[b].item() - float(exact.imag)) < allowed
