"""The training loop: AdamW, a cosine, a line of JSON at every look, and nothing lost when killed.

Chapter "What training shows". A run writes into its folder `metrics.jsonl`, one line a look, and
`checkpoint.pt`; started again on the same folder it goes on, and ends with the same numbers as a
run that was never stopped. Timing excepted, the lines are equal too.
"""

import json
import math
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from rope._checks import check_count
from rope.training.config import Experiment
from rope.training.corpus import Corpus
from rope.training.data import IGNORED, Data, TextData, data_for
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
    Raises ValueError for a folder that holds another experiment's run, or a corpus too short.

    >>> small = Experiment(layers=1, width=16, heads=2, context=16, batch=4, steps=20, warmup=2)
    >>> metrics = train(small, progress=False).metrics
    >>> metrics[-1]["step"], metrics[-1]["loss"] < metrics[0]["loss"]
    (20, True)
    """
    check_count("every", every)
    data = data_for(experiment, corpus)
    model = Decoder(experiment, data.tokens).to(device)
    optimizer = make_optimizer(model, experiment)
    run = Trained(model, data)
    done = 0 if folder is None else _resume(folder, experiment, run, optimizer)
    forward = torch.compile(model) if compiled else model
    looks = _looks(experiment)
    if done == 0:
        run.metrics.append(_line(0, run, math.nan, 0.0))
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
                _keep(folder, experiment, run, optimizer, step)
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


def _line(step: int, run: Trained, training_loss: float, seconds: float) -> dict[str, Any]:
    return {
        "step": step,
        "loss": validation_loss(run.model, run.data),
        "training_loss": None if math.isnan(training_loss) else training_loss,
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


def _resume(
    folder: Path, experiment: Experiment, run: Trained, optimizer: torch.optim.Optimizer
) -> int:
    """Load the last checkpoint of this experiment, if there is one; returns the step it is of."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "checkpoint.pt"
    if not path.exists():
        return 0
    try:
        kept = torch.load(path, map_location=run.model.embedding.weight.device, weights_only=True)
    except (EOFError, OSError, RuntimeError) as error:
        raise ValueError(
            f"{path} is broken ({type(error).__name__}); it must be a whole checkpoint: remove it, "
            "and the run starts anew"
        ) from error
    if kept["experiment"] != experiment.as_dict():
        raise ValueError(
            f"{folder} holds the run of another experiment, {kept['experiment']}; one folder holds "
            "one: name another folder, or remove this one"
        )
    if kept.get("corpus", _corpus(run.data)) != _corpus(run.data):
        raise ValueError(
            f"{folder} holds a run on another corpus, of sha256 {kept['corpus']}; one folder holds "
            "one: pass that corpus, name another folder, or remove this one"
        )
    run.model.load_state_dict(kept["model"])
    optimizer.load_state_dict(kept["optimizer"])
    run.metrics.extend(kept["metrics"])
    return int(kept["step"])


def _corpus(data: Data) -> str | None:
    """The hash of the text that a run is trained on; the recall task has none."""
    return data.corpus.sha256 if isinstance(data, TextData) else None


def _keep(
    folder: Path,
    experiment: Experiment,
    run: Trained,
    optimizer: torch.optim.Optimizer,
    step: int,
) -> None:
    """Write the metrics, then the checkpoint, each replaced in one move: the later one vouches."""
    lines = [json.dumps(experiment.as_dict()), *(json.dumps(line) for line in run.metrics)]
    fresh = folder / "metrics.new"
    fresh.write_text("\n".join(lines) + "\n", encoding="utf-8")
    os.replace(fresh, folder / "metrics.jsonl")
    state = {
        "experiment": experiment.as_dict(),
        "corpus": _corpus(run.data),
        "model": run.model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "metrics": run.metrics,
        "step": step,
    }
    fresh = folder / "checkpoint.new"
    torch.save(state, fresh)
    os.replace(fresh, folder / "checkpoint.pt")
