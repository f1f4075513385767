"""The keys and values of the tokens seen so far: chapter "Rotary attention".

Keys are stored rotated. Since a score depends on n - m alone, a key keeps the rotation of its
own position; each new token rotates its own query and key.

Shapes: B batch, H_kv key heads, S new tokens, T tokens held, D head dimension, D_v that of values.
"""

import torch
from torch import Tensor

from rope.attention.packed import check_segment_ids
from rope.checks import FLOATING, check_count, check_devices, check_floating
from rope.positions import check_position_ids


class KVCache:
    """Room for max_seq_len rotated keys and values of one layer, filled in order: one a layer.

    value_dim: the width D_v of the values, head_dim when None.
    dtype and device are torch's defaults when None; keys made under autocast have its dtype, and
    so must the cache. `length` is the number T of tokens held, the same for all rows; where rows
    are padded, `segment_ids` `[B, T]` tell who sees whom (None: each row is one sequence).
    For inference: it refuses tensors that record gradients.

    >>> cache = KVCache(batch=1, num_kv_heads=2, max_seq_len=8, head_dim=4)
    >>> keys, values = cache.append(torch.ones(1, 2, 3, 4), torch.ones(1, 2, 3, 4))
    >>> keys.shape, cache.length
    (torch.Size([1, 2, 3, 4]), 3)
    """

    length: int
    segment_ids: Tensor | None  # [B, T]
    _next_position: Tensor | None  # [B, 1] or [1], where the caller says the positions

    def __init__(
        self,
        batch: int,
        num_kv_heads: int,
        max_seq_len: int,
        head_dim: int,
        *,
        value_dim: int | None = None,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> None:
        value_dim = head_dim if value_dim is None else value_dim
        check_count("value_dim", value_dim)
        shape = (batch, num_kv_heads, max_seq_len, head_dim)
        for name, size in zip(
            ("batch", "num_kv_heads", "max_seq_len", "head_dim"), shape, strict=True
        ):
            check_count(name, size)
        self.keys = torch.zeros(shape, dtype=dtype, device=device)
        if self.keys.dtype not in FLOATING:
            raise TypeError(
                f"dtype is {dtype}; it must be float16, bfloat16, float32 or float64: pass that of "
                "the keys"
            )
        self.values = self.keys.new_zeros(*shape[:3], value_dim)
        self.reset()

    def append(
        self,
        k: Tensor,
        v: Tensor,
        position_ids: Tensor | None = None,
        segment_ids: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Store the next S tokens and return all keys and values held.

        k (rotated): `[B, H_kv, S, D]`, v: `[B, H_kv, S, D_v]`, in the cache's dtype, on its device;
        position_ids, segment_ids: integers `[S]` or `[B, S]`, what the tokens were rotated to and
        belong to; when None those of `next_ids`. Returns views `[B, H_kv, T, D]` and `[B, H_kv, T, D_v]`.
        Raises ValueError for other shapes or devices, too many tokens, segment ids that begin late,
        tensors that record gradients, or a cache made under inference_mode and used outside it,
        TypeError for another dtype; the cache is then unchanged.

        >>> cache = KVCache(1, 1, 2, 4)
        >>> cache.append(torch.ones(1, 1, 2, 4), torch.ones(1, 1, 2, 4))[0].shape
        torch.Size([1, 1, 2, 4])
        """
        self.check(k, v, position_ids, segment_ids)
        position_ids, segment_ids = self.next_ids(k.shape[2], position_ids, segment_ids)
        end = self.length + k.shape[2]
        self.keys[:, :, self.length : end] = k
        self.values[:, :, self.length : end] = v
        if position_ids is not None and k.shape[2]:
            self._next_position = position_ids[..., -1:].long() + 1
        if segment_ids is not None and k.shape[2]:  # no token, no last segment to go on with
            new = segment_ids.expand(k.shape[0], -1)
            old = new[:, :0] if self.segment_ids is None else self.segment_ids
            self.segment_ids = torch.cat((old, new), dim=1)
        self.length = end
        return self.keys[:, :, :end], self.values[:, :, :end]

    def next_ids(
        self, seq_len: int, position_ids: Tensor | None, segment_ids: Tensor | None
    ) -> tuple[Tensor | None, Tensor | None]:
        """The ids of the next seq_len tokens: those given, or else each row goes on.

        Its next position is one more than its last one, and its segment is its last token's. None
        where no earlier call gave any: the positions then count on from `length`.

        >>> cache, x = KVCache(1, 1, 4, 2), torch.ones(1, 1, 2, 2)
        >>> _ = cache.append(x, x, torch.tensor([[0, 0]]), torch.tensor([[0, 1]]))
        >>> cache.next_ids(2, None, None)
        (tensor([[1, 2]]), tensor([[1, 1]]))
        """
        if position_ids is None and self._next_position is not None:
            steps = torch.arange(seq_len, device=self._next_position.device)
            position_ids = self._next_position + steps
        if segment_ids is None and self.segment_ids is not None:
            segment_ids = self.segment_ids[:, -1:].expand(-1, seq_len)
        return position_ids, segment_ids

    def reset(self) -> None:
        """Forget all tokens; the memory is kept.

        >>> cache = KVCache(1, 1, 2, 4)
        >>> cache.reset()
        >>> cache.length
        0
        """
        self.length = 0
        self.segment_ids = None
        self._next_position = None

    def check(
        self,
        k: Tensor,
        v: Tensor,
        position_ids: Tensor | None = None,
        segment_ids: Tensor | None = None,
    ) -> None:
        """Raise what `append` would raise, and store nothing.

        >>> KVCache(1, 1, 2, 4).check(torch.ones(1, 1, 2, 4), torch.ones(1, 1, 2, 4))
        """
        room = self.keys.shape[2]
        outside = not (torch.compiler.is_compiling() or torch.is_inference_mode_enabled())
        if outside and self.keys.is_inference():
            raise ValueError(
                "the cache was made under torch.inference_mode() and is used outside it; torch "
                "lets it be written to inside alone: make it outside, or decode inside"
            )
        for name, tensor, held in (("k", k, self.keys), ("v", v, self.values)):
            check_floating(name, tensor)
            batch, heads, _, width = held.shape
            if tensor.dim() != 4 or tensor.shape != (batch, heads, tensor.shape[2], width):
                raise ValueError(
                    f"{name} has shape {list(tensor.shape)}; the cache takes "
                    f"[{batch}, {heads}, S, {width}]: make it with those sizes"
                )
            if tensor.dtype != self.keys.dtype:
                raise TypeError(
                    f"{name} is {tensor.dtype} and the cache {self.keys.dtype}; they must agree: "
                    f"make it with dtype={tensor.dtype} (under autocast the keys have its dtype)"
                )
            check_devices(**{"cache.keys": self.keys, name: tensor})
            if tensor.requires_grad and torch.is_grad_enabled():
                raise ValueError(
                    f"{name} records gradients; a cache is overwritten and cannot keep them: "
                    "decode under torch.no_grad()"
                )
        if k.shape[2] != v.shape[2]:
            raise ValueError(
                f"k has {k.shape[2]} tokens and v {v.shape[2]}; they must be the same: "
                "append both for the same tokens"
            )
        if self.length + k.shape[2] > room:
            raise ValueError(
                f"the cache holds {self.length} of {room} tokens; {k.shape[2]} more do not fit: "
                f"make it with max_seq_len at least {self.length + k.shape[2]}, or reset it"
            )
        if position_ids is not None:
            check_position_ids(position_ids, k)
        if segment_ids is not None:
            check_segment_ids(segment_ids, k=k)
        if segment_ids is not None and self.segment_ids is None and self.length:
            raise ValueError(
                f"segment_ids was given after {self.length} tokens without; the cache must know "
                "who may see whom from the first token: give them with the prompt, or reset it"
            )
