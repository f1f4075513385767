// Appends an element to a parent and returns it.
function ropeAdd(parent, tag, settings, inner = "") {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(settings)) node.setAttribute(name, value);
  node.innerHTML = inner;
  return parent.appendChild(node);
}

// Builds the explorer's controls. The reader's choices form one state; every part is drawn from it.
function ropeExplorer(root) {
  "use strict";
  const data = JSON.parse(root.querySelector('script[type="application/json"]').textContent);
  const model = ropeModel(data);
  const { large, small, curve, near, onCurve, onDots, coordinates, thumbnail, signed, plain } = ropeDraw;
  const planes = { fast: 0, slow: Math.floor(0.75 * model.planes) };
  const first = { shift: 0, stretch: 0, interleaved: false, ...planes, ...data.start };
  let drawings = 0; // an animation stops when this count changes
  const state = { ...first, distance: first.query - first.key, wanted: first.key };
  let picks = "key"; // what a click on the text selects
  let chosen = null; // what to restore when the pointer leaves the text

  const add = ropeAdd;
  const panel = add(root, "div", { class: "panel" }, `
    <div class="stage"><div class="guess" aria-live="polite"></div><div class="two"></div></div>
    <p class="legend small">
      <span class="more">■</span> adds to the score, +; <span class="less">■</span> takes from it, −;
      <span class="known">━</span> angles that training reached;
      ● the rotation's angle, ◆ if training never reached it
    </p>
    <div class="dials" role="group" aria-label="Planes, from the fastest to the slowest"></div>
    <div class="top">
      <details><summary>Choose a head</summary><div class="heads" role="group" aria-label="Head"></div><p class="small">one row per layer, one column per head</p></details>
      <div class="reads">
        <p class="text" aria-hidden="true"></p>
        <div class="pick" role="radiogroup" aria-label="A click on the text selects"></div>
      </div>
    </div>
    <div class="vectors"></div>
    <div class="curve"></div>
    <div class="near"></div>
    <div class="strip">
      <p class="readout" aria-live="polite"><span class="score"></span> <span class="where"></span></p>
      <div class="controls"></div>
    </div>`);
  const part = (name) => panel.querySelector("." + name);

  const shown = (character) => ({ "\n": "⏎", " ": "␣" })[character] || character;
  // Writes 6, 8, 9, 10 as "6, 8 to 10".
  const ranges = (numbers) =>
    numbers
      .map((n, i) => (n !== numbers[i - 1] + 1 ? n : n + 1 !== numbers[i + 1] ? `to ${n}` : ""))
      .filter((part) => part !== "")
      .join(", ")
      .replaceAll(", to", " to");
  const spoken = (character) => ({ "\n": "end of line", " ": "space" })[character] || character;

  // One button per head; on a phone, the buttons are folded away.
  const narrow = matchMedia("(max-width: 720px)");
  const fold = () => (panel.querySelector("details").open = !narrow.matches);
  narrow.addEventListener("change", fold);
  fold();
  const heads = [];
  for (let layer = 0; layer < model.layers; layer++)
    for (let head = 0; head < model.heads; head++) {
      const name = `layer ${layer}, head ${head}`;
      const button = add(part("heads"), "button", { type: "button", "aria-label": name, title: name });
      button.addEventListener("click", () => change({ layer, head }));
      heads.push([layer, head, button, add(button, "canvas", {})]);
    }

  // The text, one span per character. A click selects a character; hovering previews the selection.
  const characters = model.text.map((character, place) => {
    const node = add(part("text"), "span", { "data-place": place });
    node.textContent = character === "\n" ? "⏎" : character; // not innerHTML: the character may be "<"
    if (character === "\n") add(part("text"), "br", {});
    return node;
  });
  const places = () => ({ query: state.query, key: state.wanted, distance: state.distance });
  const pickOf = (event) => {
    const place = event.target.dataset && event.target.dataset.place;
    if (place === undefined || (picks === "key" && place > state.query)) return null;
    return { [picks]: Number(place) };
  };
  part("text").addEventListener("pointerover", (event) => {
    const pick = event.pointerType === "touch" ? null : pickOf(event);
    if (!pick) return;
    chosen = chosen || places();
    change(pick);
  });
  part("text").addEventListener("click", (event) => {
    const pick = pickOf(event);
    if (!pick) return;
    change(pick);
    chosen = chosen && places();
  });
  part("text").addEventListener("pointerleave", () => {
    if (chosen) change(chosen);
    chosen = null;
  });
  add(part("pick"), "span", {}, "a click selects:");
  for (const name of ["key", "query"]) {
    const label = add(part("pick"), "label", {}, `<input type="radio" name="picks" value="${name}"> ${name}`);
    label.firstChild.checked = name === picks;
    label.firstChild.addEventListener("change", () => (picks = name));
  }

  // Two large dials show a fast and a slow plane. A click on a small dial selects its plane.
  const LARGE = ["fast", "slow"];
  const faces = LARGE.map((which) =>
    add(part("two"), "div", { class: which }, '<p class="name"></p><div class="face"></div><p class="value"></p>'),
  );
  const dials = Array.from({ length: model.planes }, (_, plane) => {
    const button = add(part("dials"), "button", { type: "button" }, `<span class="face"></span><span class="name">${plane}</span><span class="value"></span>`);
    button.addEventListener("click", () => change({ [LARGE[Number(plane >= model.planes / 2)]]: plane }));
    return button;
  });

  // The Tab key stops once at a group of buttons; arrow keys move within the group.
  function rove(group) {
    const buttons = [...group.querySelectorAll("button")];
    const stop = (chosen) => buttons.forEach((button) => (button.tabIndex = button === chosen ? 0 : -1));
    group.addEventListener("focusin", (event) => stop(event.target));
    group.addEventListener("keydown", (event) => {
      const columns = buttons.filter((button) => button.offsetTop === buttons[0].offsetTop).length;
      const steps = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns, ArrowUp: -columns };
      const next = buttons[buttons.indexOf(event.target) + steps[event.key]];
      if (!next) return;
      event.preventDefault(); // otherwise the page scrolls
      next.focus();
    });
    stop(group.querySelector('[aria-pressed="true"]'));
  }

  // Sliders and menus. Each control changes the state; its writer shows the state in the control.
  const writers = [];
  function slider(name, label, most, get, say = String) {
    const row = add(part("controls"), "label", { class: "control" }, `<span>${label}</span><input type="range" name="${name}" min="0" step="1"><span class="value"></span>`);
    const [, input, value] = row.children;
    // Buttons for single steps on touch screens; on a keyboard, the arrow keys move the slider.
    for (const [sign, step] of [["−", -1], ["+", 1]]) {
      const button = add(row, "button", { type: "button", tabindex: "-1", "aria-hidden": "true" }, sign);
      button.addEventListener("pointerdown", (event) => event.preventDefault()); // keeps the focus where it is
      button.addEventListener("click", () => {
        input.stepUp(step);
        change({ [name]: Number(input.value) });
      });
    }
    input.addEventListener("input", () => change({ [name]: Number(input.value) }));
    writers.push(() => {
      input.max = most();
      input.value = get();
      input.setAttribute("aria-valuetext", say(get()));
      value.textContent = get();
    });
  }
  function choice(name, label, options, set, get) {
    const row = add(part("controls"), "label", { class: "control" }, `<span>${label}</span><select name="${name}"></select>`);
    const select = row.lastChild;
    options.forEach((option, number) => add(select, "option", { value: number }, option));
    select.addEventListener("change", () => change(set(Number(select.value))));
    writers.push(() => (select.value = get()));
  }
  const describe = (place) => `${place}, ${spoken(model.text[place])}`;
  slider("query", "query: character", () => model.tokens - 1, () => state.query, describe);
  slider("key", "key: character", () => state.query, () => state.key, describe);
  slider("distance", "key at distance", () => model.farthest, () => state.distance);
  slider("shift", "shift both by", () => 1000, () => state.shift);
  choice("stretch", "stretch", model.stretches.map((one) => one.name), (stretch) => ({ stretch }), () => state.stretch);
  choice("layout", "layout", ["half-split", "interleaved"], (layout) => ({ interleaved: layout === 1 }), () => Number(state.interleaved));
  const back = add(part("controls"), "button", { type: "button", class: "back" }, "reset");
  back.addEventListener("click", () => change(first));

  // The reader can also drag the key along the curve and the dots; the dots' axis then stays fixed.
  let held = null; // the distance at which the drag began
  for (const [name, distanceOf] of [["curve", onCurve], ["near", onDots]]) {
    const box = part(name);
    const drag = (event) => change({ distance: distanceOf(event, box, model.curve(state), held ?? state.distance) });
    box.addEventListener("pointerdown", (event) => {
      if (event.button !== 0) return;
      box.setPointerCapture(event.pointerId);
      held = state.distance;
      drag(event);
    });
    box.addEventListener("lostpointercapture", () => {
      held = null;
      draw();
    });
    box.addEventListener("pointermove", (event) => {
      if (box.hasPointerCapture(event.pointerId)) drag(event);
    });
  }

  // A new query or key starts at its distance in the text. If the query precedes the chosen key,
  // the query's own key is used.
  function change(to) {
    Object.assign(state, to);
    if ("key" in to) state.wanted = to.key;
    state.key = Math.min(state.wanted, state.query);
    if (("query" in to || "key" in to) && !("distance" in to)) state.distance = state.query - state.key;
    return draw();
  }

  // Draws everything and returns the numbers that a question can compare.
  function draw() {
    const hands = model.hands(state);
    const weights = model.weights(state);
    const { m, n } = model.positions(state);
    const unseen = hands.map((hand, j) => (hand.inside ? -1 : j)).filter((j) => j >= 0);
    const rotated = ["q", "k"].map((which) => model.rotated(state, which, state.interleaved));
    const read = {
      score: plain(model.score(state)),
      weight: (100 * weights[state.key]).toFixed(1) + "%",
      "coordinate 2 of the query": plain(rotated[0][2]),
      "planes at new angles": unseen.length,
    };

    characters.forEach((node, place) => {
      node.style.setProperty("--weight", place <= state.query ? Math.sqrt(weights[place]).toFixed(3) : "0");
      node.className = place === state.query ? "query" : place === state.key ? "key" : place > state.query ? "ahead" : "";
    });
    part("score").textContent = `score ${read.score} = the sum of ${model.planes} shares; weight ${read.weight}`;
    part("where").textContent =
      `layer ${state.layer}, head ${state.head}: query ‘${shown(model.text[state.query])}’ at position ${m}, key ‘${shown(model.text[state.key])}’ at ${n}, distance ${state.distance}` +
      (unseen.length ? `; planes at new angles: ${ranges(unseen)}` : "");
    drawings += 1;
    drawDials(hands);
    heads.forEach(([layer, head, button]) =>
      button.setAttribute("aria-pressed", String(layer === state.layer && head === state.head)),
    );
    writers.forEach((write) => write());

    const width = Math.max(240, part("curve").clientWidth);
    const scores = model.curve(state);
    part("curve").innerHTML = curve(scores, state.distance, model.trained, width);
    part("near").innerHTML = near(scores, state.distance, held ?? state.distance, model.trained, width);
    part("vectors").innerHTML = rotated
      .map((values, i) => {
        const name = i ? `key at position ${n}` : `query at position ${m}`;
        const most = Math.max(...values.map(Math.abs));
        return `<p>the rotated ${name}, coordinates by plane</p>` + coordinates(values, most, [state.fast, state.slow], state.interleaved, width, `The ${values.length} coordinates of the rotated ${name}.`);
      })
      .join("");
    root.dataset.ready = "true";
    return read;
  }

  function drawDials(hands) {
    const longest = Math.max(...hands.map((hand) => hand.length));
    faces.forEach((node, i) => {
      const [name, face, value] = node.children;
      const plane = state[LARGE[i]];
      const { length, angle, share, inside } = hands[plane];
      const wave = model.wavelength(state, plane);
      const positions = plain(wave, wave < 100 ? 1 : 0).replace(/\B(?=(\d{3})+$)/g, ",");
      name.innerHTML = `<strong>plane ${plane}</strong>: one turn in ${positions} positions`;
      face.innerHTML = large(hands[plane], longest);
      const cosine = `${plain(length)} × cosine ${plain(Math.cos(angle))}`;
      value.innerHTML = `share <strong>${signed(share)}</strong> <span class="product">= ${cosine}</span>${inside ? "" : " ◆"}`;
    });
    hands.forEach((hand, j) => {
      const [face, , value] = dials[j].children;
      face.innerHTML = small(hand, longest);
      value.textContent = signed(hand.share);
      dials[j].setAttribute("aria-pressed", String(LARGE.some((which) => j === state[which])));
      dials[j].setAttribute("aria-label", `plane ${j}: ${signed(hand.share)}${hand.inside ? "" : ", new angle"}`);
    });
  }

  // Turns the hands from the old state to the new one, at once if the reader prefers less motion.
  function play(before) {
    const after = model.hands(state);
    if (matchMedia("(prefers-reduced-motion: reduce)").matches) return;
    const [begun, mine] = [performance.now(), drawings];
    root.dataset.ready = "playing";
    function step(now) {
      if (mine !== drawings) return;
      const way = Math.min(1, Math.max(0, (now - begun) / 1500));
      drawDials(way < 1 ? model.between(before, after, way) : after);
      if (way < 1) requestAnimationFrame(step);
      else root.dataset.ready = "true";
    }
    step(begun);
  }

  // Each head's weights as the model computes them, with no key moved and no frequency scaled.
  const maps = heads.map(([layer, head]) =>
    model.text.map((_, query) => model.weights({ layer, head, query, key: query, distance: 0, stretch: 0 })),
  );
  const paint = () =>
    heads.forEach(([, , , canvas], i) => thumbnail(canvas, maps[i], getComputedStyle(canvas).color));

  const show = (to) => change({ ...first, ...to });
  ropeGuesses(panel, data.questions, show, (before, after) => {
    const was = show(before);
    const hands = model.hands(state);
    const is = show(after);
    play(hands);
    return [was, is];
  });
  draw();
  paint();
  rove(part("heads"));
  rove(part("dials"));
  new MutationObserver(paint).observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });
  let drawn = panel.clientWidth;
  new ResizeObserver(() => {
    if (panel.clientWidth !== drawn) draw();
    drawn = panel.clientWidth;
  }).observe(panel);
}

// Asks the questions. After a guess, the hands turn to the state that shows the answer, and the
// answer appears next to the large dials.
function ropeGuesses(panel, questions, show, play) {
  "use strict";
  const [stage, box, two] = ["stage", "guess", "two"].map((name) => panel.querySelector("." + name));
  // A smooth scroll that is still running would disturb the next scroll.
  const reveal = (node) => node.scrollIntoView({ block: "nearest", behavior: "instant" });
  let number = 0;
  function pose() {
    const { ask, options, right, answer, numbers, before, after } = questions[number];
    box.innerHTML = `<p class="ask"><strong>Guess ${number + 1} of ${questions.length}.</strong> ${ask}</p><p class="options"></p><p class="answer"></p>`;
    options.forEach((option, i) => {
      const button = ropeAdd(box.querySelector(".options"), "button", { type: "button" }, option);
      button.addEventListener("click", () => {
        const [was, is] = play(before, after);
        const changes = numbers.map((name) => `${name}: ${was[name]} → ${is[name]}`);
        const result = box.querySelector(".answer");
        result.innerHTML = `<strong>${i === right ? "✓ Correct" : "No"}: ${options[right]}.</strong> ${answer} <span class="changes">Before → after: ${changes.join("; ")}.</span> `;
        box.querySelector(".options").remove();
        const last = number + 1 === questions.length;
        const next = ropeAdd(result, "button", { type: "button" }, last ? "ask again" : "next guess");
        next.addEventListener("click", () => {
          number = (number + 1) % questions.length;
          show(questions[number].before);
          pose();
          reveal(stage);
          box.querySelector(".options button").focus({ preventScroll: true });
        });
        next.focus({ preventScroll: true }); // the clicked button is gone
        // If the window is too small for all three, the question scrolls out first.
        [stage, two, result].forEach(reveal);
      });
    });
  }
  pose();
}

document.querySelectorAll(".rope-explorer:not([data-started])").forEach((root) => {
  root.dataset.started = "true";
  ropeExplorer(root);
});
