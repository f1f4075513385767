"""Check the numbers and tensors that callers pass, including tensors to be rotated in place.

Callers run every check before they compute or change anything. Most checks read only a tensor's
shape and dtype, not its data. They therefore don't wait for a GPU, and work under `torch.compile`.
If Python or torch raises a clear error for a wrong argument anyway, no function here checks it.

Shapes: B batch, H heads, S sequence, D head dimension.
"""

import math
from collections.abc import Mapping
from numbers import Integral, Real

import torch
from torch import Tensor

FLOATING = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
INTEGER = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
FARTHEST = 2**53  # beyond this, float64 can't represent every integer


def check_count(name: str, value: int, smallest: int = 1) -> None:
    """Raise TypeError unless value is an integer, and ValueError unless smallest <= value <= 2**53.

    Compiled code doesn't check the upper bound, because exported programs would inherit it.
    """
    compiling = torch.compiler.is_compiling()
    if type(value) is int and not compiling and smallest <= value <= FARTHEST:
        return
    # torch.export traces a length as a SymInt, which isn't an Integral.
    if isinstance(value, bool) or not isinstance(value, (Integral, torch.SymInt)):
        raise TypeError(f"{name} is {value!r}; it must be an integer (int)")
    if value < smallest:
        raise ValueError(f"{name} is {value}; it must be at least {smallest}")
    if not compiling and value > FARTHEST:
        raise ValueError(
            f"{name} is too large ({int(value).bit_length()} bits); it must be at most 2**53, "
            "because float64 can't represent every integer beyond that"
        )


def check_dim(dim: int, name: str = "dim") -> None:
    """Raise TypeError or ValueError unless dim is an even integer, at least 2."""
    check_count(name, dim, smallest=2)
    if dim % 2:
        raise ValueError(
            f"{name} is {dim}; it must be even because each plane has two coordinates; pass "
            f"{dim - 1} to leave one coordinate unrotated"
        )


def check_number(
    name: str, value: float, *, at_least: float | None = None, above: float | None = None
) -> None:
    """Raise TypeError or ValueError unless value is a finite real number within the bounds."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{name} is {value!r}; it must be a real number (float)")
    if not -math.inf < value < math.inf:  # torch.compile can't trace math.isfinite
        raise ValueError(f"{name} is {value}; it must be finite")
    if at_least is not None and value < at_least:
        raise ValueError(f"{name} is {value}; it must be at least {at_least:g}")
    if above is not None and value <= above:
        raise ValueError(f"{name} is {value}; it must be above {above:g}")


def check_base(base: float, name: str = "base") -> None:
    """Raise TypeError or ValueError unless base is a finite number, at least 1e-9."""
    check_number(name, base, at_least=1e-9)  # with a tiny base, angles would overflow


def check_flag(name: str, value: bool) -> None:
    """Raise TypeError unless value is a bool. A string such as "half" would act as True."""
    if not isinstance(value, bool):
        raise TypeError(f"{name} is {value!r}; it must be True or False")


def check_finite(name: str, tensor: Tensor, advice: str) -> None:
    """Raise ValueError if the tensor holds NaN or infinity.

    In compiled code and on a GPU, the check is an asynchronous assertion that raises RuntimeError.
    """
    if tensor.is_meta:
        return
    finite = tensor.isfinite().all()
    if torch.compiler.is_compiling() or tensor.is_cuda:
        torch._assert_async(finite, f"{name} must be finite")
        return
    try:
        all_finite = bool(finite)
    except RuntimeError:  # a tensor that is being traced has no values
        return
    if not all_finite:
        worst = tensor[~tensor.isfinite()][0].item()
        raise ValueError(f"{name} contains {worst}; all values must be finite; {advice}")


def check_floating(name: str, dtype: torch.dtype) -> None:
    """Raise TypeError unless dtype is float16, bfloat16, float32, or float64."""
    if dtype not in FLOATING:
        raise TypeError(f"{name} is {dtype}; it must be float16, bfloat16, float32, or float64")


def check_float64(name: str, tensor: Tensor, maker: str = "inverse_frequencies") -> None:
    """Raise TypeError unless the tensor is float64. The message says to compute it with `maker`."""
    if tensor.dtype != torch.float64:
        raise TypeError(
            f"{name} is {tensor.dtype}; it must be float64, because rounded frequencies lead to "
            f"wrong angles at large positions; compute it with {maker}"
        )


def check_integer(name: str, tensor: Tensor) -> None:
    """Raise TypeError unless `tensor` is an integer tensor. A bool tensor would act as a mask."""
    if not isinstance(tensor, Tensor) or tensor.dtype not in INTEGER:
        kind = tensor.dtype if isinstance(tensor, Tensor) else f"a {type(tensor).__name__}"
        raise TypeError(
            f"{name} is {kind}; it must be a tensor of uint8, int8, int16, int32, or int64; "
            f"pass torch.as_tensor({name}).long() if it holds integers"
        )


def check_heads(name: str, x: Tensor, rotary_dim: int) -> None:
    """Raise TypeError or ValueError unless x is floating-point and 4-D, with D >= rotary_dim."""
    if not isinstance(x, Tensor):
        raise TypeError(f"{name} has type {type(x).__name__}; it must be a tensor")
    if x.dtype not in FLOATING:
        check_floating(name, x.dtype)
    if x.dim() != 4:
        raise ValueError(
            f"{name} has shape {list(x.shape)}; it must be [batch, heads, sequence, head_dim]"
        )
    if rotary_dim > x.shape[-1]:
        raise ValueError(
            f"the tables rotate {rotary_dim} coordinates, but {name} has head_dim {x.shape[-1]}; "
            f"build the tables with dim at most {x.shape[-1]}"
        )


def check_vectors(xs: Mapping[str, Tensor], rotary_dim: int) -> None:
    """Raise TypeError or ValueError unless the tensors in xs (x, or q and k) can be rotated."""
    for name, x in xs.items():
        check_heads(name, x, rotary_dim)
    if len(xs) == 2:
        check_pair(*xs.values())


def check_pair(q: Tensor, k: Tensor) -> None:
    """Raise ValueError if q and k differ in batch, sequence, head_dim, or device."""
    (batch, _, length, width), (batch_k, _, length_k, width_k) = q.shape, k.shape
    if batch != batch_k or length != length_k or width != width_k:
        raise ValueError(
            f"q has shape {list(q.shape)} and k has shape {list(k.shape)}; only the number of "
            "heads may differ; if the lengths differ, rotate q and k separately (with `rotate`)"
        )
    if q.device != k.device:
        check_devices(q=q, k=k)


def check_devices(**tensors: Tensor) -> None:
    """Raise ValueError unless all tensors are on the same device."""
    (first, reference), *others = tensors.items()
    for name, tensor in others:
        if tensor.device != reference.device:
            raise ValueError(
                f"{first} is on {reference.device} and {name} is on {tensor.device}; they must be "
                f"on the same device; move {name} with .to({first}.device)"
            )


def is_plain(tensor: Tensor) -> bool:
    """Return True if the tensor's type is exactly Tensor and torch.func doesn't wrap it."""
    return type(tensor) is Tensor and not torch._C._functorch.is_functorch_wrapped_tensor(tensor)


def check_inplace(xs: Mapping[str, Tensor], inplace: bool) -> None:
    """Raise TypeError unless inplace is a bool, and ValueError if writing into xs would go wrong.

    Elements that share memory would be rotated twice. q and k may be slices of one fused
    projection, so they may share memory unless they begin at the same address; other overlaps of
    q and k aren't found. In compiled code, the check finds only expanded tensors and q is k.
    """
    check_flag("inplace", inplace)
    compiling = torch.compiler.is_compiling()
    for name, x in xs.items():
        axes, reach = zip(x.stride(), x.shape, strict=True), 0  # reach: the last element's offset
        for stride, size in axes if compiling else sorted(axes):
            if size > 1 and stride <= reach:
                raise ValueError(
                    f"{name} overlaps itself (shape {list(x.shape)}, strides {list(x.stride())}), "
                    f"so inplace=True would rotate memory twice; pass {name}.contiguous()"
                )
            reach += 0 if compiling else stride * (size - 1)
    if len(xs) == 2:
        q, k = xs.values()
        shared = q is k
        if not compiling and is_plain(q) and is_plain(k):
            shared = shared or 0 < q.data_ptr() == k.data_ptr()
        if shared:
            raise ValueError("inplace=True rotates memory that q and k share twice; use k.clone()")
