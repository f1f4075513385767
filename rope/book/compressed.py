"""Compute DeepSeek-V4's attention, with rotated values and compressed entries.

See the chapter "When values are rotated too".

One vector per token is both key and value, and is cached in rotated form. The output is rotated
back by the query's position:

    o_m = R_m^T sum_n w_mn R_n v_n = sum_n w_mn R_{n-m} v_n.

Besides the tokens in its window, a query reads compressed entries. Each entry summarizes a group of
`ratio` tokens, whose projections are C_i and Z_i. With a learned bias B, group g's entry is

    c_g = norm(sum_i softmax_i(Z_i + B_i) * C_i),    rotated as R_{g ratio} c_g.

The entry is rotated to the group's first position, g * ratio. Only the last rotary.dim coordinates
of each head are rotated. The module and its names follow `deepseek_v4` in transformers 5.23.

Shapes: B batch, S sequence, E embedding width, H heads, D head dimension, T keys or entries.
"""

import torch
from torch import Tensor, nn
from torch.nn.functional import pad, rms_norm

from rope.module import RotaryEmbedding


class CompressedCache:
    """Hold a layer's state from earlier tokens. start: the position of the first token.

    next: the position of the next token. window: rotated keys `[B, 1, T, D]` of the window.
    entries: the rotated entries `[B, 1, T, D]`. index_keys: the indexer's rotated keys, one per
    entry, `[B, 1, T, width]`. recent: inputs `[B, S, E]` from position `begin` on; the first
    `emitted` groups in `recent` already have entries. first: the position of the first entry.
    """

    def __init__(self, start: int = 0) -> None:
        self.next, self.begin, self.first, self.emitted = start, start, start, 0
        self.window: Tensor | None = None
        self.recent: Tensor | None = None
        self.entries: Tensor | None = None
        self.index_keys: Tensor | None = None


class Compressor(nn.Module):
    """Compute an entry from each group of `ratio` tokens and, with overlap, the group before it."""

    def __init__(self, embed_dim: int, width: int, ratio: int, overlap: bool) -> None:
        super().__init__()
        self.ratio, self.overlap, both = ratio, overlap, (1 + overlap) * width
        self.kv_proj = nn.Linear(embed_dim, both, bias=False)
        self.gate_proj = nn.Linear(embed_dim, both, bias=False)
        self.position_bias = nn.Parameter(torch.zeros(ratio, both))
        self.kv_norm = nn.RMSNorm(width, eps=1e-6)
        self.indexer: Indexer | None = None

    def forward(self, x: Tensor) -> Tensor:
        """Return unrotated entries `[B, n, width]` for the n groups in x `[B, n * ratio, E]`."""
        kv, gate = (y.unflatten(1, (-1, self.ratio)) for y in (self.kv_proj(x), self.gate_proj(x)))
        gate = gate + self.position_bias
        if self.overlap:  # nothing precedes the first group, so use weights of 0
            kv, gate = _with_previous(kv, 0.0), _with_previous(gate, -torch.inf)
        weights = gate.softmax(dim=2, dtype=torch.float32).to(kv.dtype)
        return self.kv_norm((kv * weights).sum(dim=2))


def _with_previous(x: Tensor, fill: float) -> Tensor:
    """Join the left columns of each group's predecessor and the group's own right columns."""
    previous, own = x.chunk(2, dim=-1)
    return torch.cat((pad(previous[:, :-1], (0, 0, 0, 0, 1, 0), value=fill), own), dim=2)


class Indexer(Compressor):
    """Compute a key c for each entry, and rank a query's entries by sum_h w_h relu(q_h . c)."""

    def __init__(
        self, embed_dim: int, query_dim: int, ratio: int, num_heads: int, width: int, top: int
    ) -> None:
        super().__init__(embed_dim, width, ratio, overlap=True)
        self.num_heads, self.width, self.top = num_heads, width, top
        self.q_b_proj = nn.Linear(query_dim, num_heads * width, bias=False)
        self.scorer = nn.ModuleDict({"weights_proj": nn.Linear(embed_dim, num_heads, bias=False)})

    def scores(self, q: Tensor, keys: Tensor, x: Tensor) -> Tensor:
        """Return scores `[B, S, T]` of rotated q `[B, H, S, width]` and keys `[B, 1, T, width]`."""
        weights = self.scorer["weights_proj"](x).float() * self.num_heads**-0.5  # [B, S, H]
        per_head = (q.float() @ keys.float().mT).relu() * self.width**-0.5  # [B, H, S, T]
        return torch.einsum("bhst,bsh->bst", per_head, weights)


class CompressedAttention(nn.Module):
    """Attend causally over a window and compressed entries, with keys that are also the values.

    query_dim: the width of the latent from which queries are projected. groups: the number of
    groups of heads; each group is projected to group_dim before o_b_proj. window: how many tokens a
    query reads uncompressed. rotary: must be interleaved for DeepSeek's weights.
    ratio: tokens per entry; None means no entries. index: None, or (heads, width, top) for an
    indexer. With an indexer, groups overlap, and each query reads only the `top` best entries.

    >>> rotary = RotaryEmbedding(4, interleaved=True)
    >>> sizes = dict(query_dim=8, groups=2, group_dim=8, window=4)
    >>> layer = CompressedAttention(16, 4, 8, rotary=rotary, ratio=2, **sizes)
    >>> layer(torch.ones(1, 5, 16)).shape
    torch.Size([1, 5, 16])
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        head_dim: int,
        *,
        query_dim: int,
        groups: int,
        group_dim: int,
        window: int,
        rotary: RotaryEmbedding,
        ratio: int | None = None,
        index: tuple[int, int, int] | None = None,
    ) -> None:
        super().__init__()
        self.head_dim, self.window, self.groups, self.rotary = head_dim, window, groups, rotary
        self.q_a_proj = nn.Linear(embed_dim, query_dim, bias=False)
        self.q_a_norm = nn.RMSNorm(query_dim, eps=1e-6)
        self.q_b_proj = nn.Linear(query_dim, num_heads * head_dim, bias=False)
        self.kv_proj = nn.Linear(embed_dim, head_dim, bias=False)
        self.kv_norm = nn.RMSNorm(head_dim, eps=1e-6)
        self.o_a_proj = nn.Linear(num_heads * head_dim // groups, groups * group_dim, bias=False)
        self.o_b_proj = nn.Linear(groups * group_dim, embed_dim, bias=False)
        self.sinks = nn.Parameter(torch.zeros(num_heads))
        self.compressor: Compressor | None = None
        if ratio is not None:
            self.compressor = Compressor(embed_dim, head_dim, ratio, index is not None)
            if index is not None:
                self.compressor.indexer = Indexer(embed_dim, query_dim, ratio, *index)

    def forward(self, x: Tensor, cache: CompressedCache | None = None) -> Tensor:
        """Return outputs `[B, S, E]` for x at positions from cache.next on; add x to the cache."""
        cache = CompressedCache() if cache is None else cache
        ids = torch.arange(cache.next, cache.next + x.shape[1], device=x.device)
        latent = self.q_a_norm(self.q_a_proj(x))
        q = self.q_b_proj(latent).unflatten(-1, (-1, self.head_dim)).transpose(1, 2)
        q = self._rotate(rms_norm(q, (self.head_dim,), eps=1e-6), ids)
        kv = self._rotate(self.kv_norm(self.kv_proj(x))[:, None], ids)
        kv = _append(cache.window, kv, dim=2)
        cache.next += len(ids)
        offset = ids[:, None] - torch.arange(cache.next - kv.shape[2], cache.next, device=x.device)
        mask = ((offset >= 0) & (offset < self.window)).expand(len(x), 1, -1, -1)  # [B, 1, S, T]
        cache.window = kv[:, :, max(0, kv.shape[2] - self.window + 1) :]
        if self.compressor is not None:
            entries, entry_mask = self._entries(self.compressor, x, latent, ids, cache)
            kv, mask = torch.cat((kv, entries), dim=2), torch.cat((mask, entry_mask), dim=3)
        scores = (q @ kv.mT * self.head_dim**-0.5).masked_fill(~mask, -torch.inf)
        sinks = self.sinks.to(scores)[:, None, None].expand(len(x), -1, len(ids), 1)
        weights = torch.cat((scores, sinks), dim=-1).softmax(dim=-1)[..., :-1]
        out = self._rotate(weights @ kv, ids, inverse=True).transpose(1, 2)
        parts = self.o_a_proj.weight.unflatten(0, (self.groups, -1))
        grouped = torch.einsum("bsgi,gri->bsgr", out.reshape(*x.shape[:2], self.groups, -1), parts)
        return self.o_b_proj(grouped.flatten(2))

    def _entries(
        self, c: Compressor, x: Tensor, latent: Tensor, ids: Tensor, cache: CompressedCache
    ) -> tuple[Tensor, Tensor]:
        """Return all rotated entries `[B, 1, T, D]` and their attention mask `[B, 1, S, T]`."""
        start = cache.next - len(ids)
        if cache.recent is None:  # groups start at multiples of ratio, wherever x starts
            cache.begin = cache.first = -(-start // c.ratio) * c.ratio
        recent = _append(cache.recent, x[:, max(0, cache.begin - start) :], dim=1)
        count = recent.shape[1] // c.ratio
        starts = cache.begin + c.ratio * torch.arange(cache.emitted, count, device=x.device)
        whole = recent[:, : count * c.ratio]
        cache.entries = _append(cache.entries, self._rotated_entries(c, whole, starts), dim=2)
        ends = cache.first + c.ratio * torch.arange(1, cache.entries.shape[2] + 1, device=x.device)
        past = (ends <= ids[:, None] + 1).expand(len(x), -1, -1)  # [B, S, T]
        if c.indexer is not None:
            index_keys = self._rotated_entries(c.indexer, whole, starts)
            cache.index_keys = _append(cache.index_keys, index_keys, dim=2)
            q = c.indexer.q_b_proj(latent).unflatten(-1, (-1, c.indexer.width)).transpose(1, 2)
            scores = c.indexer.scores(self._rotate(q, ids), cache.index_keys, x)
            ranked = scores.masked_fill(~past, -torch.inf)
            top = ranked.topk(min(c.indexer.top, len(ends)), dim=-1).indices
            past = past & torch.zeros_like(past).scatter(-1, top, True)
        done = max(0, count - c.overlap)
        cache.recent, cache.emitted = recent[:, done * c.ratio :], count - done
        cache.begin += done * c.ratio
        return cache.entries, past[:, None]

    def _rotated_entries(self, c: Compressor, whole: Tensor, starts: Tensor) -> Tensor:
        """Return entries for the last groups in `whole`, rotated to their positions `starts`."""
        if not len(starts):
            return whole.new_zeros(len(whole), 1, 0, c.kv_norm.normalized_shape[0])
        return self._rotate(c(whole)[:, None, -len(starts) :], starts)

    def _rotate(self, x: Tensor, ids: Tensor, inverse: bool = False) -> Tensor:
        """Return x `[B, H, S, D]` with its last rotary.dim coordinates rotated, or rotated back."""
        unrotated, rotated = x[..., : -self.rotary.dim], x[..., -self.rotary.dim :]
        return torch.cat((unrotated, self.rotary.rotate(rotated, ids, inverse=inverse)), dim=-1)


def _append(before: Tensor | None, x: Tensor, dim: int) -> Tensor:
    return x if before is None else torch.cat((before, x), dim=dim)
