"""Rotate tokens that have several positions, such as row and column in an image.

One formula covers all methods. A token has A positions p_0 ... p_{A-1}, and plane j rotates by

    angle_j = sum over a of p_a Theta_{a, j}.

Angles in a plane add, so R(p) R(q) = R(p + q) and R(p)^T R(q) = R(q - p): a score depends on the
positions only through the offset along each axis. The methods differ only in Theta. In the first
two of these methods, each column of Theta has one nonzero entry:

- axial (`axial_frequencies`): each axis has its own planes, with a full spectrum;
- M-RoPE (`section_frequencies`): the axes share one spectrum (Qwen2-VL, arXiv 2409.12191);
- mixed (`MixedRotaryEmbedding`): each head learns a dense Theta (RoPE-ViT, arXiv 2403.13298).

Shapes: A axes, B batch, H heads, S sequence, D head dimension, R rotated width.
"""

from rope.axes.frequencies import axial_frequencies, section_frequencies
from rope.axes.mixed import MixedRotaryEmbedding
from rope.axes.module import MultiAxisRotaryEmbedding
from rope.axes.positions import axis_tables, grid_positions, mrope_position_ids

__all__ = [
    "MixedRotaryEmbedding",
    "MultiAxisRotaryEmbedding",
    "axial_frequencies",
    "axis_tables",
    "grid_positions",
    "mrope_position_ids",
    "section_frequencies",
]
