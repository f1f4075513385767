// Computes the numbers that the explorer shows, without using the page: chapter "The explorer".
//
// A state is { head, query, key, distance, shift, stretch }. `query` and `key` are indices into the
// words, `distance` is m - n, and `shift` is added to both positions. Let A_j be the product of the
// lengths of query and key in plane j, phi_j the angle from query to key before the rotation,
// theta'_j the scaled frequency, and f the factor on cos and sin. Then plane j adds
//
//     f^2 A_j cos(phi_j + (n - m) theta'_j) / sqrt(D)
//
// to the score. All arithmetic is in double precision, from vectors stored in half precision.
function ropeModel(data) {
  "use strict";
  const { heads, words, trained, farthest, stretches } = data;
  const tokens = words.length;
  const planes = stretches[0].inv_freq.length;
  const width = 2 * planes;
  const [q, k] = [halves(data.q), halves(data.k)];

  // Decodes base64 of little-endian numbers in IEEE 754 half precision.
  function halves(base64) {
    const bytes = Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
    const view = new DataView(bytes.buffer);
    const values = new Float64Array(bytes.length / 2);
    for (let i = 0; i < values.length; i++) {
      const bits = view.getUint16(2 * i, true);
      const [exponent, fraction] = [(bits >> 10) & 31, bits & 1023];
      const size = Math.pow(2, Math.max(exponent, 1) - 25) * (exponent ? 1024 + fraction : fraction);
      values[i] = bits >> 15 ? -size : size;
    }
    return values;
  }

  // Returns the two coordinates of plane j. Vectors are stored interleaved: 2j pairs with 2j + 1.
  function plane(vectors, state, token, j) {
    const start = (state.head * tokens + token) * width;
    return [vectors[start + 2 * j], vectors[start + 2 * j + 1]];
  }

  // Returns, for each plane, f^2 A_j / sqrt(D), phi_j and theta'_j.
  function parts(state, key) {
    const { inv_freq, scale } = stretches[state.stretch];
    return inv_freq.map((theta, j) => {
      const [a, b] = plane(q, state, state.query, j);
      const [c, d] = plane(k, state, key, j);
      const length = (scale * scale * Math.hypot(a, b) * Math.hypot(c, d)) / Math.sqrt(width);
      return { length, phi: Math.atan2(d, c) - Math.atan2(b, a), theta };
    });
  }

  const scoreOf = (all, distance) =>
    all.reduce((sum, { length, phi, theta }) => sum + length * Math.cos(phi - distance * theta), 0);

  // Returns which angles training covered. A plane that makes a full turn within the trained length
  // has met every angle. Any other plane has met the angles up to the angle at the farthest trained
  // distance. `at` is (n - m) theta'_j.
  function known(j, at) {
    const [reached, turn] = [(trained - 1) * stretches[0].inv_freq[j], 2 * Math.PI];
    const full = trained * stretches[0].inv_freq[j] >= turn;
    return { at, arc: full ? turn : reached, inside: full || -at % turn <= reached };
  }

  function hand(j, length, angle, at) {
    return { length, angle, share: length * Math.cos(angle), ...known(j, at) };
  }

  // Positions start at 0. If the distance exceeds m, the query moves to m = distance.
  function positions(state) {
    const m = Math.max(state.query + state.shift, state.distance);
    return { m, n: m - state.distance };
  }

  return {
    planes, tokens, heads, words, farthest, trained, stretches, positions,
    // Returns each plane's hand (length and angle), share of the score, and trained angles.
    hands: (state) =>
      parts(state, state.key).map(({ length, phi, theta }, j) =>
        hand(j, length, phi - state.distance * theta, -state.distance * theta),
      ),
    // Returns the hands at the fraction `way` between two states; each hand turns by its own angle.
    between: (before, after, way) =>
      after.map((one, j) => {
        const mix = (name) => (1 - way) * before[j][name] + way * one[name];
        return hand(j, mix("length"), mix("angle"), mix("at"));
      }),
    wavelength: (state, j) => (2 * Math.PI) / stretches[state.stretch].inv_freq[j],
    score: (state) => scoreOf(parts(state, state.key), state.distance),
    // Returns the softmax over the keys up to the query; the chosen key is at its chosen distance.
    weights(state) {
      const at = (key) => (key === state.key ? state.distance : state.query - key);
      const scores = Array.from({ length: state.query + 1 }, (_, key) => scoreOf(parts(state, key), at(key)));
      const most = Math.max(...scores);
      const powers = scores.map((one) => Math.exp(one - most));
      const sum = powers.reduce((total, one) => total + one, 0);
      return powers.map((one) => one / sum);
    },
    // Returns the score of this query and this key at every distance.
    curve(state) {
      const all = parts(state, state.key);
      return Array.from({ length: farthest + 1 }, (_, distance) => scoreOf(all, distance));
    },
    // Returns the D coordinates after the rotation, in the order of the layout.
    rotated(state, which, interleaved) {
      const isQuery = which === "q";
      const position = isQuery ? positions(state).m : positions(state).n;
      const { inv_freq, scale } = stretches[state.stretch];
      const coordinates = new Array(width);
      for (let j = 0; j < planes; j++) {
        const [a, b] = isQuery ? plane(q, state, state.query, j) : plane(k, state, state.key, j);
        const cos = scale * Math.cos(position * inv_freq[j]);
        const sin = scale * Math.sin(position * inv_freq[j]);
        const [first, second] = interleaved ? [2 * j, 2 * j + 1] : [j, j + planes];
        coordinates[first] = a * cos - b * sin;
        coordinates[second] = a * sin + b * cos;
      }
      return coordinates;
    },
  };
}

// Returns the points of a curve. Distances less than three pixels apart share a point, which holds
// the first and the last distance and the mean, the highest and the lowest score. across(d) is the
// x coordinate of distance d.
function ropeBins(values, across) {
  const bins = new Map();
  values.forEach((_, d) => {
    const separate = d + 1 < values.length && across(d + 1) - across(d) >= 3;
    const bin = separate ? d : "from " + Math.floor(across(d) / 3);
    bins.has(bin) ? bins.get(bin).push(d) : bins.set(bin, [d]);
  });
  return [...bins.values()].map((inside) => {
    const [first, last, scores] = [inside[0], inside.at(-1), inside.map((d) => values[d])];
    const mean = scores.reduce((sum, score) => sum + score, 0) / scores.length;
    return { first, last, mean, most: Math.max(...scores), least: Math.min(...scores) };
  });
}
