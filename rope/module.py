"""The layer: queries and keys rotated together, by tables kept beside a model.

Chapter "From maths to PyTorch". Three duties stay apart: `frequencies` makes the tables, `tables`
keeps them (exact, on the right device, long enough) and finds a call's rows, `kernels` rotates. A
call goes `forward`, `_rotate`, `tables._tables_for`, `kernels.operator.apply_rotation`, and ends in
`kernels/rotate.c`, `kernels/triton.py` or `kernels/formula.py`.

Shapes: B batch, H heads, S sequence, D head dimension, R rotated width.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Self

import torch
from torch import Tensor

from rope.checks import check_count, check_heads, check_pair
from rope.functional import from_bhsd, to_bhsd
from rope.kernels.operator import apply_rotation
from rope.positions import check_packed_offset, check_position_ids
from rope.tables import MOST_ROWS, RotaryTables
from rope.writable import check_writable


class RotaryEmbedding(RotaryTables):
    """Rotary position embedding for queries and keys (RoFormer, arXiv 2104.09864).

    dim: the rotated width R, even, at most the head dimension; base: of theta_j = base**(-2j/R).
    max_seq_len: rows of the first tables; they grow on demand to the next power of two.
    extension: a context extension of `rope.extensions`, none when None.
    interleaved: plane j holds coordinates (2j, 2j+1); otherwise (j, j + R/2).
    device: of the tables, torch's default when None.
    Raises ValueError or TypeError for a bad dim, base, max_seq_len or extension.

    Its tables `cos` and `sin`, float32 `[N, R/2]`, are no buffers: they follow the model, or the
    queries, to another device, no cast touches them, and they are in no state_dict. Vectors in
    float64, and positions far beyond the tables, get rows made at each call. All that they are made
    with is fixed; `softmax_scale`, which from_config sets, is what the attention is to multiply its
    usual scale by.

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
        max_seq_len: int | None = None,
        interleaved: bool | None = None,
        device: torch.device | str | None = None,
    ) -> Self:
        """The embedding that a model's configuration describes; nothing in it is dropped.

        config: a transformers configuration, its dict, or JSON; layer_type: which of its layers,
        where they differ. Which layers rotate at all, `rope.config.rotary_settings` says: leave the
        others' queries and keys as they are. max_seq_len: rows of the first tables, the model's
        length when None, up to 131,072; it must be given where the model has none. interleaved: the
        layout, where the type does not tell.
        Raises ValueError or TypeError as `rope.config.rotary_settings` does, and ValueError for
        positions of several axes.

        >>> from rope.config import example
        >>> RotaryEmbedding.from_config(example("llama-3.1-8b")).extension.name
        'llama3'
        """
        from rope.config import rotary_settings

        settings = rotary_settings(config, layer_type=layer_type, interleaved=interleaved)
        if settings.sections is not None:
            raise ValueError(
                f"mrope_section is {list(settings.sections)}; positions must have one axis here: "
                "use rope.axes.MultiAxisRotaryEmbedding.from_config"
            )
        if max_seq_len is None:
            if settings.max_position_embeddings is None:
                raise ValueError(
                    "the configuration has no max_position_embeddings, and no class in "
                    "transformers fills it in; the tables must have a length: pass max_seq_len, or "
                    "add max_position_embeddings"
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

        q: `[B, H, S, D]`; k: `[B, H_kv, S, D]`; position_ids: integers `[S]`, `[B, S]` or `[1, S]`;
        without them offset ... offset+S-1, offset counting the tokens before this call: an int, or
        integers `[B]`, one a row, which become position_ids.
        seq_len: the length that length-dependent extensions scale to; when None, that of
        `fix_length`, or else the largest position of this call + 1. inverse: rotate back, and undo
        the attention scaling. inplace: write into q and k. tensor_format: "bshd" for
        `[B, S, H, D]`, "thd" for packed tokens `[T, H, D]` with position_ids `[T]`. Keys at other
        positions than the queries, or of another number, go through `rotate`.
        Returns the pair, shapes and dtypes kept.
        Raises as `rotary_embedding` does. Eager calls with position_ids read the largest one, to
        grow the tables; a GPU has to wait for that, unless seq_len or `fix_length` names a length
        that all positions are below. Compiled calls never read data: name a length, or `grow`
        the tables first.

        >>> rotary, x = RotaryEmbedding(4), torch.ones(1, 1, 1, 4)
        >>> q, k = rotary(x, x, torch.tensor([5]))
        >>> torch.equal(q, k), torch.equal(q, rotary(x, x, offset=5)[0])
        (True, True)
        >>> rows = rotary.rotate(torch.ones(2, 1, 1, 4), offset=torch.tensor([0, 5]))
        >>> torch.equal(rows, torch.cat((x, q)))
        True
        """
        if tensor_format != "bhsd":
            check_packed_offset(tensor_format, offset)
            q, k = to_bhsd(tensor_format, q=q, k=k)
        check_heads("q", q, self.dim)
        check_heads("k", k, self.dim)
        check_pair(q, k)
        if inplace:
            check_writable(q=q, k=k)
        arguments = position_ids, offset, seq_len, inverse, inplace
        if q.dtype != k.dtype and torch.float64 in (q.dtype, k.dtype):  # each has its own tables
            q, k = self._rotate((q,), *arguments)[0], self._rotate((k,), *arguments)[0]
        else:
            q, k = self._rotate((q, k), *arguments)
        if tensor_format != "bhsd":
            q, k = from_bhsd(tensor_format, q, k)
        return q, k

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
        """Rotate one tensor `[B, H, S, D]`: a key that all heads share, or a query alone.

        Arguments and errors are those of `forward`.

        >>> rotary, x = RotaryEmbedding(4), torch.ones(1, 1, 3, 4)
        >>> torch.equal(rotary.rotate(x), rotary(x, x)[0])
        True
        """
        if tensor_format != "bhsd":
            check_packed_offset(tensor_format, offset)
            (x,) = to_bhsd(tensor_format, x=x)
        check_heads("x", x, self.dim)
        if inplace:
            check_writable(x=x)
        (x,) = self._rotate((x,), position_ids, offset, seq_len, inverse, inplace)
        return x if tensor_format == "bhsd" else from_bhsd(tensor_format, x)[0]

    def shift(self, k: Tensor, delta: int | Tensor, *, seq_len: int | None = None) -> Tensor:
        """Rotated keys moved by delta positions: R_delta R_n k = R_{n+delta} k.

        k: rotated keys `[B, H_kv, S, D]`, their attention scaling in them; delta: an int for all
        tokens, or integers `[S]`, `[B, S]` or `[1, S]`, below 0 to move back. seq_len: the length
        that k was rotated with, for an extension that depends on it.
        Returns a new tensor in k's dtype, rounded once; the roundings of many moves add up, so sum
        the moves. Raises as `rotate` does, and ValueError where such a length is not known.

        >>> rotary, k = RotaryEmbedding(4), torch.ones(1, 1, 3, 4, dtype=torch.float64)
        >>> there = rotary.shift(rotary.rotate(k, offset=7), -5)
        >>> torch.allclose(there, rotary.rotate(k, offset=2), rtol=0, atol=1e-15)
        True
        """
        check_heads("k", k, self.dim)
        if isinstance(delta, Tensor):
            check_position_ids(delta, k, "delta")
        else:
            check_count("delta", delta, smallest=-(2**53))
            delta = torch.tensor([[delta]], device=k.device)  # the same for all tokens
        if self.extension.length_dependent and seq_len is None and self.fixed_length is None:
            raise ValueError(
                f"seq_len is None for {self.extension.name}, whose spectrum depends on the length; "
                "it must be the length that k was rotated with: pass it, or call fix_length first"
            )
        delta = delta.long() if delta.dim() == 2 else delta.long()[None]
        cos, sin = self.tables_at(delta.abs(), dtype=k.dtype, seq_len=seq_len)
        sin = sin * delta[:, None, :, None].sign()
        if self.attention_scaling != 1:
            cos, sin = cos / self.attention_scaling, sin / self.attention_scaling
        (k,) = apply_rotation((k,), cos, sin, None, self.interleaved, inverse=False)
        return k

    def _rotate(
        self,
        xs: Sequence[Tensor],
        position_ids: Tensor | None,
        offset: int | Tensor,
        seq_len: int | None,
        inverse: bool,
        inplace: bool,
    ) -> Sequence[Tensor]:
        # ids: those whose rows are yet to be looked up, None where they are.
        cos, sin, ids = self._tables_for(xs[0], position_ids, offset, seq_len)
        if inverse and self.attention_scaling != 1:
            # The tables hold a cos and a sin; the way back is (cos, -sin) / a.
            square = self.attention_scaling**2
            cos, sin = cos / square, sin / square
        return apply_rotation(xs, cos, sin, ids, self.interleaved, inverse, inplace)
