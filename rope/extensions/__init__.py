"""Provide context extensions, which let a model trained on L positions read longer texts.

See the chapter "Longer than the training text". Each extension is a frozen dataclass that changes
the frequencies, theta_j -> theta'_j. Pass an extension to `rope.inverse_frequencies` or
`rope.RotaryEmbedding`. `REGISTRY` maps the name of each extension to its class.
"""

from rope.extensions.bands import Llama3, Proportional
from rope.extensions.base import Default, Extension
from rope.extensions.longrope import LongRoPE
from rope.extensions.scaling import NTK, DynamicNTK, Linear
from rope.extensions.yarn import YaRN, mscale

#: Maps each `rope_type` to its extension class. No configuration contains the type "ntk".
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
