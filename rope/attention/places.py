"""Slots as places in a tensor: the same in all rows, a slice, or integers `[B, S]`.

Shapes: B batch, H heads, N slots, S of them, D width.
"""

from torch import Tensor

Places = slice | Tensor


def put(buffer: Tensor, places: Places, values: Tensor) -> None:
    """Write `[B, S]`, or `[B, H, S, D]`, into slots of `[B, N]`, or `[B, H, N, D]`.

    >>> import torch
    >>> buffer = torch.zeros(1, 3)
    >>> put(buffer, torch.tensor([[2, 0]]), torch.tensor([[5.0, 7.0]]))
    >>> buffer
    tensor([[7., 0., 5.]])
    """
    axis = 1 if buffer.dim() == 2 else 2
    if isinstance(places, slice):
        buffer.narrow(axis, places.start, places.stop - places.start).copy_(values)
    else:
        buffer.scatter_(axis, spread(places, values), values)


def spread(places: Tensor, values: Tensor) -> Tensor:
    """Slots `[B, S]` as the index of what stands there, `[B, S]` or `[B, H, S, D]`.

    >>> import torch
    >>> spread(torch.tensor([[2, 0]]), torch.ones(1, 3, 2, 4)).shape
    torch.Size([1, 3, 2, 4])
    """
    return places if values.dim() == 2 else places[:, None, :, None].expand_as(values)
