"""Interleaved and half-split: one rotation in two orders of the coordinates.

Chapter "Two layouts": P R^inter P^T = R^half, with P the permutation below. Converting the rows
of W_q and W_k by P converts a checkpoint; W_v and W_o see no rotation and stay.

Shapes: H heads, D head dimension, R rotated width (the first R of D), E embedding width.
"""

import re
from collections.abc import Mapping
from copy import copy
from fnmatch import fnmatchcase

import torch
from torch import Tensor

from rope.checks import check_count
from rope.scalars import check_dim

_RANKS = re.compile(r"lora_?(a|down|embedding)", re.IGNORECASE)  # LoRA's first factor
_FUSED = re.compile(r"qkv|query_key_value|c_attn", re.IGNORECASE)  # values among the rows


def permutation(dim: int, *, device: torch.device | str | None = None) -> Tensor:
    """The index p with half = interleaved[..., p]: even coordinates first, then odd ones.

    Returns int64 `[dim]`. Raises ValueError for a dim that is odd or below 2.

    >>> permutation(6)
    tensor([0, 2, 4, 1, 3, 5])
    """
    check_dim(dim)
    return torch.arange(dim, device=device).view(-1, 2).T.flatten()


def interleaved_to_half(x: Tensor, rotary_dim: int | None = None) -> Tensor:
    """Move plane j from coordinates (2j, 2j+1) to (j, j + R/2) on the last axis.

    x: `[..., D]` of any dtype; rotary_dim: R, all of D when None; the rest stays in place.
    Returns a new tensor. Raises ValueError for an odd R or one wider than D.

    >>> interleaved_to_half(torch.arange(6), rotary_dim=4)
    tensor([0, 2, 1, 3, 4, 5])
    """
    return _reorder(x, rotary_dim, to_half=True)


def half_to_interleaved(x: Tensor, rotary_dim: int | None = None) -> Tensor:
    """Move plane j from coordinates (j, j + R/2) to (2j, 2j+1): undoes `interleaved_to_half`.

    >>> half_to_interleaved(torch.tensor([0, 2, 1, 3, 4, 5]), rotary_dim=4)
    tensor([0, 1, 2, 3, 4, 5])
    """
    return _reorder(x, rotary_dim, to_half=False)


def projection_interleaved_to_half(
    weight: Tensor, num_heads: int, rotary_dim: int | None = None
) -> Tensor:
    """Convert a query or key projection, head by head, to the half-split layout.

    weight: `[H*D, E]`, or a bias `[H*D]`; rotary_dim: R, all of D when None.
    Returns a new tensor; the input is not changed.
    Raises ValueError when the rows do not divide into num_heads heads, or R does not fit D.

    >>> projection_interleaved_to_half(torch.arange(8), num_heads=2)
    tensor([0, 2, 1, 3, 4, 6, 5, 7])
    """
    return weight[interleaved_to_half(_row_numbers(weight, num_heads), rotary_dim).flatten()]


def projection_half_to_interleaved(
    weight: Tensor, num_heads: int, rotary_dim: int | None = None
) -> Tensor:
    """Convert a query or key projection to the interleaved layout: the way back.

    Shapes and errors are those of `projection_interleaved_to_half`.

    >>> projection_half_to_interleaved(torch.tensor([0, 2, 1, 3, 4, 6, 5, 7]), num_heads=2)
    tensor([0, 1, 2, 3, 4, 5, 6, 7])
    """
    return weight[half_to_interleaved(_row_numbers(weight, num_heads), rotary_dim).flatten()]


def convert_state_dict(
    state_dict: Mapping[str, Tensor],
    heads: Mapping[str, int],
    *,
    to_half: bool,
    rotary_dim: int | None = None,
) -> dict[str, Tensor]:
    """Convert the query and key projections of a whole checkpoint, weights and biases alike.

    heads: the number of heads of each projection by a pattern of its name, with the shell's
    wildcards, such as {"*.q_proj.*": 32, "*.k_proj.*": 8}; W_v and W_o belong in none. The weights
    of norms within a head, `[D]`, such as Qwen3's q_norm and k_norm, belong there with 1 head.
    to_half: from interleaved to half-split, or else back; rotary_dim: R, all of D when None.
    One call converts heads of one width, by which a wrong number of heads is seen; where a model's
    layers differ in D, each width has a call of its own. A fused projection is split first.
    Returns a new dict in the same order; what no pattern names is the same tensor as before.
    Raises ValueError for a pattern that names nothing, a name that two patterns claim, a tensor
    whose rows do not divide into that many heads, or are none: LoRA's first factor (its second is
    converted), fused projections and quantised numbers; and for heads that differ in width, as key
    heads counted as queries do. Nothing is then converted.

    >>> converted = convert_state_dict(
    ...     {"q.weight": torch.arange(8), "v.weight": torch.arange(8)}, {"q.*": 2}, to_half=True
    ... )
    >>> converted["q.weight"].tolist(), converted["v.weight"].tolist()
    ([0, 2, 1, 3, 4, 6, 5, 7], [0, 1, 2, 3, 4, 5, 6, 7])
    """
    convert = projection_interleaved_to_half if to_half else projection_half_to_interleaved
    claimed: dict[str, str] = {}
    for pattern, num_heads in heads.items():
        check_count(f"heads[{pattern!r}]", num_heads)
        names = [name for name in state_dict if fnmatchcase(name, pattern)]
        if not names:
            raise ValueError(
                f"pattern {pattern!r} names none of the {len(state_dict)} tensors, such as "
                f"{next(iter(state_dict), 'none at all')!r}; it must name one at least: correct or "
                "leave it out"
            )
        for name in names:
            if name in claimed:
                raise ValueError(
                    f"{name!r} fits {claimed[name]!r} and {pattern!r}; it must fit one pattern, or "
                    "it would be converted twice: make one of them narrower"
                )
            claimed[name] = pattern
            _check_convertible(name, state_dict[name])
    # With its metadata, where it came from a module.
    converted = copy(state_dict) if isinstance(state_dict, dict) else dict(state_dict)
    for name, pattern in claimed.items():
        try:
            converted[name] = convert(state_dict[name], heads[pattern], rotary_dim)
        except (TypeError, ValueError) as error:
            raise type(error)(f"{name!r}: {error}") from None
    widths = {len(state_dict[name]) // heads[pattern]: name for name, pattern in claimed.items()}
    if len(widths) > 1:
        (width, name), (other_width, other), *_ = widths.items()
        raise ValueError(
            f"{name!r} has {heads[claimed[name]]} heads of {width} and {other!r} "
            f"{heads[claimed[other]]} of {other_width}; all in one call must have one width: "
            "correct the number of heads (keys often have fewer than queries), or convert heads of "
            "another width in another call"
        )
    return converted


def _check_convertible(name: str, tensor: Tensor) -> None:
    """Refuse what has no row for each coordinate of a head."""
    if _RANKS.search(name):
        raise ValueError(
            f"{name!r} has ranks for rows, not coordinates of heads; it must stay as it is: name "
            "the weights, and LoRA's second factor, alone"
        )
    if _FUSED.search(name):
        raise ValueError(
            f"{name!r} holds the values' rows too, which stay; it must be split: convert the rows "
            "of queries and of keys by projection_interleaved_to_half, and join all three again"
        )
    plain = name.rpartition(".")[2] in ("weight", "bias")
    if not plain or tensor.element_size() == 1 or tensor.dtype == torch.int32:
        raise ValueError(
            f"{name!r} is no plain weight or bias: it is called otherwise, or its numbers are "
            "quantised, and scales would have to follow; it must be a row for each coordinate: "
            "convert before quantising, or convert this one by projection_interleaved_to_half"
        )


def _reorder(x: Tensor, rotary_dim: int | None, *, to_half: bool) -> Tensor:
    """x with the first R coordinates permuted."""
    if x.dim() == 0:
        raise ValueError("x has no axes; its last one must hold the coordinates: pass a vector")
    width = x.shape[-1] if rotary_dim is None else rotary_dim
    check_dim(width, "the last axis of x" if rotary_dim is None else "rotary_dim")
    if width > x.shape[-1]:
        raise ValueError(
            f"rotary_dim is {width}; x has {x.shape[-1]} coordinates: pass at most that many"
        )
    order = permutation(width, device=x.device)
    order = order if to_half else order.argsort()
    return torch.cat((x[..., :width][..., order], x[..., width:]), dim=-1)


def _row_numbers(weight: Tensor, num_heads: int) -> Tensor:
    """The row numbers of a projection, one head a row: `[H, D]`."""
    check_count("num_heads", num_heads)
    if weight.dim() not in (1, 2) or weight.shape[0] % num_heads:
        raise ValueError(
            f"weight has shape {list(weight.shape)}; it must be [H*D, E] or [H*D] with "
            f"H = {num_heads}: pass the number of heads of this projection"
        )
    return torch.arange(weight.shape[0], device=weight.device).view(num_heads, -1)
