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
  const { large, small, curve, onCurve, coordinates, signed, plain, grouped } = ropeDraw;
  const planes = { fast: 0, slow: Math.floor(0.75 * model.planes) };
  const first = { shift: 0, stretch: 0, layout: 0, ...planes, ...data.start };
  const state = { ...first, distance: first.query - first.key };
  let drawings = 0; // an animation stops when this count changes

  const add = ropeAdd;
  const panel = add(root, "div", { class: "panel" }, `
    <div class="stage">
      <div class="guess" aria-live="polite"></div><div class="two"></div>
      <p class="text" aria-hidden="true"></p>
    </div>
    <div class="controls menus"></div>
    <div class="dials" role="group" aria-label="Planes, from the fastest to the slowest"></div>
    <details class="legend small"><summary>What do the marks mean?</summary>
      <b>Words:</b> the darker, the more weight; solid frame, the query; dashed frame, the key; gray, words that the head can't see.<br>
      <b>Dials:</b> the hand shows the angle from the rotated query to the rotated key, and is wider if they are longer; the bar and the number are the plane's share, which <span class="more">■</span> adds to the score or <span class="less">■</span> takes from it; ● the rotation's part of the angle, ◆ if training never reached it; <span class="known">━</span> angles that training reached. Framed: the two planes that are shown large.<br>
      <b>Curve:</b> the score of this query and this key at every distance; ● the distance now; <span class="known">■</span> distances in training; gray band, scores too dense to draw, with their mean as the line.<br>
      <b>Coordinates:</b> up, positive; down, negative; an arc joins the two coordinates of a plane; numbered, the planes that are shown large.</details>
    <div class="curve"></div>
    <div class="vectors"></div>
    <div class="strip">
      <p class="readout" aria-live="polite"><span class="score"></span> <span class="reads"></span> <span class="where"></span></p>
      <div class="controls sliders"></div>
    </div>`);
  const part = (name) => panel.querySelector("." + name);

  // Writes 6, 8, 9, 10 as "6, 8 to 10".
  const ranges = (numbers) =>
    numbers
      .map((n, i) => (n !== numbers[i - 1] + 1 ? n : n + 1 !== numbers[i + 1] ? `to ${n}` : ""))
      .filter((part) => part !== "")
      .join(", ")
      .replaceAll(", to", " to");
  const named = (place) => `‘${model.words[place].trim()}’`;

  // The text, one span per token. A click on a token up to the query makes it the key; a click on a
  // later token makes it the query.
  const words = model.words.map((word, place) => {
    const node = add(part("text"), "span", {});
    node.textContent = word.trim(); // not innerHTML: the word may be "<"
    node.addEventListener("click", () => change({ [place > state.query ? "query" : "key"]: place }));
    return node;
  });

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

  // The Tab key stops once at the small dials; arrow keys move within them.
  const stop = (chosen) => dials.forEach((button) => (button.tabIndex = button === chosen ? 0 : -1));
  part("dials").addEventListener("focusin", (event) => stop(event.target));
  part("dials").addEventListener("keydown", (event) => {
    const columns = dials.filter((button) => button.offsetTop === dials[0].offsetTop).length;
    const steps = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns, ArrowUp: -columns };
    const next = dials[dials.indexOf(event.target) + steps[event.key]];
    if (!next) return;
    event.preventDefault(); // otherwise the page scrolls
    next.focus();
  });
  stop(dials[first.fast]);

  // Sliders and menus. A control changes the state; its writer updates the control from the state.
  // A slider at step s has the value from(s); to(value) is its inverse.
  const writers = [];
  const same = (value) => value;
  function slider(name, label, most, say = String, from = same, to = same) {
    const row = add(part("sliders"), "label", { class: "control" }, `<span>${label}</span><input type="range" name="${name}" min="0" step="1"><span class="value"></span>`);
    const [, input, value] = row.children;
    const move = () => change({ [name]: from(Number(input.value)) });
    // Buttons for single steps on touch screens; on a keyboard, the arrow keys move the slider.
    for (const [sign, step] of [["−", -1], ["+", 1]]) {
      const button = add(row, "button", { type: "button", tabindex: "-1", "aria-hidden": "true" }, sign);
      button.addEventListener("pointerdown", (event) => event.preventDefault()); // keeps the focus where it is
      button.addEventListener("click", () => (input.stepUp(step), move()));
    }
    input.addEventListener("input", move);
    writers.push(() => {
      input.max = to(most());
      input.value = to(state[name]);
      input.setAttribute("aria-valuetext", say(state[name]));
      value.textContent = grouped(state[name]);
    });
  }
  function choice(name, options) {
    const row = add(part("menus"), "label", { class: "control" }, `<span>${name}</span><select name="${name}"></select>`);
    const select = row.lastChild;
    options.forEach((option, number) => add(select, "option", { value: number }, option));
    select.addEventListener("change", () => change({ [name]: Number(select.value) }));
    writers.push(() => (select.value = state[name]));
  }
  const describe = (place) => `${place}, ${model.words[place].trim()}`;
  // Up to 64, each distance has its own step; beyond, 32 steps double the distance.
  const distanceAt = (step) => (step <= 64 ? step : Math.round(64 * Math.pow(2, (step - 64) / 32)));
  const stepOf = (distance) => (distance <= 64 ? distance : Math.round(64 + 32 * Math.log2(distance / 64)));
  choice("head", model.heads);
  choice("stretch", model.stretches.map((one) => one.name));
  choice("layout", ["interleaved (file)", "half-split"]);
  slider("query", "query: token", () => model.tokens - 1, describe);
  slider("key", "key: token", () => state.query, describe);
  slider("distance", "key at distance", () => model.farthest, String, distanceAt, stepOf);
  slider("shift", "shift both by", () => 1000);
  const back = add(part("menus"), "button", { type: "button", class: "back" }, "reset");
  back.addEventListener("click", () => change(first));

  // The reader can also drag the key along the curve.
  const box = part("curve");
  const drag = (event) => change({ distance: onCurve(event, box, model.curve(state)) });
  box.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    box.setPointerCapture(event.pointerId);
    drag(event);
  });
  box.addEventListener("pointermove", (event) => {
    if (box.hasPointerCapture(event.pointerId)) drag(event);
  });

  // A new head or query selects the key with the largest weight. A new key isn't moved at first.
  function change(to) {
    Object.assign(state, to);
    if (("head" in to || "query" in to) && !("key" in to)) {
      Object.assign(state, { key: state.query, distance: 0 }); // no key is moved
      const weights = model.weights(state);
      state.key = weights.indexOf(Math.max(...weights));
    }
    if (["head", "query", "key"].some((name) => name in to) && !("distance" in to)) state.distance = state.query - state.key;
    return draw();
  }

  // Draws everything and returns the numbers that a question can compare.
  function draw() {
    const hands = model.hands(state);
    const weights = model.weights(state);
    const { m, n } = model.positions(state);
    const unseen = hands.map((hand, j) => (hand.inside ? -1 : j)).filter((j) => j >= 0);
    const rotated = ["q", "k"].map((which) => model.rotated(state, which, state.layout === 0));
    const percent = (place) => (100 * weights[place]).toFixed(1) + "%";
    const most = weights.map((_, place) => place).sort((a, b) => weights[b] - weights[a]).slice(0, 3);
    const read = {
      score: plain(model.score(state)),
      weight: percent(state.key),
      reads: `${percent(most[0])} ${named(most[0])}`,
      "coordinate 2 of the query": plain(rotated[0][2]),
      "planes at new angles": unseen.length,
    };

    words.forEach((node, place) => {
      node.style.setProperty("--weight", place <= state.query ? Math.sqrt(weights[place]).toFixed(3) : "0");
      node.className = place === state.query ? "query" : place === state.key ? "key" : place > state.query ? "ahead" : "";
    });
    part("score").textContent = `score ${read.score} = the sum of ${model.planes} shares; weight ${read.weight}`;
    part("reads").textContent = "the head reads " + most.map((place) => `${percent(place)} ${named(place)} (${place})`).join(", ");
    part("where").textContent =
      `query ${named(state.query)} at position ${grouped(m)}, key ${named(state.key)} at ${grouped(n)}` +
      (unseen.length ? `; planes at new angles: ${ranges(unseen)}` : "");
    drawings += 1;
    drawDials(hands);
    writers.forEach((write) => write());

    const width = Math.max(240, box.clientWidth);
    box.innerHTML = curve(model.curve(state), state.distance, model.trained, width);
    part("vectors").innerHTML = rotated
      .map((values, i) => {
        const name = i ? `key at position ${n}` : `query at position ${m}`;
        const largest = Math.max(...values.map(Math.abs));
        return `<p class="small">the rotated ${name}, coordinates by plane</p>` + coordinates(values, largest, [state.fast, state.slow], state.layout === 0, width, `The ${values.length} coordinates of the rotated ${name}.`);
      })
      .join("");
    panel.style.setProperty("--strip", part("strip").offsetHeight + "px");
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
      name.innerHTML = `<strong>plane ${plane}</strong>: one turn in ${grouped(plain(wave, wave < 100 ? 1 : 0))} positions`;
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

  const show = (to) => change({ ...first, ...to });
  ropeGuesses(panel, data.questions, show, (before, after) => {
    const was = show(before);
    const hands = model.hands(state);
    const is = show(after);
    play(hands);
    return [was, is];
  });
  draw();
  let drawn = panel.clientWidth;
  new ResizeObserver(() => {
    if (panel.clientWidth !== drawn) draw();
    drawn = panel.clientWidth;
  }).observe(panel);
}

// Asks the questions. After a guess, the hands turn to the state that shows the answer. The question,
// its answer, the large dials and the text are in view together, above the strip.
function ropeGuesses(panel, questions, show, play) {
  "use strict";
  const [stage, box] = ["stage", "guess"].map((name) => panel.querySelector("." + name));
  // A smooth scroll that is still running would disturb the next scroll.
  const reveal = () => stage.scrollIntoView({ block: "nearest", behavior: "instant" });
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
          reveal();
          box.querySelector(".options button").focus({ preventScroll: true });
        });
        next.focus({ preventScroll: true }); // the clicked button is gone
        reveal();
      });
    });
  }
  pose();
}

document.querySelectorAll(".rope-explorer:not([data-started])").forEach((root) => {
  root.dataset.started = "true";
  ropeExplorer(root);
});
