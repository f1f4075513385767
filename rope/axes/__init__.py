"""RoPE with more than one position a token: rows and columns of an image, frames of a video.

One formula for all of them. A token has A positions p_0 ... p_{A-1}, and plane j turns by

    angle_j = sum over a of p_a Theta_{a, j},

a sum of rotations of one plane, so R(p) R(q) = R(p + q) and R(p)^T R(q) = R(q - p): a score
depends on the offset along every axis and on nothing else. The methods differ in Theta alone:

- axial: each axis has its own planes, one non-zero entry a column (`axial_frequencies`);
- M-RoPE: one spectrum dealt out to the axes, one non-zero entry a column (Qwen2-VL, arXiv
  2409.12191; Qwen3-VL deals plane by plane: `section_frequencies`);
- mixed: dense, one matrix a head, learned (RoPE-ViT, arXiv 2403.13298: `MixedRotaryEmbedding`).

Shapes: A axes, B batch, H heads, S sequence, D head dimension, R rotated width.
"""

from rope.axes.frequencies import axial_frequencies, section_frequencies
from rope.axes.mixed import MixedRotaryEmbedding
from rope.axes.module import MultiAxisRotaryEmbedding
from rope.axes.positions import grid_positions, mrope_position_ids
from rope.axes.tables import axis_tables

__all__ = [
    "MixedRotaryEmbedding",
    "MultiAxisRotaryEmbedding",
    "axial_frequencies",
    "axis_tables",
    "grid_positions",
    "mrope_position_ids",
    "section_frequencies",
]
