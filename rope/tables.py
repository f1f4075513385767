"""Store the tables of cosines and sines that a model uses.

See the chapters "From math to PyTorch" and "Longer than the training text". Each module stores
float32 tables for one spectrum, and makes them longer when a call needs more rows. A call that
needs another spectrum or float64 computes its own rows instead.

The tables aren't buffers, because frameworks cast, broadcast, average, and overwrite buffers. The
tables move to another device with the model; no other change affects them (see `DeviceTracking`).
To save memory, modules with the same spectrum, device, and number of rows share one pair of tables.

Shapes: B batch, H heads, S sequence, D head dimension, R rotated width, N table rows.
"""

import threading
from collections.abc import Callable
from typing import Any, Self
from weakref import WeakValueDictionary

import torch
from torch import Tensor, nn

from rope.checks import (
    check_base,
    check_count,
    check_dim,
    check_flag,
    check_floating,
    check_integer,
    is_plain,
)
from rope.extensions import Default, Extension
from rope.frequencies import float64_device, inverse_frequencies, rotary_tables
from rope.kernels.formula import rows_of
from rope.positions import check_no_negative, position_range

_CHANGING = threading.Lock()  # one for all modules, because a module with a lock can't be pickled
#: Tables grow to at most this many rows; a call with larger positions computes its own rows.
MOST_ROWS = 1 << 17
#: Maps a name, device, number of rows, scale, and spectrum to the table that has them. The entry
#: disappears when no module uses the table any longer.
_SHARED: WeakValueDictionary[Any, Tensor] = WeakValueDictionary()


class DeviceTracking(nn.Module):
    """Hold tensors that move to another device with the model or with the vectors of a call.

    A subclass sets `_tensors = _build(default_device(device))` in `__init__`. `_build` must leave
    inference mode, because tensors built in that mode can't be used in training.
    """

    _tensors: tuple[Tensor, ...]  # replaced together, so no thread sees a new cos with an old sin
    _fixed: tuple[str, ...]  # the attributes that determine the tensors

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute. Raise AttributeError if the existing tensors depend on it."""
        if name in self._fixed and name in self.__dict__:
            advice = "call fix_length" if name == "fixed_length" else "create a new module"
            raise AttributeError(
                f"{name} is fixed at {getattr(self, name)!r}; to change it, {advice}"
            )
        super().__setattr__(name, value)

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without the values of the tensors, which `__setstate__` rebuilds."""
        return {**self.__dict__, "_tensors": tuple(t.new_empty(len(t), 0) for t in self._tensors)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore the state, and rebuild the tensors on their former device."""
        super().__setstate__(state)
        self._tensors = self._build(self._tensors[0].device)

    def _build(self, device: torch.device) -> tuple[Tensor, ...]:
        """Return new tensors on the given device, with the current number of rows."""
        raise NotImplementedError

    def _move_and_store(
        self, device: torch.device, tensors: tuple[Tensor, ...]
    ) -> tuple[Tensor, ...]:
        """Return the tensors on this device. Store them too, unless it is the meta device."""
        moved = self._moved(device, tensors)
        return moved if device.type == "meta" else self._store(moved)

    def _moved(self, device: torch.device, tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        if torch.compiler.is_compiling() and not tensors[0].is_meta:
            return tuple(tensor.to(device) for tensor in tensors)
        return self._build(device)

    def _store(self, tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Return the tensors. Store them too, unless they belong to a tracer or a transform."""
        if torch.compiler.is_compiling() or all(map(is_plain, tensors)):
            self._tensors = tensors
        return tensors

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Move the tensors if the model moves to another device; ignore every other change."""
        super()._apply(fn, recurse)
        try:
            device = fn(torch.empty(0, device=self._tensors[0].device)).device
        except NotImplementedError:  # fn can't move a meta tensor, which has no data
            device = fn(torch.empty(0, device="cpu")).device
        if device != self._tensors[0].device:
            self._tensors = self._moved(device, self._tensors)
        return self


def default_device(device: torch.device | str | None) -> torch.device:
    """Return the device, or torch's default device if it is None."""
    # torch.get_default_device doesn't see `with torch.device(...)` in torch 2.6.
    return torch.empty(0, device=device).device


class RotaryTables(DeviceTracking):
    """Hold the state of a `RotaryEmbedding`. For the arguments and tables, see that class."""

    _fixed = ("dim", "base", "interleaved", "extension", "attention_scaling", "fixed_length")

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
        check_flag("interleaved", interleaved)
        self.dim, self.base, self.interleaved = dim, float(base), interleaved
        self.extension = Default() if extension is None else extension
        self.attention_scaling = self.extension.attention_scaling
        self._length_dependent = self.extension.length_dependent
        self.fixed_length: int | None = None
        self.softmax_scale = 1.0
        self._tensors = self._build(default_device(device), max_seq_len)

    @property
    def cos(self) -> Tensor:
        """Return the cosines times attention_scaling, float32 `[N, R/2]`; row m is for position m.

        Don't write to this tensor: other modules with the same spectrum share it.

        >>> RotaryTables(4, max_seq_len=3).cos[:, 0]
        tensor([ 1.0000,  0.5403, -0.4161])
        """
        return self._tensors[0]

    @property
    def sin(self) -> Tensor:
        """Return the sines, float32 `[N, R/2]`, scaled and shared like `cos`."""
        return self._tensors[1]

    @property
    def inv_freq(self) -> Tensor:
        """Return the frequencies of the tables, float64 `[R/2]`, in radians per position.

        They are on the tables' device, or on the CPU if that device doesn't support float64.

        >>> RotaryTables(4).half().inv_freq
        tensor([1.0000, 0.0100], dtype=torch.float64)
        """
        return self._frequencies(self.fixed_length, float64_device(self.cos.device))

    def fix_length(self, seq_len: int | None) -> None:
        """Make a length-dependent extension use the spectrum for seq_len in every call.

        Cached keys match later queries only if the same spectrum rotates both, so pass the longest
        length that the text will reach. The tables grow to that length (at most 131,072 rows). If
        seq_len is None, each call has its own spectrum again. Call this before several threads use
        the module. Raises ValueError or TypeError for an invalid length, before changing anything.

        >>> from rope.extensions import DynamicNTK
        >>> tables = RotaryTables(8, extension=DynamicNTK(1.0, 100))
        >>> tables.fix_length(400)
        >>> (tables.inv_freq / RotaryTables(8).inv_freq)[-1].item()
        0.25
        """
        rows = len(self.cos)
        if seq_len is not None:
            check_count("seq_len", seq_len)
            rows = max(rows, min(seq_len, MOST_ROWS))
        with _CHANGING:
            tensors = self._of_length(self.cos.device, rows, seq_len)
            self.__dict__.update(_tensors=tensors, fixed_length=seq_len)

    def grow(self, length: int) -> None:
        """Make the tables cover positions 0 ... length-1. Tables never shrink.

        If the tables must grow, the number of rows becomes a power of two. Compiled or exported
        code can't grow tables, so call this method first.
        Raises ValueError or TypeError unless length is a nonnegative int.

        >>> tables = RotaryTables(4, max_seq_len=8)
        >>> tables.grow(100)
        >>> len(tables.cos)
        128
        """
        check_count("length", length, smallest=0)
        self._grow_to(length)

    def tables_at(
        self,
        position_ids: Tensor,
        *,
        dtype: torch.dtype = torch.float32,
        seq_len: int | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Return the cosines and sines with which the layer rotates tokens at these positions.

        position_ids: integers `[S]` or `[B, S]`. dtype: the vectors' dtype; for float64 vectors,
        the tables are float64, otherwise float32. seq_len: see `RotaryEmbedding.forward`.
        Returns `[S, R/2]` or `[B, 1, S, R/2]`, which `rope.rotary_embedding` accepts without
        position_ids. Compiled code computes the rows, so positions may lie beyond the tables.
        Raises the same errors as `RotaryEmbedding.forward`.

        >>> RotaryTables(4).tables_at(torch.tensor([[0, 1]]))[1].shape
        torch.Size([1, 1, 2, 2])
        """
        check_integer("position_ids", position_ids)
        check_floating("dtype", dtype)
        if position_ids.dim() not in (1, 2):
            raise ValueError(
                f"position_ids has shape {list(position_ids.shape)}; it must be [S] or [B, S]"
            )
        length, seq_len = self._rows_and_length(position_ids, 0, seq_len)
        wide, tables = dtype == torch.float64, None
        if not (torch.compiler.is_compiling() or position_ids.is_cuda):
            tables = self._tables_for_call(length, seq_len, wide, position_ids.device)
        if tables is None:
            return self._fresh_rows(position_ids, seq_len, wide)
        cos, sin = tables
        return rows_of(cos, sin, position_ids)

    def _rows_and_length(
        self, position_ids: Tensor | None, rows: int, seq_len: int | None
    ) -> tuple[int, int | None]:
        """Return how many table rows a call needs, and the length that determines its spectrum.

        rows: the last position plus 1, used if there are no position_ids. Compiled code can't read
        ids. Eager code reads ids from a GPU only if seq_len is unknown, because the host must wait.
        """
        given = seq_len
        if seq_len is not None:
            check_count("seq_len", seq_len)
        else:
            seq_len = self.fixed_length
        if position_ids is not None:
            compiling, meta = torch.compiler.is_compiling(), position_ids.is_meta
            if compiling or meta or (position_ids.is_cuda and seq_len):
                if seq_len is None and self._length_dependent and not meta:
                    raise ValueError(
                        f"seq_len is None, but the spectrum of {self.extension} depends on "
                        "the length, which compiled code can't read from position_ids; pass "
                        "seq_len, or call fix_length first"
                    )
                return seq_len or 0, seq_len
            low, high = position_range(position_ids)
            check_no_negative("position_ids", low)
            check_count("the largest of position_ids", high, smallest=-1)  # -1 if there are no ids
            rows = high + 1
        if seq_len is None and self._length_dependent:
            seq_len = rows
        if given is not None and given < rows and self._length_dependent:
            raise ValueError(
                f"seq_len is {given}, but the largest position is {rows - 1}; seq_len determines "
                "the spectrum and must exceed all positions; pass the length of the entire text"
            )
        return rows, seq_len

    def _tables_for_call(
        self, length: int, seq_len: int | None, wide: bool, device: torch.device
    ) -> tuple[Tensor, ...] | None:
        """Return the stored tables, moved to the device and grown to `length` rows, or None.

        Returns None if the call needs another spectrum, float64 (wide is True), or too many rows.
        Compiled code can't grow the tables. Eager code grows them to at most MOST_ROWS rows.
        """
        tensors = self._tensors  # read only once, because another thread may replace them
        rows = tensors[0].shape[0]
        if wide or (length > rows and (torch.compiler.is_compiling() or length > MOST_ROWS)):
            return None
        if self._length_dependent:
            regime = self.extension.regime
            if regime(seq_len) != regime(self.fixed_length):
                return None
        if length > rows:
            tensors = self._grow_to(length)
        return tensors if tensors[0].device == device else self._move_and_store(device, tensors)

    def _grow_to(self, length: int) -> tuple[Tensor, ...]:
        """Return tables with at least `length` rows; grow them to a power of two if needed."""
        with _CHANGING:
            if length <= self.cos.shape[0]:  # another thread has grown them
                return self._tensors
            rows = 1 << (int(length) - 1).bit_length()
            return self._store(self._build(self.cos.device, rows))

    def _fresh_rows(
        self, position_ids: Tensor, seq_len: int | None, wide: bool, inverse: bool = False
    ) -> tuple[Tensor, Tensor]:
        """Return cos and sin for only these positions, with the spectrum for seq_len.

        If inverse is True, both are divided by attention_scaling instead of multiplied by it.
        """
        if torch.compiler.is_compiling():
            torch._assert_async((position_ids >= 0).all(), "position_ids must be at least 0")
        device = position_ids.device
        near = float64_device(device)
        inv_freq = self._frequencies(seq_len, near)
        dtype = torch.float64 if wide else torch.float32
        scale = 1 / self.attention_scaling if inverse else self.attention_scaling
        cos, sin = rotary_tables(position_ids.to(near), inv_freq, dtype=dtype, scale=scale)
        cos, sin = cos.to(device), sin.to(device)
        return (cos[:, None], sin[:, None]) if position_ids.dim() == 2 else (cos, sin)

    def _frequencies(self, seq_len: int | None, device: torch.device | str) -> Tensor:
        return inverse_frequencies(
            self.dim, self.base, extension=self.extension, seq_len=seq_len, device=device
        )

    def _build(self, device: torch.device, rows: int | None = None) -> tuple[Tensor, ...]:
        return self._of_length(device, len(self.cos) if rows is None else rows, self.fixed_length)

    def _of_length(
        self, device: torch.device, rows: int, seq_len: int | None
    ) -> tuple[Tensor, ...]:
        """Return cos and sin with the spectrum for seq_len, built outside inference mode."""
        with torch.inference_mode(False):
            inv_freq = self._frequencies(seq_len, "cpu")
            return _shared_tables(inv_freq, rows, self.attention_scaling, device)

    def extra_repr(self) -> str:
        """Return the settings of the tables, for `repr`."""
        names = ("dim", "base", "extension", "fixed_length", "softmax_scale", "interleaved")
        return ", ".join([f"rows={len(self.cos)}", *(f"{n}={getattr(self, n)}" for n in names)])


def _shared_tables(
    inv_freq: Tensor, rows: int, scale: float, device: torch.device
) -> tuple[Tensor, ...]:
    """Return cos and sin, float32 `[N, R/2]`, shared with every module that has equal tables.

    inv_freq: float64 `[R/2]` on the CPU, where the tables are computed before they are moved.
    """
    if torch.compiler.is_compiling() or not is_plain(inv_freq):  # don't share a tracer's tensors
        return tuple(t.to(device) for t in rotary_tables(rows, inv_freq, scale=scale))
    keys = [(name, device, rows, scale, *inv_freq.tolist()) for name in ("cos", "sin")]
    # If a table's version isn't 0, somebody has written to the table, so don't share it.
    found = [table for table in map(_SHARED.get, keys) if table is not None]
    tables = tuple(table for table in found if table._version == 0)
    if len(tables) < 2:
        if device == inv_freq.device:
            tables = rotary_tables(rows, inv_freq, scale=scale)
        else:
            on_cpu = _shared_tables(inv_freq, rows, scale, inv_freq.device)
            tables = tuple(t.to(device) for t in on_cpu)
        _SHARED.update(zip(keys, tables, strict=True))
    return tables
