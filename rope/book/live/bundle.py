"""Makes the bundle: Pyodide from npm, SymPy and mpmath of this environment, the book's own files.

Browsers load no files from file://, but scripts; so each part is a script that holds its bytes,
packed and written in base64. What takes long is done once and kept in the working folder.
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
INTEGRITY = (
    "0YvXxEhfEdpLfb/XkM2BFAeMROq0iMUX2bzzH9pOttyMcWkwq+HbE5uyuGD82LN7y2q+SNvi/6V5JEsOlD2R1A=="
)
FROM_NPM = ("pyodide.mjs", "pyodide.asm.mjs", "pyodide.asm.wasm")
LIBRARY = "python_stdlib.zip"  # the name that Pyodide asks for
PACKAGES = ("mpmath", "sympy")

HERE = Path(__file__).parent
PACKAGE = HERE.parents[1]
ASSETS = ("buttons.css", "buttons.js", "judge.js", "python.js")  # what a page loads at once
OURS = (
    "__init__.py",
    "symbolic.py",
    "book/__init__.py",
    "book/judge/__init__.py",
    "book/judge/answers.py",
    "book/judge/in_python.py",
    "book/live/__init__.py",
    "book/live/running.py",
    "book/tools/__init__.py",
    "book/tools/slicing.py",
)
LICENCES = """\
What runs the proofs in these pages, and its licences.

Pyodide {pyodide}: Mozilla Public Licence 2.0, https://www.mozilla.org/MPL/2.0/
    source: https://github.com/pyodide/pyodide
CPython and its library, which Pyodide contains: PSF Licence, https://docs.python.org/3/license.html
SymPy {sympy}: BSD 3-Clause; mpmath {mpmath}: BSD 3-Clause; their texts follow
rope, the book's package: MIT
"""


class Unavailable(Exception):
    """The bundle cannot be made here: there is no npm, or the registry does not answer."""


def _pyodide(folder: Path) -> Path:
    """Fetch Pyodide's npm package into a folder and unpack it, if it is the pinned one."""
    npm = shutil.which("npm")
    if npm is None:
        raise Unavailable("npm is missing: install Node.js, which brings npm")
    print(f"Getting Pyodide {PYODIDE} with npm (6 MB, once).", flush=True)
    pack = ["pack", f"pyodide@{PYODIDE}", "--silent", f"--pack-destination={folder}"]
    done = subprocess.run([npm, *pack], capture_output=True, text=True)
    if done.returncode:
        raise Unavailable(f"npm pack pyodide@{PYODIDE} failed:\n{done.stderr.strip()}")
    packed = folder / f"pyodide-{PYODIDE}.tgz"
    digest = base64.b64encode(hashlib.sha512(packed.read_bytes()).digest()).decode()
    if digest != INTEGRITY:
        raise ValueError(f"npm gave sha512-{digest}; it must be sha512-{INTEGRITY}")
    with tarfile.open(packed) as files:
        files.extractall(folder, filter="data")
    return folder / "package"


def _library(folder: Path, package: Path) -> bytes:
    """Python's library, and SymPy and mpmath as this environment has them, without their tests.

    Compiled: Pyodide's own archive of the library is source, which each start would compile again.
    """
    print("Compiling SymPy for the browser (half a minute, once).", flush=True)
    sources, compiled = folder / "sources.zip", folder / "compiled.zip"
    shutil.copy(package / LIBRARY, sources)
    with zipfile.ZipFile(sources, "a") as files:
        for name in PACKAGES:
            for path in distribution(name).files or ():
                if path.parts[0] == name and path.suffix == ".py" and "tests" not in path.parts:
                    files.write(path.locate(), path.as_posix())
    subprocess.run(["node", HERE / "precompile.mjs", package, sources, compiled], check=True)
    return compiled.read_bytes()


def _script(name: str, content: bytes) -> str:
    """A script that hands one file to the page; what is not code for the page is packed."""
    if name != "worker.js":
        content = gzip.compress(content, 9, mtime=0)
    return f'ropeLive.files["{name}"] = "{base64.b64encode(content).decode()}";\n'


def python_and_sympy(work: Path) -> Path:
    """The folder with the scripts that hold Pyodide and SymPy, made unless it is there."""
    makers = (HERE / name for name in ("bundle.py", "precompile.mjs"))
    recipe = [PYODIDE, *map(version, PACKAGES), *(path.read_text() for path in makers)]
    bundle = work / hashlib.sha256(repr(recipe).encode()).hexdigest()[:16]
    if bundle.exists():
        return bundle
    work.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=work) as name:
        folder = Path(name)
        package = _pyodide(folder)
        info = json.loads((package / "pyodide-lock.json").read_text(encoding="utf-8"))["info"]
        files = {name: (package / name).read_bytes() for name in FROM_NPM}
        # Of the list of Pyodide's packages, its head: there is nothing to load them from.
        files["pyodide-lock.json"] = json.dumps({"info": info, "packages": {}}).encode()
        files[LIBRARY] = _library(folder, package)
        scripts = folder / "scripts"
        scripts.mkdir()
        for name, content in files.items():
            (scripts / f"{name}.js").write_text(_script(name, content), encoding="ascii")
        os.replace(scripts, bundle)
    return bundle


def own_files() -> bytes:
    """The book's own modules, as a zip."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as files:
        for name in OURS:
            files.writestr(zipfile.ZipInfo(f"rope/{name}"), (PACKAGE / name).read_bytes())
    return packed.getvalue()


def licences() -> str:
    """What is in the bundle and under which licence."""
    texts = [
        f"\n--- {name} ---\n{path.read_text()}"
        for name in PACKAGES
        for path in distribution(name).files or ()
        if path.name == "LICENSE"
    ]
    versions = {name: version(name) for name in PACKAGES}
    return LICENCES.format(pyodide=PYODIDE, **versions) + "".join(texts)


def write(work: Path, target: Path) -> dict[str, int]:
    """Write the bundle into the pages' folder; return the size of each script to load, in bytes."""
    bundle = python_and_sympy(work)
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(bundle, target)
    own = {"rope.zip": own_files(), "worker.js": (HERE / "worker.js").read_bytes()}
    for name, content in own.items():
        (target / f"{name}.js").write_text(_script(name, content), encoding="ascii")
    sizes = {script.name: script.stat().st_size for script in sorted(target.glob("*.js"))}
    for name in ASSETS:
        shutil.copy(HERE / name, target)
    (target / "LICENCES.txt").write_text(licences(), encoding="utf-8")
    return sizes
