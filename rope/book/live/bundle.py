"""Build the bundle for the browser from Pyodide, SymPy, mpmath, and the book's own modules.

Pyodide comes from npm; SymPy and mpmath come from this environment. A page opened from
file:// can load only scripts, so each file is packed into a script. Slow steps run once, and their
results are cached in the working folder.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import json
import os
import shutil
import subprocess
import tarfile
import zipfile
from importlib.metadata import distribution, version
from pathlib import Path
from tempfile import TemporaryDirectory

PYODIDE = "314.0.7"
FROM_NPM = ("pyodide.mjs", "pyodide.asm.mjs", "pyodide.asm.wasm")
LIBRARY = "python_stdlib.zip"  # the file name that Pyodide requests
PACKAGES = ("mpmath", "sympy")

HERE = Path(__file__).parent
PACKAGE = HERE.parents[1]
ASSETS = ("buttons.css", "buttons.js")  # loaded with the page
# Glob patterns for the book's own files that a cell in the browser may need.
OURS = (
    "__init__.py",
    "symbolic.py",
    "book/__init__.py",
    "book/judge/*.py",
    "book/judge/mistakes/*.txt",
    "book/live/__init__.py",
    "book/live/running.py",
)
LICENCES = """\
This software runs the cells in these pages. Its licenses are listed below.

Pyodide {pyodide}: Mozilla Public License 2.0, https://www.mozilla.org/MPL/2.0/
    source: https://github.com/pyodide/pyodide
CPython and its library, included in Pyodide: PSF License, https://docs.python.org/3/license.html
SymPy {sympy}: BSD 3-Clause; mpmath {mpmath}: BSD 3-Clause; the full texts follow
rope, the book's package: MIT
"""


class Unavailable(Exception):
    """Signal that the bundle can't be built because npm is missing or `npm pack` failed."""


def _pyodide(folder: Path) -> Path:
    """Download Pyodide's npm package, unpack it, and return its folder."""
    npm = shutil.which("npm")
    if npm is None:
        raise Unavailable("npm was not found; install Node.js, which includes it")
    print(f"Downloading Pyodide {PYODIDE} with npm (6 MB, only once).", flush=True)
    pack = ["pack", f"pyodide@{PYODIDE}", "--silent", f"--pack-destination={folder}"]
    done = subprocess.run([npm, *pack], capture_output=True, text=True)
    if done.returncode:
        raise Unavailable(f"npm pack pyodide@{PYODIDE} failed:\n{done.stderr.strip()}")
    with tarfile.open(folder / f"pyodide-{PYODIDE}.tgz") as files:
        files.extractall(folder, filter="data")
    return folder / "package"


def _library(folder: Path, package: Path) -> bytes:
    """Return a zip of Python's standard library, SymPy, and mpmath as bytecode, without tests.

    Pyodide's own archive contains source files, which the browser would compile at every start.
    """
    print("Compiling SymPy for the browser (half a minute, only once).", flush=True)
    sources, compiled = folder / "sources.zip", folder / "compiled.zip"
    shutil.copy(package / LIBRARY, sources)
    with zipfile.ZipFile(sources, "a") as files:
        for name in PACKAGES:
            for path in distribution(name).files or ():
                if path.parts[0] == name and path.suffix == ".py" and "tests" not in path.parts:
                    files.write(path.locate(), path.as_posix())
    subprocess.run(["node", HERE / "precompile.mjs", package, sources, compiled], check=True)
    return compiled.read_bytes()


def _write_script(folder: Path, name: str, content: bytes) -> None:
    """Write a script that passes a file to the page. Compress the file unless it is worker.js."""
    if name != "worker.js":
        content = gzip.compress(content, 9, mtime=0)
    script = f'ropeLive.files["{name}"] = "{base64.b64encode(content).decode()}";\n'
    (folder / f"{name}.js").write_text(script, encoding="ascii")


def python_and_sympy(work: Path) -> Path:
    """Return the folder of the Pyodide and SymPy scripts. Build the scripts if they are missing."""
    recipes = ((HERE / name).read_text() for name in ("bundle.py", "precompile.mjs"))
    key = repr([PYODIDE, *map(version, PACKAGES), *recipes])
    bundle = work / hashlib.sha256(key.encode()).hexdigest()[:16]
    if bundle.exists():
        return bundle
    work.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=work) as name:
        folder = Path(name)
        package = _pyodide(folder)
        info = json.loads((package / "pyodide-lock.json").read_text(encoding="utf-8"))["info"]
        files = {name: (package / name).read_bytes() for name in FROM_NPM}
        # List no packages, because nothing can be downloaded offline.
        files["pyodide-lock.json"] = json.dumps({"info": info, "packages": {}}).encode()
        files[LIBRARY] = _library(folder, package)
        scripts = folder / "scripts"
        scripts.mkdir()
        for name, content in files.items():
            _write_script(scripts, name, content)
        os.replace(scripts, bundle)
    return bundle


def own_files() -> bytes:
    """Return a zip of the book's own files that match `OURS`."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as files:
        for path in sorted(path for pattern in OURS for path in PACKAGE.glob(pattern)):
            name = path.relative_to(PACKAGE.parent).as_posix()
            files.writestr(zipfile.ZipInfo(name), path.read_bytes())
    return packed.getvalue()


def write_bundle(work: Path, target: Path) -> list[str]:
    """Write the bundle, and return the names of the scripts that are loaded on a click.

    work: the folder that caches the results of slow steps. target: the folder to replace.
    """
    bundle = python_and_sympy(work)
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(bundle, target)
    _write_script(target, "rope.zip", own_files())
    _write_script(target, "worker.js", (HERE / "worker.js").read_bytes())
    parts = sorted(script.name for script in target.glob("*.js"))
    for name in ASSETS:
        shutil.copy(HERE / name, target)
    texts = [LICENCES.format(pyodide=PYODIDE, **{name: version(name) for name in PACKAGES})]
    for name in PACKAGES:
        for path in distribution(name).files or ():
            if path.name == "LICENSE":
                texts.append(f"\n--- {name} ---\n{path.read_text()}")
    (target / "LICENCES.txt").write_text("".join(texts), encoding="utf-8")
    return parts
