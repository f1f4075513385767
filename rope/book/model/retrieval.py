"""Ask SmolLM2 for words that it read long ago, for the chapter "Beyond the trained length".

Each block of 1,024 tokens of a text contains a list of 24 random words. After the text, the first
words of one list are repeated, and the model must continue. Nothing else in the text says which
words come next, so a model that predicts them has found the list.
"""

import re
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from rope.book.model.lengths import BLOCK, METHODS, TRAINED
from rope.book.model.losses import model, window
from rope.book.model.network import new_caches
from rope.book.model.tokens import decode, encode

READ = 14_336
WORDS, GIVEN = 24, 4  # words per list; words that are repeated but not counted
PLACE = BLOCK // 2  # the first token of the list in its block
BREAK = "\n\n"  # inserted before and after each list, and before the repetition
NAMES = ("plain", "YaRN", "window and 4 sinks")


@cache
def vocabulary() -> Tensor:
    """Return the common tokens made of a space and at least five lowercase letters, int64."""
    texts = {token: decode(torch.tensor([token])) for token in range(10_000)}
    return torch.tensor([token for token, s in texts.items() if re.fullmatch(" [a-z]{5,}", s)])


def planted(text: str, draw: int) -> tuple[Tensor, Tensor]:
    """Return a text of READ tokens, int64 `[READ]`, and the lists planted in it, `[14, WORDS]`.

    The words of list i begin at token i * BLOCK + PLACE.
    """
    blocks, random = READ // BLOCK, torch.Generator().manual_seed(draw)
    lists = vocabulary()[torch.randperm(len(vocabulary()), generator=random)[: blocks * WORDS]]
    lists, gap = lists.unflatten(0, (blocks, WORDS)), encode(BREAK)
    rows = window(text, 0, READ).unflatten(0, (blocks, BLOCK)).clone()
    rows[:, PLACE - len(gap) : PLACE] = gap
    rows[:, PLACE : PLACE + WORDS] = lists
    rows[:, PLACE + WORDS : PLACE + WORDS + len(gap)] = gap
    return rows.flatten(), lists


@torch.no_grad()
def found(method: str, text: str, draw: int) -> dict[str, Any]:
    """Ask for each list after 8,192 tokens and after READ tokens, with one of METHODS.

    Returns a dict per length, with one number per list: "right", the share of the words after the
    given ones that are the model's likeliest next token, and "loss", the mean loss of these words.
    """
    torch.set_num_threads(1)  # so that every machine adds in the same order
    tokens, lists = planted(text, draw)
    gap, result = encode(BREAK), {}
    with METHODS[method]():
        attention: Any = model().blk[0].attn
        kept = attention.window + attention.sinks + BLOCK if attention.window else READ
        caches = new_caches(1, kept + len(gap) + WORDS)
        for end in range(BLOCK, READ + 1, BLOCK):
            model()(tokens[None, end - BLOCK : end], caches)
            if end not in (TRAINED, READ):
                continue
            right, losses = [], []
            for wanted in lists[: end // BLOCK]:
                asked = torch.cat((gap, wanted[:-1]))
                logits = model()(asked[None], [each.fork() for each in caches])[0]
                logits = logits[-(WORDS - GIVEN) :]
                right.append((logits.argmax(dim=-1) == wanted[GIVEN:]).float().mean().item())
                losses.append(cross_entropy(logits, wanted[GIVEN:]).item())
            result[str(end)] = {"right": right, "loss": losses}
    return result
