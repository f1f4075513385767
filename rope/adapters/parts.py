"""What stands in a model of transformers in place of its own: a module, and a function.

Shapes: B batch, H heads, S sequence, D head dimension, R rotated width.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from weakref import WeakSet

import torch
from torch import Tensor, nn

from rope.config.parameters import layer_entries
from rope.config.source import read_config, text_facts
from rope.frequencies import rotary_tables, table_dtype
from rope.functional import rotary_embedding, rotary_embedding_qk
from rope.module import RotaryEmbedding

ALL = "all"  # the layer type of models whose layers rotate alike
_FORMATS = {1: "bhsd", 2: "bshd"}  # by unsqueeze_dim, the axis where the heads stand

#: Those that stand in a model: while one does, the functions that it needs stay in their files.
IN_USE: WeakSet["PositionEmbeddings"] = WeakSet()


class PositionEmbeddings(nn.Module):
    """What a rotary module of transformers does: cos and sin of positions.

    config: the model's configuration. Raises as `RotaryEmbedding.from_config` does.

    >>> from rope.config import example
    >>> tables = PositionEmbeddings(example("llama-3.1-8b"))
    >>> cos, sin = tables(torch.ones(2, 5, 4096).bfloat16(), torch.arange(5)[None])
    >>> cos.shape, cos.dtype
    (torch.Size([1, 1, 5, 64]), torch.float32)
    """

    def __init__(self, config: Any) -> None:
        super().__init__()
        facts = text_facts(read_config(config))
        entries = layer_entries(facts)
        kinds = [kind for kind in entries if kind in (None, *facts.get("layer_types", entries))]
        self.layers = nn.ModuleDict(
            {
                kind or ALL: RotaryEmbedding.from_config(config, layer_type=kind, max_seq_len=2048)
                for kind in kinds
                if entries[kind] is not None
            }
        )
        # Compiled code takes the frequencies as they are, however far it goes.
        self.spectra: Any = {kind: rotary.inv_freq for kind, rotary in self.layers.items()}
        self.config, self.layer_types = config, tuple(self.layers)  # which some models read
        self.functions: tuple[tuple[str, str], ...] = ()  # replaced for it: file and name of each

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        IN_USE.add(self)  # as a copy of a model in use needs the functions too

    def forward(
        self, x: Tensor, position_ids: Tensor, layer_type: str | None = None
    ) -> tuple[Tensor, Tensor]:
        """cos and sin `[B, 1, S, R/2]` of position_ids `[B, S]`, each plane once.

        x: any tensor on the model's device and of its dtype; the tables are float32, or float64
        where it is. Raises ValueError for an unknown layer_type, where the layers differ.
        """
        kind = ALL if ALL in self.layers else str(layer_type)
        if kind not in self.layers:
            raise ValueError(
                f"layer_type is {layer_type!r}; it must be one of {', '.join(self.layers)}: pass "
                "the type of the layer"
            )
        rotary: Any = self.layers[kind]
        at = position_ids.to(x.device)
        if rotary.extension.length_dependent or not torch.compiler.is_compiling():
            return rotary.tables_at(at, dtype=x.dtype)
        theta, scale = self.spectra[kind].to(x.device), rotary.attention_scaling
        return rotary_tables(at[:, None], theta, dtype=table_dtype(x), scale=scale)


def apply_rotary_pos_emb(
    q: Tensor,
    k: Tensor | None,
    cos: Tensor,
    sin: Tensor,
    unsqueeze_dim: int = 1,
    *,
    interleaved: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """The function of this name in transformers, for the tables of `PositionEmbeddings`.

    q, k: `[B, H, S, D]`, or `[B, S, H, D]` with unsqueeze_dim 2; without k, q alone is rotated.
    interleaved: the model's layout. Raises as `rope.rotary_embedding_qk` does, and ValueError for
    another unsqueeze_dim.

    >>> q, sin = torch.ones(1, 2, 1, 4), torch.tensor([[[[1.0, -1.0]]]])
    >>> apply_rotary_pos_emb(q, None, 0 * sin, sin)[0][0, 0, 0]
    tensor([-1.,  1.,  1., -1.])
    """
    if unsqueeze_dim not in _FORMATS:
        raise ValueError(
            f"unsqueeze_dim is {unsqueeze_dim!r}; it must be 1 for vectors [B, H, S, D] or 2 for "
            "[B, S, H, D]: transpose them to one of these"
        )
    how: Any = {"interleaved": interleaved, "tensor_format": _FORMATS[unsqueeze_dim]}
    if k is None:
        return rotary_embedding(q, cos, sin, **how), None
    return rotary_embedding_qk(q, k, cos, sin, **how)


@dataclass(frozen=True)
class ByTables:
    """Stands where a file's function stood, and knows the tables from here by their four axes."""

    theirs: Callable[..., Any]
    interleaved: bool

    def __call__(self, *args: Any, **options: Any) -> Any:
        *vectors, cos, sin = args if len(args) > 2 else (None, None)
        if not all(isinstance(table, Tensor) and table.dim() == 4 for table in (cos, sin)):
            return self.theirs(*args, **options)
        q, k = (*vectors, None)[:2]
        q, k = apply_rotary_pos_emb(q, k, cos, sin, **options, interleaved=self.interleaved)
        return q if len(vectors) == 1 else (q, k)
