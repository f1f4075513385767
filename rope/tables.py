"""The tables of a model: exact, on its device, long enough, and of one spectrum.

Chapters "From maths to PyTorch" and "Longer than the training text". The spectrum is that of the
extension at one length; a call for another length, or in float64, gets rows made for it alone.

The tables are no buffers; they follow the device alone (`rope.following`). Modules of one spectrum
on one device share them: a model of 32 layers holds one pair, not 32, and no pickle holds any.

Shapes: B batch, H heads, S sequence, D head dimension, R rotated width, N table rows.
"""

import threading
from typing import Any
from weakref import WeakValueDictionary

import torch
from torch import Tensor

from rope.checks import check_count, check_integer, check_table_dtype, is_plain
from rope.extensions import Default, Extension
from rope.following import Following, default_device
from rope.frequencies import check_extension, inverse_frequencies, rotary_tables, table_dtype
from rope.kernels.operator import rows_of
from rope.positions import check_no_negative, ids_or_start, position_range
from rope.scalars import check_base, check_dim, check_flag

_CHANGING = threading.Lock()  # one for all: a lock of its own could not be copied or pickled
#: Rows that tables grow to by themselves; for a call that goes farther they are made alone.
MOST_ROWS = 1 << 17
#: By name, device, rows, scale and spectrum; an entry goes with the last module that holds it.
_SHARED: WeakValueDictionary[Any, Tensor] = WeakValueDictionary()


class RotaryTables(Following):
    """What `RotaryEmbedding` keeps; its arguments and tables are described there."""

    _fixed = ("dim", "base", "interleaved", "extension", "fixed_length")

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
        self._length_dependent = self.extension.length_dependent  # asked at every call
        self.fixed_length: int | None = None
        self.softmax_scale = 1.0
        self._kept = self._build(default_device(device), max_seq_len)

    @property
    def cos(self) -> Tensor:
        """The cosines, float32 `[N, R/2]`: row m for position m, times the attention scaling.

        Other modules may hold the same tensor: not to be written to.

        >>> RotaryTables(4, max_seq_len=3).cos[:, 0]
        tensor([ 1.0000,  0.5403, -0.4161])
        """
        return self._kept[0]

    @property
    def sin(self) -> Tensor:
        """The sines, as `cos`.

        >>> RotaryTables(4, max_seq_len=3).sin[:, 0]
        tensor([0.0000, 0.8415, 0.9093])
        """
        return self._kept[1]

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
        longest that will be reached, to which the tables grow. Call it before several threads share
        the module, since it replaces both. Raises ValueError or TypeError for a bad length; nothing
        is then changed.

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
            kept = self._of_length(self.cos.device, rows, seq_len)
            self.__dict__.update(_kept=kept, fixed_length=seq_len)

    def grow(self, length: int) -> None:
        """Make the tables hold positions 0 ... length-1; they never shrink.

        length: a non-negative int; rows become the next power of two. Code under `torch.compile`
        and `torch.export` does not grow them: do it before.
        Raises ValueError or TypeError for a bad length.

        >>> tables = RotaryTables(4, max_seq_len=8)
        >>> tables.grow(100)
        >>> len(tables.cos)
        128
        """
        check_count("length", length, smallest=0)
        self._kept_rows(length, self.cos.device)

    def tables_at(
        self,
        position_ids: Tensor,
        *,
        dtype: torch.dtype = torch.float32,
        seq_len: int | None = None,
    ) -> tuple[Tensor, Tensor]:
        """cos and sin of these positions, as a call with them has: for code that rotates itself.

        position_ids: integers `[S]` or `[B, S]`; dtype: that of the vectors, whose tables are
        float32, float64 for float64; seq_len: as in `RotaryEmbedding`.
        Returns `[S, R/2]` or `[B, 1, S, R/2]`, which `rope.rotary_embedding` takes. Compiled code
        makes them for these positions alone, however far. Raises as a call does.

        >>> RotaryTables(4).tables_at(torch.tensor([[0, 1]]))[1].shape
        torch.Size([1, 1, 2, 2])
        """
        check_integer("position_ids", position_ids)
        check_table_dtype(dtype)
        batch, length = (1, 1, *position_ids.shape)[-2:]
        x = torch.empty(batch, 0, length, 0, dtype=dtype, device=position_ids.device)
        cos, sin, ids = self._tables_for(x, position_ids, 0, seq_len)
        if ids is None:
            return cos, sin
        return self._fresh_rows(x, ids, 0, self.fixed_length if seq_len is None else seq_len)

    def _tables_for(
        self, x: Tensor, position_ids: Tensor | None, offset: int | Tensor, seq_len: int | None
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """cos and sin for x, and the positions whose rows the operator has yet to look up."""
        position_ids, offset = ids_or_start(position_ids, offset, x)
        if seq_len is not None:
            check_count("seq_len", seq_len)
        spectrum_length = self.fixed_length if seq_len is None else seq_len
        length, checked = offset + x.shape[2], False
        if position_ids is not None:
            length, checked = self._length_of(position_ids, spectrum_length)
        if spectrum_length is None and self._length_dependent:
            spectrum_length = length
        if not self._kept_serve(x.dtype, length, spectrum_length):
            return *self._fresh_rows(x, position_ids, offset, spectrum_length), None
        cos, sin = self._kept_rows(length, x.device)
        if position_ids is None:
            return cos[offset:length], sin[offset:length], None
        # The ids were read and lie in the tables: looked up here, they are not read again below.
        if checked and not position_ids.is_cuda:
            return *rows_of(cos, sin, position_ids), None
        return cos, sin, position_ids

    def _kept_serve(self, dtype: torch.dtype, length: int, known: int | None) -> bool:
        """Whether the kept tables, grown if need be, have the precision, length and spectrum."""
        rows = self._kept[0].shape[0]
        most = rows if torch.compiler.is_compiling() else max(rows, MOST_ROWS)
        if dtype == torch.float64 or length > most:
            return False
        regime = self.extension.regime
        return not self._length_dependent or regime(known) == regime(self.fixed_length)

    def _kept_rows(self, length: int, device: torch.device) -> tuple[Tensor, ...]:
        """The kept tables, for at least `length` positions, on a device."""
        kept = self._kept  # looked at once: another thread may replace it
        if length > kept[0].shape[0]:
            kept = self._grown(length)
        return kept if kept[0].device == device else self._on(device, kept)

    def _length_of(self, position_ids: Tensor, known: int | None) -> tuple[int, bool]:
        """Rows that the positions need, and whether they were read to tell, and so checked.

        Reading costs a GPU a wait, which a known length saves; compiled code cannot read, and must
        not guess the length that decides on the spectrum.
        """
        meta = position_ids.is_meta
        if not (torch.compiler.is_compiling() or meta or (position_ids.is_cuda and known)):
            low, high = position_range(position_ids)
            check_no_negative("position_ids", low)
            check_count("the largest of position_ids", high, smallest=-1)  # of none: -1
            return high + 1, True
        if known is None and self._length_dependent and not meta:
            raise ValueError(
                f"seq_len is None for {self.extension.name}, whose spectrum depends on the length, "
                "and compiled code does not read it from position_ids; it must be an integer: "
                "pass seq_len, or call fix_length first"
            )
        return known or 0, False

    def _fresh_rows(
        self, x: Tensor, position_ids: Tensor | None, offset: int, seq_len: int | None
    ) -> tuple[Tensor, Tensor]:
        """Rows of another spectrum or in float64, made on x's device for these positions alone."""
        if position_ids is None:
            position_ids = torch.arange(offset, offset + x.shape[2], device=x.device)
        elif torch.compiler.is_compiling():
            torch._assert_async((position_ids >= 0).all(), "position_ids must be at least 0")
        inv_freq, scale = self._frequencies(seq_len, x.device), self.attention_scaling
        cos, sin = rotary_tables(position_ids, inv_freq, dtype=table_dtype(x), scale=scale)
        return (cos[:, None], sin[:, None]) if position_ids.dim() == 2 else (cos, sin)

    def _grown(self, length: int) -> tuple[Tensor, ...]:
        """Tables for at least `length` positions, the next power of two, on their device."""
        rows = 1 << (int(length) - 1).bit_length()
        with _CHANGING:
            if length <= len(self.cos):  # another thread has been here in the meantime
                return self._kept
            return self._keep(self._build(self.cos.device, rows))

    def _frequencies(self, seq_len: int | None, device: torch.device | str) -> Tensor:
        return inverse_frequencies(
            self.dim, self.base, extension=self.extension, seq_len=seq_len, device=device
        )

    def _build(self, device: torch.device, rows: int | None = None) -> tuple[Tensor, ...]:
        """cos and sin on a device, of `rows` positions or as many as are kept, of fixed length."""
        return self._of_length(device, len(self.cos) if rows is None else rows, self.fixed_length)

    def _of_length(
        self, device: torch.device, rows: int, seq_len: int | None
    ) -> tuple[Tensor, ...]:
        """cos and sin for `rows` positions, with the spectrum of a length.

        Tables made in inference mode could never be used in training; so they are made outside it.
        """
        with torch.inference_mode(False):
            inv_freq = self._frequencies(seq_len, "cpu")
            return _shared_tables(inv_freq, rows, self.attention_scaling, device)

    def extra_repr(self) -> str:
        parts = [f"dim={self.dim}", f"rows={len(self.cos)}", f"base={self.base}"]
        if self.extension != Default():
            parts.append(f"extension={self.extension}")
        if self.fixed_length is not None:
            parts.append(f"fixed_length={self.fixed_length}")
        if self.softmax_scale != 1:
            parts.append(f"softmax_scale={self.softmax_scale:.6g}")
        return ", ".join([*parts, f"interleaved={self.interleaved}"])

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *rest: Any) -> None:
        """Older checkpoints hold the frequencies, of which this keeps no copy: they must agree."""
        for name in {"inv_freq", "freqs"} - {*self._parameters, *self._buffers}:
            stored = state_dict.get(prefix + name)
            if not isinstance(stored, Tensor):
                continue
            del state_dict[prefix + name]
            if not (stored.is_meta or self._agrees(stored)):
                rest[-1].append(  # which load_state_dict raises
                    f"{prefix}{name} of the checkpoint is not the spectrum of {self}; they must be "
                    "the same: make the module from the model's configuration, or delete the key"
                )
        super()._load_from_state_dict(state_dict, prefix, *rest)

    def _agrees(self, stored: Tensor) -> bool:
        """Whether frequencies are the plain or the extended ones, rounded as checkpoints are."""
        halves = (stored.to(half).to(stored.dtype) for half in (torch.bfloat16, torch.float16))
        rounded = any(stored.equal(half) for half in halves)
        rtol, atol = (2**-8, 2**-24) if rounded else (1e-5, 0.0)
        plain = inverse_frequencies(self.dim, self.base, device="cpu")
        return any(
            stored.shape == theta.shape
            and torch.allclose(stored.cpu().double(), theta, rtol=rtol, atol=atol)
            for theta in (plain, self._frequencies(self.fixed_length, "cpu"))
        )


def _shared_tables(
    inv_freq: Tensor, rows: int, scale: float, device: torch.device
) -> tuple[Tensor, ...]:
    """cos and sin `[N, R/2]`, float32, as another module holds them; new ones where none does.

    inv_freq: float64 `[R/2]` on the CPU, where the tables are made before they are moved.

    >>> theta, cpu = torch.ones(1).double(), torch.device("cpu")
    >>> cos, sin = _shared_tables(theta, 8, 1.0, cpu)
    >>> _shared_tables(theta, 8, 1.0, cpu)[0] is cos
    True
    """
    if torch.compiler.is_compiling() or not is_plain(inv_freq):  # a tracer's numbers are its own
        return tuple(t.to(device) for t in rotary_tables(rows, inv_freq, scale=scale))
    keys = [(name, device, rows, scale, *inv_freq.tolist()) for name in ("cos", "sin")]
    tables = tuple(table for table in map(_SHARED.get, keys) if table is not None)
    if len(tables) < 2:
        if device == inv_freq.device:
            tables = rotary_tables(rows, inv_freq, scale=scale)
        else:
            on_cpu = _shared_tables(inv_freq, rows, scale, inv_freq.device)
            tables = tuple(t.to(device) for t in on_cpu)
        _SHARED.update(zip(keys, tables, strict=True))
    return tables
