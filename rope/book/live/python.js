// Python for the page: starts in a worker when a cell first runs; stopping a cell ends the worker.
// Its files come as scripts, because from file:// browsers load nothing else.
window.ropeLive = (function () {
  "use strict";

  const HERE = document.currentScript.src.replace(/[^/]*$/, "");
  const PAGE = JSON.parse(document.getElementById("rope-live").textContent);
  const BYTES = Object.values(PAGE.parts).reduce((sum, bytes) => sum + bytes, 0);
  const MEGABYTES = Math.round(BYTES / 1e6);
  const LONGEST = 10; // seconds that a judged answer may take

  const files = {}; // each script adds its file
  const waiting = new Map(); // the cells without a result, by number
  let loading = null; // a promise of all files
  let worker = null;

  function tellAll(text) {
    waiting.forEach((cell) => cell.tell(text));
  }

  function loadScript(name) {
    return new Promise((resolve, reject) => {
      const script = document.createElement("script");
      script.src = HERE + name;
      script.onload = resolve;
      script.onerror = () => reject(new Error(name + " could not be loaded"));
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
    // Pyodide needs a module worker; from file:// its code has to be in the address.
    const code = "data:text/javascript;base64," + files["worker.js"];
    const started = (worker = new Worker(code, { type: "module" }));
    worker.onmessage = ({ data }) => {
      if (worker !== started) return; // a message sent before the worker was ended
      if (data.ready) tellAll("Running …");
      if ("begins" in data) limit(waiting.get(data.begins));
      if (data.failed) fail(data.failed);
      if (data.result) release(data.number).show(data.result);
    };
    worker.onerror = (event) => fail(event.message);
    worker.postMessage({ files });
    waiting.forEach(send);
  }

  // An answer is judged with the reader's own earlier functions, not with the book's solutions.
  function send({ number, data: { edited, source, stored, judged } }) {
    const cells = PAGE.cells.slice(0, number).filter((cell) => !(judged && cell.solution));
    const above = cells.map((cell) => cell.edited ?? cell.source);
    worker.postMessage({ number, cell: { above, source: edited ?? source, stored } });
  }

  // Only ending Python ends an endless loop in an answer.
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

  // A worker cannot be interrupted, only ended; the next click starts another.
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
    end("✗ Python has stopped: " + message, "wrong");
  }

  return { PAGE, files, run, stop };
})();
