"""Which code turns the vectors: chosen for each call by itself, or forced.

Chapter "As fast as memory allows". `eager` is PyTorch's operations one by one; `triton` is one
kernel, for tensors on a GPU (or, interpreted, on a CPU with TRITON_INTERPRET=1); `compile` is one
loop in C for a CPU, built by the first call. On a CPU all give the same bits; a kernel on a GPU may
round a product and a sum at once.
"""

import importlib.util
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import torch

_HAS_TRITON = importlib.util.find_spec("triton") is not None  # which does not import it
BACKENDS = ("eager", "triton", "compile")


def _named(name: str | None) -> str | None:
    """The name, refused if it is none of them; None and "" leave the choice to each call."""
    if name in (None, ""):
        return None
    if name not in BACKENDS:
        raise ValueError(
            f"the backend is {name!r}; it must be one of {', '.join(BACKENDS)}: correct "
            "ROPE_BACKEND, or take it away to have one chosen"
        )
    return name


_forced = _named(os.environ.get("ROPE_BACKEND"))


@contextmanager
def use_backend(name: str | None) -> Iterator[None]:
    """Force a backend inside the `with` block, for all threads; None chooses for each call.

    ROPE_BACKEND in the environment does the same from the start. Raises ValueError for a name
    that is none of eager, triton, compile; a call raises RuntimeError where the one forced cannot
    run.

    >>> from rope.functional import rotary_embedding
    >>> x = torch.ones(1, 1, 1, 2)
    >>> with use_backend("eager"):
    ...     rotary_embedding(x, x[0, 0, :, :1], x[0, 0, :, :1]).flatten().tolist()
    [0.0, 2.0]
    """
    global _forced
    before, _forced = _forced, _named(name)
    try:
        yield
    finally:
        _forced = before


def backend_for(device: torch.device) -> str:
    """The backend of a call on this device. Raises RuntimeError if one is forced that cannot run.

    >>> backend_for(torch.device("cpu"))
    'eager'
    """
    if _forced is None:
        return "triton" if device.type == "cuda" and _HAS_TRITON else "eager"
    reason = why_not(_forced, device)
    if reason is not None:
        raise RuntimeError(f"the backend is forced to {_forced}, and {reason}")
    return _forced


def why_not(name: str, device: torch.device) -> str | None:
    """The reason why a backend cannot run on a device, with the way out; None when it can.

    >>> why_not("eager", torch.device("cpu")) is None
    True
    """
    if name == "compile" and device.type not in ("cpu", "meta"):
        return f"compile is for a CPU, but the tensors are on {device}: use triton or eager"
    if name == "compile":
        return _no_compiler()
    if name != "triton":
        return None
    if not _HAS_TRITON:
        return "triton is not installed: pip install triton (Linux), or use eager or compile"
    if device.type not in ("cuda", "meta") and not interpreting():
        return (
            f"triton needs a GPU, but the tensors are on {device}: move them to cuda, set "
            "TRITON_INTERPRET=1 before triton is first imported, or use eager or compile"
        )
    return None


def _no_compiler() -> str | None:
    loop = sys.modules.get("rope._compiled")
    if torch.compiler.is_compiling() or (loop is not None and loop._built):
        return None
    from rope._compiler import NAMES, compiler  # with modules that nobody else needs

    if compiler() is not None:
        return None
    return (
        f"compile needs a C compiler, and none is found: install one of {', '.join(NAMES)}, "
        "name yours in CC, or use eager"
    )


def interpreting() -> bool:
    """Whether Triton's kernels run in its interpreter, on tensors of the CPU."""
    return os.environ.get("TRITON_INTERPRET") == "1"
