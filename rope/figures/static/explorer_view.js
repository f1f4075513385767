// The explorer's controls: what a reader chooses becomes one state, and every part is drawn from it.
function ropeExplorer(root) {
  "use strict";
  const data = JSON.parse(root.querySelector('script[type="application/json"]').textContent);
  const model = ropeModel(data);
  const { dial, curve, distanceAt, coordinates, thumbnail, signed, plain } = ropeDraw;
  const state = { shift: 0, stretch: 0, plane: 0, interleaved: false, ...data.start };
  state.distance = state.query - state.key;
  let picks = "key"; // what the pointer over the text chooses
  let chosen = null; // the state to go back to when the pointer leaves the text

  const panel = document.createElement("div");
  panel.className = "panel";
  panel.innerHTML = `
    <div class="guess" aria-live="polite"></div>
    <div class="top">
      <div><div class="heads" role="group" aria-label="Head"></div><p class="small">a row a layer, a column a head</p></div>
      <div class="reads">
        <p class="text" aria-hidden="true"></p>
        <div class="pick" role="radiogroup" aria-label="The pointer on the text chooses"></div>
      </div>
    </div>
    <p class="said"><output class="score"></output> <output class="where" aria-live="polite"></output></p>
    <div class="dials" role="group" aria-label="Planes"></div>
    <div class="controls"></div>
    <div class="curve"></div>
    <div class="vectors"></div>`;
  root.appendChild(panel);
  const part = (name) => panel.querySelector("." + name);

  function add(parent, tag, settings, inner) {
    const node = document.createElement(tag);
    for (const [name, value] of Object.entries(settings)) node.setAttribute(name, value);
    if (inner !== undefined) node.innerHTML = inner;
    parent.appendChild(node);
    return node;
  }
  const shown = (sign) => ({ "\n": "⏎", " ": "␣" })[sign] || sign;

  // Which head.
  const heads = [];
  for (let layer = 0; layer < model.layers; layer++)
    for (let head = 0; head < model.heads; head++) {
      const name = `layer ${layer}, head ${head}`;
      const button = add(part("heads"), "button", { type: "button", "aria-label": name, title: name });
      button.addEventListener("click", () => change({ layer, head }));
      heads.push([layer, head, button, add(button, "canvas", {})]);
    }

  // The text: a character each; a press chooses, the pointer above shows what it would choose.
  const signs = model.text.map((sign, place) => {
    const node = add(part("text"), "span", { "data-place": place });
    node.textContent = sign === "\n" ? "⏎" : sign;
    if (sign === "\n") add(part("text"), "br", {});
    return node;
  });
  const pickOf = (event) => {
    const place = event.target.dataset && event.target.dataset.place;
    if (place === undefined) return null;
    return picks === "key" ? { key: Math.min(Number(place), state.query) } : { query: Number(place) };
  };
  part("text").addEventListener("pointerover", (event) => {
    const pick = event.pointerType === "touch" ? null : pickOf(event);
    if (!pick) return;
    chosen = chosen || { ...state };
    change(pick);
  });
  part("text").addEventListener("click", (event) => {
    const pick = pickOf(event);
    if (!pick) return;
    change(pick);
    chosen = chosen && { ...state };
  });
  part("text").addEventListener("pointerleave", () => {
    if (!chosen) return;
    Object.assign(state, chosen);
    chosen = null;
    draw();
  });
  add(part("pick"), "span", {}, "the pointer chooses:");
  for (const name of ["key", "query"]) {
    const label = add(part("pick"), "label", {}, `<input type="radio" name="picks" value="${name}"> ${name}`);
    label.firstChild.checked = name === picks;
    label.firstChild.addEventListener("change", () => (picks = name));
  }

  // Sixteen dials; one of them is the plane whose coordinates are marked.
  const dials = Array.from({ length: model.planes }, (_, plane) => {
    const button = add(part("dials"), "button", { type: "button" }, `<span class="face"></span><span class="name">${plane}</span> <span class="value"></span>`);
    button.addEventListener("click", () => change({ plane }));
    return button;
  });

  // Sliders and choices; each writes the state and is written by it.
  const writers = [];
  const steps = [...new Set(Array.from({ length: 109 }, (_, i) => Math.round(Math.pow(1 + model.farthest, i / 108) - 1)))];
  function slider(name, label, least, most, set, get, place = (value) => value) {
    const row = add(part("controls"), "label", { class: "control" }, `<span>${label}</span><input type="range" name="${name}" min="${least}" step="1"><output></output>`);
    const [, input, value] = row.children;
    input.addEventListener("input", () => change(set(Number(input.value))));
    writers.push(() => {
      input.max = most();
      input.value = place(get());
      input.setAttribute("aria-valuetext", get());
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
  slider("query", "query at m", 0, () => model.tokens - 1, (query) => ({ query }), () => state.query);
  slider("key", "key at n", 0, () => state.query, (key) => ({ key }), () => state.key);
  slider("distance", "drag the key to distance", 0, () => steps.length - 1, (step) => ({ distance: steps[step] }), () => state.distance, (distance) => steps.findIndex((one) => one >= distance));
  slider("shift", "shift both by", 0, () => 1000, (shift) => ({ shift }), () => state.shift);
  choice("stretch", "stretch the spectrum", model.stretches.map((one) => one.name), (stretch) => ({ stretch }), () => state.stretch);
  choice("layout", "layout in memory", ["half-split", "interleaved"], (layout) => ({ interleaved: layout === 1 }), () => Number(state.interleaved));
  const back = add(part("controls"), "button", { type: "button", class: "back" }, "put everything back");
  back.addEventListener("click", () => change({ shift: 0, stretch: 0, interleaved: false, ...data.start }));

  // The key is dragged on the curve as well.
  part("curve").addEventListener("pointerdown", (event) => {
    part("curve").setPointerCapture(event.pointerId);
    change({ distance: distanceAt(event, part("curve"), model.farthest) });
  });
  part("curve").addEventListener("pointermove", (event) => {
    if (part("curve").hasPointerCapture(event.pointerId))
      change({ distance: distanceAt(event, part("curve"), model.farthest) });
  });

  // A new query or key stands where the text has it, until it is dragged.
  function change(to) {
    Object.assign(state, to);
    state.key = Math.min(state.key, state.query);
    if (("query" in to || "key" in to) && !("distance" in to)) state.distance = state.query - state.key;
    draw();
  }

  function draw() {
    const hands = model.hands(state);
    const weights = model.weights(state);
    const longest = Math.max(...hands.map((hand) => hand.length));
    const [m, n] = [state.query + state.shift, state.query + state.shift - state.distance];
    const strange = hands.map((hand, j) => (hand.inside ? "" : String(j))).filter(Boolean);

    signs.forEach((node, place) => {
      node.style.setProperty("--weight", place <= state.query ? Math.sqrt(weights[place]).toFixed(3) : "0");
      node.className = place === state.query ? "query" : place === state.key ? "key" : place > state.query ? "ahead" : "";
    });
    part("score").textContent = `score ${plain(model.score(state))} = the sum of ${model.planes} planes; weight ${(100 * weights[state.key]).toFixed(1)}%`;
    part("where").textContent =
      `layer ${state.layer}, head ${state.head}: query ‘${shown(model.text[state.query])}’ at ${m}, key ‘${shown(model.text[state.key])}’ at ${plain(n, 0)}, distance ${state.distance}` +
      (strange.length ? `; planes at new angles: ${strange.join(", ")}` : "");
    hands.forEach((hand, j) => {
      const [face, , value] = dials[j].children;
      face.innerHTML = dial(hand, longest);
      value.textContent = signed(hand.share);
      dials[j].setAttribute("aria-pressed", String(j === state.plane));
      dials[j].setAttribute("aria-label", `plane ${j}: ${signed(hand.share)}${hand.inside ? "" : ", new angle"}`);
    });
    heads.forEach(([layer, head, button]) =>
      button.setAttribute("aria-pressed", String(layer === state.layer && head === state.head)),
    );
    writers.forEach((write) => write());

    const width = Math.max(240, part("curve").clientWidth);
    part("curve").innerHTML = curve(model.curve(state), state.distance, model.trained, width);
    const both = ["q", "k"].map((which) => model.rotated(state, which, state.interleaved));
    part("vectors").innerHTML = both
      .map((values, i) => {
        const name = i ? `key at ${plain(n, 0)}` : `query at ${m}`;
        const most = Math.max(...values.map(Math.abs));
        return `<p>the rotated ${name}, coordinates by plane</p>` + coordinates(values, most, state.plane, state.interleaved, width, `The ${values.length} coordinates of the rotated ${name}.`);
      })
      .join("");
    root.dataset.ready = "true";
  }

  function paint() {
    for (const [layer, head, , canvas] of heads) {
      const rows = model.text.map((_, query) => model.weights({ ...state, layer, head, query, key: query, distance: 0, stretch: 0 }));
      thumbnail(canvas, rows, getComputedStyle(canvas).color);
    }
  }

  ropeGuesses(part("guess"), data.questions, (to) => change({ shift: 0, stretch: 0, interleaved: false, ...to }));
  draw();
  paint();
  new MutationObserver(paint).observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });
  let drawn = panel.clientWidth;
  new ResizeObserver(() => {
    if (panel.clientWidth !== drawn) draw();
    drawn = panel.clientWidth;
  }).observe(panel);
}

// Questions that are answered after a guess: the guess sets the figure to what shows the answer.
function ropeGuesses(box, questions, show) {
  "use strict";
  let number = 0;
  function pose() {
    const { ask, options, right, answer, after } = questions[number];
    box.innerHTML = `<p class="ask"><strong>Guess ${number + 1} of ${questions.length}.</strong> ${ask}</p><p class="options"></p><p class="answer"></p>`;
    options.forEach((option, i) => {
      const button = document.createElement("button");
      button.type = "button";
      button.innerHTML = option;
      button.addEventListener("click", () => {
        box.querySelectorAll(".options button").forEach((one, j) => {
          one.disabled = true;
          if (j === right) one.className = "right";
        });
        box.querySelector(".answer").innerHTML = `<strong>${i === right ? "✓ So it is." : "Not so."}</strong> ${answer} `;
        const next = document.createElement("button");
        next.type = "button";
        next.textContent = number + 1 < questions.length ? "next guess" : "ask again";
        next.addEventListener("click", () => {
          number = (number + 1) % questions.length;
          show(questions[number].before);
          pose();
        });
        box.querySelector(".answer").appendChild(next);
        next.focus({ preventScroll: true }); // the guessed button no longer takes the focus
        show(after);
      });
      box.querySelector(".options").appendChild(button);
    });
  }
  pose();
}

document.querySelectorAll(".rope-explorer:not([data-started])").forEach((root) => {
  root.dataset.started = "true";
  ropeExplorer(root);
});
