"""Context extensions: let a model trained on L positions read longer texts.

Chapter "Longer than the training text". Each extension is a frozen dataclass that changes the
frequencies, theta_j -> theta'_j, under the name that transformers uses. Pass one to
`rope.inverse_frequencies` or `rope.RotaryEmbedding`; `REGISTRY` lists all of them.
"""

from rope.extensions.bands import Llama3, Proportional
from rope.extensions.base import Default, Extension
from rope.extensions.longrope import LongRoPE
from rope.extensions.scaling import NTK, DynamicNTK, Linear
from rope.extensions.yarn import YaRN, mscale

#: All extensions by their `rope_type` in configurations ("ntk" occurs in none).
REGISTRY: dict[str, type[Extension]] = {
    kind.name: kind
    for kind in (Default, Linear, NTK, DynamicNTK, YaRN, Llama3, LongRoPE, Proportional)
}

__all__ = [
    "NTK",
    "REGISTRY",
    "Default",
    "DynamicNTK",
    "Extension",
    "Linear",
    "Llama3",
    "LongRoPE",
    "Proportional",
    "YaRN",
    "mscale",
]
