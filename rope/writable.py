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
            "q and k share places in memory, as one tensor does, or lie among each other with "
            f"unlike strides, {list(first.stride())} and {list(others[0].stride())}; in place they "
            "must lie apart, or what they share is rotated twice: pass k.clone()"
        )
    names = list(tensors)
    # Writing nothing counts as a change too, so views, which alone torch refuses, are asked first.
    if not torch.compiler.is_compiling():
        names.sort(key=lambda name: (tensors[name]._base is None, name))
    for name in [name for name in names if _may_raise(tensors[name])]:
        try:  # torch raises here what it would raise once the first has changed
            tensors[name].narrow(3, 0, 0).zero_()
        except RuntimeError as error:
            raise ValueError(
                f"{name} cannot be written to ({error}); in place it must be a tensor of its own "
                "or a slice: slice where it was cut by split or chunk, or pass a clone()"
            ) from error


def _may_raise(x: Tensor) -> bool:
    """Whether torch may refuse a write: it does for gradients, and for tensors of inference."""
    unsure = torch.compiler.is_compiling() or not is_plain(x)
    return unsure or torch.is_grad_enabled() or x.is_inference()


def _meet(q: Tensor, k: Tensor) -> bool:
    """Whether two tensors have a place in common, as one has with a view of it or a slice; slices
    of one projection lie apart. Compiled code knows no addresses.

    Exact for tensors that `check_pair` and `_overlaps` let through, unless their strides differ on
    an axis where both have more than one place: then already if their spans of memory intersect.
    """
    if torch.compiler.is_compiling() or q.is_meta or not (is_plain(q) and is_plain(k)):
        return False
    of_q, of_k = _bytes(q), _bytes(k)
    span_q, span_k = (1 + sum(step * (n - 1) for step, n in axes) for axes in (of_q, of_k))
    apart, axes = k.data_ptr() - q.data_ptr(), []
    if q.numel() == 0 or k.numel() == 0 or not -span_k < apart < span_q:
        return False
    for (step, n), (step_k, m) in zip(of_q, of_k, strict=True):
        if step != step_k and n > 1 < m:
            return True
        if n > 1 or m > 1:  # the step along an axis of one place is never taken
            axes.append((step if n > 1 else step_k, n, m))
    return _reach(apart, sorted(axes, reverse=True))


def _bytes(x: Tensor) -> list[tuple[int, int]]:
    """The step and the size of each axis in bytes, the bytes of an element being the last axis."""
    size = x.element_size()
    return [*((step * size, n) for step, n in zip(x.stride(), x.shape, strict=True)), (1, size)]


def _reach(rest: int, axes: list[tuple[int, int, int]]) -> bool:
    """Whether steps t along each axis, -m < t < n, add up to rest; the longest step is first."""
    if not axes:
        return rest == 0
    (step, n, m), *more = axes
    # All shorter axes together fall short of one step, so t is one of the two next to rest / step.
    return any(
        -m < t < n and _reach(rest - t * step, more) for t in (rest // step, rest // step + 1)
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
