"""What a model of transformers rotates with, and whether that is what its configuration says.

Two questions are asked before anything is replaced. Which functions does its attention give cos and
sin to? And do they, by tables of its own, give the scores that this package gives?
"""

import inspect
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from rope.adapters.parts import ALL, ByTables, PositionEmbeddings
from rope.module import RotaryEmbedding

#: What attention calls. The second writes its result in halves, queries and keys alike; here it
#: stays interleaved, and every score is the same.
NAMES = ("apply_rotary_pos_emb", "apply_rotary_pos_emb_interleave")


def refusal(model: nn.Module, why: str, way_out: str = "") -> ValueError:
    """The error for a model that cannot be served, with the way out that fits most."""
    way_out = way_out or (
        f"its attention must give cos and sin to {' or '.join(NAMES)}: leave it as it is, or pass "
        "the part that does, its language_model"
    )
    return ValueError(f"the model is a {type(model).__name__}, and {why}; {way_out}")


def is_rotary(module: nn.Module) -> bool:
    """Whether it makes tables from a configuration, which transformers says by the name."""
    return type(module).__name__.endswith("RotaryEmbedding") and hasattr(module, "config")


def files_of(model: nn.Module) -> list[tuple[dict[str, Any], str]]:
    """The functions of NAMES that a model's attention calls: each one's file and name there."""
    functions: dict[Any, Any] = {}
    for kind in dict.fromkeys(type(module) for module in model.modules()):
        forward: Any = inspect.unwrap(kind.forward)
        code = getattr(forward, "__code__", None)
        if code is None or kind.__name__.endswith("RotaryEmbedding"):
            continue
        names = {name for name in code.co_names if "apply" in name and "rot" in name}
        if names - {*NAMES}:
            raise refusal(model, f"its {kind.__name__} calls {min(names - {*NAMES})}")
        if {"cos", "sin"} & {*code.co_varnames} and not names:
            raise refusal(model, f"its {kind.__name__} uses cos and sin itself")
        file = forward.__globals__
        functions |= {(id(file), name): (file, name) for name in names}
    return list(functions.values())


def function_for(
    model: nn.Module, theirs: Any, replacements: Mapping[Any, PositionEmbeddings]
) -> ByTables:
    """Ours, in the layout in which all scores are theirs; refuses a model where there is none.

    Their tables come from a module made afresh: in one that was cast, frequencies are rounded.
    """
    theirs = theirs.theirs if isinstance(theirs, ByTables) else theirs
    x, at = torch.zeros(1, dtype=torch.float64), torch.arange(3, 60, 7)[None]
    noise = torch.Generator().manual_seed(0)
    for ours in (ByTables(theirs, False), ByTables(theirs, True)):
        fits = True
        for rotary, tables in replacements.items():
            fresh = type(rotary)(rotary.config)
            for kind in tables.layers:
                args = (x, at) if kind == ALL else (x, at, kind)
                cos, sin = tables(*args)
                width = 2 * cos.shape[-1]
                q, k = torch.randn(2, 1, 1, 9, width, generator=noise, dtype=torch.float64)
                scores = _scores(ours, q, k, cos, sin)
                # Their angles are float32: a few roundings of an angle in each product.
                off = (scores - _scores(ours, q, k, *fresh(*args))).abs().max()
                fits = fits and bool(off <= width * 60 * 2.0**-22)
        if fits:
            return ours
    raise refusal(model, "it does not rotate as its configuration says")


def check_axes(model: nn.Module, rotary: Any) -> None:
    """Refuse M-RoPE, whose positions have several axes."""
    sections = getattr(rotary, "mrope_section", None)
    if sections is not None:
        raise refusal(
            model,
            f"its planes are shared out among several axes (M-RoPE, {list(sections)})",
            "positions must have one axis here: leave it as it is, or rotate in an attention of "
            "your own by rope.axes.MultiAxisRotaryEmbedding.from_config",
        )


def check_frequencies(model: nn.Module, rotary: Any, tables: PositionEmbeddings) -> None:
    """Refuse a configuration in which nothing rotates, and frequencies changed by hand."""
    layers: list[Any] = [*tables.layers.values()]
    if not layers:
        raise refusal(model, f"no layer of its {type(rotary).__name__} rotates as here")
    if any(layer.extension.length_dependent for layer in layers):  # theirs follow the length
        return
    for name, expected in type(rotary)(rotary.config).named_buffers():
        buffer = getattr(rotary, name)
        if buffer.is_meta:
            continue
        # A cast rounds them: to 8 bits, or in float16, where they are small, to steps of 2^-24.
        if not torch.allclose(buffer.cpu().float(), expected.float(), rtol=0.01, atol=2.0**-24):
            raise refusal(
                model,
                f"{name} of its rotary module is not what its configuration says",
                "the two must agree: say the change in model.config, as rope_parameters, or build "
                "the model anew",
            )


def _scores(rotate: ByTables, q: Tensor, k: Tensor, *tables: Tensor) -> Tensor:
    """The scores of q and k, rotated together or one at a time; NaN where the tables do not fit."""
    try:
        if "x" in inspect.signature(rotate.theirs).parameters:
            q, k = rotate(q, *tables), rotate(k, *tables)
        else:
            q, k = rotate(q, k, *tables)
    except RuntimeError:
        return torch.full((9, 9), torch.nan)
    return q @ k.mT


def sinusoids(model: Any, attention: Any) -> Tensor:
    """GPT-J's buffer `[N, R]`: sin, then cos."""
    rows, width = attention.embed_positions.shape
    rotary = RotaryEmbedding.from_config(model.config, max_seq_len=rows)
    if rotary.dim != width:
        raise refusal(
            model, f"its rotary_dim of {rotary.dim} is not the width of its buffer, {width}"
        )
    return torch.cat((rotary.sin[:rows], rotary.cos[:rows]), dim=-1)
