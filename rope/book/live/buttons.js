// Gives each cell that can run in the page its buttons, its editor and a place for what it says.
(function () {
  "use strict";

  const { PAGE, run, stop } = window.ropeLive;
  const HELP =
    "Runs this cell in a fresh namespace, after the lines that it needs from the cells above, " +
    "as they stand now, your edits included. A change made through a second name is not seen";

  function element(name, className, text) {
    const node = document.createElement(name);
    if (className) node.className = className;
    if (text) node.textContent = text;
    return node;
  }

  function button(text, title, act) {
    const node = element("button", "", text);
    node.type = "button";
    node.title = title;
    node.onclick = act;
    return node;
  }

  const cells = [];

  // What was said of a cell, or will be of one that runs, no longer holds once it, or a cell above
  // it, is another one.
  function forget(number) {
    cells.filter((cell) => cell.number >= number).forEach((cell) => cell.outdate());
  }

  function equip(data, number, input) {
    const bar = element("div", "rope-live");
    const status = element("span", "rope-live-status");
    status.setAttribute("role", "status"); // which a reader of screens is told of
    const output = element("pre", "rope-live-output");
    output.hidden = true;
    output.tabIndex = 0; // long output is scrolled by keys
    const printed = input.querySelector("pre");
    const code = printed.closest("[class^='highlight-']");
    const changed = element("pre");
    let editor = null;

    const runButton = button("Run", HELP, () => run(cell));
    const editButton = button("Edit", "Changes this cell; Escape leaves, Ctrl+Enter runs", edit);
    const stopButton = button("Stop", "Ends Python, and with it every cell that runs", stop);
    const resetButton = button("Reset", "Puts back what the book has printed", reset);
    stopButton.hidden = resetButton.hidden = true;
    bar.append(runButton, stopButton, editButton, resetButton, status);
    input.append(bar, output);

    const cell = { data, number, stale: false, tell, busy, show, outdate };
    cells.push(cell);
    if (data.judged) {
      window.ropeJudge.equip(data, bar);
      edit(); // to be written in
    }

    function outdate() {
      cell.stale = true;
      output.hidden = true;
      if (stopButton.hidden) tell(""); // one that runs says so itself when it has ended
    }

    function tell(text, kind) {
      status.textContent = text;
      status.dataset.kind = kind || "";
    }

    function busy(yes) {
      const [goes, comes] = yes ? [runButton, stopButton] : [stopButton, runButton];
      const focused = document.activeElement === goes;
      goes.hidden = true;
      comes.hidden = false;
      if (focused) comes.focus();
      if (yes) output.hidden = true;
    }

    function show(result) {
      if (cell.stale) return tell("edited meanwhile: run it again");
      const lines = document.createDocumentFragment(); // the page is told once, of all of them
      const line = (text, kind) => lines.append(element("span", kind, text + "\n"));
      const edited = data.edited !== undefined;
      if (data.judged && !result.error) {
        const { said, right, lines: below } = window.ropeJudge.read(data, result);
        tell(said, right ? "right" : "wrong");
        below.forEach((text) => lines.append(...window.ropeJudge.linked(text), "\n"));
        const printed = input.parentElement.querySelector(".cell_output");
        if (printed) printed.hidden = true; // which was of the empty function
        if (right) window.ropeJudge.open(input);
      } else if (result.same && !result.text && edited) tell("✓ ran without an exception");
      else if (result.same && !result.text) tell("✓ ran, nothing to print, as in the book", "right");
      else if (result.same) tell("✓ as printed", "right");
      else if (result.error) tell("✗ the cell raises an exception", "wrong");
      else tell("✗ not as printed: − the book, + now", "wrong");
      if (result.error) {
        if (data.judged) window.ropeJudge.keep(data, { right: false });
        if (result.text) line(result.text);
        line(result.error, "rope-live-error");
      } else if (!data.judged) {
        // Nothing where it is as printed: that stands below.
        result.difference.forEach((text) => {
          const kind = { "- ": "rope-live-less", "+ ": "rope-live-more" }[text.slice(0, 2)];
          line(text.replace(/^- /, "− "), kind);
        });
      }
      output.replaceChildren(lines);
      output.hidden = !output.textContent;
    }

    function edit(click) {
      if (editor) return leave();
      editor = element("textarea", "rope-live-editor");
      editor.value = data.edited ?? data.source;
      editor.spellcheck = false;
      editor.setAttribute("autocapitalize", "off");
      editor.setAttribute("aria-label", "The code of this cell");
      const numbers = element("div", "rope-live-numbers");
      numbers.setAttribute("aria-hidden", "true");
      const fit = () => {
        const lines = editor.value.split("\n");
        editor.rows = lines.length + 1;
        numbers.textContent = lines.map((_, above) => above + 1).join("\n");
      };
      editor.addEventListener("input", () => {
        data.edited = editor.value === data.source ? undefined : editor.value;
        forget(number);
        resetButton.hidden = data.edited === undefined;
        if (data.judged) window.ropeJudge.keep(data, { code: editor.value, right: false });
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
      code.hidden = true;
      const editing = element("div", "rope-live-editing");
      editing.append(numbers, editor);
      input.insertBefore(editing, bar);
      editButton.textContent = "Done";
      resetButton.hidden = data.edited === undefined;
      if (click) editor.focus();
    }

    // What was changed stays, shown without colours: these belong to the book's code.
    function leave() {
      editor.parentElement.remove();
      editor = null;
      code.hidden = false;
      editButton.textContent = "Edit";
      showCode();
      editButton.focus();
    }

    function showCode() {
      changed.id = printed.id; // by which the button for copying finds what it copies
      const [goes, comes] = data.edited === undefined ? [changed, printed] : [printed, changed];
      changed.textContent = data.edited;
      goes.replaceWith(comes);
    }

    function reset() {
      data.edited = undefined;
      if (data.judged) window.ropeJudge.keep(data, { code: undefined, right: false });
      resetButton.hidden = true;
      if (editor) leave();
      showCode();
      forget(number);
      runButton.focus();
    }
  }

  // The page has been read: this script is deferred.
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
  // A page that is left forgets its edits, so the browser asks.
  window.addEventListener("beforeunload", (event) => {
    const lost = ({ data }) =>
      data.edited !== undefined && !(data.judged && window.ropeJudge.keeps(data.judged));
    if (cells.some(lost)) event.preventDefault();
  });
})();
