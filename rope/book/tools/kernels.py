"""Let nbval talk to its kernels through files: `pytest -p rope.book.tools.kernels --nbval`.

Another process can take a TCP port between its choice and its use. Nobody takes a file in a new
folder.
"""

import os
import tempfile
from pathlib import Path
from typing import Any

import nbval.kernel
from jupyter_client.manager import KernelManager


class FileKernelManager(KernelManager):
    """Start kernels whose channels are files, on systems that have Unix domain sockets."""

    def __init__(self, **settings: Any) -> None:
        if os.name == "posix":
            self._folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
            file = Path(self._folder.name) / "kernel.json"
            settings |= {"transport": "ipc", "connection_file": str(file)}
        super().__init__(**settings)


nbval.kernel.KernelManager = FileKernelManager
