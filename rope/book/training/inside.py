"""Measure what a trained model does with its positions: chapter "What the model uses".

One part reads each plane's norms, the scores, and how much of the scores distance alone explains:

    s_bmn = a_bm + f(m - n) + rest,

with a_bm free for each query, because the softmax ignores it, and f fitted by least squares. The
other part temporarily stops planes from rotating, or removes them from the scores.

Shapes: B batch, H heads, S sequence, D head dimension, R rotated width.
"""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import cast
from unittest.mock import patch

import torch
from torch import Tensor, nn

from rope.book.training.decoder import Attention, Block, Decoder
from rope.book.training.defects import check_rotary, check_softmax
from rope.book.training.positions import Places, Rotary


@torch.no_grad()
def plane_norms(model: Decoder, inputs: Tensor) -> tuple[Tensor, Tensor]:
    """Return the mean norm of q and of k in each plane, over all tokens.

    inputs: int64 `[B, S]`. Returns two tensors `[layers, H, R/2]`, for unrotated q and k; a
    rotation keeps norms (xPos's decay does not). For a method that rotates nothing, the planes are
    the D/2 planes that RoPE would rotate. Raises ValueError for linear attention.

    >>> from rope.book.training import Experiment
    >>> model = Decoder(Experiment(layers=3, width=16, heads=2), tokens=5)
    >>> q, k = plane_norms(model, torch.tensor([[1, 2, 3]]))
    >>> q.shape, bool((k > 0).all())
    (torch.Size([3, 2, 4]), True)
    """
    rotary = model.positions
    width = rotary.dim if isinstance(rotary, Rotary) else model.experiment.head_dim
    means: tuple[list[Tensor], list[Tensor]] = ([], [])
    for attention, x, _ in calls(model, inputs):
        for rows, vectors in zip(means, attention.heads(x)[:2], strict=True):
            shape, pair = ((-1, 2), -1) if attention.experiment.interleaved else ((2, -1), -2)
            planes = vectors[..., :width].unflatten(-1, shape)  # [B, H, S, R/2, 2], or 2, R/2
            rows.append(planes.norm(dim=pair).mean(dim=(0, 2)))
    return torch.stack(means[0]), torch.stack(means[1])


def scores(model: Decoder, inputs: Tensor, layer: int) -> Tensor:
    """Return a layer's scores before the softmax, `[B, H, S, S]`, with -inf for later keys.

    Row m belongs to query m. The scores are divided by sqrt(D) and include the method's bias, if
    any. inputs: int64 `[B, S]`.
    Raises ValueError for linear attention, IndexError for a layer that doesn't exist.

    >>> from rope.book.training import Experiment
    >>> model = Decoder(Experiment(width=16, heads=2), tokens=5)
    >>> scores(model, torch.tensor([[1, 2, 3]]), layer=0)[0, 0].isinf()
    tensor([[False,  True,  True],
            [False, False,  True],
            [False, False, False]])
    """
    return _scores(*calls(model, inputs)[layer])


def weights(model: Decoder, inputs: Tensor, layer: int) -> Tensor:
    """Return a layer's attention weights after the softmax, `[B, H, S, S]`; rows sum to 1.

    For the arguments and errors, see `scores`.

    >>> from rope.book.training import Experiment
    >>> model = Decoder(Experiment(width=16, heads=2), tokens=5)
    >>> weights(model, torch.tensor([[1, 2, 3]]), layer=3)[0, 0, 0]
    tensor([1., 0., 0.])
    """
    return scores(model, inputs, layer).softmax(dim=-1)


def by_distance(model: Decoder, inputs: Tensor) -> tuple[Tensor, Tensor]:
    """Return the mean score and the mean weight at each distance m - n, over sequences and queries.

    inputs: int64 `[B, S]`. Returns two tensors `[layers, H, S]`, float64, for the distances
    0 ... S-1; only one query has the last distance. Raises ValueError for linear attention.

    >>> from rope.book.training import Experiment
    >>> model = Decoder(Experiment(layers=3, width=16, heads=2), tokens=5)
    >>> score, weight = by_distance(model, torch.tensor([[1, 2, 3, 4]]))
    >>> score.shape
    torch.Size([3, 2, 4])
    """
    layers = [_scores(*call) for call in calls(model, inputs)]
    score = torch.stack([diagonal_means(layer) for layer in layers])
    weight = torch.stack([diagonal_means(layer.softmax(dim=-1)) for layer in layers])
    return score, weight


@torch.no_grad()
def by_plane(model: Decoder, inputs: Tensor) -> Tensor:
    """Return each plane's part of the mean score by distance: float64 `[R/2, layers, H, S]`.

    A score is a sum over planes. If all of the head rotates, the parts add up to the scores from
    `by_distance`. inputs: int64 `[B, S]`. Raises ValueError for a model that rotates nothing.

    >>> from rope.book.training import Experiment
    >>> model = Decoder(Experiment(layers=3, width=16, heads=2), tokens=5)
    >>> by_plane(model, torch.tensor([[1, 2, 3, 4]])).shape
    torch.Size([4, 3, 2, 4])
    """
    width = check_rotary(model).dim
    dims = torch.arange(width)
    pairs = dims.view(-1, 2) if model.experiment.interleaved else dims.view(2, -1).mT
    layers = []
    for attention, x, places in calls(model, inputs):
        q, k, _ = attention.heads(x)
        masks = torch.zeros(width // 2, q.shape[-1]).scatter_(1, pairs, 1.0).to(q)
        parts = [attention.scores(q * mask, k, places) for mask in masks]
        layers.append(torch.stack([diagonal_means(part) for part in parts]))
    return torch.stack(layers, dim=1)


def position_share(model: Decoder, inputs: Tensor) -> Tensor:
    """Return the share of each head's score variance that distance alone explains.

    Each query's scores are centered over the keys that it sees. The share is the R^2 of the
    function of distance that fits these scores best. Near 1, a head attends by position; near 0, by
    content. A model without positions has a share slightly above 0, because at distance 0 a token
    meets itself, and because a fit to few sequences follows chance. Constant scores give 0.
    inputs: int64 `[B, S]`. Returns float64 `[layers, H]`. Raises ValueError for linear attention.

    >>> from rope.book.training import Experiment
    >>> model = Decoder(Experiment(layers=3, width=16, heads=2), tokens=5)
    >>> same = torch.ones(1, 9, dtype=torch.long)  # tokens differ only by distance
    >>> position_share(model, same).round(decimals=3)[0]
    tensor([1., 1.], dtype=torch.float64)
    """
    return torch.stack([_explained(_scores(*call)) for call in calls(model, inputs)])


@contextmanager
def frozen(model: Decoder, planes: Iterable[int]) -> Iterator[None]:
    """Stop these planes from rotating (theta_j = 0) in all layers; they compare only content.

    planes: numbers 0 ... R/2 - 1, fast to slow. xPos keeps its decay. Raises ValueError for a model
    that rotates nothing, IndexError for a plane that doesn't exist.

    >>> from rope.book.training import Experiment
    >>> model = Decoder(Experiment(width=16, heads=2), tokens=5)
    >>> with frozen(model, [1, 3]):
    ...     model.positions.frequencies(4, torch.device("cpu"))
    tensor([1.0000, 0.0000, 0.0100, 0.0000], dtype=torch.float64)
    """
    rotary = check_rotary(model)
    chosen = plane_mask(planes, rotary)
    frequencies = rotary.frequencies

    def without(seq_len: int, device: torch.device) -> Tensor:
        return frequencies(seq_len, device).masked_fill(chosen.to(device), 0.0)

    with patch.object(rotary, "frequencies", without):
        yield


@contextmanager
def erased(model: Decoder, planes: Iterable[int]) -> Iterator[None]:
    """Remove these planes from all scores in all layers.

    planes: see `frozen`, also for errors. Raises ValueError for linear attention too, because its
    denominator would keep the planes.

    >>> from rope.book.training import Experiment
    >>> model = Decoder(Experiment(width=16, heads=2), tokens=5)
    >>> with erased(model, range(4)):
    ...     weights(model, torch.tensor([[1, 2]]), layer=0)[0, 0]
    tensor([[1.0000, 0.0000],
            [0.5000, 0.5000]])
    """
    rotary = check_rotary(model)
    check_softmax(model)
    chosen = plane_mask(planes, rotary)
    forward = rotary.forward

    def without(position_ids: Tensor) -> Places:
        places = forward(position_ids)
        assert places.query is not None
        cos, sin = (table.masked_fill(chosen.to(table.device), 0.0) for table in places.query)
        return places._replace(query=(cos, sin))  # the query is 0 in these planes

    with patch.object(rotary, "forward", without):
        yield


def plane_mask(planes: Iterable[int], rotary: Rotary) -> Tensor:
    """Return a bool mask `[R/2]` that is True for the given planes."""
    mask = torch.zeros(rotary.dim // 2, dtype=torch.bool)
    mask[list(planes)] = True
    return mask


@torch.no_grad()
def calls(model: Decoder, inputs: Tensor) -> list[tuple[Attention, Tensor, Places]]:
    """Return each layer's attention and the arguments of its call when the model reads inputs."""
    check_softmax(model)
    seen: list[tuple[Attention, Tensor, Places]] = []

    def see(attention: nn.Module, given: tuple[Tensor, Places]) -> None:
        seen.append((cast(Attention, attention), *given))

    with ExitStack() as hooks:
        for block in model.blocks:
            attention = cast(Block, block).attention
            hooks.enter_context(attention.register_forward_pre_hook(see))
        model(inputs.to(model.embedding.weight.device))
    return seen


@torch.no_grad()
def _scores(attention: Attention, x: Tensor, places: Places) -> Tensor:
    q, k, _ = attention.heads(x)
    return attention.scores(q, k, places)


def diagonal_means(square: Tensor) -> Tensor:
    """Return the means of `[B, H, S, S]` along each diagonal from the main one down: `[H, S]`."""
    diagonals = (square.diagonal(-distance, 2, 3) for distance in range(square.shape[-1]))
    return torch.stack([values.double().mean(dim=(0, -1)) for values in diagonals], dim=-1)


def _explained(score: Tensor) -> Tensor:
    """Return R^2 of the best f(m - n) plus a free constant per row: `[H]`, float64."""
    length = score.shape[-1]
    seen = torch.ones(length, length, dtype=torch.float64, device=score.device).tril()
    score = score.double().masked_fill(seen == 0, 0.0)
    mean = score.sum(dim=-1, keepdim=True) / seen.sum(dim=-1, keepdim=True)
    centred = (score - mean) * seen
    # Solve the normal equations G f = r. Row m sees each distance 0 ... m once, as in seen[m].
    within = seen / seen.sum(dim=-1, keepdim=True)
    normal = torch.diag(seen.sum(dim=0)) - seen.mT @ within  # G, [S, S]; ignores a constant in f
    sums = [centred.diagonal(-distance, 2, 3).sum(dim=-1) for distance in range(length)]
    right = torch.stack(sums, dim=-1).mean(dim=0)  # r, [H, S], a mean over sequences
    fitted = right @ torch.linalg.pinv(normal, hermitian=True)
    total = centred.square().sum(dim=(-2, -1)).mean(dim=0)  # [H]
    return torch.where(total > 0, (fitted * right).sum(dim=-1) / total, 0.0)
