"""Values that are rotated too, and entries that stand for several tokens: DeepSeek-V4's attention.

One vector a token is key and value, and cached rotated; what is read is rotated back at the query:

    o_m = R_m^T sum_n w_mn R_n v_n = sum_n w_mn R_{n-m} v_n.

Beside a window of them stand entries for `ratio` tokens each, rotated at the first one's position,
a multiple of ratio:

    c_g = norm(sum_i softmax_i(Z_i + B_i) * C_i),    R_{g ratio} c_g.

As in transformers 5.23, `deepseek_v4`, whose names the parameters have; only the last coordinates
of a head rotate, as many as `rotary` is wide.

Shapes: B batch, S sequence, E embedding width, H heads, D head dimension, T vectors in sight.
"""

import torch
from torch import Tensor, nn
from torch.nn.functional import pad, rms_norm

from rope.module import RotaryEmbedding


class CompressedCache:
    """What a layer keeps of earlier tokens; next: the position of the one to come.

    recent `[B, S, E]`: tokens from begin on, of which `emitted` groups have their entries already.
    """

    def __init__(self, start: int = 0) -> None:
        self.next, self.begin, self.first, self.emitted = start, start, start, 0
        self.window: Tensor | None = None  # [B, 1, T, D], rotated, as are entries and their keys
        self.recent: Tensor | None = None
        self.entries: Tensor | None = None  # of groups from the position first on
        self.index: Tensor | None = None


class Compressor(nn.Module):
    """An entry for each group of `ratio` tokens; with overlap, of the group before it as well."""

    def __init__(self, embed_dim: int, width: int, ratio: int, overlap: bool) -> None:
        super().__init__()
        self.ratio, self.overlap, both = ratio, overlap, (1 + overlap) * width
        self.kv_proj = nn.Linear(embed_dim, both, bias=False)
        self.gate_proj = nn.Linear(embed_dim, both, bias=False)
        self.position_bias = nn.Parameter(torch.zeros(ratio, both))
        self.kv_norm = nn.RMSNorm(width, eps=1e-6)
        self.indexer: Indexer | None = None

    def forward(self, x: Tensor) -> Tensor:
        """Entries `[B, n, width]` of n whole groups x `[B, n ratio, E]`, not yet rotated."""
        kv, gate = (y.unflatten(1, (-1, self.ratio)) for y in (self.kv_proj(x), self.gate_proj(x)))
        gate = gate + self.position_bias
        if self.overlap:  # before the first group there is none: its weights are 0
            kv, gate = _with_previous(kv, 0.0), _with_previous(gate, -torch.inf)
        weights = gate.softmax(dim=2, dtype=torch.float32).to(kv.dtype)
        return self.kv_norm((kv * weights).sum(dim=2))


def _with_previous(x: Tensor, fill: float) -> Tensor:
    """From `[B, n, ratio, 2 width]` the former half of the group before, and the latter half."""
    previous, own = x.chunk(2, dim=-1)
    return torch.cat((pad(previous[:, :-1], (0, 0, 0, 0, 1, 0), value=fill), own), dim=2)


class Indexer(Compressor):
    """Which entries are read: the `top` of largest sum_h w_h relu(q_h . c), with c of its own."""

    def __init__(
        self, embed_dim: int, query_dim: int, ratio: int, num_heads: int, width: int, top: int
    ) -> None:
        super().__init__(embed_dim, width, ratio, overlap=True)
        self.num_heads, self.width, self.top = num_heads, width, top
        self.q_b_proj = nn.Linear(query_dim, num_heads * width, bias=False)
        self.scorer = nn.ModuleDict({"weights_proj": nn.Linear(embed_dim, num_heads, bias=False)})

    def scores(self, q: Tensor, keys: Tensor, x: Tensor) -> Tensor:
        """`[B, S, T]` of rotated q `[B, H, S, width]`, rotated keys `[B, 1, T, width]` and x."""
        weights = self.scorer["weights_proj"](x).float() * self.num_heads**-0.5  # [B, S, H]
        each = (q.float() @ keys.float().mT).relu() * self.width**-0.5
        return torch.einsum("bhst,bsh->bst", each, weights)


class CompressedAttention(nn.Module):
    """Causal attention whose keys are its values, over a window and over compressed entries.

    query_dim: of the latent that queries are made of; groups: of heads, each projected to group_dim
    before o_b_proj; window: tokens read as they are; rotary: interleaved in DeepSeek's weights.
    ratio: tokens an entry, None for the window alone; index: (heads, width, top) of an indexer, or
    None to read all entries, which then do not overlap.
    Raises ValueError where rotary is wider than a head, or than the indexer's.

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
        narrow = min(head_dim, index[1]) if index else head_dim
        if rotary.dim > narrow:
            raise ValueError(
                f"rotary turns {rotary.dim} coordinates; it must turn at most {narrow}, those of a "
                f"head, the indexer's too: pass RotaryEmbedding({narrow}), or a narrower one"
            )
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
        """Tokens x `[B, S, E]` at the positions from cache.next on, or 0; the cache takes them."""
        cache = CompressedCache() if cache is None else cache
        ids = torch.arange(cache.next, cache.next + x.shape[1], device=x.device)
        latent = self.q_a_norm(self.q_a_proj(x))
        q = self.q_b_proj(latent).unflatten(-1, (-1, self.head_dim)).transpose(1, 2)
        q = self._turned(rms_norm(q, (self.head_dim,), eps=1e-6), ids)
        kv = self._turned(self.kv_norm(self.kv_proj(x))[:, None], ids)
        kv = _joined(cache.window, kv, dim=2)
        cache.next += len(ids)
        behind = ids[:, None] - torch.arange(cache.next - kv.shape[2], cache.next, device=x.device)
        sight = ((behind >= 0) & (behind < self.window)).expand(len(x), 1, -1, -1)  # [B, 1, S, T]
        cache.window = kv[:, :, max(0, kv.shape[2] - self.window + 1) :]
        if self.compressor is not None:
            entries, read = self._entries(self.compressor, x, latent, ids, cache)
            kv, sight = torch.cat((kv, entries), dim=2), torch.cat((sight, read), dim=3)
        scores = (q @ kv.mT * self.head_dim**-0.5).masked_fill(~sight, -torch.inf)
        sinks = self.sinks.to(scores)[:, None, None].expand(len(x), -1, len(ids), 1)
        weights = torch.cat((scores, sinks), dim=-1).softmax(dim=-1)[..., :-1]
        out = self._turned(weights @ kv, ids, inverse=True).transpose(1, 2)
        parts = self.o_a_proj.weight.unflatten(0, (self.groups, -1))
        grouped = torch.einsum("bsgi,gri->bsgr", out.reshape(*x.shape[:2], self.groups, -1), parts)
        return self.o_b_proj(grouped.flatten(2))

    def _entries(
        self, c: Compressor, x: Tensor, latent: Tensor, ids: Tensor, cache: CompressedCache
    ) -> tuple[Tensor, Tensor]:
        """All entries so far, rotated `[B, 1, T, D]`, and which each token reads `[B, 1, S, T]`."""
        start = cache.next - len(ids)
        if cache.recent is None:  # groups begin at multiples of the ratio, wherever the text does
            cache.begin = cache.first = -(-start // c.ratio) * c.ratio
        recent = _joined(cache.recent, x[:, max(0, cache.begin - start) :], dim=1)
        count = recent.shape[1] // c.ratio
        at = cache.begin + c.ratio * torch.arange(cache.emitted, count, device=x.device)
        whole = recent[:, : count * c.ratio]
        cache.entries = _joined(cache.entries, self._made(c, whole, at), dim=2)
        ends = cache.first + c.ratio * torch.arange(1, cache.entries.shape[2] + 1, device=x.device)
        read = (ends <= ids[:, None] + 1).expand(len(x), -1, -1)  # [B, S, T]: all in the past
        if c.indexer is not None:
            cache.index = _joined(cache.index, self._made(c.indexer, whole, at), dim=2)
            q = c.indexer.q_b_proj(latent).unflatten(-1, (-1, c.indexer.width)).transpose(1, 2)
            scores = c.indexer.scores(self._turned(q, ids), cache.index, x)
            ranked = scores.masked_fill(~read, -torch.inf)
            top = ranked.topk(min(c.indexer.top, len(ends)), dim=-1).indices
            read = read & torch.zeros_like(read).scatter(-1, top, True)
        done = max(0, count - c.overlap)
        cache.recent, cache.emitted = recent[:, done * c.ratio :], count - done
        cache.begin += done * c.ratio
        return cache.entries, read[:, None]

    def _made(self, c: Compressor, whole: Tensor, at: Tensor) -> Tensor:
        """The entries of the last groups of whole, those at the positions at, rotated."""
        if not len(at):
            return whole.new_zeros(len(whole), 1, 0, c.kv_norm.normalized_shape[0])
        return self._turned(c(whole)[:, None, -len(at) :], at)

    def _turned(self, x: Tensor, ids: Tensor, inverse: bool = False) -> Tensor:
        """x `[B, H, S, D]` with its last coordinates rotated, or rotated back."""
        still, turning = x[..., : -self.rotary.dim], x[..., -self.rotary.dim :]
        return torch.cat((still, self.rotary.rotate(turning, ids, inverse=inverse)), dim=-1)


def _joined(before: Tensor | None, x: Tensor, dim: int) -> Tensor:
    return x if before is None else torch.cat((before, x), dim=dim)
