"""Test transformers models whose attention is replaced by `RotaryAttention` and its cache.

The oracle is the original model with its own caches: dynamic, static and sliding. Both models have
the same weights and run in float64, but transformers computes the angles in float32.
"""

import itertools

import pytest
import torch
from strategies import tolerance
from torch import nn

from rope import RotaryEmbedding
from rope.attention import KVCache, RotaryAttention

transformers = pytest.importorskip("transformers")

SIZES = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2)
SIZES |= dict(
    intermediate_size=32, vocab_size=40, initializer_range=0.3, max_position_embeddings=64
)
WINDOW, PROMPT, STEPS = 6, 9, 5


class Ours(nn.Module):
    """Replace a layer's attention, and hold the cache and the padding mask."""

    def __init__(self, theirs, rotary, window, batch, room):
        super().__init__()
        self.layer = RotaryAttention(32, 4, 2, rotary=rotary, window=window)
        self.layer.load_state_dict(theirs.state_dict())
        self.layer.double()
        self.cache = KVCache(batch, 2, room, 8, dtype=torch.float64)
        self.mask = None

    def forward(self, hidden_states, **others):
        return self.layer(hidden_states, cache=self.cache, attention_mask=self.mask), None


def build(name):
    torch.manual_seed(1)
    more = dict(sliding_window=WINDOW) if name == "Mistral" else {}
    config = getattr(transformers, name + "Config")(**SIZES, **more)
    return getattr(transformers, name + "ForCausalLM")(config).eval().double()


def with_our_attention(name, batch):
    model, window = build(name), WINDOW if name == "Mistral" else None
    rotary = RotaryEmbedding.from_config(model.config)
    for block in model.model.layers:
        room = WINDOW if window else PROMPT + STEPS
        block.self_attn = Ours(block.self_attn, rotary, window, batch, room)
    return model


def assert_close(logits, expected):
    most = tolerance(torch.float32, 32 * float(expected.abs().max()))
    torch.testing.assert_close(logits, expected, rtol=0, atol=most)


def caches(model):
    return [block.self_attn for block in model.model.layers]


# Only transformers' dynamic cache supports right padding.
@pytest.mark.parametrize(
    ("kind", "side"),
    [("dynamic", "left"), ("dynamic", "right"), ("static", "left"), ("sliding", "left")],
)
@torch.no_grad()
def test_padded_batches_decode_as_with_caches_of_transformers(kind, side):
    name = "Mistral" if kind == "sliding" else "Llama"
    theirs, mine = build(name), with_our_attention(name, 3)
    text = torch.randint(0, 40, (3, PROMPT + STEPS), generator=torch.Generator().manual_seed(0))
    mask = torch.ones_like(text)
    mask[0, :4] = 0
    if side == "right":
        mask[0, :PROMPT] = mask[0, :PROMPT].flip(0)
    their_cache = transformers.DynamicCache(config=theirs.config)
    if kind == "static":
        their_cache = transformers.StaticCache(config=theirs.config, max_cache_len=PROMPT + STEPS)
    ids = (mask.cumsum(1) - 1).clamp(min=0)
    bounds = [0, PROMPT, *range(PROMPT + 1, PROMPT + STEPS + 1)]
    for start, end in itertools.pairwise(bounds):
        new = slice(start, end)
        expected = theirs(
            text[:, new],
            attention_mask=mask[:, :end],
            position_ids=ids[:, new],
            past_key_values=their_cache,
        ).logits
        for attention in caches(mine):
            attention.mask = mask[:, new] if start == 0 else None  # later steps need no mask
        logits = mine(text[:, new], use_cache=False).logits
        real = mask[:, new] > 0
        assert_close(logits[real], expected[real])
