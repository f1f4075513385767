"""What each plane adds to a trained model's scores: chapter "What the model uses".

A score is a sum over planes, and so is its mean at a distance.

Shapes: B batch, H heads, S sequence, D head dimension, R rotated width.
"""

import torch
from torch import Tensor

from rope.book.training.decoder import Decoder
from rope.book.training.defects import check_rotary
from rope.book.training.inside import calls, diagonal_means


@torch.no_grad()
def by_plane(model: Decoder, inputs: Tensor) -> Tensor:
    """What each plane adds to the mean score at each distance: float64 `[R/2, layers, H, S]`.

    Where the whole head rotates, their sum is the score of `by_distance`.
    inputs: int64 `[B, S]`. Raises ValueError for a model that rotates nothing.

    >>> from rope.book.training import Experiment
    >>> model = Decoder(Experiment(layers=3, width=16, heads=2), tokens=5)
    >>> by_plane(model, torch.tensor([[1, 2, 3, 4]])).shape
    torch.Size([4, 3, 2, 4])
    """
    width = check_rotary(model).dim
    dims = torch.arange(width)
    pairs = dims.view(-1, 2) if model.experiment.interleaved else dims.view(2, -1).mT
    found = []
    for attention, x, at in calls(model, inputs):
        q, k, _ = attention.heads(x)
        ones = torch.zeros(width // 2, q.shape[-1]).scatter_(1, pairs, 1.0)
        parts = [attention.scores(q * one.to(q), k, at) for one in ones]
        found.append(torch.stack([diagonal_means(part) for part in parts]))
    return torch.stack(found, dim=1)
