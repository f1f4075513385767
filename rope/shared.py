"""One pair of tables for all modules of one spectrum: a model of 32 layers holds one, not 32.

Shapes: R rotated width, N table rows.
"""

from typing import Any
from weakref import WeakValueDictionary

import torch
from torch import Tensor

from rope.checks import is_plain
from rope.frequencies import rotary_tables

#: By name, device, rows, scale and spectrum; an entry goes with the last module that holds it.
_TABLES: WeakValueDictionary[Any, Tensor] = WeakValueDictionary()


def shared_tables(
    inv_freq: Tensor, rows: int, scale: float, device: torch.device
) -> tuple[Tensor, ...]:
    """cos and sin `[N, R/2]`, float32, as another module holds them; new ones where none does.

    inv_freq: float64 `[R/2]` on the CPU, where the tables are made before they are moved.

    >>> theta, cpu = torch.ones(1).double(), torch.device("cpu")
    >>> cos, sin = shared_tables(theta, 8, 1.0, cpu)
    >>> shared_tables(theta, 8, 1.0, cpu)[0] is cos
    True
    """
    if torch.compiler.is_compiling() or not is_plain(inv_freq):  # a tracer's numbers are its own
        return tuple(t.to(device) for t in rotary_tables(rows, inv_freq, scale=scale))
    keys = [(name, device, rows, scale, *inv_freq.tolist()) for name in ("cos", "sin")]
    made = tuple(table for table in map(_TABLES.get, keys) if table is not None)
    if len(made) < 2:
        if device == inv_freq.device:
            made = rotary_tables(rows, inv_freq, scale=scale)
        else:
            made = tuple(
                t.to(device) for t in shared_tables(inv_freq, rows, scale, inv_freq.device)
            )
        _TABLES.update(zip(keys, made, strict=True))
    return made
