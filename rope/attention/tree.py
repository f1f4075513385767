"""Trees of drafts: several continuations verified in one call, and one path of them kept.

Siblings share a position, their parent's + 1, and a token sees its ancestors and what is cached.

Shapes: B batch, S new tokens, n tokens of the tree.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from rope.checks import check_devices, check_integer


class Draft(NamedTuple):
    """What a cache knows of a tree that it holds: all `[B, n]`, root `[B, 1]`.

    slots: where its tokens are held; root: the position of the first ones.
    """

    parents: Tensor
    slots: Tensor
    root: Tensor


def ancestors(parents: Tensor) -> Tensor:
    """Token i is j, or comes below it: bool `[B, n, n]`, row i, column j.

    parents: integers `[B, n]`, less than i for token i; -1 for a child of the last token cached.
    The depth of token i is one less than the sum of its row.

    >>> ancestors(torch.tensor([[-1, 0, 0, 2]]))[0].int()
    tensor([[1, 0, 0, 0],
            [1, 1, 0, 0],
            [1, 0, 1, 0],
            [1, 0, 1, 1]], dtype=torch.int32)
    """
    size = parents.shape[1]
    numbers = torch.arange(size, device=parents.device)
    below = (numbers[:, None] == numbers) | (parents[:, :, None] == numbers)
    for _ in range((size - 1).bit_length()):  # each time twice as many generations
        below = below.float() @ below.float() > 0
    return below


def check_draft(cached: bool, masked: bool) -> None:
    """Refuse a draft where no cache is, or beside an attention mask.

    >>> check_draft(True, masked=False)
    """
    if not cached:
        raise ValueError(
            "parents are given without a cache; a draft must hang from tokens that are held: "
            "pass the cache of the text before it"
        )
    if masked:
        raise ValueError(
            "parents are given beside attention_mask; all tokens of a draft must be real: leave "
            "the mask out, and give each row a tree of as many tokens"
        )


def check_parents(parents: Tensor, drafted: int, x: Tensor) -> None:
    """Refuse parents that are no integers `[S]` or `[B, S]`, or do not come before their children.

    drafted: tokens of the tree that the cache holds already; x: `[B, ..., S, width]`, the new ones.
    Reads the data.

    >>> check_parents(torch.tensor([-1, 0, 0]), 0, torch.ones(1, 3, 8))
    """
    check_integer("parents", parents)
    check_devices(x=x, parents=parents)
    batch, seq_len = x.shape[0], x.shape[-2]
    if tuple(parents.shape) not in ((seq_len,), (batch, seq_len)):
        raise ValueError(
            f"parents has shape {list(parents.shape)}; it must be [{seq_len}] or "
            f"[{batch}, {seq_len}]: give one parent a token, -1 for the last token cached"
        )
    parents = parents.long()
    own = torch.arange(drafted, drafted + seq_len, device=parents.device)
    wrong = ((parents < -1) | (parents >= own)).expand(batch, -1).nonzero()
    if len(wrong):
        row, i = wrong[0].tolist()
        raise ValueError(
            f"parents holds {int(parents.expand(batch, -1)[row, i])} for token {drafted + i} of "
            f"the tree; it must be -1 ... {drafted + i - 1}, since a parent comes before its "
            "children and a cycle has no first: put the tokens in such an order"
        )


def check_path(path: Tensor, parents: Tensor) -> Tensor:
    """The path as int64 `[B, length]`, refused if it is none from the root of these trees down.

    path: integers `[length]` or `[B, length]`, numbers of tokens in the tree, -1 after the last;
    parents: `[B, n]`. Reads the data.

    >>> check_path(torch.tensor([0, 2]), torch.tensor([[-1, 0, 0]]))
    tensor([[0, 2]])
    """
    check_integer("path", path)
    check_devices(cache=parents, path=path)
    batch, size = parents.shape
    if path.dim() not in (1, 2) or path.shape[:-1] not in ((), (batch,)):
        raise ValueError(
            f"path has shape {list(path.shape)}; it must be [length] or [{batch}, length]: give "
            "the rows of a batch one length, with -1 after their last tokens"
        )
    path = path.long().expand(batch, -1)
    for row, (steps, above) in enumerate(zip(path.tolist(), parents.tolist(), strict=True)):
        last = -1
        for i, step in enumerate(steps):
            ended = i > 0 and last == -1  # padding goes on to the end
            if step != -1 and (ended or not 0 <= step < size or above[step] != last):
                raise ValueError(
                    f"path holds {step} after {last} in row {row}; each must be a child of the "
                    "one before it, the first a child of the last token cached, and -1 ends a "
                    "path: follow the parents back from the last token"
                )
            last = step
    return path
