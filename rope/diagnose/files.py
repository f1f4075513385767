"""Named tensors in a .safetensors, .npz or .json file. JSON needs no library in any language.

In JSON, a tensor is its shape and its numbers in row-major order, with null for NaN and infinity:

    {"07.position_ids": {"shape": [1, 3], "data": [3, 11, 5]}, ...}
"""

import json
import math
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import Tensor


def write(path: str | Path, tensors: dict[str, Tensor]) -> None:
    """Write tensors in the format that the path ends with.

    Raises ValueError for another ending, OSError if there is no such folder.
    """
    suffix = _suffix(path)
    tensors = {name: x.clone(memory_format=torch.contiguous_format) for name, x in tensors.items()}
    if suffix == ".safetensors":
        Path(path).write_bytes(import_module("safetensors.torch").save(tensors))
    elif suffix == ".npz":
        import_module("numpy").savez(path, **{name: x.numpy() for name, x in tensors.items()})
    else:
        listed = {name: {"shape": x.shape, "data": _numbers(x)} for name, x in tensors.items()}
        Path(path).write_text(json.dumps(listed, separators=(",", ":")))


def read(path: str | Path) -> dict[str, Tensor]:
    """Return the tensors of a file; JSON gives float32 or int64.

    Raises ValueError if the file doesn't have the format of its ending, OSError if it is missing.
    """
    suffix = _suffix(path)
    try:
        if suffix == ".safetensors":
            return dict(import_module("safetensors.torch").load(Path(path).read_bytes()))
        if suffix == ".npz":
            with import_module("numpy").load(path) as arrays:
                return {name: torch.from_numpy(arrays[name]) for name in arrays}
        return {name: _tensor(**x) for name, x in json.loads(Path(path).read_text()).items()}
    except (ImportError, OSError):
        raise
    except Exception as error:  # each library raises its own type
        raise ValueError(f"{path} is not a valid {suffix} file of tensors: {error}") from error


def _suffix(path: str | Path) -> str:
    suffix = Path(path).suffix
    if suffix not in (".safetensors", ".npz", ".json"):
        raise ValueError(f"the path is {path}; it must end with .safetensors, .npz or .json")
    return suffix


def _numbers(x: Tensor) -> list[Any]:
    return [x if math.isfinite(x) else None for x in x.flatten().tolist()]


def _tensor(shape: list[int], data: list[Any]) -> Tensor:
    return torch.tensor([math.nan if x is None else x for x in data]).reshape(shape)
