"""Rotary position embedding: the book's package, from the definition to the layer.

`import rope` needs torch alone. The submodules that use NumPy (`reference`),
SymPy (`symbolic`), Matplotlib and Altair (`figures`) load when they are first named.
"""

import importlib
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

if Path(__file__).with_name("refactor").exists():
    raise ImportError(
        f"{Path(__file__).parent} holds two packages called rope, this one and that for "
        "refactoring, the files of one over the other's; an environment must have one of them: "
        "pip uninstall rope rope-book, then install the one, or make an environment for each"
    )

from rope.frequencies import inverse_frequencies, rotary_tables
from rope.functional import rotary_embedding, rotary_embedding_qk
from rope.module import RotaryEmbedding

__version__ = "0.2.0"
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
        "adapters",
        "attention",
        "axes",
        "bench",
        "config",
        "diagnose",
        "figures",
        "layouts",
        "measuring",
        "parallel",
        "reference",
        "symbolic",
        "training",
        "xpos",
    )
)

if TYPE_CHECKING:
    from rope import accuracy as accuracy
    from rope import adapters as adapters
    from rope import attention as attention
    from rope import axes as axes
    from rope import bench as bench
    from rope import config as config
    from rope import diagnose as diagnose
    from rope import extensions as extensions
    from rope import figures as figures
    from rope import formula as formula
    from rope import kernels as kernels
    from rope import layouts as layouts
    from rope import measuring as measuring
    from rope import parallel as parallel
    from rope import positions as positions
    from rope import reference as reference
    from rope import symbolic as symbolic
    from rope import training as training
    from rope import xpos as xpos


def __getattr__(name: str) -> ModuleType:
    if name in _LAZY:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})
