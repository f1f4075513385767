"""How far attention over several devices is from that of one, and what it sends.

Chapter "Across devices". `everything` is run by each of several processes, which stand for devices;
`rope.book.measured.processes.across` starts them. Errors are of the largest number: of an output,
or of the gradient of a query, key or value.

Shapes: B batch, H heads, S tokens, D head dimension.
"""

from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.nn.functional import scaled_dot_product_attention
from torch.utils._python_dispatch import TorchDispatchMode

from rope.frequencies import inverse_frequencies, rotary_tables
from rope.functional import rotary_embedding
from rope.layouts import interleaved_to_half
from rope.module import RotaryEmbedding
from rope.parallel import (
    METHODS,
    Shards,
    context_parallel_attention,
    contiguous,
    head_tail,
    packed,
    round_robin,
)

S, HEADS, KEY_HEADS, D = 32, 6, 3, 8
SPLITS: dict[str, Callable[[int], Shards]] = {
    "contiguous": partial(contiguous, S),
    "head-tail": partial(head_tail, S),
    "round robin": partial(round_robin, S),
    "two documents": partial(packed, [8, S - 8]),
}
Heads = tuple[Tensor, Tensor, Tensor]
Rotate = Callable[[Tensor, Tensor, Shards, int], tuple[Tensor, Tensor]]


def heads(dtype: torch.dtype = torch.float64, sizes: tuple[int, int] = (HEADS, KEY_HEADS)) -> Heads:
    """q, k, v of all tokens, `[1, H, S, D]`, the same in every process; sizes: H and H_kv."""
    made = torch.Generator().manual_seed(0)
    each = sizes[0], sizes[1], sizes[1]
    q, k, v = (torch.randn(1, n, S, D, generator=made, dtype=torch.float64) for n in each)
    return q.to(dtype), k.to(dtype), v.to(dtype)


def on_one_device(whole: Heads, shards: Shards) -> list[Tensor]:
    """Output and gradients, of the sum of squares, where everything is in one place."""
    q, k, v = (x.clone().requires_grad_() for x in whole)
    tokens = torch.arange(S)
    turned_q, turned_k = RotaryEmbedding(D)(q, k, shards.at)
    mask = shards.sees(tokens, tokens)
    out = scaled_dot_product_attention(turned_q, turned_k, v, mask, enable_gqa=True)
    return [out.detach(), *torch.autograd.grad(out.square().sum(), (q, k, v))]


def by_position(
    q: Tensor,
    k: Tensor,
    shards: Shards,
    here: int,
) -> tuple[Tensor, Tensor]:
    """Each token rotated by its own position."""
    return RotaryEmbedding(D)(q, k, shards.position_ids(here))


def on_this_device(
    whole: Heads,
    shards: Shards,
    mesh: DeviceMesh,
    method: str,
    rotate: Rotate = by_position,
    masked_by: Shards | None = None,
) -> list[Tensor]:
    """Output and gradients of this device's tokens, together with the others."""
    here = mesh.get_local_rank()
    q, k, v = (shards.of(x, here).requires_grad_() for x in whole)
    turned = rotate(q, k, shards, here)
    out = context_parallel_attention(*turned, v, mesh, masked_by or shards, method=method)
    return [out.detach(), *torch.autograd.grad(out.square().sum(), (q, k, v))]


def errors(found: list[Tensor], whole: list[Tensor], shards: Shards, here: int) -> list[float]:
    """The largest difference of each, of the largest number in it."""
    pairs = zip(found, whole, strict=True)
    return [((a - shards.of(b, here)).abs().max() / b.abs().max()).item() for a, b in pairs]


def counted_here(q: Tensor, k: Tensor, shards: Shards, here: int) -> tuple[Tensor, Tensor]:
    """The mistake: each device counts its own tokens from 0."""
    return RotaryEmbedding(D)(q, k)


def table_cut_otherwise(q: Tensor, k: Tensor, shards: Shards, here: int) -> tuple[Tensor, Tensor]:
    """The mistake: the table is cut into stretches, whatever the tokens' order is."""
    return RotaryEmbedding(D)(q, k, offset=here * q.shape[2])


def counted_in_documents(q: Tensor, k: Tensor, shards: Shards, here: int) -> tuple[Tensor, Tensor]:
    """The mistake: in each document, the device counts its own tokens from 0."""
    assert shards.segments is not None
    lengths = shards.segments[shards.tokens[here]].bincount()
    ids = torch.cat([torch.arange(int(n)) for n in lengths])
    return RotaryEmbedding(D)(q, k, ids)


#: A mistake: the split, how tokens are rotated, the split whose token numbers make the mask.
FAULTS: dict[str, tuple[str, Rotate, str]] = {
    "counted here, contiguous": ("contiguous", counted_here, "contiguous"),
    "counted here, head-tail": ("head-tail", counted_here, "head-tail"),
    "table in stretches, head-tail": ("head-tail", table_cut_otherwise, "head-tail"),
    "counted in each document": ("two documents", counted_in_documents, "two documents"),
    "mask by place, head-tail": ("head-tail", by_position, "contiguous"),
}


def inside_heads(mesh: DeviceMesh) -> dict[str, float]:
    """Each device rotates its half of the coordinates of every head: how far off, by layout."""
    q, _, _ = heads()
    rotary, here = RotaryEmbedding(D), mesh.get_local_rank()
    cos, sin = rotary.tables_at(torch.arange(S), dtype=q.dtype)
    mine = [table.chunk(mesh.size(), -1)[here] for table in (cos, sin)]
    found = {}
    for name, interleaved in (("interleaved", True), ("half-split", False)):
        x = q if interleaved else interleaved_to_half(q)
        whole = rotary_embedding(x, cos, sin, interleaved=interleaved)
        part = x.chunk(mesh.size(), -1)[here]
        part = rotary_embedding(part, *mine, interleaved=interleaved)
        off = (part - whole.chunk(mesh.size(), -1)[here]).abs().max()
        found[name] = (off / whole.abs().max()).item()
    return found


def dtensors(mesh: DeviceMesh) -> dict[str, bool]:
    """By how a DTensor is split: whether its rotations are those of the whole, to the bit.

    Counted and rotated back, by positions of each row, by tables of each head; on a mesh of one
    axis and on one of two.
    """
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    x, rotary, found = torch.cat(heads(sizes=(HEADS, HEADS))[:2]), RotaryEmbedding(D), {}
    ids = torch.stack((torch.arange(S), torch.arange(S).flip(0)))  # [B, S]
    of_all = rotary_tables(S, inverse_frequencies(D))
    of_heads = rotary_tables(torch.arange(HEADS * S).view(1, HEADS, S), inverse_frequencies(D))
    ways: tuple[Callable[[Tensor], Any], ...] = (
        rotary.rotate,
        partial(rotary.rotate, inverse=True),
        lambda x: rotary_embedding(x, *of_all, ids),
        lambda x: rotary_embedding(x, *of_heads),
    )
    two_axes = init_device_mesh("cpu", (1, mesh.size()))
    for dim, name in enumerate(("batch", "heads", "sequence")):
        places = (mesh, [Shard(dim)]), (two_axes, [Replicate(), Shard(dim)])
        found[name] = all(
            torch.equal(way(distribute_tensor(x, *place)).full_tensor(), way(x))
            for place, way in product(places, ways)
        )
    return found


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


def sent(
    mesh: DeviceMesh,
    dtype: torch.dtype = torch.float32,
    sizes: tuple[int, int] = (HEADS, KEY_HEADS),
) -> dict[str, list[int]]:
    """By method: bytes and messages forwards, then bytes and messages backwards.

    sizes: query heads and key heads.
    """
    shards, here = SPLITS["head-tail"](mesh.size()), mesh.get_local_rank()
    found = {}
    for method in METHODS:
        whole = heads(dtype, sizes)
        q, k, v = (shards.of(x, here).requires_grad_() for x in whole)
        with Sent() as forwards:
            out = context_parallel_attention(q, k, v, mesh, shards, method=method)
        with Sent() as backwards:
            out.sum().backward()
        found[method] = [forwards.bytes, forwards.messages, backwards.bytes, backwards.messages]
    return found


def everything() -> dict[str, Any]:
    """`right`, `faults`, `inside heads`, `dtensors` and `sent`, as this process finds them.

    `narrow` is what is sent in bfloat16.
    """
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    here, right, faults = mesh.get_local_rank(), {}, {}
    for name, split in SPLITS.items():
        shards, whole = split(mesh.size()), heads()
        wanted = on_one_device(whole, shards)
        for method in METHODS:
            found = on_this_device(whole, shards, mesh, method)
            right[name, method] = errors(found, wanted, shards, here)
        for fault, (of, rotate, mask) in FAULTS.items():
            if of == name:
                masked_by = SPLITS[mask](mesh.size())
                found = on_this_device(whole, shards, mesh, "all_gather", rotate, masked_by)
                faults[fault] = errors(found, wanted, shards, here)
    return {
        "right": right,
        "faults": faults,
        "inside heads": inside_heads(mesh),
        "dtensors": dtensors(mesh),
        "sent": sent(mesh),
        "narrow": sent(mesh, torch.bfloat16),
    }
