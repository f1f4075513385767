"""Which tile of the kernel is fastest: tokens and heads of a program, and its warps.

`rope.kernels.triton.tile` chooses by a rule. Here others are put in its place, each checked against
the rule's bits and timed in turns with it and with a copy of the same bytes. What is recorded is
the best, and the rule's time over it: a rule that is within a few hundredths stays as it is.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any
from unittest.mock import patch

import torch

from rope.book.measured.bench.cases import Case
from rope.book.measured.bench.field import ours, setting
from rope.book.measured.bench.run import random_pair
from rope.book.measured.clock import SEED, quartiles, time_all
from rope.book.measured.gpu import OutOfTime
from rope.kernels import triton as kernel

PREFILL, DECODING = (128, 4096, 131_072), (1, 32, 256)
TOKENS, HEADS, WARPS = (1, 2, 4, 8, 16, 32), (1, 2, 4), (1, 2, 4, 8)


def cases() -> Iterator[Case]:
    """Head widths, layouts, prompts and batches of one token, in bfloat16; a prompt in float16.

    >>> len(list(cases()))
    42
    """
    for width, inter in product((64, 128, 256), (False, True)):
        one = Case(1, 32, 8, 1, width, "bfloat16", inter)
        yield from (Case(1, 32, 8, length, width, "bfloat16", inter) for length in PREFILL)
        yield from (replace(one, batch=batch) for batch in DECODING)
        yield Case(1, 32, 8, PREFILL[1], width, "float16", inter)


def candidates(case: Case) -> list[tuple[int, int, int]]:
    """Tiles (tokens, heads, warps) of 32 to 1,024 planes a warp, or of one token.

    Each is compiled, which takes most of the time. float16 moves the bytes of bfloat16, so it has
    those of four heads alone, to see whether it differs.

    >>> len(candidates(Case(1, 32, 8, 1, 128))), len(candidates(Case(1, 32, 8, 4096, 128)))
    (9, 60)
    """
    planes = case.head_dim // 2
    tokens = (1,) if case.seq == 1 else TOKENS
    heads = HEADS[-1:] if case.dtype == "float16" else HEADS
    return [
        (t, h, w)
        for t, h, w in product(tokens, heads, WARPS)
        if (32 * w <= t * planes <= 1024 * w if case.seq > 1 else w <= 4)
    ]


def sweep(case: Case, device: torch.device, effort: dict[str, Any], until: float) -> dict[str, Any]:
    """The best tile of a case, its seconds, the rule's and a copy's; and every one that failed.

    until: when, by `time.monotonic`, no more is tried; what is compiled by then Triton keeps.
    Raises OutOfTime then.
    """
    made, (q, k) = setting(case, device), random_pair(case, device, SEED)
    rotate, outs = ours(made), (torch.empty_like(q), torch.empty_like(k))
    right = rotate(q, k)
    calls: dict[str, Callable[[], Any]] = {
        "copy": lambda: [out.copy_(x) for out, x in zip(outs, (q, k), strict=True)],
        "rule": partial(rotate, q, k),
    }
    wrong: list[str] = []
    for tile in candidates(case):
        if time.monotonic() > until:
            raise OutOfTime(f"its time is over amid the tiles of {case.name}: start it again.")
        call, name = _with(tile, rotate, q, k), "×".join(map(str, tile))
        spent = [torch.full_like(x, torch.nan) for x in right]
        del spent  # the next results are given its memory, and not that of the last ones
        try:
            same = all(map(torch.equal, call(), right))
        except Exception as error:  # of registers or memory that a tile asks too much of
            if device.type == "cuda":
                torch.cuda.synchronize()  # raises where no later call can be right
            wrong.append(f"{name}: {type(error).__name__}")
            continue
        if same:
            calls[name] = call
        else:
            wrong.append(f"{name}: other bits")
    taken, failed = time_all(calls, device, **effort)
    medians = {name: quartiles(times)["median"] for name, times in taken.items()}
    tried = {name: t for name, t in medians.items() if name not in ("copy", "rule")}
    best = min(tried, key=tried.__getitem__, default="rule")
    return {
        "case": case.changes,
        "best": best,
        "seconds": {name: medians[name] for name in dict.fromkeys((best, "rule", "copy"))},
        "not right": wrong + sorted(failed),
    }


def _with(
    tile: tuple[int, int, int], rotate: Callable[..., Any], *xs: torch.Tensor
) -> Callable[[], Any]:
    def call() -> Any:
        with patch.object(kernel, "tile", lambda *_: tile):
            return rotate(*xs)

    return call


def table(found: list[dict[str, Any]]) -> str:
    """A line a case: the best tile, the rule's time over its, and both over a copy's."""
    lines = ["tokens×heads×warps                                    best  rule/best  best/copy"]
    for entry in found:
        case, seconds = Case(**entry["case"]), entry["seconds"]
        name = f"{case.batch}×{case.seq}×{case.head_dim} {case.dtype} {case.layout}"
        best = seconds[entry["best"]]
        lines.append(
            f"{name:48}{entry['best']:>10}{seconds['rule'] / best:11.2f}"
            f"{best / seconds['copy']:11.2f}"
        )
    return "\n".join(lines)
