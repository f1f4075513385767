"""Plant every known fault, one at a time, and report the faults that no test notices.

`make mutation` plants all faults. `make mutation NAMES="kernels two_layouts"` plants the faults
whose name, file, unit test or chapter contains one of the words. An interrupted run resumes as long
as `rope/`, `tests/` and `chapters/` have not changed.

`package_faults/*.txt` contains faults in the package: a line `name: unit, chapter`, the file, and
the edit. The unit test `tests/test_<unit>.py` and the chapter must both fail; the chapter `-` means
that no chapter demonstrates the fault. `page_faults/<chapter>.txt` contains faults in the chapters'
own cells. There, an assertion in the same chapter must fail; a changed output is not enough.
In both, `-` lines are text that occurs once in the file (or in one cell); `+` lines replace it.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import queue
import random
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

import nbformat
from tqdm import tqdm

ROOT = Path(__file__).parents[1]
TESTS = Path(__file__).parent
FOLDERS = ("rope", "tests", "chapters")
FILES = ("pyproject.toml", "setup.py", "README.md", "_toc.yml", "_config.yml", "requirements.txt")
RESULTS = ROOT / "_build" / "mutation.json"
NO_CHAPTER = "-"


@dataclass(frozen=True)
class Fault:
    """Describe a fault: where it is planted, and which unit test and chapter must notice it."""

    name: str
    file: str
    edits: tuple[tuple[str, str], ...]
    unit: str | None
    chapter: str | None

    @property
    def key(self) -> str:
        return self.name if self.unit else f"{self.chapter}: {self.name}"

    def matches(self, word: str) -> bool:
        """Return True if the word occurs in the fault's name, file, unit test or chapter."""
        return any(word in (text or "") for text in (self.key, self.file, self.unit, self.chapter))

    def planted(self, root: Path = ROOT) -> str:
        """Return the file's text with the fault planted.

        Raises ValueError unless each text to replace occurs exactly once.
        """
        path = root / self.file
        if path.suffix == ".ipynb":
            return self._planted_in_a_cell(path)
        source = path.read_text(encoding="utf-8")
        for right, wrong in self.edits:
            if (found := source.count(right)) != 1:
                raise ValueError(
                    f"{self.key}: {right!r} must occur once in {self.file}, not {found} times"
                )
            source = source.replace(right, wrong)
        return source

    def _planted_in_a_cell(self, path: Path) -> str:
        notebook = nbformat.read(path, as_version=4)
        for right, wrong in self.edits:
            holding = [cell for cell in notebook.cells if right in cell.source]
            if len(holding) != 1:
                raise ValueError(f"{self.key}: {right!r} must be in 1 cell, not in {len(holding)}")
            holding[0].source = holding[0].source.replace(right, wrong)
        return nbformat.writes(notebook)


def edits(lines: list[str]) -> tuple[tuple[str, str], ...]:
    """Parse the replacements: each is a run of - lines and the + lines that follow it."""
    found: list[tuple[list[str], list[str]]] = []
    for line in lines:
        if line[0] == "-" and (not found or found[-1][1]):
            found.append(([], []))
        found[-1][line[0] == "+"].append(line[1:])
    return tuple(("\n".join(old), "\n".join(new)) for old, new in found)


def blocks(folder: str) -> list[tuple[str, list[str]]]:
    """Read the fault blocks in a folder's text files; return (file stem, lines) pairs."""
    return [
        (path.stem, block.splitlines())
        for path in sorted((TESTS / folder).glob("*.txt"))
        for block in path.read_text(encoding="utf-8").strip().split("\n\n")
    ]


def faults() -> list[Fault]:
    """Read all faults, with the faults in the package first."""
    found = []
    for _, (title, file, *lines) in blocks("package_faults"):
        name, _, catchers = title.rpartition(": ")
        unit, chapter = catchers.split(", ")
        found.append(Fault(name, file, edits(lines), unit, chapter.strip(NO_CHAPTER) or None))
    for chapter, (name, *lines) in blocks("page_faults"):
        found.append(Fault(name, f"chapters/{chapter}.ipynb", edits(lines), None, chapter))
    return found


class Tree:
    """A private copy of the repository in which faults are planted, one at a time."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for folder in FOLDERS:
            ignored = shutil.ignore_patterns("__pycache__", ".ipynb_checkpoints")
            shutil.copytree(ROOT / folder, root / folder, ignore=ignored)
        for file in FILES:
            shutil.copy(ROOT / file, root)

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run Python in the copy, with the copy's own package."""
        own = {"PYTHONPATH": str(self.root), "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"}
        environment = {**os.environ, **own, "MKL_NUM_THREADS": "1"}
        for name in ("PYTEST_ADDOPTS", "CI", "SLOW"):  # the quick tests alone must notice
            environment.pop(name, None)
        words = [sys.executable, *command]
        return subprocess.run(
            words, cwd=self.root, env=environment, capture_output=True, text=True, check=False
        )

    def fails(self, *arguments: str) -> bool:
        """Return True if these tests fail. Raise RuntimeError if pytest could not run them."""
        plugins = ("-p", "no:cacheprovider", "-p", "rope.book.tools.kernels")
        done = self.run("-m", "pytest", "-x", "-q", *plugins, *arguments)
        if done.returncode not in (0, 1):
            raise RuntimeError(
                f"pytest could not run {' '.join(arguments)}:\n{done.stdout}{done.stderr}"
            )
        return done.returncode == 1

    def build(self) -> None:
        """Recompile the C loop."""
        self.run("setup.py", "-q", "build_ext", "--inplace", "--force").check_returncode()

    def control(self) -> None:
        """Check that the copy imports its own package and passes its tests without a fault."""
        where = self.run("-c", "import rope; print(rope.__file__)").stdout.strip()
        if not Path(where).is_relative_to(self.root):
            raise RuntimeError(f"the copy imports {where}, not its own package")
        if self.unit_fails("rotation") or self.chapter_fails("from_maths_to_pytorch"):
            raise RuntimeError("the copy fails without a planted fault; run `make test` first")

    def unit_fails(self, unit: str) -> bool:
        return self.fails("--hypothesis-profile", "planted", f"tests/test_{unit}.py")

    def chapter_fails(self, chapter: str) -> bool:
        return self.fails("--nbval", "--nbval-current-env", f"chapters/{chapter}.ipynb")

    def page_fails(self, chapter: str) -> bool:
        """Return True if an assertion in the chapter fails."""
        done = self.run("-m", "rope.book.tools.execute", f"chapters/{chapter}.ipynb")
        return done.returncode == 1 and any(
            name in done.stderr for name in ("AssertionError", "NotEqual")
        )

    def unnoticed_by(self, fault: Fault) -> list[str]:
        """Plant a fault, run the tests that must notice it, and return the tests that pass."""
        path = self.root / fault.file
        right = path.read_bytes()
        path.write_text(fault.planted(self.root), encoding="utf-8")
        try:
            if path.suffix == ".c":
                self.build()
            if fault.unit is None and fault.chapter is not None:
                return [] if self.page_fails(fault.chapter) else [f"chapter {fault.chapter}"]
            silent = []
            if fault.unit and not self.unit_fails(fault.unit):
                silent.append(f"tests/test_{fault.unit}.py")
            if fault.chapter and not self.chapter_fails(fault.chapter):
                silent.append(f"chapter {fault.chapter}")
            return silent
        finally:
            path.write_bytes(right)
            if path.suffix == ".c":
                self.build()


def digest() -> str:
    """Return a hash of all files on which a result depends."""
    total = hashlib.sha256()
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                total.update(str(path.relative_to(ROOT)).encode() + path.read_bytes())
    return total.hexdigest()


def read_results(state: str) -> dict[str, list[str]]:
    """Return the results of an earlier run on the same files, or an empty dict."""
    try:
        stored = json.loads(RESULTS.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    return stored["unnoticed"] if stored["state"] == state else {}


def write_results(state: str, results: dict[str, list[str]]) -> None:
    RESULTS.parent.mkdir(exist_ok=True)
    text = json.dumps({"state": state, "unnoticed": results}, indent=1)
    fresh = RESULTS.with_suffix(".new")
    fresh.write_text(text, encoding="utf-8")
    os.replace(fresh, RESULTS)


def chosen(every: list[Fault], words: list[str], sample: int | None) -> list[Fault]:
    """Return the faults that match a word; with `sample`, a draw seeded by the commit's hash."""
    if unknown := [word for word in words if not any(fault.matches(word) for fault in every)]:
        raise SystemExit(f"no fault, file, test or chapter name contains {', '.join(unknown)}")
    some = [fault for fault in every if not words or any(map(fault.matches, words))]
    if sample is None:
        return some
    command = ["git", "rev-parse", "HEAD"]
    commit = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return random.Random(commit.strip()).sample(some, min(sample, len(some)))


def plant(some: list[Fault], results: dict[str, list[str]], state: str, workers: int) -> None:
    """Plant faults in parallel; store each result when it arrives, and print the survivors."""
    with tempfile.TemporaryDirectory(prefix="mutation-") as folder:
        trees: queue.SimpleQueue[Tree] = queue.SimpleQueue()
        for number in range(workers):
            trees.put(Tree(Path(folder) / str(number)))
        control = trees.get()
        control.control()
        trees.put(control)

        def one(fault: Fault) -> list[str]:
            tree = trees.get()
            try:
                return tree.unnoticed_by(fault)
            finally:
                trees.put(tree)

        with ThreadPoolExecutor(workers) as pool:
            futures = {pool.submit(one, fault): fault for fault in some}
            try:
                for future in (bar := tqdm(as_completed(futures), "faults", len(futures))):
                    fault = futures[future]
                    results[fault.key] = future.result()
                    write_results(state, results)
                    if results[fault.key]:
                        bar.write(f"survived: {fault.key} ({', '.join(results[fault.key])})")
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise


def main(arguments: list[str] | None = None) -> int:
    """Plant known faults one at a time and print the faults that no test notices."""
    parser = argparse.ArgumentParser(prog="make mutation", description=main.__doc__)
    parser.add_argument("names", nargs="*", help="plant only faults whose names contain these")
    parser.add_argument("--sample", type=int, help="plant this many, drawn by the commit's hash")
    options = parser.parse_args(arguments)
    some = chosen(faults(), options.names, options.sample)
    for fault in some:
        fault.planted()
    if not list((ROOT / "rope" / "kernels").glob("*.so")):
        compiled = [fault for fault in some if fault.file.endswith(".c")]
        some = [fault for fault in some if fault not in compiled]
        print(f"{len(compiled)} faults are left out, because the C loop was not compiled here.")
    state = digest()
    results = read_results(state)
    missing = [fault for fault in some if fault.key not in results]
    print(f"{len(some)} faults, {len(some) - len(missing)} of them already planted.")
    if missing:
        plant(missing, results, state, min(os.cpu_count() or 1, len(missing)))
    survived = [fault for fault in some if results[fault.key]]
    for fault in survived:
        print(f"survived: {fault.key} ({fault.file}): not noticed by", *results[fault.key])
    print(f"{len(some) - len(survived)} of {len(some)} faults were caught.")
    return 1 if survived else 0


if __name__ == "__main__":
    sys.exit(main())
