"""Is the Triton kernel right where it runs? Each check returns a sentence, or raises.

The truth is complex multiplication in float64 on the CPU, from the float32 tables that the kernel
is given. A product, a sum and the store may round, and nothing else: with u = 2^-24 and v that of a
narrower format, a coordinate is off by at most (1 + u)^2 (1 + v) - 1 of its pair's length.
Where there is no GPU the kernel runs in Triton's interpreter, on the CPU.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import product
from unittest.mock import patch

import torch
from torch import Tensor

from rope.kernels import operator
from rope.kernels import triton as kernel
from rope.kernels.formula import formula
from rope.kernels.operator import rows_of

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
ROWS = 64
# B, H, H_kv, S, D, R: one token; a rest; five key heads, of which a program takes four; tiles; one
# tensor, with no key heads beside it.
SHAPES = ((2, 4, 1, 1, 64, 64), (2, 3, 2, 5, 64, 20), (1, 9, 5, 7, 16, 16), (1, 2, 2, 34, 8, 8),
          (1, 3, 0, 6, 32, 32))  # fmt: skip
ROTATE = torch.ops.rope


@contextmanager
def by_triton(device: torch.device) -> Iterator[list[int]]:
    """Rotations go through the kernel, on a CPU too; yields a list with an entry a launch."""
    launches: list[int] = []
    launch = kernel.launch

    def counted(*arguments: object, **flags: object) -> None:
        launches.append(1)
        launch(*arguments, **flags)  # type: ignore[arg-type]

    def run(outs: object, xs: object, *rest: object) -> None:
        cos, sin, ids, interleaved, inverse = rest
        counted(*xs, *outs, cos, sin, ids, interleaved=interleaved, inverse=inverse)  # type: ignore[misc]

    with patch.object(kernel, "launch", counted):
        if device.type == "cuda":
            yield launches
        else:
            with patch.object(operator, "_run_kernel", run):
                yield launches


def made(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> list[Tensor]:
    """q, k, cos and sin, all of them normal numbers, and position ids `[B, S]`; seeded."""
    batch, heads, kv_heads, length, width, rotated = shape
    noise = torch.Generator().manual_seed(length)
    q, k = (torch.randn(batch, h, length, width, generator=noise) for h in (heads, kv_heads))
    angle = torch.randn(ROWS, rotated // 2, generator=noise)
    ids = torch.randint(ROWS, (batch, length), generator=noise)
    tables = (angle.cos().to(device), angle.sin().to(device))
    return [q.to(device, dtype), k.to(device, dtype), *tables, ids.to(device)]


def off(x: Tensor, y: Tensor, cos: Tensor, sin: Tensor, interleaved: bool) -> float:
    """By what share of what is allowed the worst pair of y is off; cos, sin of each token."""
    width = 2 * cos.shape[-1]
    if not torch.equal(y[..., width:], x[..., width:]):
        raise AssertionError("what is not rotated has changed")

    def pairs(z: Tensor) -> Tensor:
        halves = z[..., :width].cpu().double()
        split = halves.unflatten(-1, (-1, 2) if interleaved else (2, -1))
        return torch.complex(*split.unbind(-1 if interleaved else -2))

    right = pairs(x) * torch.complex(cos.cpu().double(), sin.cpu().double())
    apart = torch.view_as_real(pairs(y) - right).abs().amax(-1)
    info = torch.finfo(x.dtype)
    last = info.eps / 2 if x.dtype != torch.float32 else 0.0
    if x.dtype == torch.bfloat16 and not x.is_cuda:
        last = info.eps  # the interpreter cuts off where a GPU rounds
    allowed = (1 + 2.0**-24) ** 2 * (1 + last) - 1
    # What lies below the smallest normal number has no relative precision.
    share = apart / (allowed * right.abs() + info.smallest_normal * info.eps)
    return float(share.nan_to_num(torch.inf).max()) if len(share.flatten()) else 0.0


def values(device: torch.device) -> str:
    """Forward, back and in place; both layouts, three formats, with ids and without."""
    worst = 0.0
    for shape, dtype, inter in product(SHAPES, DTYPES, (False, True)):
        q, k, cos, sin, ids = made(shape, dtype, device)
        for positions, inverse in product((ids, ids[0], None), (False, True)):
            rows = torch.arange(shape[3], device=device) % ROWS
            tables = (cos, sin) if positions is not None else (cos[rows], sin[rows])
            arguments = (*tables, positions, inter, inverse)
            own = rows_of(tables[0], tables[1], positions, inverse)
            into = [q.clone(), k.clone()]
            ROTATE.rotate_(*into, *arguments)
            for x, y, z in zip((q, k), ROTATE.rotate(q, k, *arguments), into, strict=True):
                if not torch.equal(y, z):
                    raise AssertionError(f"in place is another result: {shape}, {dtype}")
                worst = max(worst, off(x, y, *own, inter))
                if dtype == torch.float32:
                    exact = formula(x.cpu(), own[0].cpu(), own[1].cpu(), inter)
                    if not torch.equal(exact, y.cpu()):
                        raise AssertionError(f"in float32 other bits than the formula's: {shape}")
    _within(worst)
    return f"within {worst:.2f} of what is allowed; in float32 the formula's bits"


def heads(device: torch.device) -> str:
    """Tables for each head, of each sequence or of all."""
    worst = 0.0
    for dtype, inter, batch in product(DTYPES, (False, True), (1, 2)):
        _, k, cos, sin, _ = made((2, 1, 5, 7, 16, 12), dtype, device)
        rows = torch.randint(ROWS, (batch, 5, 7), generator=torch.Generator().manual_seed(batch))
        own = cos[rows.to(device)], sin[rows.to(device)]
        for x in ROTATE.rotate(k, k, *own, None, inter, False):
            worst = max(worst, off(k, x, *own, inter))
    _within(worst)
    return f"each with its own tables: within {worst:.2f} of what is allowed"


def _within(worst: float) -> None:
    if worst > 1:
        raise AssertionError(f"a pair is off by {worst:.3g} times what is allowed")


def gradients(device: torch.device) -> str:
    """They are the gradients of the results, rotated back: one launch forward, one backward."""
    for dtype, inter in product(DTYPES, (False, True)):
        q, k, cos, sin, ids = made(SHAPES[2], dtype, device)
        leaves = [x.clone().requires_grad_() for x in (q, k)]
        with by_triton(device) as launches:
            results = ROTATE.rotate(*leaves, cos, sin, ids, inter, False)
            forward = len(launches)
            grads = [torch.randn_like(y) for y in results]
            back = torch.autograd.grad(results, leaves, grads)
        if (forward, len(launches)) != (1, 2):
            raise AssertionError(f"{forward} launches forward and {len(launches) - forward} back")
        for found, right in zip(
            back, ROTATE.rotate(*grads, cos, sin, ids, inter, True), strict=True
        ):
            if not torch.equal(found, right):
                raise AssertionError(f"not the gradient rotated back: {dtype}")
    return "those of the results, rotated back; one launch forward, one backward"


def strides(device: torch.device) -> str:
    """Every second element of tensors stored by token, in a buffer of NaN that stays so."""
    for dtype, inter in product(DTYPES, (False, True)):
        q, k, cos, sin, ids = made(SHAPES[1], dtype, device)
        right = ROTATE.rotate(q, k, cos, sin, ids, inter, False)
        buffers = [  # a token more before the first and after the last
            torch.full((x.shape[0], x.shape[2] + 2, x.shape[1], 2 * x.shape[3] + 3), torch.nan).to(
                x
            )
            for x in (q, k)
        ]
        views = [b[:, 1:-1, :, : 2 * q.shape[3] : 2].transpose(1, 2) for b in buffers]
        for view, x in zip(views, (q, k), strict=True):
            view.copy_(x)
        found = ROTATE.rotate(*views, cos, sin, ids, inter, False)
        ROTATE.rotate_(*views, cos, sin, ids, inter, False)
        for view, y, z, buffer in zip(views, found, right, buffers, strict=True):
            if not (torch.equal(y, z) and torch.equal(view, z)):
                raise AssertionError(f"another result where elements lie apart: {dtype}")
            if int(buffer.isnan().sum()) != buffer.numel() - view.numel():
                raise AssertionError("it wrote between the elements, or beside them")
    return "every second element, stored by token: the same bits, nothing written beside them"


def outside(device: torch.device) -> str:
    """Of a position without a row comes NaN, and of its neighbours nothing else than theirs."""
    q, k, cos, sin, ids = made(SHAPES[1], torch.float32, device)
    wrong = ids.clone()
    wrong[0, 1], wrong[1, 3] = ROWS, -1
    right = ROTATE.rotate(q, k, cos, sin, ids, False, False)
    for y, z in zip(ROTATE.rotate(q, k, cos, sin, wrong, False, False), right, strict=True):
        turned = y[..., : 2 * cos.shape[1]]
        if not (turned[0, :, 1].isnan().all() and turned[1, :, 3].isnan().all()):
            raise AssertionError("a position outside the tables gives numbers")
        if not torch.equal(y[0, :, 2:], z[0, :, 2:]):
            raise AssertionError("a position outside the tables changes others")
    return "NaN for a position outside the tables, and for none other"


def graph(device: torch.device) -> str:
    """A captured graph holds one launch, and its replay rotates what is put into its inputs."""
    if device.type != "cuda":
        return "left out: a graph is of a CUDA device"
    q, k, cos, sin, ids = made(SHAPES[0], torch.bfloat16, device)
    ROTATE.rotate(q, k, cos, sin, ids, False, False)
    torch.cuda.synchronize()
    captured = torch.cuda.CUDAGraph()
    with by_triton(device) as launches, torch.cuda.graph(captured):
        found = ROTATE.rotate(q, k, cos, sin, ids, False, False)
    q.normal_()
    captured.replay()
    torch.cuda.synchronize()
    right = ROTATE.rotate(q, k, cos, sin, ids, False, False)
    if len(launches) != 1 or not all(map(torch.equal, found, right)):
        raise AssertionError(f"{len(launches)} launches in the graph, or another result on replay")
    return "one launch in a captured graph, and right when it is replayed"


CHECKS: dict[str, Callable[[torch.device], str]] = {
    check.__name__: check for check in (values, heads, gradients, strides, outside, graph)
}


def check(name: str, device: torch.device) -> str:
    """The sentence of a check; "wrong: ..." where it fails, so that the others go on."""
    try:
        with by_triton(device):
            return CHECKS[name](device)
    except Exception as error:
        return f"wrong: {type(error).__name__}: {' '.join(str(error).split())[:300]}"
