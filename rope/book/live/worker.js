// Start Python in a worker from the files that the page sends, then run cells.
"use strict";

let python; // promise that resolves to the function that runs a cell
const fetchData = self.fetch.bind(self);

// Decode base64 with a data: URL, which is fastest and makes no network request.
async function unpack(text) {
  const { body } = await fetchData("data:application/octet-stream;base64," + text);
  return new Response(body.pipeThrough(new DecompressionStream("gzip"))).arrayBuffer();
}

async function load(text) {
  const code = new Blob([await unpack(text)], { type: "text/javascript" });
  return import(URL.createObjectURL(code));
}

async function start(files) {
  // Pyodide fetches its two large files by URL; return them from memory instead.
  self.fetch = async (address) => {
    const name = String(address.url || address).split("/").pop();
    const type = name.endsWith(".wasm") ? "application/wasm" : "application/octet-stream";
    return new Response(await unpack(files[name]), { headers: { "Content-Type": type } });
  };
  const [{ loadPyodide }, { default: createPyodideModule }, lock, rope] = await Promise.all([
    load(files["pyodide.mjs"]),
    load(files["pyodide.asm.mjs"]),
    unpack(files["pyodide-lock.json"]),
    unpack(files["rope.zip"]),
  ]);
  const pyodide = await loadPyodide({
    indexURL: "https://memory.invalid/",
    lockFileContents: new TextDecoder().decode(lock),
    createPyodideModule,
  });
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
    } else {
      const run = await python;
      postMessage({ number: data.number, result: JSON.parse(run(JSON.stringify(data.cell))) });
    }
  } catch (error) {
    postMessage({ failed: String(error) });
  }
};
