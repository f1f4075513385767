"""Rotated values and compressed entries: DeepSeek-V4's attention, beside transformers' own."""

import pytest
import torch
from torch import nn

from rope import RotaryEmbedding
from rope.attention.compressed import CompressedAttention, CompressedCache
from rope.extensions import YaRN

KINDS = ("sliding_attention", "heavily_compressed_attention", "compressed_sparse_attention")
E, H, D, R, RATIO, WINDOW, TOP = 24, 4, 16, 8, 4, 5, 3
YARN = {"rope_type": "yarn", "factor": 16.0, "original_max_position_embeddings": 64}


def random_(layer, seed):
    """Weights whose products have the size of their inputs; sinks and biases of size 1."""
    noise = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, x in layer.named_parameters():
            scale = x.shape[-1] ** -0.5 if x.dim() == 2 and "bias" not in name else 0.5
            x.copy_(scale * torch.randn(x.shape, generator=noise) + ("norm" in name))
    return layer


class Theirs:
    """transformers' layer alone: rotation, mask and cache are made as its model makes them."""

    def __init__(self, kind, seed=0, scaling=None):
        self.modeling = pytest.importorskip(
            "transformers.models.deepseek_v4.modeling_deepseek_v4", reason="no DeepSeek-V4 there"
        )
        from transformers import DeepseekV4Config
        from transformers.cache_utils import DynamicCache

        config = DeepseekV4Config(
            hidden_size=E, num_attention_heads=H, head_dim=D, q_lora_rank=12, o_groups=2,
            o_lora_rank=6, num_hidden_layers=1, layer_types=[kind], sliding_window=WINDOW,
            index_n_heads=3, index_head_dim=12, index_topk=TOP, partial_rotary_factor=R / D,
            compress_rates=dict.fromkeys(KINDS[1:], RATIO), rope_parameters=scaling,
            attn_implementation="eager",
        )  # fmt: skip
        self.layer = random_(self.modeling.DeepseekV4Attention(config, 0), seed)
        self.rotary = self.modeling.DeepseekV4RotaryEmbedding(config)
        self.cache, self.next, self.kinds = DynamicCache(config=config), 0, ("main", "compress")

    def __call__(self, x):
        ids = torch.arange(self.next, self.next + x.shape[1])
        kept = min(self.next, WINDOW - 1)
        behind = ids[:, None] - torch.arange(self.next - kept, self.next + x.shape[1])
        mask = torch.zeros(len(x), 1, *behind.shape)
        mask.masked_fill_((behind < 0) | (behind >= WINDOW), -torch.inf)
        rows = ids.expand(len(x), -1)
        tables = {kind: self.rotary(x, rows, layer_type=kind) for kind in self.kinds}
        self.next += x.shape[1]
        with torch.no_grad():
            return self.layer(x, tables, rows, mask, past_key_values=self.cache)[0]


def ours(kind, weights=None, rotary=None, seed=0):
    plain = RotaryEmbedding(R, base=1e4 if kind == KINDS[0] else 160_000.0, interleaved=True)
    layer = CompressedAttention(
        E, H, D, query_dim=12, groups=2, group_dim=6, window=WINDOW, rotary=rotary or plain,
        ratio=None if kind == KINDS[0] else RATIO, index=(3, 12, TOP) if kind == KINDS[2] else None,
    )  # fmt: skip
    if weights is None:
        return random_(layer, seed)
    layer.load_state_dict(weights)  # under the same names
    return layer


def tokens(length, seed=1, rows=2):
    noise = torch.Generator().manual_seed(seed)
    return torch.randn(rows, length, E, generator=noise)


def in_parts(layer, x, parts, start=0):
    cache = CompressedCache(start)
    with torch.no_grad():
        return torch.cat([layer(part, cache) for part in x.split(parts, dim=1)], dim=1)


PARTS = {"at once": [23], "token by token": [1] * 23, "prefill, then tokens": [10, *[1] * 13],
         "in pieces": [3, 7, 1, 12]}  # fmt: skip


@pytest.mark.parametrize("parts", PARTS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", [0, 1])
def test_it_is_that_of_transformers(kind, parts, seed):
    theirs, x = Theirs(kind, seed), tokens(23)
    expected = torch.cat([theirs(part) for part in x.split(PARTS[parts], dim=1)], dim=1)
    found = in_parts(ours(kind, theirs.layer.state_dict()), x, PARTS[parts])
    torch.testing.assert_close(found, expected, rtol=0, atol=2.0**-18)


def test_yarn_multiplies_nothing_there():
    """The configuration sets attention_factor to 1, where YaRN's formula gives 1.277."""
    theirs, x = Theirs(KINDS[1], scaling=YARN), tokens(23)
    expected = theirs(x)
    for factor, same in ((1.0, True), (None, False)):
        yarn = YaRN(16.0, 64, attention_factor=factor)
        rotary = RotaryEmbedding(R, base=160_000.0, interleaved=True, extension=yarn)
        found = in_parts(ours(KINDS[1], theirs.layer.state_dict(), rotary), x, [23])
        assert torch.allclose(found, expected, rtol=0, atol=2.0**-18) == same
