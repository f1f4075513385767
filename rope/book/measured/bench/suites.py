"""Time the rotation against the baselines, in decoding, and with alternative kernel tiles.

Each `measure` function runs one job of the benchmark and returns one entry of the record. It also
times a copy of the same tensors, which moves as few bytes as a rotation can.

Shapes: B batch, H heads, S sequence, D head dimension.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from statistics import median
from typing import Any
from unittest.mock import patch

import torch

from rope.book.measured.baselines import Baseline, Pair, make_tables, ours, plain_formula
from rope.book.measured.bench.cases import Case
from rope.book.measured.bench.correctness import check_baseline
from rope.book.measured.meters import SEED, Call, time_all

Effort = dict[str, Any]
#: Keyword arguments for `rope.book.measured.meters.time_all`, which set how long a call is timed.
FULL: Effort = {"rounds": 5, "seconds": 0.05}
BRIEF: Effort = {"rounds": 3, "seconds": 0.01}  # for each of the many tiles
GRAPH_CALLS = 16  # calls per CUDA graph, so that the graph's own launch adds little
#: The prompt lengths and batch sizes for which tiles are tried, and the sizes of the tiles.
PREFILL, DECODING = (128, 4096, 131_072), (1, 32, 256)
TOKENS, HEADS, WARPS = (1, 2, 4, 8, 16, 32), (1, 2, 4), (1, 2, 4, 8)


def first_line(error: Exception) -> str:
    """Return an exception's type and the first line of its message, at most 200 characters."""
    return f"{type(error).__name__}: {error}".splitlines()[0][:200]


def measure(
    case: Case, baselines: Sequence[Baseline], device: torch.device, effort: Effort
) -> dict[str, Any]:
    """Check every baseline, then time the correct baselines and a copy into existing tensors.

    Returns a dict: "case" holds the case, "times" maps each name to {"median": seconds per call},
    and "not timed" maps every other baseline to the reason why it wasn't timed.
    """
    torch.compiler.reset()  # otherwise torch stops compiling after a few shapes
    tables, inputs = make_tables(case, device), random_pair(case, device, SEED)
    calls: dict[str, Call] = {"copy": copy_of(inputs)}
    not_timed: dict[str, str] = {}
    for baseline in baselines:
        reason = baseline.unsupported(case, device)
        if not reason:
            try:
                rotate = baseline.prepare(tables)
                reason = check_baseline(rotate, tables, inputs)
                if not reason:
                    calls[baseline.name] = partial(rotate, *inputs)
            except Exception as error:
                reason = first_line(error)
        if reason:
            not_timed[baseline.name] = reason
    times, failed = time_all(calls, device, **effort)
    not_timed |= {name: first_line(error) for name, error in failed.items()}
    medians = {name: {"median": median(seconds)} for name, seconds in times.items()}
    return {"case": case.changes, "not timed": not_timed, "times": medians}


def copy_of(inputs: Pair) -> Call:
    """Return a call that copies q and k into existing tensors."""
    outs = [torch.empty_like(x) for x in inputs]
    return lambda: [y.copy_(x) for x, y in zip(inputs, outs, strict=True)]


def random_pair(case: Case, device: torch.device, seed: int) -> Pair:
    """Return random normal q `[B, H, S, D]` and k `[B, H_kv, S, D]`."""
    generator = torch.Generator(device).manual_seed(seed)
    settings: Any = dict(generator=generator, dtype=case.torch_dtype, device=device)
    q = torch.randn(case.batch, case.heads, case.seq, case.head_dim, **settings)
    return q, torch.randn(case.batch, case.kv_heads, case.seq, case.head_dim, **settings)


def measure_decoding(batch: int, device: torch.device, effort: Effort) -> dict[str, Any]:
    """Time the rotation of one token per text: eager, compiled, and as a CUDA graph.

    batch: the number of texts. The numbers of heads are typical of 8B models. The host's clock
    times many calls in a row, so times include launch overhead, and the vectors are in the cache.
    Returns a dict: "batch" holds the argument, "seconds" maps each call and mode, such as "rope,
    eager", to its median time, and "not timed" maps each failed call to the reason for its failure.
    """
    torch.compiler.reset()  # otherwise torch stops compiling after a few batch sizes
    case = Case(batch, 32, 8, 1, 128, "bfloat16")
    tables, (q, k) = make_tables(case, device), random_pair(case, device, SEED)
    eager: dict[str, Call] = {
        "copy": copy_of((q, k)),
        "rope": partial(ours(tables), q, k),
        "formula": partial(plain_formula(tables), q, k),
    }
    calls = {f"{name}, eager": call for name, call in eager.items()}
    not_timed: dict[str, str] = {}
    for (name, call), prepare in product(eager.items(), (captured, compiled)):
        way = f"{name}, {'graph' if prepare is captured else 'compiled'}"
        try:
            calls[way] = prepare(call)
        except Exception as error:
            not_timed[way] = first_line(error)
    times, failed = time_all(calls, device, **effort, back_to_back=True)
    not_timed |= {name: first_line(error) for name, error in failed.items()}
    seconds = {
        name: median(taken) / (GRAPH_CALLS if name.endswith("graph") else 1)
        for name, taken in times.items()
    }
    return {"batch": batch, "seconds": seconds, "not timed": not_timed}


def compiled(call: Call) -> Call:
    """Return the call compiled and run once, so that no measured time includes compilation."""
    fast = torch.compile(call, dynamic=False)
    fast()
    return fast


def captured(call: Call) -> Call:
    """Return a function that replays a CUDA graph with GRAPH_CALLS calls."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        call()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(GRAPH_CALLS):
            call()
    return graph.replay


def tile_cases() -> Iterator[Case]:
    """Yield cases in bfloat16, prompts and single tokens, for each head dimension and layout."""
    for width, interleaved in product((64, 128, 256), (False, True)):
        one = Case(1, 32, 8, 1, width, "bfloat16", interleaved)
        yield from (replace(one, seq=length) for length in PREFILL)
        yield from (replace(one, batch=batch) for batch in DECODING)


def tile_candidates(case: Case) -> list[tuple[int, int, int]]:
    """Return the tiles (tokens, heads, warps) to try: 32 to 1,024 planes of each head per warp.

    For a single token, tiles have one token and up to four warps.
    """
    planes = case.head_dim // 2
    tokens = (1,) if case.seq == 1 else TOKENS
    return [
        (t, h, w)
        for t, h, w in product(tokens, HEADS, WARPS)
        if (32 * w <= t * planes <= 1024 * w if case.seq > 1 else w <= 4)
    ]


def measure_tiles(case: Case, device: torch.device) -> dict[str, Any]:
    """Time the kernel with tiles other than the tile that `rope.kernels.triton.tile` chooses.

    Each result must be bitwise equal to the chosen tile's. Returns a dict: "case" holds the case,
    "best" names the fastest tile, "seconds" maps the best tile, "rule" (the chosen tile), and
    "copy" to their median times, and "not right" lists the tiles that failed.
    """
    from rope.kernels import triton as kernel

    tables, (q, k) = make_tables(case, device), random_pair(case, device, SEED)
    rotate = ours(tables)
    expected = rotate(q, k)
    calls: dict[str, Call] = {"copy": copy_of((q, k)), "rule": partial(rotate, q, k)}

    def rotate_with(tile: tuple[int, int, int]) -> Pair:
        with patch.object(kernel, "tile", lambda *_: tile):
            return rotate(q, k)

    wrong: list[str] = []
    for tile in tile_candidates(case):
        call, name = partial(rotate_with, tile), "×".join(map(str, tile))
        # The next results reuse this memory. If a tile skips elements, they stay NaN.
        filler = [torch.full_like(x, torch.nan) for x in expected]
        del filler
        try:
            same = all(map(torch.equal, call(), expected))
        except Exception as error:  # a tile may need too many registers or too much memory
            if device.type == "cuda":
                torch.cuda.synchronize()  # raises if the device is lost
            wrong.append(f"{name}: {type(error).__name__}")
            continue
        if same:
            calls[name] = call
        else:
            wrong.append(f"{name}: other bits")
    times, failed = time_all(calls, device, **BRIEF)
    medians = {name: median(taken) for name, taken in times.items()}
    tried = {name: median for name, median in medians.items() if name not in ("copy", "rule")}
    best = min(tried, key=tried.__getitem__, default="rule")
    return {
        "case": case.changes,
        "best": best,
        "seconds": {name: medians[name] for name in dict.fromkeys((best, "rule", "copy"))},
        "not right": wrong + sorted(failed),
    }
