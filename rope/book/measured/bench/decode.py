"""One decode step at a full cache, with and without a window, timed.

`python -m rope.book.measured.bench.decode`. Each kind of cache holds as many tokens, 4,096 by
default, and they take turns in one run, so a ratio stands where the times themselves depend on the
machine.

Shapes: B batch, N slots, E embedding width.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

from rope.attention import KVCache, RotaryAttention
from rope.book.measured.clock import time_all

WIDTH, HEADS, HEAD_DIM, SINKS = 256, 8, 128, 4  # projections small beside the cache


def steps(slots: int, rounds: int, device: torch.device) -> dict[str, Callable[[], torch.Tensor]]:
    """By name, a step of one token at a cache that holds so many.

    >>> made = steps(16, 1, torch.device("cpu"))
    >>> list(made), made["no window"]().shape
    (['no window', 'window', 'moved'], torch.Size([1, 1, 256]))
    """
    torch.manual_seed(0)
    windowed = {"window": slots - SINKS, "sinks": SINKS}
    kinds: dict[str, dict[str, Any]] = {"no window": {}, "window": windowed, "moved": {}}
    x = torch.randn(1, slots, WIDTH, device=device)
    made: dict[str, Callable[[], torch.Tensor]] = {}
    for name, options in kinds.items():
        layer = RotaryAttention(WIDTH, HEADS, head_dim=HEAD_DIM, **options).to(device)
        room = slots if options else slots + 4 * rounds
        cache = KVCache(1, HEADS, room, HEAD_DIM, device=device)
        with torch.no_grad():
            layer(x, cache=cache)
            if name == "moved":
                cache.shift(1)
                layer(x[:, :1], cache=cache)
        made[name] = torch.no_grad()(partial(layer, x[:, :1], cache=cache))
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the median time of each step, and its ratio to the one without a window."""
    parser = argparse.ArgumentParser(
        prog="python -m rope.book.measured.bench.decode", description=__doc__
    )
    parser.add_argument("--slots", type=int, default=4096, help="tokens held (%(default)s)")
    parser.add_argument("--rounds", type=int, default=100, help="steps of each (%(default)s)")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    options = parser.parse_args(arguments)
    device = torch.device(options.device)
    taken, failed = time_all(
        steps(options.slots, options.rounds, device), device, rounds=options.rounds, seconds=0
    )
    for name, error in failed.items():
        print(f"{name}: {type(error).__name__}: {error}", file=sys.stderr)
    medians = {name: statistics.median(times) for name, times in taken.items()}
    for name, median in medians.items():
        print(f"{name:20s} {1000 * median:8.3f} ms   {median / medians['no window']:5.2f}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
