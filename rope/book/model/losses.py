"""Measure what each change to the rotation costs SmolLM2, for the chapter "A real model".

    loss = -mean_i log p(token_i | the tokens before it), in nats per token,

over windows of 1,024 tokens, which are the same for each change. The model was published in 2024.
It can't have memorized the three texts, because they were written for this book in 2026: a story,
twelve essays, and the source code of `rope.diagnose`.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from tqdm import tqdm

from rope.book.measured.machine import about_here
from rope.book.measured.record import rounded, write
from rope.book.model.changes import CHANGES, changed
from rope.book.model.network import SmolLM2, new_caches
from rope.book.model.tokens import decode, encode

TEXTS = ("story", "essays", "code")
LENGTH, WINDOWS = 1024, 8  # tokens per window, windows per text


@cache
def read_text(name: str) -> str:
    """Return the text that has this name in TEXTS."""
    return (Path(__file__).parent / "texts" / f"{name}.txt").read_text(encoding="utf-8")


@cache
def model() -> SmolLM2:
    """Return the model, which all callers in a process share. Undo any change that you make."""
    return SmolLM2()


def window(text: str, number: int, length: int = LENGTH) -> Tensor:
    """Return window `number` of a text as int64 `[length]`. Windows don't overlap."""
    return encode(read_text(text))[number * length : (number + 1) * length]


@torch.no_grad()
def token_losses(tokens: Tensor, **options: Any) -> Tensor:
    """Return the loss of every token but the first, float32 `[S - 1]`. options: see `SmolLM2`."""
    logits = model()(tokens[None], **options)[0, :-1]
    return cross_entropy(logits, tokens[1:], reduction="none")


@torch.no_grad()
def continued(prompt: str, count: int) -> str:
    """Append the likeliest next token to a prompt `count` times; return the new text."""
    tokens = encode(prompt)[None]
    caches = new_caches(1, tokens.shape[1] + count)
    said = []
    for _ in range(count):
        tokens = model()(tokens, caches)[:, -1:].argmax(dim=-1)
        said.append(tokens[0])
    return decode(torch.cat(said))


def window_loss(change: str, text: str, number: int) -> float:
    """Return the mean loss in one window under a change."""
    torch.set_num_threads(1)  # so that every machine adds in the same order
    with changed(model(), change):
        return token_losses(window(text, number)).mean().item()


#: The places where the loss is measured: each window of each text.
PLACES = tuple((text, number) for text in TEXTS for number in range(WINDOWS))


def measure(
    output: Path,
    function: Callable[..., Any] = window_loss,
    names: Iterable[str] = tuple(CHANGES),
    places: Sequence[tuple[Any, ...]] = PLACES,
    workers: int = 2,
) -> dict[str, Any]:
    """Call `function` with each name and place, write the record, and return it.

    The record holds one list per name, with one result per place. To resume an interrupted run,
    repeat the call; it measures only what is missing, and the metadata then describe the last run.
    workers: the number of processes. With one worker, the current process does all the work.
    Raises ValueError if the output was measured on other texts.
    """
    texts = {name: hashlib.sha256(read_text(name).encode()).hexdigest() for name in TEXTS}
    record: dict[str, Any] = {"texts": texts, "losses": {}}
    if output.exists():
        record = json.loads(output.read_text())
        if record["texts"] != texts:
            raise ValueError(f"{output} was measured on other texts; choose another output")
    record["metadata"] = about_here(("torch",))
    rows = {name: record["losses"].get(name, [None] * len(places)) for name in names}
    missing = [(name, i) for name, row in rows.items() for i, x in enumerate(row) if x is None]
    arguments = [(name, *places[i]) for name, i in missing]
    with ExitStack() as stack:
        map_all: Callable[..., Iterable[Any]] = map
        if workers > 1:
            pool = ProcessPoolExecutor(workers, mp_context=get_context("spawn"))
            map_all = stack.enter_context(pool).map
        results = map_all(function, *zip(*arguments, strict=True)) if arguments else ()
        bar = tqdm(zip(missing, results, strict=True), total=len(missing))
        for (name, i), result in bar:
            record["losses"].setdefault(name, rows[name])[i] = rounded(result, 6)
            write(output, record)
    return record
