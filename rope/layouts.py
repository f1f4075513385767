"""Convert tensors between two orders of coordinates, the interleaved and half-split layouts.

See the chapter "Two layouts", which shows that P R^inter P^T = R^half, where P is the matrix of
`permutation`. To convert a checkpoint, permute the rows of W_q and W_k by P within each head. Leave
W_v and W_o unchanged, because RoPE doesn't rotate values.

Shapes: H heads, D head dimension, R rotated width (the first R coordinates), E embedding width.
"""

import re
from collections.abc import Mapping
from copy import copy
from fnmatch import fnmatchcase

import torch
from torch import Tensor

from rope.checks import check_dim

#: Matches names of tensors in which some rows aren't coordinates of a query or key head, such as
#: LoRA's first factor and fused projections, which also contain rows for values.
_OTHER_ROWS = re.compile(r"lora_?(a|down|embedding)|qkv|query_key_value|c_attn", re.IGNORECASE)


def permutation(dim: int, *, device: torch.device | str | None = None) -> Tensor:
    """Return indices p such that half = interleaved[..., p]. The even coordinates come first.

    Returns int64 `[dim]`. Raises ValueError if dim is odd or below 2.

    >>> permutation(6)
    tensor([0, 2, 4, 1, 3, 5])
    """
    check_dim(dim)
    return torch.arange(dim, device=device).view(-1, 2).T.flatten()


def interleaved_to_half(x: Tensor, rotary_dim: int | None = None) -> Tensor:
    """Move plane j from coordinates (2j, 2j+1) to coordinates (j, j + R/2) on the last axis.

    x: `[..., D]`. rotary_dim: R, or None if R = D. The last D - R coordinates don't move.
    Returns a new tensor. Raises ValueError if R is odd, below 2, or greater than D.

    >>> interleaved_to_half(torch.arange(6), rotary_dim=4)
    tensor([0, 2, 1, 3, 4, 5])
    """
    return _reorder(x, rotary_dim, to_half=True)


def half_to_interleaved(x: Tensor, rotary_dim: int | None = None) -> Tensor:
    """Undo `interleaved_to_half`: move plane j from coordinates (j, j + R/2) to (2j, 2j+1).

    >>> half_to_interleaved(torch.tensor([0, 2, 1, 3, 4, 5]), rotary_dim=4)
    tensor([0, 1, 2, 3, 4, 5])
    """
    return _reorder(x, rotary_dim, to_half=False)


def projection_interleaved_to_half(
    weight: Tensor, num_heads: int, rotary_dim: int | None = None
) -> Tensor:
    """Convert a query or key projection to the half-split layout, within each head.

    For the opposite direction, use `convert_state_dict`.
    weight: `[H*D, E]`, or a bias `[H*D]`. rotary_dim: R, or None if R = D.
    Returns a new tensor. Raises ValueError if the number of rows is not divisible by num_heads, or
    if R is odd or greater than D.

    >>> projection_interleaved_to_half(torch.arange(8), num_heads=2)
    tensor([0, 2, 1, 3, 4, 6, 5, 7])
    """
    return weight[interleaved_to_half(_row_numbers(weight, num_heads), rotary_dim).flatten()]


def convert_state_dict(
    state_dict: Mapping[str, Tensor],
    heads: Mapping[str, int],
    *,
    to_half: bool,
    rotary_dim: int | None = None,
) -> dict[str, Tensor]:
    """Convert the query and key projections of a checkpoint, both weights and biases.

    heads: the number of heads for each name pattern (with shell wildcards), for example
    {"*.q_proj.*": 32, "*.k_proj.*": 8}. Omit W_v and W_o. Some models have norm weights `[D]` for
    each head, such as Qwen3's q_norm and k_norm; include these with 1 head.
    to_half: True converts interleaved to half-split, False converts half-split to interleaved.
    rotary_dim: R, or None if R = D. If D differs between heads, call the function once for each D.
    Returns a new dict in the same order. Tensors whose names match no pattern are unchanged.
    Raises ValueError if a pattern matches no name, two patterns match the same name, or heads
    differ in width, for example because the number of key heads is wrong. Also raises ValueError
    for fused projections (split them first), LoRA's first factor, and quantized weights.

    >>> converted = convert_state_dict(
    ...     {"q.weight": torch.arange(8), "v.weight": torch.arange(8)}, {"q.*": 2}, to_half=True
    ... )
    >>> converted["q.weight"].tolist(), converted["v.weight"].tolist()
    ([0, 2, 1, 3, 4, 6, 5, 7], [0, 1, 2, 3, 4, 5, 6, 7])
    """
    reorder = interleaved_to_half if to_half else half_to_interleaved
    # copy() keeps the `_metadata` attribute of a module's state dict.
    converted = copy(state_dict) if isinstance(state_dict, dict) else dict(state_dict)
    widths: dict[str, int] = {}
    for pattern, num_heads in heads.items():
        names = [name for name in state_dict if fnmatchcase(name, pattern)]
        if not names:
            raise ValueError(
                f"pattern {pattern!r} matches none of the {len(state_dict)} tensor names; correct "
                "the pattern or remove it"
            )
        for name in names:
            if name in widths:
                raise ValueError(
                    f"{name!r} matches {pattern!r} and an earlier pattern, so it would be "
                    "converted twice; make one pattern narrower"
                )
            tensor = state_dict[name]
            _check_rows(name, tensor)
            try:
                rows = reorder(_row_numbers(tensor, num_heads), rotary_dim)
            except ValueError as error:
                raise ValueError(f"{name!r}: {error}") from None
            converted[name] = tensor[rows.flatten()]
            widths[name] = len(tensor) // num_heads
    if len(set(widths.values())) > 1:
        raise ValueError(
            f"the heads have widths {sorted(set(widths.values()))}; all widths must be equal; "
            "correct the numbers of heads (there are often fewer key heads than query heads), or "
            "call convert_state_dict once for each width"
        )
    return converted


def _check_rows(name: str, tensor: Tensor) -> None:
    """Raise ValueError unless each row of the tensor appears to be a coordinate of a head."""
    plain = name.rpartition(".")[2] in ("weight", "bias") and not _OTHER_ROWS.search(name)
    if not plain or tensor.element_size() == 1 or tensor.dtype == torch.int32:
        raise ValueError(
            f"{name!r} is fused, low-rank, or quantized; it must be a plain weight or bias with "
            "one row per coordinate; split a fused tensor first, convert weights before quantizing "
            "them, or use projection_interleaved_to_half yourself"
        )


def _reorder(x: Tensor, rotary_dim: int | None, *, to_half: bool) -> Tensor:
    """Reorder the first R coordinates of x `[..., D]` to half-split, or back to interleaved."""
    width = x.shape[-1] if rotary_dim is None else rotary_dim
    check_dim(width, "the width of x" if rotary_dim is None else "rotary_dim")
    if width > x.shape[-1]:
        raise ValueError(f"rotary_dim is {width}; it must be at most the width of x, {x.shape[-1]}")
    order = permutation(width, device=x.device)
    order = order if to_half else order.argsort()
    return torch.cat((x[..., :width][..., order], x[..., width:]), dim=-1)


def _row_numbers(weight: Tensor, num_heads: int) -> Tensor:
    """Return the indices of a projection's rows as `[H, D]`, one row of indices per head."""
    if weight.dim() not in (1, 2) or weight.shape[0] % num_heads:
        raise ValueError(
            f"weight has shape {list(weight.shape)}; it must be [H*D, E] or [H*D] with "
            f"H = {num_heads} heads"
        )
    return torch.arange(weight.shape[0], device=weight.device).view(num_heads, -1)
