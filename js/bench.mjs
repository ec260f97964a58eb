/**
 * How fast it is, where the package is installed: `WASMRUN_GUESTS=target/guests node bench.mjs`.
 *
 * Prints medians of five, after one for warmth.
 */

import { join } from 'node:path';

import { connect } from 'wasmrun';

const guest = (name) => join(process.env.WASMRUN_GUESTS ?? 'target/guests', `${name}.wasm`);
const middle = (all) => all.sort((a, b) => a - b)[all.length >> 1];

async function measured(name, unit, once) {
  const found = [];
  for (let at = 0; at < 6; at += 1) found.push(await once());
  console.log(name.padEnd(16), middle(found.slice(1)).toFixed(1), unit);
}

/** The median of many, one at a time, in microseconds. */
async function each(count, call) {
  const took = [];
  for (let at = 0; at < count; at += 1) {
    const began = performance.now();
    await call();
    took.push((performance.now() - began) * 1000);
  }
  return middle(took);
}

await measured('js_connect', 'ms', async () => {
  const began = performance.now();
  const own = await connect({ nodeOptions: ['--node-name', 'bench'] });
  const fixture = await own.load(guest('fixture'));
  await fixture.noop();
  const took = performance.now() - began;
  await own.close();
  return took;
});

const node = await connect();
const fixture = await node.load(guest('fixture'));
const graph = await node.load(guest('graph'));
const counter = await graph.Counter.create(0n);
await measured('js_tasks_async', '1/s', async () => {
  const began = performance.now();
  await Promise.all(Array.from({ length: 50_000 }, () => fixture.noop()));
  return 50_000 / ((performance.now() - began) / 1000);
});
await measured('js_tasks_sync', 'us', () => each(2_000, () => fixture.noop()));
await measured('js_actor_sync', 'us', () => each(2_000, () => counter.add(1n)));
// Functions of JavaScript, each call in a sandbox of its own, and an actor.
const noop = node.remote(() => null);
await measured('js_inside_async', '1/s', async () => {
  const began = performance.now();
  await Promise.all(Array.from({ length: 5_000 }, () => noop()));
  return 5_000 / ((performance.now() - began) / 1000);
});
await measured('js_inside_sync', 'us', () => each(500, () => noop()));
const Tally = node.remote(class Tally {
  add(n) {
    return n;
  }
});
const tally = await Tally.create();
await measured('js_inside_actor', 'us', () => each(2_000, () => tally.add(1)));
await node.close();
