"""The tables of a model: exact, on its device, long enough, and of one spectrum.

Chapters "From maths to PyTorch" and "Longer than the training text". The spectrum is that of the
extension at one length; a call for another length, or in float64, gets rows made for it alone.

The tables are no buffers. What is a buffer is cast, broadcast, averaged, and written over with
uninitialised memory by the frameworks that load and train models; these follow the device alone.

Shapes: B batch, H heads, S sequence, D head dimension, R rotated width, N table rows.
"""

import threading
from collections.abc import Callable
from typing import Self

import torch
from torch import Tensor, nn

from rope._turn import look_up
from rope.checks import (
    check_base,
    check_count,
    check_devices,
    check_dim,
    check_flag,
    check_no_negative,
    check_offset,
    check_position_ids,
    is_plain,
    position_range,
)
from rope.extensions import Default, Extension
from rope.frequencies import check_extension, inverse_frequencies, rotary_tables

_CHANGING = threading.Lock()  # one for all: a lock of its own could not be copied or pickled
_MOST_ROWS = 1 << 17  # that a call makes the tables grow to; farther rows are made for it alone


class RotaryTables(nn.Module):
    """What `RotaryEmbedding` keeps; its arguments and tables are described there."""

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
        self.softmax_scale = 1.0
        if device is None:
            # Unlike torch.get_default_device, this sees `with torch.device(...)` in torch 2.6 too.
            device = torch.empty(0).device
        # One attribute, replaced whole: no thread sees one new table beside one old.
        self._tables = self._made(max_seq_len, device)

    @property
    def cos(self) -> Tensor:
        """The cosines, float32 `[N, R/2]`: row m for position m, times the attention scaling.

        >>> RotaryTables(4, max_seq_len=3).cos[:, 0]
        tensor([ 1.0000,  0.5403, -0.4161])
        """
        return self._tables[0]

    @property
    def sin(self) -> Tensor:
        """The sines, as `cos`.

        >>> RotaryTables(4, max_seq_len=3).sin[:, 0]
        tensor([0.0000, 0.8415, 0.9093])
        """
        return self._tables[1]

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
            self._tables = self._made(len(self.cos), self.cos.device)

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
        if length > len(self.cos):
            self._grown(length)

    def rows_for(
        self,
        x: Tensor,
        position_ids: Tensor | None = None,
        *,
        offset: int = 0,
        seq_len: int | None = None,
    ) -> tuple[Tensor, Tensor]:
        """cos and sin for each token of x `[B, H, S, D]`: `[S, R/2]` or `[B, 1, S, R/2]`.

        Arguments and errors are those of `RotaryEmbedding.forward`. What comes back may be views of
        the tables themselves: not to be written into.

        >>> RotaryTables(4).rows_for(torch.ones(1, 1, 3, 4))[0].shape
        torch.Size([3, 2])
        """
        cos, sin, rows, checked = self._tables_for(x, position_ids, offset, seq_len)
        return (cos, sin) if rows is None else look_up(cos, sin, rows, checked)

    def _tables_for(
        self, x: Tensor, position_ids: Tensor | None, offset: int, seq_len: int | None
    ) -> tuple[Tensor, Tensor, Tensor | None, bool]:
        """Tables; the positions to look up in them, None if done; whether those were checked."""
        self._check(x, position_ids, offset, seq_len)
        known = self.fixed_length if seq_len is None else seq_len
        reads = _reads(position_ids, known)
        length = offset + x.shape[2]
        if position_ids is not None and reads:
            low, high = position_range(position_ids)
            check_no_negative(low)
            length = high + 1
        elif position_ids is not None:
            self._check_length_known(known, x)
            length = 0 if known is None else known
        if known is None and self.extension.length_dependent:
            known = length
        other = self.extension.regime(known) != self.extension.regime(self.fixed_length)
        rows = len(self.cos)
        if other or x.dtype == torch.float64 or length > max(rows, _MOST_ROWS):
            return *self._fresh(x, position_ids, offset, known), None, True
        cos, sin = self._at(x.device, self._grown(length) if length > rows else self._tables)
        if position_ids is None:
            return cos[offset:length], sin[offset:length], None, True
        return cos, sin, position_ids, reads

    def _check(
        self, x: Tensor, position_ids: Tensor | None, offset: int, seq_len: int | None
    ) -> None:
        """Refuse what does not fit x."""
        check_offset(offset, position_ids)
        if seq_len is not None:
            check_count("seq_len", seq_len)
        if position_ids is None:
            return
        check_position_ids(position_ids, x.shape[0], x.shape[2])
        check_devices(x=x, position_ids=position_ids)

    def _check_length_known(self, seq_len: int | None, x: Tensor) -> None:
        """Refuse to guess the length that decides on the spectrum."""
        if seq_len is None and self.extension.length_dependent and not x.is_meta:
            raise ValueError(
                f"seq_len is None for {self.extension.name}, whose spectrum depends on the length, "
                "and compiled code does not read it from position_ids; it must be an integer: "
                "pass seq_len, or call fix_length first"
            )

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

    def _at(self, device: torch.device, tables: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        """The tables on the device of a call; they stay there, unless it is meta."""
        if tables[0].device == device:
            return tables
        moved = self._moved(tables, device)
        return moved if device.type == "meta" else self._kept(moved)

    def _grown(self, length: int) -> tuple[Tensor, Tensor]:
        """Tables for at least `length` positions, the next power of two, on their device."""
        rows = 1 << (int(length) - 1).bit_length()
        if torch.compiler.is_compiling():  # which cannot trace a lock
            return self._kept(self._made(rows, self.cos.device))
        with _CHANGING:
            if length <= len(self.cos):  # another thread has been here in the meantime
                return self._tables
            return self._kept(self._made(rows, self.cos.device))

    def _kept(self, tables: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        """Keep tables, unless they belong to a tracer or a transform, and would outlive it."""
        if torch.compiler.is_compiling() or all(map(is_plain, tables)):
            self._tables = tables
        return tables

    def _frequencies(self, seq_len: int | None, device: torch.device | str) -> Tensor:
        return inverse_frequencies(
            self.dim, self.base, extension=self.extension, seq_len=seq_len, device=device
        )

    def _made(self, rows: int, device: torch.device | str) -> tuple[Tensor, Tensor]:
        """Tables made on the CPU, so that every device holds the same bits, then moved.

        Made under inference_mode they could never again be used in training.
        """
        with torch.inference_mode(False):
            inv_freq = self._frequencies(self.fixed_length, "cpu")
            cos, sin = rotary_tables(rows, inv_freq, scale=self.attention_scaling)
            return cos.to(device), sin.to(device)

    def _moved(self, tables: tuple[Tensor, Tensor], device: torch.device) -> tuple[Tensor, Tensor]:
        cos, sin = tables
        if cos.is_meta:  # built there: what it holds is a shape
            return self._made(len(cos), device)
        with torch.inference_mode(False):
            return cos.to(device), sin.to(device)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Follow moves to another device; a cast, or any other change, does not reach tables."""
        super()._apply(fn, recurse)
        device = fn(torch.empty(0, device=self.cos.device)).device
        if device != self.cos.device:
            self._tables = self._moved(self._tables, device)
        return self

    def extra_repr(self) -> str:
        parts = [f"dim={self.dim}", f"rows={len(self.cos)}", f"base={self.base}"]
        if self.extension != Default():
            parts.append(f"extension={self.extension}")
        if self.fixed_length is not None:
            parts.append(f"fixed_length={self.fixed_length}")
        if self.softmax_scale != 1:
            parts.append(f"softmax_scale={self.softmax_scale:.6g}")
        return ", ".join([*parts, f"interleaved={self.interleaved}"])


def _reads(position_ids: Tensor | None, seq_len: int | None) -> bool:
    """Whether the largest position is read. It costs a GPU a wait, which a known length saves."""
    if position_ids is None or torch.compiler.is_compiling() or position_ids.is_meta:
        return False
    return seq_len is None or not position_ids.is_cuda
