"""Refusals of tensors, and of counts that may be traced; `rope.scalars` refuses plain numbers.

Every check runs before anything is computed or changed. Shapes and dtypes are known without
looking at data, so those checks cost nothing on an accelerator and trace under `torch.compile`.
"""

from numbers import Integral

import torch
from torch import Tensor

from rope.scalars import FARTHEST, check_whole

FLOATING = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
INTEGER = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


def check_count(name: str, value: int, smallest: int = 1) -> None:
    """Refuse anything but an integer that is at least `smallest`, or a length that is traced."""
    if type(value) is int and not torch.compiler.is_compiling() and smallest <= value <= FARTHEST:
        return  # as nearly every call has it
    # torch.export traces a length as a SymInt, which Python does not count among the Integrals;
    # a bound that the shapes did not have would narrow what the exported program takes.
    largest = None if torch.compiler.is_compiling() else FARTHEST
    check_whole(name, value, smallest, largest, kinds=(Integral, torch.SymInt))


def check_finite(what: str, tensor: Tensor, way_out: str) -> None:
    """Refuse NaN and infinity; where reading would wait, or not trace, by an assertion queued."""
    if tensor.is_meta:
        return
    finite = tensor.isfinite().all()
    if torch.compiler.is_compiling() or tensor.is_cuda:
        torch._assert_async(finite, f"{what} must be finite")
        return
    try:
        whole = bool(finite)
    except RuntimeError:  # a tracer's tensor, which holds no numbers to look at
        return
    if not whole:
        worst = tensor[~tensor.isfinite()][0].item()
        raise ValueError(f"{what} holds {worst}; all must be finite: {way_out}")


def check_floating(name: str, tensor: Tensor) -> None:
    """Refuse numbers that are not float16, bfloat16, float32 or float64."""
    if tensor.dtype not in FLOATING:
        raise TypeError(
            f"{name} is {tensor.dtype}; it must be a tensor of float16, bfloat16, float32 or "
            f"float64: convert it with {name}.to(torch.float32), or with torch.view_as_real if it "
            "is complex"
        )


def check_float64(name: str, tensor: Tensor, maker: str = "inverse_frequencies") -> None:
    """Refuse frequencies that are not float64; `maker` makes them."""
    if tensor.dtype != torch.float64:
        raise TypeError(
            f"{name} is {tensor.dtype}; it must be a float64 tensor, or far positions get wrong "
            f"angles: take it from {maker}"
        )


def check_table_dtype(dtype: torch.dtype) -> None:
    """Refuse tables of anything but floating numbers."""
    if dtype not in FLOATING:
        raise TypeError(
            f"dtype is {dtype}; it must be float16, bfloat16, float32 or float64: "
            "leave it out for float32"
        )


def is_plain(tensor: Tensor) -> bool:
    """Whether a tensor is torch's own, and no wrapper of a tracer or of torch.func."""
    return type(tensor) is Tensor and not torch._C._functorch.is_functorch_wrapped_tensor(tensor)


def check_integer(name: str, tensor: Tensor) -> None:
    """Refuse numbers that are not whole; booleans are a mask, not positions."""
    if tensor.dtype not in INTEGER:
        raise TypeError(
            f"{name} is {tensor.dtype}; it must be a tensor of uint8, int8, int16, int32 or int64, "
            f"whole numbers: make it so from the start, or pass {name}.long() if they are whole"
        )


def check_heads(name: str, x: Tensor, rotary_dim: int) -> None:
    """Refuse vectors that are not [B, H, S, D] floating with D at least the rotated width."""
    if x.dtype not in FLOATING:  # asked here too: a call of a layer counts its functions
        check_floating(name, x)
    if x.is_nested or x.layout != torch.strided:
        kind = "nested" if x.is_nested else str(x.layout)
        raise TypeError(
            f"{name} is {kind}; it must be a dense, strided tensor: rotate each part of "
            f"{name}.unbind(), or pass {name}.to_dense()"
        )
    if x.dim() != 4:
        raise ValueError(
            f"{name} has shape {list(x.shape)}; it must be [batch, heads, sequence, head_dim]: "
            "add the missing axes with unsqueeze"
        )
    if rotary_dim > x.shape[-1]:
        raise ValueError(
            f"the tables rotate {rotary_dim} coordinates but {name} has head_dim {x.shape[-1]}; "
            f"build them with dim at most {x.shape[-1]}"
        )


def check_pair(q: Tensor, k: Tensor) -> None:
    """Refuse queries and keys that differ in more than their heads, or in their device."""
    (batch, _, length, width), (batch_k, _, length_k, width_k) = q.shape, k.shape
    if batch != batch_k or length != length_k or width != width_k:
        raise ValueError(
            f"q has shape {list(q.shape)} and k {list(k.shape)}; only their heads may differ: give "
            "both the same batch, sequence and head_dim, or rotate each by itself"
        )
    if q.device != k.device:
        check_devices(q=q, k=k)


def check_devices(**tensors: Tensor) -> None:
    """Refuse tensors that do not all live on one device."""
    (first, reference), *others = tensors.items()
    for name, tensor in others:
        if tensor.device != reference.device:
            raise ValueError(
                f"{first} is on {reference.device} and {name} on {tensor.device}; they must share "
                f"a device: move {name} with .to({first}.device)"
            )
