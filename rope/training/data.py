"""What models are trained on: text, one character a token, or a task of exact distances.

A `Corpus` is a text as numbers. `TextData` cuts it at random; `RecallData` asks for the token an
exact distance back. Both give `(inputs, targets)` int64 `[B, S]`, targets -1 where nothing is
asked. The batch of a step follows from seed and step alone.
"""

import hashlib
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from rope.training.experiment import Experiment

VALIDATION = 0.1  # of a text, taken from its end
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


@dataclass(frozen=True, eq=False)
class Corpus:
    """A text as numbers: `training` and `validation` int64 `[length]`, each in the vocabulary.

    vocabulary: the distinct characters of the whole text, sorted; token i is character i.
    sha256: of the text in UTF-8.

    >>> corpus = corpus_of("abcab" * 8)
    >>> len(corpus.training), len(corpus.validation), corpus.vocabulary
    (36, 4, 'abc')
    >>> corpus.decode(corpus.validation), corpus.encode("cab").tolist()
    ('bcab', [2, 0, 1])
    """

    training: Tensor
    validation: Tensor
    vocabulary: str
    sha256: str

    def encode(self, text: str) -> Tensor:
        """The tokens of a text, int64 `[length]`; ValueError for a character not in the corpus."""
        strange = sorted(set(text) - set(self.vocabulary))
        if strange:
            raise ValueError(
                f"text holds {strange[0]!r}, which the corpus does not: leave it out, or write it "
                "otherwise"
            )
        numbers = [self.vocabulary.index(character) for character in text]
        return torch.tensor(numbers, dtype=torch.int64)

    def decode(self, tokens: Tensor) -> str:
        """The text of tokens `[length]`."""
        return "".join(self.vocabulary[token] for token in tokens.tolist())


def corpus_of(text: str) -> Corpus:
    """A corpus of any text of 20 characters or more; ValueError for a shorter one."""
    if len(text) < 20:
        raise ValueError(
            f"the text has {len(text)} characters; it must have at least 20, so that a tenth of it "
            "can be kept for validation: pass more text"
        )
    vocabulary = "".join(sorted(set(text)))
    number = {character: token for token, character in enumerate(vocabulary)}
    tokens = torch.tensor([number[character] for character in text])
    trained = len(text) - int(len(text) * VALIDATION)
    digest = hashlib.sha256(text.encode()).hexdigest()
    return Corpus(tokens[:trained], tokens[trained:], vocabulary, digest)


@cache
def load_corpus() -> Corpus:
    """The text of `help()`: CPython's documentation topics, in the order of their names.

    CPython 3.11 holds 465,048 characters of it; other versions differ a little, so a record has
    length and hash. Topics quote one another: of the last tenth, kept for validation, a twelfth
    stands in the training text too.
    Raises RuntimeError, with the way out, on a Python that comes without them.

    >>> 350_000 < len(load_corpus().training) < 1_000_000
    True
    """
    try:
        from pydoc_data.topics import topics
    except ImportError as error:
        raise RuntimeError(
            "this Python has no pydoc_data.topics, the text of help(), which some Linux packages "
            "leave out: use a Python from python.org, conda or pyenv, or pass a corpus of your "
            "own made by rope.training.data.corpus_of(text)"
        ) from error
    return corpus_of("\n".join(topics[name] for name in sorted(topics)))


class TextData:
    """Windows of a corpus: the target of each character is the one after it.

    Raises ValueError for a corpus shorter than a sequence.

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
        return _windows(text, starts, experiment.context)

    def validation(self, sequences: int, length: int) -> tuple[Tensor, Tensor]:
        """The same windows at every call, evenly spaced; they overlap where the text is short."""
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
    """Symbols and questions, alternating: each question asks for the symbol an exact distance back.

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
        """The batch of a step."""
        experiment = self.experiment
        return self._drawn(
            generator(experiment.seed, f"batch {step}"), experiment.batch, experiment.context
        )

    def validation(self, sequences: int, length: int) -> tuple[Tensor, Tensor]:
        """The same sequences at every call, for every seed."""
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


Data = TextData | RecallData


def data_for(experiment: Experiment, corpus: Corpus | None = None) -> Data:
    """The data of an experiment's task; corpus: of the text task, CPython's topics when None."""
    if experiment.task == "recall":
        if corpus is not None:
            raise ValueError(
                "a corpus was passed with task 'recall', which draws its own tokens: leave it out, "
                "or use task='text'"
            )
        return RecallData(experiment)
    return TextData(experiment, load_corpus() if corpus is None else corpus)


def _windows(text: Tensor, starts: Tensor, length: int) -> tuple[Tensor, Tensor]:
    at = starts[:, None] + torch.arange(length)  # [B, S]
    return text[at], text[at + 1]
