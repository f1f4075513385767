"""RoPE with several positions per token: rows and columns of an image, frames of a video.

One formula covers all methods. A token has A positions p_0 ... p_{A-1}, and plane j rotates by

    angle_j = sum over a of p_a Theta_{a, j}.

Angles in a plane add, so R(p) R(q) = R(p + q) and R(p)^T R(q) = R(q - p): a score depends on the
positions only through the offset along each axis. The methods differ only in Theta:

- axial: each axis has its own planes, so each column has one nonzero entry (`axial_frequencies`);
- M-RoPE: the planes of one spectrum are shared among the axes, one nonzero entry per column
  (Qwen2-VL, arXiv 2409.12191; Qwen3-VL interleaves them: `section_frequencies`);
- mixed: a dense, learned matrix per head (RoPE-ViT, arXiv 2403.13298: `MixedRotaryEmbedding`).

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
