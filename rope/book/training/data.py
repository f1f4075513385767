"""What models are trained on: windows of a text, or a task whose answer stands at a known place.

`TextData` cuts a `Corpus` at random, `ShuffledData` also puts each window's characters in a random
order; `RecallData` asks for the symbol an exact distance back, `LookupData` for the symbol of a
name, `EvenLookupData` equally often from each distance. All give `(inputs, targets)` int64
`[B, S]`, targets -1 where nothing is asked. The batch of a step follows from seed and step alone.
"""

from abc import ABC, abstractmethod
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from rope.book.training.corpus import Corpus, generator, load_corpus
from rope.book.training.experiment import FARTHEST, Experiment
from rope.book.training.library import load_library

SYMBOLS = 16  # kinds of symbol, which questions ask for
NAMES = 8  # of the lookup task, each of which has a symbol
IGNORED = -1


class TextData:
    """Windows of a corpus: the target of each character is the one after it.

    Raises ValueError for a corpus shorter than a sequence.

    >>> from rope.book.training.corpus import corpus_of
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
        """The batch of a step."""
        experiment, text = self.experiment, self.corpus.training
        random = generator(experiment.seed, f"batch {step}")
        last = len(text) - experiment.context
        starts = torch.randint(last, (experiment.batch,), generator=random)
        return self._windows(text, starts, experiment.context, random)

    def validation(self, sequences: int, length: int) -> tuple[Tensor, Tensor]:
        """The same windows at every call, evenly spaced; they overlap where the text is short."""
        text = self.corpus.validation
        self._check(text, length, "validation")
        starts = torch.linspace(0, len(text) - length - 1, sequences).long()
        return self._windows(text, starts, length, generator(0, "validation"))

    def window_count(self, length: int) -> int:
        """How many windows of this length the validation text holds without an overlap."""
        return (len(self.corpus.validation) - 1) // length

    def _windows(
        self, text: Tensor, starts: Tensor, length: int, random: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        at = starts[:, None] + torch.arange(length)  # [B, S]
        return text[at], text[at + 1]

    def _check(self, text: Tensor, length: int, part: str) -> None:
        if len(text) <= length:
            raise ValueError(
                f"the {part} text has {len(text)} characters; it must have more than the "
                f"{length} of a sequence: use a longer corpus, or a shorter context"
            )


class ShuffledData(TextData):
    """The same windows, the characters of each in a random order of its own.

    All orders of a window are equally likely, so the best prediction depends on which characters
    came before and not on where: no distance is worth more than another.

    >>> from rope.book.training.corpus import corpus_of
    >>> text = corpus_of("".join(map(chr, range(100, 160))))
    >>> inputs, targets = ShuffledData(Experiment(context=8, batch=2), text).training(0)
    >>> whole = torch.cat((inputs, targets[:, -1:]), dim=1).sort().values
    >>> torch.equal(whole, whole[:, :1] + torch.arange(9)), torch.equal(inputs.sort()[0], inputs)
    (True, False)
    """

    def _windows(
        self, text: Tensor, starts: Tensor, length: int, random: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        order = torch.rand(len(starts), length + 1, generator=random).argsort(dim=1)
        shuffled = text[starts[:, None] + order]  # [B, S + 1]
        return shuffled[:, :-1], shuffled[:, 1:]


class Drawn(ABC):
    """A task whose sequences are drawn anew for each step."""

    tokens: ClassVar[int]

    def __init__(self, experiment: Experiment) -> None:
        self.experiment = experiment

    def training(self, step: int) -> tuple[Tensor, Tensor]:
        """The batch of a step."""
        experiment = self.experiment
        return self._drawn(
            generator(experiment.seed, f"batch {step}"), experiment.batch, experiment.context
        )

    def validation(self, sequences: int, length: int) -> tuple[Tensor, Tensor]:
        """The same sequences at every call, for every seed."""
        return self._drawn(generator(0, "validation"), sequences, length)

    @abstractmethod
    def _drawn(
        self, random: torch.Generator, sequences: int, length: int
    ) -> tuple[Tensor, Tensor]: ...


class RecallData(Drawn):
    """Symbols and questions, alternating: each question asks for the symbol an exact distance back.

    Even places hold a symbol, 0 ... SYMBOLS-1, odd places a question, SYMBOLS + d - 1, which asks
    for the symbol 2 d - 1 places back, d = 1 ... `questions` of the experiment. All are drawn at
    random, so the answer depends on the exact offset and on nothing else. Asked only where the
    sequence reaches back.

    >>> inputs, targets = RecallData(Experiment(task="recall")).training(0)
    >>> distance = int(inputs[0, 101]) - SYMBOLS + 1
    >>> bool(targets[0, 101] == inputs[0, 101 - (2 * distance - 1)])
    True
    """

    tokens = SYMBOLS + FARTHEST

    def __init__(self, experiment: Experiment) -> None:
        super().__init__(experiment)
        if experiment.context < 2 * experiment.questions:
            raise ValueError(
                f"context is {experiment.context}; the recall task must have at least "
                f"{2 * experiment.questions}, or a batch may ask for nothing: pass a longer one, "
                "or fewer questions"
            )

    def _drawn(self, random: torch.Generator, sequences: int, length: int) -> tuple[Tensor, Tensor]:
        shape = (sequences, (length + 1) // 2)
        symbol = torch.randint(SYMBOLS, shape, generator=random)
        distance = torch.randint(1, self.experiment.questions + 1, shape, generator=random)
        source = torch.arange(1, shape[1] + 1) - distance  # of the symbols
        answer = torch.where(source >= 0, symbol.gather(1, source.clamp(min=0)), IGNORED)
        inputs = torch.stack((symbol, SYMBOLS + distance - 1), dim=-1).flatten(1)
        return inputs[:, :length], _asked(answer)[:, :length]


class LookupData(Drawn):
    """Statements and questions, alternating: each question asks for the symbol of a name.

    Even places state that name i has symbol s, one token, SYMBOLS i + s; odd places ask for the
    symbol of a name that has been stated, SYMBOLS NAMES + i. The symbols of the names are drawn
    for each sequence, and stay. So the answer is found by what stands in a place, at any distance.

    >>> inputs, targets = LookupData(Experiment(task="lookup")).training(0)
    >>> name, symbol = int(inputs[0, 101]) - SYMBOLS * NAMES, int(targets[0, 101])
    >>> SYMBOLS * name + symbol in inputs[0, :101:2]
    True
    """

    tokens = SYMBOLS * NAMES + NAMES

    def far(self, sequences: int, distance: int) -> tuple[Tensor, Tensor]:
        """Sequences in which every answer stands exactly this many places before its question.

        Half of the names are stated once, in a random order, and asked for in the same order; in
        between and beside stand statements and questions of the others. The same at every call.
        Length: distance + NAMES - 1. Raises ValueError for a distance that is even or below NAMES.
        """
        if distance < NAMES or distance % 2 == 0:
            raise ValueError(
                f"distance is {distance}; it must be odd, from a statement to a question, and at "
                f"least {NAMES + 1}, so that the names are stated before: pass such a one"
            )
        random, half = generator(0, "validation"), NAMES // 2
        symbol = torch.randint(SYMBOLS, (sequences, NAMES), generator=random)
        rare = torch.rand(sequences, half, generator=random).argsort(dim=1) + half
        pairs = (distance - 1) // 2 + half
        told, asked = torch.randint(half, (2, sequences, pairs), generator=random)
        told[:, :half], asked[:, -half:] = rare, rare
        inputs, targets = self._written(told, asked, symbol)
        targets[:, :-NAMES] = IGNORED
        return inputs, targets

    def _drawn(self, random: torch.Generator, sequences: int, length: int) -> tuple[Tensor, Tensor]:
        symbol = torch.randint(SYMBOLS, (sequences, NAMES), generator=random)
        shape = (2, sequences, (length + 1) // 2)
        told, asked = torch.randint(NAMES, shape, generator=random)
        inputs, targets = self._written(told, asked, symbol)
        return inputs[:, :length], targets[:, :length]

    def _written(self, told: Tensor, asked: Tensor, symbol: Tensor) -> tuple[Tensor, Tensor]:
        """Tokens and targets of names told and asked for `[B, S/2]`, their symbols `[B, NAMES]`."""
        known = (told[:, None] == asked[:, :, None]).tril().any(dim=-1)
        answer = torch.where(known, symbol.gather(1, asked), IGNORED)
        statement = SYMBOLS * told + symbol.gather(1, told)
        return torch.stack((statement, SYMBOLS * NAMES + asked), dim=-1).flatten(1), _asked(answer)


class EvenLookupData(LookupData):
    """Lookups that ask equally often from each odd distance up to S - NAMES + 1, of S tokens.

    Half of the names are stated in the first places, once each, and asked for from then on; all
    later statements are of the other half. So each of these distances has as many pairs of a
    question and a statement, NAMES/2.

    >>> inputs, targets = EvenLookupData(Experiment(task="even lookup")).training(0)
    >>> name = int(inputs[0, 127]) - SYMBOLS * NAMES
    >>> SYMBOLS * name + int(targets[0, 127]) in inputs[0, :NAMES:2]
    True
    """

    def _drawn(self, random: torch.Generator, sequences: int, length: int) -> tuple[Tensor, Tensor]:
        symbol = torch.randint(SYMBOLS, (sequences, NAMES), generator=random)
        half, shape = NAMES // 2, (sequences, (length + 1) // 2)
        stated, others = (
            torch.rand(sequences, NAMES, generator=random).argsort(dim=1).split(half, dim=1)
        )
        told = others.gather(1, torch.randint(half, shape, generator=random))
        asked = stated.gather(1, torch.randint(half, shape, generator=random))
        told[:, :half] = stated[:, : shape[1]]
        inputs, targets = self._written(told, asked, symbol)
        return inputs[:, :length], targets[:, :length]


def _asked(answer: Tensor) -> Tensor:
    """Targets that ask at the odd places alone: from `[B, S/2]` to `[B, S]`."""
    return torch.stack((torch.full_like(answer, IGNORED), answer), dim=-1).flatten(1)


Data = TextData | RecallData | LookupData


def data_for(experiment: Experiment, corpus: Corpus | None = None) -> Data:
    """The data of an experiment's task; corpus: of a task of text, that of its name when None."""
    drawn: dict[str, type[RecallData | LookupData]] = {
        "recall": RecallData,
        "lookup": LookupData,
        "even lookup": EvenLookupData,
    }
    if experiment.task in drawn:
        if corpus is not None:
            raise ValueError(
                f"a corpus was passed with task {experiment.task!r}, which draws its own tokens: "
                "leave it out, or use task='text'"
            )
        return drawn[experiment.task](experiment)
    if corpus is None:
        corpus = load_library() if experiment.task == "code" else load_corpus()
    return (ShuffledData if experiment.task == "shuffled" else TextData)(experiment, corpus)


# Floors under what models answer: whoever answers with the commonest symbol so far, or of the last
# ones, is right more often than one who guesses, and has found nothing.


def commonest(inputs: Tensor, last: int | None = None) -> Tensor:
    """The commonest symbol so far at each place, int64 `[B, S]`; of those as common the least.

    inputs: of `RecallData` or `LookupData`, whose even places hold the symbols; last: how many of
    the latest symbols count, all when None.

    >>> import torch
    >>> commonest(torch.tensor([[3, 20, 3, 20, 5, 20, 5, 20]]))
    tensor([[3, 3, 3, 3, 3, 3, 3, 3]])
    >>> commonest(torch.tensor([[3, 20, 3, 20, 5, 20, 5, 20]]), last=3)
    tensor([[3, 3, 3, 3, 3, 3, 5, 5]])
    """
    counts = one_hot(inputs[:, ::2] % SYMBOLS, SYMBOLS).cumsum(dim=1)  # [B, S/2, SYMBOLS]
    if last is not None and last < counts.shape[1]:
        counts[:, last:] -= counts[:, :-last].clone()
    return counts.argmax(dim=-1).repeat_interleave(2, dim=1)[:, : inputs.shape[1]]


def share_right(guess: Tensor, targets: Tensor) -> float:
    """The share of the questions that a guess `[B, S]` answers; NaN where nothing is asked."""
    asked = targets != IGNORED
    return (guess == targets)[asked].double().mean().item()
