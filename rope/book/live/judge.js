// Cells that a judge answers: what is written there and the marks of all steps stay in the browser.
window.ropeJudge = (function () {
  "use strict";

  const KEY = "rope: build it yourself, step "; // one for each, so that two tabs keep two steps
  const STEPS = [1, 2, 3, 4, 5, 6, 7, 8, 9];
  const bars = [];
  const kept = {}; // by step: the code, the book's that it was made of, and whether it was right
  const unkept = new Set(); // steps that the browser gave no storage

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

  // A line of marks for the bar of a cell, and what was written there when the page was left.
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
      // The browser gives no storage, or has nothing in it, or other things.
    }
    draw();
  }

  // What the judge has printed, its last verdict and the lines below that, up to its marks, which
  // are those of Python; then what the reader's own code has printed, before it or after.
  function read(data, result) {
    const step = `Step ${data.judged}: `;
    const verdict = new RegExp(`^([^]*)([✓✗] ${step}[^]*?)(?:\n1 [✓·]  2 .*\n?([^]*))?$`);
    const none = `✗ ${step}the cell must end with ${data.source.split("\n").pop()}`;
    const [, before, judged, after] = result.text.match(verdict) || ["", result.text, none];
    const [said, ...lines] = judged.replace(/\n {2}/g, " ").split("\n"); // unfolded
    const printed = [before.trimEnd(), after].filter(Boolean).join("\n");
    if (printed) lines.push("Your code has printed:", printed);
    const right = said.startsWith("✓");
    keep(data, { right });
    return { said, right, lines };
  }

  // The chapter that a line of the verdict names is a link, as where the step names it.
  function linked(line) {
    const [, title] = line.match(/^See "(.*)"\.$/) || [];
    const links = Array.from(document.querySelectorAll("article a.internal"));
    const link = title && links.find((one) => one.textContent === title);
    return link ? ['See "', link.cloneNode(true), '".'] : [line];
  }

  // The book's solution, the next one on the page, opens beside one that is right.
  function open(input) {
    const below = (one) => input.compareDocumentPosition(one) & Node.DOCUMENT_POSITION_FOLLOWING;
    const solution = Array.from(document.querySelectorAll(".solution.dropdown")).find(below);
    if (solution && solution.classList.contains("toggle-hidden")) {
      solution.querySelector(".toggle-button").click();
    }
  }

  return { keep, equip, read, linked, open, keeps: (step) => !unkept.has(step) };
})();
