// Compile Python's library and SymPy with Pyodide ahead of time, so that no reader waits for it.
// Usage: node precompile.mjs PYODIDE_FOLDER SOURCES.zip COMPILED.zip
import { readFileSync, writeFileSync } from "node:fs";
import { resolve } from "node:path";
import { pathToFileURL } from "node:url";

const [folder, sources, compiled] = process.argv.slice(2).map((path) => resolve(path));
const { loadPyodide } = await import(pathToFileURL(`${folder}/pyodide.mjs`));
const python = await loadPyodide({ indexURL: folder });
python.FS.writeFile("/sources.zip", readFileSync(sources));
// Write an uncompressed zip of .pyc files; compressing the entire zip later saves more space.
python.runPython(`
import os, py_compile, warnings, zipfile

warnings.simplefilter("ignore")  # warnings about SymPy's own code
unchecked = py_compile.PycInvalidationMode.UNCHECKED_HASH
with zipfile.ZipFile("/sources.zip") as sources, zipfile.ZipFile("/compiled.zip", "w") as compiled:
    sources.extractall("/sources")
    os.chdir("/sources")
    for name in sources.namelist():
        if name.endswith(".py"):
            path = py_compile.compile(name, "/one.pyc", doraise=True, invalidation_mode=unchecked)
            compiled.writestr(zipfile.ZipInfo(name + "c"), open(path, "rb").read())
        else:
            compiled.writestr(zipfile.ZipInfo(name), sources.read(name))
`);
writeFileSync(compiled, python.FS.readFile("/compiled.zip"));
