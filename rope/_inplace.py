"""What may not be written into: refusals of rotations in place, before anything is changed."""

import torch
from torch import Tensor


def check_two(q: Tensor, k: Tensor) -> None:
    """Refuse one tensor under two names, which in place would be turned twice."""
    if q is k or _address(q) == _address(k) != 0:
        raise ValueError(
            "q and k begin at one place in memory; in place they must be two tensors, or it is "
            "turned twice: pass k.clone()"
        )


def _address(x: Tensor) -> int:
    """Where x begins in memory, 0 where that cannot be asked."""
    if torch.compiler.is_compiling() or x.is_meta:
        return 0
    try:
        return x.data_ptr()
    except RuntimeError:  # a tensor that torch.func or a tracer has wrapped
        return 0


def check_writable(name: str, x: Tensor) -> None:
    """Refuse to write into what autograd or shared memory forbids."""
    if x.is_leaf and x.requires_grad and torch.is_grad_enabled():
        raise ValueError(
            f"{name} is a leaf that records gradients; it must be the result of an operation to be "
            f"rotated in place: pass {name}.clone(), or do not ask for it in place"
        )
    if _overlaps(x):
        raise ValueError(
            f"{name} has shape {list(x.shape)} and strides {list(x.stride())}; for a rotation in "
            f"place each element must have a place of its own: pass {name}.contiguous()"
        )


def _overlaps(x: Tensor) -> bool:
    """Whether two elements may share a place: some axis does not step past all smaller ones."""
    if torch.compiler.is_compiling():  # which cannot sort symbols; most overlaps are expansions
        return any(step == 0 and size > 1 for step, size in zip(x.stride(), x.shape, strict=True))
    reach = 0
    for step, size in sorted(zip(x.stride(), x.shape, strict=True)):
        if size > 1:
            if step <= reach:
                return True
            reach += step * (size - 1)
    return False
