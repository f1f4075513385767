"""Let nbval talk to its kernels through files: `pytest -p rope.book.tools.kernels --nbval`.

A TCP port that is free when it is chosen may be taken when the kernel opens it; a file in a new
folder is never taken.
"""

import os
import tempfile
from pathlib import Path
from typing import Any

import nbval.kernel
from jupyter_client.manager import KernelManager


class FileKernelManager(KernelManager):
    """Start kernels whose channels are files, where the system has sockets that are files."""

    def __init__(self, **settings: Any) -> None:
        if os.name == "posix":
            self._folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
            file = Path(self._folder.name) / "kernel.json"
            settings |= {"transport": "ipc", "connection_file": str(file)}
        super().__init__(**settings)


nbval.kernel.KernelManager = FileKernelManager
