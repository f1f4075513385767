"""Generate training data: windows of a text, or questions whose answers are at known positions.

`TextData` cuts random windows from a `Corpus`. `RecallData` asks for the symbol at a given distance
back, and `LookupData` asks for the symbol of a name. All return `(inputs, targets)`, int64
`[B, S]`, with target -1 where nothing is asked. A batch depends only on the seed and the step.
"""

from abc import ABC, abstractmethod

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from rope.book.training.corpus import Corpus, generator
from rope.book.training.experiment import Experiment

SYMBOLS = 16  # the number of different symbols that can be the answer
NAMES = 8  # the number of names in the lookup task; each name has a symbol
IGNORED = -1


class TextData:
    """Cut windows from a corpus; the target for each character is the next character.

    >>> from rope.book.training.corpus import corpus_of
    >>> data = TextData(Experiment(context=4, batch=2), corpus_of("abcde" * 20))
    >>> inputs, targets = data.training(0)
    >>> inputs.shape, torch.equal(inputs[:, 1:], targets[:, :-1])
    (torch.Size([2, 4]), True)
    """

    def __init__(self, experiment: Experiment, corpus: Corpus) -> None:
        self.experiment, self.corpus = experiment, corpus
        self.tokens = len(corpus.vocabulary)

    def training(self, step: int) -> tuple[Tensor, Tensor]:
        """Return the batch for a step."""
        experiment, text = self.experiment, self.corpus.training
        random = generator(experiment.seed, f"batch {step}")
        last = len(text) - experiment.context
        starts = torch.randint(last, (experiment.batch,), generator=random)
        return self._windows(text, starts, experiment.context)

    def validation(self, sequences: int, length: int) -> tuple[Tensor, Tensor]:
        """Return the same evenly spaced windows on every call; in a short text they overlap."""
        text = self.corpus.validation
        if len(text) <= length:
            raise ValueError(
                f"the validation text has {len(text)} characters; it must be longer than a "
                f"sequence, which has {length}; use a longer corpus"
            )
        starts = torch.linspace(0, len(text) - length - 1, sequences).long()
        return self._windows(text, starts, length)

    def window_count(self, length: int) -> int:
        """Return how many windows of this length fit into the validation text without overlap."""
        return (len(self.corpus.validation) - 1) // length

    def _windows(self, text: Tensor, starts: Tensor, length: int) -> tuple[Tensor, Tensor]:
        at = starts[:, None] + torch.arange(length)  # [B, S]
        return text[at], text[at + 1]


class Drawn(ABC):
    """Represent a task whose sequences are drawn anew in each step."""

    def __init__(self, experiment: Experiment) -> None:
        self.experiment = experiment

    def training(self, step: int) -> tuple[Tensor, Tensor]:
        """Return the batch for a step."""
        random = generator(self.experiment.seed, f"batch {step}")
        return self._drawn(random, self.experiment.batch, self.experiment.context)

    def validation(self, sequences: int, length: int) -> tuple[Tensor, Tensor]:
        """Return sequences that are the same in every call and for every seed."""
        return self._drawn(generator(0, "validation"), sequences, length)

    @abstractmethod
    def _drawn(
        self, random: torch.Generator, sequences: int, length: int
    ) -> tuple[Tensor, Tensor]: ...


class RecallData(Drawn):
    """Alternate symbols and questions. Each question asks for the symbol at a given distance back.

    Even positions hold a symbol, 0 ... SYMBOLS-1. Odd positions hold a question, SYMBOLS + d - 1,
    which asks for the symbol 2 * d - 1 positions back (d = 1 ... experiment.questions). Symbols and
    questions are random, so the answer depends only on the exact offset. A question has a target
    only if the sequence reaches that far back.

    >>> inputs, targets = RecallData(Experiment(task="recall")).training(0)
    >>> distance = int(inputs[0, 101]) - SYMBOLS + 1
    >>> bool(targets[0, 101] == inputs[0, 101 - (2 * distance - 1)])
    True
    """

    def _drawn(self, random: torch.Generator, sequences: int, length: int) -> tuple[Tensor, Tensor]:
        shape = (sequences, (length + 1) // 2)
        symbol = torch.randint(SYMBOLS, shape, generator=random)
        distance = torch.randint(1, self.experiment.questions + 1, shape, generator=random)
        source = torch.arange(1, shape[1] + 1) - distance  # index of the symbol asked for
        answer = torch.where(source >= 0, symbol.gather(1, source.clamp(min=0)), IGNORED)
        inputs = torch.stack((symbol, SYMBOLS + distance - 1), dim=-1).flatten(1)
        return inputs[:, :length], _asked(answer)[:, :length]


class LookupData(Drawn):
    """Alternate statements and questions; each question asks for the symbol of a name.

    At even positions, a token, SYMBOLS * i + s, states that name i has symbol s. At odd positions,
    the token SYMBOLS * NAMES + i asks for the symbol of name i. Each sequence draws the symbol of
    each name once. The answer therefore depends on the content of a token, not on its distance.

    >>> inputs, targets = LookupData(Experiment(task="lookup")).training(0)
    >>> name, symbol = int(inputs[0, 101]) - SYMBOLS * NAMES, int(targets[0, 101])
    >>> SYMBOLS * name + symbol in inputs[0, :101:2]
    True
    """

    def far(self, sequences: int, distance: int) -> tuple[Tensor, Tensor]:
        """Return sequences whose answers are exactly `distance` positions before the questions.

        Half of the names are stated once, in random order, and asked for in the same order. The
        remaining positions hold statements and questions about the other names. Every call returns
        the same sequences, of length distance + NAMES - 1. The distance must be odd, because it
        leads from a statement to a question. It must exceed NAMES, so that these names are
        all stated before any question about them.
        """
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
        """Return tokens and targets `[B, S]` for stated and asked names `[B, S/2]` and symbols."""
        known = (told[:, None] == asked[:, :, None]).tril().any(dim=-1)
        answer = torch.where(known, symbol.gather(1, asked), IGNORED)
        statement = SYMBOLS * told + symbol.gather(1, told)
        return torch.stack((statement, SYMBOLS * NAMES + asked), dim=-1).flatten(1), _asked(answer)


def _asked(answer: Tensor) -> Tensor:
    """Return targets `[B, S]` that place the answers `[B, S/2]` at the odd positions."""
    return torch.stack((torch.full_like(answer, IGNORED), answer), dim=-1).flatten(1)


# These baselines answer with the most common symbol, either of all so far or of the last few. They
# are right more often than a random guess, although they look nothing up.


def commonest(inputs: Tensor, last: int | None = None) -> Tensor:
    """Return the most common symbol so far at each position, int64 `[B, S]`; the lowest wins a tie.

    inputs: from `RecallData` or `LookupData`, with symbols at even positions. last: the number of
    latest symbols to count. None means all symbols.

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
    """Return the share of questions that a guess `[B, S]` gets right; NaN if there are none."""
    asked = targets != IGNORED
    return (guess == targets)[asked].double().mean().item()
