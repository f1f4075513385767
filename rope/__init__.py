"""Rotary position embedding: the book's package, from the definition to the layer.

`import rope` needs torch alone. The submodules that use NumPy (`reference`),
SymPy (`symbolic`), Matplotlib and Altair (`figures`) load when they are first named.
"""

import importlib
from types import ModuleType

from rope.frequencies import inverse_frequencies, rotary_tables
from rope.functional import rotary_embedding, rotary_embedding_qk
from rope.module import RotaryEmbedding

__version__ = "0.1.0"
__all__ = [
    "RotaryEmbedding",
    "__version__",
    "inverse_frequencies",
    "rotary_embedding",
    "rotary_embedding_qk",
    "rotary_tables",
]

_LAZY = frozenset(
    (
        "accuracy",
        "attention",
        "axes",
        "bench",
        "config",
        "figures",
        "layouts",
        "measuring",
        "reference",
        "symbolic",
        "training",
        "xpos",
    )
)


def __getattr__(name: str) -> ModuleType:
    if name in _LAZY:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})
