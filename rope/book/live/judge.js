// Keep in the browser what a reader wrote in the cells that a judge answers, and the marks of all
// steps.
window.ropeJudge = (function () {
  "use strict";

  const KEY = "rope: build it yourself, step "; // one key per step, so that two tabs can keep two steps
  const STEPS = [1, 2, 3, 4, 5, 6, 7, 8, 9];
  const bars = [];
  const kept = {}; // by step: the code, the book's code that it started from, and whether it was right
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

  // Add a line of marks to the bar of a cell, and restore what the reader had written there.
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
      // The browser has no storage, or nothing of ours in it.
    }
    draw();
  }

  // Return the judge's last verdict and the lines below it, without its marks, which are Python's;
  // then what the reader's own code has printed before or after it.
  function read(data, result) {
    const step = `Step ${data.judged}: `;
    const verdict = new RegExp(`^([^]*)([✓✗] ${step}[^]*?)(?:\n1 [✓·]  2 .*\n?([^]*))?$`);
    const none = `✗ ${step}the cell must end with ${data.source.split("\n").pop()}`;
    const [, before, judged, after] = result.text.match(verdict) || ["", result.text, none];
    const [said, ...lines] = judged.replace(/\n {2}/g, " ").split("\n"); // without line breaks of the judge
    const printed = [before.trimEnd(), after].filter(Boolean).join("\n");
    if (printed) lines.push("Your code has printed:", printed);
    const right = said.startsWith("✓");
    keep(data, { right });
    return { said, right, lines };
  }

  // Turn the chapter that a verdict names into a link, copied from the step's own link.
  function linked(line) {
    const [, title] = line.match(/^See "(.*)"\.$/) || [];
    const links = Array.from(document.querySelectorAll("article a.internal"));
    const link = title && links.find((one) => one.textContent === title);
    return link ? ['See "', link.cloneNode(true), '".'] : [line];
  }

  // Open the book's solution, the next one on the page, when an answer is right.
  function open(input) {
    const below = (one) => input.compareDocumentPosition(one) & Node.DOCUMENT_POSITION_FOLLOWING;
    const solution = Array.from(document.querySelectorAll(".solution.dropdown")).find(below);
    if (solution && solution.classList.contains("toggle-hidden")) {
      solution.querySelector(".toggle-button").click();
    }
  }

  return { keep, equip, read, linked, open, keeps: (step) => !unkept.has(step) };
})();
