"""Calling a rotation that we do not know: on copies, in the widest dtype, with refusals kept apart.

Probing vectors are exact in every dtype. Most have entries ±1, and so one norm: whatever normalises
them first multiplies them all alike.

Shapes: B batch, H heads, S sequence, D head dimension.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from rope.checks import FLOATING

Pair = tuple[Tensor, Tensor]
WIDEST_FIRST = (torch.float64, torch.float32, torch.bfloat16, torch.float16)


class Refusal(Exception):
    """The callable raised: for these arguments there is no answer."""


class Probe:
    """A callable under examination, and what was noticed on the way.

    rotate, heads `(H, H_kv)`, device: as `diagnose` has them; dtype: of the tensors given to it.
    changed: which of its inputs it wrote to; returned: the dtypes that came back, by the one given.
    """

    def __init__(
        self,
        rotate: Callable[..., Any],
        head_dim: int,
        heads: tuple[int, int],
        dtype: torch.dtype,
        device: torch.device | str | None,
    ) -> None:
        self.rotate, self.head_dim, self.heads = rotate, head_dim, heads
        self.dtype, self.device = dtype, device
        self.changed: set[str] = set()
        self.returned: dict[torch.dtype, torch.dtype] = {}

    def vectors(self, tokens: int, seed: int = 0, signs: bool = True) -> Pair:
        """Queries `[1, H, S, D]` and keys `[1, H_kv, S, D]` of ±1, or normal ones; seeded."""
        noise = torch.Generator().manual_seed(seed)
        shapes = [(1, heads, tokens, self.head_dim) for heads in self.heads]
        q, k = (torch.randn(shape, generator=noise, dtype=torch.float64) for shape in shapes)
        return (q.sign(), k.sign()) if signs else ((32 * q).round() / 32, (32 * k).round() / 32)

    def __call__(self, x: Pair, position_ids: Any, dtype: torch.dtype | None = None) -> Pair:
        """What it makes of x at these positions `[S]` or `[B, S]`, in float64 on the CPU.

        Raises Refusal where it raises, ValueError where it returns something else.
        """
        dtype = dtype or self.dtype
        ids = torch.atleast_2d(torch.as_tensor(position_ids, dtype=torch.int64))
        arguments = {"q": x[0].to(dtype), "k": x[1].to(dtype), "position_ids": ids}
        try:
            copies = [value.to(self.device, copy=True) for value in arguments.values()]
            with torch.no_grad():
                result = self.rotate(*copies)
            for (name, value), copy in zip(arguments.items(), copies, strict=True):
                self.changed |= set() if torch.equal(value, copy.cpu()) else {name}
        except Exception as error:
            message = " ".join(str(error).split())[:200]
            raise Refusal(f"{type(error).__name__}: {message}") from error
        pair = result if isinstance(result, (tuple, list)) else [result]
        taken = [y for y in pair if isinstance(y, Tensor) and y.dtype in FLOATING and not y.is_meta]
        if len(taken) != len(pair) or [y.shape for y in taken] != [y.shape for y in x]:
            kinds = [f"{y.dtype} {list(y.shape)} on {y.device}" for y in pair if torch.is_tensor(y)]
            kinds += [f"a {type(y).__name__}" for y in pair if not torch.is_tensor(y)]
            raise ValueError(
                f"rotate returned {' and '.join(kinds) or 'nothing'}; it must return the pair "
                f"(q, k), floating, of {list(x[0].shape)} and {list(x[1].shape)}, and not on meta: "
                "wrap it in a function that transposes, and keeps no keys of earlier calls"
            )
        self.returned[dtype] = pair[0].dtype if pair[0].dtype != dtype else pair[1].dtype
        y, z = (y.detach().to("cpu", torch.float64, copy=True) for y in pair)
        return y, z

    def long(self, x: Pair, ids: list[int]) -> Pair:
        """A call of many tokens; where so many are refused, halves, each with the last token."""
        try:
            return self(x, ids)
        except Refusal:
            if len(ids) < 16:
                raise
        parts, middle = [], len(ids) // 2
        for part in (slice(middle), slice(middle, None)):
            q, k = (torch.cat((y[:, :, part], y[:, :, -1:]), dim=2) for y in x)
            y, z = self.long((q, k), [*ids[part], ids[-1]])
            parts.append((y[:, :, :-1], z[:, :, :-1]))
        y, z = (torch.cat(halves, dim=2) for halves in zip(*parts, strict=True))
        return y, z

    @property
    def eps(self) -> float:
        """The spacing of the numbers that come back."""
        return float(torch.finfo(self.returned.get(self.dtype, self.dtype)).eps)
