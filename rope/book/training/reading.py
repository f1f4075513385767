"""Change how a trained model attends: "What the model uses" and "Beyond the trained length".

The changes are a window of the last keys, with or without sinks; planes whose distances never
exceed the trained length; one profile of offsets per head, equal for all queries; and a removed
head. Each change lasts inside a `with` block and leaves the weights alone. Texts start at
position 0.

Shapes: B batch, H heads, S sequence, D head dimension, R rotated width, L trained context.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import cast
from unittest.mock import patch

import torch
from torch import Tensor, nn

from rope.book.training.corpus import generator
from rope.book.training.decoder import Attention, Block, Decoder, keys_ahead
from rope.book.training.defects import check_softmax, check_undecayed
from rope.book.training.inside import calls, diagonal_means, plane_mask
from rope.book.training.positions import Places, Rotary
from rope.checks import check_count
from rope.frequencies import rotary_tables
from rope.functional import rotary_embedding

Scores = Callable[[Attention, Tensor, Tensor, Places], Tensor]  # takes unrotated q and k


@contextmanager
def windowed(model: Decoder, sinks: int = 0, *, moved: bool = True) -> Iterator[None]:
    """Let each query see only the last L keys, its own included, in every layer.

    sinks: how many of the L keys are the first keys of the text instead (arXiv 2309.17453). moved:
    True gives sinks positions in the cache, so that a later query sees them at the distances from
    position L - 1; False keeps their positions in the text.
    Raises ValueError for linear attention, for L or more sinks, and for moved sinks in a model that
    is not rotary.

    >>> from rope.book.training import Experiment
    >>> model = Decoder(Experiment(width=16, heads=2, layers=1, context=4), tokens=9)
    >>> text = torch.arange(9)
    >>> other = text.clone()
    >>> other[0] = 5
    >>> with windowed(model), torch.no_grad():
    ...     [bool(same) for same in (model(text[None]) == model(other[None]))[0].all(dim=-1)]
    [False, False, False, False, True, True, True, True, True]
    """
    check_softmax(model)
    check_count("sinks", sinks, smallest=0)
    context = model.experiment.context
    if sinks >= context:
        raise ValueError(
            f"sinks is {sinks} for a window of {context} keys; the window must also hold the "
            f"query's own key: pass at most {context - 1}"
        )
    if sinks and moved:
        check_undecayed(model)

    def scores(attention: Attention, q: Tensor, k: Tensor, places: Places) -> Tensor:
        score = attention.scores(q, k, places)
        if sinks and moved and places.query is not None:
            row = torch.arange(score.shape[-1], device=score.device).clamp(max=context - 1)
            cos, sin = (table[row] for table in places.query)
            within = attention.scores(q, k, places._replace(query=(cos, sin)))
            score = torch.cat((within[..., :sinks], score[..., sinks:]), dim=-1)
        dropped = _distance(score) >= context - sinks
        dropped[:, :sinks] = False
        return score.masked_fill(dropped, -math.inf)

    with _scoring(model, [scores] * len(model.blocks)):
        yield


@contextmanager
def clamped(
    model: Decoder, planes: Iterable[int], length: int | None = None, *, draw: int | None = None
) -> Iterator[None]:
    """Replace every distance of at least `length` by length - 1, in these planes only.

    planes: the plane numbers, 0 ... R/2 - 1. length: the default, L, makes length - 1 the farthest
    trained distance. draw: the seed for random distances. If it is given, each far key gets a
    random distance from 0 ... length - 1 instead, the same distance in all layers.
    Raises errors as `rope.book.training.inside.frozen` does, and ValueError for xPos, which decays.
    """
    rotary = check_undecayed(model)
    chosen, context = plane_mask(planes, rotary), length or model.experiment.context

    def scores(attention: Attention, q: Tensor, k: Tensor, places: Places) -> Tensor:
        near = attention.scores(q, k, places)
        if near.shape[-1] <= context:
            return near
        assert places.query is not None and places.key is not None
        query = [torch.where(chosen, table[context - 1], table) for table in places.query]
        at = torch.zeros(near.shape[-1], dtype=torch.long)
        if draw is not None:
            at = torch.randint(context, at.shape, generator=generator(draw, "distances"))
        key = [torch.where(chosen, table[at], table) for table in places.key]
        far = attention.scores(q, k, Places(query=(query[0], query[1]), key=(key[0], key[1])))
        return torch.where(_distance(near) < context, near, far)

    with _scoring(model, [scores] * len(model.blocks)):
        yield


def profiles(model: Decoder, inputs: Tensor) -> Tensor:
    """Return the mean score minus its content part, by distance: float64 `[layers, H, S]`.

    The content part is the score's mean over the offsets in a text of L tokens, for the same query
    and key. inputs: int64 `[B, S]`. Raises ValueError as `clamped` does.
    """
    rotary = check_undecayed(model)
    found = []
    with torch.no_grad():
        for attention, x, places in calls(model, inputs):
            q, k, _ = attention.heads(x)
            beyond = attention.scores(q, k, places) - _content(attention, rotary, q, k)
            found.append(diagonal_means(beyond))
    return torch.stack(found)


@contextmanager
def profiled(model: Decoder, profile: Tensor, learned: Tensor | None = None) -> Iterator[None]:
    """Replace each score by its content part plus the head's profile at that distance.

    All queries of a head then prefer the same offsets. profile: `[layers, H, S]` from `profiles`,
    for texts of up to S tokens. learned: a trainable tensor of the same shape; sqrt(E) * learned is
    added to the profile, as with T5's numbers. Raises ValueError as `clamped` does.
    """
    rotary = check_undecayed(model)
    scale = math.sqrt(model.experiment.width)

    def scores(layer: int, lines: Tensor) -> Scores:
        def of(attention: Attention, q: Tensor, k: Tensor, places: Places) -> Tensor:
            content = _content(attention, rotary, q, k)
            beyond = lines if learned is None else lines + scale * learned[layer]
            score = content + beyond[:, _distance(content).clamp(min=0)]
            return score.masked_fill(keys_ahead(score), -math.inf)

        return of

    with _scoring(model, [scores(*line) for line in enumerate(profile.float())]):
        yield


@contextmanager
def without_head(model: Decoder, layer: int, head: int) -> Iterator[None]:
    """Remove this head's output; raise IndexError if the layer or the head doesn't exist.

    >>> from rope.book.training import Experiment
    >>> model = Decoder(Experiment(width=16, heads=2, layers=1), tokens=5)
    >>> with without_head(model, 0, 0), without_head(model, 0, 1), torch.no_grad():
    ...     logits = model(torch.tensor([[1, 2, 2]]))[0]
    >>> torch.equal(logits[1], logits[2])  # no attention, no positions
    True
    """
    kept = torch.ones(model.experiment.heads, model.experiment.head_dim)
    kept[head] = 0

    def silence(_: nn.Module, given: tuple[Tensor]) -> tuple[Tensor]:
        return (given[0] * kept.flatten().to(given[0].device),)

    handle = _attentions(model)[layer].out.register_forward_pre_hook(silence)
    try:
        yield
    finally:
        handle.remove()


def _content(attention: Attention, rotary: Rotary, q: Tensor, k: Tensor) -> Tensor:
    """Return the mean scores over offsets 0 ... L - 1, weighted as in a text of L tokens."""
    context = rotary.experiment.context
    tables = rotary_tables(context, rotary.frequencies(context, q.device), dtype=torch.float64)
    share = torch.arange(context, 0, -1, dtype=torch.float64, device=q.device)
    cos, sin = ((share @ table / share.sum()).float().expand(q.shape[2], -1) for table in tables)
    turned = rotary_embedding(q, cos, sin, interleaved=attention.experiment.interleaved)
    return turned @ k.mT / math.sqrt(q.shape[-1])


def _distance(scores: Tensor) -> Tensor:
    """Return each score's distance m - n, integers `[S, S]`, negative for later keys."""
    at = torch.arange(scores.shape[-1], device=scores.device)
    return at[:, None] - at


def _attentions(model: Decoder) -> list[Attention]:
    return [cast(Block, block).attention for block in model.blocks]


@contextmanager
def _scoring(model: Decoder, scores: Sequence[Scores]) -> Iterator[None]:
    """Compute each layer's scores with its own function of q and k."""

    def forward(attention: Attention, of: Scores) -> Callable[[Tensor, Places], Tensor]:
        def attend(x: Tensor, places: Places) -> Tensor:
            q, k, v = attention.heads(x)
            mixed = of(attention, q, k, places).softmax(dim=-1) @ v
            return attention.out(mixed.transpose(1, 2).flatten(2))

        return attend

    with ExitStack() as changes:
        for attention, of in zip(_attentions(model), scores, strict=True):
            changes.enter_context(patch.object(attention, "forward", forward(attention, of)))
        yield
