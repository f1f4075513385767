"""What is done to the tokens of a cache: moved, dropped, kept, a draft of them accepted.

Moves are summed as integers, `positions` alone: keys are brought there when they are read, in one
rotation from what was stored, R_delta R_n k = R_{n+delta} k; so their roundings do not add up.

Shapes: B batch, N slots, n tokens of a draft.
"""

import torch
from torch import Tensor

from rope.attention.packed import check_segment_ids
from rope.attention.sight import Sight
from rope.attention.tree import check_parents, check_path
from rope.checks import check_count, check_devices, check_integer, check_tensor
from rope.positions import check_position_ids

FARTHEST = 2**53


class Moves(Sight):
    """The part of a `KVCache` that changes positions and no key, and refuses bad ones."""

    def shift(self, delta: int | Tensor, slots: Tensor | None = None) -> None:
        """Move tokens by delta positions; their keys follow when they are read, in one rotation.

        delta: an int, or integers `[B]`, one a row; below 0 to move back. slots: bool `[B, N]`, the
        tokens to move, all when None. Reads the data.
        Raises ValueError for a token that would stand below 0, and while a draft is open, TypeError
        for other dtypes; the cache is then unchanged.

        >>> from rope.attention import KVCache
        >>> cache, x = KVCache(1, 1, 4, 2), torch.ones(1, 1, 3, 2)
        >>> _ = cache.append(x, x, torch.tensor([7, 8, 9]))
        >>> cache.shift(-5)
        >>> cache.positions
        tensor([[ 2,  3,  4, -1]])
        """
        self._check_settled("shift")
        if isinstance(delta, Tensor):
            check_integer("delta", delta)
            check_devices(cache=self.positions, delta=delta)
            if delta.shape != self._shape[:1]:
                raise ValueError(
                    f"delta has shape {list(delta.shape)}; it must be an integer, or "
                    f"[{self._shape[0]}], one a row: move some of a row by slots"
                )
            delta = delta.long()[:, None]
        else:
            check_count("delta", delta, smallest=-FARTHEST)
        moved = self.positions >= 0
        if slots is not None:
            moved = moved & self._checked("slots", slots)
        there = torch.where(moved, self.positions + delta, self.positions)
        low, at = torch.where(moved, there, 0).min(), self.positions
        if there.max() >= FARTHEST:
            raise ValueError(
                f"delta moves a token to {int(there.max())}; positions must stay below {FARTHEST}, "
                "up to which float64 tells them apart: move by less"
            )
        if low < 0:
            raise ValueError(
                f"delta moves a token to {int(low)}; positions start at 0: drop the tokens that "
                "would stand before, or move by less"
            )
        changed = there != at
        if changed.any():
            self._stale = changed if self._stale is None else self._stale | changed
            self._put_positions(there)

    def drop(self, mask: Tensor) -> None:
        """Empty the slots where the mask, bool `[B, N]`, is True; no other token moves.

        Raises ValueError for a slot that is empty, another shape or device, and while a draft is
        open, TypeError for what is no bool; the cache is then unchanged. Reads the data.

        >>> from rope.attention import KVCache
        >>> cache, x = KVCache(1, 1, 4, 2), torch.ones(1, 1, 3, 2)
        >>> _ = cache.append(x, x)
        >>> cache.drop(cache.positions == 1)
        >>> cache.positions
        tensor([[ 0, -1,  2, -1]])
        """
        self._check_settled("drop")
        absent = (self._checked("mask", mask) & (self.positions < 0)).nonzero()
        if len(absent):
            row, slot = absent[0].tolist()
            raise ValueError(
                f"mask drops slot {slot} of row {row}, which is empty; it must name tokens "
                "that are held: take it from positions, whose empty slots are -1"
            )
        self._only(~mask)

    def keep(self, mask: Tensor) -> None:
        """Empty all slots but those where the mask, bool `[B, N]`, is True.

        Raises as `drop` does, but for empty slots, which stay empty. Reads the data.

        >>> from rope.attention import KVCache
        >>> cache, x = KVCache(1, 1, 4, 2), torch.ones(1, 1, 3, 2)
        >>> _ = cache.append(x, x)
        >>> cache.keep(cache.positions >= 2)
        >>> cache.positions
        tensor([[-1, -1,  2, -1]])
        """
        self._check_settled("keep")
        self._only(self._checked("mask", mask))

    def accept(self, path: Tensor) -> None:
        """Close the draft: keep one path of its tree from the root down, and empty its other slots.

        path: integers `[length]` or `[B, length]`, numbers of tokens in the order drafted; -1 ends
        a row's path early, and keeps nothing if it comes first. Reads the data.
        Raises ValueError for a path that is none, or without a draft, TypeError for what is no
        integer tensor; the cache is then unchanged.

        >>> from rope.attention import KVCache
        >>> cache, x = KVCache(1, 1, 4, 2), torch.ones(1, 1, 3, 2)
        >>> _ = cache.append(x, x, parents=torch.tensor([-1, -1, 1]))
        >>> cache.accept(torch.tensor([1, 2]))
        >>> cache.positions
        tensor([[-1,  0,  1, -1]])
        """
        draft = self._draft
        if draft is None:
            raise ValueError(
                "there is no draft; accept must close one: append tokens with their parents first"
            )
        path = check_path(path, draft.parents)
        numbers = torch.arange(draft.parents.shape[1], device=self._device)
        kept = (path[:, :, None] == numbers).any(dim=1)  # [B, n]
        at = self.positions.gather(1, draft.slots).masked_fill(~kept, -1)
        self._draft = None
        self._only(self.positions.scatter(1, draft.slots, at) >= 0)

    def _check_room(self, seq_len: int, drafted: bool, window: int | None, sinks: int) -> None:
        """Refuse tokens that find no room, or come in the middle of a draft."""
        if seq_len and not drafted:
            self._check_settled("append without parents")
        least, room = self.length + seq_len, self._shape[1]
        if window is not None:  # all that no window holds makes room, for one token at least
            held = window - 1 + sinks + self._drafted
            least = min(least, held + (seq_len if drafted else 1))
        if least > room:
            raise ValueError(
                f"the cache holds {self.length} of {room} tokens; {seq_len} more do not fit: "
                f"grow it to {least}, or reset it"
            )

    def _check_ids(
        self,
        k: Tensor,
        position_ids: Tensor | None,
        segment_ids: Tensor | None,
        parents: Tensor | None,
        rising: bool,
    ) -> None:
        """Refuse ids that do not fit each other or what is held; rising: as a window needs them."""
        if parents is not None and position_ids is not None:
            raise ValueError(
                "position_ids are given beside parents, which say how deep each token stands; one "
                "of the two must be left out: a draft counts its own positions"
            )
        if parents is not None:
            check_parents(parents, self._drafted, k)
        if position_ids is not None:
            check_position_ids(position_ids, k)
        if segment_ids is not None:
            check_segment_ids(segment_ids, k=k)
        if segment_ids is not None and self._segments is None and self.length:
            raise ValueError(
                f"segment_ids was given after {self.length} tokens without; the cache must know "
                "who may see whom from the first token: give them with the prompt, or reset it"
            )
        if torch.compiler.is_compiling() or self._device.type != "cpu":
            return  # a GPU would have to wait for the numbers
        if position_ids is None:
            last = None if self._positions is None else self._segment  # else slots are counted
            if segment_ids is None or last is None or bool((segment_ids == last).all()):
                return
            raise ValueError(
                f"segment_ids holds {segment_ids.tolist()} after {last.tolist()}, without "
                "position_ids; where another sequence goes on or begins, its positions must be "
                "said: pass both"
            )
        ids = position_ids.long().expand(self._shape[0], -1)
        wrong = (ids < -1) | (ids >= FARTHEST)
        if rising:  # or a window could hold more tokens than it has positions
            last = torch.cat((self._next() - 1, ids[:, :-1]), dim=1).cummax(dim=1).values
            wrong = wrong | ((ids >= 0) & (ids <= last))
        if wrong.any():
            raise ValueError(
                f"position_ids holds {int(ids[wrong][0])}; it must "
                + ("rise along each row, beside a window" if rising else "be -1, padding, or more,")
                + f" below {FARTHEST}"
                + ": leave it out to count on"
            )

    def _check_settled(self, what: str) -> None:
        if self._draft is not None:
            raise ValueError(
                f"a draft of {self._draft.parents.shape[1]} tokens is open; {what} must wait until "
                "one path of it is kept: call accept first"
            )

    def _only(self, mask: Tensor) -> None:
        self._put_positions(self.positions.masked_fill(~mask, -1))
        held = (self.positions >= 0).any(dim=0).nonzero()
        self._end = int(held[-1]) + 1 if len(held) else 0
        self._new, self._latest = 0, None  # the slots of the last call may be gone
        self.length = self._most()

    def _checked(self, name: str, mask: Tensor) -> Tensor:
        """A mask of slots, refused if it is no bool `[B, N]` on the device."""
        check_tensor(name, mask)
        check_devices(**{"cache": self.positions, name: mask})
        if mask.dtype != torch.bool or mask.shape != self._shape:
            kind = TypeError if mask.dtype != torch.bool else ValueError
            raise kind(
                f"{name} is {mask.dtype} {list(mask.shape)}; it must be torch.bool "
                f"{list(self._shape)}, one a slot: compare positions, say"
            )
        return mask
