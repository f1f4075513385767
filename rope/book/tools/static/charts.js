// Draw all charts on the page with Vega-Embed, in the colors of the page's theme.
// This is a classic script because browsers load no modules from file://.
(function () {
  "use strict";

  var NARROW = 620; // in a column narrower than this (in pixels), stack side-by-side panels
  var GROW = 1.3; // the largest factor by which a chart is enlarged

  function prepare(spec, width) {
    spec = JSON.parse(JSON.stringify(spec));
    spec.background = "transparent";
    spec.config = spec.config || {};
    spec.config.font = getComputedStyle(document.body).fontFamily;
    if (spec.hconcat && width < NARROW) {
      spec.vconcat = spec.hconcat;
      delete spec.hconcat;
      spec.spacing = 24;
      spec.center = true;
    }
    return spec;
  }

  // Let the chart scale with its column, up to GROW, and label it for screen readers.
  function scale(box) {
    var svg = box.querySelector(".rope-drawing svg");
    if (!svg) return;
    var width = parseFloat(svg.getAttribute("width"));
    svg.style.maxWidth = Math.round(width * GROW) + "px";
    svg.setAttribute("aria-label", box.getAttribute("aria-label"));
    svg.setAttribute("role", "img");
    svg.setAttribute("tabindex", "-1");
  }

  // Round the number shown beside each slider to the decimals of the slider's step.
  function label(box) {
    box.querySelectorAll(".vega-bind").forEach(function (bind) {
      var input = bind.querySelector("input");
      var name = bind.querySelector(".vega-bind-name");
      if (!input || !name) return;
      input.setAttribute("aria-label", name.textContent);
      var value = bind.querySelector("span:last-of-type");
      if (input.type !== "range" || !value || value === name) return;
      value.className = "rope-value";
      var decimals = (input.step.split(".")[1] || "").length;
      var write = function () {
        var text = Number(input.value).toFixed(decimals).replace("-", "\u2212");
        if (value.textContent !== text) value.textContent = text;
      };
      new MutationObserver(write).observe(value, { childList: true, characterData: true, subtree: true });
      write();
    });
  }

  // Add a Play button that repeatedly runs a signal from its minimum to its maximum.
  function addPlay(box, view, play) {
    var calm = window.matchMedia("(prefers-reduced-motion: reduce)").matches;
    var button = document.createElement("button");
    var low = play.min || 0;
    var span = play.max - low;
    var step = play.step || span / 200;
    var running = false; // box.ropePlays keeps this value when the chart is redrawn
    var last = 0;
    var value = view.signal(play.signal);
    button.type = "button";
    button.className = "rope-play";

    function show() {
      button.textContent = running ? "\u275A\u275A Pause" : "\u25B6 Play";
    }

    function frame(now) {
      if (!running || box.ropeView !== view || !document.body.contains(box)) return;
      var place = box.getBoundingClientRect();
      if (place.bottom < 0 || place.top > window.innerHeight) {
        last = now; // pause while the chart is off screen
        return requestAnimationFrame(frame);
      }
      var shown = view.signal(play.signal);
      // If the reader has moved the slider, continue from there.
      if (Math.abs(shown - Math.round(value / step) * step) > step / 2) value = shown;
      value += (span * (now - last)) / (1000 * (play.seconds || 10));
      if (value > play.max) value = low;
      last = now;
      view.signal(play.signal, Number((Math.round(value / step) * step).toFixed(6))).run();
      requestAnimationFrame(frame);
    }

    button.addEventListener("click", function () {
      running = box.ropePlays = !running;
      show();
      if (!running) {
        // Stop at a value that the slider can show.
        var input = box.querySelector('input[name="' + play.signal + '"]');
        if (input) view.signal(play.signal, Number(input.value)).run();
      }
      if (running) {
        last = performance.now();
        requestAnimationFrame(frame);
      }
    });
    show();
    box.querySelector(".rope-drawing").insertAdjacentElement("afterend", button);
    if ("ropePlays" in box ? box.ropePlays : play.autoplay && !calm) button.click();
  }

  function draw(box) {
    var spec = JSON.parse(box.querySelector('script[type="application/json"]').textContent);
    var width = box.clientWidth || document.documentElement.clientWidth;
    var old = box.ropeView;
    // Keep the reader's settings when a change of width redraws the chart.
    if (old)
      (spec.params || []).forEach(function (one) {
        if (one.bind) one.value = old.signal(one.name);
      });
    box.querySelectorAll(".rope-drawing, .rope-play").forEach(function (node) {
      node.remove();
    });
    var drawing = document.createElement("div");
    drawing.className = "rope-drawing";
    box.appendChild(drawing);
    box.dataset.stacked = String(width < NARROW);
    var options = { renderer: "svg", actions: false, mode: "vega-lite", tooltip: false };
    return window
      .vegaEmbed(drawing, prepare(spec, width), options)
      .then(function (result) {
        if (old) old.finalize();
        box.ropeView = result.view;
        scale(box);
        label(box);
        if (spec.usermeta && spec.usermeta.play) addPlay(box, result.view, spec.usermeta.play);
        box.dataset.ready = String(width < NARROW); // equals data-stacked once drawn
      })
      .catch(function (error) {
        drawing.textContent = "This chart could not be drawn (" + error.message + "). " + box.getAttribute("aria-label");
        console.error(error);
      });
  }

  // The script is deferred, so the page is already parsed.
  var boxes = document.querySelectorAll(".rope-chart");
  boxes.forEach(draw);
  window.addEventListener("resize", function () {
    boxes.forEach(function (box) {
      if (box.dataset.ready && box.dataset.stacked !== String(box.clientWidth < NARROW)) draw(box);
    });
  });
})();
