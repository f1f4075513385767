"""Time a training step for each method, and attention as a function of the length.

Chapter "What training shows". The compared calls run in turn, in a new random order each round, so
that a slow moment affects all alike. `python -m rope.book.training cost` writes both results.

Shapes: B batch, H heads, S sequence, D head dimension.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import count
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from tqdm import tqdm

from rope.attention.linear import linear_attention
from rope.book.measured.meters import peak_memory, quartiles, time_all
from rope.book.training.corpus import generator
from rope.book.training.data import data_for
from rope.book.training.decoder import Decoder, masked_scores
from rope.book.training.experiment import Experiment
from rope.book.training.loop import make_optimizer, training_step
from rope.book.training.positions import POSITIONS
from rope.frequencies import inverse_frequencies, rotary_tables

LENGTHS = (128, 256, 512, 1024, 2048, 4096, 8192)
BATCH, HEADS, HEAD_DIM = 1, 4, 32  # sizes of the timed attention
CPU = torch.device("cpu")
Attend = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]


def costs(lengths: Sequence[int] = LENGTHS, rounds: int = 20) -> dict[str, Any]:
    """Return the record of both timings on this machine's CPU; takes minutes and over 3 GB.

    rounds: the number of rounds for training steps; attention, which is steadier and takes up to
    6 s per call, gets fewer rounds.
    """
    steps = {name: steps_of(Experiment(position=name)) for name in POSITIONS}
    return {
        "threads": torch.get_num_threads(),
        "step": timed(steps, rounds),
        "attention": attention_cost(lengths),
    }


def timed(calls: Mapping[str, Callable[[], Any]], rounds: int) -> dict[str, list[float]]:
    """Return the seconds that each call takes in each round, by name; raise what a call raises."""
    seconds, failed = time_all(calls, CPU, rounds=rounds, seconds=0)
    for error in failed.values():
        raise error
    return seconds


def steps_of(experiment: Experiment) -> Callable[[], float]:
    """Return a function that trains the experiment's model for one more step per call.

    A step does what `train` does: draw a batch, forward, backward, clip, AdamW.
    """
    data = data_for(experiment)
    model = Decoder(experiment, data.tokens)
    optimizer, numbers = make_optimizer(model, experiment), count(1)
    return lambda: training_step(model, optimizer, data, experiment, next(numbers))


#: The compared attentions; each takes q, k, v `[B, H, S, D]` and tables `[S, D/2]`. Two compute
#: softmax attention, with the S x S weights or by torch's fused call; two are linear.
ATTENTIONS: dict[str, Attend] = {
    "softmax by matrix": lambda q, k, v, cos, sin: masked_scores(q, k).softmax(dim=-1) @ v,
    "softmax fused": lambda q, k, v, cos, sin: scaled_dot_product_attention(
        q, k, v, is_causal=True
    ),
    "linear": partial(linear_attention, rotate=False),
    "linear rotated": linear_attention,
}


def attention_cost(lengths: Sequence[int], rounds: int = 7) -> dict[str, Any]:
    """Return seconds and bytes for one attention, forward and backward, by name and length S.

    The inputs are q, k, and v in float32, so no projection is timed. Only "linear rotated" rotates
    q and k. Returns a dict with the sizes and the lengths. Its other keys map each name to a list
    with one entry per length: "seconds" (the median), "lower" and "upper" (the quartiles), and
    "memory" (the peak bytes beyond the inputs, including gradients).
    "softmax by matrix" holds three matrices of 4 B H S^2 bytes at a time, and masks.
    """
    quantities = ("lower", "seconds", "upper", "memory")
    found: dict[str, Any] = {quantity: {name: [] for name in ATTENTIONS} for quantity in quantities}
    for length in tqdm(lengths, unit="length"):
        calls = attention_calls((BATCH, HEADS, length, HEAD_DIM))
        for name, seconds in timed(calls, rounds).items():
            numbers = (*quartiles(seconds).values(), peak_memory(calls[name], CPU))
            for quantity, number in zip(quantities, numbers, strict=True):
                found[quantity][name].append(number)
    sizes = {"batch": BATCH, "heads": HEADS, "head_dim": HEAD_DIM}
    return {**sizes, "lengths": list(lengths), **found}


def attention_calls(shape: tuple[int, int, int, int]) -> dict[str, Callable[[], Any]]:
    """Return named calls that run forward and backward on `[B, H, S, D]` and return gradients."""
    q, k, v, upstream = torch.randn(4, *shape, generator=generator(0, "attention"))
    q, k, v = (x.clone().requires_grad_() for x in (q, k, v))
    cos, sin = rotary_tables(shape[2], inverse_frequencies(shape[3]))

    def call(attend: Attend) -> tuple[Tensor, ...]:
        return torch.autograd.grad(attend(q, k, v, cos, sin), (q, k, v), upstream)

    return {name: partial(call, attend) for name, attend in ATTENTIONS.items()}
