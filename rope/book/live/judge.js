// Store the reader's code in judged cells and the marks for all steps in the browser.
window.ropeJudge = (function () {
  "use strict";

  const KEY = "rope: build it yourself, step "; // one key per step, so that two tabs don't conflict
  const STEPS = [1, 2, 3, 4, 5, 6, 7, 8, 9];
  const bars = [];
  const kept = {}; // each step's stored code, the book's code, and whether the answer was right
  const unkept = new Set(); // steps that the browser couldn't store

  function keep({ judged, source }, what) {
    kept[judged] = { ...kept[judged], ...what, source };
    try {
      localStorage.setItem(KEY + judged, JSON.stringify(kept[judged]));
      unkept.delete(judged);
    } catch {
      unkept.add(judged);
    }
    draw();
  }

  function draw() {
    const line = STEPS.map((step) => `${step} ${kept[step]?.right ? "✓" : "·"}`);
    bars.forEach((marks) => (marks.textContent = line.join("  ")));
  }

  // Add the marks to a cell's button bar, and restore the reader's stored code.
  function equip(data, bar) {
    const marks = document.createElement("span");
    marks.className = "rope-judge-marks";
    bar.append(marks);
    bars.push(marks);
    try {
      const { code, right, source } = JSON.parse(localStorage.getItem(KEY + data.judged));
      if (typeof code === "string" && source === data.source) {
        kept[data.judged] = { code, right };
        if (code !== source) data.edited = code;
      }
    } catch {
      // The browser has no storage, or nothing usable is stored.
    }
    draw();
  }

  // Return the judge's last verdict and its details, then whatever the reader's code printed before
  // or after the verdict. Drop the printed line of marks, because the page draws its own.
  function read(data, result) {
    const step = `Step ${data.judged}: `;
    const verdict = new RegExp(`^([^]*)([✓✗] ${step}[^]*?)(?:\n1 [✓·]  2 .*\n?([^]*))?$`);
    const none = `✗ ${step}the cell must end with ${data.source.split("\n").pop()}`;
    const [, before, judged, after] = result.text.match(verdict) || ["", result.text, none];
    const [said, ...lines] = judged.replace(/\n {2}/g, " ").split("\n"); // undo line wrapping
    const printed = [before.trimEnd(), after].filter(Boolean).join("\n");
    if (printed) lines.push("Your code has printed:", printed);
    const right = said.startsWith("✓");
    keep(data, { right });
    return { said, right, lines };
  }

  // Replace the chapter title in a verdict with a copy of the page's link to that chapter.
  function linked(line) {
    const [, title] = line.match(/^See "(.*)"\.$/) || [];
    const links = Array.from(document.querySelectorAll("article a.internal"));
    const link = title && links.find((one) => one.textContent === title);
    return link ? ['See "', link.cloneNode(true), '".'] : [line];
  }

  // Open the next solution below a right answer.
  function open(input) {
    const below = (one) => input.compareDocumentPosition(one) & Node.DOCUMENT_POSITION_FOLLOWING;
    const solution = Array.from(document.querySelectorAll(".solution.dropdown")).find(below);
    if (solution && solution.classList.contains("toggle-hidden")) {
      solution.querySelector(".toggle-button").click();
    }
  }

  return { keep, equip, read, linked, open, keeps: (step) => !unkept.has(step) };
})();
