"""What may be rotated in place: a tensor that may be written to, each of its elements once."""

import torch
from torch import Tensor

from rope.checks import is_plain


def check_writable(**tensors: Tensor) -> None:
    """Refuse to write into what autograd or shared memory forbids; by name, one tensor or two."""
    for name, x in tensors.items():
        if x.is_leaf and x.requires_grad and torch.is_grad_enabled():
            raise ValueError(
                f"{name} is a leaf that records gradients; it must be the result of an operation "
                f"to be rotated in place: pass {name}.clone(), or do not ask for it in place"
            )
        if _overlaps(x):
            raise ValueError(
                f"{name} has shape {list(x.shape)} and strides {list(x.stride())}; for a rotation "
                f"in place each element must have a place of its own: pass {name}.contiguous()"
            )
    first, *others = tensors.values()
    if others and (others[0] is first or _meet(first, others[0])):
        raise ValueError(
            "q and k share places in memory, as one tensor does; in place they must be two, or it "
            "is rotated twice: pass k.clone()"
        )
    names = list(tensors)
    if not torch.compiler.is_compiling():  # views first, which alone torch refuses, and keys
        names.sort(key=lambda name: (tensors[name]._base is None, name))
    for name in names:
        x = tensors[name]
        try:  # torch raises here what it would raise once the first has changed
            x.narrow(3, 0, 0).zero_()
        except RuntimeError as error:
            raise ValueError(
                f"{name} cannot be written to ({error}); in place it must be a tensor of its own "
                "or a slice: slice where it was cut by split or chunk, or pass a clone()"
            ) from error


def _meet(q: Tensor, k: Tensor) -> bool:
    """Whether two tensors have a place in common, as one has with a view of it or a slice; slices
    of one projection lie apart. Compiled code knows no addresses.
    """
    if torch.compiler.is_compiling() or q.is_meta or not (is_plain(q) and is_plain(k)):
        return False
    steps, apart = q.stride(), (k.data_ptr() - q.data_ptr()) // q.element_size()
    if q.numel() == 0 or k.numel() == 0 or (apart != 0 and k.stride() != steps):
        return False
    axes = zip(steps, q.shape, k.shape, strict=True)
    return apart == 0 or any(
        step and apart % step == 0 and -size_k < apart // step < size_q
        for step, size_q, size_k in axes
    )


def _overlaps(x: Tensor) -> bool:
    """Whether two elements may share a place: some axis does not step past all smaller ones."""
    axes = zip(x.stride(), x.shape, strict=True)
    if torch.compiler.is_compiling():  # which cannot sort symbols; most overlaps are expansions
        return any(step == 0 and size > 1 for step, size in axes)
    reach = 0
    for step, size in sorted(axes):
        if size > 1 and step <= reach:
            return True
        reach += step * (size - 1)
    return False
