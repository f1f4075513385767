"""What rotates vectors fast: one loop in C for a CPU, one kernel in Triton for a GPU.

Chapter "Bytes, kernels, launches". `operator` is what PyTorch knows of both, `cpu` calls the loop
of `rotate.c`, `triton` is the kernel, `formula` what both compute; `dtensors` parts what lies on
several devices. Nothing here imports Triton before a GPU needs it.
"""

import torch

from rope.kernels import cpu
from rope.kernels.operator import DTYPES, disabled, enabled

__all__ = ["disabled", "enabled", "explain"]


def explain(device: torch.device | str = "cpu") -> str:
    """One sentence: what rotates vectors on this kind of device, and why.

    >>> with disabled():
    ...     explain("cpu")
    'On cpu the plain formula rotates, since rope.kernels.disabled() is in force.'
    """
    kind = torch.device(device).type
    formula = f"On {kind} the plain formula rotates, since "
    if not enabled():
        return formula + "rope.kernels.disabled() is in force."
    if kind == "cpu":
        loop, how = cpu.library()
        if loop is not None:
            return f"On cpu the loop in C rotates, {how}."
        return (
            "On cpu the formula rotates, a block of the sequence at a time, for want of the loop "
            f"in C: {how}. With a C compiler, pip install --force-reinstall --no-cache-dir builds "
            "it, and pip install -e the one in a clone."
        )
    if kind in DTYPES:
        return f"On {kind} the Triton kernel rotates queries and keys in one launch."
    if kind == "cuda":
        return formula + "Triton is not installed: pip install triton."
    return formula + "no kernel is written for it."
