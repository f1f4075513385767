"""What strategies that know no place score in the tasks: floors under what models answer.

Whoever answers a question with the commonest symbol so far, or of the last ones, is right more
often than one who guesses, and has found nothing.

Shapes: B batch, S sequence.
"""

from torch import Tensor
from torch.nn.functional import one_hot

from rope.book.training.data import IGNORED, SYMBOLS


def commonest(inputs: Tensor, last: int | None = None) -> Tensor:
    """The commonest symbol so far at each place, int64 `[B, S]`; of those as common the least.

    inputs: of `RecallData` or `LookupData`, whose even places hold the symbols; last: how many of
    the latest symbols count, all when None.

    >>> import torch
    >>> commonest(torch.tensor([[3, 20, 3, 20, 5, 20, 5, 20]]))
    tensor([[3, 3, 3, 3, 3, 3, 3, 3]])
    >>> commonest(torch.tensor([[3, 20, 3, 20, 5, 20, 5, 20]]), last=3)
    tensor([[3, 3, 3, 3, 3, 3, 5, 5]])
    """
    counts = one_hot(inputs[:, ::2] % SYMBOLS, SYMBOLS).cumsum(dim=1)  # [B, S/2, SYMBOLS]
    if last is not None and last < counts.shape[1]:
        counts[:, last:] -= counts[:, :-last].clone()
    return counts.argmax(dim=-1).repeat_interleave(2, dim=1)[:, : inputs.shape[1]]


def share_right(guess: Tensor, targets: Tensor) -> float:
    """The share of the questions that a guess `[B, S]` answers; NaN where nothing is asked."""
    asked = targets != IGNORED
    return (guess == targets)[asked].double().mean().item()
