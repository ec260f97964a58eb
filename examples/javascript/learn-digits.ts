/*
 * Learns to read handwritten digits: an actor and tasks of a Rust module, driven and checked from TypeScript.
 *
 *     cargo xtask guests
 *     wasmrun stubs target/guests/parameter-server.wasm --lang ts --out examples/javascript/parameter-server.d.ts
 *     npx tsc --strict --target es2022 --module nodenext examples/javascript/learn-digits.ts
 *     node examples/javascript/learn-digits.js [WORKERS [PASSES]]
 *
 * The server and the workers are those of `examples/parameter-server`. This file says who works on what, and tests what was learned
 * with digits by people whom the net never saw: the weights come from a Rust actor as a typed array.
 */

import { readFile } from 'node:fs/promises';

import { connect } from 'wasmrun';

import type * as learning from './parameter-server.js';

const GUESTS = process.env.WASMRUN_GUESTS ?? 'target/guests';
const DIGITS = process.env.WASMRUN_DIGITS ?? 'examples/parameter-server/data/digits.txt';

/** The first are for learning. */
const KNOWN = 1437;
const [PIXELS, HIDDEN, CLASSES] = [64, 32, 10];

/** Which digit the net with these weights reads. */
function read(weights: Float32Array, pixels: Uint8Array): number {
  const layer = (start: number, inputs: number[], units: number): number[] =>
    Array.from({ length: units }, (_, unit) => {
      const begin = start + unit * (inputs.length + 1);
      return inputs.reduce((sum, it, at) => sum + it * weights[begin + at]!, weights[begin + inputs.length]!);
    });
  const inputs = Array.from(pixels, (it) => it / 16);
  const hidden = layer(0, inputs, HIDDEN).map((it) => Math.max(it, 0));
  const sums = layer(HIDDEN * (PIXELS + 1), hidden, CLASSES);
  return sums.indexOf(Math.max(...sums));
}

const [workers, passes] = [Number(process.argv[2] ?? 2), Number(process.argv[3] ?? 8)];
const lines = (await readFile(DIGITS, 'utf8')).trim().split('\n');
const digits = lines.map((line) => {
  const [label = '', inks = ''] = line.split(' ');
  return { label: Number(label), pixels: Uint8Array.from(inks, (ink) => parseInt(ink, 17)) };
});
const [known, unknown] = [digits.slice(0, KNOWN), digits.slice(KNOWN)];

await using node = await connect();
const app = await node.load<learning.Module>(`${GUESTS}/parameter-server.wasm`);
const pixels = await node.put(new Uint8Array(known.flatMap((it) => [...it.pixels])));
const labels = await node.put(Uint8Array.from(known, (it) => it.label));
const server = await app.Server.create(1n);
for (let pass = 1; pass <= passes; pass += 1) {
  const shares = Array.from({ length: workers }, (_, worker) => ({ worker, workers }));
  const losses = await Promise.all(shares.map((share) => app.work(server, pixels, labels, share)));
  const [pushes, stale] = await server.pushes();
  const loss = losses.reduce((sum, it) => sum + it, 0) / workers;
  console.log(`pass ${pass}: loss ${loss.toFixed(4)} (${pushes} pushes, stale by ${stale.toFixed(2)})`);
}
const weights = await server.pull(workers);
const good = unknown.filter((it) => read(weights, it.pixels) === it.label).length;
console.log(`${((100 * good) / unknown.length).toFixed(1)} % of ${unknown.length} unknown digits are read right`);
