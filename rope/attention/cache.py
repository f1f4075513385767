"""The keys and values of the tokens seen so far: chapter "Rotary attention".

Keys are stored rotated. Since a score depends on n - m alone, a key keeps the rotation of its
own position for ever, and only the new query is turned further.

Shapes: B batch, H_kv key heads, S new tokens, D head dimension.
"""

import torch
from torch import Tensor

from rope.checks import check_count, check_devices, check_floating


class KVCache:
    """Room for max_seq_len rotated keys and values of one layer, filled in order.

    It holds whole batches of one length: neither padding nor packed sequences are known to it.
    dtype and device are torch's defaults when None; keys made under autocast have its dtype, and
    so must the cache. `length` is the number of tokens held.
    For inference: it refuses tensors that record gradients.

    >>> cache = KVCache(batch=1, num_kv_heads=2, max_seq_len=8, head_dim=4)
    >>> keys, values = cache.append(torch.ones(1, 2, 3, 4), torch.ones(1, 2, 3, 4))
    >>> keys.shape, cache.length
    (torch.Size([1, 2, 3, 4]), 3)
    """

    def __init__(
        self,
        batch: int,
        num_kv_heads: int,
        max_seq_len: int,
        head_dim: int,
        *,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> None:
        shape = (batch, num_kv_heads, max_seq_len, head_dim)
        for name, size in zip(
            ("batch", "num_kv_heads", "max_seq_len", "head_dim"), shape, strict=True
        ):
            check_count(name, size)
        self.keys = torch.zeros(shape, dtype=dtype, device=device)
        check_floating("the cache", self.keys)
        self.values = torch.zeros_like(self.keys)
        self.length = 0

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Store the next S tokens and return all keys and values held.

        k (rotated), v: `[B, H_kv, S, D]` in the cache's dtype, on its device.
        Returns two views `[B, H_kv, length, D]`.
        Raises ValueError for other shapes or devices, too many tokens, or tensors that record
        gradients, TypeError for another dtype; the cache is then unchanged.

        >>> cache = KVCache(1, 1, 2, 4)
        >>> cache.append(torch.ones(1, 1, 2, 4), torch.ones(1, 1, 2, 4))[0].shape
        torch.Size([1, 1, 2, 4])
        """
        self.check(k, v)
        end = self.length + k.shape[2]
        self.keys[:, :, self.length : end] = k
        self.values[:, :, self.length : end] = v
        self.length = end
        return self.keys[:, :, :end], self.values[:, :, :end]

    def reset(self) -> None:
        """Forget all tokens; the memory is kept.

        >>> cache = KVCache(1, 1, 2, 4)
        >>> cache.reset()
        >>> cache.length
        0
        """
        self.length = 0

    def check(self, k: Tensor, v: Tensor) -> None:
        """Raise what `append` would raise, and store nothing.

        >>> KVCache(1, 1, 2, 4).check(torch.ones(1, 1, 2, 4), torch.ones(1, 1, 2, 4))
        """
        batch, heads, room, head_dim = self.keys.shape
        for name, tensor in (("k", k), ("v", v)):
            check_floating(name, tensor)
            if tensor.dim() != 4 or tensor.shape != (batch, heads, tensor.shape[2], head_dim):
                raise ValueError(
                    f"{name} has shape {list(tensor.shape)}; the cache takes "
                    f"[{batch}, {heads}, S, {head_dim}]: make it with those sizes"
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
        if k.shape != v.shape:
            raise ValueError(
                f"k has {k.shape[2]} tokens and v {v.shape[2]}; they must be the same: "
                "append both for the same tokens"
            )
        if self.length + k.shape[2] > room:
            raise ValueError(
                f"the cache holds {self.length} of {room} tokens; {k.shape[2]} more do not fit: "
                f"make it with max_seq_len at least {self.length + k.shape[2]}, or reset it"
            )
