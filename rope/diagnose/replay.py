"""An engine that is no Python: its probes in one file, its answers in another, judged as a call is.

`diagnose` asks a function more where it sees something wrong. Here all is asked beforehand: what a
right rotation is asked, and what one that never turns is, recorded from `diagnose` itself, which is
then run on the answers. The report is the same, but for what a call or more questions would tell:
whether the input is overwritten, other dtypes, and where between two positions a change begins.

Besides, keys that wait rotated in a cache may be shifted, since R_s R_n k = R_{n+s} k: they must be
those that the engine itself rotates at the new positions.

Shapes: B batch, H heads, S sequence, D head dimension.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rope.diagnose import Finding, Report, diagnose
from rope.diagnose.files import read, write
from rope.diagnose.report import finding
from rope.module import RotaryEmbedding
from rope.scalars import check_dim, check_whole

Call = dict[str, Tensor]
PARTS = ("q", "k", "position_ids", "shift")  # of a call; one with a shift has no q
WAITING = (40, 64, 129, 37, 500, 1021)  # where keys are that are shifted in the cache
SHIFT = -37
NARROWEST_FIRST = (torch.bfloat16, torch.float16, torch.float32, torch.float64)


def write_probes(
    path: str | Path,
    head_dim: int,
    *,
    num_heads: int = 2,
    num_kv_heads: int = 1,
    max_position: int = 1 << 17,
    axes: str = "bhsd",
) -> int:
    """Write what an engine is to rotate; returns the number of calls.

    Call 7, say, is `07.q` `[B, H, S, D]` and `07.k` `[B, H_kv, S, D]`, float32 of numbers that
    16 bits hold, and `07.position_ids` `[B, S]`, int32; `07.q` and `07.k` answer it. A call with
    a `shift` `[1]` has no q; k, rotated at position_ids and then shifted, in a cache of the
    answers' format, answers it. They are answered in this order, by one process.
    path: ends in .safetensors, .npz or .json. axes: "bhsd", or "bshd" for `[B, S, H, D]`. The
    others: as `diagnose` has them, with fewer heads for a small file.
    Raises TypeError and ValueError for bad numbers, ending or axes; OSError for a folder that is
    not there; ImportError where the format needs a library.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     write_probes(f"{folder}/probes.json", 8)
    40
    """
    check_dim(head_dim, "head_dim")
    check_whole("max_position", max_position, smallest=128)
    if max_position >= 2**31:
        raise ValueError(f"max_position is {max_position}; it must be below 2**31: pass a smaller")
    if axes not in ("bhsd", "bshd"):
        raise ValueError(f"axes is {axes!r}; it must be 'bhsd' or 'bshd': pass one of the two")
    calls = _asked(head_dim, num_heads, num_kv_heads, max_position)
    if axes == "bshd":
        calls = _transposed(calls)
    write(path, {f"{i:02d}.{name}": x for i, call in enumerate(calls) for name, x in call.items()})
    return len(calls)


def diagnose_answers(
    answers: str | Path, probes: str | Path, *, expected: Any = None, cache: bool = False
) -> Report:
    """`diagnose` the engine that answered the probes of one file in another.

    A call of three rows, of one token, or of a shift may be left out. expected, cache: as
    `diagnose` has them. The dtype is the narrowest that holds all q, or all k, whichever is
    narrower. Where an answer is not finite, that is the finding, and nothing else is looked at.
    Raises OSError and ValueError for files that cannot be read, ValueError for answers that lack
    or have another shape, or sizes that need other probes; ImportError where a format needs a
    library.

    >>> from tempfile import TemporaryDirectory
    >>> rotary = RotaryEmbedding(8)
    >>> def engine(folder):  # any program, in any language
    ...     asked, told = read(f"{folder}/probes.json"), {}
    ...     for name in (name for name in asked if name[3:] in ("q", "k")):
    ...         ids = asked[f"{name[:3]}position_ids"] + asked.get(f"{name[:3]}shift", 0)
    ...         told[name] = rotary.rotate(asked[name].float(), ids)
    ...     write(f"{folder}/answers.json", told)
    >>> with TemporaryDirectory() as folder:
    ...     calls = write_probes(f"{folder}/probes.json", 8)
    ...     engine(folder)
    ...     diagnose_answers(f"{folder}/answers.json", f"{folder}/probes.json").ok
    True
    """
    asked = [call for call in _calls(probes, PARTS) if call]
    if not asked or PARTS[2] not in asked[0]:
        raise ValueError(f"{probes} holds no probes: write them by write_probes")
    told = _calls(answers, PARTS[:2])[: len(asked)]
    _check(asked, told, answers)
    if any(call["k"].shape[2] != call["position_ids"].shape[1] for call in asked):
        asked, told = _transposed(asked), _transposed(told)
    q, k, far = asked[0]["q"], asked[0]["k"], max(int(call["position_ids"].max()) for call in asked)
    for call, answer in zip(asked, told, strict=True):
        for finite in (x.isfinite().all(-1).all(1) for x in answer.values()):  # [B, S]
            if not finite.all():
                begin = int(call["position_ids"][~finite].min())
                return Report(findings=[finding("not-finite", begin=begin)], reach=far)
    held = [_narrowest(call[name] for call in told[:-1] if call) for name in ("q", "k")]
    dtype = min(held, key=NARROWEST_FIRST.index)
    shifted = [*_shifted(told, dtype)]
    tape = Tape(asked, [{name: x.to(dtype) for name, x in call.items()} for call in told])
    try:
        report = diagnose(
            tape, q.shape[3], expected=expected, num_heads=q.shape[1], num_kv_heads=k.shape[1],
            dtype=dtype, max_position=far + 1, cache=cache,
        )  # fmt: skip
    except ValueError as error:
        if not tape.unasked:
            raise
        raise ValueError(
            f"positions up to {far} give sizes 1000 times as large as others, or more, and the "
            "probes do not ask where that begins: write others with a smaller max_position"
        ) from error
    return replace(report, findings=report.findings + (shifted if report.ok else []))


class Tape:
    """The answers as a function; LookupError for a call that has none."""

    def __init__(self, asked: list[Call], told: list[Call]) -> None:
        self.asked, self.told, self.last, self.unasked = asked, told, -1, False

    def __call__(self, q: Tensor, k: Tensor, position_ids: Tensor) -> tuple[Tensor, Tensor]:
        given = {"q": q, "k": k, "position_ids": position_ids}
        # A call may be there again, to see whether its answer is the same again.
        for i in sorted(range(len(self.asked)), key=lambda i: (i <= self.last, i)):
            answer = self.told[i]
            if answer and answer["k"].dtype == k.dtype and _same(self.asked[i], given):
                self.last = i
                return answer["q"], answer["k"]
        self.unasked = True
        raise LookupError("it has no answer")


def _same(call: Call, other: Call) -> bool:
    return call.keys() == other.keys() and all(
        x.shape == other[name].shape and x.equal(other[name].to(x.dtype))
        for name, x in call.items()
    )


def _asked(head_dim: int, num_heads: int, num_kv_heads: int, max_position: int) -> list[Call]:
    """All calls: those of `diagnose`, recorded, and the four of a shift last."""
    calls: list[Call] = []

    def record(rotate: Callable[..., Any], again: bool) -> None:
        def recorded(q: Tensor, k: Tensor, position_ids: Tensor) -> Any:
            call = {"q": q.clone(), "k": k.clone(), "position_ids": position_ids.int()}
            if q.dtype == torch.float32 and (again or not any(_same(call, old) for old in calls)):
                calls.append(call)
            return rotate(q, k, position_ids)

        diagnose(
            recorded, head_dim, num_heads=num_heads, num_kv_heads=num_kv_heads,
            dtype=torch.float32, max_position=max_position,
        )  # fmt: skip

    record(RotaryEmbedding(head_dim), True)
    record(lambda q, k, position_ids: (q, k), False)
    ids = torch.tensor([[m for m in WAITING if m - SHIFT < max_position]]).int()
    q, k = (calls[0][name][:, :, : ids.shape[1]] for name in ("q", "k"))
    calls += [{"q": q, "k": k, "position_ids": ids + by} for by in (0, SHIFT, -SHIFT)]
    return [*calls, {"k": k, "position_ids": ids, "shift": torch.tensor([SHIFT]).int()}]


def _shifted(told: list[Call], dtype: torch.dtype) -> Iterator[Finding]:
    """Keys shifted in the cache, against those that were rotated at the new positions."""
    if not told[-1]:
        return
    here, there, opposite, shifted = (call["k"].double() for call in told[-4:])
    narrower = min(dtype, _narrowest([told[-1]["k"]]), key=NARROWEST_FIRST.index)
    slack = 4 * torch.finfo(narrower).eps + 2.0**-20 * max(WAITING)

    def near(x: Tensor) -> bool:
        return bool(((shifted - x).abs() <= slack * x.abs().max()).all())

    factor = float((shifted * there).sum() / there.square().sum())
    cases = {"still": here, "reversed": opposite, "sized": factor * there}
    variant = next((name for name, x in cases.items() if near(x)), "moved")
    # The factor is a mean over many roundings, and so is known better than one coordinate.
    if not near(there) or abs(factor - 1) > slack:
        off = float((shifted - there).abs().max())
        yield finding("cache-shift", variant, shift=SHIFT, factor=factor, off=off)


def _calls(path: str | Path, parts: tuple[str, ...]) -> list[Call]:
    """A file's tensors, call by call; a call that is not there is empty."""
    tensors = read(path)

    def call(i: str) -> Call:
        return {part: tensors[i + part] for part in parts if i + part in tensors}

    return [call(f"{i:02d}.") for i in range(100)]


def _check(asked: list[Call], told: list[Call], path: str | Path) -> None:
    """ValueError for what is no answer to these probes."""
    for i, (call, answer) in enumerate(zip(asked, told, strict=True)):
        rows, tokens = call["position_ids"].shape
        if not answer and (rows == 3 or tokens == 1 or "shift" in call):
            continue
        for name in call.keys() & {"q", "k"}:
            shape = list(answer[name].shape) if name in answer else "not there"
            if shape != list(call[name].shape):
                raise ValueError(
                    f"{path}: {i:02d}.{name} is {shape}; it must be {list(call[name].shape)}, as "
                    "in the probes: answer each call, in the order of its axes"
                )


def _narrowest(xs: Iterable[Tensor]) -> torch.dtype:
    """The narrowest dtype that holds all these numbers."""
    flat = torch.cat([x.flatten().double() for x in xs])
    return next(d for d in NARROWEST_FIRST if flat.to(d).double().equal(flat))


def _transposed(calls: list[Call]) -> list[Call]:
    return [
        {name: x.transpose(1, 2) if x.ndim == 4 else x for name, x in call.items()}
        for call in calls
    ]
