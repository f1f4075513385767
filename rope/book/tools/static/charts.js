// Draws every chart of the page with Vega-Embed, in the colours of the page's theme.
// A classic script: browsers load no modules from file://.
(function () {
  "use strict";

  var NARROW = 620; // pixels of column below which panels that stand side by side are stacked
  var GROW = 1.3; // a chart is drawn up to this much larger than its own size

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

  // The picture scales with its column; its text never leaves the page.
  function scale(box) {
    var svg = box.querySelector(".rope-drawing svg");
    if (!svg) return;
    var width = parseFloat(svg.getAttribute("width"));
    svg.style.maxWidth = Math.round(width * GROW) + "px";
    svg.setAttribute("aria-label", box.getAttribute("aria-label"));
    svg.setAttribute("role", "img");
    svg.setAttribute("tabindex", "-1");
  }

  // Vega shows a slider's number as it is in memory; show it with the slider's own decimals.
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

  // A Play button that runs one signal from its least to its greatest value, again and again.
  function addPlay(box, view, play) {
    var calm = window.matchMedia("(prefers-reduced-motion: reduce)").matches;
    var button = document.createElement("button");
    var low = play.min || 0;
    var span = play.max - low;
    var step = play.step || span / 200;
    var running = false; // box.ropePlays holds it for the next drawing
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
        last = now; // out of sight: wait
        return requestAnimationFrame(frame);
      }
      var shown = view.signal(play.signal);
      // The reader has taken the slider: go on from there.
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
        // Stop on a value that the slider can show.
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
    // What the reader has set stays when the page becomes narrow or wide.
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
        box.dataset.ready = String(width < NARROW); // equals data-stacked once that is drawn
      })
      .catch(function (error) {
        drawing.textContent = "This chart could not be drawn (" + error.message + "). " + box.getAttribute("aria-label");
        console.error(error);
      });
  }

  // The page has been read: this script is deferred.
  var boxes = document.querySelectorAll(".rope-chart");
  boxes.forEach(draw);
  window.addEventListener("resize", function () {
    boxes.forEach(function (box) {
      if (box.dataset.ready && box.dataset.stacked !== String(box.clientWidth < NARROW)) draw(box);
    });
  });
})();
