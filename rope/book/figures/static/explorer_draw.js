// Draws the explorer's dials and the plot of the score. Colors come from classes in explorer.css.
// Sizes are in page pixels, so that text keeps its size.
const ropeDraw = (function () {
  "use strict";

  // A dial: half its side, the arc's radius, the hand's length and greatest width, the arc's stroke
  // width, and the radius of its mark.
  const LARGE = { half: 80, ring: 72, hand: 62, wide: 14, thick: 6, dot: 4 };
  const SMALL = { half: 20, ring: 17, hand: 14, wide: 6, thick: 3, dot: 2.5 };
  const LEFT = 36, RIGHT = 22; // margins of the plot, in pixels

  const plain = (value, decimals = 1) =>
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
  // the mark shows the angle (n - m) theta_j. The bar below is as long as the hand's horizontal
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

  // Plots the scores at the given distances on a logarithmic axis from 0.
  function curve(distances, scores, { distance, score }, trained, width) {
    const height = 150, top = 8, tall = height - top - 34;
    const low = Math.min(0, ...scores), high = Math.max(0, ...scores);
    const across = (d) => LEFT + (Math.log2(1 + d) / Math.log2(1 + distances.at(-1))) * (width - LEFT - RIGHT);
    const up = (s) => top + ((high - s) / (high - low || 1)) * tall;
    const tick = (x, y, anchor, text) => `<text class="tick" x="${x}" y="${y}" text-anchor="${anchor}">${text}</text>`;
    const levels = [low, 0, high]
      .filter((s, i) => i === 1 || Math.abs(up(s) - up(0)) > 14)
      .map((s) => tick(LEFT - 5, up(s) + 4, "end", plain(s, 0)));
    const marks = [0, 1, 4, 16, 64, 256, 1024, 4096, 16384]
      .map((d) => tick(across(d), height - 18, "middle", grouped(d)));
    return svg(
      width,
      height,
      `<rect class="trained" x="${LEFT}" y="${top}" width="${across(trained - 1) - LEFT}" height="${tall}"/>` +
        `<line class="axis" x1="${LEFT}" x2="${width - RIGHT}" y1="${up(0)}" y2="${up(0)}"/>` +
        `<polyline points="${distances.map((d, i) => `${across(d).toFixed(1)},${up(scores[i]).toFixed(1)}`).join(" ")}"/>` +
        [...marks, ...levels].join("") +
        `<circle class="here" cx="${across(distance)}" cy="${up(score)}" r="5"/>` +
        tick((LEFT + width) / 2, height - 3, "middle", "score at each distance m − n"),
      `The score of this query and this key by distance; ${plain(score)} at ${distance}.`,
    );
  }

  const large = (hand, longest) => dial(LARGE, hand, longest);
  const small = (hand, longest) => dial(SMALL, hand, longest);
  return { large, small, curve, signed, plain, grouped };
})();
