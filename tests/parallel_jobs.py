"""Run by each process of `test_parallel`; new processes import it by name."""

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
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
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
HEADS = ((4, 2), (4, 4), (8, 1))  # query heads over key heads
#: Every split with grouped heads, and every kind of heads with shards of unlike lengths.
CASES = [*((name, HEADS[0]) for name in SPLITS), *(("uneven", heads) for heads in HEADS[1:])]
SENT = ((4, 1), (4, 2), (12, 3))  # heads whose bytes are counted
Heads = tuple[Tensor, Tensor, Tensor]


def mesh_of_all() -> DeviceMesh:
    return init_device_mesh("cpu", (dist.get_world_size(),))


def random_heads(shards: Shards, heads: tuple[int, int], dtype: torch.dtype) -> Heads:
    """The same q, k, v of all tokens in every process; values are narrower than keys."""
    made = torch.Generator().manual_seed(sum(heads))
    seq_len = len(shards.at)
    shapes = ((2, heads[0], seq_len, 8), (2, heads[1], seq_len, 8), (2, heads[1], seq_len, 6))
    q, k, v = (torch.randn(s, generator=made, dtype=torch.float64).to(dtype) for s in shapes)
    return q, k, v


def alone(shards: Shards, whole: Heads, asked: Tensor) -> list[Tensor]:
    """Output and gradients of one process that has everything."""
    q, k, v = (x.clone().requires_grad_() for x in whole)
    turned = rope.RotaryEmbedding(8)(q, k, shards.at)
    tokens = torch.arange(len(shards.at))
    mask = tokens[:, None] >= tokens
    if shards.segments is not None:
        mask &= shards.segments[:, None] == shards.segments
    out = scaled_dot_product_attention(*turned, v, mask, enable_gqa=True)
    out.backward(asked)
    return [out.detach(), *(x.grad for x in (q, k, v) if x.grad is not None)]


def together(mesh: DeviceMesh, shards: Shards, whole: Heads, asked: Tensor, method: str) -> Any:
    """The same of this process's part, beside the others."""
    here = mesh.get_local_rank()
    q, k, v = (shards.of(x, here).requires_grad_() for x in whole)
    turned = rope.RotaryEmbedding(8)(q, k, shards.position_ids(here))
    out = context_parallel_attention(*turned, v, mesh, shards, method=method)
    out.backward(shards.of(asked, here))
    return [out.detach(), *(x.grad for x in (q, k, v) if x.grad is not None)]


def ulps(found: Tensor, wanted: Tensor, of: Tensor) -> float:
    """The largest difference in units of rounding of the largest number."""
    if found.shape != wanted.shape or found.dtype != wanted.dtype:
        return torch.inf
    return ((found - wanted).abs().max() / of.abs().max() / torch.finfo(of.dtype).eps).item() \
        if found.numel() else 0.0  # fmt: skip


def attention(
    dtype: torch.dtype = torch.float64, cases: Sequence[tuple[str, tuple[int, int]]] = CASES
) -> dict[str, list[float]]:
    """By split, heads and method: how far output and gradients are from those of one process."""
    mesh, found = mesh_of_all(), {}
    for (name, heads), method in product(cases, METHODS):
        shards = SPLITS[name](mesh.size())
        whole = random_heads(shards, heads, dtype)
        asked = torch.randn(2, heads[0], len(shards.at), 6, dtype=torch.float64,
                            generator=torch.Generator().manual_seed(1)).to(dtype)  # fmt: skip
        wanted = alone(shards, whole, asked)
        here = together(mesh, shards, whole, asked, method)
        found[f"{name}, {heads[0]} heads over {heads[1]}, {method}"] = [
            ulps(ours, shards.of(theirs, mesh.get_local_rank()), theirs)
            for ours, theirs in zip(here, wanted, strict=True)
        ]
    return found


def whole_and_part(mesh: DeviceMesh, method: str, **more: Any) -> tuple[Tensor, Tensor]:
    """The output for head-tail shards in one process, and what this one has of it from all."""
    shards, here = parallel.head_tail(8 * mesh.size(), mesh.size()), mesh.get_local_rank()
    whole = random_heads(shards, (4, 4), more.pop("dtype", torch.float64))
    scale = more.get("scale")
    right = scaled_dot_product_attention(*whole, is_causal=True, scale=scale)
    q, k, v = (shards.of(x, here) for x in whole)
    found = context_parallel_attention(q, k, v, mesh, shards, method=method, **more)
    return shards.of(right, here), found


def otherwise() -> dict[str, Any]:
    """By method: a scale, float16, autocast, gradients of the keys alone, a mesh of some."""
    found: dict[str, Any] = {}
    mesh, n = mesh_of_all(), dist.get_world_size()
    pairs = init_device_mesh("cpu", (n // 2, 2), mesh_dim_names=("data", "context"))["context"]
    for method in METHODS:
        right, part = whole_and_part(mesh, method, scale=0.1)
        found["scale", method] = ulps(part, right, right)
        right, part = whole_and_part(mesh, method, dtype=torch.float16)
        found["float16", method] = ulps(part, right, right)
        with torch.autocast("cpu", torch.bfloat16):
            right, part = whole_and_part(mesh, method, dtype=torch.bfloat16)
        found["autocast", method] = ulps(part, right, right)
        right, part = whole_and_part(pairs, method)
        found["some", method] = ulps(part, right, right)
        shards, here = parallel.round_robin(6 * n, n), mesh.get_local_rank()
        q, k, v = (shards.of(x, here) for x in random_heads(shards, (4, 4), torch.float64))
        context_parallel_attention(
            q, k.requires_grad_(), v, mesh, shards, method=method
        ).sum().backward()
        found["keys alone", method] = 0.0 if k.grad is not None and q.grad is None else torch.inf
    return found


def raises(words: str, call: Any) -> bool:
    """Whether a call raises an error of this type, whose message holds all these words."""
    kind, *rest = words.split(" … ")
    try:
        call()
    except (TypeError, ValueError) as error:
        return type(error).__name__ == kind and all(word in str(error) for word in rest)
    return False


def refusals() -> dict[str, bool]:
    """By type and words of the message: whether bad arguments raise it; nothing is sent."""
    mesh, n = mesh_of_all(), dist.get_world_size()
    shards = parallel.head_tail(8 * n, n)
    q = torch.zeros(1, 3, 8, 4)
    two, more = init_device_mesh("cpu", (1, n)), parallel.head_tail(8 * (n + 1), n + 1)
    call = partial(context_parallel_attention, mesh=mesh, shards=shards)
    calls: dict[str, Any] = {
        "ValueError … method … 'rings'": lambda: call(q, q, q, method="rings"),
        f"ValueError … q … 3 heads … {n}": lambda: call(q, q, q, method="ulysses"),
        "ValueError … q … 3 heads … k … 2": lambda: call(q, q[:, :2], q[:, :2]),
        "ValueError … q, k and v … 7, 8 and 8": lambda: call(q[:, :, :7], q, q),
        "TypeError … torch.float32 … torch.float64": lambda: call(q, q.double(), q),
        "ValueError … q … [3, 8, 4]": lambda: call(q[0], q, q),
        "ValueError … q, k and v … [1, 3, 8, 4]": lambda: call(q, q[..., :2], q),
        "TypeError … scale … 'a tenth'": lambda: call(q, q, q, scale="a tenth"),
        f"ValueError … mesh … [1, {n}]": lambda: call(q, q, q, mesh=two),
        f"ValueError … mesh … [{n}] … shards": lambda: call(q, q, q, shards=more),
    }
    return {words: raises(words, call) for words, call in calls.items()}


def dtensors() -> dict[str, bool]:
    """Rotations of DTensors, gathered, against those of plain tensors; and what is refused."""
    mesh, n = mesh_of_all(), dist.get_world_size()
    made = torch.Generator().manual_seed(0)
    q, k = (torch.randn(2, heads, 9, 8, generator=made, dtype=torch.float64) for heads in (4, 3))
    rotary = rope.RotaryEmbedding(6, interleaved=True)
    ids = torch.tensor([[0, 1, 2, 3, 4, 5, 6, 7, 8], [4, 9, 2, 7, 7, 0, 1, 3, 2]])
    found: dict[str, bool] = {}
    wanted = {"counted": rotary(q, k), "ids": rotary(q, k, ids)}
    for dim, (name, given) in product((0, 1, 2, None), {"counted": None, "ids": ids}.items()):
        place = [Replicate() if dim is None else Shard(dim)]
        parts = [distribute_tensor(x, mesh, place).requires_grad_() for x in (q, k)]
        turned = rotary(*parts, given)
        both = zip(turned, wanted[name], strict=True)
        same = all(torch.equal(ours.full_tensor(), theirs) for ours, theirs in both)
        sum((x.full_tensor() ** 2).sum() / 2 for x in turned).backward()
        back = [x.grad.full_tensor() for x in parts]
        placed = all(x.placements == tuple(place) for x in turned)
        right = all(torch.allclose(x, g, atol=1e-14) for x, g in zip((q, k), back, strict=True))
        found[f"{dim}, {name}"] = same and right and placed
    cos, sin = rope.rotary_tables(10, rope.inverse_frequencies(6), dtype=torch.float64)
    of_heads = rope.rotary_tables(torch.arange(36).view(1, 4, 9), rope.inverse_frequencies(6))
    grid = init_device_mesh("cpu", (n // 2, 2))
    cuts = [(mesh, [Shard(dim)]) for dim in (0, 1, 2)]
    cuts += [(grid, [Shard(i), Shard(j)]) for i, j in ((0, 2), (1, 0), (2, 1), (2, 2))]
    ways: dict[str, Any] = {
        "ids of each": partial(rope.rotary_embedding, cos=cos, sin=sin, position_ids=ids),
        "ids of all": partial(rope.rotary_embedding, cos=cos, sin=sin, position_ids=ids[1]),
        "tables of each head": lambda x: rope.rotary_embedding(x, *of_heads),
        "halves, back": partial(rope.RotaryEmbedding(6).rotate, inverse=True),
    }
    for name, way in ways.items():
        found[name] = all(
            torch.equal(way(distribute_tensor(q, *cut)).full_tensor(), way(q)) for cut in cuts
        )
    halves = distribute_tensor(q, mesh, [Shard(3)])
    summed = DTensor.from_local(q, mesh, [Partial()])
    split = distribute_tensor(q, mesh, [Shard(2)])
    tables = [distribute_tensor(t, mesh, [Shard(0)]) for t in rope.rotary_tables(
        9, rope.inverse_frequencies(6))]  # fmt: skip
    tokens = distribute_tensor(q.transpose(1, 2).contiguous(), mesh, [Shard(1)])
    turned = rotary.rotate(tokens, tensor_format="bshd").full_tensor()
    found["bshd"] = torch.equal(turned.transpose(1, 2), wanted["counted"][0])
    alone = distribute_tensor(torch.ones(2, n, 6, 8), mesh, [Shard(1)])  # a head a device
    found["strides"] = rotary.rotate(alone).stride() == alone.stride()
    back = DeviceMesh("cpu", list(reversed(range(n))))
    even = q[:, :, :8].contiguous()
    turned = rotary.rotate(distribute_tensor(even, back, [Shard(2)])).full_tensor()
    found["ranks from the last"] = torch.equal(turned, rotary.rotate(even))
    uneven = torch.ones(1, 1, 2 * dist.get_rank() + 1, 8)
    cut = DTensor.from_local(uneven, mesh, [Shard(2)], shape=(1, 1, n * n, 8),
                             stride=(8 * n * n, 8 * n * n, 8, 1))  # fmt: skip
    refused: dict[str, Any] = {
        "ValueError … this process": lambda: rotary.rotate(cut),
        "ValueError … x … Shard(3)": lambda: rotary.rotate(halves),
        f"ValueError … x … {summed.placements[0]}": lambda: rotary.rotate(summed),
        "ValueError … inplace … DTensor": lambda: rotary.rotate(split, inplace=True),
        "TypeError … cos … DTensor": lambda: rope.rotary_embedding(split, *tables),
        "TypeError … q … k … DTensor": lambda: rotary(split, k),
    }
    return found | {words: raises(words, call) for words, call in refused.items()}


class Layer(torch.nn.Module):
    """A projection and its rotation: a model small enough to be split by FSDP2."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.project = torch.nn.Linear(8, 8, bias=False)
        self.rotary = rope.RotaryEmbedding(8)

    def forward(self, x: Tensor) -> Tensor:
        return self.rotary.rotate(self.project(x)[:, None])


# In PyTorch 2.6 it asks a CPU's stream for events, which that has not.
FSDP_ON_CPU = tuple(map(int, torch.__version__.split(".")[:2])) > (2, 6)


def fully_sharded(folder: str) -> dict[str, Any]:
    """FSDP2 splits the weights; the tables stay whole. All processes write a checkpoint."""
    layer, x = Layer(), torch.arange(48.0).reshape(1, 6, 8) / 48
    wanted = layer(x).detach()
    fully_shard(layer, mesh=mesh_of_all())
    save(layer.state_dict(), checkpoint_id=folder)
    return {
        "output": torch.equal(layer(x).detach(), wanted),
        "keys": sorted(layer.state_dict()),
        "tables": type(layer.rotary.cos) is Tensor and layer.rotary.cos.dtype == torch.float32,
    }


def everything(checkpoint: str) -> dict[str, Any]:
    """All of the above in one start."""
    return {
        "float64": attention(),
        "bfloat16": attention(torch.bfloat16, [("packed", HEADS[0])]),
        "refusals": refusals(),
        "otherwise": otherwise(),
        "sent": {sizes: sent(mesh_of_all(), torch.bfloat16, sizes) for sizes in SENT},
        "dtensors": dtensors(),
        "fsdp": fully_sharded(checkpoint) if FSDP_ON_CPU else None,
    }


def fails_on_one() -> None:
    """One process fails while the other waits for it."""
    if dist.get_rank() == 1:
        raise RuntimeError("no such method")
    dist.barrier()
