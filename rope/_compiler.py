"""A C compiler, and what it builds for this process: a library that is not kept.

Chapter "As fast as memory allows", section on the CPU. The name in CC is used, else the first of
cc, gcc, clang. What is built is built for the processor at hand, and is gone with the process.
"""

import ctypes
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

NAMES = ("cc", "gcc", "clang")
#: No fused multiply-add, which would round a product and a sum once and not twice.
_FLAGS = ("-std=c11", "-O3", "-ffp-contract=off", "-fno-math-errno", "-fPIC", "-shared")
_WIDE = ("-march=native",)
_WIDEST = (*_WIDE, "-mprefer-vector-width=512")
_SECONDS = 120


def compiler() -> list[str] | None:
    """The command that CC names, or the first compiler there is; None where there is none.

    >>> import unittest.mock
    >>> with unittest.mock.patch.dict(os.environ, CC="no-such-compiler -O1"):
    ...     print(compiler())
    None
    """
    return _found(os.environ.get("CC", ""))


@cache
def _found(named: str) -> list[str] | None:
    for command in [shlex.split(named)] if named.strip() else [[name] for name in NAMES]:
        if shutil.which(command[0]):
            return command
    return None


def build(source: Path) -> ctypes.CDLL:
    """The library of one C file, for all cores and the widest vectors that the compiler knows.

    Where it knows no OpenMP, the library works with one thread. Raises RuntimeError, with the
    compiler's first words, if there is none or it fails.
    """
    command = compiler()
    if command is None:
        raise RuntimeError(f"there is no C compiler: install one of {', '.join(NAMES)}")
    x86 = platform.machine().lower() in ("x86_64", "amd64")
    words = ""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        library = Path(folder) / "library.so"
        for more in ((*(_WIDEST if x86 else _WIDE), "-fopenmp"), ("-fopenmp",), _WIDE, ()):
            full = [*command, *_FLAGS, *more, str(source), "-o", str(library)]
            done = subprocess.run(full, capture_output=True, text=True, timeout=_SECONDS)
            if done.returncode == 0:
                try:
                    return ctypes.CDLL(str(library))
                except OSError as error:  # such as a folder from which nothing may be run
                    raise RuntimeError(f"what {command[0]} built does not load: {error}") from error
            words = words or next(iter(done.stderr.strip().splitlines()), "it said nothing")
    raise RuntimeError(f"{command[0]} cannot build {source.name}: {words}")
