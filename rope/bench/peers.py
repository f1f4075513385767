"""The field: how each published implementation is called for a case.

Every peer is called as its own documentation or the models that use it call it, by the form that
serves it best; where there are two forms, both are timed. What a peer has no form for is refused
in a sentence. Tables are ours (float64 angles), in the peer's shape: the tables of most peers are
float32 angles, whose error the chapter "How exact must it be?" measures, and would not pass the
check at the long end.

Shapes: B batch, H heads, S sequence, D head dimension, R rotated width.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from rope._formula import formula
from rope.bench.cases import Case
from rope.bench.competitors import BASE, Competitor, Ready, RefusedError, Rotate, Setting


def transformers(made: Setting) -> Ready:
    """`apply_rotary_pos_emb`, with tables `[1, S, R]` in the vectors' dtype, as its models have it.

    Llama's function for the half layout, GPT-NeoX's where the rotation is partial; Cohere's for
    the interleaved one, whose tables come interleaved, GLM's where the rotation is partial.
    """
    case = made.case
    _only_out_of_place(case, "transformers")
    partial = case.rotary_dim < case.head_dim
    model = {
        (False, False): "llama",
        (False, True): "gpt_neox",
        (True, False): "cohere",
        (True, True): "glm",
    }[case.interleaved, partial]
    apply = import_module(f"transformers.models.{model}.modeling_{model}").apply_rotary_pos_emb
    cos, sin = (_doubled(table, made, model == "cohere") for table in (made.cos, made.sin))
    return Ready(lambda q, k: apply(q, k, cos, sin))


def transformers_compiled(made: Setting) -> Ready:
    """The same through `torch.compile`, its shapes fixed."""
    rotate: Rotate = torch.compile(transformers(made).rotate, dynamic=False)
    return Ready(rotate)


def formulas_compiled(made: Setting) -> Ready:
    """This package's two formulas, written as plain operations, through `torch.compile`."""
    case = made.case
    _only_out_of_place(case, "the compiled formula")
    cos, sin = (table[None, None] for table in (made.cos, made.sin))

    def both(q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        interleaved = case.interleaved
        return formula(q, cos, sin, interleaved), formula(k, cos, sin, interleaved)

    return Ready(torch.compile(both, dynamic=False))


def rotary_embedding_torch(made: Setting) -> Ready:
    """`apply_rotary_emb` with the angles at hand; it takes their cosines at each call."""
    _interleaved_alone(made.case, "rotary-embedding-torch")
    _only_out_of_place(made.case, "rotary-embedding-torch")
    apply = import_module("rotary_embedding_torch").apply_rotary_emb
    freqs = made.angles.float().repeat_interleave(2, dim=-1)
    return Ready(lambda q, k: (apply(freqs, q), apply(freqs, k)))


def rotary_embedding_torch_module(made: Setting) -> Ready:
    """`rotate_queries_or_keys` with its cache of angles filled, by float32 positions."""
    case = made.case
    _interleaved_alone(case, "rotary-embedding-torch")
    _only_out_of_place(case, "rotary-embedding-torch")
    length = case.first + case.seq
    module = import_module("rotary_embedding_torch").RotaryEmbedding(
        case.rotary_dim, theta=BASE, cache_max_seq_len=length
    )
    module = module.to(made.cos.device)
    module(module.get_seq_pos(length), seq_len=length)
    turn, first = module.rotate_queries_or_keys, case.first
    return Ready(lambda q, k: (turn(q, offset=first), turn(k, offset=first)))


def liger(made: Setting) -> Ready:
    """`liger_rotary_pos_emb`: one launch for q and k, in the memory of what is stored by token."""
    case = made.case
    _on_a_gpu(made, "Liger")
    if case.interleaved:
        raise RefusedError("Liger has no interleaved layout")
    _whole(case, "Liger")
    if case.mode == "into a buffer":
        raise RefusedError("Liger has no form that fills a given tensor")
    if case.mode == "in place" and case.storage == "[B,H,S,D]":
        raise RefusedError("Liger works in place only on what is stored as [B,S,H,D]")
    apply = import_module("liger_kernel.transformers.rope").liger_rotary_pos_emb
    cos, sin = (_doubled(table, made, False) for table in (made.cos, made.sin))
    return Ready(lambda q, k: apply(q, k, cos, sin))


def flash_attn(made: Setting) -> Ready:
    """`apply_rotary_emb` on `[B, S, H, D]`, once for q and once for k."""
    case = made.case
    _on_a_gpu(made, "flash-attn")
    if case.mode == "into a buffer":
        raise RefusedError("flash-attn has no form that fills a given tensor")
    apply = import_module("flash_attn.layers.rotary").apply_rotary_emb
    dtype = getattr(torch, case.dtype)
    cos, sin = made.cos.to(dtype), made.sin.to(dtype)
    interleaved, inplace = case.interleaved, case.mode == "in place"

    def turn(x: Tensor) -> Tensor:
        turned: Tensor = apply(
            x.transpose(1, 2), cos, sin, interleaved=interleaved, inplace=inplace
        )
        return turned.transpose(1, 2)

    return Ready(lambda q, k: (turn(q), turn(k)))


def torchtune(made: Setting) -> Ready:
    """`RotaryPositionalEmbeddings` on `[B, S, H, D]`, its cache holding the case's rows alone."""
    case = made.case
    _interleaved_alone(case, "torchtune")
    _only_out_of_place(case, "torchtune")
    _whole(case, "torchtune")
    modules = import_module("torchtune.modules")
    module: Any = modules.RotaryPositionalEmbeddings(case.rotary_dim, case.seq, int(BASE))
    if not getattr(module, "is_cache_built", True):
        module.rope_init()
    module.cache = torch.stack((made.cos, made.sin), dim=-1)

    def turn(x: Tensor) -> Tensor:
        turned: Tensor = module(x.transpose(1, 2))
        return turned.transpose(1, 2)

    return Ready(lambda q, k: (turn(q), turn(k)))


def _doubled(table: Tensor, made: Setting, interleaved: bool) -> Tensor:
    """`[S, R/2]` as `[1, S, R]` in the vectors' dtype."""
    wide = table.repeat_interleave(2, dim=-1) if interleaved else torch.cat((table, table), dim=-1)
    return wide[None].to(getattr(torch, made.case.dtype))


def _only_out_of_place(case: Case, name: str) -> None:
    if case.mode == "in place":
        raise RefusedError(f"{name} has no form that works in place")
    if case.mode == "into a buffer":
        raise RefusedError(f"{name} has no form that fills a given tensor")


def _interleaved_alone(case: Case, name: str) -> None:
    if not case.interleaved:
        raise RefusedError(f"{name} has the interleaved layout alone")


def _whole(case: Case, name: str) -> None:
    if case.rotary_dim < case.head_dim:
        raise RefusedError(f"{name} rotates all coordinates of a head or none")


def _on_a_gpu(made: Setting, name: str) -> None:
    if made.cos.device.type != "cuda":
        raise RefusedError(f"{name}'s kernel runs on a GPU alone")


#: rotary-embedding-torch's function takes angles rounded once to float32. Its module forms them:
#: 1/theta**(2j/R) times a position. Rounding the exponent moves the power by up to ln(10000) < 9.3
#: roundings; the power (2), its reciprocal and the product make it less than 14.
PEERS = (
    Competitor("formulas compiled", "torch", formulas_compiled),
    Competitor("transformers", "transformers", transformers, narrow=True),
    Competitor("transformers compiled", "transformers", transformers_compiled, narrow=True),
    Competitor(
        "rotary-embedding-torch",
        "rotary-embedding-torch",
        rotary_embedding_torch,
        narrow_gradient=True,
        angle_roundings=1,
    ),
    Competitor(
        "rotary-embedding-torch module",
        "rotary-embedding-torch",
        rotary_embedding_torch_module,
        narrow_gradient=True,
        angle_roundings=14,
    ),
    Competitor("Liger", "liger-kernel", liger, narrow=True),
    Competitor("flash-attn", "flash-attn", flash_attn, narrow=True),
    Competitor("torchtune", "torchtune", torchtune),
)
