// The explorer's controls: what a reader chooses becomes one state, and every part is drawn from it.
function ropeExplorer(root) {
  "use strict";
  const data = JSON.parse(root.querySelector('script[type="application/json"]').textContent);
  const model = ropeModel(data);
  const { dial, curve, distanceAt, coordinates, thumbnail, signed, plain } = ropeDraw;
  const first = { shift: 0, stretch: 0, plane: 0, interleaved: false, ...data.start };
  const state = { ...first, distance: first.query - first.key, wanted: first.key };
  let picks = "key"; // what the pointer over the text chooses
  let chosen = null; // query and key to go back to when the pointer leaves the text

  const panel = document.createElement("div");
  panel.className = "panel";
  panel.innerHTML = `
    <div class="guess" aria-live="polite"></div>
    <div class="top">
      <details><summary>Choose a head</summary><div class="heads" role="group" aria-label="Head"></div><p class="small">a row a layer, a column a head</p></details>
      <div class="reads">
        <p class="text" aria-hidden="true"></p>
        <div class="pick" role="radiogroup" aria-label="The pointer on the text chooses"></div>
      </div>
    </div>
    <div class="dials" role="group" aria-label="Planes"></div>
    <div class="curve"></div>
    <div class="vectors"></div>
    <div class="strip">
      <p class="said" aria-live="polite"><span class="score"></span> <span class="where"></span></p>
      <div class="controls"></div>
    </div>`;
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
  const spoken = (sign) => ({ "\n": "end of line", " ": "space" })[sign] || sign;

  // Which head; on a phone they are folded.
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

  // The text: a character each; a press chooses, the pointer above shows what it would choose.
  const signs = model.text.map((sign, place) => {
    const node = add(part("text"), "span", { "data-place": place });
    node.textContent = sign === "\n" ? "⏎" : sign;
    if (sign === "\n") add(part("text"), "br", {});
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

  // A row or grid of buttons is one stop of the Tab key, from which arrows lead to its others.
  function rove(group) {
    const buttons = [...group.querySelectorAll("button")];
    const stop = (chosen) => buttons.forEach((button) => (button.tabIndex = button === chosen ? 0 : -1));
    group.addEventListener("focusin", (event) => stop(event.target));
    group.addEventListener("keydown", (event) => {
      const columns = buttons.filter((button) => button.offsetTop === buttons[0].offsetTop).length;
      const steps = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns, ArrowUp: -columns };
      const next = buttons[buttons.indexOf(event.target) + steps[event.key]];
      if (!next) return;
      event.preventDefault(); // the page does not scroll
      next.focus();
    });
    stop(group.querySelector('[aria-pressed="true"]'));
  }

  // Sliders and choices; each writes the state and is written by it.
  const writers = [];
  function slider(name, label, most, get, say = String) {
    const row = add(part("controls"), "label", { class: "control" }, `<span>${label}</span><input type="range" name="${name}" min="0" step="1"><span class="value"></span>`);
    const [, input, value] = row.children;
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
  const character = (place) => `${place}, ${spoken(model.text[place])}`;
  slider("query", "query: character", () => model.tokens - 1, () => state.query, character);
  slider("key", "key: character", () => state.query, () => state.key, character);
  slider("distance", "key at distance", () => model.farthest, () => state.distance);
  slider("shift", "shift both by", () => 1000, () => state.shift);
  choice("stretch", "stretch", model.stretches.map((one) => one.name), (stretch) => ({ stretch }), () => state.stretch);
  choice("layout", "layout", ["half-split", "interleaved"], (layout) => ({ interleaved: layout === 1 }), () => Number(state.interleaved));
  const back = add(part("controls"), "button", { type: "button", class: "back" }, "put all back");
  back.addEventListener("click", () => change(first));

  // The key is dragged on the curve as well.
  part("curve").addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    part("curve").setPointerCapture(event.pointerId);
    change({ distance: distanceAt(event, part("curve"), model.farthest) });
  });
  part("curve").addEventListener("pointermove", (event) => {
    if (part("curve").hasPointerCapture(event.pointerId))
      change({ distance: distanceAt(event, part("curve"), model.farthest) });
  });

  // A new query or key stands where the text has it, until it is dragged. A query that comes before
  // the key that was chosen has itself for a key.
  function change(to) {
    Object.assign(state, to);
    if ("key" in to) state.wanted = to.key;
    state.key = Math.min(state.wanted, state.query);
    if (("query" in to || "key" in to) && !("distance" in to)) state.distance = state.query - state.key;
    return draw();
  }

  // Returns what stands in the line of the score, as numbers.
  function draw() {
    const hands = model.hands(state);
    const weights = model.weights(state);
    const longest = Math.max(...hands.map((hand) => hand.length));
    const { m, n } = model.positions(state);
    const strange = hands.map((hand, j) => (hand.inside ? -1 : j)).filter((j) => j >= 0);
    const read = { score: plain(model.score(state)), weight: (100 * weights[state.key]).toFixed(1) + "%", "planes at new angles": strange.length };

    signs.forEach((node, place) => {
      node.style.setProperty("--weight", place <= state.query ? Math.sqrt(weights[place]).toFixed(3) : "0");
      node.className = place === state.query ? "query" : place === state.key ? "key" : place > state.query ? "ahead" : "";
    });
    part("score").textContent = `score ${read.score} = the sum of ${model.planes} planes; weight ${read.weight}`;
    part("where").textContent =
      `layer ${state.layer}, head ${state.head}: query ‘${shown(model.text[state.query])}’ at ${m}, key ‘${shown(model.text[state.key])}’ at ${n}, distance ${state.distance}` +
      (strange.length ? `; planes at new angles: ${strange[0]} to ${strange.at(-1)}` : "");
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
        const name = i ? `key at ${n}` : `query at ${m}`;
        const most = Math.max(...values.map(Math.abs));
        return `<p>the rotated ${name}, coordinates by plane</p>` + coordinates(values, most, state.plane, state.interleaved, width, `The ${values.length} coordinates of the rotated ${name}.`);
      })
      .join("");
    root.dataset.ready = "true";
    return read;
  }

  // The weights of each head as the model has them, whatever is moved or stretched.
  const maps = heads.map(([layer, head]) =>
    model.text.map((_, query) => model.weights({ layer, head, query, key: query, distance: 0, stretch: 0 })),
  );
  const paint = () =>
    heads.forEach(([, , , canvas], i) => thumbnail(canvas, maps[i], getComputedStyle(canvas).color));

  ropeGuesses(panel, data.questions, (to) => change({ ...first, ...to }));
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

// Questions that are answered after a guess: the guess sets the figure to what shows the answer, and
// the answer goes where the panel is that it speaks of.
function ropeGuesses(panel, questions, show) {
  "use strict";
  const box = panel.querySelector(".guess");
  // At once: a step that is under way would mislead the next one.
  const reveal = (node) => node.scrollIntoView({ block: "nearest", behavior: "instant" });
  let number = 0;
  function pose() {
    const { ask, options, right, answer, before, after, see } = questions[number];
    const seen = panel.querySelector("." + see);
    box.innerHTML = `<p class="ask"><strong>Guess ${number + 1} of ${questions.length}.</strong> ${ask}</p><p class="options"></p><p class="answer"></p>`;
    panel.prepend(box);
    options.forEach((option, i) => {
      const button = document.createElement("button");
      button.type = "button";
      button.innerHTML = option;
      button.addEventListener("click", () => {
        seen.before(box);
        seen.classList.add("seen");
        box.querySelectorAll(".options button").forEach((one, j) => {
          one.disabled = true;
          one.setAttribute("aria-pressed", String(j === i));
          if (j === right) one.prepend("✓ ");
        });
        const was = show(before);
        const changes = Object.entries(show(after))
          .filter(([name, is]) => is || was[name])
          .map(([name, is]) => `${name} ${was[name]} → ${is}`);
        const said = box.querySelector(".answer");
        said.innerHTML = `<strong>${i === right ? "✓ So it is." : "Not so."}</strong> ${answer} <span class="changes">Before → after: ${changes.join("; ")}.</span> `;
        const next = document.createElement("button");
        next.type = "button";
        next.textContent = number + 1 < questions.length ? "next guess" : "ask again";
        next.addEventListener("click", () => {
          number = (number + 1) % questions.length;
          seen.classList.remove("seen");
          show(questions[number].before);
          pose();
          reveal(box);
          box.querySelector(".options button").focus({ preventScroll: true });
        });
        said.appendChild(next);
        next.focus({ preventScroll: true }); // the guessed button no longer takes the focus
        // Where there is no room for all, the question leaves first, then the panel's end.
        [box, seen, said].forEach(reveal);
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
