// Compiles Python's library and SymPy with the browser's own Python: no reader waits for it.
// node precompile.mjs FOLDER_OF_PYODIDE SOURCES.zip COMPILED.zip
import { readFileSync, writeFileSync } from "node:fs";
import { resolve } from "node:path";
import { pathToFileURL } from "node:url";

const [folder, sources, compiled] = process.argv.slice(2).map((path) => resolve(path));
const { loadPyodide } = await import(pathToFileURL(`${folder}/pyodide.mjs`));
const python = await loadPyodide({ indexURL: folder });
python.FS.writeFile("/sources.zip", readFileSync(sources));
// A zip of .pyc files, stored as they are: it is packed once more as a whole, and better.
python.runPython(`
import os, py_compile, warnings, zipfile

warnings.simplefilter("ignore")  # SymPy's own, about its code
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
