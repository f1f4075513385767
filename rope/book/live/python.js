// Run Python for the page, in a worker that starts when a cell first runs. Stopping a cell ends the
// worker. Files are loaded as scripts, because a page from file:// can load nothing else.
window.ropeLive = (function () {
  "use strict";

  const HERE = document.currentScript.src.replace(/[^/]*$/, "");
  const PAGE = JSON.parse(document.getElementById("rope-live").textContent);
  const BYTES = Object.values(PAGE.parts).reduce((sum, bytes) => sum + bytes, 0);
  const MEGABYTES = Math.round(BYTES / 1e6);
  const LONGEST = 10; // time limit for a judged answer, in seconds

  const files = {}; // file contents by name; each loaded script adds one file
  const waiting = new Map(); // cells that wait for a result, by number
  let loading = null; // promise that resolves when all files are loaded
  let worker = null;

  function tellAll(text) {
    waiting.forEach((cell) => cell.tell(text));
  }

  function loadScript(name) {
    return new Promise((resolve, reject) => {
      const script = document.createElement("script");
      script.src = HERE + name;
      script.onload = resolve;
      script.onerror = () => reject(new Error(name + " could not be loaded; reload the page"));
      document.head.append(script);
    });
  }

  function loadFiles() {
    let loaded = 0;
    return Promise.all(
      Object.entries(PAGE.parts).map(async ([name, bytes]) => {
        await loadScript(name);
        loaded += bytes;
        tellAll(`Loading Python, ${Math.round(loaded / 1e6)} of ${MEGABYTES} MB …`);
      })
    );
  }

  async function start() {
    tellAll(`Loading Python, ${MEGABYTES} MB …`);
    loading = loading || loadFiles();
    await loading;
    if (worker || !waiting.size) return; // another click started it, or the reader pressed Stop
    tellAll("Starting Python …");
    // Pyodide needs a module worker; from file:// the worker's code must be in a data: URL.
    const code = "data:text/javascript;base64," + files["worker.js"];
    const started = (worker = new Worker(code, { type: "module" }));
    worker.onmessage = ({ data }) => {
      if (worker !== started) return; // ignore messages from a terminated worker
      if (data.ready) tellAll("Running …");
      if ("begins" in data) limit(waiting.get(data.begins));
      if (data.failed) fail(data.failed);
      if (data.result) release(data.number).show(data.result);
    };
    worker.onerror = (event) => fail(event.message);
    worker.postMessage({ files });
    waiting.forEach(send);
  }

  // Judge an answer with the reader's own earlier functions, not with the book's solutions.
  function send({ number, data: { edited, source, stored, judged } }) {
    const cells = PAGE.cells.slice(0, number).filter((cell) => !(judged && cell.solution));
    const above = cells.map((cell) => cell.edited ?? cell.source);
    worker.postMessage({ number, cell: { above, source: edited ?? source, stored } });
  }

  // End Python if a judged answer exceeds the time limit; nothing else stops an endless loop.
  function limit(cell) {
    const { judged } = cell.data;
    if (!judged) return;
    cell.tell("Running …", "limited");
    cell.limit = setTimeout(() => {
      stop();
      cell.tell(`✗ Step ${judged}: no end after ${LONGEST} s: is there an endless loop?`, "wrong");
      window.ropeJudge.keep(cell.data, { right: false });
    }, LONGEST * 1000);
  }

  function run(cell) {
    if (waiting.has(cell.number)) return;
    waiting.set(cell.number, cell);
    cell.stale = false;
    cell.busy(true);
    cell.tell("Running …");
    if (worker) send(cell);
    else start().catch((error) => fail(error.message));
  }

  function release(number) {
    const cell = waiting.get(number);
    waiting.delete(number);
    clearTimeout(cell.limit);
    cell.busy(false);
    return cell;
  }

  // Terminate the worker, because it can't be interrupted. The next click starts a new worker.
  function end(text, kind) {
    if (worker) worker.terminate();
    worker = null;
    [...waiting.keys()].forEach((number) => release(number).tell(text, kind));
  }

  function stop() {
    end("■ stopped");
  }

  function fail(message) {
    loading = null;
    end("✗ Python stopped: " + message, "wrong");
  }

  return { PAGE, MEGABYTES, files, run, stop };
})();
