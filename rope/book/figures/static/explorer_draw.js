// Draws the explorer's parts: dials, the plot of the score, and the rotated coordinates. Colors come
// from classes in explorer.css. Sizes are in page pixels, so that text keeps its size.
const ropeDraw = (function () {
  "use strict";

  // A dial: half its side, the arc's radius, the hand's length and greatest width, the arc's stroke
  // width, and the radius of its mark.
  const LARGE = { half: 80, ring: 72, hand: 62, wide: 14, thick: 6, dot: 4 };
  const SMALL = { half: 20, ring: 17, hand: 14, wide: 6, thick: 3, dot: 2.5 };
  const LEFT = 36, RIGHT = 22; // margins of the plot, in pixels

  const plain = (value, decimals = 2) =>
    (Number(value.toFixed(decimals)) < 0 ? "\u2212" : "") + Math.abs(value).toFixed(decimals);
  const signed = (value) => (plain(value).startsWith("\u2212") ? "" : "+") + plain(value);

  const grouped = (value) => String(value).replace(/\B(?=(\d{3})+$)/g, ",");

  function svg(width, height, inner, label) {
    const name = label ? `role="img" aria-label="${label}"` : 'aria-hidden="true"';
    return `<svg ${name} width="${width}" height="${height}" viewBox="0 0 ${width} ${height}">${inner}</svg>`;
  }

  // Angles grow counter-clockwise, as in the book; on a page, y grows downwards. An earlier key has
  // n - m < 0, so its hand turns clockwise as the distance grows.
  const on = (radius, angle) => [radius * Math.cos(angle), -radius * Math.sin(angle)];

  // Returns the arc from angle 0 clockwise to -angle.
  function arc(radius, angle) {
    if (angle >= 2 * Math.PI - 1e-9) return `<circle class="known" r="${radius}"/>`;
    const [x, y] = on(radius, -angle);
    return `<path class="known" d="M${radius} 0A${radius} ${radius} 0 ${angle > Math.PI ? 1 : 0} 1 ${x} ${y}"/>`;
  }

  // Returns a dial. The hand's width is the product of the two vectors' lengths in this plane,
  // relative to the largest product of all planes. The arc shows the angles that training covered;
  // the mark shows the angle (n - m) theta'_j. The bar below is as long as the hand's horizontal
  // component and as thick as the hand, so that its area is proportional to the plane's share.
  function dial({ half, ring, hand, wide, thick, dot }, { length, angle, at, arc: reached, inside }, longest) {
    const [x, y] = on(hand, angle);
    const [mx, my] = on(ring, at);
    const width = (wide * length) / longest;
    const mark = inside
      ? `<circle class="angle" cx="${mx}" cy="${my}" r="${dot}"/>`
      : `<path class="angle unseen" d="M${mx - 1.5 * dot} ${my}l${1.5 * dot} ${-1.5 * dot}l${1.5 * dot} ${1.5 * dot}l${-1.5 * dot} ${1.5 * dot}Z"/>`;
    return svg(
      2 * half,
      2 * half + wide + 4,
      `<g transform="translate(${half} ${half})"><circle class="ring" r="${ring}"/>` +
        `<g stroke-width="${thick}">${arc(ring, reached)}</g>` +
        `<line class="axis" y1="${half + 2}" y2="${half + wide + 2}"/>` +
        `<line class="drop" x1="${x}" x2="${x}" y1="${y}" y2="${half + 2 + wide / 2}"/>` +
        `<rect class="share ${x < 0 ? "less" : "more"}" x="${Math.min(0, x)}" width="${Math.abs(x)}" y="${half + 2 + (wide - width) / 2}" height="${width}"/>` +
        `<line class="hand" x2="${x}" y2="${y}" stroke-width="${Math.max(1, width)}"/>${mark}</g>`,
    );
  }

  // Plots the score of one query and one key at every distance, on a logarithmic axis from 0. Where
  // several distances share a point, a band covers their scores and the line shows their mean.
  function curve(values, distance, trained, width) {
    const to = values.length - 1, height = 150, top = 8, tall = height - top - 34;
    const low = Math.min(0, ...values), high = Math.max(0, ...values);
    const across = (d) => LEFT + (Math.log2(1 + d) / Math.log2(1 + to)) * (width - LEFT - RIGHT);
    const up = (score) => top + ((high - score) / (high - low || 1)) * tall;
    const line = [], upper = [], lower = [];
    for (const { first, last, mean, most, least } of ropeBins(values, across)) {
      const at = (score) => `${across((first + last) / 2).toFixed(1)},${up(score).toFixed(1)}`;
      line.push(at(mean));
      upper.push(at(most));
      lower.unshift(at(least));
    }
    const tick = (x, y, anchor, text) => `<text class="tick" x="${x}" y="${y}" text-anchor="${anchor}">${text}</text>`;
    const levels = [low, 0, high]
      .filter((s, i) => i === 1 || Math.abs(up(s) - up(0)) > 14)
      .map((s) => tick(LEFT - 5, up(s) + 4, "end", plain(s, 0)));
    const marks = [0, 1, 4, 16, 64, 256, 1024, 4096, 16384].filter((d) => d <= to)
      .map((d) => tick(across(d), height - 18, "middle", grouped(d)));
    return svg(
      width,
      height,
      `<rect class="trained" x="${LEFT}" y="${top}" width="${across(trained - 1) - LEFT}" height="${tall}"/>` +
        `<line class="axis" x1="${LEFT}" x2="${width - RIGHT}" y1="${up(0)}" y2="${up(0)}"/>` +
        `<polygon class="band" points="${[...upper, ...lower].join(" ")}"/><polyline class="curve" points="${line.join(" ")}"/>` +
        [...marks, ...levels].join("") +
        `<circle class="here" cx="${across(distance)}" cy="${up(values[distance])}" r="5"/>` +
        tick((LEFT + width) / 2, height - 3, "middle", "distance m − n"),
      `The score of this query and this key at distances 0 to ${to}; ${plain(values[distance])} at ${distance}.`,
    );
  }

  // Draws the coordinates of one rotated vector, in order. An arc joins the two coordinates of each
  // plane; the chosen planes are marked.
  function coordinates(values, most, chosen, interleaved, width, label) {
    const height = 92, middle = 34, tall = 28;
    const planes = values.length / 2, step = width / values.length;
    const planeOf = (i) => (interleaved ? Math.floor(i / 2) : i % planes);
    const centre = (i) => (i + 0.5) * step;
    let inner = `<line class="axis" x1="0" x2="${width}" y1="${middle}" y2="${middle}"/>`;
    values.forEach((value, i) => {
      const size = (tall * Math.abs(value)) / most;
      const marked = chosen.includes(planeOf(i)) ? " chosen" : "";
      inner += `<rect class="bar${marked}" x="${centre(i) - step * 0.36}" y="${value < 0 ? middle : middle - size}" width="${step * 0.72}" height="${size}"/>`;
      if (marked && !(interleaved && i % 2)) {
        const x = interleaved ? (i + 1) * step : centre(i); // one number per arc, or one at each end
        inner += `<text class="tick" x="${x}" y="${middle + tall + 13}" text-anchor="middle">${planeOf(i)}</text>`;
      }
    });
    for (let j = 0; j < planes; j++) {
      const [a, b] = interleaved ? [2 * j, 2 * j + 1] : [j, j + planes];
      const from = centre(a), to = centre(b), y = middle + tall + 18;
      inner += `<path class="pair${chosen.includes(j) ? " chosen" : ""}" d="M${from} ${y}C${from} ${y + 14} ${to} ${y + 14} ${to} ${y}"/>`;
    }
    return svg(width, height, inner, label);
  }

  // Converts a pointer's place on the curve to a distance.
  function onCurve(event, box, values) {
    const svg = box.querySelector("svg").getBoundingClientRect();
    const share = (event.clientX - svg.left - LEFT) / (svg.width - LEFT - RIGHT);
    return Math.round(Math.pow(values.length, Math.min(1, Math.max(0, share))) - 1);
  }

  const large = (hand, longest) => dial(LARGE, hand, longest);
  const small = (hand, longest) => dial(SMALL, hand, longest);
  return { large, small, curve, onCurve, coordinates, signed, plain, grouped };
})();
