"""Against the two packages the field uses, and mpmath: oracles that are not ours."""

import mpmath
import pytest
import torch
from strategies import normal, tolerance

from rope import RotaryEmbedding, inverse_frequencies, rotary_embedding, rotary_tables

llama = pytest.importorskip("transformers.models.llama.modeling_llama")
lucidrains = pytest.importorskip("rotary_embedding_torch")

DIM, LENGTH = 64, 50
# Two products of values below 6 and a sum: three roundings.
EXACT = tolerance(torch.float64, scale=6, operations=3)


@pytest.fixture
def qk():
    return normal((2, 4, LENGTH, DIM), 0), normal((2, 2, LENGTH, DIM), 1)


def tables(dtype=torch.float64):
    return rotary_tables(LENGTH, inverse_frequencies(DIM), dtype=dtype)


def test_transformers_operation_is_the_half_split_layout(qk):
    cos, sin = (torch.cat((t, t), dim=-1)[None] for t in tables())
    for ours, theirs in zip(
        (rotary_embedding(x, *tables()) for x in qk),
        llama.apply_rotary_pos_emb(*qk, cos, sin),
        strict=False,
    ):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=EXACT)


def test_transformers_module(qk):
    config = llama.LlamaConfig(hidden_size=4 * DIM, num_attention_heads=4)
    module = llama.LlamaRotaryEmbedding(config)
    cos, sin = module(qk[0].float(), torch.arange(LENGTH)[None])
    # Their angles are float32 products, off by up to eps of the largest.
    allowed = LENGTH * torch.finfo(torch.float32).eps
    torch.testing.assert_close(cos[0, :, : DIM // 2].double(), tables()[0], rtol=0, atol=allowed)
    theirs = llama.apply_rotary_pos_emb(*(x.float() for x in qk), cos, sin)
    for our, their in zip(RotaryEmbedding(DIM)(*(x.float() for x in qk)), theirs, strict=True):
        torch.testing.assert_close(our, their, rtol=0, atol=12 * allowed)


def test_rotary_embedding_torch_is_the_interleaved_layout(qk):
    freqs = torch.outer(torch.arange(LENGTH).double(), inverse_frequencies(DIM))
    freqs = freqs.repeat_interleave(2, dim=-1)
    for x in qk:
        theirs = lucidrains.apply_rotary_emb(freqs, x)
        ours = rotary_embedding(x, *tables(), interleaved=True)
        torch.testing.assert_close(ours, theirs, rtol=0, atol=EXACT)


def test_rotary_embedding_torch_module(qk):
    module = lucidrains.RotaryEmbedding(dim=DIM)
    x = qk[0].float()
    ours, _ = RotaryEmbedding(DIM, interleaved=True)(x, x)
    allowed = 12 * LENGTH * torch.finfo(torch.float32).eps  # float32 angles again
    torch.testing.assert_close(ours, module.rotate_queries_or_keys(x), rtol=0, atol=allowed)


@pytest.mark.parametrize("m", [1234, 1_000_003])
@pytest.mark.parametrize("interleaved", [False, True])
def test_against_mpmath(interleaved, m):
    """Each plane as one complex product in 40 digits: a float32 angle would be off by 0.02."""
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
