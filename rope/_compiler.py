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
#: No fused multiply-add, which would round a product and a sum once and not twice; and no fast
#: arithmetic from CC, with which a library sets its whole process to lose the least numbers.
_FLAGS = ("-std=c11", "-O3", "-fno-fast-math", "-ffp-contract=off", "-fno-math-errno")
_SHARED = ("-fPIC", "-shared")
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
    try:
        wanted = shlex.split(named)
    except ValueError:  # quotes that do not close
        return None
    for command in [wanted] if wanted else [[name] for name in NAMES]:
        if shutil.which(command[0]):
            return command
    return None


def build(source: Path) -> ctypes.CDLL:
    """The library of one C file, for all cores and the widest vectors that the compiler knows.

    Where it knows no OpenMP, the library works with one thread. Raises RuntimeError, with the
    compiler's own words, if there is none or it fails.
    """
    command = compiler()
    if command is None:
        raise RuntimeError(f"there is no C compiler: install one of {', '.join(NAMES)}")
    x86 = platform.machine().lower() in ("x86_64", "amd64")
    words = ""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        library = Path(folder) / "library.so"
        for more in (*((*wide, "-fopenmp") for wide in (_WIDEST, _WIDE, ())[not x86 :]), _WIDE, ()):
            full = [*command, *_FLAGS, *more, *_SHARED, str(source), "-o", str(library)]
            words = _run(full)
            if not words:
                try:
                    return ctypes.CDLL(str(library))
                except OSError as error:  # such as a folder from which nothing may be run
                    raise RuntimeError(f"what {command[0]} built does not load: {error}") from error
    raise RuntimeError(f"{command[0]} cannot build {source.name}: {words}")


def _run(command: list[str]) -> str:
    """What went wrong, in a line; "" when nothing did."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=_SECONDS
        )
    except subprocess.TimeoutExpired:
        return f"it did not end within {_SECONDS} seconds"
    except OSError as error:
        return f"it does not start: {error.strerror}"
    if done.returncode == 0:
        return ""
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    wrong = [line for line in lines if "error" in line.lower()]
    return next(iter([*wrong, *lines]), f"it ended with status {done.returncode}, and said nothing")


def compiler_version() -> str:
    """What the compiler says first of itself, "none" where there is none.

    >>> compiler_version() != ""
    True
    """
    command = compiler()
    if command is None:
        return "none"
    try:
        done = subprocess.run([*command, "--version"], capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
        return "unknown"
    return next(iter(done.stdout.splitlines()), "unknown")
