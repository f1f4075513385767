"""What may not be written into: refusals of rotations in place, before anything is changed."""

from collections.abc import Sequence

import torch
from torch import Tensor

from rope.checks import check_devices, check_tensor


def check_out(x: Tensor, out: Tensor) -> None:
    """Refuse a buffer that is not like x, cannot be written into, or lies over x."""
    _check_buffer(x, out, "x", "out")
    _probe(out)


def check_outs(q: Tensor, k: Tensor, out: Sequence[Tensor]) -> None:
    """Refuse anything but a buffer for q and one for k, apart from both and from each other."""
    if not isinstance(out, tuple | list) or len(out) != 2:
        many = f" of {len(out)}" if isinstance(out, tuple | list) else ""
        raise TypeError(
            f"out is a {type(out).__name__}{many}; it must be two tensors, one like q and one like "
            "k: pass out=(for_q, for_k)"
        )
    for_q, for_k = out
    _check_buffer(q, for_q, "q", "out[0]")
    _check_buffer(k, for_k, "k", "out[1]")
    _check_apart(q, for_k, "q", "out[1]")
    _check_apart(k, for_q, "k", "out[0]")
    _check_apart(for_q, for_k, "out[0]", "out[1]")
    _probe(for_q, for_k)


def _check_buffer(x: Tensor, out: Tensor, name: str, buffer: str) -> None:
    check_tensor(buffer, out)
    like = f"as {name} is: make it like {name}"
    if out.dtype != x.dtype:
        raise TypeError(f"{buffer} is {out.dtype}; it must be {x.dtype}, {like}")
    if out.shape != x.shape:
        shape = list(x.shape)
        raise ValueError(f"{buffer} has shape {list(out.shape)}; it must be {shape}, {like}")
    check_devices(**{name: x, buffer: out})
    if torch.is_grad_enabled() and (x.requires_grad or out.requires_grad):
        raise ValueError(
            f"{name} or {buffer} requires a gradient, which what is written into {buffer} does not "
            "record; neither must: leave out away, or rotate under torch.no_grad()"
        )
    _check_places(buffer, out)
    _check_apart(x, out, name, buffer)


def _check_apart(one: Tensor, other: Tensor, name: str, other_name: str) -> None:
    if _share_memory(one, other):
        raise ValueError(
            f"{name} and {other_name} share places in memory; they must lie apart: use another "
            "buffer, or rotate in place"
        )


def _share_memory(q: Tensor, k: Tensor) -> bool:
    """Whether some element of q may also be one of k's, as far as can be asked."""
    if q is k:
        return True
    if torch.compiler.is_compiling() or q.is_meta or not q.numel() or not k.numel():
        return False
    if hasattr(q, "fake_mode") or hasattr(k, "fake_mode"):  # with addresses of nothing
        return False
    try:
        one, other = q.data_ptr(), k.data_ptr()
    except RuntimeError:  # tensors that torch.func or a tracer has wrapped
        return False
    size, step = q.element_size(), q.stride()
    if one + size * _reach(q) <= other or other + k.element_size() * _reach(k) <= one:
        return False
    alike = step == k.stride() and size == k.element_size() and (other - one) % size == 0
    if not alike or _overlaps(q) or _overlaps(k):
        return True  # within reach of each other and of different make: not worth the risk
    axes = sorted(zip(step, map(max, q.shape, k.shape), strict=True), reverse=True)
    return _is_sum_of_steps((other - one) // size, axes)


def _is_sum_of_steps(way: int, axes: list[tuple[int, int]]) -> bool:
    """Whether elements `way` apart can meet: steps either way, each fewer than its axis is long.

    Each step exceeds all that the smaller ones reach together, so that only the two whole numbers
    of steps next to `way` can be right.
    """
    if not axes:
        return way == 0
    (step, length), *smaller = axes
    if step == 0 or length == 1:
        return _is_sum_of_steps(way, smaller)
    below = way // step
    return any(
        abs(times) < length and _is_sum_of_steps(way - times * step, smaller)
        for times in (below, below + 1)
    )


def _reach(x: Tensor) -> int:
    """How many elements lie between the first and the last of x, both counted."""
    return 1 + sum(step * (size - 1) for step, size in zip(x.stride(), x.shape, strict=True))


def check_writable(**tensors: Tensor) -> None:
    """Refuse to write into what autograd or shared memory forbids; by name, one tensor or two."""
    for name, x in tensors.items():
        _check_places(name, x)
    if len(tensors) == 2 and _share_memory(*tensors.values()):
        raise ValueError(
            "q and k share places in memory; in place they must be two tensors apart, or what they "
            "share is turned twice: pass k.clone()"
        )
    _probe(*tensors.values())


def _check_places(name: str, x: Tensor) -> None:
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


def _probe(*tensors: Tensor) -> None:
    """Write nothing into each: torch raises now what it would raise when the first has changed.

    Autograd counts it as a change, so all other checks come before.
    """
    for x in tensors:
        x.narrow(3, 0, 0).zero_()


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
