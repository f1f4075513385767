"""What a training step costs with each way to know positions, and attention against the length.

Chapter "What training shows". Whatever is compared takes turns, in an order shuffled anew each
round, so that a slow moment strikes all alike. Both results are plain numbers, ready for JSON.

Shapes: B batch, H heads, S sequence, D head dimension.
"""

import math
import random
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from rope.attention.linear import linear_attention
from rope.bench.memory import peak_memory
from rope.bench.timing import QUICK, SEED, Effort, time_all
from rope.checks import check_count
from rope.frequencies import inverse_frequencies, rotary_tables
from rope.training.config import Experiment
from rope.training.corpus import Corpus
from rope.training.data import data_for, generator
from rope.training.decoder import Decoder
from rope.training.loop import make_optimizer, training_step
from rope.training.positions import POSITIONS

LENGTHS = (128, 256, 512, 1024, 2048, 4096, 8192)
FULL = Effort()
UNTIMED = 3  # steps before the clock starts: the optimizer makes its state in the first
Attend = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]


def costs(*, repeats: int = 20, effort: Effort = FULL) -> dict[str, Any]:
    """Both on this machine's CPU, as the record keeps them.

    Returns threads; "step", the seconds of `step_seconds` for text and each way, by the way's
    name; "attention", what `attention_cost` returns. Takes minutes, and over 3 GB at its end.
    """
    ways = {name: Experiment(position=name) for name in POSITIONS}
    seconds = step_seconds(ways.values(), repeats=repeats)
    return {
        "threads": torch.get_num_threads(),
        "step": {name: seconds[way.name] for name, way in ways.items()},
        "attention": attention_cost(effort=effort),
    }


def step_seconds(
    experiments: Iterable[Experiment],
    *,
    repeats: int = 20,
    corpus: Corpus | None = None,
    device: torch.device | str = "cpu",
) -> dict[str, list[float]]:
    """Seconds of each of `repeats` training steps, by the experiment's name.

    A step is one of `train`: draw a batch, forward, backward, clip, AdamW. Models are made here and
    trained on from step to step; corpus and device as for `train`.
    Raises ValueError for two experiments of one name, or repeats below 1.

    >>> small = Experiment(layers=1, width=16, heads=2, context=16, batch=4)
    >>> [len(seconds) for seconds in step_seconds([small], repeats=2).values()]
    [2]
    """
    check_count("repeats", repeats)
    steps: dict[str, Callable[[int], float]] = {}
    for experiment in experiments:
        if experiment.name in steps:
            raise ValueError(
                f"two experiments are named {experiment.name!r}; names must differ, since they "
                "are the keys of the result: measure the two in separate calls"
            )
        data = data_for(experiment, corpus)
        model = Decoder(experiment, data.tokens).to(device)
        optimizer = make_optimizer(model, experiment)
        steps[experiment.name] = partial(training_step, model, optimizer, data, experiment)
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    order, shuffle = list(steps), random.Random(SEED)
    for step in range(1, UNTIMED + repeats + 1):
        shuffle.shuffle(order)
        for name in order:
            start = time.perf_counter()
            steps[name](step)  # returns a number, for which a GPU's queue is waited for
            if step > UNTIMED:
                seconds[name].append(time.perf_counter() - start)
    return seconds


def softmax_by_matrix(q: Tensor, k: Tensor, v: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Causal softmax attention through the S x S weights; cos and sin are not used."""
    ahead = torch.ones(q.shape[2], q.shape[2], dtype=torch.bool, device=q.device).triu(1)
    scores = q @ k.mT / math.sqrt(q.shape[-1])  # [B, H, S, S]
    return scores.masked_fill(ahead, -math.inf).softmax(dim=-1) @ v


def softmax_fused(q: Tensor, k: Tensor, v: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """The same by torch's own call, which need not keep the weights."""
    return scaled_dot_product_attention(q, k, v, is_causal=True)


#: The attentions compared, each of q, k, v `[B, H, S, D]` and tables `[S, D/2]`.
ATTENTIONS: dict[str, Attend] = {
    "softmax by matrix": softmax_by_matrix,
    "softmax fused": softmax_fused,
    "linear": partial(linear_attention, rotate=False),
    "linear rotated": linear_attention,
}


def attention_cost(
    lengths: Sequence[int] = LENGTHS,
    *,
    batch: int = 1,
    heads: int = 4,
    head_dim: int = 32,
    effort: Effort = QUICK,
    device: torch.device | str = "cpu",
) -> dict[str, Any]:
    """Seconds and bytes of one attention, forward and backward, at each length S, by its name.

    q, k, v are given, in float32: projections, equal for all, are left out, and of the last two
    only "linear rotated" turns them. Returns batch, heads, head_dim, lengths; and by name a list
    along the lengths, None where a call failed, of: "seconds", a median, "lower" and "upper", its
    quartiles; "memory", the most bytes held beyond the inputs, gradients among them.
    "softmax by matrix" holds three matrices of 4 B H S^2 bytes at a time, and masks.
    Raises ValueError for lengths, sizes or a head_dim that cannot be.

    >>> cost = attention_cost([32], heads=1, head_dim=8)
    >>> sorted(cost["memory"]), cost["seconds"]["linear"][0] > 0
    (['linear', 'linear rotated', 'softmax by matrix', 'softmax fused'], True)
    """
    for name, value in (("batch", batch), ("heads", heads), *(("length", s) for s in lengths)):
        check_count(name, value)
    device = torch.device(device)
    found: dict[str, dict[str, list[float | None]]] = {
        quantity: {name: [] for name in ATTENTIONS}
        for quantity in ("seconds", "lower", "upper", "memory")
    }
    for length in lengths:
        calls = attention_calls((batch, heads, length, head_dim), device)
        timed, _ = time_all(
            {name: (call, nullcontext) for name, call in calls.items()}, device, effort
        )
        for name, call in calls.items():
            taken = timed.get(name, {})
            for quantity, key in (("seconds", "median"), ("lower", "lower"), ("upper", "upper")):
                found[quantity][name].append(taken.get(key))
            held = peak_memory(partial(call, 0), device) if taken else None
            found["memory"][name].append(held)
    sizes = {"batch": batch, "heads": heads, "head_dim": head_dim}
    return {**sizes, "lengths": list(lengths), **found}


def attention_calls(
    shape: tuple[int, int, int, int], device: torch.device
) -> dict[str, Callable[[int], Any]]:
    """By name: one forward and backward on inputs of shape `[B, H, S, D]`, their gradients."""
    random = generator(0, "attention")
    q, k, v, upstream = torch.randn(4, *shape, generator=random).to(device)
    q, k, v = (x.clone().requires_grad_() for x in (q, k, v))
    cos, sin = rotary_tables(shape[2], inverse_frequencies(shape[3], device=device))

    def call(attend: Attend, turn: int) -> tuple[Tensor, ...]:
        return torch.autograd.grad(attend(q, k, v, cos, sin), (q, k, v), upstream)

    return {name: partial(call, attend) for name, attend in ATTENTIONS.items()}
