"""Run notebooks and store their outputs in a reproducible form, which nbval later compares.

`python -m rope.book.tools.execute` runs every notebook in `chapters/`, or only the notebooks that
you name. If a cell fails, the command stops, and that notebook keeps its old outputs.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import nbformat
from ipykernel.kernelspec import make_ipkernel_cmd
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient
from tqdm import tqdm

CHAPTERS = Path("chapters")
SECONDS_PER_CELL = 600

# Fix settings that change outputs. For example, thread counts change floating-point sums.
ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "MKL_NUM_THREADS": "1",
    "MPLBACKEND": "module://matplotlib_inline.backend_inline",
    "OMP_NUM_THREADS": "1",
    "PYTHONHASHSEED": "0",
}
NOT_INHERITED = ("MATPLOTLIBRC", "PYTHONOPTIMIZE", "PYTHONSTARTUP", "PYTHONWARNINGS")
# Store metadata that doesn't depend on the Python version or the machine's kernels.
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"file_extension": ".py", "name": "python", "pygments_lexer": "ipython3"},
}


@contextmanager
def kernel_environment() -> Iterator[Path]:
    """Set the environment variables for kernels, and yield a temporary folder."""
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as settings,
        patch.dict(os.environ, ENVIRONMENT, IPYTHONDIR=settings),
    ):
        for name in NOT_INHERITED:
            os.environ.pop(name, None)
        yield Path(settings)


def execute(notebook: Any, folder: Path, python: str = sys.executable) -> None:
    """Run a notebook's cells in order, and store normalized outputs in the notebook object.

    Times are not stored, execution counts run from 1 to n, and each cell's printed text is one
    output. The same cells therefore produce the same bytes on any day and machine.

    notebook: the notebook as nbformat reads it. folder: the kernel's working directory.
    python: the interpreter that runs the cells.
    Raises nbclient's errors, which show the cell, if a cell raises, takes too long, or ends its
    kernel.
    """
    with kernel_environment() as settings:
        # Ignore the machine's registered kernels. Where possible, use socket files instead of TCP
        # ports, because another process can take a free port.
        kernel: Any = AsyncKernelManager(
            kernel_spec_manager=KernelSpecManager(kernel_dirs=[]),
            transport="ipc" if os.name == "posix" else "tcp",
            connection_file=str(settings / "kernel.json"),
        )
        log = ["--IPKernelApp.log_level=CRITICAL"]
        kernel.kernel_spec.argv = make_ipkernel_cmd(executable=python, extra_arguments=log)
        client = NotebookClient(
            notebook,
            km=kernel,
            timeout=SECONDS_PER_CELL,
            coalesce_streams=True,
            record_timing=False,
            resources={"metadata": {"path": str(folder)}},
        )
        client.owns_km = True  # so that the kernel ends with the notebook
        client.execute()
    notebook.metadata = nbformat.from_dict(METADATA)


def main(arguments: list[str] | None = None) -> None:
    """Run notebooks and store their outputs. The default is every notebook in chapters/."""
    parser = argparse.ArgumentParser(
        prog="python -m rope.book.tools.execute", description=main.__doc__
    )
    parser.add_argument("notebooks", nargs="*", type=Path, metavar="chapters/NAME.ipynb")
    paths = parser.parse_args(arguments).notebooks or sorted(CHAPTERS.glob("*.ipynb"))
    for path in (bar := tqdm(paths, unit="notebook")):
        bar.set_description(path.name)
        notebook = nbformat.v4.upgrade(nbformat.read(path, as_version=4))  # adds missing ids
        execute(notebook, path.resolve().parent)
        text = nbformat.writes(notebook).rstrip("\n") + "\n"
        path.write_text(text, encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()
