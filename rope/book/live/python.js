// Python for the page: loaded and started in a worker when a cell first runs, ended to stop one.
// All of it comes as scripts that hold its files, since browsers load nothing else from file://.
window.ropeLive = (function () {
  "use strict";

  const HERE = document.currentScript.src.replace(/[^/]*$/, "");
  const PAGE = JSON.parse(document.getElementById("rope-live").textContent);
  const BYTES = Object.values(PAGE.parts).reduce((sum, bytes) => sum + bytes, 0);
  const MEGABYTES = Math.round(BYTES / 1e6);
  const LONGEST = 10; // seconds, for an answer that a judge tries

  const files = {}; // filled by the scripts, by their names
  let loading = null; // a promise of them
  let worker = null;
  let waiting = new Map(); // cells whose result has not come, by their number

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
    const all = Object.entries(PAGE.parts).map(([name, bytes]) =>
      loadScript(name).then(() => {
        loaded += bytes;
        tellAll(`Loading Python, ${Math.round(loaded / 1e6)} of ${MEGABYTES} MB …`);
      })
    );
    return Promise.all(all);
  }

  async function start() {
    tellAll(`Loading Python, ${MEGABYTES} MB …`);
    loading = loading || loadFiles();
    await loading;
    if (worker || !waiting.size) return; // started by another click, or stopped meanwhile
    tellAll("Starting Python …");
    // Pyodide needs a module worker; from file:// that is one whose code is in its address.
    const code = "data:text/javascript;base64," + files["worker.js"];
    const started = (worker = new Worker(code, { type: "module" }));
    worker.onmessage = ({ data }) => {
      if (worker !== started) return; // what it said before it was ended
      if (data.ready) tellAll("Running …");
      if ("begins" in data) limit(waiting.get(data.begins));
      if (data.failed) fail(data.failed);
      if (data.result) finish(data.number, data.result);
    };
    worker.onerror = (event) => fail(event.message);
    worker.postMessage({ files });
    waiting.forEach(ask);
  }

  function ask({ number, data: { edited, source, stored } }) {
    const above = PAGE.cells.slice(0, number).map((one) => one.edited ?? one.source);
    worker.postMessage({ number, cell: { above, source: edited ?? source, stored } });
  }

  // An answer may hold an endless loop, which only the end of Python ends.
  function limit(cell) {
    const { judged } = cell.data;
    if (!judged) return;
    cell.tell("Running …", "limited");
    cell.limit = setTimeout(() => {
      stop(); // which the others that wait are told
      cell.tell(`✗ Step ${judged}: no end after ${LONGEST} s: is there an endless loop?`, "wrong");
      window.ropeJudge.keep(cell.data, { right: false });
    }, LONGEST * 1000);
  }

  function run(cell) {
    if (waiting.has(cell.number)) return;
    waiting.set(cell.number, cell);
    cell.stale = false;
    cell.busy(true);
    if (worker) {
      cell.tell("Running …");
      ask(cell);
    } else {
      start().catch((error) => fail(error.message));
    }
  }

  function finish(number, result) {
    const cell = waiting.get(number);
    waiting.delete(number);
    clearTimeout(cell.limit);
    cell.busy(false);
    cell.show(result);
  }

  // Nothing else interrupts a worker; the next click starts another.
  function end(text, kind) {
    if (worker) worker.terminate();
    worker = null;
    const ended = waiting;
    waiting = new Map();
    ended.forEach((cell) => {
      clearTimeout(cell.limit);
      cell.busy(false);
      cell.tell(text, kind);
    });
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
