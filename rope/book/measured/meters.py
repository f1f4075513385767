"""Measure one call: its running time, and the bytes that it reads and writes.

The chapters "From math to PyTorch" and "Bytes and kernels" use this module. A rotation does little
arithmetic. It reads and writes each element at least once, so memory traffic dominates its cost.
Calls to be compared are timed in turn, so that a slow moment of the machine affects all of them. On
a GPU, `triton.testing.do_bench` clears the L2 cache before each call. The host launches the call
during the clearing, so only the device's time is measured.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten
from torch.utils.benchmark import Timer

SEED = 20
Call = Callable[[], Any]


def time_all(
    calls: Mapping[str, Call],
    device: torch.device,
    *,
    rounds: int = 5,
    seconds: float = 0.05,
    back_to_back: bool = False,
) -> tuple[dict[str, list[float]], dict[str, Exception]]:
    """Return two dicts: the measured times of each call, in seconds, and the failed calls' errors.

    Both dicts are keyed by name. Each round times every call for at least `seconds`, in a newly
    shuffled order. With `seconds=0`, a round times each call once, after one untimed call.
    A call that raises is not timed again.
    back_to_back: True times many calls in a row by the host's clock, even on a GPU. Each time then
    includes the launch overhead, and the caches are warm.

    >>> seconds, failed = time_all({"nothing": int}, torch.device("cpu"), rounds=3, seconds=0)
    >>> len(seconds["nothing"]), failed
    (3, {})
    """
    times: dict[str, list[float]] = {name: [] for name in calls}
    failed: dict[str, Exception] = {}
    shuffle = random.Random(SEED)
    for _ in range(rounds):
        for name in shuffle.sample(list(times), len(times)):
            try:
                times[name] += _times(calls[name], device, seconds, back_to_back)
            except Exception as error:
                error.__traceback__ = error.__context__ = None  # both keep tensors alive
                failed[name] = error
                del times[name]
    return times, failed


def _times(call: Call, device: torch.device, seconds: float, back_to_back: bool) -> list[float]:
    if device.type == "cuda" and not back_to_back:
        from triton.testing import do_bench

        times = do_bench(call, warmup=200 * seconds, rep=1000 * seconds, return_mode="all")
        return [milliseconds / 1000 for milliseconds in times]
    timer = Timer("call()", globals={"call": call}, num_threads=torch.get_num_threads())
    return timer.blocked_autorange(min_run_time=seconds).times


class Traffic(TorchDispatchMode):
    """Count the operations inside the `with` block and the bytes that they read and write.

    The counts follow from shapes and strides; nothing is timed. `operations` doesn't include views,
    which move no data. `read` and `written` are in bytes. Each operation adds each of its input
    and output tensors once. An expanded tensor adds only its stored elements.

    >>> x = torch.zeros(1000)
    >>> with Traffic() as traffic:
    ...     y = x.view(10, 100) * 2 + 1
    >>> traffic.operations, traffic.read, traffic.written
    (2, 8000, 8000)
    """

    def __init__(self) -> None:
        super().__init__()
        self.operations = self.read = self.written = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        inputs = [leaf for leaf in tree_flatten((args, kwargs))[0] if isinstance(leaf, Tensor)]
        outputs = [leaf for leaf in tree_flatten(result)[0] if isinstance(leaf, Tensor)]
        if not func.is_view and outputs:
            self.operations += 1
            self.read += sum(map(_stored_bytes, inputs))
            self.written += sum(map(_stored_bytes, outputs))
        return result


def _stored_bytes(tensor: Tensor) -> int:
    """Return the bytes of a tensor's distinct elements; an axis of stride 0 repeats one element."""
    axes = zip(tensor.shape, tensor.stride(), strict=True)
    return math.prod(size for size, stride in axes if stride or not size) * tensor.element_size()
