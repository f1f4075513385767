"""Rotate fast, with one loop in C on a CPU and with one Triton kernel on a GPU.

See the chapter "Bytes and kernels". `cpu` calls the loop, which is in `rotate.c`, and `triton`
contains the kernel. `formula` is the same computation in plain PyTorch, and `operator` chooses
between the loop, the kernel, and the formula. Triton is imported only when a GPU needs it.
"""

import torch

from rope.kernels import cpu, operator
from rope.kernels.operator import DTYPES, disabled

__all__ = ["disabled", "explain"]


def explain(device: torch.device | str = "cpu") -> str:
    """Return a string that says which implementation rotates on this kind of device, and why.

    >>> with disabled():
    ...     explain("cpu")
    'On cpu the plain formula rotates, because a rope.kernels.disabled() block is active.'
    """
    kind = torch.device(device).type
    formula = f"On {kind} the plain formula rotates, because "
    if operator._disabled:
        return formula + "a rope.kernels.disabled() block is active."
    if kind == "cpu":
        loop, how = cpu.library()
        if loop is not None:
            return f"On cpu the loop in C rotates, {how}."
        return (
            "On cpu the formula rotates block by block, because the loop in C is unavailable: "
            f"{how}. To build it, install a C compiler and run pip install with --force-reinstall "
            "and --no-cache-dir, or run pip install -e in a clone."
        )
    if kind in DTYPES:
        return f"On {kind} the Triton kernel rotates queries and keys in one launch."
    if kind == "cuda":
        return formula + "Triton is not installed. To install it, run pip install triton."
    return formula + "no kernel exists for this kind of device."
