"""Define the module and the function that replace the rotation in a transformers model.

Shapes: B batch, H heads, S sequence, D head dimension, R rotated width.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from rope.config.parameters import layer_entries
from rope.config.source import read_config, text_facts
from rope.frequencies import float64_device, rotary_tables, table_dtype
from rope.functional import rotary_embedding, rotary_embedding_qk
from rope.module import RotaryEmbedding

ALL = "all"  # the key in `layers` if all layers have the same frequencies
_FORMATS = {1: "bhsd", 2: "bshd"}  # the tensor format for each unsqueeze_dim


class PositionEmbeddings(nn.Module):
    """Compute cos and sin tables for given positions, as the rotary modules in transformers do.

    config: the model's configuration. Raises the same errors as `RotaryEmbedding.from_config`.

    >>> from rope.config import example
    >>> tables = PositionEmbeddings(example("llama-3.1-8b"))
    >>> cos, sin = tables(torch.ones(2, 5, 4096).bfloat16(), torch.arange(5)[None])
    >>> cos.shape, cos.dtype
    (torch.Size([1, 1, 5, 64]), torch.float32)
    """

    def __init__(self, config: Any) -> None:
        super().__init__()
        facts = text_facts(read_config(config))
        facts.pop("layer_rope_theta", None)  # GraniteSWA has one rotary module per base
        entries = layer_entries(facts)
        self.layers = nn.ModuleDict(
            {
                kind or ALL: RotaryEmbedding.from_config(facts, layer_type=kind, max_seq_len=2048)
                for kind, entry in entries.items()
                if entry is not None and kind in (None, *facts.get("layer_types", entries))
            }
        )
        # Compiled code computes tables from these spectra; stored tables would limit the length.
        self.spectra: Any = {kind: rotary.inv_freq for kind, rotary in self.layers.items()}
        self.interleaved = any(rotary.interleaved for rotary in self.layers.values())
        self.config, self.layer_types = config, tuple(self.layers)  # models read both attributes

    def forward(
        self, x: Tensor, position_ids: Tensor, layer_type: str | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return the tables cos and sin, each `[B, 1, S, R/2]`, with one column per plane.

        position_ids: integers `[B, S]`. x: any tensor on the model's device. The tables are float64
        if x is float64, otherwise float32.
        layer_type: the type of the calling layer; required if the types' frequencies differ.
        """
        kind = ALL if ALL in self.layers else str(layer_type)
        rotary: Any = self.layers[kind]
        at = position_ids.to(x.device)
        if rotary.extension.length_dependent or not torch.compiler.is_compiling():
            return rotary.tables_at(at, dtype=x.dtype)
        near = float64_device(x.device)
        theta, scale = self.spectra[kind].to(near), rotary.attention_scaling
        tables = rotary_tables(at.to(near)[:, None], theta, dtype=table_dtype(x), scale=scale)
        return tables[0].to(x.device), tables[1].to(x.device)


@dataclass(frozen=True)
class ByTables:
    """Replace `apply_rotary_pos_emb`, and rotate with the tables of `PositionEmbeddings`.

    Those tables have four axes. A call with other tables runs `original`. q, k: `[B, H, S, D]`, or
    `[B, S, H, D]` if unsqueeze_dim is 2. interleaved: True for planes (2j, 2j+1).
    """

    original: Callable[..., Any]
    interleaved: bool

    def __call__(self, *args: Any, **options: Any) -> Any:
        *vectors, cos, sin = args if len(args) > 2 else (None, None)
        if not all(isinstance(table, Tensor) and table.dim() == 4 for table in (cos, sin)):
            return self.original(*args, **options)
        tensor_format = _FORMATS[options.get("unsqueeze_dim", 1)]
        rotate: Any = rotary_embedding if len(vectors) == 1 else rotary_embedding_qk
        return rotate(*vectors, cos, sin, interleaved=self.interleaved, tensor_format=tensor_format)
