"""Rotations as one kernel: chosen by itself on a GPU, see the chapter "As fast as memory allows".

`rope.kernels.triton` is the kernel, `rope.kernels.operator` what torch knows of it; `rotate.c` is
the loop that a CPU gets when it is asked for. Importing this package does not import Triton.
"""

from rope._backend import BACKENDS, use_backend, why_not

__all__ = ["BACKENDS", "use_backend", "why_not"]
