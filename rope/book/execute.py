"""Runs notebooks and stores their outputs in one fixed form, the form that nbval then compares.

`python -m rope.book.execute` runs all of `chapters/`, or the notebooks that are named. A notebook
that fails is left as it was; one that passes is replaced in one step.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import nbformat
from ipykernel.kernelspec import RESOURCES, get_kernel_dict
from jupyter_client.kernelspec import KernelSpec, KernelSpecManager
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
from tqdm import tqdm
from traitlets import Unicode

CHAPTERS = Path("chapters")
SECONDS_PER_CELL = 600
ESCAPES = re.compile(r"\x1b\[[0-9;]*m")
OVERWRITTEN = re.compile(r"^.*\r(?=[^\n])", re.MULTILINE)

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


class NotebookError(Exception):
    """A notebook that does not run: its message names the cell and says what happened."""


class OneKernel(KernelSpecManager):
    """Knows one kernel, that of one interpreter, whatever kernels the machine has registered."""

    python = Unicode(sys.executable)

    def get_kernel_spec(self, kernel_name: str) -> KernelSpec:
        """The kernel of `self.python`; `kernel_name` is not looked at."""
        spec = KernelSpec(resource_dir=RESOURCES, **get_kernel_dict())
        spec.argv = [self.python, *spec.argv[1:], "--IPKernelApp.log_level=CRITICAL"]
        return spec


@contextmanager
def kernel_environment() -> Iterator[None]:
    """The environment that kernels are started in; afterwards the former one is back."""
    former = dict(os.environ)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as settings:
        try:
            for name in NOT_INHERITED:
                os.environ.pop(name, None)
            os.environ.update(ENVIRONMENT, IPYTHONDIR=settings)
            yield
        finally:
            os.environ.clear()
            os.environ.update(former)


def execute(notebook: Any, folder: Path, name: str, python: str = sys.executable) -> None:
    """Run a notebook's cells in order and put their outputs into it.

    Args:
        notebook: as nbformat reads it; changed in place.
        folder: the working directory of its kernel.
        name: what to call it in messages.
        python: the interpreter that runs it.

    Raises:
        NotebookError: a cell raised, wrote to stderr, took too long, or ended its kernel.
    """
    kernels = OneKernel(python=python)
    client = NotebookClient(
        notebook,
        km=AsyncKernelManager(kernel_spec_manager=kernels, kernel_name="python3"),
        timeout=SECONDS_PER_CELL,
        record_timing=False,
        resources={"metadata": {"path": str(folder)}},
    )
    client.owns_km = True  # it is ended with the notebook
    code = [(i, cell) for i, cell in enumerate(notebook.cells) if cell.cell_type == "code"]
    with (
        tqdm(code, desc=name, unit="cell", file=sys.stderr) as progress,
        kernel_environment(),
        client.setup_kernel(),
    ):
        for number, (index, cell) in enumerate(progress, start=1):
            try:
                if cell.source.strip():
                    client.execute_cell(cell, index)
            except CellExecutionError:
                printed = "".join(output.get("text", "") for output in cell.outputs)
                said = printed + ESCAPES.sub("", "\n".join(cell.outputs[-1].traceback))
                raise NotebookError(f"{where(name, number, cell)}\n{said}") from None
            except CellTimeoutError:
                late = f"It was still running after {SECONDS_PER_CELL} s."
                raise NotebookError(f"{where(name, number, cell)}\n{late}") from None
            except DeadKernelError:
                dead = "Its kernel ended: out of memory, or a crash in native code?"
                raise NotebookError(f"{where(name, number, cell)}\n{dead}") from None
            cell.execution_count = number
            stderr = "".join(
                out.text for out in cell.outputs if out.get("name") == "stderr" and "text" in out
            )
            if stderr:
                said = f"It wrote to stderr, which no cell may:\n{stderr.rstrip()}"
                raise NotebookError(f"{where(name, number, cell)}\n{said}")


def where(name: str, number: int, cell: Any) -> str:
    """Which cell it is: its number among the code cells, its id, its first line."""
    first = next(iter(cell.source.strip().splitlines()), "")
    return f"{name}: code cell {number} (id {cell.get('id', 'none')}) failed: {first}"


def normalise(notebook: Any) -> None:
    """Bring a notebook that was run into its stored form, in place.

    Run twice on the same machine, or on another, the same cells give the same bytes: no times, no
    patch version of Python, counts 1 ... n, streams merged, an id for every cell.
    """
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    for number, cell in enumerate(code, start=1):
        cell.execution_count = number
        cell.outputs = merge_streams(cell.outputs)
        for output in cell.outputs:
            if output.output_type == "execute_result":
                output.execution_count = number
    notebook.metadata = nbformat.from_dict(
        {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {
                "file_extension": ".py",
                "name": "python",
                "pygments_lexer": "ipython3",
            },
        }
    )


def read(path: Path) -> Any:
    """A notebook, each of its cells with an id: its own, or one made from the cell's text.

    Raises:
        NotebookError: the file is not there, or no notebook in nbformat 4.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content.get("nbformat") != 4:
            raise NotebookError(f"{path}: not in nbformat 4; open and save it in JupyterLab first.")
        content["nbformat_minor"] = 5
        taken = {cell.get("id") for cell in content["cells"]}
        for cell in content["cells"]:
            if not cell.get("id"):
                cell["id"] = new_id(cell, taken)
                taken.add(cell["id"])
        notebook = nbformat.reads(json.dumps(content), as_version=4)
        nbformat.validate(notebook)
    except FileNotFoundError:
        raise NotebookError(f"{path}: there is no such file.") from None
    except (AttributeError, KeyError, ValueError, nbformat.ValidationError) as error:
        raise NotebookError(f"{path}: no valid notebook: {error}") from None
    return notebook


def new_id(cell: dict[str, Any], taken: set[str | None]) -> str:
    """An id made from the cell's own text, so that it does not depend on when it was made."""
    text = cell["cell_type"] + "\n" + "".join(cell["source"])
    base = hashlib.sha256(text.encode()).hexdigest()[:8]
    candidates = (base if n == 1 else f"{base}-{n}" for n in range(1, len(taken) + 2))
    return next(candidate for candidate in candidates if candidate not in taken)


def merge_streams(outputs: list[Any]) -> list[Any]:
    """Outputs with each run of adjacent writes to one stream as one; `\\r` overwrites its line."""
    merged: list[Any] = []
    for output in outputs:
        last = merged[-1] if merged else None
        if output.output_type == "stream" and last is not None and last.get("name") == output.name:
            last.text += output.text
        else:
            merged.append(output)
    for output in merged:
        if output.output_type == "stream":
            output.text = OVERWRITTEN.sub("", output.text)
    return merged


def store(notebook: Any, path: Path) -> None:
    """Write a notebook in one step: a reader sees the old file or the new one, never a part."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.stem}-", suffix=".tmp")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
            file.write(nbformat.writes(notebook).rstrip("\n") + "\n")
        mode = path.stat().st_mode & 0o777 if path.exists() else 0o644
        os.chmod(name, mode)
        os.replace(name, path)
    finally:
        Path(name).unlink(missing_ok=True)


def main(arguments: list[str] | None = None) -> int:
    """Run notebooks and store what they print; all of chapters/ when none is named."""
    parser = argparse.ArgumentParser(prog="python -m rope.book.execute", description=main.__doc__)
    parser.add_argument("notebooks", nargs="*", type=Path, metavar="chapters/NAME.ipynb")
    paths = parser.parse_args(arguments).notebooks or sorted(CHAPTERS.glob("*.ipynb"))
    if not paths:
        print(f"There are no notebooks in {CHAPTERS}/.", file=sys.stderr)
        return 1
    failed = []
    for path in paths:
        try:
            notebook = read(path)
            execute(notebook, path.resolve().parent, path.name)
            normalise(notebook)
            store(notebook, path)
        except NotebookError as error:
            kept = f"\n{path} is as it was." if path.exists() else ""
            print(f"\n{error}{kept}", file=sys.stderr)
            failed.append(path.name)
        except KeyboardInterrupt:
            print(f"\nInterrupted: {path} is as it was.", file=sys.stderr)
            return 130
    if failed:
        print(
            f"{len(failed)} of {len(paths)} notebooks failed: {', '.join(failed)}", file=sys.stderr
        )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
