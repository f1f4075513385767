// Computes the numbers that the chapter "The explorer" shows. It does not use the page.
//
// A state is { head, query, key, distance }. `query` and `key` are indices into the words, and
// `distance` is m - n. Let A_j be the product of the lengths of query and key in plane j, phi_j the
// angle from query to key before the rotation, and theta_j the frequency. Then plane j adds
//
//     A_j cos(phi_j + (n - m) theta_j) / sqrt(D)
//
// to the score. All arithmetic is in double precision.
function ropeModel(data) {
  "use strict";
  const { words, trained, inv_freq } = data;
  const planes = inv_freq.length;
  const [q, k] = [numbers(data.q), numbers(data.k)];
  const TURN = 2 * Math.PI;

  // Decodes base64 of little-endian numbers in single precision.
  function numbers(base64) {
    const bytes = Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
    return new Float32Array(bytes.buffer);
  }

  // Returns the two coordinates of plane j. Vectors are stored interleaved: 2j pairs with 2j + 1.
  function plane(vectors, head, token, j) {
    const start = 2 * ((head * words.length + token) * planes + j);
    return [vectors[start], vectors[start + 1]];
  }

  // Completes a hand. A plane that makes a full turn within the trained length has met every angle;
  // any other plane has met the angles up to the one at the farthest trained distance. `at` is
  // (n - m) theta_j.
  function hand(j, length, angle, at) {
    const full = trained * inv_freq[j] >= TURN;
    const arc = full ? TURN : (trained - 1) * inv_freq[j];
    return { length, angle, at, arc, share: length * Math.cos(angle), inside: full || -at % TURN <= arc };
  }

  // Returns the hand of each plane: its length and angle, its share of the score, and the arc of
  // angles that training covered.
  function hands({ head, query, key, distance }) {
    return inv_freq.map((theta, j) => {
      const [a, b] = plane(q, head, query, j);
      const [c, d] = plane(k, head, key, j);
      const length = (Math.hypot(a, b) * Math.hypot(c, d)) / Math.sqrt(2 * planes);
      const at = -distance * theta;
      return hand(j, length, Math.atan2(d, c) - Math.atan2(b, a) + at, at);
    });
  }

  const score = (state) => hands(state).reduce((sum, { share }) => sum + share, 0);

  return {
    planes, words, trained, hands, score,
    // Returns the hands at the fraction `way` between two states; each hand turns by its own angle.
    between: (before, after, way) =>
      after.map((one, j) => {
        const mix = (name) => (1 - way) * before[j][name] + way * one[name];
        return hand(j, mix("length"), mix("angle"), mix("at"));
      }),
    wavelength: (j) => TURN / inv_freq[j],
    // Returns the softmax over the keys up to the query; the chosen key is at its chosen distance.
    weights(state) {
      const at = (key) => (key === state.key ? state.distance : state.query - key);
      const scores = Array.from({ length: state.query + 1 }, (_, key) => score({ ...state, key, distance: at(key) }));
      const most = Math.max(...scores);
      const powers = scores.map((one) => Math.exp(one - most));
      const sum = powers.reduce((total, one) => total + one, 0);
      return powers.map((one) => one / sum);
    },
    // Returns the score of this query and this key at each of the distances.
    curve: (state, distances) => distances.map((distance) => score({ ...state, distance })),
  };
}

// The distances that a reader can choose: each one up to 64, then 32 steps until it doubles.
const ROPE_STOPS = Array.from({ length: 321 }, (_, step) =>
  step <= 64 ? step : Math.round(64 * Math.pow(2, (step - 64) / 32)),
);
