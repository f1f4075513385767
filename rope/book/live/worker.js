// Python in a worker: it starts from the files that the page hands over, then runs cells.
// The page ends the worker to stop a cell.
"use strict";

let python; // a promise of the function that runs a cell

// Browsers decode base64 quickest as the body of a data: address, which is no request.
const fetchData = self.fetch.bind(self);

async function unpack(text) {
  const { body } = await fetchData("data:application/octet-stream;base64," + text);
  return new Response(body.pipeThrough(new DecompressionStream("gzip"))).arrayBuffer();
}

async function load(name, files) {
  const code = new Blob([await unpack(files[name])], { type: "text/javascript" });
  return import(URL.createObjectURL(code));
}

async function start(files) {
  // Pyodide asks for its two large files by address; here they come from memory.
  self.fetch = async (address) => {
    const name = String(address.url || address).split("/").pop();
    const type = name.endsWith(".wasm") ? "application/wasm" : "application/octet-stream";
    return new Response(await unpack(files[name]), { headers: { "Content-Type": type } });
  };
  const [{ loadPyodide }, { default: createPyodideModule }, lock] = await Promise.all([
    load("pyodide.mjs", files),
    load("pyodide.asm.mjs", files),
    unpack(files["pyodide-lock.json"]),
  ]);
  const [pyodide, rope] = await Promise.all([
    loadPyodide({
      indexURL: "https://memory.invalid/",
      lockFileContents: new TextDecoder().decode(lock),
      createPyodideModule,
    }),
    unpack(files["rope.zip"]),
  ]);
  pyodide.FS.writeFile("/rope.zip", new Uint8Array(rope));
  return pyodide.runPython(`
import json, sys

sys.path.insert(0, "/rope.zip")
from rope.book.live.running import run

lambda cell: json.dumps(run(**json.loads(cell)))
`);
}

onmessage = async ({ data }) => {
  try {
    if (data.files) {
      python = start(data.files);
      await python;
      postMessage({ ready: true });
    } else {
      const run = await python;
      postMessage({ begins: data.number });
      postMessage({ number: data.number, result: JSON.parse(run(JSON.stringify(data.cell))) });
    }
  } catch (error) {
    postMessage({ failed: String(error) });
  }
};
