"""The layer: tables kept beside a model, queries and keys rotated together.

Chapter "From maths to PyTorch". Three duties stay apart: `frequencies` builds the tables, this
module keeps them (exact, on the right device, long enough), `functional` applies them.

Shapes: B batch, H heads, S sequence, D head dimension, R rotated width.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from rope._checks import (
    check_base,
    check_count,
    check_devices,
    check_dim,
    check_flag,
    check_heads,
    check_position_ids,
    position_range,
)
from rope.frequencies import inverse_frequencies, rotary_tables
from rope.functional import look_up, rotary_embedding


class RotaryEmbedding(nn.Module):
    """Rotary position embedding for queries and keys (RoFormer, arXiv 2104.09864).

    dim: the rotated width R, even, at most the head dimension; base: of theta_j = base**(-2j/R).
    max_seq_len: rows of the first tables; they grow on demand to the next power of two.
    interleaved: plane j holds coordinates (2j, 2j+1); otherwise (j, j + R/2).
    device: of the tables, torch's default when None.
    Buffers `cos` and `sin`, float32 `[N, R/2]`, are in no state_dict: they follow the model to
    another device, and no dtype cast touches them.
    Raises ValueError or TypeError for a bad dim, base or max_seq_len.

    >>> rotary = RotaryEmbedding(4, max_seq_len=8).to(torch.bfloat16)
    >>> rotary.cos.dtype, rotary.cos.shape
    (torch.float32, torch.Size([8, 2]))
    >>> q, k = rotary(torch.ones(1, 2, 9, 4), torch.ones(1, 1, 9, 4))
    >>> q.shape, k.shape, rotary.cos.shape
    (torch.Size([1, 2, 9, 4]), torch.Size([1, 1, 9, 4]), torch.Size([16, 2]))
    """

    cos: Tensor
    sin: Tensor

    def __init__(
        self,
        dim: int,
        max_seq_len: int = 2048,
        base: float = 10000.0,
        *,
        interleaved: bool = False,
        device: torch.device | str | None = None,
    ) -> None:
        super().__init__()
        check_dim(dim)
        check_base(base)
        check_count("max_seq_len", max_seq_len)
        check_flag("interleaved", interleaved)
        self.dim, self.base, self.interleaved = dim, float(base), interleaved
        if device is None:
            # Unlike torch.get_default_device, this sees `with torch.device(...)` in torch 2.6 too.
            device = torch.empty(0).device
        cos, sin = self._tables(max_seq_len, device)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)

    @property
    def inv_freq(self) -> Tensor:
        """The frequencies, float64 `[R/2]`, made afresh from dim and base.

        >>> RotaryEmbedding(4).half().inv_freq
        tensor([1.0000, 0.0100], dtype=torch.float64)
        """
        return inverse_frequencies(self.dim, self.base, device=self.cos.device)

    def forward(
        self, q: Tensor, k: Tensor, position_ids: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Rotate q and k to their positions.

        q: `[B, H, S, D]`; k: `[B, H_kv, S, D]`; position_ids: integers `[S]` or `[B, S]`,
        0 ... S-1 when None. Returns the pair, shapes and dtypes kept.
        Raises as `rotary_embedding` does. Eager calls with position_ids read the largest one to
        grow the tables; compiled calls do not read data, so `grow` them first.

        >>> rotary, x = RotaryEmbedding(4), torch.ones(1, 1, 1, 4)
        >>> q, k = rotary(x, x, torch.tensor([5]))
        >>> torch.equal(q, k)
        True
        """
        check_heads("q", q, self.dim)
        check_heads("k", k, self.dim)
        if (q.shape[0], *q.shape[2:]) != (k.shape[0], *k.shape[2:]):
            raise ValueError(
                f"q has shape {list(q.shape)} and k {list(k.shape)}; only their heads may differ: "
                "give both the same batch, sequence and head_dim"
            )
        check_devices(q=q, k=k)
        seq_len = q.shape[2]
        if position_ids is not None:
            check_position_ids(position_ids, q.shape[0], seq_len)
            check_devices(q=q, position_ids=position_ids)
        if self.cos.is_meta and not q.is_meta:
            # A model built on meta whose weights were then assigned: its tables never moved.
            self.cos, self.sin = self._tables(len(self.cos), q.device)
        check_devices(cos=self.cos, q=q)
        if position_ids is None:
            self.grow(seq_len)
            cos, sin = self.cos[:seq_len], self.sin[:seq_len]
        else:
            if not (torch.compiler.is_compiling() or position_ids.is_meta):
                low, high = position_range(position_ids)
                if low >= 0:  # otherwise look_up refuses, and nothing has grown
                    self.grow(high + 1)
            cos, sin = look_up(self.cos, self.sin, position_ids, q)
        q = rotary_embedding(q, cos, sin, interleaved=self.interleaved)
        k = rotary_embedding(k, cos, sin, interleaved=self.interleaved)
        return q, k

    def grow(self, length: int) -> None:
        """Make the tables hold positions 0 ... length-1; they never shrink.

        length: a non-negative int; rows become the next power of two. Grow before several threads
        share the module: the two tables are replaced one after the other.
        Raises ValueError or TypeError for a bad length.

        >>> rotary = RotaryEmbedding(4, max_seq_len=8)
        >>> rotary.grow(100)
        >>> len(rotary.cos)
        128
        """
        check_count("length", length, smallest=0)
        if length > self.cos.shape[0]:
            rows = 1 << (int(length) - 1).bit_length()
            self.cos, self.sin = self._tables(rows, self.cos.device)

    def _tables(self, rows: int, device: torch.device | str) -> tuple[Tensor, Tensor]:
        """Tables made on the CPU, so that every device holds the same bits, then moved.

        Made under inference_mode they could never again be used in training.
        """
        with torch.inference_mode(False):
            inv_freq = inverse_frequencies(self.dim, self.base, device="cpu")
            cos, sin = rotary_tables(rows, inv_freq)
            return cos.to(device), sin.to(device)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "RotaryEmbedding":
        """Follow device moves and ignore the rest: torch's own would also cast the tables."""
        cos, sin = self.cos, self.sin
        super()._apply(fn, recurse)
        device = self.cos.device
        if cos.is_meta and device.type != "meta":
            self.cos, self.sin = self._tables(len(cos), device)  # to_empty left them unwritten
        else:
            with torch.inference_mode(False):
                self.cos, self.sin = cos.to(device), sin.to(device)
        return self

    def extra_repr(self) -> str:
        return (
            f"dim={self.dim}, rows={len(self.cos)}, base={self.base}, "
            f"interleaved={self.interleaved}"
        )
