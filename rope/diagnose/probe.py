"""Call an unknown rotation on copies of its inputs, and distinguish its exceptions from ours.

The vectors are exact in every dtype. Most have entries ±1 and therefore the same length, so a
norm before the rotation multiplies all of them by the same factor.

Shapes: B batch, H heads, S sequence, D head dimension.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from rope.checks import FLOATING

Pair = tuple[Tensor, Tensor]
WIDEST_FIRST = (torch.float64, torch.float32, torch.bfloat16, torch.float16)


class CallError(Exception):
    """Signal that the function under examination raised an exception."""


@dataclass
class Probe:
    """A wrapper that calls the function under examination and records its side effects.

    rotate, device: as in `diagnose`. heads: `(H, H_kv)`. dtype: the default dtype of the vectors
    passed to rotate. changed: the names of the inputs that rotate overwrote. returned: maps each
    dtype passed to rotate to the dtype of the result.
    """

    rotate: Callable[..., Any]
    head_dim: int
    heads: tuple[int, int]
    dtype: torch.dtype
    device: torch.device | str | None
    changed: set[str] = field(default_factory=set)
    returned: dict[torch.dtype, torch.dtype] = field(default_factory=dict)

    def vectors(self, tokens: int, seed: int = 0, signs: bool = True) -> Pair:
        """Return random q `[1, H, S, D]` and k `[1, H_kv, S, D]`: signs ±1, or normal numbers."""
        noise = torch.Generator().manual_seed(seed)
        shapes = [(1, heads, tokens, self.head_dim) for heads in self.heads]
        q, k = (torch.randn(shape, generator=noise, dtype=torch.float64) for shape in shapes)
        return (q.sign(), k.sign()) if signs else ((32 * q).round() / 32, (32 * k).round() / 32)

    def __call__(self, x: Pair, position_ids: Any, dtype: torch.dtype | None = None) -> Pair:
        """Rotate x at position_ids `[S]` or `[B, S]`; return float64 results on the CPU.

        Raises CallError if rotate fails, and ValueError unless it returns a pair with x's shapes.
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
            raise CallError(f"{type(error).__name__}: {message}") from error
        pair = result if isinstance(result, (tuple, list)) else [result]
        valid = [y for y in pair if isinstance(y, Tensor) and y.dtype in FLOATING and not y.is_meta]
        if len(valid) != len(pair) or [y.shape for y in valid] != [y.shape for y in x]:
            kinds = [f"{y.dtype} {list(y.shape)}" if torch.is_tensor(y) else repr(y) for y in pair]
            raise ValueError(
                f"rotate returned {' and '.join(kinds)}; it must return a pair of floating-point "
                f"tensors, q {list(x[0].shape)} and k {list(x[1].shape)}, not on the meta device. "
                "Wrap it in a function that does"
            )
        self.returned[dtype] = pair[0].dtype if pair[0].dtype != dtype else pair[1].dtype
        y, z = (y.detach().to("cpu", torch.float64, copy=True) for y in pair)
        return y, z

    @property
    def eps(self) -> float:
        """Return the machine epsilon of the dtype that rotate returns."""
        return float(torch.finfo(self.returned.get(self.dtype, self.dtype)).eps)
