"""Diagnose an engine in any language: write probes to one file, and read answers from another.

The probes are the calls that `diagnose` makes to a correct rotation and to a function that doesn't
rotate. `diagnose` then runs on the answers. Answers don't show whether the engine overwrites its
inputs or changes dtypes, or exactly where a change begins.

Shapes: B batch, H heads, S sequence, D head dimension.
"""

import json
import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rope.checks import check_count, check_dim
from rope.diagnose import Report, diagnose
from rope.diagnose.codes import finding
from rope.diagnose.influence import PLACES
from rope.module import RotaryEmbedding

Call = dict[str, Tensor]
PARTS = ("q", "k", "position_ids")
NARROWEST_FIRST = (torch.bfloat16, torch.float16, torch.float32, torch.float64)


def write_probes(
    path: str | Path,
    head_dim: int,
    *,
    num_heads: int = 2,
    num_kv_heads: int = 1,
    max_position: int = 1 << 17,
) -> int:
    """Write the calls that an engine must answer, in order, and return the number of calls.

    Call 7, for example, consists of `07.q` `[B, H, S, D]`, `07.k` `[B, H_kv, S, D]`, both float32,
    and `07.position_ids` `[B, S]`, int32. The engine's answers have the names `07.q` and `07.k`.
    16-bit dtypes can represent all numbers in q and k exactly.
    path: must end with .safetensors or .json. The other arguments are as in `diagnose`; with fewer
    heads, the file is smaller.
    Raises ValueError for any other ending, for an odd head_dim, and unless max_position is from 128
    to 2**31 - 1. Raises OSError if the folder doesn't exist.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     write_probes(f"{folder}/probes.json", 8)
    30
    """
    check_dim(head_dim, "head_dim")
    check_count("max_position", max_position, smallest=128)
    if max_position >= 2**31:
        raise ValueError(f"max_position is {max_position}; it must be below 2**31 to fit int32")
    calls = _probes(head_dim, num_heads, num_kv_heads, max_position)
    write(path, {f"{i:02d}.{name}": x for i, call in enumerate(calls) for name, x in call.items()})
    return len(calls)


def diagnose_answers(
    answers: str | Path, probes: str | Path, *, expected: Any = None, cache: bool = False
) -> Report:
    """Return the report of `diagnose` on the engine that answered the probes.

    The engine may skip calls with three rows or with one token. expected, cache: as in `diagnose`.
    The report's dtype is the narrowest that represents all answers for q, or all for k, exactly.
    If any answer contains NaN or infinity, the report names only the first such position.
    Raises OSError or ValueError for a file that can't be read, and ValueError for answers that are
    missing or have the wrong shape.

    >>> from tempfile import TemporaryDirectory
    >>> rotary = RotaryEmbedding(8)
    >>> with TemporaryDirectory() as folder:
    ...     calls = write_probes(probes := f"{folder}/probes.json", 8)
    ...     x = read(probes)  # by any program, in any language
    ...     names = [name for name in x if name[3:] in ("q", "k")]
    ...     y = {name: rotary.rotate(x[name], x[f"{name[:3]}position_ids"]) for name in names}
    ...     write(answers := f"{folder}/answers.json", y)
    ...     diagnose_answers(answers, probes).ok
    True
    """
    calls = [call for call in _calls(probes, PARTS) if call]
    if not calls or PARTS[2] not in calls[0]:
        raise ValueError(f"{probes} contains no probes; write them with write_probes")
    results = _calls(answers, PARTS[:2])[: len(calls)]
    far = max(int(call["position_ids"].max()) for call in calls)
    for i, (call, result) in enumerate(zip(calls, results, strict=True)):
        for name, x in result.items():
            if x.shape != call[name].shape:
                raise ValueError(
                    f"{answers}: {i:02d}.{name} has shape {list(x.shape)}, but the probe has shape "
                    f"{list(call[name].shape)}; answer with the shape of the probe"
                )
            finite = x.isfinite().all(-1).all(1)  # [B, S]
            if not finite.all():
                begin = int(call["position_ids"][~finite].min())
                return Report(findings=[finding("not-finite", begin=begin)], reach=far)
    dtypes = [_narrowest(x[name] for x in results if name in x) for name in ("q", "k")]
    dtype = min(dtypes, key=NARROWEST_FIRST.index)
    replayed = _replayed(calls, [{name: x.to(dtype) for name, x in y.items()} for y in results])
    q, k = calls[0]["q"], calls[0]["k"]
    return diagnose(
        replayed, q.shape[3], expected=expected, num_heads=q.shape[1], num_kv_heads=k.shape[1],
        dtype=dtype, max_position=far + 1, cache=cache,
    )  # fmt: skip


def compare_answers(left: str | Path, right: str | Path, probes: str | Path) -> Report:
    """Compare two engines, such as a trainer and a server, by their answers to the same probes.

    Returns a report on the faults that only one file has. The report also names the first
    position where q or k differs by more than rounding in the narrower dtype can explain, and the
    largest difference. The rotations in the report are the left file's.
    Raises the same errors as `diagnose_answers`.
    """
    calls = [call for call in _calls(probes, PARTS) if call]
    files = [_calls(path, PARTS[:2])[: len(calls)] for path in (left, right)]
    reports = [diagnose_answers(path, probes) for path in (left, right)]
    findings = []
    for name, part in (("query", "q"), ("key", "k")):
        both = [i for i in range(len(calls)) if all(part in file[i] for file in files)]
        dtypes = [_narrowest(file[i][part] for i in both) for file in files]
        slack = 4 * torch.finfo(min(dtypes, key=NARROWEST_FIRST.index)).eps
        worst: dict[int, float] = {}  # by position
        for i in both:
            x, y = (file[i][part].double() for file in files)
            ids = calls[i]["position_ids"]
            off = ((x - y).abs().amax((1, 3)) / x.abs().amax((1, 3)).clamp(min=1e-300)).flatten()
            for m, each in zip(ids.flatten().tolist(), off.tolist(), strict=True):
                worst[m] = max(worst.get(m, 0.0), each)
        # Angles in float32 have relative errors of a few 2^-24, in both engines.
        apart = [m for m, off in sorted(worst.items()) if off > slack + 2.0**-21 * m]
        if apart:
            facts = dict(name=name, begin=apart[0], off=max(worst.values()))
            findings.append(finding("engines-differ", **facts))
    for path, one, other in zip((left, right), reports, reports[::-1], strict=True):
        own = [each for each in one.findings if each not in other.findings]
        findings += [replace(each, sentence=f"in {path}, {each.sentence}") for each in own]
    return replace(reports[0], findings=findings)


def _replayed(calls: list[Call], results: list[Call]) -> Callable[..., Any]:
    """Return a function that replays answers, and raises LookupError for a call without one."""
    last = -1

    def rotate(q: Tensor, k: Tensor, position_ids: Tensor) -> tuple[Tensor, Tensor]:
        nonlocal last
        arguments = {"q": q, "k": k, "position_ids": position_ids}
        asked = [i for i, call in enumerate(calls) if _same(call, arguments)]
        # If a call occurs twice, replay both of its answers, in order.
        for i in sorted(asked, key=lambda i: (i <= last, i)):
            if len(results[i]) == 2 and results[i]["k"].dtype == k.dtype:
                last = i
                return results[i]["q"], results[i]["k"]
        call = f"call {asked[0]:02d}" if asked else "a call that isn't in the probes"
        raise LookupError(
            f"there is no answer to {call}, which goes up to position "
            f"{int(position_ids.max())}; answer it, or write probes with a lower max_position"
        )

    return rotate


def _same(call: Call, other: Call) -> bool:
    return call.keys() == other.keys() and all(
        x.shape == other[name].shape and x.equal(other[name].to(x.dtype))
        for name, x in call.items()
    )


def _probes(head_dim: int, num_heads: int, num_kv_heads: int, max_position: int) -> list[Call]:
    """Return all calls that `diagnose` makes with float32."""
    calls: list[Call] = []

    def recorded(rotate: Callable[..., Any] | None, *arguments: Tensor) -> Any:
        q, k, position_ids = arguments
        call = {"q": q.clone(), "k": k.clone(), "position_ids": position_ids.int()}
        known = rotate is None and any(_same(call, old) for old in calls)
        # Calls with thousands of tokens would make large files.
        if q.dtype == torch.float32 and position_ids.numel() != PLACES and not known:
            calls.append(call)
        return (q, k) if rotate is None else rotate(q, k, position_ids)

    for rotate in (RotaryEmbedding(head_dim), None):
        diagnose(
            partial(recorded, rotate), head_dim, num_heads=num_heads, num_kv_heads=num_kv_heads,
            dtype=torch.float32, max_position=max_position,
        )  # fmt: skip
    return calls


def _calls(path: str | Path, parts: tuple[str, ...]) -> list[Call]:
    """Return one dict of tensors for each call in a file; a missing call has an empty dict."""
    tensors = read(path)
    names = [{part: f"{i:02d}.{part}" for part in parts} for i in range(100)]
    return [{part: tensors[x] for part, x in call.items() if x in tensors} for call in names]


def _narrowest(tensors: Iterable[Tensor]) -> torch.dtype:
    """Return the narrowest dtype that represents all numbers exactly."""
    flat = torch.cat([x.flatten().double() for x in tensors])
    return next(d for d in NARROWEST_FIRST if flat.to(d).double().equal(flat))


def write(path: str | Path, tensors: dict[str, Tensor]) -> None:
    """Write named tensors to a .safetensors or .json file.

    In JSON, a tensor is stored as its shape and its numbers in row-major order:
    `{"07.position_ids": {"shape": [1, 3], "data": [3, 11, 5]}, ...}`.
    Raises ValueError for any other ending, and OSError if the folder doesn't exist.
    """
    suffix = _suffix(path)
    tensors = {name: x.clone(memory_format=torch.contiguous_format) for name, x in tensors.items()}
    if suffix == ".safetensors":
        Path(path).write_bytes(import_module("safetensors.torch").save(tensors))
    else:
        listed = {n: {"shape": x.shape, "data": x.flatten().tolist()} for n, x in tensors.items()}
        Path(path).write_text(json.dumps(listed, separators=(",", ":")))


def read(path: str | Path) -> dict[str, Tensor]:
    """Return a file's tensors by name. JSON gives float32 or int64, and its null becomes NaN.

    Raises ValueError if the content doesn't match the ending, and OSError if the file is missing.
    """
    suffix = _suffix(path)
    try:
        if suffix == ".safetensors":
            return dict(import_module("safetensors.torch").load(Path(path).read_bytes()))
        return {
            n: torch.tensor([math.nan if y is None else y for y in x["data"]]).reshape(x["shape"])
            for n, x in json.loads(Path(path).read_text()).items()
        }
    except (ImportError, OSError):
        raise
    except Exception as error:  # each library raises its own type of error
        raise ValueError(f"{path} is not a valid {suffix} file of tensors: {error}") from error


def _suffix(path: str | Path) -> str:
    suffix = Path(path).suffix
    if suffix not in (".safetensors", ".json"):
        raise ValueError(f"the path is {path}; it must end with .safetensors or .json")
    return suffix
