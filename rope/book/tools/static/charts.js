// Draw all charts on the page with Vega-Embed, in the colors of the page's theme.
// This is a classic script because browsers load no modules from file://.
(function () {
  "use strict";

  const NARROW = 620; // in a column narrower than this (in pixels), stack side-by-side panels
  const GROW = 1.3; // the largest factor by which a chart is enlarged

  function prepare(spec, width) {
    const font = getComputedStyle(document.body).fontFamily;
    spec = { ...spec, background: "transparent", config: { ...spec.config, font } };
    if (!spec.hconcat || width >= NARROW) return spec;
    const { hconcat, ...others } = spec;
    return { ...others, vconcat: hconcat, spacing: 24, center: true };
  }

  // Let the chart scale with its column, up to GROW, and label it for screen readers.
  function scale(box) {
    const svg = box.querySelector(".rope-drawing svg");
    svg.style.maxWidth = Math.round(parseFloat(svg.getAttribute("width")) * GROW) + "px";
    svg.setAttribute("aria-label", box.getAttribute("aria-label"));
    svg.setAttribute("role", "img");
    svg.setAttribute("tabindex", "-1");
  }

  // Name each slider for screen readers, and align the number beside it.
  function label(box) {
    box.querySelectorAll(".vega-bind").forEach((bind) => {
      const input = bind.querySelector("input");
      if (!input) return;
      input.setAttribute("aria-label", bind.querySelector(".vega-bind-name").textContent);
      bind.querySelector("span:last-of-type").className = "rope-value";
    });
  }

  // Add a Play button that repeatedly runs a signal from its minimum to its maximum.
  function addPlay(box, view, play) {
    const calm = window.matchMedia("(prefers-reduced-motion: reduce)").matches;
    const button = document.createElement("button");
    const low = play.min || 0;
    const span = play.max - low;
    const step = play.step || span / 200;
    let running = false; // box.ropePlays keeps this value when the chart is redrawn
    let last = 0;
    let value = view.signal(play.signal);
    button.type = "button";
    button.className = "rope-play";

    function show() {
      button.textContent = running ? "\u275A\u275A Pause" : "\u25B6 Play";
    }

    function frame(now) {
      if (!running || box.ropeView !== view || !document.body.contains(box)) return;
      const place = box.getBoundingClientRect();
      if (place.bottom < 0 || place.top > window.innerHeight) {
        last = now; // pause while the chart is off screen
        return requestAnimationFrame(frame);
      }
      const shown = view.signal(play.signal);
      // If the reader has moved the slider, continue from there.
      if (Math.abs(shown - Math.round(value / step) * step) > step / 2) value = shown;
      value += (span * (now - last)) / (1000 * (play.seconds || 10));
      if (value > play.max) value = low;
      last = now;
      view.signal(play.signal, Number((Math.round(value / step) * step).toFixed(6))).run();
      requestAnimationFrame(frame);
    }

    button.addEventListener("click", () => {
      running = box.ropePlays = !running;
      show();
      if (running) {
        last = performance.now();
        requestAnimationFrame(frame);
      } else {
        // Stop at a value that the slider can show.
        const input = box.querySelector(`input[name="${play.signal}"]`);
        if (input) view.signal(play.signal, Number(input.value)).run();
      }
    });
    show();
    box.querySelector(".rope-drawing").after(button);
    if (box.ropePlays ?? (play.autoplay && !calm)) button.click();
  }

  async function draw(box) {
    const spec = JSON.parse(box.querySelector('script[type="application/json"]').textContent);
    const width = box.clientWidth || document.documentElement.clientWidth;
    const old = box.ropeView;
    // Keep the reader's settings when a change of width redraws the chart.
    for (const one of spec.params || []) if (old && one.bind) one.value = old.signal(one.name);
    box.querySelectorAll(".rope-drawing, .rope-play").forEach((node) => node.remove());
    const drawing = document.createElement("div");
    drawing.className = "rope-drawing";
    box.append(drawing);
    box.dataset.stacked = String(width < NARROW);
    const options = { renderer: "svg", actions: false, mode: "vega-lite", tooltip: false };
    try {
      const { view } = await window.vegaEmbed(drawing, prepare(spec, width), options);
      if (old) old.finalize();
      box.ropeView = view;
      scale(box);
      label(box);
      if (spec.usermeta?.play) addPlay(box, view, spec.usermeta.play);
      box.dataset.ready = String(width < NARROW); // equals data-stacked once drawn
    } catch (error) {
      drawing.textContent = `This chart could not be drawn (${error.message}). ${box.getAttribute("aria-label")}`;
      console.error(error);
    }
  }

  // The script is deferred, so the page is already parsed.
  const boxes = document.querySelectorAll(".rope-chart");
  boxes.forEach(draw);
  window.addEventListener("resize", () => {
    boxes.forEach((box) => {
      if (box.dataset.ready && box.dataset.stacked !== String(box.clientWidth < NARROW)) draw(box);
    });
  });
})();
