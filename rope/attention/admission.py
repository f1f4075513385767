"""What a cache takes: the keys and values of new tokens, what rotates them, and a window.

Shapes: B batch, H_kv key heads, N slots, S new tokens, D head dimension, D_v that of values.
"""

import torch
from torch import Tensor

from rope.checks import check_count, check_devices, check_floating, check_tensor
from rope.module import RotaryEmbedding
from rope.positions import check_attention_mask


def check_new(keys: Tensor, values: Tensor, k: Tensor, v: Tensor) -> None:
    """Refuse k, v that do not fit into keys `[B, H_kv, N, D]` and values `[B, H_kv, N, D_v]`.

    >>> check_new(torch.ones(1, 2, 9, 4), torch.ones(1, 2, 9, 3), *torch.ones(2, 1, 2, 5, 4))
    Traceback (most recent call last):
    ...
    ValueError: v has shape [1, 2, 5, 4]; the cache takes [1, 2, S, 3]: make it with those sizes
    """
    outside = not (torch.compiler.is_compiling() or torch.is_inference_mode_enabled())
    if outside and keys.is_inference():
        raise ValueError(
            "the cache was made under torch.inference_mode() and is used outside it; torch "
            "lets it be written to inside alone: make it outside, or decode inside"
        )
    for name, tensor, held in (("k", k, keys), ("v", v, values)):
        check_floating(name, tensor)
        batch, heads, _, width = held.shape
        if tensor.dim() != 4 or tensor.shape != (batch, heads, tensor.shape[2], width):
            raise ValueError(
                f"{name} has shape {list(tensor.shape)}; the cache takes "
                f"[{batch}, {heads}, S, {width}]: make it with those sizes"
            )
        if tensor.dtype != held.dtype:
            raise TypeError(
                f"{name} is {tensor.dtype} and the cache {held.dtype}; they must agree: "
                f"make it with dtype={tensor.dtype} (under autocast the keys have its dtype)"
            )
        check_devices(**{"cache.keys": held, name: tensor})
        if tensor.requires_grad and torch.is_grad_enabled():
            raise ValueError(
                f"{name} records gradients; a cache is overwritten and cannot keep them: "
                "decode under torch.no_grad()"
            )
    if k.shape[2] != v.shape[2]:
        raise ValueError(
            f"k has {k.shape[2]} tokens and v {v.shape[2]}; they must be the same: "
            "append both for the same tokens"
        )


def check_rotary(
    keys: Tensor, rotary: RotaryEmbedding | None, seq_len: int | None, needed: bool
) -> None:
    """Refuse what cannot rotate keys `[B, H_kv, N, D]`, and nothing where that is needed.

    >>> check_rotary(torch.ones(1, 2, 9, 4), RotaryEmbedding(4), None, True)
    """
    if seq_len is not None:
        check_count("seq_len", seq_len)
    if rotary is None and needed:
        raise ValueError(
            "rotary is None, and the cache has keys to rotate; it must be what rotates the "
            "queries: pass the RotaryEmbedding of the layer"
        )
    if rotary is None:
        return
    if not isinstance(rotary, RotaryEmbedding):
        raise TypeError(
            f"rotary is a {type(rotary).__name__}; it must be a rope.RotaryEmbedding: pass that of "
            "the layer"
        )
    if rotary.dim > keys.shape[3]:
        raise ValueError(
            f"rotary turns {rotary.dim} coordinates and a key has {keys.shape[3]}; it must have "
            "them: pass the RotaryEmbedding that turns the queries"
        )
    if needed and rotary.extension.length_dependent and rotary.fixed_length is seq_len is None:
        raise ValueError(
            f"seq_len is None for {rotary.extension.name}, whose spectrum depends on the length; "
            "one must hold for all keys: pass it, or call fix_length first"
        )


def check_window(window: int | None, sinks: int, sink_positions: str) -> None:
    """Refuse what is no window, or sinks without one.

    >>> check_window(4096, 4, "text")
    """
    check_count("sinks", sinks, smallest=0)
    if window is not None:
        check_count("window", window, smallest=2)  # of one, a token sees itself alone
    elif sinks:
        raise ValueError(
            f"sinks is {sinks} and window None; sinks are what stays in sight outside of a "
            "window: pass window, or leave sinks out"
        )
    if sink_positions not in ("text", "cache"):
        raise ValueError(
            f"sink_positions is {sink_positions!r}; it must be 'text' or 'cache': leave it out "
            "for 'text'"
        )


def check_mask(attention_mask: Tensor, x: Tensor) -> Tensor:
    """The mask as bool `[B, S]`, refused if it does not fit x `[B, S, E]`.

    >>> check_mask(torch.tensor([[0, 1, 1]]), torch.ones(1, 3, 8))
    tensor([[False,  True,  True]])
    """
    check_tensor("attention_mask", attention_mask)
    check_devices(x=x, attention_mask=attention_mask)
    if attention_mask.shape != x.shape[:2]:
        raise ValueError(
            f"attention_mask has shape {list(attention_mask.shape)}; it must be "
            f"{list(x.shape[:2])}, one number a token of this call: leave out those cached"
        )
    return check_attention_mask(attention_mask)
