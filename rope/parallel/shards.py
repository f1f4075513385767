"""Split a sequence across devices (see the chapter "Across devices").

A rotation depends only on a token's own position. Any split of a sequence therefore works, as long
as each token keeps its position.

Shapes: S sequence, P devices, S_i tokens on device i; the S_i sum to S.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from rope.attention.masks import segment_ids
from rope.positions import packed_position_ids


@dataclass(frozen=True, eq=False)
class Shards:
    """Hold a split of a sequence across devices. Every process must hold the same split.

    tokens: one tensor per device, int64 `[S_i]`, with the indices of the device's tokens, in order.
    positions: the position of every token, int64 `[S]`. segments: the index of each token's
    document, int64 `[S]`, or None for one document. All tensors are on the CPU.
    Raises ValueError unless each of 0 ... S-1 occurs once in tokens.

    >>> shards = head_tail(8, devices=2)
    >>> [part.tolist() for part in shards.tokens]
    [[0, 1, 6, 7], [2, 3, 4, 5]]
    """

    tokens: tuple[Tensor, ...]
    positions: Tensor
    segments: Tensor | None = None

    def __post_init__(self) -> None:
        indices = torch.cat(self.tokens)
        if not torch.equal(indices.sort().values, torch.arange(len(indices))):
            raise ValueError(
                f"tokens holds {indices.tolist()[:20]} ...; together the devices must hold each of "
                f"0 ... {len(indices) - 1} once, as int64 on the CPU"
            )

    def __len__(self) -> int:
        return len(self.tokens)

    def position_ids(self, device: int) -> Tensor:
        """Return the position ids for a device's tokens, int64 `[S_i]`, for `RotaryEmbedding`.

        If an extension's spectrum depends on the length, also pass the full sequence's length,
        `seq_len=int(shards.positions.max()) + 1`, because a device sees only its own part.

        >>> packed([4, 4], devices=2).position_ids(0)
        tensor([0, 3, 0, 3])
        """
        return self.positions[self._tokens_of(device)]

    def local(self, x: Tensor, device: int, dim: int = 2) -> Tensor:
        """Return a device's part of the full tensor x, whose sequence axis is dim.

        >>> head_tail(8, devices=2).local(torch.arange(8), 1, dim=0)
        tensor([2, 3, 4, 5])
        """
        if x.shape[dim] != len(self.positions):
            raise ValueError(
                f"x has {x.shape[dim]} tokens along axis {dim}, but the shards have "
                f"{len(self.positions)}; pass the full tensor as x, and its sequence axis as dim"
            )
        return x.index_select(dim, self._tokens_of(device).to(x.device))

    def full(self, parts: Sequence[Tensor], dim: int = 2) -> Tensor:
        """Join all devices' parts into the full tensor. This is the inverse of `local`.

        >>> shards = round_robin(5, devices=2)
        >>> shards.full([shards.local(torch.arange(5), i, 0) for i in (0, 1)], dim=0)
        tensor([0, 1, 2, 3, 4])
        """
        return torch.cat([*parts], dim).index_select(dim, self.inverse_order.to(parts[0].device))

    @property
    def inverse_order(self) -> Tensor:
        """Return each token's index in the concatenation of the devices' parts, int64 `[S]`.

        >>> head_tail(4, devices=2).inverse_order
        tensor([0, 2, 3, 1])
        """
        return torch.cat(self.tokens).argsort()

    def attention_mask(self, queries: Tensor, keys: Tensor) -> Tensor:
        """Return the causal mask, bool `[queries, keys]`; both arguments hold token indices.

        >>> packed([1, 2], 1, contiguous).attention_mask(torch.arange(3), torch.arange(3)).int()
        tensor([[1, 0, 0],
                [0, 1, 0],
                [0, 1, 1]], dtype=torch.int32)
        """
        mask = queries[:, None] >= keys
        if self.segments is not None:
            mask = mask & (self.segments[queries][:, None] == self.segments[keys])
        return mask

    def _tokens_of(self, device: int) -> Tensor:
        if not 0 <= device < len(self):
            raise ValueError(f"device is {device}; it must be one of 0 ... {len(self) - 1}")
        return self.tokens[device]


def contiguous(seq_len: int, devices: int) -> Shards:
    """Split a sequence into one contiguous chunk per device, as DTensor and `torch.chunk` do.

    The last chunks may be shorter or empty.

    >>> [part.tolist() for part in contiguous(5, devices=2).tokens]
    [[0, 1, 2], [3, 4]]
    """
    parts = torch.arange(seq_len).chunk(devices)
    return _one_document(seq_len, [*parts, *[parts[0][:0]] * (devices - len(parts))])


def head_tail(seq_len: int, devices: int) -> Shards:
    """Split a sequence into 2P chunks, of which device i holds chunks i and 2P-1-i (zigzag).

    Every device then computes the same number of causal query-key pairs.
    Raises ValueError unless seq_len is a multiple of 2P.
    (For other lengths, PyTorch's `context_parallel` silently switches to contiguous chunks.)

    >>> head_tail(18, devices=2)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ValueError: seq_len is 18 for 2 devices; it must be a multiple of 4; pad the sequence ...
    """
    if extra := seq_len % (2 * devices):
        raise ValueError(
            f"seq_len is {seq_len} for {devices} devices; it must be a multiple of {2 * devices}; "
            f"pad the sequence to {seq_len - extra + 2 * devices} tokens, or choose another split"
        )
    parts = torch.arange(seq_len).reshape(2 * devices, -1)
    return _one_document(seq_len, [torch.cat((parts[i], parts[-1 - i])) for i in range(devices)])


def round_robin(seq_len: int, devices: int) -> Shards:
    """Split a sequence so that device i holds the tokens i, i + P, i + 2P, ... (striped).

    >>> [part.tolist() for part in round_robin(5, devices=2).tokens]
    [[0, 2, 4], [1, 3]]
    """
    tokens = torch.arange(seq_len)
    return _one_document(seq_len, [tokens[i::devices] for i in range(devices)])


def packed(
    lengths: Sequence[int], devices: int, split: Callable[[int, int], Shards] = head_tail
) -> Shards:
    """Split each packed document separately; positions start at 0 in every document.

    lengths: the documents' lengths, positive ints that sum to S. split: `contiguous`, `head_tail`,
    or `round_robin`. Raises the errors of that function.

    >>> [part.tolist() for part in packed([4, 4], devices=2).tokens]
    [[0, 3, 4, 7], [1, 2, 5, 6]]
    """
    parts: list[list[Tensor]] = [[] for _ in range(devices)]
    start = 0
    for length in lengths:
        for part, tokens in zip(parts, split(length, devices).tokens, strict=True):
            part.append(start + tokens)
        start += length
    joined = tuple(torch.cat(part) for part in parts)
    return Shards(joined, packed_position_ids(lengths), segment_ids(lengths))


def _one_document(seq_len: int, parts: Sequence[Tensor]) -> Shards:
    return Shards(tuple(parts), torch.arange(seq_len))
