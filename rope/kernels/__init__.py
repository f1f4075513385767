"""What rotates vectors fast: one loop in C for a CPU, one kernel in Triton for a GPU.

Chapter "As fast as memory allows". `operator` is what PyTorch knows of both, `cpu` calls the loop
of `rotate.c`, `triton` is the kernel. Nothing here imports Triton before a GPU needs it.
"""

from rope.kernels import cpu
from rope.kernels.operator import DTYPES, disabled, enabled

__all__ = ["disabled", "enabled", "explain"]


def explain(device: str = "cpu") -> str:
    """One sentence: what rotates vectors on this kind of device, and why.

    >>> with disabled():
    ...     explain("cpu")
    'On cpu the plain formula rotates, since rope.kernels.disabled() is in force.'
    """
    formula = f"On {device} the plain formula rotates, since "
    if not enabled():
        return formula + "rope.kernels.disabled() is in force."
    if device == "cpu":
        loop, where = cpu.library()
        if loop is not None:
            return f"On cpu the loop in C rotates, {where}."
        return (
            f"On cpu the formula rotates, a block of the sequence at a time, since of the loop "
            f"in C {where}: install a C compiler, and then the package again."
        )
    if device in DTYPES:
        return f"On {device} the Triton kernel rotates queries and keys in one launch."
    if device == "cuda":
        return formula + "Triton is not installed: pip install triton."
    return formula + "no kernel is written for it."
