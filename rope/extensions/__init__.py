"""Context extensions: how a model trained on L positions is made to read more of them.

Chapter "Longer than the training text". Each is a small frozen object that changes the spectrum,
theta_j -> theta'_j, and is named as transformers names it. `REGISTRY` lists them; frequencies are
made in one place, `rope.inverse_frequencies`, which takes any of them.
"""

from rope.extensions.bands import Llama3, Proportional
from rope.extensions.base import Default, Extension
from rope.extensions.longrope import LongRoPE
from rope.extensions.stretch import NTK, DynamicNTK, Linear
from rope.extensions.yarn import YaRN, mscale

#: Every extension by the name that configurations give it as `rope_type`; none has "ntk".
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
