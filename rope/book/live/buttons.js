// Add a Run button, an editor and an output area to each cell that can run in the page. Python runs
// in a worker, which starts on the first click. Files are loaded as scripts, because a page from
// file:// can load nothing else.
window.ropeLive = (function () {
  "use strict";

  const HERE = document.currentScript.src.replace(/[^/]*$/, "");
  const PAGE = JSON.parse(document.getElementById("rope-live").textContent);
  const HELP =
    "Runs this cell after the cells above it, with your edits, in Python with SymPy. " +
    "The first click takes a few seconds. Nothing is sent anywhere";
  const KEY = "rope: answer to step "; // one key per step, so that two tabs don't conflict
  const files = {}; // file contents by name; each loaded script adds one file
  const cells = [];
  let loading = null; // promise that resolves when all files are loaded
  let worker = null;

  function loadScript(name) {
    return new Promise((resolve, reject) => {
      const script = document.createElement("script");
      script.src = HERE + name;
      script.onload = resolve;
      script.onerror = () => reject(new Error(name + " could not be loaded; reload the page"));
      document.head.append(script);
    });
  }

  async function start() {
    loading = loading || Promise.all(PAGE.parts.map(loadScript));
    await loading;
    if (worker) return;
    // Pyodide needs a module worker; from file:// the worker's code must be in a data: URL.
    worker = new Worker("data:text/javascript;base64," + files["worker.js"], { type: "module" });
    worker.onmessage = ({ data }) => (data.failed ? fail(data.failed) : ended(data));
    worker.onerror = (event) => fail(event.message);
    worker.postMessage({ files });
  }

  async function run(cell) {
    cell.begin(worker ? "Running …" : "Starting Python …");
    try {
      await start();
    } catch (error) {
      loading = null;
      return fail(error.message);
    }
    if (!cell.running) return; // the reader has pressed Stop
    // Judge an answer with the reader's own earlier functions, not with the book's solutions.
    const { edited, source, stored, judged } = cell.data;
    const above = PAGE.cells
      .slice(0, cell.number)
      .filter((one) => !(judged && one.solution))
      .map((one) => ({ source: one.edited ?? one.source, whole: one.stored !== undefined }));
    worker.postMessage({ number: cell.number, cell: { above, source: edited ?? source, stored } });
  }

  function ended({ number, result }) {
    const cell = cells.find((one) => one.number === number);
    if (cell.running) cell.show(result);
  }

  // Terminate the worker, because it can't be interrupted. The next click starts a new worker.
  function stop(text = "■ stopped", kind = "") {
    if (worker) worker.terminate();
    worker = null;
    cells.filter((cell) => cell.running).forEach((cell) => cell.end(text, kind));
  }

  function fail(message) {
    stop("✗ Python stopped: " + message, "wrong");
  }

  function element(name, className, properties = {}) {
    return Object.assign(document.createElement(name), { className, ...properties });
  }

  function equip(data, number, input) {
    const editor = input.querySelector("pre");
    const highlighted = editor.innerHTML;
    const bar = element("div", "rope-live");
    const status = element("span", "rope-live-status", { role: "status" }); // screen readers announce it
    const output = element("pre", "rope-live-output", { hidden: true, tabIndex: 0 });
    const runButton = element("button", "", { type: "button", title: HELP, textContent: "Run" });
    const resetButton = element("button", "", { type: "button", textContent: "Reset" });
    const cell = { data, number, running: false, begin, end, show, clear };
    cells.push(cell);
    bar.append(runButton, resetButton, status);
    input.append(bar, output);
    runButton.onclick = () => (cell.running ? stop() : run(cell));
    resetButton.title = "Restores the book's code";
    resetButton.hidden = true;
    resetButton.onclick = reset;
    Object.assign(editor, {
      contentEditable: "plaintext-only", role: "textbox", ariaMultiLine: "true",
      ariaLabel: "The code of this cell", spellcheck: false, autocapitalize: "off",
      oninput: () => edited(editor.innerText), onkeydown: runByKey,
    });
    const kept = data.judged && storage((own) => own.getItem(KEY + data.judged));
    if (kept) {
      editor.textContent = kept;
      edited(kept);
    }

    function begin(text) {
      cell.running = true;
      runButton.textContent = "Stop";
      clear(text);
    }

    function clear(text = "", kind = "") {
      output.hidden = true;
      status.textContent = text;
      status.dataset.kind = kind;
    }

    function end(text, kind) {
      cell.running = false;
      runButton.textContent = "Run";
      clear(text, kind);
    }

    function show({ text, error, same }) {
      const verdict = text.match(/^[✓✗] Step/m)?.[0];
      if (error) end("✗ the cell raises an exception", "wrong");
      else if (data.judged && verdict?.[0] === "✓") end("✓ right", "right");
      else if (data.judged) end(verdict ? "✗ not right yet" : "✗ the judge was not called", "wrong");
      else if (!same) end("✗ prints something different from the book", "wrong");
      else end(text ? "✓ prints what the book prints" : "✓ ran without an exception", "right");
      output.textContent = [text, error].filter(Boolean).join("\n");
      output.hidden = !output.textContent;
      const stored = input.parentElement.querySelector(".cell_output");
      if (data.judged && stored) stored.hidden = true; // this verdict is on an empty function
    }

    function runByKey(event) {
      if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
      event.preventDefault();
      if (!cell.running) run(cell);
    }

    // Clear the results of this cell and of all cells below it, because they no longer hold.
    function edited(code) {
      data.edited = code;
      resetButton.hidden = code === undefined;
      if (cells.some((one) => one.running)) stop();
      cells.filter((one) => one.number >= number).forEach((one) => one.clear());
      if (data.judged) storage((own) => own.setItem(KEY + data.judged, code ?? ""));
    }

    function reset() {
      editor.innerHTML = highlighted;
      edited(undefined);
      runButton.focus();
    }
  }

  // A browser may have no storage for pages from file://. In that case, answers are not kept.
  function storage(use) {
    try {
      return use(localStorage);
    } catch {
      return null;
    }
  }

  // Find each cell on the page by its code. Cells with equal code are matched in order.
  const inputs = Array.from(document.querySelectorAll("div.cell .cell_input"));
  const code = (input) => input.querySelector("pre").textContent.trim();
  PAGE.cells.forEach((data, number) => {
    if (data.stored === undefined) return;
    const place = inputs.findIndex((input) => code(input) === data.source.trim());
    if (place < 0) console.error("The page doesn't contain the cell: " + data.source);
    else equip(data, number, inputs.splice(place, 1)[0]);
  });
  return { PAGE, files };
})();
