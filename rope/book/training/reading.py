"""A trained model that reads otherwise: chapters "What the model uses" and the one after it.

A window of the last keys, with sinks or without; planes in which no key stands farther than the
trained length; one profile of offsets a head, the same for every query; a head that says nothing.
Each holds within a `with`; weights are never touched. Texts begin at position 0.

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

Scores = Callable[[Attention, Tensor, Tensor, Places], Tensor]  # of q and k before any rotation


@contextmanager
def windowed(model: Decoder, sinks: int = 0, *, moved: bool = True) -> Iterator[None]:
    """Within it each query sees L keys alone, the last ones, itself among them, in every layer.

    sinks: how many of the L are the first of the text instead (arXiv 2309.17453); moved: whether a
    query farther on sees them where the one at L - 1 does, as with positions in the cache of L, or
    at their places in the text.
    Raises ValueError for linear attention, for as many sinks as L, and for those that are to be
    moved by a model that is not rotary.

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
            f"sinks is {sinks} of a window of {context} keys; the query itself must have one: "
            f"pass at most {context - 1}"
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
    """Within it these planes take every distance of `length` or more for length - 1.

    planes: numbers 0 ... R/2 - 1, as for `rope.book.training.inside.frozen`, and the same errors;
    ValueError for xPos too, whose tables hold a decay. length: L when None, so that length - 1 is
    the farthest trained distance. draw: the seed of another replacement: each far key takes a
    distance of its own, drawn from 0 ... length - 1, and the same in all layers.
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
    """The mean score at each distance beyond what the content gives there: `[layers, H, S]`.

    The content part of a score is its mean over the offsets of a text of L tokens, the query and
    the key kept. inputs: int64 `[B, S]`. Returns float64. Raises ValueError as `clamped` does.
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
    """Within it a score is its content part and the head's profile at the distance, and no more.

    So all queries of a head like the same offsets. profile: `[layers, H, S]` of `profiles`, for
    texts of up to S tokens. learned: as large, added to it times sqrt(E), as T5's numbers are, so
    that it can be trained. Raises ValueError as `clamped` does.
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
    """Within it this head adds nothing; IndexError for a layer or a head that the model has not.

    >>> from rope.book.training import Experiment
    >>> model = Decoder(Experiment(width=16, heads=2, layers=1), tokens=5)
    >>> with without_head(model, 0, 0), without_head(model, 0, 1), torch.no_grad():
    ...     logits = model(torch.tensor([[1, 2, 2]]))[0]
    >>> torch.equal(logits[1], logits[2])  # nothing is known of other tokens, nor of places
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
    """The scores' mean over the offsets 0 ... L - 1, each as often as a text of L tokens has it."""
    context = rotary.experiment.context
    tables = rotary_tables(context, rotary.frequencies(context, q.device), dtype=torch.float64)
    share = torch.arange(context, 0, -1, dtype=torch.float64, device=q.device)
    cos, sin = ((share @ table / share.sum()).float().expand(q.shape[2], -1) for table in tables)
    turned = rotary_embedding(q, cos, sin, interleaved=attention.experiment.interleaved)
    return turned @ k.mT / math.sqrt(q.shape[-1])


def _distance(scores: Tensor) -> Tensor:
    """m - n of each score: integers `[S, S]`, negative for keys ahead."""
    at = torch.arange(scores.shape[-1], device=scores.device)
    return at[:, None] - at


def _attentions(model: Decoder) -> list[Attention]:
    return [cast(Block, block).attention for block in model.blocks]


@contextmanager
def _scoring(model: Decoder, scores: Sequence[Scores]) -> Iterator[None]:
    """Within it each layer's softmax takes what its own function makes of q and k."""

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
