"""What a process sends to others: counted where PyTorch sends it. Chapter "Across devices"."""

from typing import Any

import torch.distributed as dist
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode


class Sent(TorchDispatchMode):
    """Inside the `with` block: `bytes` and `messages` that this process sends to other ones.

    It counts `torch.distributed.isend`, and the exchange of all processes with all, in which a
    message is what one has for one other. Raises NotImplementedError for other ways to send, and
    for an exchange among some.
    """

    def __init__(self) -> None:
        super().__init__()
        self.bytes = self.messages = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        space, name = func.namespace, func._schema.name.split("::")[-1]
        if (space, name) == ("c10d", "send"):
            self._count(*args[0])
        elif (space, name) == ("c10d", "alltoall_base_"):
            parts = list(args[1].split(args[4]))
            if len(parts) != dist.get_world_size():
                raise NotImplementedError("an exchange among some processes is not counted")
            del parts[dist.get_rank()]  # its own
            self._count(*parts)
        elif "c10d" in space and name not in ("recv_", "wait_tensor", "_wrap_tensor_autograd"):
            raise NotImplementedError(f"{func} sends in a way that is not counted")
        return func(*args, **(kwargs or {}))

    def _count(self, *sent: Tensor) -> None:
        self.bytes += sum(x.numel() * x.itemsize for x in sent)
        self.messages += sum(x.numel() > 0 for x in sent)
