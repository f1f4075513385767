"""The same training on several devices: chapter "Across devices".

`torchrun --nproc-per-node 2 -m rope.book.training train --across data`, or `context`. Across data
each process has some sequences of a batch; across context, some tokens of every sequence, with
their positions, and attention passes keys and values on. The gradients are averaged by PyTorch.
"""

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import asdict
from datetime import timedelta
from functools import partial
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.nn.parallel import DistributedDataParallel

from rope.book.training.data import TextData, data_for
from rope.book.training.decoder import Decoder
from rope.book.training.experiment import Experiment
from rope.book.training.loop import Trained, make_optimizer, run, training_step
from rope.book.training.positions import METHODS
from rope.parallel import Shards, context_parallel_attention, contiguous, head_tail

TIMEOUT = timedelta(seconds=60)  # of every wait for another process


def train_across(experiment: Experiment, across: str, device: str = "cpu") -> Trained:
    """Train the experiment's model in all processes that torchrun started; each returns it.

    across: "data" or "context"; device: "cpu", or "cuda", one for each process. Losses are those of
    one process, to rounding; each process takes those of validation, on whole sequences. The first
    one shows a bar.
    Raises ValueError for an experiment that cannot be shared out evenly, or that differs between
    the processes; RuntimeError where another process ends, or keeps one waiting for a minute.
    """
    with _processes(device) as mesh:
        data = data_for(experiment)
        read = data.corpus.sha256 if isinstance(data, TextData) else None
        _check(experiment, mesh, {"across": across, "the hash of the corpus": read})
        model = Decoder(experiment, data.tokens).to(device)
        optimizer = make_optimizer(model, experiment)
        copies = DistributedDataParallel(model)
        dim, shards = 0, contiguous(experiment.batch, mesh.size())
        position_ids = None
        if across == "context":
            dim, shards = 1, head_tail(experiment.context, mesh.size())
            position_ids = shards.position_ids(mesh.get_local_rank()).to(device)
        part = partial(shards.of, device=mesh.get_local_rank(), dim=dim)

        def take(step: int) -> None:
            with _spread(model, mesh, shards) if across == "context" else nullcontext():
                training_step(copies, optimizer, data, experiment, step, part, position_ids)

        return run(model, data, take, progress=mesh.get_local_rank() == 0)


@contextmanager
def _processes(device: str) -> Iterator[DeviceMesh]:
    """All processes that torchrun started, in a mesh of one axis; afterwards the group is gone."""
    if "RANK" not in os.environ:
        raise ValueError(
            "this is one process by itself; several must be started together: "
            "torchrun --nproc-per-node 2 -m rope.book.training train --across data"
        )
    dist.init_process_group(timeout=TIMEOUT)
    try:
        if device == "cuda":
            torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        yield init_device_mesh(device, (dist.get_world_size(),))
    finally:
        dist.destroy_process_group()


def _check(experiment: Experiment, mesh: DeviceMesh, more: dict[str, Any]) -> None:
    """Refuse, in every process alike, what differs or cannot be shared out evenly."""
    mine, across = {**asdict(experiment), **more}, more["across"]
    others: list[Any] = [None] * mesh.size()
    dist.all_gather_object(others, mine)
    for rank, other in enumerate(others):
        for name, value in others[0].items():
            if other[name] != value:
                raise ValueError(
                    f"{name} is {value!r} in process 0 and {other[name]!r} in process {rank}; it "
                    "must be the same: start all with the same arguments"
                )
    if experiment.task in ("recall", "lookup"):
        raise ValueError(
            f"task is {experiment.task!r}, whose questions are spread unevenly; across devices it "
            "must be one that asks for every token: text, code or shuffled"
        )
    if across == "data" and experiment.batch % mesh.size():
        raise ValueError(
            f"batch is {experiment.batch} for {mesh.size()} processes; it must be a multiple of "
            f"{mesh.size()}, so that each has as much: change it, or their number"
        )
    biased = METHODS[experiment.position](experiment)(torch.arange(2)).bias is not None
    if across == "context" and (biased or experiment.attention == "linear"):
        raise ValueError(
            f"position is {experiment.position!r} with {experiment.attention} attention; across "
            "context it must be softmax attention without a bias: use across='data', or rope"
        )


@contextmanager
def _spread(model: Decoder, mesh: DeviceMesh, shards: Shards) -> Iterator[None]:
    """Inside, every layer attends to the tokens of all processes."""

    def attend(q: Tensor, k: Tensor, v: Tensor, bias: None) -> Tensor:
        return context_parallel_attention(q, k, v, mesh, shards, method="ring")

    with ExitStack() as changes:
        for block in model.blocks:
            changes.enter_context(patch.object(block.attention, "attend", attend))
        yield
