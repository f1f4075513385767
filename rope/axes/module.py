"""Rotate queries and keys on several axes: angle_j = sum over a of p_a Theta_{a, j}.

`AxisRotation` is the base class of the layers. `MultiAxisRotaryEmbedding` has fixed frequencies,
for axial RoPE or M-RoPE, and its Theta stays float64 when the model is cast. Each call computes
cos and sin anew, because a table with a row per tuple of positions would be too large.

Shapes: A axes, B batch, H heads, S sequence, D head dimension, R rotated width.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import Tensor, nn

from rope.axes.frequencies import axial_frequencies, section_frequencies
from rope.axes.positions import axis_tables, check_axis_positions, check_frequencies
from rope.checks import check_finite, check_flag, check_heads, check_number, check_pair
from rope.extensions.base import Extension
from rope.frequencies import float64_device, inverse_frequencies
from rope.kernels.operator import apply_rotation
from rope.tables import DeviceTracking, default_device


class AxisRotation(nn.Module):
    """Rotate queries and keys on several axes; a subclass provides the matrix Theta.

    dim, axes: the rotated width R and number of axes A. interleaved: True for planes (2j, 2j+1).
    attention_scaling: the factor on cos and sin.
    """

    dim: int
    axes: int
    interleaved: bool
    attention_scaling: float = 1.0

    def _theta(self, device: torch.device) -> Tensor:
        """Return Theta, float64 `[A, R/2]` or `[H, A, R/2]`, on float64_device(device)."""
        raise NotImplementedError

    def _check_heads(self, name: str, x: Tensor) -> None:
        """Raise TypeError or ValueError unless x is `[B, H, S, D]` and fits Theta."""
        check_heads(name, x, self.dim)

    def forward(
        self, q: Tensor, k: Tensor, position_ids: Tensor, *, inverse: bool = False
    ) -> tuple[Tensor, Tensor]:
        """Rotate q and k to their positions, or rotate them back if inverse is True.

        q: `[B, H, S, D]`; k: `[B, H_kv, S, D]`; position_ids: `[A, S]` or `[A, B, S]`, integers, or
        real positions in float32 or float64. inverse: if True, undo the rotation and scaling.
        Returns the rotated q and k, with the same shapes and dtypes. The tables cos and sin are
        float64 if q or k is float64, otherwise float32.
        Raises the same errors as `axis_tables` and `rotary_embedding`.

        >>> from rope.axes import MultiAxisRotaryEmbedding
        >>> rotary, x = MultiAxisRotaryEmbedding.axial(4), torch.ones(1, 1, 1, 4)
        >>> rotary(x, x, torch.tensor([[1], [0]]))[0]
        tensor([[[[-0.3012,  1.0000,  1.3818,  1.0000]]]])
        """
        self._check_heads("q", q)
        self._check_heads("k", k)
        check_pair(q, k)
        cos, sin = self._tables((q, k), position_ids, inverse)
        q, k = apply_rotation((q, k), cos, sin, interleaved=self.interleaved, inverse=inverse)
        return q, k

    if TYPE_CHECKING:
        __call__ = forward  # nn.Module declares that a call returns Any

    def rotate(self, x: Tensor, position_ids: Tensor, *, inverse: bool = False) -> Tensor:
        """Rotate a single tensor x `[B, H, S, D]`; for the arguments, see `forward`."""
        self._check_heads("x", x)
        cos, sin = self._tables((x,), position_ids, inverse)
        return apply_rotation((x,), cos, sin, interleaved=self.interleaved, inverse=inverse)[0]

    def _tables(
        self, xs: Sequence[Tensor], position_ids: Tensor, inverse: bool
    ) -> tuple[Tensor, Tensor]:
        """Return the tables cos and sin for xs, which holds either x, or q and k."""
        check_flag("inverse", inverse)
        check_axis_positions(position_ids, self.axes, xs[0])
        scale = 1 / self.attention_scaling if inverse else self.attention_scaling
        wide = any(x.dtype == torch.float64 for x in xs)
        dtype = torch.float64 if wide else torch.float32
        return axis_tables(position_ids, self._theta(xs[0].device), dtype=dtype, scale=scale)


class MultiAxisRotaryEmbedding(DeviceTracking, AxisRotation):
    """Rotate queries and keys whose tokens have a position on each of A axes.

    frequencies: Theta, float64 `[A, R/2]`, finite, in radians per position; R is at most the head
    dimension. interleaved: True for planes (2j, 2j+1), False for planes (j, j + R/2).
    attention_scaling: a factor on cos and sin, such as YaRN's. device: None means torch's default.
    `frequencies` is not a buffer: it is not in the state_dict, and casting the model or loading
    weights doesn't change it. It moves to another device with the model or the queries, but stays
    on the CPU if that device doesn't support float64. The attributes dim and axes are R and A.
    Raises TypeError or ValueError for frequencies that have another dtype or shape, require
    gradients, or are not finite.

    >>> rotary = MultiAxisRotaryEmbedding.axial(8, base=100.0).to(torch.bfloat16)
    >>> rotary.frequencies.dtype, list(rotary.state_dict())
    (torch.float64, [])
    >>> from rope.axes import grid_positions
    >>> q, k = rotary(torch.ones(1, 2, 6, 8), torch.ones(1, 2, 6, 8), grid_positions(2, 3))
    >>> q.shape
    torch.Size([1, 2, 6, 8])
    """

    _fixed = ("axes", "dim", "interleaved", "attention_scaling")

    def __init__(
        self,
        frequencies: Tensor,
        *,
        interleaved: bool = False,
        attention_scaling: float = 1.0,
        device: torch.device | str | None = None,
    ) -> None:
        super().__init__()
        check_flag("interleaved", interleaved)
        check_number("attention_scaling", attention_scaling, above=0)
        check_frequencies(frequencies)
        if frequencies.dim() != 2 or frequencies.requires_grad:
            raise ValueError(
                f"frequencies has shape {list(frequencies.shape)} and requires_grad="
                f"{frequencies.requires_grad}; it must be [axes, planes] without gradients "
                "(use MixedRotaryEmbedding to learn frequencies per head)"
            )
        check_finite("frequencies", frequencies, "correct that entry")
        self.axes, self.dim = frequencies.shape[0], 2 * frequencies.shape[1]
        self.interleaved, self.attention_scaling = interleaved, float(attention_scaling)
        with torch.inference_mode(False):
            self._source = frequencies.to("cpu", copy=True)
            self._tensors = self._build(default_device(device))

    @property
    def frequencies(self) -> Tensor:
        """Return Theta, float64 `[A, R/2]`, on the device of the model or of the last queries."""
        return self._tensors[0]

    @classmethod
    def axial(
        cls,
        dim: int,
        axes: int | Sequence[int] = 2,
        base: float = 10000.0,
        *,
        interleaved: bool = False,
        device: torch.device | str | None = None,
    ) -> Self:
        """Return a layer for axial RoPE; for arguments and errors, see `axial_frequencies`.

        >>> MultiAxisRotaryEmbedding.axial(128, (16, 56, 56)).frequencies.shape
        torch.Size([3, 64])
        """
        theta = axial_frequencies(dim, axes, base, device="cpu")
        return cls(theta, interleaved=interleaved, device=device)

    @classmethod
    def mrope(
        cls,
        dim: int,
        sections: Sequence[int],
        base: float = 10000.0,
        *,
        interleaved_sections: bool = False,
        interleaved: bool = False,
        extension: Extension | None = None,
        device: torch.device | str | None = None,
    ) -> Self:
        """Return a layer for M-RoPE; for arguments and errors, see `section_frequencies`.

        extension: a context extension, or None.
        Raises ValueError if the extension's spectrum depends on the length, because the layer has
        only one spectrum.

        >>> rotary = MultiAxisRotaryEmbedding.mrope(128, (16, 24, 24), base=1e6)
        >>> rotary.frequencies.count_nonzero(dim=1).tolist()
        [16, 24, 24]
        """
        inv_freq = inverse_frequencies(dim, base, extension=extension, device="cpu")
        if extension is not None and extension.length_dependent:
            raise ValueError(
                f"extension is {extension}, whose spectrum depends on the length; use an extension "
                "with a fixed spectrum, such as YaRN, or compute the spectrum for one length with "
                "inverse_frequencies(..., seq_len=...)"
            )
        scaling = 1.0 if extension is None else extension.attention_scaling
        theta = section_frequencies(inv_freq, sections, interleaved_sections=interleaved_sections)
        return cls(theta, interleaved=interleaved, attention_scaling=scaling, device=device)

    @classmethod
    def from_config(
        cls,
        config: Mapping[str, Any] | str | object,
        *,
        layer_type: str | None = None,
        layer: int | None = None,
        interleaved: bool | None = None,
        device: torch.device | str | None = None,
    ) -> Self:
        """Return the M-RoPE layer for a model's configuration.

        For the arguments, see `rope.config.rotary_settings`.
        Raises ValueError if the model has no M-RoPE sections, and the errors of `mrope` and
        `rotary_settings`.

        >>> settings = {"model_type": "qwen2_vl", "head_dim": 128, "rope_theta": 1e6,
        ...             "max_position_embeddings": 32768,
        ...             "rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]}}
        >>> MultiAxisRotaryEmbedding.from_config(settings)
        MultiAxisRotaryEmbedding(axes=3, dim=128, interleaved=False, attention_scaling=1.0)
        """
        from rope.config import rotary_settings

        settings = rotary_settings(
            config, layer_type=layer_type, layer=layer, interleaved=interleaved
        )
        if settings.sections is None:
            raise ValueError(
                "config has no mrope_section, which assigns planes to axes; use "
                "rope.RotaryEmbedding.from_config for positions on one axis"
            )
        return cls.mrope(
            settings.dim,
            settings.sections,
            settings.base,
            interleaved_sections=settings.interleaved_sections,
            interleaved=settings.interleaved,
            extension=settings.extension,
            device=device,
        )

    def _theta(self, device: torch.device) -> Tensor:
        device, theta = float64_device(device), self._tensors[0]
        return theta if theta.device == device else self._move_and_store(device, self._tensors)[0]

    def _build(self, device: torch.device) -> tuple[Tensor, ...]:
        return (self._source.to(float64_device(device), copy=True),)

    def extra_repr(self) -> str:
        return ", ".join(f"{name}={getattr(self, name)}" for name in self._fixed)
