"""Define the jobs that each process in `test_parallel` runs."""

from collections.abc import Sequence
from functools import partial
from itertools import product
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.checkpoint import save
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Shard, distribute_tensor
from torch.nn.functional import scaled_dot_product_attention

import rope
from rope import parallel
from rope.book.measured.devices import sent
from rope.parallel import METHODS, Shards, context_parallel_attention

SPLITS = {
    "contiguous": partial(parallel.contiguous, 24),
    "head-tail": partial(parallel.head_tail, 24),
    "round robin": partial(parallel.round_robin, 24),
    "uneven": partial(parallel.contiguous, 21),
    "fewer tokens than devices": partial(parallel.contiguous, 3),
    "packed": partial(parallel.packed, [8, 16]),
    "packed round robin": partial(parallel.packed, [3, 10, 1], split=parallel.round_robin),
}
HEADS = ((4, 2), (4, 4), (8, 1))  # (query heads, key heads)
#: Every split with grouped heads, and every pair of head counts with shards of unequal lengths.
CASES = [*((name, HEADS[0]) for name in SPLITS), *(("uneven", heads) for heads in HEADS[1:])]
Heads = tuple[Tensor, Tensor, Tensor]


def mesh_of_all() -> DeviceMesh:
    return init_device_mesh("cpu", (dist.get_world_size(),))


def random_heads(shards: Shards, heads: tuple[int, int], dtype: torch.dtype) -> Heads:
    """Return q, k, v for all tokens, equal in every process; v is narrower than k."""
    generator = torch.Generator().manual_seed(sum(heads))
    seq_len = len(shards.positions)
    shapes = ((2, heads[0], seq_len, 8), (2, heads[1], seq_len, 8), (2, heads[1], seq_len, 6))
    q, k, v = (torch.randn(s, generator=generator, dtype=torch.float64).to(dtype) for s in shapes)
    return q, k, v


def on_one_device(shards: Shards, whole: Heads, grad: Tensor) -> list[Tensor]:
    """Return the output and gradients computed by one process that has all tokens."""
    q, k, v = (x.clone().requires_grad_() for x in whole)
    rotated = rope.RotaryEmbedding(8)(q, k, shards.positions)
    tokens = torch.arange(len(shards.positions))
    mask = tokens[:, None] >= tokens
    if shards.segments is not None:
        mask &= shards.segments[:, None] == shards.segments
    out = scaled_dot_product_attention(*rotated, v, mask, enable_gqa=True)
    out.backward(grad)
    return [out.detach(), *(x.grad for x in (q, k, v) if x.grad is not None)]


def across_devices(
    mesh: DeviceMesh, shards: Shards, whole: Heads, grad: Tensor, method: str
) -> Any:
    """Compute attention with all processes; return the output and gradients of this one's part."""
    here = mesh.get_local_rank()
    q, k, v = (shards.local(x, here).requires_grad_() for x in whole)
    rotated = rope.RotaryEmbedding(8)(q, k, shards.position_ids(here))
    out = context_parallel_attention(*rotated, v, mesh, shards, method=method)
    out.backward(shards.local(grad, here))
    return [out.detach(), *(x.grad for x in (q, k, v) if x.grad is not None)]


def ulps(actual: Tensor, expected: Tensor, of: Tensor) -> float:
    """Return the largest difference, in units of eps times the largest absolute entry of `of`."""
    if actual.shape != expected.shape or actual.dtype != expected.dtype:
        return torch.inf
    if not actual.numel():
        return 0.0
    eps = torch.finfo(of.dtype).eps
    return ((actual - expected).abs().max() / of.abs().max() / eps).item()


def attention(
    dtype: torch.dtype = torch.float64, cases: Sequence[tuple[str, tuple[int, int]]] = CASES
) -> dict[str, list[float]]:
    """Return the errors of the output and gradients, by split, head counts and method."""
    mesh, results = mesh_of_all(), {}
    for (name, heads), method in product(cases, METHODS):
        shards = SPLITS[name](mesh.size())
        whole = random_heads(shards, heads, dtype)
        grad = torch.randn(2, heads[0], len(shards.positions), 6, dtype=torch.float64,
                            generator=torch.Generator().manual_seed(1)).to(dtype)  # fmt: skip
        expected = on_one_device(shards, whole, grad)
        here = across_devices(mesh, shards, whole, grad, method)
        results[f"{name}, {heads[0]} heads over {heads[1]}, {method}"] = [
            ulps(ours, shards.local(theirs, mesh.get_local_rank()), theirs)
            for ours, theirs in zip(here, expected, strict=True)
        ]
    return results


def whole_and_part(mesh: DeviceMesh, method: str, **more: Any) -> tuple[Tensor, Tensor]:
    """Return this process's part of the output, computed by one process and by all processes."""
    shards, here = parallel.head_tail(8 * mesh.size(), mesh.size()), mesh.get_local_rank()
    whole = random_heads(shards, (4, 4), more.pop("dtype", torch.float64))
    scale = more.get("scale")
    right = scaled_dot_product_attention(*whole, is_causal=True, scale=scale)
    q, k, v = (shards.local(x, here) for x in whole)
    part = context_parallel_attention(q, k, v, mesh, shards, method=method, **more)
    return shards.local(right, here), part


def otherwise() -> dict[str, Any]:
    """Return errors by setting and method: scale, float16, autocast, submesh, only k needs grad."""
    results: dict[str, Any] = {}
    mesh, n = mesh_of_all(), dist.get_world_size()
    pairs = init_device_mesh("cpu", (n // 2, 2), mesh_dim_names=("data", "context"))["context"]
    for method in METHODS:
        right, part = whole_and_part(mesh, method, scale=0.1)
        results["scale", method] = ulps(part, right, right)
        right, part = whole_and_part(mesh, method, dtype=torch.float16)
        results["float16", method] = ulps(part, right, right)
        with torch.autocast("cpu", torch.bfloat16):
            right, part = whole_and_part(mesh, method, dtype=torch.bfloat16)
        results["autocast", method] = ulps(part, right, right)
        right, part = whole_and_part(pairs, method)
        results["some", method] = ulps(part, right, right)
        shards, here = parallel.round_robin(6 * n, n), mesh.get_local_rank()
        q, k, v = (shards.local(x, here) for x in random_heads(shards, (4, 4), torch.float64))
        context_parallel_attention(
            q, k.requires_grad_(), v, mesh, shards, method=method
        ).sum().backward()
        results["only keys", method] = 0.0 if k.grad is not None and q.grad is None else torch.inf
    return results


def raises(words: str, call: Any) -> bool:
    """Return True if a call raises the type that `words` starts with, naming its other words."""
    kind, *rest = words.split(" … ")
    try:
        call()
    except (RuntimeError, TypeError, ValueError) as error:
        return type(error).__name__ == kind and all(word in str(error) for word in rest)
    return False


def errors() -> dict[str, bool]:
    """Return, by error type and message words, True if a bad call raises that error."""
    mesh, n = mesh_of_all(), dist.get_world_size()
    shards = parallel.head_tail(8 * n, n)
    q = torch.zeros(1, 3, 8, 4)
    two, more = init_device_mesh("cpu", (1, n)), parallel.head_tail(8 * (n + 1), n + 1)
    call = partial(context_parallel_attention, mesh=mesh, shards=shards)
    split, rotary = (
        distribute_tensor(torch.zeros(1, n, 8, 4), mesh, [Shard(1)]),
        rope.RotaryEmbedding(4),
    )
    calls: dict[str, Any] = {
        "ValueError … method … 'rings'": lambda: call(q, q, q, method="rings"),
        f"ValueError … q … 3 heads … {n}": lambda: call(q, q, q, method="ulysses"),
        "ValueError … q, k, and v … 7, 8, and 8": lambda: call(q[:, :, :7], q, q),
        f"ValueError … mesh … [1, {n}]": lambda: call(q, q, q, mesh=two),
        f"ValueError … mesh … [{n}] … shards": lambda: call(q, q, q, shards=more),
        "RuntimeError … mixed … DTensor": lambda: rotary.rotate(split),
        "RuntimeError … mixed … DTensor … ": lambda: rotary(split, q, torch.arange(8)),
    }
    return {words: raises(words, call) for words, call in calls.items()}


class Layer(torch.nn.Module):
    """A projection followed by a rotation, to be sharded by FSDP2."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.project = torch.nn.Linear(8, 8, bias=False)
        self.rotary = rope.RotaryEmbedding(8)

    def forward(self, x: Tensor) -> Tensor:
        return self.rotary.rotate(self.project(x)[:, None])


# PyTorch 2.6 fails on a CPU, because it asks for stream events, which a CPU doesn't have.
FSDP_ON_CPU = tuple(map(int, torch.__version__.split(".")[:2])) > (2, 6)


def fully_sharded(folder: str) -> dict[str, Any]:
    """Shard the weights with FSDP2, check that the tables stay whole, and write a checkpoint."""
    layer, x = Layer(), torch.arange(48.0).reshape(1, 6, 8) / 48
    expected = layer(x).detach()
    fully_shard(layer, mesh=mesh_of_all())
    save(layer.state_dict(), checkpoint_id=folder)
    return {
        "output": torch.equal(layer(x).detach(), expected),
        "keys": sorted(layer.state_dict()),
        "tables": type(layer.rotary.cos) is Tensor and layer.rotary.cos.dtype == torch.float32,
    }


def everything(checkpoint: str) -> dict[str, Any]:
    """Run all jobs and return their results."""
    return {
        "float64": attention(),
        "bfloat16": attention(torch.bfloat16, [("packed", HEADS[0])]),
        "errors": errors(),
        "otherwise": otherwise(),
        "sent": sent(mesh_of_all(), torch.bfloat16, HEADS[0]),
        "fsdp": fully_sharded(checkpoint) if FSDP_ON_CPU else None,
    }


def fails_on_one() -> None:
    """Raise an error in process 1 while the other process waits for it."""
    if dist.get_rank() == 1:
        raise RuntimeError("no such method")
    dist.barrier()
