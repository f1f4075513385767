"""Runs notebooks and stores their outputs in one fixed form, the form that nbval then compares.

`python -m rope.book.tools.execute` runs all of `chapters/`, or the notebooks that are named. A
notebook that fails is left as it was; one that passes is replaced in one step.
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
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
from tqdm import tqdm

CHAPTERS = Path("chapters")
SECONDS_PER_CELL = 600

# What a kernel must not take over from the machine it runs on: the number of threads (the order
# of float sums), the way figures are drawn, a network, the user's own settings.
ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "MKL_NUM_THREADS": "1",
    "MPLBACKEND": "module://matplotlib_inline.backend_inline",
    "OMP_NUM_THREADS": "1",
    "PYTHONHASHSEED": "0",
}
NOT_INHERITED = ("MATPLOTLIBRC", "PYTHONOPTIMIZE", "PYTHONSTARTUP", "PYTHONWARNINGS")
# The stored metadata: no patch version of Python, no machine's name for its kernel.
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"file_extension": ".py", "name": "python", "pygments_lexer": "ipython3"},
}


class NotebookError(Exception):
    """A notebook that does not run: its message names the cell and says what happened."""


@contextmanager
def kernel_environment() -> Iterator[Path]:
    """What kernels are started in, and a folder of its own; afterwards all is as before."""
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as settings,
        patch.dict(os.environ, ENVIRONMENT, IPYTHONDIR=settings),
    ):
        for name in NOT_INHERITED:
            os.environ.pop(name, None)
        yield Path(settings)


def execute(notebook: Any, folder: Path, name: str, python: str = sys.executable) -> None:
    """Run a notebook's cells in order and bring it into its stored form, in place.

    The same cells give the same bytes, today and on another machine: no times, counts 1 ... n,
    one output for all that a cell prints.

    notebook: as nbformat reads it.
    folder: the working directory of its kernel.
    name: what to call it in messages.
    python: the interpreter that runs it.

    Raises NotebookError: a cell raised, wrote to stderr, took too long, or ended its kernel.
    """
    started: list[Any] = []

    def refuse_stderr(cell: Any, cell_index: int, execute_reply: Any) -> None:
        stderr = "".join(out.text for out in cell.outputs if out.get("name") == "stderr")
        if stderr and execute_reply["content"]["status"] == "ok":
            raise NotebookError(f"It wrote to stderr, which no cell may:\n{stderr.rstrip()}")

    try:
        with kernel_environment() as settings:
            # The kernel of one interpreter, whatever kernels the machine has registered. Files
            # are its channels where there can be: a port that was free here when it was chosen
            # may be another's when the kernel opens it.
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
                resources={"metadata": {"path": str(folder)}},
                on_cell_execute=lambda cell, cell_index: started.append(cell),
                on_cell_executed=refuse_stderr,
            )
            client.owns_km = True  # it is ended with the notebook
            client.execute()
    except (CellExecutionError, CellTimeoutError, DeadKernelError, NotebookError) as error:
        cell, first = started[-1], started[-1].source.strip().splitlines()[0]
        where = f"{name}: code cell {len(started)} (id {cell.id}) failed: {first}"
        raise NotebookError(f"{where}\n{error}") from None
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
    notebook.metadata = nbformat.from_dict(METADATA)


def store(notebook: Any, path: Path) -> None:
    """Write a notebook in one step: a reader sees the old file or the new one, never a part."""
    fresh = path.with_suffix(".new")
    text = nbformat.writes(notebook).rstrip("\n") + "\n"
    fresh.write_text(text, encoding="utf-8", newline="\n")
    os.replace(fresh, path)


def main(arguments: list[str] | None = None) -> int:
    """Run notebooks and store what they print; all of chapters/ when none is named."""
    parser = argparse.ArgumentParser(
        prog="python -m rope.book.tools.execute", description=main.__doc__
    )
    parser.add_argument("notebooks", nargs="*", type=Path, metavar="chapters/NAME.ipynb")
    paths = parser.parse_args(arguments).notebooks or sorted(CHAPTERS.glob("*.ipynb"))
    failed = []
    for path in (bar := tqdm(paths, unit="notebook")):
        bar.set_description(path.name)
        try:
            notebook = nbformat.v4.upgrade(nbformat.read(path, as_version=4))  # each cell has an id
            execute(notebook, path.resolve().parent, path.name)
            store(notebook, path)
        except NotebookError as error:
            bar.write(f"\n{error}\n{path} is as it was.\n", file=sys.stderr)
            failed.append(path.name)
    bar.write(f"{len(paths) - len(failed)} stored; failed: {', '.join(failed) or 'none'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
