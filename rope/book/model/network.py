"""Run SmolLM2-135M: 30 blocks of RMSNorm, rotary attention, and SwiGLU.

The blocks are Llama's (arXiv 2302.13971). A GGUF file keeps the two coordinates of a pair next to
each other, so the layout is interleaved.

Shapes: B batch, S sequence, E embedding width (576), V vocabulary (49,152).
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, silu

from rope.attention import KVCache, RotaryAttention
from rope.book.model.weights import field, tensors
from rope.module import RotaryEmbedding


class Block(nn.Module):
    """Add the outputs of attention and of a feed-forward network to x `[B, S, E]`."""

    def __init__(self, rotary: RotaryEmbedding) -> None:
        super().__init__()
        width, hidden = field("llama.embedding_length"), field("llama.feed_forward_length")
        heads, groups = (field(f"llama.attention.head_count{end}") for end in ("", "_kv"))
        eps = field("llama.attention.layer_norm_rms_epsilon")
        self.attn_norm, self.ffn_norm = nn.RMSNorm(width, eps), nn.RMSNorm(width, eps)
        self.attn = RotaryAttention(width, heads, groups, rotary=rotary)
        self.ffn_gate, self.ffn_up = (nn.Linear(width, hidden, bias=False) for _ in range(2))
        self.ffn_down = nn.Linear(hidden, width, bias=False)

    def forward(self, x: Tensor, **attention: Tensor | KVCache | None) -> Tensor:
        x = x + self.attn(self.attn_norm(x), **attention)
        y = self.ffn_norm(x)
        return x + self.ffn_down(silu(self.ffn_gate(y)) * self.ffn_up(y))


class SmolLM2(nn.Module):
    """Predict the next token, with the weights from the model's file.

    Modules are named as in the file: block 0's attention is `model.blk[0].attn`. All blocks share
    one `RotaryEmbedding`.
    """

    def __init__(self) -> None:
        super().__init__()
        dim, length = field("llama.rope.dimension_count"), field("llama.context_length")
        rotary = RotaryEmbedding(dim, length, field("llama.rope.freq_base"), interleaved=True)
        with torch.device("meta"):  # saves memory, because the weights are replaced below
            self.token_embd = nn.Embedding(*tensors()["token_embd.weight"].shape)
            self.blk = nn.ModuleList(Block(rotary) for _ in range(field("llama.block_count")))
            eps = field("llama.attention.layer_norm_rms_epsilon")
            self.output_norm = nn.RMSNorm(self.token_embd.embedding_dim, eps)
        state = {name: tensors()[_name_in_file(name)] for name in self.state_dict()}
        self.load_state_dict(state, assign=True)
        self.requires_grad_(False)

    def forward(
        self, tokens: Tensor, caches: Sequence[KVCache] | None = None, **attention: Tensor | None
    ) -> Tensor:
        """Return logits `[B, S, V]` for tokens `[B, S]`, int64.

        caches: one `KVCache` per block, or None. attention: the arguments `position_ids` and
        `attention_mask` of `RotaryAttention.forward`.
        """
        x = self.token_embd(tokens)
        for i, block in enumerate(self.blk):
            x = block(x, cache=caches[i] if caches else None, **attention)
        return linear(self.output_norm(x), self.token_embd.weight)


def new_caches(batch: int, max_seq_len: int) -> list[KVCache]:
    """Return one empty cache per block."""
    heads, dim = field("llama.attention.head_count_kv"), field("llama.rope.dimension_count")
    return [KVCache(batch, heads, max_seq_len, dim) for _ in range(field("llama.block_count"))]


def _name_in_file(name: str) -> str:
    """Return the name that a parameter has in the model's file.

    >>> _name_in_file("blk.0.attn.o_proj.weight")
    'blk.0.attn_output.weight'
    """
    name = name.replace(".attn.", ".attn_").replace("_proj", "")
    return name.replace(".attn_o.", ".attn_output.")
