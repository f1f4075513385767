"""Prepare nbval for the book's notebooks: `pytest -p rope.book.tools.kernels --nbval`.

Notebooks that run the language model are skipped if the model isn't available. Kernels communicate
through socket files. Another process can take a TCP port that a kernel has chosen but not yet
opened. A socket file in a new temporary folder can't be taken.
"""

import os
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import nbval.kernel
import pytest
from jupyter_client.manager import KernelManager


class FileKernelManager(KernelManager):
    """Start kernels that communicate through socket files or, on Windows, through TCP ports."""

    def __init__(self, **settings: Any) -> None:
        if os.name == "posix":
            self._folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
            file = Path(self._folder.name) / "kernel.json"
            settings |= {"transport": "ipc", "connection_file": str(file)}
        super().__init__(**settings)


nbval.kernel.KernelManager = FileKernelManager


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """If the language model isn't downloaded, skip the notebook cells that need it."""
    for item in items:
        if item.path.suffix == ".ipynb" and (reason := _missing(item.path)):
            item.add_marker(pytest.mark.skip(reason=reason))


@cache
def _missing(path: Path) -> str:
    """Return why the notebook's model is missing, or "" if it isn't missing or isn't needed."""
    if "rope.book.model" in path.read_text(encoding="utf-8"):
        from rope.book.model.weights import ModelMissing, model_file

        try:
            model_file(download=False)
        except ModelMissing as error:
            return str(error)
    return ""
