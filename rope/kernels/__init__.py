"""Rotate fast: with one loop in C on a CPU, and with one Triton kernel on a GPU.

See the chapter "Bytes and kernels". `operator` chooses between these two and `formula`, the same
computation in plain PyTorch. `cpu` calls the loop in `rotate.c`, and `triton` contains the kernel.
Triton is imported only when a GPU needs it.
"""

import torch

from rope.kernels import cpu, operator
from rope.kernels.operator import DTYPES, disabled

__all__ = ["disabled", "explain"]


def explain(device: torch.device | str = "cpu") -> str:
    """Return a sentence that says which implementation rotates on this kind of device, and why.

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
            f"On cpu the formula rotates block by block, without the loop in C: {how}. If you have "
            "a C compiler, pip install --force-reinstall --no-cache-dir builds the loop, and pip "
            "install -e builds it in a clone."
        )
    if kind in DTYPES:
        return f"On {kind} the Triton kernel rotates queries and keys in one launch."
    if kind == "cuda":
        return formula + "Triton is not installed: pip install triton."
    return formula + "no kernel exists for this kind of device."
