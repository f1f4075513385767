// x cos + rotate_half(x) sin in JavaScript, on a .json of probes: in at stdin, answers out at stdout.
//
//     node rotate_half.mjs 10000 < probes.json > answers.json
import { readFileSync, writeFileSync } from "node:fs";

const probes = JSON.parse(readFileSync(0, "utf8"));
const base = Number(process.argv[2]);
const answers = {};

function rotate(x, [rows, heads, tokens, dim], ids) {
  const half = dim / 2, out = new Float32Array(x.length);
  for (let row = 0; row < rows * heads * tokens; row++) {
    const token = row % tokens, batch = Math.floor(row / (heads * tokens));
    for (let i = 0; i < dim; i++) {
      const angle = ids[batch * tokens + token] * base ** (-2 * (i % half) / dim);
      const other = i < half ? -x[row * dim + i + half] : x[row * dim + i - half];
      out[row * dim + i] = x[row * dim + i] * Math.cos(angle) + other * Math.sin(angle);
    }
  }
  return Array.from(out);
}

for (const [name, { shape, data }] of Object.entries(probes)) {
  const [call, part] = name.split(".");
  if (part !== "q" && part !== "k") continue;
  const by = probes[`${call}.shift`]?.data[0] ?? 0;
  const ids = probes[`${call}.position_ids`].data.map((id) => id + by);
  answers[name] = { shape, data: rotate(data, shape, ids) };
}
writeFileSync(1, JSON.stringify(answers));
