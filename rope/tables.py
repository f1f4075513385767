"""The tables of a model: exact, on its device, long enough, and of one spectrum.

Chapters "From maths to PyTorch" and "Longer than the training text". The spectrum is that of the
extension at one length; a call for another length, or in float64, gets rows made for it alone.

Shapes: B batch, H heads, S sequence, D head dimension, R rotated width, N table rows.
"""

import threading
from collections.abc import Callable
from typing import Self

import torch
from torch import Tensor, nn

from rope._checks import (
    check_base,
    check_count,
    check_devices,
    check_dim,
    check_flag,
    check_no_negative,
    check_position_ids,
    position_range,
)
from rope.extensions import Default, Extension
from rope.frequencies import check_extension, inverse_frequencies, rotary_tables
from rope.functional import look_up

_CHANGING = threading.Lock()  # one for all: a lock of its own could not be copied or pickled


class RotaryTables(nn.Module):
    """What `RotaryEmbedding` keeps; its arguments and buffers are described there."""

    cos: Tensor
    sin: Tensor

    def __init__(
        self,
        dim: int,
        max_seq_len: int = 2048,
        base: float = 10000.0,
        *,
        extension: Extension | None = None,
        interleaved: bool = False,
        device: torch.device | str | None = None,
    ) -> None:
        super().__init__()
        check_dim(dim)
        check_base(base)
        check_count("max_seq_len", max_seq_len)
        check_extension(extension)
        check_flag("interleaved", interleaved)
        self.dim, self.base, self.interleaved = dim, float(base), interleaved
        self.extension = Default() if extension is None else extension
        self.fixed_length: int | None = None
        if device is None:
            # Unlike torch.get_default_device, this sees `with torch.device(...)` in torch 2.6 too.
            device = torch.empty(0).device
        cos, sin = self._tables(max_seq_len, device)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)

    @property
    def inv_freq(self) -> Tensor:
        """The frequencies of the tables, float64 `[R/2]`, made afresh from dim, base, extension.

        >>> RotaryTables(4).half().inv_freq
        tensor([1.0000, 0.0100], dtype=torch.float64)
        """
        return self._frequencies(self.fixed_length, self.cos.device)

    @property
    def attention_scaling(self) -> float:
        """What the extension multiplies cos and sin by; 1.0 for most.

        >>> RotaryTables(4).attention_scaling
        1.0
        """
        return self.extension.attention_scaling

    def fix_length(self, seq_len: int | None) -> None:
        """Make length-dependent extensions scale to seq_len at every call; None lets them follow.

        Keys kept in a cache fit later queries only if one length holds for all of them: the
        longest that will be reached. Call it before several threads share the module, since it
        replaces both tables. Raises ValueError or TypeError for a bad length.

        >>> from rope.extensions import DynamicNTK
        >>> tables = RotaryTables(8, extension=DynamicNTK(1.0, 100))
        >>> tables.fix_length(400)
        >>> (tables.inv_freq / RotaryTables(8).inv_freq)[-1].item()
        0.25
        """
        if seq_len is not None:
            check_count("seq_len", seq_len)
        with _CHANGING:
            self.fixed_length = seq_len
            self.cos, self.sin = self._tables(len(self.cos), self.cos.device)

    def grow(self, length: int) -> None:
        """Make the tables hold positions 0 ... length-1; they never shrink.

        length: a non-negative int; rows become the next power of two.
        Raises ValueError or TypeError for a bad length.

        >>> tables = RotaryTables(4, max_seq_len=8)
        >>> tables.grow(100)
        >>> len(tables.cos)
        128
        """
        check_count("length", length, smallest=0)
        if length <= self._held():
            return
        rows = 1 << (int(length) - 1).bit_length()
        if torch.compiler.is_compiling():  # which cannot trace a lock
            self.cos, self.sin = self._tables(rows, self.cos.device)
            return
        with _CHANGING:
            if length > self._held():  # no other thread has been here in the meantime
                self.cos, self.sin = self._tables(rows, self.cos.device)

    def rows_for(
        self,
        x: Tensor,
        position_ids: Tensor | None = None,
        *,
        offset: int = 0,
        seq_len: int | None = None,
        name: str = "x",
    ) -> tuple[Tensor, Tensor]:
        """cos and sin for each token of x `[B, H, S, D]`: `[S, R/2]` or `[B, 1, S, R/2]`.

        Arguments and errors are those of `RotaryEmbedding.forward`; name: what messages call x.

        >>> RotaryTables(4).rows_for(torch.ones(1, 1, 3, 4))[0].shape
        torch.Size([3, 2])
        """
        reads = self._check(x, position_ids, offset, seq_len)
        if self.cos.is_meta and not x.is_meta:
            # A model built on meta whose weights were then assigned: its tables never moved.
            with _CHANGING:
                self.cos, self.sin = self._tables(len(self.cos), x.device)
        check_devices(cos=self.cos, **{name: x})
        length = offset + x.shape[2]
        if position_ids is not None:
            low, high = position_range(position_ids) if reads else (0, -1)
            check_no_negative(low)
            length = high + 1
        if seq_len is None:
            seq_len = self.fixed_length
        if seq_len is None and self.extension.length_dependent:
            seq_len = length
        regime = self.extension.regime(seq_len)
        if x.dtype == torch.float64 or regime != self.extension.regime(self.fixed_length):
            return self._fresh(x, position_ids, offset, seq_len)
        self.grow(length)
        # A thread may be between replacing one table and the other; both are long enough.
        rows = self._held()
        cos, sin = self.cos[:rows], self.sin[:rows]
        if position_ids is None:
            return cos[offset:length], sin[offset:length]
        return look_up(cos, sin, position_ids, x)

    def _check(
        self, x: Tensor, position_ids: Tensor | None, offset: int, seq_len: int | None
    ) -> bool:
        """Refuse what does not fit x; whether the position ids' values can be read."""
        check_count("offset", offset, smallest=0)
        if seq_len is not None:
            check_count("seq_len", seq_len)
        if position_ids is None:
            return False
        check_position_ids(position_ids, x.shape[0], x.shape[2])
        check_devices(x=x, position_ids=position_ids)
        if offset != 0:
            raise ValueError(
                f"offset is {offset} beside position_ids, which already say where each token "
                "stands; one of the two must be left out: add the offset to the ids"
            )
        reads = not (torch.compiler.is_compiling() or position_ids.is_meta)
        unknown = seq_len is None and self.fixed_length is None
        if not reads and unknown and self.extension.length_dependent and not x.is_meta:
            raise ValueError(
                f"seq_len is None for {self.extension.name}, whose spectrum depends on the length, "
                "and compiled code does not read it from position_ids; it must be an integer: "
                "pass seq_len, or call fix_length first"
            )
        return reads

    def _fresh(
        self, x: Tensor, position_ids: Tensor | None, offset: int, seq_len: int | None
    ) -> tuple[Tensor, Tensor]:
        """Rows of another spectrum or in float64, made on x's device for these positions alone."""
        if position_ids is None:
            positions = torch.arange(offset, offset + x.shape[2], device=x.device)
        else:
            positions = position_ids.flatten()
            if torch.compiler.is_compiling():
                torch._assert_async((positions >= 0).all(), "position_ids must be at least 0")
        dtype = torch.float64 if x.dtype == torch.float64 else torch.float32
        inv_freq = self._frequencies(seq_len, x.device)
        tables = rotary_tables(positions, inv_freq, dtype=dtype, scale=self.attention_scaling)
        if position_ids is None or position_ids.dim() == 1:
            return tables
        cos, sin = (table.unflatten(0, position_ids.shape).unsqueeze(1) for table in tables)
        return cos, sin

    def _held(self) -> int:
        """How many positions both tables hold."""
        return min(self.cos.shape[0], self.sin.shape[0])

    def _frequencies(self, seq_len: int | None, device: torch.device | str) -> Tensor:
        return inverse_frequencies(
            self.dim, self.base, extension=self.extension, seq_len=seq_len, device=device
        )

    def _tables(self, rows: int, device: torch.device | str) -> tuple[Tensor, Tensor]:
        """Tables made on the CPU, so that every device holds the same bits, then moved.

        Made under inference_mode they could never again be used in training.
        """
        with torch.inference_mode(False):
            inv_freq = self._frequencies(self.fixed_length, "cpu")
            cos, sin = rotary_tables(rows, inv_freq, scale=self.attention_scaling)
            return cos.to(device), sin.to(device)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Follow device moves and ignore the rest: torch's own would also cast the tables."""
        cos, sin = self.cos, self.sin
        super()._apply(fn, recurse)
        device = self.cos.device
        if cos.is_meta and device.type != "meta":
            self.cos, self.sin = self._tables(len(cos), device)  # to_empty left them unwritten
        else:
            with torch.inference_mode(False):
                self.cos, self.sin = cos.to(device), sin.to(device)
        return self

    def extra_repr(self) -> str:
        parts = [f"dim={self.dim}", f"rows={len(self.cos)}", f"base={self.base}"]
        if self.extension != Default():
            parts.append(f"extension={self.extension}")
        if self.fixed_length is not None:
            parts.append(f"fixed_length={self.fixed_length}")
        return ", ".join([*parts, f"interleaved={self.interleaved}"])
