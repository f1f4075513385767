"""Named tensors in a file: .safetensors, .npz, or .json for whoever has neither library.

In JSON a tensor is its shape and its numbers, row by row, with null for what is no number:

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
    """Write them in the format that the name ends in."""
    if not Path(path).parent.is_dir():
        raise FileNotFoundError(f"{path}: there is no folder {Path(path).parent}: make it first")
    tensors = {name: x.clone(memory_format=torch.contiguous_format) for name, x in tensors.items()}
    if (suffix := _suffix(path)) == ".safetensors":
        import_module("safetensors.torch").save_file(tensors, path)
    elif suffix == ".npz":
        import_module("numpy").savez(path, **{name: x.numpy() for name, x in tensors.items()})
    else:
        listed = {name: {"shape": x.shape, "data": _numbers(x)} for name, x in tensors.items()}
        Path(path).write_text(json.dumps(listed, separators=(",", ":")))


def read(path: str | Path) -> dict[str, Tensor]:
    """Those of a file, JSON's float32 or int64; ValueError where it is not what its name says."""
    suffix = _suffix(path)
    try:
        if suffix == ".safetensors":
            return dict(import_module("safetensors.torch").load_file(path))
        if suffix == ".npz":
            with import_module("numpy").load(path) as arrays:
                return {name: torch.from_numpy(arrays[name]) for name in arrays}
        return {name: _tensor(**x) for name, x in json.loads(Path(path).read_text()).items()}
    except (ImportError, OSError):
        raise
    except Exception as error:  # each library has its own
        raise ValueError(f"{path} is no {suffix} of tensors ({error}): write it anew") from error


def _suffix(path: str | Path) -> str:
    suffix = Path(path).suffix
    if suffix not in (".safetensors", ".npz", ".json"):
        raise ValueError(f"{path} must end in .safetensors, .npz or .json: rename it")
    return suffix


def _numbers(x: Tensor) -> list[Any]:
    def number(value: float) -> float | None:
        whole = math.isfinite(value) and value == int(value)
        return int(value) if whole else value if math.isfinite(value) else None

    return [number(value) for value in x.flatten().tolist()]


def _tensor(shape: list[int], data: list[Any]) -> Tensor:
    return torch.tensor([math.nan if x is None else x for x in data]).reshape(shape)
