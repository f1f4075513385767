"""What rotates vectors fast: one loop in C for a CPU, one kernel in Triton for a GPU.

Chapter "As fast as memory allows". `operator` is what PyTorch knows of both, `cpu` calls the loop
of `rotate.c`, `triton` is the kernel. Nothing here imports Triton before a GPU needs it.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from rope.kernels import cpu, operator

__all__ = ["disabled", "enabled", "explain"]

_enabled = True


def enabled() -> bool:
    """Whether kernels are used: True, but inside `disabled`.

    >>> enabled()
    True
    """
    return _enabled


@contextmanager
def disabled() -> Iterator[None]:
    """Inside the `with` block every rotation is the plain formula, in all threads.

    >>> with disabled():
    ...     enabled()
    False
    """
    global _enabled
    before, _enabled = _enabled, False
    try:
        yield
    finally:
        _enabled = before


def explain(device: str = "cpu") -> str:
    """One sentence: what rotates vectors on this kind of device, and why.

    >>> with disabled():
    ...     explain("cpu")
    'On a cpu the plain formula rotates, since rope.kernels.disabled() is in force.'
    """
    formula = f"On a {device} the plain formula rotates, since "
    if not _enabled:
        return formula + "rope.kernels.disabled() is in force."
    if device == "cpu":
        loop, where = cpu.library()
        if loop is not None:
            return f"On a cpu the loop in C rotates: {where}."
        return (
            f"On a cpu the formula rotates, a block of the sequence at a time, since of the loop "
            f"in C {where}: install a C compiler, and then the package again."
        )
    if device in operator.DTYPES:
        return f"On a {device} the Triton kernel rotates queries and keys in one launch."
    if device == "cuda":
        return formula + "Triton is not installed: pip install triton."
    return formula + "no kernel is written for it."
