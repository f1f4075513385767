"""The layer: queries and keys rotated together, by tables kept beside a model.

Chapter "From maths to PyTorch". Three duties stay apart: `frequencies` builds the tables, `tables`
keeps them (exact, on the right device, long enough), `functional` applies them.

Shapes: B batch, H heads, S sequence, D head dimension, R rotated width.
"""

from collections.abc import Mapping
from typing import Any, Self

import torch
from torch import Tensor

from rope._checks import check_flag, check_heads, check_pair
from rope._inplace import check_two, check_writable
from rope.functional import rotary_embedding, rotary_embedding_
from rope.tables import RotaryTables


class RotaryEmbedding(RotaryTables):
    """Rotary position embedding for queries and keys (RoFormer, arXiv 2104.09864).

    dim: the rotated width R, even, at most the head dimension; base: of theta_j = base**(-2j/R).
    max_seq_len: rows of the first tables; they grow on demand to the next power of two.
    extension: a context extension of `rope.extensions`, none when None.
    interleaved: plane j holds coordinates (2j, 2j+1); otherwise (j, j + R/2).
    device: of the tables, torch's default when None.
    Buffers `cos` and `sin`, float32 `[N, R/2]`, are in no state_dict: they follow the model to
    another device, and no dtype cast touches them. Vectors in float64 get float64 tables, made at
    each call.
    Raises ValueError or TypeError for a bad dim, base, max_seq_len or extension.

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
        max_seq_len: int = 2048,
        interleaved: bool | None = None,
        device: torch.device | str | None = None,
    ) -> Self:
        """The embedding that a model's configuration describes; nothing in it is dropped.

        config: a transformers configuration, its dict, or JSON; layer_type: which of its layers,
        where they differ; interleaved: the layout, where the model's type does not tell.
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
        return cls(
            settings.dim,
            max_seq_len,
            settings.base,
            extension=settings.extension,
            interleaved=settings.interleaved,
            device=device,
        )

    def forward(
        self,
        q: Tensor,
        k: Tensor,
        position_ids: Tensor | None = None,
        *,
        offset: int = 0,
        seq_len: int | None = None,
        inverse: bool = False,
        inplace: bool = False,
    ) -> tuple[Tensor, Tensor]:
        """Rotate q and k to their positions.

        q: `[B, H, S, D]`; k: `[B, H_kv, S, D]`; position_ids: integers `[S]` or `[B, S]`;
        without them offset ... offset+S-1, offset counting the tokens before this call.
        seq_len: the length that length-dependent extensions scale to; when None, that of
        `fix_length`, or else the largest position of this call + 1. inverse: turn back, and undo
        the attention scaling. inplace: write into q and k.
        Returns the pair, shapes, dtypes and order of storage kept.
        Raises as `rotary_embedding` does. Eager calls with position_ids read the largest one to
        grow the tables; compiled calls do not read data, so `grow` them first.

        >>> rotary, x = RotaryEmbedding(4), torch.ones(1, 1, 1, 4)
        >>> q, k = rotary(x, x, torch.tensor([5]))
        >>> torch.equal(q, k), torch.equal(q, rotary(x, x, offset=5)[0])
        (True, True)
        """
        check_heads("q", q, self.dim)
        check_heads("k", k, self.dim)
        check_pair(q, k)
        self._check_flags(inverse, inplace, q=q, k=k)
        if inplace:
            check_two(q, k)
        rows = self.rows_for(q, position_ids, offset=offset, seq_len=seq_len, name="q")
        rows_k = rows
        if torch.float64 in (q.dtype, k.dtype) and q.dtype != k.dtype:
            rows_k = self.rows_for(k, position_ids, offset=offset, seq_len=seq_len, name="k")
        turned = self._turn(q, *rows, inverse, inplace)
        return turned, self._turn(k, *rows_k, inverse, inplace)

    def rotate(
        self,
        x: Tensor,
        position_ids: Tensor | None = None,
        *,
        offset: int = 0,
        seq_len: int | None = None,
        inverse: bool = False,
        inplace: bool = False,
    ) -> Tensor:
        """Rotate one tensor `[B, H, S, D]`: a key that all heads share, or a query alone.

        Arguments and errors are those of `forward`.

        >>> rotary, x = RotaryEmbedding(4), torch.ones(1, 1, 3, 4)
        >>> torch.equal(rotary.rotate(x), rotary(x, x)[0])
        True
        """
        check_heads("x", x, self.dim)
        self._check_flags(inverse, inplace, x=x)
        rows = self.rows_for(x, position_ids, offset=offset, seq_len=seq_len)
        return self._turn(x, *rows, inverse, inplace)

    def _check_flags(self, inverse: bool, inplace: bool, **tensors: Tensor) -> None:
        check_flag("inverse", inverse)
        check_flag("inplace", inplace)
        if inplace:
            for name, tensor in tensors.items():
                check_writable(name, tensor)

    def _turn(self, x: Tensor, cos: Tensor, sin: Tensor, inverse: bool, inplace: bool) -> Tensor:
        if inverse and self.attention_scaling != 1:
            # The tables hold a cos and a sin; the way back is (cos, -sin) / a.
            square = self.attention_scaling**2
            cos, sin = cos / square, sin / square
        operation = rotary_embedding_ if inplace else rotary_embedding
        return operation(x, cos, sin, interleaved=self.interleaved, inverse=inverse)
