// Gives each cell that can run in the page its buttons, and runs it in a worker.
// Nothing but this script is loaded before the first click: Python comes as scripts that hold its
// files, since browsers load nothing else from file://.
(function () {
  "use strict";

  const HERE = document.currentScript.src.replace(/[^/]*$/, "");
  const PAGE = JSON.parse(document.getElementById("rope-live").textContent);
  const BYTES = Object.values(PAGE.parts).reduce((sum, bytes) => sum + bytes, 0);
  const MEGABYTES = Math.round(BYTES / 1e6);
  const HELP =
    "Runs this cell in a fresh namespace, after the lines that it needs from the cells above, " +
    "as they stand now, your edits included";

  window.ropeLive = { files: {} };
  let loading = null; // a promise of the files
  let worker = null;
  let waiting = new Map(); // cells whose result has not come, by their number

  function element(name, className, text) {
    const node = document.createElement(name);
    if (className) node.className = className;
    if (text) node.textContent = text;
    return node;
  }

  function button(text, title, act) {
    const node = element("button", "", text);
    node.type = "button";
    if (title) node.title = title;
    node.addEventListener("click", act);
    return node;
  }

  // --- Python ---

  function loadScript(name) {
    return new Promise((resolve, reject) => {
      const script = element("script");
      script.src = HERE + name;
      script.onload = resolve;
      script.onerror = () => reject(new Error(name + " could not be loaded"));
      document.head.appendChild(script);
    });
  }

  function loadFiles(tell) {
    let loaded = 0;
    const all = Object.entries(PAGE.parts).map(([name, bytes]) =>
      loadScript(name).then(() => {
        loaded += bytes;
        tell(`Loading Python, ${Math.round(loaded / 1e6)} of ${MEGABYTES} MB …`);
      })
    );
    return Promise.all(all).then(() => window.ropeLive.files);
  }

  function tellAll(text) {
    waiting.forEach((cell) => cell.tell(text));
  }

  async function startWorker() {
    tellAll(`Loading Python, ${MEGABYTES} MB …`);
    loading = loading || loadFiles(tellAll);
    const files = await loading;
    if (worker || !waiting.size) return; // stopped meanwhile, or started by another click
    tellAll("Starting Python …");
    // Pyodide needs a module worker; from file:// that is one whose code is in its address.
    worker = new Worker("data:text/javascript;base64," + files["worker.js"], { type: "module" });
    worker.onmessage = ({ data }) => {
      if (data.progress) tellAll(data.progress);
      if (data.ready) tellAll("Running …");
      if (data.failed) fail(data.failed);
      if (data.result) finish(data.number, data.result);
    };
    worker.onerror = (event) => fail(event.message);
    worker.postMessage({ files });
    waiting.forEach(ask);
  }

  function ask(cell) {
    const above = PAGE.cells.slice(0, cell.number).map((one) => one.edited || one.source);
    const { edited, source, stored } = cell.data;
    worker.postMessage({ number: cell.number, cell: { above, source: edited || source, stored } });
  }

  function run(cell) {
    if (waiting.has(cell.number)) return;
    waiting.set(cell.number, cell);
    cell.busy(true);
    if (worker) {
      cell.tell("Running …");
      ask(cell);
    } else {
      startWorker().catch((error) => fail(error.message));
    }
  }

  function finish(number, result) {
    const cell = waiting.get(number);
    waiting.delete(number);
    cell.busy(false);
    cell.show(result);
  }

  // Ending the worker is the only way to interrupt it; the next click starts another.
  function end(each) {
    if (worker) worker.terminate();
    worker = null;
    const ended = waiting;
    waiting = new Map();
    ended.forEach((cell) => {
      cell.busy(false);
      each(cell);
    });
  }

  function stop() {
    end((cell) => cell.tell("■ stopped"));
  }

  function fail(message) {
    loading = null;
    end((cell) => cell.tell("✗ Python has stopped: " + message, "wrong"));
  }

  // --- One cell ---

  function equip(data, number, input) {
    const bar = element("div", "rope-live");
    const status = element("span", "rope-live-status");
    status.setAttribute("role", "status");
    status.setAttribute("aria-live", "polite");
    const output = element("pre", "rope-live-output");
    output.hidden = true;
    output.tabIndex = 0; // so that what is wider than the page can be scrolled by keys
    output.setAttribute("aria-label", "What the cell gives now");
    const code = input.querySelector(".highlight");
    let editor = null;

    const runButton = button("Run", HELP, () => run(cell));
    const editButton = button("Edit", "Changes this cell; Escape leaves, Ctrl+Enter runs", edit);
    const stopButton = button("Stop", "Ends Python, and with it every cell that runs", stop);
    const resetButton = button("Reset", "Puts back what the book has printed", reset);
    stopButton.hidden = resetButton.hidden = true;
    bar.append(runButton, stopButton, editButton, resetButton, status);
    input.append(bar, output);

    const cell = { data, number, tell, busy, show };

    function tell(text, kind) {
      status.textContent = text;
      status.dataset.kind = kind || "";
    }

    function busy(yes) {
      const stopHadFocus = document.activeElement === stopButton;
      const runHadFocus = document.activeElement === runButton;
      runButton.hidden = yes;
      stopButton.hidden = !yes;
      if (yes && runHadFocus) stopButton.focus();
      if (!yes && stopHadFocus) runButton.focus();
      if (yes) output.hidden = true;
    }

    function line(text, kind) {
      output.append(element("span", kind, text + "\n"));
    }

    function show(result) {
      output.textContent = "";
      if (result.same && !result.text) tell("✓ ran, nothing to print, as stored", "right");
      else if (result.same) tell("✓ as printed", "right");
      else if (result.error) tell("✗ the cell raises an exception", "wrong");
      else tell("✗ not as printed: − the book, + now", "wrong");
      if (result.error) {
        if (result.text) line(result.text);
        line(result.error, "rope-live-error");
      } else {
        // Nothing where it is as printed: that stands below.
        result.difference.forEach((text) => {
          const kind = { "- ": "rope-live-less", "+ ": "rope-live-more" }[text.slice(0, 2)];
          line(text.replace(/^- /, "− "), kind);
        });
      }
      if (result.left) line("what is left of the difference: " + result.left, "rope-live-error");
      output.hidden = !output.textContent;
    }

    function edit() {
      if (editor) return leave();
      editor = element("textarea", "rope-live-editor");
      editor.value = data.edited || data.source;
      editor.spellcheck = false;
      editor.setAttribute("autocapitalize", "off");
      editor.setAttribute("aria-label", "The code of this cell");
      const fit = () => (editor.rows = editor.value.split("\n").length + 1);
      editor.addEventListener("input", () => {
        data.edited = editor.value === data.source ? "" : editor.value;
        resetButton.hidden = !data.edited;
        fit();
      });
      editor.addEventListener("keydown", (event) => {
        if (event.key === "Escape") leave();
        if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
          event.preventDefault();
          run(cell);
        }
      });
      fit();
      code.parentElement.hidden = true;
      input.insertBefore(editor, bar);
      editButton.textContent = "Done";
      editor.focus();
    }

    // What was changed stays, shown without colours: these belong to the book's code.
    function leave() {
      editor.remove();
      editor = null;
      code.parentElement.hidden = false;
      editButton.textContent = "Edit";
      showCode();
      editButton.focus();
    }

    const printed = code.querySelector("pre");
    const changed = element("pre");
    changed.id = printed.id; // by which the button for copying finds what it copies
    function showCode() {
      changed.textContent = data.edited || "";
      (data.edited ? printed : changed).replaceWith(data.edited ? changed : printed);
    }

    function reset() {
      data.edited = "";
      resetButton.hidden = true;
      if (editor) leave();
      showCode();
      tell("");
      output.hidden = true;
      runButton.focus();
    }
  }

  function start() {
    // Cells are found by their code; each has its own place, should two be alike.
    const inputs = Array.from(document.querySelectorAll("div.cell .cell_input"));
    PAGE.cells.forEach((data, number) => {
      if (data.stored === undefined) return;
      const at = inputs.findIndex(
        (input) => input.querySelector("pre").textContent.trim() === data.source.trim()
      );
      if (at < 0) return console.error("A cell is not on the page: " + data.source);
      const [input] = inputs.splice(at, 1);
      equip(data, number, input);
    });
    const note = element("p", "rope-live-note");
    note.textContent =
      "Cells with the button Run work in this page, without a network: the first click starts " +
      `Python with SymPy (${MEGABYTES} MB). Edit one: turn a sign and see its proof fail. ` +
      "The others run in the notebook; most need NumPy or PyTorch.";
    document.querySelector(".admonition.goals").after(note);
  }

  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", start);
  else start();
})();
