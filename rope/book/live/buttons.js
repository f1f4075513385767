// Add buttons, an editor and an output area to each cell that can run in the page.
(function () {
  "use strict";

  const { PAGE, MEGABYTES, run, stop } = window.ropeLive;
  const judge = window.ropeJudge; // only on the page whose answers are judged
  const HELP =
    "Runs this cell in a fresh namespace, after the lines that it needs from the cells above, " +
    "including your edits. If those cells change an object under another name, the change is lost";
  const count = PAGE.cells.filter((data) => data.stored !== undefined).length;
  const FIRST =
    `. The first click starts Python with SymPy (${MEGABYTES} MB, part of this book). What you ` +
    `edit is sent nowhere. Cells with a Run button on this page: ${count}. The others run in the ` +
    "notebook, which you can download above; most need NumPy or PyTorch";
  const cells = [];

  function element(name, className, text = "") {
    const node = document.createElement(name);
    node.className = className;
    node.textContent = text;
    return node;
  }

  function button(text, title, onclick) {
    return Object.assign(element("button", "", text), { type: "button", title, onclick });
  }

  // Mark the results of the edited cell and of all cells below it as outdated.
  function outdate(number) {
    cells.filter((cell) => cell.number >= number).forEach((cell) => cell.outdate());
  }

  function equip(data, number, input) {
    const printed = input.querySelector("pre");
    const highlighted = printed.innerHTML;
    const help = cells.length ? HELP : HELP + FIRST;
    let editing = false;
    const bar = element("div", "rope-live");
    const status = element("span", "rope-live-status");
    status.setAttribute("role", "status"); // screen readers announce it
    const output = element("pre", "rope-live-output");
    output.hidden = true;
    output.tabIndex = 0; // so that keys can scroll long output
    const runButton = button("Run", help, () => (cell.running ? stop() : run(cell)));
    const editButton = button("Edit", "Edits this cell; Escape ends, Ctrl+Enter runs it", edit);
    const resetButton = button("Reset", "Restores the book's code", reset);
    resetButton.hidden = true;
    bar.append(runButton, editButton, resetButton, status);
    input.append(bar, output);
    printed.spellcheck = false;
    printed.autocapitalize = "off";
    printed.oninput = changed;
    printed.onkeydown = (event) => {
      if (!editing) return;
      if (event.key === "Escape") edit();
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
        event.preventDefault();
        run(cell);
      }
    };

    const cell = { data, number, stale: false, running: false, tell, busy, show, outdate: forget };
    cells.push(cell);
    if (data.judged) {
      judge.equip(data, bar);
      showCode();
      edit(); // the reader writes the answer here
    }

    function tell(text, kind = "") {
      status.textContent = text;
      status.dataset.kind = kind;
    }

    function forget() {
      cell.stale = true;
      output.hidden = true;
      if (!cell.running) tell(""); // a running cell reports when it ends
    }

    function busy(running) {
      cell.running = running;
      runButton.textContent = running ? "Stop" : "Run";
      runButton.title = running ? "Stops Python and all running cells" : help;
      if (running) output.hidden = true;
    }

    function show(result) {
      if (cell.stale) return tell("edited meanwhile: run the cell again");
      const lines = [];
      if (result.error) {
        tell("✗ the cell raises an exception", "wrong");
        if (data.judged) judge.keep(data, { right: false });
        if (result.text) lines.push(result.text + "\n");
        lines.push(element("span", "rope-live-error", result.error + "\n"));
      } else if (data.judged) {
        const { said, right, lines: details } = judge.read(data, result);
        tell(said, right ? "right" : "wrong");
        details.forEach((text) => lines.push(...judge.linked(text), "\n"));
        const stored = input.parentElement.querySelector(".cell_output");
        if (stored) stored.hidden = true; // the stored verdict is about an empty function
        if (right) judge.open(input);
      } else {
        if (!result.same) tell("✗ not as printed: − in the book, + now", "wrong");
        else if (result.text) tell("✓ as printed", "right");
        else if (data.edited !== undefined) tell("✓ ran without an exception");
        else tell("✓ ran, nothing to print, as in the book", "right");
        for (const text of result.difference) {
          const kind = { "- ": "rope-live-less", "+ ": "rope-live-more" }[text.slice(0, 2)] || "";
          lines.push(element("span", kind, text.replace(/^- /, "− ") + "\n"));
        }
      }
      output.replaceChildren(...lines);
      output.hidden = !output.textContent;
    }

    function edit(click) {
      editing = !editing;
      printed.classList.toggle("rope-live-editor", editing);
      printed.contentEditable = editing ? "plaintext-only" : "false";
      printed.role = editing ? "textbox" : null;
      printed.ariaMultiLine = editing ? "true" : null;
      printed.ariaLabel = editing ? "The code of this cell" : null;
      editButton.textContent = editing ? "Done" : "Edit";
      if (editing && click) printed.focus();
      if (!editing) editButton.focus();
    }

    function changed() {
      const code = printed.innerText.trimEnd();
      data.edited = code === data.source.trimEnd() ? undefined : code;
      resetButton.hidden = data.edited === undefined;
      if (data.judged) judge.keep(data, { code, right: false });
      outdate(number);
    }

    // Show syntax highlighting only for the book's own code.
    function showCode() {
      if (data.edited === undefined) printed.innerHTML = highlighted;
      else printed.textContent = data.edited;
      resetButton.hidden = data.edited === undefined;
    }

    function reset() {
      data.edited = undefined;
      if (data.judged) judge.keep(data, { code: undefined, right: false });
      if (editing) edit();
      showCode();
      outdate(number);
      runButton.focus();
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
  // Leaving the page discards edits, so let the browser ask for confirmation first.
  window.addEventListener("beforeunload", (event) => {
    const lost = ({ data }) =>
      data.edited !== undefined && !(data.judged && judge.keeps(data.judged));
    if (cells.some(lost)) event.preventDefault();
  });
})();
