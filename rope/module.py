"""Define RotaryEmbedding, the layer that rotates queries and keys with stored tables.

See the chapter "From math to PyTorch". To follow one query through the code, read `forward` and
`_rotate` here, then `apply_rotation` in `kernels/operator.py`, whose operators call `_run_kernel`,
then `rotate_into` in `kernels/cpu.py`, which calls the loop in `kernels/rotate.c`. On a GPU,
`kernels/triton.py` replaces the last two. `frequencies` makes the tables, and `tables` stores them.

Shapes: B batch, H heads, S sequence, D head dimension, R rotated width.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import Tensor

from rope.checks import FARTHEST, check_count, check_heads, check_inplace, check_vectors
from rope.functional import from_bhsd, to_bhsd
from rope.kernels.operator import apply_rotation
from rope.positions import check_position_ids, ids_or_start
from rope.tables import MOST_ROWS, RotaryTables


class RotaryEmbedding(RotaryTables):
    """Apply rotary position embedding to queries and keys (RoFormer, arXiv 2104.09864).

    dim: the rotated width R, an even number that is at most the head dimension.
    base: the base in theta_j = base**(-2j/R).
    max_seq_len: the initial number of table rows. It grows to a power of two if a call needs more.
    extension: a context extension from `rope.extensions`, or None.
    interleaved: if True, plane j holds coordinates (2j, 2j+1); if False, (j, j + R/2).
    device: the device of the tables; None means torch's default device.
    Raises ValueError or TypeError for an invalid dim, base, or max_seq_len.

    The tables `cos` and `sin`, float32 `[N, R/2]`, aren't buffers. They move to another device with
    the model or with the queries, but casts don't change them, and state_dict doesn't contain them.
    If the vectors are float64 or the positions lie far beyond the tables, each call computes the
    rows that it needs. The arguments are fixed at creation. `attention_scaling` is the extension's
    factor for cos and sin. `from_config` sets `softmax_scale`; the attention must multiply its
    usual scale by this factor.

    >>> rotary = RotaryEmbedding(4, max_seq_len=8).to(torch.bfloat16)
    >>> rotary.cos.dtype, rotary.cos.shape
    (torch.float32, torch.Size([8, 2]))
    >>> q, k = rotary(torch.ones(1, 2, 9, 4), torch.ones(1, 1, 9, 4))
    >>> q.shape, k.shape, rotary.cos.shape
    (torch.Size([1, 2, 9, 4]), torch.Size([1, 1, 9, 4]), torch.Size([16, 2]))
    """

    @classmethod
    def from_config(
        cls,
        config: Mapping[str, Any] | str | object,
        *,
        layer_type: str | None = None,
        layer: int | None = None,
        max_seq_len: int | None = None,
        interleaved: bool | None = None,
        device: torch.device | str | None = None,
    ) -> Self:
        """Return the embedding that a model's configuration describes.

        config: a transformers configuration, its dict, or JSON. layer_type, layer: a type of layer,
        or the number of a layer, counted from 0. If the layers have different parameters, pass
        either layer_type or layer. max_seq_len: the initial number of table rows; None means the
        model's context length, but at most 131,072. interleaved: see the class; None means the
        layout of this type of model.
        Raises the same errors as `rope.config.rotary_settings`, which also reports which layers
        rotate. Raises ValueError if positions have several axes or the context length is unknown.

        >>> from rope.config import example
        >>> RotaryEmbedding.from_config(example("llama-3.1-8b")).extension.name
        'llama3'
        """
        from rope.config import rotary_settings

        settings = rotary_settings(
            config, layer_type=layer_type, layer=layer, interleaved=interleaved
        )
        if settings.sections is not None:
            raise ValueError(
                f"mrope_section is {list(settings.sections)}, so positions have several axes; use "
                "rope.axes.MultiAxisRotaryEmbedding.from_config"
            )
        if max_seq_len is None:
            if settings.max_position_embeddings is None:
                raise ValueError(
                    "the configuration has no max_position_embeddings; pass max_seq_len to "
                    "set the length of the tables"
                )
            max_seq_len = min(settings.max_position_embeddings, MOST_ROWS)
        rotary = cls(
            settings.dim,
            max_seq_len,
            settings.base,
            extension=settings.extension,
            interleaved=settings.interleaved,
            device=device,
        )
        rotary.softmax_scale = settings.softmax_scale
        return rotary

    def forward(
        self,
        q: Tensor,
        k: Tensor,
        position_ids: Tensor | None = None,
        *,
        offset: int | Tensor = 0,
        seq_len: int | None = None,
        inverse: bool = False,
        inplace: bool = False,
        tensor_format: str = "bhsd",
    ) -> tuple[Tensor, Tensor]:
        """Rotate q and k to their positions.

        q: `[B, H, S, D]`; k: `[B, H_kv, S, D]`. position_ids: integers `[S]`, `[B, S]`, or
        `[1, S]`. If None, the positions are offset ... offset+S-1. offset: the number of tokens
        before this call, an int or integers `[B]`, one per row.
        seq_len: the sequence length, for an extension whose frequencies depend on it. If None, it
        is the length passed to `fix_length`, or else the largest position in this call plus 1.
        inverse: if True, rotate back and undo the attention scaling. inplace: if True, write the
        results into q and k. tensor_format: the order of the axes: "bhsd", "bshd" (`[B, S, H, D]`),
        or "thd" (packed tokens `[T, H, D]` with position_ids `[T]`). If the keys differ from the
        queries in position or length, call `rotate` for each.
        Returns the rotated q and k, with the same shapes and dtypes.
        Raises the same errors as `rotary_embedding`. Eager code reads the largest of position_ids,
        because the tables may have to grow. It therefore waits for a GPU. To avoid the wait, pass a
        seq_len that exceeds all positions, or call `fix_length`. Compiled code can't read the ids,
        so pass such a seq_len there too, or call `grow` first.

        >>> rotary, x = RotaryEmbedding(4), torch.ones(1, 1, 1, 4)
        >>> q, k = rotary(x, x, torch.tensor([5]))
        >>> torch.equal(q, k), torch.equal(q, rotary(x, x, offset=5)[0])
        (True, True)
        >>> rows = rotary.rotate(torch.ones(2, 1, 1, 4), offset=torch.tensor([0, 5]))
        >>> torch.equal(rows, torch.cat((x, q)))
        True
        """
        xs = to_bhsd(tensor_format, {"q": q, "k": k})
        rotated = self._rotate(xs, position_ids, offset, seq_len, inverse=inverse, inplace=inplace)
        q, k = from_bhsd(tensor_format, rotated)
        return q, k

    if TYPE_CHECKING:
        __call__ = forward  # nn.Module declares that a call returns Any

    def rotate(
        self,
        x: Tensor,
        position_ids: Tensor | None = None,
        *,
        offset: int | Tensor = 0,
        seq_len: int | None = None,
        inverse: bool = False,
        inplace: bool = False,
        tensor_format: str = "bhsd",
    ) -> Tensor:
        """Rotate a single tensor `[B, H, S, D]`, such as a key that all heads share.

        The arguments and errors are the same as in `forward`.

        >>> rotary, x = RotaryEmbedding(4), torch.ones(1, 1, 3, 4)
        >>> torch.equal(rotary.rotate(x), rotary(x, x)[0])
        True
        """
        xs = to_bhsd(tensor_format, {"x": x})
        rotated = self._rotate(xs, position_ids, offset, seq_len, inverse=inverse, inplace=inplace)
        return from_bhsd(tensor_format, rotated)[0]

    def _rotate(
        self,
        xs: Mapping[str, Tensor],
        position_ids: Tensor | None,
        offset: int | Tensor,
        seq_len: int | None,
        *,
        inverse: bool,
        inplace: bool,
    ) -> Sequence[Tensor]:
        """Check the tensors `[B, H, S, D]` in xs, find their rows of the tables, and rotate them.

        xs: a dict with the key "x", or "q" and "k". For the other arguments, see `forward`.
        """
        check_vectors(xs, self.dim)
        if inplace:
            check_inplace(xs, inplace)
        vectors = tuple(xs.values())
        x = vectors[0]
        position_ids, start = ids_or_start(position_ids, offset, x)
        rows, seq_len = self._rows_and_length(position_ids, start + x.shape[2], seq_len)
        wide = x.dtype == torch.float64 or vectors[-1].dtype == torch.float64
        tables = None
        if not (inverse and self.attention_scaling != 1):  # undoing the scaling needs other tables
            tables = self._tables_for_call(rows, seq_len, wide, x.device)
        if tables is None:
            if position_ids is None:
                position_ids = torch.arange(start, rows, device=x.device)
            cos, sin = self._fresh_rows(position_ids, seq_len, wide, inverse)
            position_ids = None  # each token has its own row
        elif position_ids is None:
            cos, sin = tables[0][start:rows], tables[1][start:rows]
        else:
            cos, sin = tables
        return apply_rotation(
            vectors,
            cos,
            sin,
            position_ids,
            interleaved=self.interleaved,
            inverse=inverse,
            inplace=inplace,
        )

    def shift(self, k: Tensor, delta: int | Tensor, *, seq_len: int | None = None) -> Tensor:
        """Move rotated keys by delta positions: R_delta R_n k = R_{n+delta} k.

        k: keys `[B, H_kv, S, D]` that this layer has rotated. delta: one int for all tokens, or
        integers `[S]`, `[B, S]`, or `[1, S]`; a negative delta moves keys back. seq_len: the length
        that k was rotated with, if the extension depends on the length.
        Returns a new tensor with k's dtype, rounded once. Rounding errors accumulate over several
        moves, so add up the moves and shift once. Raises the same errors as `rotate`. Also raises
        ValueError if the extension needs a length but neither seq_len nor `fix_length` provides it.

        >>> rotary, k = RotaryEmbedding(4), torch.ones(1, 1, 3, 4, dtype=torch.float64)
        >>> there = rotary.shift(rotary.rotate(k, offset=7), -5)
        >>> torch.allclose(there, rotary.rotate(k, offset=2), rtol=0, atol=1e-15)
        True
        """
        check_heads("k", k, self.dim)
        if isinstance(delta, Tensor):
            check_position_ids(delta, k, "delta")
            delta = delta.long() if delta.dim() == 2 else delta.long()[None]
        else:
            check_count("delta", delta, smallest=-FARTHEST)
            delta = torch.tensor([[delta]], device=k.device)  # the same for all tokens
        if self.extension.length_dependent and seq_len is None and self.fixed_length is None:
            raise ValueError(
                f"seq_len is None, but the spectrum of {self.extension} depends on the length"
                "; pass the length that k was rotated with, or call fix_length first"
            )
        cos, sin = self.tables_at(delta.abs(), dtype=k.dtype, seq_len=seq_len)
        sin = sin * delta[:, None, :, None].sign()
        if self.attention_scaling != 1:
            cos, sin = cos / self.attention_scaling, sin / self.attention_scaling
        return apply_rotation((k,), cos, sin, interleaved=self.interleaved)[0]
