"""The training loop: AdamW, a cosine, a line of JSON at every look, and nothing lost when killed.

Chapter "What training shows". A run writes into its folder `metrics.jsonl`, one line a look, and
`checkpoint.pt`; started again on the same folder it goes on, and ends with the same numbers as a
run that was never stopped. Timing excepted, the lines are equal too.
"""

import math
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from rope.checks import check_count
from rope.training.checkpoint import alone, keep, resume
from rope.training.config import Experiment
from rope.training.corpus import Corpus
from rope.training.data import IGNORED, Data, data_for
from rope.training.decoder import Decoder

LOOKS = 64  # validation sequences at a look while training


@dataclass
class Trained:
    """A model, the data that it was trained on, and what was seen on the way.

    metrics: one dict a look, with `step`, `loss` (of validation, nats a token), `training_loss`,
    and `seconds` of training until then.
    """

    model: Decoder
    data: Data
    metrics: list[dict[str, Any]] = field(default_factory=list)


def train(
    experiment: Experiment,
    *,
    corpus: Corpus | None = None,
    folder: Path | None = None,
    device: torch.device | str = "cpu",
    compiled: bool = False,
    progress: bool = True,
    every: int = 100,
) -> Trained:
    """Train the experiment's model, or finish a training that was stopped.

    corpus: for the text task, CPython's topics when None. folder: keeps metrics and checkpoints,
    nothing is kept when None; `every`: steps between checkpoints. compiled: through torch.compile.
    progress: a bar on standard error.
    Raises ValueError for a folder that holds another experiment's run or is another process's, or
    a corpus too short.

    >>> small = Experiment(layers=1, width=16, heads=2, context=16, batch=4, steps=20, warmup=2)
    >>> metrics = train(small, progress=False).metrics
    >>> metrics[-1]["step"], metrics[-1]["loss"] < metrics[0]["loss"]
    (20, True)
    """
    check_count("every", every)
    with nullcontext() if folder is None else alone(folder):
        return _train(experiment, corpus, folder, device, compiled, progress, every)


def _train(
    experiment: Experiment,
    corpus: Corpus | None,
    folder: Path | None,
    device: torch.device | str,
    compiled: bool,
    progress: bool,
    every: int,
) -> Trained:
    data = data_for(experiment, corpus)
    model = Decoder(experiment, data.tokens).to(device)
    optimizer = make_optimizer(model, experiment)
    run = Trained(model, data)
    done = 0
    if folder is not None:
        done, run.metrics = resume(folder, experiment, model, optimizer, data)
    forward = torch.compile(model) if compiled else model
    looks = _looks(experiment)
    if done == 0:
        run.metrics.append(_line(0, run, None, 0.0))
    seconds = run.metrics[-1]["seconds"]
    started = time.perf_counter()
    with _bar(experiment, done, progress) as bar:
        for step in range(done + 1, experiment.steps + 1):
            loss = training_step(forward, optimizer, data, experiment, step)
            bar.update()
            if step in looks:
                seconds += time.perf_counter() - started
                run.metrics.append(_line(step, run, loss, seconds))
                bar.set_postfix(loss=f"{run.metrics[-1]['loss']:.3f}")
                started = time.perf_counter()
            if folder is not None and (step % every == 0 or step == experiment.steps):
                keep(folder, model, optimizer, data, run.metrics, step)
    return run


def validation_loss(model: Decoder, data: Data, sequences: int = LOOKS) -> float:
    """Mean loss over validation sequences of the trained length, in nats a token."""
    experiment = model.experiment
    inputs, targets = data.validation(sequences, experiment.context)
    total, count = 0.0, 0
    for some, wanted in zip(
        inputs.split(experiment.batch), targets.split(experiment.batch), strict=True
    ):
        losses = token_losses(model, some, wanted)
        asked = wanted.to(losses.device) != IGNORED
        total, count = total + losses[asked].double().sum().item(), count + int(asked.sum())
    return total / count


@torch.no_grad()
def token_losses(
    model: Decoder, inputs: Tensor, targets: Tensor, position_ids: Tensor | None = None
) -> Tensor:
    """The loss of each token, `[B, S]`, in nats; 0 where nothing is asked."""
    device = model.embedding.weight.device
    logits = model(inputs.to(device), position_ids)
    return cross_entropy(
        logits.mT.float(), targets.to(device), ignore_index=IGNORED, reduction="none"
    )


def learning_rate(experiment: Experiment, step: int) -> float:
    """Of step 1, 2, ...: a straight rise over `warmup`, then half a cosine down to a tenth.

    >>> small = Experiment(steps=100, warmup=10, learning_rate=1.0)
    >>> [round(learning_rate(small, step), 2) for step in (1, 10, 55, 100)]
    [0.1, 1.0, 0.55, 0.1]
    """
    if step <= experiment.warmup:
        return experiment.learning_rate * step / experiment.warmup
    share = (step - experiment.warmup) / max(1, experiment.steps - experiment.warmup)
    return experiment.learning_rate * (0.55 + 0.45 * math.cos(math.pi * share))


def training_step(
    forward: Callable[[Tensor], Tensor],
    optimizer: torch.optim.Optimizer,
    data: Data,
    experiment: Experiment,
    step: int,
) -> float:
    """Step 1, 2, ... of an experiment; returns the loss of its batch before the step."""
    weights = optimizer.param_groups[0]["params"]
    device = weights[0].device
    inputs, targets = (part.to(device) for part in data.training(step))
    for group in optimizer.param_groups:
        group["lr"] = learning_rate(experiment, step)
    logits = forward(inputs)
    loss = cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=IGNORED)
    if not torch.isfinite(loss):
        raise RuntimeError(
            f"the loss of step {step} is {loss.item()}; it must be finite: lower learning_rate, or "
            "warm up longer"
        )
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    for group in optimizer.param_groups:  # matrices and gains apart
        torch.nn.utils.clip_grad_norm_(group["params"], 1.0)
    optimizer.step()
    return loss.item()


def make_optimizer(model: Decoder, experiment: Experiment) -> torch.optim.Optimizer:
    """AdamW; matrices decay, the gains of the norms do not."""
    matrices = [weight for weight in model.parameters() if weight.dim() > 1]
    gains = [weight for weight in model.parameters() if weight.dim() <= 1]
    return torch.optim.AdamW(
        [
            {"params": matrices, "weight_decay": experiment.weight_decay},
            {"params": gains, "weight_decay": 0.0},
        ],
        lr=experiment.learning_rate,
        betas=(0.9, 0.95),
    )


def _looks(experiment: Experiment) -> set[int]:
    """The steps after which the validation loss is measured; the last is one of them."""
    return {*range(0, experiment.steps + 1, experiment.evaluate_every), experiment.steps}


def _line(step: int, run: Trained, training_loss: float | None, seconds: float) -> dict[str, Any]:
    return {
        "step": step,
        "loss": validation_loss(run.model, run.data),
        "training_loss": training_loss,
        "seconds": seconds,
    }


def _bar(experiment: Experiment, done: int, progress: bool) -> Any:
    from tqdm import tqdm

    return tqdm(
        total=experiment.steps,
        initial=done,
        desc=experiment.name,
        unit="step",
        disable=not progress,
    )
