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
  const { large, small, curve, signed, plain, grouped } = ropeDraw;
  const add = ropeAdd;
  const state = { ...data.start, distance: data.start.query - data.start.key };
  let drawings = 0; // an animation stops when this count changes

  const panel = add(root, "div", { class: "panel" }, `
    <div class="stage"><div class="guess" aria-live="polite"></div><div class="two"></div></div>
    <p class="text" aria-hidden="true"></p>
    <p class="readout" aria-live="polite"></p>
    <div class="controls"></div>
    <div class="dials" role="group" aria-label="Planes, from the fastest to the slowest"></div>
    <div class="curve"></div>`);
  const part = (name) => panel.querySelector("." + name);
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
  const dials = model.hands(state).map((_, plane) => {
    const button = add(part("dials"), "button", { type: "button" }, `<span class="face"></span><span class="name">${plane}</span><span class="value"></span>`);
    button.addEventListener("click", () => change({ [LARGE[Number(plane >= model.planes / 2)]]: plane }));
    return button;
  });

  // The menu of heads and the sliders. A control changes the state; its writer updates the control
  // from the state. A slider at step i has the value values()[i].
  const writers = [];
  function slider(name, label, values) {
    const row = add(part("controls"), "label", { class: "control" }, `<span>${label}</span><input type="range" name="${name}" min="0" step="1"><span class="value"></span>`);
    const [, input, value] = row.children;
    const move = () => change({ [name]: values()[Number(input.value)] });
    // Buttons for single steps on touch screens; on a keyboard, the arrow keys move the slider.
    for (const [sign, step] of [["−", -1], ["+", 1]]) {
      const button = add(row, "button", { type: "button", tabindex: "-1", "aria-hidden": "true" }, sign);
      button.addEventListener("click", () => (input.stepUp(step), move()));
    }
    input.addEventListener("input", move);
    writers.push(() => {
      const place = state[name];
      input.max = values().length - 1;
      input.value = values().findLastIndex((one) => one <= place);
      value.textContent = name === "distance" ? grouped(place) : `${place}, ${named(place)}`;
      input.setAttribute("aria-valuetext", value.textContent);
    });
  }
  const menu = add(part("controls"), "label", { class: "control" }, '<span>head</span><select name="head"></select>').lastChild;
  data.heads.forEach((name, number) => add(menu, "option", { value: number }, name));
  menu.addEventListener("change", () => change({ head: Number(menu.value) }));
  writers.push(() => (menu.value = state.head));
  slider("query", "query", () => [...model.words.keys()]);
  slider("key", "key", () => [...model.words.keys()].slice(0, state.query + 1));
  slider("distance", "key at distance", () => ROPE_STOPS);
  const back = add(part("controls"), "button", { type: "button", class: "back" }, "reset");
  back.addEventListener("click", () => change(data.start));

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
    const unseen = hands.filter((hand) => !hand.inside).length;
    const percent = (place) => (100 * weights[place]).toFixed(0) + "%";
    const most = weights.map((_, place) => place).sort((a, b) => weights[b] - weights[a]).slice(0, 3);
    const score = model.score(state);
    const read = {
      score: plain(score),
      weight: percent(state.key),
      reads: `${percent(most[0])} ${named(most[0])}`,
      "planes at new angles": unseen,
    };

    words.forEach((node, place) => {
      node.style.setProperty("--weight", place <= state.query ? Math.sqrt(weights[place]).toFixed(3) : "0");
      node.className = place === state.query ? "query" : place === state.key ? "key" : place > state.query ? "ahead" : "";
    });
    part("readout").innerHTML =
      `<strong>score ${read.score}, weight ${read.weight}</strong>; the head reads ` +
      most.map((place) => `${percent(place)} <span></span> (${place})`).join(", ") +
      (unseen ? `; ◆ new angles in ${unseen} planes` : "");
    part("readout").querySelectorAll("span").forEach((node, i) => (node.textContent = named(most[i])));
    drawings += 1;
    drawDials(hands);
    writers.forEach((write) => write());
    const [box, scores] = [part("curve"), model.curve(state, ROPE_STOPS)];
    box.innerHTML = curve(ROPE_STOPS, scores, { ...state, score }, model.trained, Math.max(240, box.clientWidth));
    root.dataset.ready = "true";
    return read;
  }

  function drawDials(hands) {
    const longest = Math.max(...hands.map((hand) => hand.length));
    faces.forEach((node, i) => {
      const [name, face, value] = node.children;
      const plane = state[LARGE[i]];
      const wave = model.wavelength(plane);
      name.innerHTML = `<strong>plane ${plane}</strong>: one turn in ${grouped(plain(wave, wave < 10 ? 1 : 0))} positions`;
      face.innerHTML = large(hands[plane], longest);
      value.innerHTML = `share <strong>${signed(hands[plane].share)}</strong>`;
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

  const show = (to) => change({ ...data.start, ...to });
  ropeGuesses(part("guess"), data.questions, show, (before, after) => {
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

// Asks the questions. After a guess, the hands turn to the state that shows the answer.
function ropeGuesses(box, questions, show, play) {
  "use strict";
  function pose(number) {
    const { ask, options, right, answer, numbers, before, after } = questions[number];
    box.innerHTML = `<p class="ask"><strong>Guess ${number + 1} of ${questions.length}.</strong> ${ask}</p><p class="options"></p>`;
    options.forEach((option, i) => {
      const button = ropeAdd(box.querySelector(".options"), "button", { type: "button" }, option);
      button.addEventListener("click", () => {
        const [was, is] = play(before, after);
        const changes = numbers.map((name) => `${name}: ${was[name]} → ${is[name]}`);
        box.querySelector(".options").remove();
        const result = ropeAdd(box, "p", { class: "answer" }, `<strong>${i === right ? "✓ Correct" : "No"}: ${options[right]}.</strong> ${answer} <span class="changes">Before → after: ${changes.join("; ")}.</span> `);
        const following = (number + 1) % questions.length;
        const next = ropeAdd(result, "button", { type: "button" }, following ? "next guess" : "ask again");
        next.addEventListener("click", () => {
          show(questions[following].before);
          pose(following);
          box.querySelector(".options button").focus();
        });
        next.focus(); // the clicked button is gone
      });
    });
  }
  pose(0);
}

document.querySelectorAll(".rope-explorer:not([data-started])").forEach((root) => {
  root.dataset.started = "true";
  ropeExplorer(root);
});
