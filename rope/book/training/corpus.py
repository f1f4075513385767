"""Texts as numbers, one character a token: a `Corpus`, and CPython's documentation as one.

Also `generator`, from which everything random of a run is drawn.
"""

import hashlib
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

VALIDATION = 0.1  # of a text, taken from its end


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
        """The tokens of a text, int64 `[length]`; KeyError for a character not in the corpus."""
        return tokens_of(text, self.vocabulary)

    def decode(self, tokens: Tensor) -> str:
        """The text of tokens `[length]`."""
        return "".join(self.vocabulary[token] for token in tokens.tolist())


def tokens_of(text: str, vocabulary: str) -> Tensor:
    """The place of each character in the vocabulary: int64 `[length]`."""
    number = {character: token for token, character in enumerate(vocabulary)}
    return torch.tensor([number[character] for character in text], dtype=torch.int64)


def corpus_of(text: str) -> Corpus:
    """A corpus of any text; its last tenth is for validation."""
    vocabulary = "".join(sorted(set(text)))
    tokens = tokens_of(text, vocabulary)
    trained = len(text) - int(len(text) * VALIDATION)
    digest = hashlib.sha256(text.encode()).hexdigest()
    return Corpus(tokens[:trained], tokens[trained:], vocabulary, digest)


@cache
def load_corpus() -> Corpus:
    """The text of `help()`: CPython's documentation topics, in the order of their names.

    CPython 3.11 holds 465,048 characters of it; other versions differ a little, so a record has
    length and hash. Topics quote one another: of the last tenth, kept for validation, a twelfth
    stands in the training text too, in stretches of 128 characters.
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
            "own made by rope.book.training.corpus.corpus_of(text)"
        ) from error
    return corpus_of("\n".join(topics[name] for name in sorted(topics)))
