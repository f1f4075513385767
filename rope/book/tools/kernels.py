"""Connect nbval to its kernels through socket files: `pytest -p rope.book.tools.kernels --nbval`.

Another process can take a TCP port that a kernel has chosen but not yet opened. A socket file in a
new temporary folder can't be taken.
"""

import os
import tempfile
from pathlib import Path
from typing import Any

import nbval.kernel
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
