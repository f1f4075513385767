"""Measure what SmolLM2's heads attend to, for the chapter "What the model uses".

    s_mn = sum_j norm(q_mj) norm(k_nj) cos(phi_mnj + (n - m) theta_j) / sqrt(D).

The score s_mn of query m and key n is a sum over planes, so each plane's part can be measured.

Shapes: L layers, H heads, S sequence, D head dimension.
"""

import math
from contextlib import ExitStack

import torch
from torch import Tensor

from rope.book.model.changes import EXACT, INV_FREQ, Change, applied
from rope.book.model.losses import model, token_losses, window

FARTHEST = 256  # bounds are computed for distances below this


@torch.no_grad()
def queries_and_keys(tokens: Tensor) -> tuple[Tensor, Tensor]:
    """Return all heads' q and k, `[L, H, S, D]` each, before the rotation.

    tokens: int64 `[S]`. A key head is repeated for each query head of its group. Changes that are
    already applied to the model stay in effect.
    """
    found = []

    def recording(rotary: Change) -> Change:
        def record(q: Tensor, k: Tensor, position_ids: Tensor) -> tuple[Tensor, Tensor]:
            found.append((q[0], k[0].repeat_interleave(q.shape[1] // k.shape[1], dim=0)))
            return rotary(q, k, position_ids)

        return record

    with ExitStack() as stack:
        for i, block in enumerate(model().blk):
            change: Change = block.attn.rotary  # type: ignore[union-attr, assignment]
            stack.enter_context(applied(model(), recording(change), [i]))
        model()(tokens[None])
    q, k = zip(*found, strict=True)
    return torch.stack(q), torch.stack(k)


def attention_weights(q: Tensor, k: Tensor, change: Change = EXACT) -> Tensor:
    """Return the weights `[L, S, S]` of one head in L layers (or of L heads); row m sums to 1.

    q, k: `[L, S, D]`, before the rotation.
    """
    q, k = change(q[:, None], k[:, None], torch.arange(q.shape[-2]))
    scores = (q @ k.mT)[:, 0] / math.sqrt(q.shape[-1])
    future = torch.ones_like(scores[0], dtype=torch.bool).triu(1)
    return scores.masked_fill(future, -math.inf).softmax(dim=-1)


def targets(tokens: Tensor) -> dict[str, Tensor]:
    """Return a mask `[S, S]` for each kind of target, True where a key is a target of a query.

    "first": the first token. "previous": the previous token. "same": earlier copies of the query's
    token. "next": the tokens after earlier copies of the query's token (induction).
    """
    m, n = torch.arange(len(tokens))[:, None], torch.arange(len(tokens))
    same = (tokens[:, None] == tokens) & (n < m)
    after = torch.zeros_like(same)
    after[:, 1:] = same[:, :-1]
    after &= (n < m) & (n > 0)
    return {
        "first": (n == 0) & (m > 1),
        "previous": (n == m - 1) & (m > 1),
        "same": same & (n < m - 1) & (n > 0),
        "next": after & (n < m - 1),
    }


def shares(tokens: Tensor) -> dict[str, Tensor]:
    """Return each head's mean attention to each kind of target, `[L, H]`.

    The mean is taken over the queries that have such a target.
    """
    q, k = queries_and_keys(tokens)
    found = {}
    weights = [attention_weights(*layer) for layer in zip(q, k, strict=True)]
    for name, keys in targets(tokens).items():
        asked = keys.any(dim=-1)
        found[name] = torch.stack([(w * keys).sum(dim=-1)[:, asked].mean(dim=-1) for w in weights])
    return found


def plane_norms(q: Tensor, k: Tensor) -> Tensor:
    """Return the product of the mean norms of q and k over sqrt(D), per plane: `[..., D/2]`."""
    norms = [x.unflatten(-1, (-1, 2)).norm(dim=-1).mean(dim=-2) for x in (q, k)]
    return norms[0] * norms[1] / math.sqrt(q.shape[-1])


def by_distance(q: Tensor, k: Tensor, farthest: int) -> Tensor:
    """Return the mean score at each distance from 0 to farthest - 1, `[..., farthest]`.

    q, k: `[..., S, D]` before the rotation. The mean at each distance is taken over
    all query-key pairs that are that far apart.
    """
    shape = (-1, 1, *q.shape[-2:])
    q_m, k_n = EXACT(q.reshape(shape), k.reshape(shape), torch.arange(q.shape[-2]))
    scores = (q_m @ k_n.mT)[:, 0] / math.sqrt(q.shape[-1])
    means = [scores.diagonal(-d, -2, -1).mean(dim=-1) for d in range(farthest)]
    return torch.stack(means, dim=-1).reshape(*q.shape[:-2], farthest)


@torch.no_grad()
def scores_and_bounds(head: str, text: str) -> dict[str, list[float]]:
    """Return a head's mean score and mean bound at the distances 0 ... FARTHEST - 1.

    head: the indices of a block and a head, such as "16, 0". The pairs are from the first 1,024
    tokens of a text, except the first. Let h_j = conj(q_j) k_j and
    C_j = sum_(l < j) e^(-i distance theta_l). Then a pair's score is at most::

        max_j abs(h_(j+1) - h_j) * sum_j abs(C_j) / sqrt(D)
    """
    torch.set_num_threads(1)  # so that every machine adds in the same order
    at = tuple(map(int, head.split(",")))
    q, k = (x[at][1:] for x in queries_and_keys(window(text, 0)))
    pairs = [torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous()) for x in (q, k)]
    bounds = []
    for distance in range(FARTHEST):
        h = pairs[0][distance:].conj() * pairs[1][: len(k) - distance]
        steps = torch.diff(h, append=torch.zeros(len(h), 1)).abs().amax(dim=-1)
        sums = torch.polar(torch.ones_like(INV_FREQ), -distance * INV_FREQ).cumsum(dim=-1)
        bounds.append(steps.mean().item() * sums.abs().sum().item() / math.sqrt(q.shape[-1]))
    return {"scores": by_distance(q, k, FARTHEST).tolist(), "bounds": bounds}


def twice(seed: int, length: int = 100) -> Tensor:
    """Return a control token, then `length` random tokens twice, int64 `[2 * length + 1]`."""
    generator = torch.Generator().manual_seed(seed)
    random = torch.randint(1_000, 40_000, (length,), generator=generator)
    return torch.cat((torch.ones(1, dtype=torch.int64), random, random))


def copies(seed: int) -> tuple[float, float]:
    """Return the mean loss on the first and on the second copy in `twice(seed)`."""
    losses = token_losses(twice(seed))
    half = len(losses) // 2
    return losses[:half].mean().item(), losses[half + 1 :].mean().item()
