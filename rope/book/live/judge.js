// Cells that a judge answers: what is written there and the marks of all steps stay in the browser.
window.ropeJudge = (function () {
  "use strict";

  const KEY = "rope: build it yourself";
  const STEPS = [1, 2, 3, 4, 5, 6, 7, 8, 9];
  const bars = [];
  let kept = {}; // by step: the code, and whether it was right
  let keeps = true;
  try {
    kept = JSON.parse(localStorage.getItem(KEY)) || {};
  } catch {
    keeps = false; // the browser gives no storage, or has other things in it
  }

  function keep(step, what) {
    kept[step] = { ...kept[step], ...what };
    try {
      localStorage.setItem(KEY, JSON.stringify(kept));
    } catch {
      keeps = false;
    }
    draw();
  }

  function draw() {
    const line = STEPS.map((step) => `${step} ${kept[step] && kept[step].right ? "✓" : "·"}`);
    bars.forEach((marks) => (marks.textContent = line.join("  ")));
  }

  // A line of marks for the bar of a cell, and what was written there when the page was left.
  function equip(data, bar) {
    const marks = document.createElement("span");
    marks.className = "rope-judge-marks";
    bar.append(marks);
    bars.push(marks);
    draw();
    const { code } = kept[data.judged] || {};
    if (code !== undefined && code !== data.source) data.edited = code;
  }

  // What the judge has printed: its verdict, the lines below it; its own marks are those of Python.
  function read(data, result) {
    const [said, ...rest] = result.text.replace(/\n {2}/g, " ").split("\n"); // lines unfolded
    const right = !result.error && said.startsWith("✓");
    keep(data.judged, { right });
    return { said, right, lines: rest.filter((line) => !/^1 [✓·]/.test(line)) };
  }

  // The book's solution, the next one on the page, opens beside one that is right.
  function open(input) {
    const below = (one) => input.compareDocumentPosition(one) & Node.DOCUMENT_POSITION_FOLLOWING;
    const solution = Array.from(document.querySelectorAll(".solution.dropdown")).find(below);
    if (solution && solution.classList.contains("toggle-hidden")) {
      solution.querySelector(".toggle-button").click();
    }
  }

  return { keep, equip, read, open, keeps: () => keeps };
})();
