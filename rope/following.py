"""Tensors that follow a model from device to device, and nothing else that is done to a model.

They are no buffers. What is a buffer is cast, broadcast, averaged, and written over with
uninitialised memory by the frameworks that load and train models; these follow the device alone.
"""

from collections.abc import Callable
from typing import Any, Self

import torch
from torch import Tensor, nn

from rope.checks import is_plain


class Following(nn.Module):
    """A module whose tensors, `_kept`, follow the model or a call's vectors to their device.

    A subclass sets `_kept = _build(default_device(device))` when it is made; `_build` runs outside
    inference mode, or training could never use its tensors.
    """

    _kept: tuple[Tensor, ...]  # replaced whole: no thread sees one new tensor beside one old
    _fixed: tuple[str, ...]  # the attributes that the tensors are made with

    def __setattr__(self, name: str, value: Any) -> None:
        """Refuse what would leave the tensors behind."""
        if name in self._fixed and name in self.__dict__:
            raise AttributeError(
                f"{name} is {getattr(self, name)!r} for good, since tables are made with it: make "
                "a new module (or call fix_length, where it is the length)"
            )
        super().__setattr__(name, value)

    def __getstate__(self) -> dict[str, Any]:
        """All but the tensors, which can be made again: of them the rows and the device."""
        return {**self.__dict__, "_kept": tuple(t.new_empty(len(t), 0) for t in self._kept)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._kept = self._build(self._kept[0].device)

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
        try:
            device = fn(torch.empty(0, device=self._kept[0].device)).device
        except NotImplementedError:  # meta holds nothing that could be moved, and needs nothing
            device = fn(torch.empty(0, device="cpu")).device
        if device != self._kept[0].device:
            self._kept = self._moved(device, self._kept)
        return self


def default_device(device: torch.device | str | None) -> torch.device:
    """The device itself, or torch's default when None."""
    # Unlike torch.get_default_device, this sees `with torch.device(...)` in torch 2.6 too.
    return torch.empty(0, device=device).device
