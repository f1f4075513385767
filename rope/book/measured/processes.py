"""A function run by several processes that know each other, on this machine.

Chapter "Across devices". Each process stands for a device; they talk through gloo, on a CPU.
"""

import tempfile
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.multiprocessing.spawn import ProcessExitedException, ProcessRaisedException, spawn

from rope.checks import check_count

TIMEOUT = timedelta(seconds=60)


def available() -> bool:
    """Whether this PyTorch has the processes' way to talk, gloo.

    >>> isinstance(available(), bool)
    True
    """
    return dist.is_available() and dist.is_gloo_available()


def across(function: Callable[..., Any], processes: int, *arguments: Any) -> list[Any]:
    """What `function(*arguments)` returns in each process, in the order of their ranks.

    function: of an importable module, for new processes must find it; it finds the others by
    `torch.distributed`. What it returns is what `torch.save` takes. One thread a process.
    processes: at least 1.
    Raises RuntimeError without gloo, and where a process fails, with its error; the others are then
    ended.

    >>> across(dist.get_rank, 2)
    [0, 1]
    """
    check_count("processes", processes)
    if not available():
        raise RuntimeError("this PyTorch was built without gloo, by which the processes talk")
    with tempfile.TemporaryDirectory() as folder:
        try:
            spawn(_run, (function, processes, Path(folder), arguments), processes)
        except (ProcessRaisedException, ProcessExitedException) as error:
            first = Path(folder, "failed.txt")  # the others fail too, when it has left them
            if not first.exists():
                raise RuntimeError(f"a process was ended: {error}") from error
            raise RuntimeError(first.read_text(encoding="utf-8")) from error
        return [
            torch.load(Path(folder, f"{rank}.pt"), weights_only=False) for rank in range(processes)
        ]


def _run(
    rank: int, function: Callable[..., Any], processes: int, folder: Path, arguments: Any
) -> None:
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{folder}/meet",
        rank=rank,
        world_size=processes,
        timeout=TIMEOUT,
    )
    try:
        torch.save(function(*arguments), folder / f"{rank}.pt")
        dist.barrier()  # none leaves while another still asks
    except Exception as error:
        said = f"process {rank} of {processes} failed: {type(error).__name__}: {error}"
        with suppress(FileExistsError), open(folder / "failed.txt", "x", encoding="utf-8") as file:
            file.write(said)
        raise
    finally:
        dist.destroy_process_group()
