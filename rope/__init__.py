"""Implement rotary position embedding (RoPE), from the definition to the PyTorch layer.

Submodules load on first use, so `import rope` needs no other package. The layer and its functions
need torch; `reference` needs NumPy; `symbolic` needs SymPy; `book` needs the extra `notebooks`.
"""

import importlib
import pkgutil
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"
__all__ = [
    "RotaryEmbedding",
    "__version__",
    "inverse_frequencies",
    "rotary_embedding",
    "rotary_embedding_qk",
    "rotary_tables",
]

_HOMES = {
    "RotaryEmbedding": "module",
    "inverse_frequencies": "frequencies",
    "rotary_embedding": "functional",
    "rotary_embedding_qk": "functional",
    "rotary_tables": "frequencies",
}
_SUBMODULES = frozenset(module.name for module in pkgutil.iter_modules(__path__))

if TYPE_CHECKING:  # type checkers and editors read this instead of __getattr__
    from . import adapters, attention, axes, book, config, diagnose, extensions, frequencies
    from . import functional, kernels, layouts, module, parallel, positions, reference, symbolic
    from . import tables, xpos
    from rope.frequencies import inverse_frequencies, rotary_tables
    from rope.functional import rotary_embedding, rotary_embedding_qk
    from rope.module import RotaryEmbedding
else:

    def __getattr__(name: str) -> Any:
        if name not in _HOMES and name not in _SUBMODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        module = importlib.import_module(f"{__name__}.{_HOMES.get(name, name)}")
        # Store the attribute so that later lookups skip this function. Compiled code requires it.
        return globals().setdefault(name, getattr(module, name) if name in _HOMES else module)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES, *_SUBMODULES})
