"""Tensors that follow a model from device to device, and nothing else that is done to a model.

They are no buffers. What is a buffer is cast, broadcast, averaged, and written over with
uninitialised memory by the frameworks that load and train models; these follow the device alone.
"""

from collections.abc import Callable
from typing import Self

import torch
from torch import Tensor, nn

from rope.checks import is_plain


class Following(nn.Module):
    """A module whose tensors, `_kept`, follow the model or a call's vectors to their device.

    A subclass sets `_kept = _build(default_device(device))` when it is made; `_build` runs outside
    inference mode, or training could never use its tensors.
    """

    _kept: tuple[Tensor, ...]  # replaced whole: no thread sees one new tensor beside one old

    def _build(self, device: torch.device) -> tuple[Tensor, ...]:
        """The tensors on a device."""
        raise NotImplementedError

    def _on(
        self, device: torch.device, tensors: tuple[Tensor, ...] | None = None
    ) -> tuple[Tensor, ...]:
        """These tensors, or the kept ones, where a call is; they stay there, unless it is meta."""
        tensors = self._kept if tensors is None else tensors
        if tensors[0].device == device:
            return tensors
        moved = self._moved(device, tensors)
        return moved if device.type == "meta" else self._keep(moved)

    def _keep(self, tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Keep tensors, unless they belong to a tracer or a transform, and would outlive it."""
        if torch.compiler.is_compiling() or all(map(is_plain, tensors)):
            self._kept = tensors
        return tensors

    def _moved(self, device: torch.device, tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        if torch.compiler.is_compiling() and not tensors[0].is_meta:
            return tuple(tensor.to(device) for tensor in tensors)
        return self._build(device)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Follow a move to another device; a cast, or any other change, does not reach them."""
        super()._apply(fn, recurse)
        device = fn(torch.empty(0, device=self._kept[0].device)).device
        if device != self._kept[0].device:
            self._kept = self._moved(device, self._kept)
        return self


def default_device(device: torch.device | str | None) -> torch.device:
    """The device itself, or torch's default when None."""
    # Unlike torch.get_default_device, this sees `with torch.device(...)` in torch 2.6 too.
    return torch.empty(0, device=device).device
