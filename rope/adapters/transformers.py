"""This package's tables and rotation inside a model of transformers, in place of its own.

A model there rotates in two steps: a module makes `cos, sin` once a call, and every attention gives
them to a function of its file, `apply_rotary_pos_emb`. `use_rope` replaces both. The model gets
`PositionEmbeddings`; the function, which all models of that file share, rotates by tables of their
shape, `[B, 1, S, R/2]`, and hands all others on to the one that it replaced.

Shapes: B batch, H heads, S sequence, D head dimension, R rotated width.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from rope.config.parameters import layer_entries
from rope.config.source import read_config, text_facts
from rope.functional import rotary_embedding, rotary_embedding_qk
from rope.module import RotaryEmbedding

Model = TypeVar("Model", bound=nn.Module)
Pair = tuple[Tensor, Tensor]

#: What attention calls. The second writes its result in halves, queries and keys alike; here it
#: stays interleaved, and every score is the same.
NAMES = ("apply_rotary_pos_emb", "apply_rotary_pos_emb_interleave")
_ALL = "all"  # the layer type of models whose layers rotate alike
_FORMATS = {1: "bhsd", 2: "bshd"}  # by unsqueeze_dim, the axis where the heads stand


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
                kind or _ALL: RotaryEmbedding.from_config(config, layer_type=kind)
                for kind in kinds
                if entries[kind] is not None
            }
        )
        self.config, self.layer_types = config, tuple(self.layers)  # which some models read

    def forward(self, x: Tensor, position_ids: Tensor, layer_type: str | None = None) -> Pair:
        """cos and sin `[B, 1, S, R/2]` of position_ids `[B, S]`, each plane once.

        x: any tensor on the model's device and of its dtype; the tables are float32, or float64
        where it is. Raises ValueError for an unknown layer_type, where the layers differ.
        """
        kind = _ALL if _ALL in self.layers else str(layer_type)
        if kind not in self.layers:
            raise ValueError(
                f"layer_type is {layer_type!r}; it must be one of {', '.join(self.layers)}: pass "
                "the type of the layer"
            )
        rotary: Any = self.layers[kind]
        return rotary.tables_at(position_ids.to(x.device), dtype=x.dtype)


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
    interleaved: the model's layout, as in `rope.rotary_embedding_qk`, whose errors it raises, and
    ValueError for another unsqueeze_dim.

    >>> q, zero = torch.ones(1, 2, 1, 4), torch.zeros(1, 1, 1, 2)
    >>> apply_rotary_pos_emb(q, None, zero, zero + 1)[0][0, 0, 0]
    tensor([-1., -1.,  1.,  1.])
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
class _ByTables:
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


def use_rope(model: Model) -> Model:
    """Rotate in a loaded model, in place, by this package; returns the model.

    model: of transformers, whose attention gives cos and sin to `apply_rotary_pos_emb` (Llama,
    Mistral, Qwen, Gemma, Phi, GPT-NeoX, Cohere and most others). GPT-J and CodeGen keep their own
    function and get exact tables. Layers that do not rotate stay so, and other models of the same
    class keep their own. A model unpickled in another process needs the call again. Extensions that
    depend on the length need `fix_length` of `model.model.rotary_emb.layers["all"]`, say, under
    torch.compile.
    Raises ValueError for any other model, for one whose function does not rotate as its
    configuration says (one position is tried), and as `RotaryEmbedding.from_config` does; nothing
    is then replaced.

    >>> import pytest
    >>> transformers = pytest.importorskip("transformers")
    >>> small = dict(hidden_size=32, num_attention_heads=2, num_hidden_layers=1, vocab_size=8)
    >>> config = transformers.LlamaConfig(**small, intermediate_size=32)
    >>> model = use_rope(transformers.LlamaForCausalLM(config))
    >>> model.model.rotary_emb.layers["all"].dim
    16
    """
    restore(model)
    gptj: list[Any] = [each for each in model.modules() if hasattr(each, "pos_embd_dim")]
    places = [place for place in _children(model) if _is_rotary(place[2])]
    files = _files(model)
    if not files or not (places or gptj):
        raise _refusal(model, "it has no rotary module, or nothing that uses one")
    with torch.device("cpu"):
        made = {child: PositionEmbeddings(child.config) for *_, child in places}
        sinusoids = [_sinusoids(model, each) for each in gptj]
    ours = [] if gptj else [_function(model, file[name], made) for file, name in files]
    for (file, name), function in zip(files, ours, strict=False):
        file[name] = function
    for parent, name, child in places:
        made[child].to(next(child.buffers()).device).__dict__["replaced"] = child
        setattr(parent, name, made[child])
    for each, table in zip(gptj, sinusoids, strict=True):
        each.__dict__["replaced"] = each.embed_positions
        each.embed_positions = table.to(each.embed_positions.device)
    return model


def restore(model: Model) -> Model:
    """Give a model back what `use_rope` replaced in it; returns the model.

    The function of its file stays: for all tables but those from here it does what it did.
    """
    for parent, name, child in list(_children(model)):
        if isinstance(child, PositionEmbeddings):
            setattr(parent, name, child.__dict__["replaced"])
    for each in model.modules():
        if hasattr(each, "pos_embd_dim") and "replaced" in each.__dict__:
            each.embed_positions = each.__dict__.pop("replaced")
    return model


def _children(module: nn.Module) -> Iterator[tuple[nn.Module, str, nn.Module]]:
    """Every place in a model: who holds it, its name there, and what it holds."""
    for name, child in module.named_children():
        yield module, name, child
        yield from _children(child)


def _is_rotary(module: nn.Module) -> bool:
    """Whether it makes tables from a configuration, which transformers says by the name."""
    return type(module).__name__.endswith("RotaryEmbedding") and hasattr(module, "config")


def _refusal(model: nn.Module, why: str) -> ValueError:
    return ValueError(
        f"the model is a {type(model).__name__}, and {why}; its attention must give cos and sin to "
        f"{' or '.join(NAMES)}: leave it as it is, or pass the part that does, its language_model"
    )


def _files(model: nn.Module) -> list[tuple[dict[str, Any], str]]:
    """The functions of NAMES that a model's attention calls: each one's file and name there."""
    found: dict[Any, Any] = {}
    for kind in dict.fromkeys(type(module) for module in model.modules()):
        forward: Any = inspect.unwrap(kind.forward)
        code = getattr(forward, "__code__", None)
        if code is None or kind.__name__.endswith("RotaryEmbedding"):
            continue
        names = {name for name in code.co_names if "apply" in name and "rot" in name}
        if names - {*NAMES}:
            raise _refusal(model, f"its {kind.__name__} calls {min(names - {*NAMES})}")
        if {"cos", "sin"} & {*code.co_varnames} and not names:
            raise _refusal(model, f"its {kind.__name__} uses cos and sin itself")
        found |= {(id(forward.__globals__), name): (forward.__globals__, name) for name in names}
    return list(found.values())


def _function(model: nn.Module, theirs: Any, made: Mapping[Any, PositionEmbeddings]) -> _ByTables:
    """Ours, in the layout in which all scores are theirs; refuses a model where there is none.

    Their tables come from a module made afresh: in one that was cast, frequencies are rounded.
    """
    theirs = theirs.theirs if isinstance(theirs, _ByTables) else theirs
    x, at = torch.zeros(1, dtype=torch.float64), torch.arange(3, 60, 7)[None]
    noise = torch.Generator().manual_seed(0)
    for ours in (_ByTables(theirs, False), _ByTables(theirs, True)):
        fits = True
        for rotary, tables in made.items():
            fresh = type(rotary)(rotary.config)
            for kind in tables.layers:
                args = (x, at) if kind == _ALL else (x, at, kind)
                cos, sin = tables(*args)
                width = 2 * cos.shape[-1]
                q, k = torch.randn(2, 1, 1, 9, width, generator=noise, dtype=torch.float64)
                found = _scores(ours, q, k, cos, sin)
                # Their angles are float32: a few roundings of an angle in each product.
                off = (found - _scores(ours, q, k, *fresh(*args))).abs().max()
                fits = fits and bool(off <= width * 60 * 2.0**-22)
        if fits:
            return ours
    raise _refusal(model, "it does not rotate as its configuration says")


def _scores(rotate: _ByTables, q: Tensor, k: Tensor, *tables: Tensor) -> Tensor:
    """The scores of q and k, rotated together or one at a time; NaN where the tables do not fit."""
    try:
        if "x" in inspect.signature(rotate.theirs).parameters:
            q, k = rotate(q, *tables), rotate(k, *tables)
        else:
            q, k = rotate(q, k, *tables)
    except RuntimeError:
        return torch.full((9, 9), torch.nan)
    return q @ k.mT


def _sinusoids(model: Any, attention: Any) -> Tensor:
    """GPT-J's buffer `[N, R]`: sin, then cos."""
    rows, width = attention.embed_positions.shape
    rotary = RotaryEmbedding.from_config(model.config, max_seq_len=rows)
    if rotary.dim != width:
        raise _refusal(
            model, f"its rotary_dim of {rotary.dim} is not the width of its buffer, {width}"
        )
    return torch.cat((rotary.sin[:rows], rotary.cos[:rows]), dim=-1)
