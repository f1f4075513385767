"""The sequences of a run: text cut at random, or a task whose answer lies an exact distance back.

Both give `(inputs, targets)` int64 `[B, S]`, targets -1 where nothing is asked. The batch of a step
follows from seed and step alone, so that a run can go on from any of them.
"""

import hashlib
from typing import Protocol

import torch
from torch import Tensor

from rope.training.config import Experiment
from rope.training.corpus import Corpus

SYMBOLS, FARTHEST = 16, 32  # of the recall task: kinds of symbol, the largest distance asked for
IGNORED = -1


def generator(seed: int, name: str) -> torch.Generator:
    """Random numbers of their own for each purpose: one more of them shifts no other.

    >>> a, b = (torch.rand(1, generator=generator(0, name)) for name in ("a", "b"))
    >>> torch.equal(a, torch.rand(1, generator=generator(0, "a"))), torch.equal(a, b)
    (True, False)
    """
    digest = hashlib.sha256(f"{seed}:{name}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:7], "big"))


class Data(Protocol):
    """What a run draws its batches from."""

    tokens: int  # how many kinds there are

    def training(self, step: int) -> tuple[Tensor, Tensor]:
        """The batch of a step."""

    def validation(self, sequences: int, length: int) -> tuple[Tensor, Tensor]:
        """The same sequences at every call, kept from training."""


class TextData:
    """Windows of a corpus: the target of each character is the one after it.

    Raises ValueError for a corpus shorter than a sequence.

    >>> from rope.training.corpus import corpus_of
    >>> data = TextData(Experiment(context=4, batch=2), corpus_of("abcde" * 20))
    >>> inputs, targets = data.training(0)
    >>> inputs.shape, torch.equal(inputs[:, 1:], targets[:, :-1])
    (torch.Size([2, 4]), True)
    """

    def __init__(self, experiment: Experiment, corpus: Corpus) -> None:
        self.experiment, self.corpus = experiment, corpus
        self.tokens = len(corpus.vocabulary)
        self._check(corpus.training, experiment.context, "training")

    def training(self, step: int) -> tuple[Tensor, Tensor]:
        experiment, text = self.experiment, self.corpus.training
        random = generator(experiment.seed, f"batch {step}")
        last = len(text) - experiment.context
        starts = torch.randint(last, (experiment.batch,), generator=random)
        return _windows(text, starts, experiment.context)

    def validation(self, sequences: int, length: int) -> tuple[Tensor, Tensor]:
        """Windows at even distances; they overlap where there is not enough text for all."""
        text = self.corpus.validation
        self._check(text, length, "validation")
        starts = torch.linspace(0, len(text) - length - 1, sequences).long()
        return _windows(text, starts, length)

    def _check(self, text: Tensor, length: int, part: str) -> None:
        if len(text) <= length:
            raise ValueError(
                f"the {part} text has {len(text)} characters; it must have more than the "
                f"{length} of a sequence: use a longer corpus, or a shorter context"
            )


class RecallData:
    """Symbols and questions by turns: each question asks for the symbol an exact distance back.

    Even places hold a symbol, 0 ... SYMBOLS-1, odd places a question, SYMBOLS + d - 1, which asks
    for the symbol 2 d - 1 places back, d = 1 ... FARTHEST. All are drawn at random, so the answer
    depends on the exact offset and on nothing else. Asked only where the sequence reaches back.

    >>> inputs, targets = RecallData(Experiment(task="recall")).training(0)
    >>> distance = int(inputs[0, 101]) - SYMBOLS + 1
    >>> bool(targets[0, 101] == inputs[0, 101 - (2 * distance - 1)])
    True
    """

    tokens = SYMBOLS + FARTHEST

    def __init__(self, experiment: Experiment) -> None:
        if experiment.context < 2 * FARTHEST:
            raise ValueError(
                f"context is {experiment.context}; the recall task must have at least "
                f"{2 * FARTHEST}, or a batch may ask for nothing: pass a longer one"
            )
        self.experiment = experiment

    def training(self, step: int) -> tuple[Tensor, Tensor]:
        experiment = self.experiment
        return self._drawn(
            generator(experiment.seed, f"batch {step}"), experiment.batch, experiment.context
        )

    def validation(self, sequences: int, length: int) -> tuple[Tensor, Tensor]:
        return self._drawn(generator(0, "validation"), sequences, length)

    def _drawn(self, random: torch.Generator, sequences: int, length: int) -> tuple[Tensor, Tensor]:
        shape = (sequences, (length + 1) // 2)
        symbol = torch.randint(SYMBOLS, shape, generator=random)
        distance = torch.randint(1, FARTHEST + 1, shape, generator=random)
        source = torch.arange(1, shape[1] + 1) - distance  # of the symbols
        answer = torch.where(source >= 0, symbol.gather(1, source.clamp(min=0)), IGNORED)
        inputs = torch.stack((symbol, SYMBOLS + distance - 1), dim=-1).flatten(1)
        targets = torch.stack((torch.full_like(answer, IGNORED), answer), dim=-1).flatten(1)
        return inputs[:, :length], targets[:, :length]


def data_for(experiment: Experiment, corpus: Corpus | None = None) -> Data:
    """The data of an experiment's task; corpus: of the text task, CPython's topics when None."""
    if experiment.task == "recall":
        if corpus is not None:
            raise ValueError(
                "a corpus was passed with task 'recall', which draws its own tokens: leave it out, "
                "or use task='text'"
            )
        return RecallData(experiment)
    from rope.training.corpus import load_corpus

    return TextData(experiment, load_corpus() if corpus is None else corpus)


def _windows(text: Tensor, starts: Tensor, length: int) -> tuple[Tensor, Tensor]:
    at = starts[:, None] + torch.arange(length)  # [B, S]
    return text[at], text[at + 1]
