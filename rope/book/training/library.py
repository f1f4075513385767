"""Load a second corpus: the source code of Python's standard library.

Every tenth file is for validation. A stretch of SHARED characters or more that also occurs in a
validation file is removed from the training text.
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

SHARED = 64  # characters: the shortest stretch that must not occur in both parts
EVERY = 10  # every tenth file, sorted by name, is for validation
#: Excluded folders: tests, third-party packages, generated tables, the text of the first corpus,
#: and build artifacts of this Python.
LEFT_OUT = {"test", "tests", "idle_test", "site-packages", "encodings", "pydoc_data", "lib-dynload"}
BUILT = ("_sysconfigdata", "config-")


@cache
def library_files() -> dict[str, str]:
    """Return the text of each pure-ASCII library file by name, sorted by name.

    Raises RuntimeError if this Python lacks the library's source.
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
            f"this Python has {len(found)} source files in {root}; task 'code' needs at least 100 "
            "from the standard library: use a Python from python.org, conda or pyenv"
        )
    return found


@cache
def load_library() -> Corpus:
    """Return the corpus of the library's files, which differs between Python versions.

    Raises RuntimeError as `library_files` does.
    """
    return split(library_files())


def split(files: Mapping[str, str]) -> Corpus:
    """Return the corpus of these named texts, with every tenth text for validation.

    The training text loses all stretches of at least SHARED characters that validation texts hold.

    >>> corpus = split({f"{i}.py": f"def function_{i}():\\n    return {i}\\n" for i in range(20)})
    >>> corpus.decode(corpus.validation)
    'def function_0():\\n    return 0\\ndef function_10():\\n    return 10\\n'
    """
    kept = "".join(islice(files.values(), 0, None, EVERY)).encode()
    trained = b"".join(text.encode() for i, text in enumerate(files.values()) if i % EVERY)
    validation, training = (torch.frombuffer(bytearray(part), dtype=torch.uint8).long()
                            for part in (kept, trained))  # fmt: skip
    while (copied := shared(training, validation)).any():  # removals join new stretches
        training = training[~copied]
    kinds = torch.cat((training, validation)).unique()
    number = torch.zeros(128, dtype=torch.int64)
    number[kinds] = torch.arange(len(kinds))
    digest = hashlib.sha256(bytes(training.tolist()) + bytes(validation.tolist())).hexdigest()
    return Corpus(number[training], number[validation], bytes(kinds.tolist()).decode(), digest)


def shared(text: Tensor, other: Tensor, length: int = SHARED) -> Tensor:
    """Return bool `[n]`: True inside stretches of at least `length` characters that other contains.

    Stretches are compared by 64-bit hashes. Two different stretches have equal hashes, and count as
    equal, with a probability of about 2^-50.

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
    """Return a hash for each stretch of this length: int64 `[n - length + 1]`."""
    random = torch.Generator().manual_seed(0)
    value = torch.randint(-(2**62), 2**62, (256,), generator=random)[text]
    width = 1
    while width < length:  # hash two parts of a stretch and combine them; the last two overlap
        step = min(width, length - width)
        factor = torch.randint(-(2**62), 2**62, (), generator=random) * 2 + 1
        value = value * factor
        value = value ^ (value >> 29)
        value = value[:-step] * factor + value[step:] if len(value) > step else value[:0]
        width += step
    return value
