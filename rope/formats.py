"""The order of the axes: what is stored as [B, S, H, D], or packed as [T, H, D], without a copy.

The names are spelt with the axes' letters, as in NVIDIA's Transformer Engine.

Shapes: B batch, H heads, S sequence, D head dimension, T tokens of all packed sequences.
"""

from torch import Tensor

from rope.checks import check_tensor


def to_bhsd(tensor_format: str, **tensors: Tensor) -> list[Tensor]:
    """Tensors in the format "bshd" or "thd" seen as `[B, H, S, D]`, with B = 1 for packed ones.

    tensors: by name. Raises ValueError for an unknown format or another number of axes, TypeError
    for what is no tensor.

    >>> import torch
    >>> to_bhsd("thd", x=torch.ones(5, 3, 2))[0].shape
    torch.Size([1, 3, 5, 2])
    """
    if tensor_format not in ("bshd", "thd"):
        raise ValueError(
            f"tensor_format is {tensor_format!r}; it must be 'bhsd', 'bshd' or 'thd': pass the one "
            "whose letters name the axes (b batch, h heads, s sequence, t packed tokens)"
        )
    for name, x in tensors.items():
        check_tensor(name, x)
        if x.dim() != len(tensor_format):
            raise ValueError(
                f"{name} has shape {list(x.shape)}; in the format {tensor_format!r} it must have "
                f"{len(tensor_format)} axes: add the missing one, or name another format"
            )
    views = [x.transpose(-3, -2) for x in tensors.values()]
    views = [x[None] for x in views] if tensor_format == "thd" else views
    given = [*tensors.values()]
    return views[:1] * 2 if len(given) == 2 and given[1] is given[0] else views


def from_bhsd(tensor_format: str, *tensors: Tensor) -> tuple[Tensor, ...]:
    """The way back: tensors `[B, H, S, D]` in the format "bshd" or "thd".

    >>> import torch
    >>> from_bhsd("bshd", torch.ones(1, 3, 5, 2))[0].shape
    torch.Size([1, 5, 3, 2])
    """
    views = (x[0] if tensor_format == "thd" else x for x in tensors)
    return tuple(x.transpose(-3, -2) for x in views)
