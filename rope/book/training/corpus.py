"""Load the training text, and encode it with one token per character.

`generator` supplies all random numbers in a run.
"""

import hashlib
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

VALIDATION = 0.1  # the share at the end of a text that is used for validation


def generator(seed: int, name: str) -> torch.Generator:
    """Return an independent random generator for a seed and a purpose.

    >>> a, b = (torch.rand(1, generator=generator(0, name)) for name in ("a", "b"))
    >>> torch.equal(a, torch.rand(1, generator=generator(0, "a"))), torch.equal(a, b)
    (True, False)
    """
    digest = hashlib.sha256(f"{seed}:{name}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:7], "big"))


@dataclass(frozen=True, eq=False)
class Corpus:
    """Hold a text as token numbers: `training` and `validation`, int64 `[length]`.

    vocabulary: the distinct characters of the entire text, sorted; token i is character i.
    sha256: the hash of the text in UTF-8.

    >>> corpus = corpus_of("abcab" * 8)
    >>> len(corpus.training), len(corpus.validation), corpus.vocabulary
    (36, 4, 'abc')
    >>> corpus.decode(corpus.validation)
    'bcab'
    """

    training: Tensor
    validation: Tensor
    vocabulary: str
    sha256: str

    def decode(self, tokens: Tensor) -> str:
        """Return the text that tokens `[length]` encode."""
        return "".join(self.vocabulary[token] for token in tokens.tolist())


def corpus_of(text: str) -> Corpus:
    """Return a corpus made from any text; the last tenth is the validation text."""
    vocabulary = "".join(sorted(set(text)))
    tokens = torch.tensor([*map(vocabulary.index, text)])
    trained = len(text) - int(len(text) * VALIDATION)
    digest = hashlib.sha256(text.encode()).hexdigest()
    return Corpus(tokens[:trained], tokens[trained:], vocabulary, digest)


@cache
def load_corpus() -> Corpus:
    """Return the text of `help()`: CPython's documentation topics, sorted by name.

    In CPython 3.11 the text has 465,048 characters. Other versions differ a little, so a record
    contains the length and the hash. Topics quote one another: of the 128-character passages in the
    validation text, one twelfth also occurs in the training text.
    Raises ImportError if this Python lacks the topics, as some Linux packages of Python do.

    >>> 350_000 < len(load_corpus().training) < 1_000_000
    True
    """
    from pydoc_data.topics import topics

    return corpus_of("\n".join(topics[name] for name in sorted(topics)))
