"""The package's refusals: what is wrong, what is allowed, and the way out, in a sentence.

Every check runs before anything is computed or changed. Shapes and dtypes are known without
looking at data, so those checks cost nothing on an accelerator and trace under `torch.compile`.
"""

import math
from numbers import Integral, Real

import torch
from torch import Tensor

FLOATING = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
INTEGER = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


def check_count(name: str, value: int, smallest: int = 1) -> None:
    """Refuse anything but an integer that is at least `smallest`."""
    # torch.export traces a length as a SymInt, which Python does not count among the Integrals.
    if isinstance(value, bool) or not isinstance(value, (Integral, torch.SymInt)):
        raise TypeError(f"{name} is {value!r}; it must be an integer, so pass int({name})")
    if value < smallest:
        raise ValueError(f"{name} is {value}; it must be at least {smallest}, so pass a larger one")
    if not torch.compiler.is_compiling() and value > 2**53:
        raise ValueError(
            f"{name} has {int(value).bit_length()} bits; it must be at most 2**53, past which "
            "float64 skips whole numbers: pass a smaller one"
        )


def check_dim(dim: int, name: str = "dim") -> None:
    """Refuse a width that does not split into planes of two coordinates."""
    check_count(name, dim, smallest=2)
    if dim % 2:
        raise ValueError(
            f"{name} is {dim}; it must be even, since each plane takes two coordinates: "
            f"pass {dim - 1} and leave one coordinate unrotated"
        )


def check_base(base: float, name: str = "base") -> None:
    """Refuse a base that gives no positive, finite frequencies, or angles beyond float64."""
    value = _finite(name, base, "10000.0")
    # The last frequency is below 1/base; at 2^960 it leaves room for int64's positions.
    if value < 2.0**-960:
        raise ValueError(
            f"{name} is {value:g}; it must be positive and finite, and at least 1.03e-289, or "
            "angles leave float64: pass a usual one such as 10000.0"
        )


def check_number(
    name: str, value: float, *, at_least: float | None = None, above: float | None = None
) -> None:
    """Refuse what is no finite real number, or lies below `at_least`, or not `above`."""
    example = "1.0" if above is None else f"{above + 1:g}"
    if at_least is not None:
        example = f"{at_least:g}"
    number = _finite(name, value, example)
    if at_least is not None and number < at_least:
        raise ValueError(f"{name} is {value}; it must be at least {at_least:g}: pass a larger one")
    if above is not None and number <= above:
        raise ValueError(f"{name} is {value}; it must be above {above:g}: pass a larger one")


def _finite(name: str, value: float, example: str) -> float:
    """The value as a float, refused if it is no number or beyond every float."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{name} is {value!r}; it must be a real number such as {example}")
    try:
        number = float(value)
    except OverflowError:  # an integer that no float reaches
        number = math.inf
    if not -math.inf < number < math.inf:  # math.isfinite cannot be traced
        raise ValueError(f"{name} is {number:g}; it must be finite, such as {example}")
    return number


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


def check_flag(name: str, value: bool) -> None:
    """Refuse a truthy stand-in: the string "half" would otherwise mean interleaved."""
    if not isinstance(value, bool):
        raise TypeError(f"{name} is {value!r}; it must be True or False, so pass one of the two")


def check_tensor(name: str, value: Tensor) -> None:
    """Refuse what is not a tensor, such as a NumPy array or a list."""
    if not isinstance(value, Tensor):
        kind = type(value).__name__
        raise TypeError(f"{name} is a {kind}; it must be a tensor, so pass torch.as_tensor({name})")


def check_floating(name: str, tensor: Tensor) -> None:
    """Refuse what is not a tensor of float16, bfloat16, float32 or float64."""
    if not isinstance(tensor, Tensor):
        check_tensor(name, tensor)
    if tensor.dtype not in FLOATING:
        raise TypeError(
            f"{name} is {tensor.dtype}; it must be float16, bfloat16, float32 or float64: "
            f"convert it with {name}.to(torch.float32), or torch.view_as_real if it is complex"
        )


def check_float64(name: str, tensor: Tensor, maker: str = "inverse_frequencies") -> None:
    """Refuse frequencies that are not float64; `maker` makes them."""
    if not isinstance(tensor, Tensor) or tensor.dtype != torch.float64:
        what = tensor.dtype if isinstance(tensor, Tensor) else f"a {type(tensor).__name__}"
        raise TypeError(
            f"{name} is {what}; it must be a float64 tensor, or far positions get wrong angles: "
            f"take it from {maker}"
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
    """Refuse what is not an integer tensor; booleans are a mask, not positions."""
    if not isinstance(tensor, Tensor):
        kind = type(tensor).__name__
        raise TypeError(f"{name} is a {kind}; it must be an integer tensor: torch.tensor({name})")
    if tensor.dtype not in INTEGER:
        raise TypeError(
            f"{name} is {tensor.dtype}; it must be uint8, int8, int16, int32 or int64, whole "
            f"numbers: make it so from the start, or pass {name}.long() if they are whole"
        )


def check_heads(name: str, x: Tensor, rotary_dim: int) -> None:
    """Refuse vectors that are not [B, H, S, D] floating with D at least the rotated width."""
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
