// What a visit asks of a page. Each line of an answer is a fault that a reader would see.
"use strict";

// Cumulative layout shift; web.dev calls a page good up to 0.1.
let shifted = 0;
const add = (list) => list.getEntries().forEach((one) => (shifted += one.value));
const shifts = new PerformanceObserver(add);
shifts.observe({ type: "layout-shift", buffered: true });

const SMALLEST_TEXT = 8.9; // pixels; the page's own rule is 9, and a browser rounds
const all = (what, where = document) => [...where.querySelectorAll(what)];

window.visit = {
  // Charts are drawn for the width that the page has. No promise: Playwright waits for none here.
  ready: () => all(".rope-chart").every(({ dataset }) => dataset.ready === dataset.stacked),

  // Formulas are typeset, the page has seen a new width or theme, and no color is on its way.
  async settled() {
    await window.MathJax?.startup?.promise;
    const frame = () => new Promise(requestAnimationFrame);
    await frame();
    await frame();
    const moves = document
      .getAnimations() // in a closed fold they stand still
      .filter((one) => one instanceof CSSTransition && one.effect.target.checkVisibility());
    await Promise.allSettled(moves.map((one) => one.finished));
  },

  shifted: () => shifts.takeRecords().reduce((sum, one) => sum + one.value, shifted),

  links: () =>
    all("[href], [src]").map((node) => {
      const link = node.getAttribute("href") ?? node.getAttribute("src");
      return new URL(link, document.baseURI).href;
    }),

  look({ narrow }) {
    const faults = [];
    const article = document.querySelector("article") || document.body;
    const inArticle = (what) => all(what, article);
    const shown = (node) => node.getClientRects().length > 0;
    for (const node of inArticle(".math"))
      if (!node.querySelector("mjx-container")) faults.push("untypeset: " + node.textContent);
    for (const node of inArticle("mjx-merror, [data-mjx-error]"))
      faults.push("formula with an error: " + node.textContent);
    for (const node of inArticle("mjx-container")) {
      if (node.tabIndex === 0) faults.push("a stop of the Tab key: " + node.textContent);
      if (!node.querySelector("mjx-assistive-mml math"))
        faults.push("not for ears: " + node.textContent);
    }
    const words = document.createTreeWalker(article, NodeFilter.SHOW_TEXT);
    for (let node; (node = words.nextNode()); ) {
      if (node.parentElement.closest("pre, code, script, style, mjx-container")) continue;
      const raw = node.data.match(/\\\(|\\\[|\$\$|\{(prf:ref|numref|eq|cite:[tp])\}/);
      if (raw) faults.push("raw markup: " + node.data.trim().slice(0, 80));
    }
    for (const node of all("img")) {
      if (!node.complete || !node.naturalWidth) faults.push("broken image: " + node.src);
      if (!node.alt.trim()) faults.push("image without alt text: " + node.src);
    }
    for (const node of inArticle("svg")) {
      if (node.closest('button, mjx-container, [aria-hidden="true"]')) continue;
      const drawing = node.closest('[role="img"]') || node;
      if (!drawing.getAttribute("aria-label")?.trim()) faults.push("drawing without alt text");
    }
    for (const node of inArticle(".rope-chart"))
      if (!node.getAttribute("aria-label")?.trim()) faults.push("chart without alt text");
    for (const svg of inArticle(".rope-picture > svg, .rope-drawing svg")) {
      if (!shown(svg) || !svg.viewBox.baseVal) continue;
      const scale = svg.getBoundingClientRect().width / svg.viewBox.baseVal.width;
      for (const text of svg.querySelectorAll("text")) {
        if (!text.textContent.trim()) continue;
        // A formula's signs are tspans of their own size; raised signs may be smaller.
        const signs = [...text.querySelectorAll("tspan")];
        const size = (sign) => parseFloat(getComputedStyle(sign).fontSize);
        const seen = Math.max(...(signs.length ? signs : [text]).map(size)) * scale;
        if (seen < SMALLEST_TEXT)
          faults.push(`text of ${seen.toFixed(1)} px: ` + text.textContent.trim());
      }
    }
    for (const node of inArticle(".rope-chart input, .rope-play"))
      if (narrow && (node.closest("label") || node).getBoundingClientRect().height < 39.5)
        faults.push("a control too small for a finger");
    for (const node of all(".rope-fold > summary")) {
      const { width, height } = node.getBoundingClientRect();
      if (shown(node) && Math.min(width, height) < 24) faults.push("a small mark: " + node.title);
      if (node.matches(".tag_check *") !== /^Check: ./.test(node.ariaLabel))
        faults.push("a fold with another name: " + node.textContent);
    }
    const over = document.documentElement.scrollWidth - window.innerWidth;
    if (over > 0) faults.push(`the page is ${over} px too wide`);
    return [...new Set(faults)];
  },

  // Figures' text that is not light on the dark theme or dark on the light one.
  unlike(scheme) {
    const fills = all(".rope-picture text, .rope-drawing text").map(
      (text) => getComputedStyle(text.querySelector("tspan") || text).fill
    );
    return [...new Set(fills)].filter((fill) => {
      const [red, green, blue] = fill.match(/\d+/g).map(Number);
      return 299 * red + 587 * green + 114 * blue > 127_500 !== (scheme === "dark");
    });
  },

  // What axe calls critical or serious. Of the texts that share color, size, and background, it
  // measures the contrast of the first; to measure each takes longer than all else.
  async axe(rules) {
    const known = new Set();
    const backdrop = (node) => {
      if (!node) return "";
      const { backgroundColor, backgroundImage, opacity } = getComputedStyle(node);
      const own = [backgroundColor, backgroundImage, opacity].join();
      return /^rgb\(.*,none,1$/.test(own) ? own : own + backdrop(node.parentElement);
    };
    for (const node of all("*", document.body)) {
      const text = [...node.childNodes].some((one) => one.nodeType === 3 && one.data.trim());
      if (!text || !node.checkVisibility()) continue;
      const { color, fontSize, fontWeight } = getComputedStyle(node);
      const large = parseFloat(fontSize) >= (fontWeight >= 700 ? 18.6 : 24);
      const look = [color, large, backdrop(node)].join();
      node.toggleAttribute("data-first", !known.has(look));
      known.add(look);
    }
    axe.configure({ rules: [{ id: "color-contrast", selector: "[data-first]" }] });
    const options = { preload: false, resultTypes: ["violations"] };
    const { violations } = await axe.run(rules ? { ...options, runOnly: rules } : options);
    return violations
      .filter(({ impact }) => ["critical", "serious"].includes(impact))
      .flatMap(({ id, nodes }) => nodes.map(({ html }) => `${id}: ${html.slice(0, 200)}`));
  },

  // Charts that are missing, and sliders that do not move their chart.
  async still(charts) {
    const boxes = all(".rope-chart");
    const faults = boxes.length === charts ? [] : ["charts are missing"];
    for (const box of boxes)
      for (const slider of all('input[type="range"]', box)) {
        const drawn = () => box.querySelector(".rope-drawing svg").innerHTML;
        const before = drawn();
        slider.value = slider.value === slider.max ? slider.min : slider.max;
        slider.dispatchEvent(new Event("input", { bubbles: true }));
        await box.ropeView.runAsync();
        if (drawn() === before) faults.push(`${slider.name} does not move its chart`);
      }
    return faults;
  },
};
