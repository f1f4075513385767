"""Check the results of the baselines and of the GPU kernel before anything is timed.

The reference is z e^{i m theta_j} in complex128 (RoFormer, arXiv 2104.09864, equation 34). If the
table, products, and sum are rounded, x cos - y sin has an error of at most (1 + u)^3 - 1 times the
pair's length, where u = eps/2 (Cauchy-Schwarz). An error of delta radians in the angle adds up to
delta times the length. The kernel reads float32 tables, so it may round only a product, a sum, and
the stored result. Its limit is (1 + u)^2 (1 + v) - 1 times the length, where u = 2^-24, and v is
eps/2 for a dtype narrower than float32 and 0 for float32.

Shapes: B batch, H heads, S sequence, D head dimension, R rotated width.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import product
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from rope.book.measured.baselines import Pair, Rotate, Tables
from rope.functional import rotary_embedding, rotary_embedding_qk
from rope.kernels.formula import formula

#: The number of elements compared at once, which is limited to keep the float64 copies small.
CHUNK = 2**21
U32 = 2.0**-24


def planes(x: Tensor, interleaved: bool, width: int | None = None) -> Tensor:
    """Return the first R coordinates of x `[B, H, S, D]` as planes, complex128 `[B, H, S, R/2]`."""
    wide = x[..., :width].double()
    if interleaved:
        return torch.complex(wide[..., 0::2], wide[..., 1::2])
    return torch.complex(*wide.chunk(2, dim=-1))


def worst_share(actual: Tensor, exact: Tensor, limit: Tensor | float, dtype: torch.dtype) -> float:
    """Return the largest error divided by the allowed error. A NaN counts as infinite.

    actual, exact: planes, as `planes` returns them. limit: the allowed error as a fraction of a
    pair's length. dtype: the dtype of the vectors.
    """
    error = torch.view_as_real(actual - exact).abs().amax(-1)
    # Subnormal numbers have a fixed spacing. Always allow two steps of that size.
    floor = 2 * torch.finfo(dtype).smallest_normal * torch.finfo(dtype).eps
    shares = (error / (exact.abs() * limit + floor)).nan_to_num(torch.inf)
    return float(shares.max()) if shares.numel() else 0.0


def check_baseline(rotate: Rotate, tables: Tables, inputs: Pair) -> str:
    """Return what is wrong with a baseline's results, or "". The inputs are not changed."""
    results = rotate(*(x.clone() for x in inputs))
    complaints = [
        f"{name}: {complaint}"
        for name, actual, x in zip("qk", results, inputs, strict=True)
        if (complaint := _complaint(tables, actual, x))
    ]
    return "; ".join(complaints)


def _complaint(tables: Tables, actual: Tensor, x: Tensor) -> str:
    if actual.shape != x.shape or actual.dtype != x.dtype:
        return f"is {actual.dtype} {list(actual.shape)}, not {x.dtype} {list(x.shape)}"
    limit, interleaved = allowed(tables), tables.case.interleaved
    rows = max(1, CHUNK // (x.numel() // x.shape[2]))
    share = 0.0
    for start in range(0, x.shape[2], rows):
        part = slice(start, start + rows)
        exact = rotated(x[:, :, part], tables.angles[part], interleaved)
        result = planes(actual[:, :, part], interleaved)
        share = max(share, worst_share(result, exact, limit[part, None], x.dtype))
    return f"off by {share:.3g} times the allowed error" if share > 1 else ""


def rotated(x: Tensor, angles: Tensor, interleaved: bool) -> Tensor:
    """Return x `[B, H, S, D]` rotated by angles `[S, D/2]`: complex128 `[B, H, S, D/2]`."""
    return planes(x, interleaved) * torch.polar(torch.ones_like(angles), angles)


def allowed(tables: Tables) -> Tensor:
    """Return the error allowed at each position, float64 `[S]`, as a share of a pair's length.

    A baseline may compute in the dtype of q and k, from angles in float32. Its cosines may be
    off by two units in the last place, or four more roundings. Plane 0 has the largest angle.
    """
    unit = torch.finfo(tables.case.torch_dtype).eps / 2
    return (1 + unit) ** 7 - 1 + U32 * tables.angles[:, 0]


# The suite "correctness" calls the Triton kernel through the public functions.
DTYPES = (torch.float32, torch.bfloat16, torch.float16)
ROWS = 64  # rows in the tables
#: Sizes (B, H, H_kv, S, D, R). In this order, they test one token; unrotated coordinates; five key
#: heads, one more than a program handles; more tokens than fit in a tile; and no keys.
SHAPES = ((2, 4, 1, 1, 64, 64), (2, 3, 2, 5, 64, 20), (1, 9, 5, 7, 16, 16), (1, 2, 2, 34, 8, 8),
          (1, 3, 0, 6, 32, 32))  # fmt: skip
#: A function of one or two tensors, cos, sin, and position ids that returns rotated tensors.
RotateAll = Callable[..., Sequence[Tensor]]


def rotate_all(xs: Sequence[Tensor], *tables: Tensor | None, **flags: Any) -> Sequence[Tensor]:
    """Rotate one tensor, or q and k together, through the package's public functions."""
    arguments: tuple[Any, ...] = (*xs, *tables)
    if len(xs) == 1:
        return (rotary_embedding(*arguments, **flags),)
    return rotary_embedding_qk(*arguments, **flags)


def random_inputs(
    shape: tuple[int, ...], dtype: torch.dtype, device: torch.device
) -> tuple[list[Tensor], Tensor, Tensor, Tensor]:
    """Return seeded random [q, k] or [q], float32 cos and sin `[ROWS, R/2]`, and ids `[B, S]`."""
    batch, heads, kv_heads, length, width, rotated_width = shape
    noise = torch.Generator().manual_seed(length)
    xs = [torch.randn(batch, h, length, width, generator=noise) for h in (heads, kv_heads) if h]
    angle = torch.randn(ROWS, rotated_width // 2, generator=noise)
    ids = torch.randint(ROWS, (batch, length), generator=noise)
    cos, sin = angle.cos().to(device), angle.sin().to(device)
    return [x.to(device, dtype) for x in xs], cos, sin, ids.to(device)


def require(condition: bool, message: str) -> None:
    """Raise AssertionError with the message unless the condition holds."""
    if not condition:
        raise AssertionError(message)


def store_error(dtype: torch.dtype) -> float:
    """Return the largest relative error from rounding a float32 result to the stored dtype."""
    return 0.0 if dtype == torch.float32 else torch.finfo(dtype).eps / 2


def kernel_error(x: Tensor, y: Tensor, tables: Pair, *, interleaved: bool, inverse: bool) -> float:
    """Return the largest error of y, the rotated x, divided by the allowed error.

    tables: cos and sin for each token.
    Raises AssertionError if the quotient is above 1, if an unrotated coordinate of x changed, or if
    y is float32 and not bitwise equal to the formula's result.
    """
    width = 2 * tables[0].shape[-1]
    require(
        torch.equal(y[..., width:], x[..., width:]), "coordinates beyond the rotated width changed"
    )
    x, y, cos, sin = (t.cpu() for t in (x, y, *tables))
    sin = -sin if inverse else sin
    if x.dtype == torch.float32:
        same = torch.equal(formula(x, cos, sin, interleaved), y)
        require(same, "float32 results are not bitwise equal to the formula's")
    exact = planes(x, interleaved, width) * torch.complex(cos.double(), sin.double())
    limit = (1 + U32) ** 2 * (1 + store_error(x.dtype)) - 1
    error = worst_share(planes(y, interleaved, width), exact, limit, x.dtype)
    require(error <= 1, f"a pair is off by {error:.3g} times the allowed error")
    return error


def values(rotate: RotateAll, device: torch.device) -> str:
    """Check new and in-place results with position ids, without ids, and with tables per head."""
    worst = 0.0
    for shape, dtype, interleaved in product(SHAPES, DTYPES, (False, True)):
        xs, *tables, ids = random_inputs(shape, dtype, device)
        # Each pair holds the tokens' table rows, and the ids if the rotation looks up the rows.
        lookups = [(ids[:, None], ids), (ids[0], ids[0]), (ids[0], None)]
        if len(xs) == 1:
            per_head = torch.arange(xs[0].shape[:3].numel(), device=device) % ROWS
            lookups.append((per_head.view(xs[0].shape[:3]), None))
        for (rows, positions), inverse in product(lookups, (False, True)):
            of_tokens = tables[0][rows], tables[1][rows]
            arguments = (*(of_tokens if positions is None else tables), positions)
            flags = {"interleaved": interleaved, "inverse": inverse}
            copies = [x.clone() for x in xs]
            rotate(copies, *arguments, inplace=True, **flags)
            for x, y, z in zip(xs, rotate(xs, *arguments, **flags), copies, strict=True):
                require(torch.equal(y, z), f"the in-place result differs: {shape}, {dtype}")
                worst = max(worst, kernel_error(x, y, of_tokens, **flags))
    return f"at most {worst:.2f} of the allowed error; float32 results equal the formula's"


@contextmanager
def counted_launches() -> Iterator[list[int]]:
    """Count the kernel launches inside the `with` block; the list has one entry per launch."""
    from rope.kernels import triton as kernel

    launches: list[int] = []
    launch = kernel.launch

    def counted(*arguments: Any, **flags: Any) -> None:
        launches.append(1)
        launch(*arguments, **flags)

    with patch.object(kernel, "launch", counted):
        yield launches


def gradients(rotate: RotateAll, device: torch.device) -> str:
    """Check that gradients are rotated back, and that each pass takes a single kernel launch."""
    for dtype, interleaved in product(DTYPES, (False, True)):
        xs, *tables = random_inputs(SHAPES[2], dtype, device)
        leaves = [x.clone().requires_grad_() for x in xs]
        with counted_launches() as launches:
            results = rotate(leaves, *tables, interleaved=interleaved)
            forward = len(launches)
            grads = [torch.randn_like(y) for y in results]
            back = torch.autograd.grad(results, leaves, grads)
        counts = forward, len(launches) - forward
        require(counts == (1, 1), f"{counts[0]} forward and {counts[1]} backward launches, not 1")
        expected = rotate(grads, *tables, interleaved=interleaved, inverse=True)
        require(all(map(torch.equal, back, expected)), f"{dtype} gradients aren't rotated back")
    return "gradients are rotated back; one forward and one backward launch"


def strides(rotate: RotateAll, device: torch.device) -> str:
    """Check that strided views give right results, and that the rest of their buffers stays NaN."""
    for dtype, interleaved in product(DTYPES, (False, True)):
        xs, *tables = random_inputs(SHAPES[1], dtype, device)
        expected = rotate(xs, *tables, interleaved=interleaved)
        views, buffers = [], []
        for x in xs:
            batch, heads, length, width = x.shape
            shape = batch, length + 2, heads, 2 * width + 3  # one extra token before and after
            buffer = torch.full(shape, torch.nan, dtype=dtype, device=device)
            buffers.append(buffer)
            views.append(buffer[:, 1:-1, :, : 2 * width : 2].transpose(1, 2).copy_(x))
        results = rotate(views, *tables, interleaved=interleaved)
        require(all(map(torch.equal, results, expected)), f"strides change {dtype} results")
        rotate(views, *tables, interleaved=interleaved, inplace=True)
        require(all(map(torch.equal, views, expected)), f"strides change in-place {dtype} results")
        for view, buffer in zip(views, buffers, strict=True):
            untouched = int(buffer.isnan().sum()) == buffer.numel() - view.numel()
            require(untouched, "the kernel wrote outside the view's elements")
    return "strided views give equal results; nothing outside the views is written"


def outside(rotate: RotateAll, device: torch.device) -> str:
    """Check that a token becomes NaN if and only if its position is outside the tables."""
    xs, cos, sin, ids = random_inputs(SHAPES[1], torch.float32, device)
    wrong = ids.clone()
    wrong[0, 1], wrong[1, 3] = ROWS, -1
    expected = rotate(xs, cos, sin, ids)
    for y, z in zip(rotate(xs, cos, sin, wrong), expected, strict=True):
        planes_of_y = y[..., : 2 * cos.shape[1]]
        missing = planes_of_y[0, :, 1].isnan().all() and planes_of_y[1, :, 3].isnan().all()
        require(bool(missing), "a position outside the tables doesn't give NaN")
        require(
            torch.equal(y[0, :, 2:], z[0, :, 2:]),
            "a position outside the tables changes other tokens",
        )
    return "positions outside the tables, and no others, give NaN"


def graph(rotate: RotateAll, device: torch.device) -> str:
    """Check that a captured CUDA graph holds one launch and rotates new inputs on replay."""
    if device.type != "cuda":
        return "skipped: needs a CUDA device"
    xs, *tables = random_inputs(SHAPES[0], torch.bfloat16, device)
    rotate(xs, *tables)  # compiles the kernel
    torch.cuda.synchronize()
    captured = torch.cuda.CUDAGraph()
    with counted_launches() as launches, torch.cuda.graph(captured):
        results = rotate(xs, *tables)
    xs[0].normal_()
    captured.replay()
    torch.cuda.synchronize()
    require(len(launches) == 1, f"{len(launches)} launches in the graph, not 1")
    require(all(map(torch.equal, results, rotate(xs, *tables))), "replay returns a wrong result")
    return "a captured graph has one launch and replays correctly"


CHECKS: dict[str, Callable[[RotateAll, torch.device], str]] = {
    check.__name__: check for check in (values, gradients, strides, outside, graph)
}


def check_kernel(name: str, device: torch.device, rotate: RotateAll = rotate_all) -> str:
    """Run one check and return its summary or, if it fails, "wrong: ..." instead of raising."""
    try:
        return CHECKS[name](rotate, device)
    except Exception as error:
        return f"wrong: {type(error).__name__}: {' '.join(str(error).split())[:300]}"
