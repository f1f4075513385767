"""Train a model with AdamW and a cosine schedule, for the chapter "What training shows"."""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from tqdm import tqdm

from rope.book.training.corpus import Corpus, load_corpus
from rope.book.training.data import TextData
from rope.book.training.decoder import Decoder
from rope.book.training.experiment import Experiment

EVALUATED = 64  # validation sequences per evaluation during training


@dataclass
class Trained:
    """Hold a trained model, its data, and the measurements during training.

    metrics: one dict per evaluation, with `step` and `loss` (validation loss in nats per token).
    """

    model: Decoder
    data: TextData
    metrics: list[dict[str, Any]]


def train(
    experiment: Experiment,
    *,
    corpus: Corpus | None = None,
    progress: bool = True,
) -> Trained:
    """Train an experiment's model, and return it with its data and its losses.

    corpus: the default is `load_corpus()`. progress: True shows a bar on standard error.
    Raises ValueError if the corpus is too short or the task isn't "text", KeyError for an unknown
    position, and RuntimeError if a loss is not finite.

    >>> small = Experiment(layers=1, width=16, heads=2, context=16, batch=4, steps=20, warmup=2)
    >>> metrics = train(small, progress=False).metrics
    >>> metrics[-1]["step"], metrics[-1]["loss"] < metrics[0]["loss"]
    (20, True)
    """
    if experiment.task != "text":
        raise ValueError(
            f"task is {experiment.task!r}, which has only recorded runs; use task='text'"
        )
    data = TextData(experiment, corpus or load_corpus())
    model = Decoder(experiment, data.tokens)
    optimizer = make_optimizer(model, experiment)
    metrics = [{"step": 0, "loss": validation_loss(model, data)}]
    steps = range(1, experiment.steps + 1)
    for step in (bar := tqdm(steps, experiment.position, unit="step", disable=not progress)):
        training_step(model, optimizer, data, experiment, step)
        if step % experiment.evaluate_every == 0 or step == experiment.steps:
            metrics.append({"step": step, "loss": validation_loss(model, data)})
            bar.set_postfix(loss=f"{metrics[-1]['loss']:.3f}")
    return Trained(model, data, metrics)


def validation_loss(model: Decoder, data: TextData, sequences: int = EVALUATED) -> float:
    """Return the mean loss in nats per token on validation sequences of the training length."""
    experiment = model.experiment
    batches = (x.split(experiment.batch) for x in data.validation(sequences, experiment.context))
    losses = [token_losses(model, *batch) for batch in zip(*batches, strict=True)]
    return torch.cat(losses).double().mean().item()


@torch.no_grad()
def token_losses(model: Decoder, inputs: Tensor, targets: Tensor) -> Tensor:
    """Return each token's loss, `[B, S]`, in nats."""
    return cross_entropy(model(inputs).mT, targets, reduction="none")


def learning_rate(experiment: Experiment, step: int) -> float:
    """Return a step's rate: a linear rise to the peak, then a cosine decay to a tenth of the peak.

    >>> small = Experiment(steps=100, warmup=10, learning_rate=1.0)
    >>> [round(learning_rate(small, step), 2) for step in (1, 10, 55, 100)]
    [0.1, 1.0, 0.55, 0.1]
    """
    if step <= experiment.warmup:
        return experiment.learning_rate * step / experiment.warmup
    share = (step - experiment.warmup) / max(1, experiment.steps - experiment.warmup)
    return experiment.learning_rate * (0.55 + 0.45 * math.cos(math.pi * share))


def training_step(
    model: Decoder,
    optimizer: torch.optim.Optimizer,
    data: TextData,
    experiment: Experiment,
    step: int,
) -> float:
    """Run a step and return the loss on its batch before the update. Steps count from 1."""
    inputs, targets = data.training(step)
    for group in optimizer.param_groups:
        group["lr"] = learning_rate(experiment, step)
    logits = model(inputs)
    loss = cross_entropy(logits.flatten(0, 1), targets.flatten())
    if not torch.isfinite(loss):
        raise RuntimeError(
            f"the loss in step {step} is {loss.item()}; it must be finite; lower learning_rate, or "
            "increase warmup"
        )
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    for group in optimizer.param_groups:  # clip matrices and gains separately
        torch.nn.utils.clip_grad_norm_(group["params"], 1.0)
    optimizer.step()
    return loss.item()


def make_optimizer(model: Decoder, experiment: Experiment) -> torch.optim.Optimizer:
    """Return AdamW with weight decay for the matrices but not for the gains of the norms."""
    matrices = [weight for weight in model.parameters() if weight.dim() > 1]
    gains = [weight for weight in model.parameters() if weight.dim() <= 1]
    decays = {"params": matrices, "weight_decay": experiment.weight_decay}
    stays = {"params": gains, "weight_decay": 0.0}
    return torch.optim.AdamW([decays, stays], lr=experiment.learning_rate, betas=(0.9, 0.95))
