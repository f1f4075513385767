// How the explorer draws: the sixteen dials, the score at every distance, the rotated coordinates.
// Colours are classes of explorer.css; sizes are pixels of the page, so that text keeps its size.
const ropeDraw = (function () {
  "use strict";

  const SIDE = 76; // of a dial
  const HAND = 26; // its longest hand
  const RING = 33; // the radius of the arc of known angles
  const LEFT = 36, RIGHT = 14; // of the curve, beside its axes

  const plain = (value, decimals = 2) =>
    (Number(value.toFixed(decimals)) < 0 ? "\u2212" : "") + Math.abs(value).toFixed(decimals);
  const signed = (value) => (plain(value).startsWith("\u2212") ? "" : "+") + plain(value);

  function svg(width, height, inner, label) {
    const name = label ? `role="img" aria-label="${label}"` : 'aria-hidden="true"';
    return `<svg ${name} width="${width}" height="${height}" viewBox="0 0 ${width} ${height}">${inner}</svg>`;
  }

  // Angles grow counter-clockwise, as in the book; a page's y grows downwards. A key in the past has
  // n - m < 0: with the distance its hand turns clockwise.
  const on = (radius, angle) => [radius * Math.cos(angle), -radius * Math.sin(angle)];

  // The angles from 0 down to the one given.
  function arc(radius, angle) {
    if (angle >= 2 * Math.PI - 1e-9) return `<circle class="known" r="${radius}"/>`;
    const [x, y] = on(radius, -angle);
    return `<path class="known" d="M${radius} 0A${radius} ${radius} 0 ${angle > Math.PI ? 1 : 0} 1 ${x} ${y}"/>`;
  }

  // A hand, its projection, the arc that training covered, and the mark of the angle (n - m) theta_j.
  // longest: the longest hand of the sixteen, which sets their scale.
  function dial(hand, longest) {
    const [x, y] = on((HAND * hand.length) / longest, hand.angle);
    const [mx, my] = on(RING, hand.at);
    const mark = hand.inside
      ? `<circle class="angle" cx="${mx}" cy="${my}" r="3"/>`
      : `<path class="strange" d="M${mx - 5} ${my}L${mx} ${my - 5}L${mx + 5} ${my}L${mx} ${my + 5}Z"/>`;
    const half = SIDE / 2;
    return svg(
      SIDE,
      SIDE,
      `<g transform="translate(${half} ${half})"><circle class="ring" r="${RING}"/>${arc(RING, hand.arc)}` +
        `<line class="axis" x1="${-HAND}" x2="${HAND}"/>` +
        `<line class="share ${x < 0 ? "less" : "more"}" x2="${x}"/>` +
        `<line class="drop" x1="${x}" x2="${x}" y2="${y}"/>` +
        `<line class="hand" x2="${x}" y2="${y}"/>${mark}</g>`,
    );
  }

  // The score of one query and one key at every distance, and where they stand; distances are on a
  // logarithmic axis, which begins at 0.
  function curve(values, distance, trained, width) {
    const farthest = values.length - 1;
    const height = 170, bottom = 34, top = 8;
    const low = Math.min(0, ...values), high = Math.max(0, ...values);
    const across = (d) => LEFT + (Math.log2(1 + d) / Math.log2(1 + farthest)) * (width - LEFT - RIGHT);
    const up = (s) => top + ((high - s) / (high - low || 1)) * (height - top - bottom);
    const line = values.map((s, d) => `${across(d).toFixed(1)},${up(s).toFixed(1)}`).join(" ");
    const ticks = [0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512].filter((d) => d <= farthest);
    const marks = ticks
      .map((d) => `<text class="tick" x="${across(d)}" y="${height - 18}" text-anchor="middle">${d}</text>`)
      .join("");
    const levels = [low, 0, high]
      .filter((s, i, all) => i === 1 || Math.abs(up(s) - up(0)) > 14)
      .map((s) => `<text class="tick" x="${LEFT - 5}" y="${up(s) + 4}" text-anchor="end">${plain(s, 0)}</text>`)
      .join("");
    return svg(
      width,
      height,
      `<rect class="trained" x="${across(0)}" y="${top}" width="${across(trained - 1) - across(0)}" height="${height - top - bottom}"/>` +
        `<line class="axis" x1="${LEFT}" x2="${width - RIGHT}" y1="${up(0)}" y2="${up(0)}"/>` +
        `<polyline class="curve" points="${line}"/>${marks}${levels}` +
        `<circle class="here" cx="${across(distance)}" cy="${up(values[distance])}" r="5"/>` +
        `<text class="tick" x="${(LEFT + width) / 2}" y="${height - 3}" text-anchor="middle">distance m − n; shaded: as in training</text>`,
      `The score of this query and this key at distances 0 to ${farthest}; ${plain(values[distance])} at ${distance}.`,
    );
  }

  // The coordinates of one rotated vector, in their order, with the two of a plane joined.
  function coordinates(values, most, chosen, interleaved, width, label) {
    const height = 92, middle = 34, tall = 28;
    const planes = values.length / 2;
    const step = width / values.length;
    const planeOf = (i) => (interleaved ? Math.floor(i / 2) : i % planes);
    const centre = (i) => (i + 0.5) * step;
    let inner = `<line class="axis" x1="0" x2="${width}" y1="${middle}" y2="${middle}"/>`;
    values.forEach((value, i) => {
      const size = (tall * Math.abs(value)) / most;
      const at = planeOf(i) === chosen ? "bar chosen" : "bar";
      inner += `<rect class="${at}" x="${centre(i) - step * 0.36}" y="${value < 0 ? middle : middle - size}" width="${step * 0.72}" height="${size}"/>`;
      if (step > 15 || planeOf(i) === chosen)
        inner += `<text class="tick${planeOf(i) === chosen ? " chosen" : ""}" x="${centre(i)}" y="${middle + tall + 13}" text-anchor="middle">${planeOf(i)}</text>`;
    });
    for (let j = 0; j < planes; j++) {
      const [a, b] = interleaved ? [2 * j, 2 * j + 1] : [j, j + planes];
      const from = centre(a), to = centre(b), y = middle + tall + 18;
      inner += `<path class="pair${j === chosen ? " chosen" : ""}" d="M${from} ${y}C${from} ${y + 14} ${to} ${y + 14} ${to} ${y}"/>`;
    }
    return svg(width, height, inner, label);
  }

  // A head's weights as a small map, a row a query; opacity is the root of the weight.
  function thumbnail(canvas, rows, colour) {
    const side = rows.length;
    canvas.width = canvas.height = side;
    const context = canvas.getContext("2d");
    context.fillStyle = colour;
    rows.forEach((row, m) =>
      row.forEach((weight, n) => {
        if (weight < 0.002) return;
        context.globalAlpha = Math.sqrt(weight);
        context.fillRect(n, m, 1, 1);
      }),
    );
  }

  // The distance that a press on the curve means.
  function distanceAt(event, box, farthest) {
    const { left, width } = box.querySelector("svg").getBoundingClientRect();
    const share = (event.clientX - left - LEFT) / (width - LEFT - RIGHT);
    return Math.round(Math.pow(1 + farthest, Math.min(1, Math.max(0, share))) - 1);
  }

  return { dial, curve, distanceAt, coordinates, thumbnail, signed, plain };
})();
