"""How many bytes eager PyTorch moves: each operation reads its inputs and writes its output.

Chapter "From maths to PyTorch". A rotation does little arithmetic, so its cost is the memory that
is read and written; the least possible is one read and one write of each element. This counts
what a piece of eager code does, operation by operation, from shapes alone: nothing is timed.
"""

import math
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten


class Traffic(TorchDispatchMode):
    """Count the operations that run inside the `with` block and the bytes they read and write.

    operations: how many ran, views (which move nothing) left out.
    read, written: bytes, each tensor counted once for each operation that touches it; an
    expanded tensor counts with the elements it really stores.

    >>> x = torch.zeros(1000)
    >>> with Traffic() as traffic:
    ...     y = x.view(10, 100) * 2 + 1
    >>> traffic.operations, traffic.read, traffic.written
    (2, 8000, 8000)
    >>> one = torch.zeros(1)
    >>> with Traffic() as traffic:
    ...     y = one.expand(1000) * 2
    >>> traffic.operations, traffic.read, traffic.written
    (1, 4, 4000)
    """

    def __init__(self) -> None:
        super().__init__()
        self.operations = 0
        self.read = 0
        self.written = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        inputs = [leaf for leaf in tree_flatten((args, kwargs))[0] if isinstance(leaf, Tensor)]
        outputs = [leaf for leaf in tree_flatten(result)[0] if isinstance(leaf, Tensor)]
        if func.is_view or not outputs:
            return result
        self.operations += 1
        self.read += sum(map(_stored_bytes, inputs))
        self.written += sum(map(_stored_bytes, outputs))
        return result


def _stored_bytes(tensor: Tensor) -> int:
    """Bytes of the distinct elements: an axis of stride 0 repeats one element."""
    if tensor.layout != torch.strided:
        return _stored_bytes(tensor._indices()) + _stored_bytes(tensor._values())
    axes = zip(tensor.shape, tensor.stride(), strict=True)
    return math.prod(size for size, stride in axes if stride or not size) * tensor.element_size()
