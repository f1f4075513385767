"""A second corpus: the source code of Python's own standard library, which every Python carries.

Split by file: every tenth is for validation, and what stands in one of those for SHARED characters
or more is struck out of the training text, so that no such stretch is in both.
"""

import hashlib
import sysconfig
from collections.abc import Mapping
from functools import cache
from itertools import islice
from pathlib import Path

import torch
from torch import Tensor

from rope.book.training.corpus import Corpus

SHARED = 64  # characters: the shortest stretch that may not stand in both parts
EVERY = 10  # file, in the order of the names, is for validation
#: Folders that hold no library: tests, other people's packages, tables written by a program, the
#: text of the first corpus, and what the build of this Python left.
LEFT_OUT = {"test", "tests", "idle_test", "site-packages", "encodings", "pydoc_data", "lib-dynload"}
BUILT = ("_sysconfigdata", "config-")


@cache
def library_files() -> dict[str, str]:
    """The text of each file by its name, in the order of the names; files of ASCII alone.

    Raises RuntimeError, with the way out, for a Python that comes without its library's source.
    """
    root = Path(sysconfig.get_paths()["stdlib"])
    found = {}
    for path in sorted(root.rglob("*.py"), key=lambda path: path.relative_to(root).as_posix()):
        parts = path.relative_to(root).parts
        if LEFT_OUT.isdisjoint(parts) and not any(part.startswith(BUILT) for part in parts):
            content = path.read_bytes()
            if content and content.isascii():
                text = content.decode().replace("\r\n", "\n")
                found["/".join(parts)] = text
    if len(found) < 100:
        raise RuntimeError(
            f"this Python has {len(found)} files of source in {root}; its library must come with "
            "at least 100 for the corpus of task 'code': use a Python from python.org, conda or "
            "pyenv"
        )
    return found


@cache
def load_library() -> Corpus:
    """The corpus of the library's files; every Python version has its own.

    Raises RuntimeError as `library_files` does.
    """
    return split(library_files())


def split(files: Mapping[str, str]) -> Corpus:
    """The corpus of these texts by name: every tenth for validation, whole; the rest, less what
    stands in those for SHARED characters or more, for training.

    >>> corpus = split({f"{i}.py": f"def function_{i}():\\n    return {i}\\n" for i in range(20)})
    >>> corpus.decode(corpus.validation)
    'def function_0():\\n    return 0\\ndef function_10():\\n    return 10\\n'
    """
    kept = "".join(islice(files.values(), 0, None, EVERY)).encode()
    trained = b"".join(text.encode() for i, text in enumerate(files.values()) if i % EVERY)
    validation, training = (torch.frombuffer(bytearray(part), dtype=torch.uint8).long()
                            for part in (kept, trained))  # fmt: skip
    while (copied := shared(training, validation)).any():  # where it was joined, too
        training = training[~copied]
    kinds = torch.cat((training, validation)).unique()
    number = torch.zeros(128, dtype=torch.int64)
    number[kinds] = torch.arange(len(kinds))
    digest = hashlib.sha256(bytes(training.tolist()) + bytes(validation.tolist())).hexdigest()
    return Corpus(number[training], number[validation], bytes(kinds.tolist()).decode(), digest)


def shared(text: Tensor, other: Tensor, length: int = SHARED) -> Tensor:
    """Where a text stands in stretches of this length or more that the other holds: bool `[n]`.

    Stretches are compared by a hash of 64 bits; two that differ have the
    same one with a chance of one in 2^50 or so, and would then be taken for equal.

    >>> text, other = (torch.tensor(list(part)) for part in (b"the cat sat", b"a cat sang"))
    >>> bytes(text[shared(text, other, 4)].tolist())
    b' cat sa'
    """
    hashes = hashed(text, length)
    begins = torch.isin(hashes, hashed(other, length))
    copied = torch.zeros(len(text) + 1, dtype=torch.int64)
    copied[: len(begins)] += begins
    copied[length : length + len(begins)] -= begins.long()
    return copied.cumsum(0)[: len(text)] > 0


def hashed(text: Tensor, length: int) -> Tensor:
    """A number for each stretch of this length: int64 `[n - length + 1]`."""
    random = torch.Generator().manual_seed(0)
    value = torch.randint(-(2**62), 2**62, (256,), generator=random)[text]
    width = 1
    while width < length:  # two parts of a stretch, mixed and put together; the last two overlap
        step = min(width, length - width)
        factor = torch.randint(-(2**62), 2**62, (), generator=random) * 2 + 1
        value = value * factor
        value = value ^ (value >> 29)
        value = value[:-step] * factor + value[step:] if len(value) > step else value[:0]
        width += step
    return value
