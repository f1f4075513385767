"""Run attention across simulated devices, and compare the results with one device's results.

The chapter "Across devices" uses this module. `across` starts one process per device, on a CPU. The
processes communicate through gloo. An error is max |a - b| / max |b|, where a is computed across
devices and b on one device. Both a and b are outputs, or gradients of q, k, or v.

Shapes: B batch, H heads, S tokens, D head dimension.
"""

import tempfile
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.multiprocessing.spawn import ProcessExitedException, ProcessRaisedException, spawn
from torch.nn.functional import scaled_dot_product_attention
from torch.utils._python_dispatch import TorchDispatchMode

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

TIMEOUT = timedelta(seconds=60)
S, HEADS, KEY_HEADS, D = 32, 6, 3, 8
SPLITS: dict[str, Callable[[int], Shards]] = {
    "contiguous": partial(contiguous, S),
    "head-tail": partial(head_tail, S),
    "round robin": partial(round_robin, S),
    "two documents": partial(packed, [8, S - 8]),
}
Pair = tuple[Tensor, Tensor]
Heads = tuple[Tensor, Tensor, Tensor]
Rotate = Callable[[Tensor, Tensor, Shards, int], Pair]


def across(function: Callable[..., Any], processes: int, *arguments: Any) -> list[Any]:
    """Run `function(*arguments)` in each process and return the results in rank order.

    function: a function from a module that new processes can import. It communicates through
    `torch.distributed`, runs on one thread, and returns a value that `torch.save` accepts.
    Raises RuntimeError with the error of the first process to fail, after ending the others.

    >>> across(dist.get_rank, 2)
    [0, 1]
    """
    with tempfile.TemporaryDirectory() as folder:
        try:
            spawn(_run, (function, processes, Path(folder), arguments), processes)
        except (ProcessRaisedException, ProcessExitedException) as error:
            first = Path(folder, "failed.txt")  # when one process fails, the others fail too
            if not first.exists():
                raise RuntimeError(f"a process died without a Python error: {error}") from error
            raise RuntimeError(first.read_text(encoding="utf-8")) from error
        return [
            torch.load(Path(folder, f"{rank}.pt"), weights_only=False) for rank in range(processes)
        ]


def _run(
    rank: int, function: Callable[..., Any], processes: int, folder: Path, arguments: Any
) -> None:
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{folder}/meet",
        rank=rank,
        world_size=processes,
        timeout=TIMEOUT,
    )
    try:
        torch.save(function(*arguments), folder / f"{rank}.pt")
        dist.barrier()  # no process exits while another still needs it
    except Exception as error:
        message = f"process {rank} of {processes} failed: {type(error).__name__}: {error}"
        with suppress(FileExistsError), open(folder / "failed.txt", "x", encoding="utf-8") as file:
            file.write(message)
        raise
    finally:
        dist.destroy_process_group()


def heads(dtype: torch.dtype = torch.float64, sizes: tuple[int, int] = (HEADS, KEY_HEADS)) -> Heads:
    """Return q `[1, H, S, D]` and k, v `[1, H_kv, S, D]`, equal on all ranks. sizes: (H, H_kv)."""
    generator = torch.Generator().manual_seed(0)
    counts = sizes[0], sizes[1], sizes[1]
    q, k, v = (torch.randn(1, n, S, D, generator=generator, dtype=torch.float64) for n in counts)
    return q.to(dtype), k.to(dtype), v.to(dtype)


def on_one_device(whole: Heads, shards: Shards) -> list[Tensor]:
    """Return the output, and the gradients of its sum of squares, computed on one device."""
    q, k, v = (x.clone().requires_grad_() for x in whole)
    tokens = torch.arange(S)
    rotated_q, rotated_k = RotaryEmbedding(D)(q, k, shards.positions)
    mask = shards.attention_mask(tokens, tokens)
    out = scaled_dot_product_attention(rotated_q, rotated_k, v, mask, enable_gqa=True)
    return [out.detach(), *torch.autograd.grad(out.square().sum(), (q, k, v))]


def by_position(q: Tensor, k: Tensor, shards: Shards, here: int) -> Pair:
    """Rotate each token by its own position."""
    return RotaryEmbedding(D)(q, k, shards.position_ids(here))


def on_this_device(
    whole: Heads,
    shards: Shards,
    mesh: DeviceMesh,
    method: str,
    rotate: Rotate = by_position,
    masked_by: Shards | None = None,
) -> list[Tensor]:
    """Compute attention across devices; return the output and gradients for this device's tokens.

    rotate: rotates q and k on one device. masked_by: the split whose token numbers determine the
    mask; `shards` if None.
    """
    here = mesh.get_local_rank()
    q, k, v = (shards.local(x, here).requires_grad_() for x in whole)
    rotated = rotate(q, k, shards, here)
    out = context_parallel_attention(*rotated, v, mesh, masked_by or shards, method=method)
    return [out.detach(), *torch.autograd.grad(out.square().sum(), (q, k, v))]


def errors(parts: list[Tensor], whole: list[Tensor], shards: Shards, here: int) -> list[float]:
    """Return each tensor's largest error, divided by the full tensor's largest magnitude."""
    pairs = zip(parts, whole, strict=True)
    return [((a - shards.local(b, here)).abs().max() / b.abs().max()).item() for a, b in pairs]


def counted_from_0(q: Tensor, k: Tensor, shards: Shards, here: int) -> Pair:
    """Rotate with a planted error: each device counts its own tokens from 0."""
    return RotaryEmbedding(D)(q, k)


def table_split_contiguously(q: Tensor, k: Tensor, shards: Shards, here: int) -> Pair:
    """Rotate with a planted error: the table is split contiguously, but the tokens are not."""
    return RotaryEmbedding(D)(q, k, offset=here * q.shape[2])


#: Each planted error, with its split, its rotation, and the split that determines the mask.
FAULTS: dict[str, tuple[str, Rotate, str]] = {
    "local count, contiguous": ("contiguous", counted_from_0, "contiguous"),
    "local count, head-tail": ("head-tail", counted_from_0, "head-tail"),
    "contiguous table, head-tail": ("head-tail", table_split_contiguously, "head-tail"),
    "mask by slot, head-tail": ("head-tail", by_position, "contiguous"),
}


def inside_heads(mesh: DeviceMesh) -> dict[str, float]:
    """Return the error of each layout when every device rotates its share of each head."""
    q, _, _ = heads()
    rotary, here = RotaryEmbedding(D), mesh.get_local_rank()
    cos, sin = rotary.tables_at(torch.arange(S), dtype=q.dtype)
    tables_here = [table.chunk(mesh.size(), -1)[here] for table in (cos, sin)]
    result = {}
    for name, interleaved in (("interleaved", True), ("half-split", False)):
        x = q if interleaved else interleaved_to_half(q)
        whole = rotary_embedding(x, cos, sin, interleaved=interleaved)
        part = x.chunk(mesh.size(), -1)[here]
        part = rotary_embedding(part, *tables_here, interleaved=interleaved)
        off = (part - whole.chunk(mesh.size(), -1)[here]).abs().max()
        result[name] = (off / whole.abs().max()).item()
    return result


def dtensors(mesh: DeviceMesh) -> dict[str, bool]:
    """Return whether a DTensor's rotated parts form the rotated whole, for each split axis."""
    from torch.distributed.tensor import DTensor, Shard, distribute_tensor

    x, rotary, result = torch.cat(heads(sizes=(HEADS, HEADS))[:2]), RotaryEmbedding(D), {}
    ids = torch.stack((torch.arange(S), torch.arange(S).flip(0)))  # [B, S]
    parts = {"batch": ids.chunk(mesh.size()), "sequence": ids.chunk(mesh.size(), dim=1)}
    for dim, name in enumerate(("batch", "heads", "sequence")):
        split = distribute_tensor(x, mesh, [Shard(dim)])
        own = parts[name][mesh.get_local_rank()] if name in parts else ids
        rotated = DTensor.from_local(rotary.rotate(split.to_local(), own), mesh, split.placements)
        result[name] = torch.equal(rotated.full_tensor(), rotary.rotate(x, ids))
    return result


class Sent(TorchDispatchMode):
    """Count the bytes and messages that this process sends inside the `with` block.

    Counts `torch.distributed.isend` and all-to-all, which sends one message to every other process.
    Raises NotImplementedError for other kinds of communication and for an all-to-all in a subgroup.
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
                raise NotImplementedError("can't count an all-to-all in a subgroup; use all ranks")
            del parts[dist.get_rank()]  # this part stays on this process
            self._count(*parts)
        elif "c10d" in space and name not in ("recv_", "wait_tensor", "_wrap_tensor_autograd"):
            raise NotImplementedError(f"can't count {func}; use isend or all-to-all")
        return func(*args, **(kwargs or {}))

    def _count(self, *tensors: Tensor) -> None:
        self.bytes += sum(x.numel() * x.itemsize for x in tensors)
        self.messages += sum(x.numel() > 0 for x in tensors)


def sent(
    mesh: DeviceMesh,
    dtype: torch.dtype = torch.float32,
    sizes: tuple[int, int] = (HEADS, KEY_HEADS),
) -> dict[str, list[int]]:
    """Return the bytes and messages that each method sends, first forward and then backward.

    sizes: the numbers of query heads and of key heads, (H, H_kv).
    """
    shards, here = SPLITS["head-tail"](mesh.size()), mesh.get_local_rank()
    result = {}
    for method in METHODS:
        whole = heads(dtype, sizes)
        q, k, v = (shards.local(x, here).requires_grad_() for x in whole)
        with Sent() as forward:
            out = context_parallel_attention(q, k, v, mesh, shards, method=method)
        with Sent() as backward:
            out.sum().backward()
        result[method] = [forward.bytes, forward.messages, backward.bytes, backward.messages]
    return result


def everything() -> dict[str, Any]:
    """Run all measurements of this module, and return their results keyed by measurement."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    here, right, faults = mesh.get_local_rank(), {}, {}
    for name, split in SPLITS.items():
        shards, whole = split(mesh.size()), heads()
        expected = on_one_device(whole, shards)
        for method in METHODS:
            parts = on_this_device(whole, shards, mesh, method)
            right[name, method] = errors(parts, expected, shards, here)
        for fault, (split_name, rotate, mask) in FAULTS.items():
            if split_name == name:
                masked_by = SPLITS[mask](mesh.size())
                parts = on_this_device(whole, shards, mesh, "all_gather", rotate, masked_by)
                faults[fault] = errors(parts, expected, shards, here)
    return {
        "right": right,
        "faults": faults,
        "inside heads": inside_heads(mesh),
        "dtensors": dtensors(mesh),
        "sent": sent(mesh),
    }
