"""Which tokens each device holds, and where they stand: chapter "Across devices".

A rotation asks for a token's position alone, so any split of a sequence will do, as long as the
positions travel with the tokens.

Shapes: S sequence, P devices, S_i tokens of device i, which sum to S.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from rope.attention.sight import segment_ids
from rope.checks import check_count
from rope.positions import check_lengths, packed_position_ids


@dataclass(frozen=True, eq=False)
class Shards:
    """A split of a sequence over devices, alike in every process, which nothing here can notice.

    tokens: of each device, in the order in which it holds them, int64 `[S_i]`; each of 0 ... S-1
    stands in one of them. at: the position of every token, int64 `[S]`; segments: the number of
    its document, int64 `[S]`, or None where there is one. All on the CPU.
    Raises ValueError for what is no such split.

    >>> shards = head_tail(8, devices=2)
    >>> [part.tolist() for part in shards.tokens]
    [[0, 1, 6, 7], [2, 3, 4, 5]]
    """

    tokens: tuple[Tensor, ...]
    at: Tensor
    segments: Tensor | None = None

    def __post_init__(self) -> None:
        every = torch.cat(self.tokens)
        if not torch.equal(every.sort().values, torch.arange(len(every))):
            raise ValueError(
                f"tokens holds the numbers {every.tolist()[:20]} ...; together the devices must "
                f"hold each of 0 ... {len(every) - 1} once, int64 on the CPU"
            )
        for name, numbers in {"at": self.at, "segments": self.segments}.items():
            if numbers is not None and (
                numbers.shape != every.shape or numbers.dtype != torch.int64
            ):
                raise ValueError(
                    f"{name} is {numbers.dtype} of shape {list(numbers.shape)}; it must be int64 "
                    f"[{len(every)}], a number for each token"
                )

    def __len__(self) -> int:
        return len(self.tokens)

    def position_ids(self, device: int) -> Tensor:
        """Where the tokens of a device stand: int64 `[S_i]`, for `RotaryEmbedding` and the like.

        An extension whose spectrum depends on the length must be told that of the whole,
        `seq_len=int(shards.at.max()) + 1`: the largest position here is this device's own.

        >>> packed([4, 4], devices=2).position_ids(0)
        tensor([0, 3, 0, 3])
        """
        return self.at[self._of(device)]

    def of(self, x: Tensor, device: int, dim: int = 2) -> Tensor:
        """A device's part of a whole tensor, whose sequence is `dim`.

        >>> head_tail(8, devices=2).of(torch.arange(8), 1, dim=0)
        tensor([2, 3, 4, 5])
        """
        if x.shape[dim] != len(self.at):
            raise ValueError(
                f"x has {x.shape[dim]} tokens along axis {dim}; it must have {len(self.at)}, those "
                "of the shards: pass the whole tensor, and the axis of its sequence as dim"
            )
        return x.index_select(dim, self._of(device).to(x.device))

    def together(self, parts: Sequence[Tensor], dim: int = 2) -> Tensor:
        """The whole tensor from the parts of all devices: the inverse of `of`.

        >>> shards = round_robin(5, devices=2)
        >>> shards.together([shards.of(torch.arange(5), i, 0) for i in (0, 1)], dim=0)
        tensor([0, 1, 2, 3, 4])
        """
        sizes, wanted = [part.shape[dim] for part in parts], [len(part) for part in self.tokens]
        if sizes != wanted:
            raise ValueError(
                f"the parts have {sizes} tokens along axis {dim}; they must have {wanted}, those "
                "of the shards, in the order of the devices"
            )
        return torch.cat([*parts], dim).index_select(dim, self.back.to(parts[0].device))

    def _of(self, device: int) -> Tensor:
        if not 0 <= device < len(self):
            raise ValueError(f"device is {device}; it must be one of 0 ... {len(self) - 1}")
        return self.tokens[device]

    @property
    def back(self) -> Tensor:
        """Where each token stands once the parts are joined, int64 `[S]`.

        >>> head_tail(4, devices=2).back
        tensor([0, 2, 3, 1])
        """
        return torch.cat(self.tokens).argsort()

    def sees(self, queries: Tensor, keys: Tensor) -> Tensor:
        """Who sees whom: bool `[queries, keys]`, from the numbers of both tokens.

        >>> packed([1, 2], 1, contiguous).sees(torch.arange(3), torch.arange(3)).int()
        tensor([[1, 0, 0],
                [0, 1, 0],
                [0, 1, 1]], dtype=torch.int32)
        """
        seen = queries[:, None] >= keys
        if self.segments is not None:
            seen = seen & (self.segments[queries][:, None] == self.segments[keys])
        return seen


def contiguous(seq_len: int, devices: int) -> Shards:
    """One stretch a device, cut as DTensor and `torch.chunk` cut; the last may be short or empty.

    >>> [part.tolist() for part in contiguous(5, devices=2).tokens]
    [[0, 1, 2], [3, 4]]
    """
    _check(seq_len, devices)
    parts = torch.arange(seq_len).chunk(devices)
    return _one_document(seq_len, [*parts, *[parts[0][:0]] * (devices - len(parts))])


def head_tail(seq_len: int, devices: int) -> Shards:
    """Of 2P stretches device i has the i-th and the i-th last: zigzag, as it is called as well.

    So every device has equally many causal pairs.

    Raises ValueError for a length that 2P does not divide: PyTorch's `context_parallel` then cuts
    contiguous stretches instead, and does not say so.

    >>> head_tail(18, devices=2)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ValueError: seq_len is 18 for 2 devices; it must be a multiple of 4: pad it to 20, ...
    """
    _check(seq_len, devices)
    if extra := seq_len % (2 * devices):
        raise ValueError(
            f"seq_len is {seq_len} for {devices} devices; it must be a multiple of {2 * devices}: "
            f"pad it to {seq_len - extra + 2 * devices}, or use contiguous or round_robin"
        )
    parts = torch.arange(seq_len).reshape(2 * devices, -1)
    return _one_document(seq_len, [torch.cat((parts[i], parts[-1 - i])) for i in range(devices)])


def round_robin(seq_len: int, devices: int) -> Shards:
    """Device i has tokens i, i + P, i + 2P, ...: striped, as it is called as well.

    >>> [part.tolist() for part in round_robin(5, devices=2).tokens]
    [[0, 2, 4], [1, 3]]
    """
    _check(seq_len, devices)
    tokens = torch.arange(seq_len)
    return _one_document(seq_len, [tokens[i::devices] for i in range(devices)])


def packed(
    lengths: Sequence[int], devices: int, split: Callable[[int, int], Shards] = head_tail
) -> Shards:
    """Several documents in one row, each split by itself, positions from 0 in each.

    lengths: of the documents, positive, summing to S; split: one of the three above, whose first
    devices get what does not divide, of every document. Raises as it does, for the document that it
    cannot split.

    >>> [part.tolist() for part in packed([4, 4], devices=2).tokens]
    [[0, 3, 4, 7], [1, 2, 5, 6]]
    """
    check_lengths(lengths)
    check_count("devices", devices)
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


def _check(seq_len: int, devices: int) -> None:
    check_count("seq_len", seq_len)
    check_count("devices", devices)
