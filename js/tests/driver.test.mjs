/** Tasks, actors, sessions, and what goes wrong. */

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { test } from 'node:test';
import { inspect } from 'node:util';
import { Worker } from 'node:worker_threads';

import * as wasmrun from 'wasmrun';

import { fixture, graph, guest, node, orders } from './session.mjs';

/** Runs a program of its own. */
const program = (code, env = {}) =>
  spawnSync(process.execPath, ['--input-type=module', '--eval', code], {
    env: { ...process.env, ...env },
    encoding: 'utf8',
    timeout: 60_000,
  });

const order = {
  id: 'A-17',
  currency: 'eur',
  tier: 'member',
  items: [{ sku: 'mug', quantity: 3, unitPrice: 1250n, weight: 400 }],
  care: { fragile: true },
  delivery: { tag: 'parcel', val: 'DE' },
};
const rules = [
  { tag: 'one-free', val: ['mug', 3] },
  { tag: 'tax', val: 1900 },
];

test('calls that end badly leave the others alone', async () => {
  const other = graph.add(1n, 2n);
  // The signal comes when the call has ended, and nobody here has been told.
  const controller = new AbortController();
  const call = graph.add.options({ signal: controller.signal })(1n, 1n).catch((error) => error.name);
  await Promise.resolve();
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 200);
  controller.abort();
  assert.equal(await call, 'AbortError');
  const ref = graph.add.ref(2n, 2n);
  assert.deepEqual(await node.wait([ref], { timeout: Infinity }), [[ref], []]);
  assert.equal(await other, 3n);
  assert.equal(await ref.get(), 4n);
});

test('an order', async () => {
  assert.equal((await orders.price(order, rules)).total, 3879n);
  assert.equal(orders.price, orders.pricing.price);
  const empty = orders.price({ ...order, items: [] }, rules);
  await assert.rejects(empty, { name: 'GuestError', payload: { tag: 'empty' }, function: 'price' });
});

test('names', () => {
  assert.throws(() => fixture.who, /say a\.who, b\.who/);
  assert.equal(fixture.nope, undefined);
  assert.equal(fixture.onlyHere, fixture.named.onlyHere);
  assert.equal(wasmrun.version.split('.').length, 3);
  assert.match(inspect(node), /own/);
});

test('objects are arguments', async () => {
  const one = graph.add.ref(1n, 2n);
  const total = graph.add.ref(one, graph.add.ref(one, 4n));
  assert.deepEqual(await node.get([one, total]), [3n, 10n]);
  assert.deepEqual(await node.get([]), []);
  assert.equal(await graph.add(total, 1n), 11n);
});

test('many', async () => {
  const numbers = Array.from({ length: 5000 }, (_, at) => BigInt(at));
  const sums = await Promise.all(numbers.map((n) => graph.add(n, 1n)));
  assert.deepEqual(sums, numbers.map((n) => n + 1n));
  const refs = numbers.slice(0, 100).map((n) => graph.add.ref(n, 1n));
  const seen = [];
  for await (const ref of node.completed(refs)) seen.push(await ref.get());
  assert.deepEqual(seen.sort((a, b) => Number(a - b)), numbers.slice(1, 101));
});

test('what is slow holds up nothing else of the same turn', async () => {
  const abort = new AbortController();
  const lazy = fixture.sleepForever.options({ cpus: 0.1 });
  const slow = lazy.options({ signal: abort.signal })();
  const alone = lazy.ref();
  const cancelled = assert.rejects(alone.get(), { name: 'TaskCancelledError' });
  const quick = await Promise.all(Array.from({ length: 20 }, (_, at) => fixture.echoU32(at)));
  assert.equal(quick.length, 20);
  abort.abort(new Error('enough'));
  await assert.rejects(slow, /enough/);
  await node.cancel(alone);
  await cancelled;
});

test('a call that is refused is refused alone', async () => {
  const text = fixture.echoString.ref('x');
  assert.equal(await text.get(), 'x');
  const calls = [...Array(40).keys(), text, ...Array(40).keys()].map((given) => fixture.echoU32(given));
  await assert.rejects(calls.splice(40, 1)[0], { name: 'RefusedError', message: /of type u32/ });
  assert.deepEqual(await Promise.all(calls), [...Array(40).keys(), ...Array(40).keys()]);
});

test('wait', async () => {
  const [slow, quick] = [fixture.sleepForever.ref(), fixture.noop.ref()];
  assert.deepEqual(await node.wait([slow, quick]), [[quick], [slow]]);
  assert.deepEqual(await node.wait([slow], { timeout: 10 }), [[], [slow]]);
  assert.deepEqual(await node.wait([]), [[], []]);
  await assert.rejects(slow.get({ timeout: 10 }), { name: 'GetTimeoutError', message: /after 10 ms/ });
  await assert.rejects(node.get([slow, quick], { timeout: 10 }), wasmrun.GetTimeoutError);
  await assert.rejects(slow.get({ signal: AbortSignal.timeout(10) }), { name: 'TimeoutError' });
  await assert.rejects(slow.get({ signal: AbortSignal.abort() }), { name: 'AbortError' });
  const late = node.completed([slow], { timeout: 10 });
  await assert.rejects(late.next(), wasmrun.GetTimeoutError);
  await assert.rejects(node.wait([quick], { count: 2 }), { name: 'RangeError' });
  await assert.rejects(node.wait([1]), { name: 'TypeError', message: /refs\[0\]: expected a Ref, got 1/ });
  assert.match(await node.explain(slow), /^task /);
  await node.cancel([slow]);
  await assert.rejects(slow.get(), wasmrun.TaskCancelledError);
});

test('a signal cancels a call', async () => {
  const asked = graph.spin.options({ signal: AbortSignal.timeout(50), name: 'spinning' });
  await assert.rejects(asked(), { name: 'TimeoutError' });
  await assert.rejects(asked(), { name: 'TimeoutError' });
});

test('failures have classes', async () => {
  await assert.rejects(fixture.trap(), (error) => {
    assert(error instanceof wasmrun.TrapError && error instanceof wasmrun.TaskError);
    return error.task.length > 0 && error.frames.length > 0;
  });
  await assert.rejects(fixture.fail('why'), { name: 'GuestError', payload: 'why' });
  await assert.rejects(fixture.spin.options({ timeLimit: 100 })(), { name: 'LimitError', message: /time limit/ });
  await assert.rejects(fixture.allocate.options({ memory: '8MiB' })(64), { name: 'LimitError' });
  await assert.rejects(fixture.noop.options({ gpus: 64 })(), { name: 'RefusedError', message: /GPU/ });
  const broken = graph.doubleEven.ref(1n);
  await assert.rejects(graph.add(broken, 1n), (error) => {
    assert(error instanceof wasmrun.DependencyError && error.cause instanceof wasmrun.GuestError);
    return error.argument === 0;
  });
});

test('a failure that nobody waits for is nobody\'s', () => {
  const ran = program(`
    import { once } from 'node:events';
    import { connect } from 'wasmrun';
    const node = await connect(${JSON.stringify(node.address)});
    const fixture = await node.load(${JSON.stringify(guest('fixture'))});
    const left = fixture.trap.ref();
    await node.wait([left]);
    const unhandled = once(process, 'unhandledRejection');
    fixture.trap();
    console.log('unhandled', (await unhandled)[0].name);
    await node.close();
  `);
  assert.equal(ran.stdout, 'unhandled TrapError\n', ran.stderr);
});

test('options', async () => {
  const info = await fixture.contextInfo.options({ cpus: 0.5, memory: 32 << 20 })();
  assert(info.resources.some((held) => held.name === 'CPU' && held.amount === 5000n));
  const asking = fixture.env.options({ name: 'mine', retries: 2, priority: 1, strategy: 'spread' });
  assert.equal(await asking.options({ env: { A: 'b' } })('A'), 'b');
  for (const [options, says] of [
    [{ cpu: 1 }, /no option 'cpu'; there are .*cpus/],
    [{ memory: 'much' }, /option memory/],
    [{ cpus: true }, /option cpus: expected a number .*, got true/],
    [{ strategy: 'nowhere' }, /option strategy/],
    [{ timeLimit: -1 }, /is no time/],
    [{ http: ['https://a.org'] }, /option http: 'https:\/\/a.org' is no HTTP server: it is a URL/],
    [{ http: 'a.org' }, /option http: expected a list of texts, got "a.org"/],
    [5, /options are an object/],
  ]) {
    assert.throws(() => fixture.noop.options(options), (error) => error instanceof TypeError && says.test(error.message));
  }
});

test('servers that are granted', async () => {
  const { fetch } = await node.load(guest('web'));
  // Nobody listens there.
  const asked = (http) => fetch.options({ http })('GET', 'http://127.0.0.1:1/', new Uint8Array());
  await assert.rejects(asked([]), { name: 'GuestError', payload: 'HttpRequestDenied' });
  await assert.rejects(asked(['127.0.0.1:1']), { name: 'GuestError', payload: 'ConnectionRefused' });
});

test('actors', async () => {
  const counter = await graph.Counter.create(10n);
  const added = await Promise.all(Array.from({ length: 50 }, () => counter.add(1n)));
  assert.deepEqual(added, Array.from({ length: 50 }, (_, at) => BigInt(at + 11)));
  assert.equal(await counter.add(graph.add.ref(20n, 20n)), 100n);
  await graph.countFor(counter, 3);
  assert.equal(await counter.add(0n), 103n);
  await assert.rejects(counter.add('1'), { name: 'TypeError', message: /add\(\) argument n: expected bigint/ });
  assert.throws(() => counter.add.options({ memory: 1 }), /no option 'memory'/);
  assert.equal(await counter.add.options({ timeLimit: 10_000 }).ref(1n).get(), 104n);
  await node.kill(counter);
  await assert.rejects(counter.add(1n), { name: 'ActorDiedError' });

  const named = await graph.Counter.create(1n, { name: 'total', restarts: 3 });
  const found = await node.getActor('total');
  assert.equal(await found.add(1n), 2n);
  assert.match(await node.explain(named), /actor/);
  await assert.rejects(node.getActor('nobody'), { name: 'RefusedError' });
  await assert.rejects(graph.Counter.create(1n, { detached: true }), /needs a name/);
  await assert.rejects(graph.Counter.create(), /misses the argument start/);
});

test('what is disposed of is gone', async () => {
  const ref = fixture.echoU8.ref(1);
  ref[Symbol.dispose]();
  ref[Symbol.dispose]();
  await assert.rejects(ref.get(), { name: 'TypeError', message: /disposed of/ });
  await assert.rejects(fixture.echoU8(ref), { name: 'TypeError', message: /disposed of/ });
  const counter = await graph.Counter.create(1n);
  counter[Symbol.dispose]();
  await assert.rejects(counter.add(1n), { name: 'TypeError', message: /disposed of/ });
});

test('objects of two sessions', async () => {
  const other = await wasmrun.connect(node.address);
  const theirs = await other.put('there');
  const ours = fixture.noop.ref();
  for (const ask of [
    () => node.get([ours, theirs]),
    () => node.wait([theirs]),
    () => node.cancel(theirs),
    () => fixture.echoString(theirs),
  ]) {
    await assert.rejects(ask, { name: 'TypeError', message: /another session/ });
  }
  assert.equal(await theirs.get(), 'there');
  const left = (await other.load(guest('fixture'))).sleepForever();
  await Promise.all([other.close(), assert.rejects(left)]);
  assert.equal(other.isConnected, false);
  await assert.rejects(theirs.get(), { name: 'WasmrunError', message: /was closed/ });
  await other.close();
});

test('nothing keeps the process going but who waits', () => {
  const ran = program(`
    import { connect } from 'wasmrun';
    const node = await connect();
    const fixture = await node.load(${JSON.stringify(guest('fixture'))});
    fixture.sleepForever.ref();
    console.log(await fixture.echoU8(7), node.address.slice(0, 5));
  `, { XDG_RUNTIME_DIR: '/nowhere' });
  assert.equal(ran.stdout, '7 unix:\n', ran.stderr);
  assert.equal(ran.status, 0);
});

test('worker threads have sessions of their own', async () => {
  const code = `
    const { parentPort, workerData } = require('node:worker_threads');
    (async () => {
      const { connect } = await import('wasmrun');
      const node = await connect(workerData.address);
      const graph = await node.load(workerData.module);
      const sums = await Promise.all(Array.from({ length: 200 }, (_, at) => graph.add(BigInt(at), 1n)));
      // One of them does not close it.
      if (workerData.at > 0) await node.close();
      parentPort.postMessage(sums[199]);
    })();
  `;
  const workers = [0, 1, 2].map(
    (at) => new Worker(code, { eval: true, workerData: { at, address: node.address, module: guest('graph') } }),
  );
  const said = await Promise.all(workers.map((it) => once(it, 'message')));
  assert.deepEqual(said.flat(), [200n, 200n, 200n]);
  await Promise.all(workers.map((it) => it.terminate()));
  assert.equal(await graph.add(1n, 1n), 2n);
});

test('the cluster', async () => {
  const [own] = await node.nodes();
  assert.equal(own.name, 'own');
  assert.equal(own.total.CPU, '2');
  assert.equal(node.name, 'own');
});

test('what cannot be begun', async () => {
  await assert.rejects(wasmrun.connect('unix:/nowhere/node.sock'), { name: 'NodeNotRunningError' });
  await assert.rejects(wasmrun.connect({ adress: node.address }), { name: 'TypeError', message: /no option 'adress'; there are address/ });
  await assert.rejects(wasmrun.connect({ address: node.address, tenant: 'Not A Tenant!' }), wasmrun.WasmrunError);
  await assert.rejects(node.load(new TextEncoder().encode('no module')), { name: /Error/, message: /wasm/ });
  await assert.rejects(node.load('/nowhere.wasm'), { code: 'ENOENT' });
  assert.throws(() => new wasmrun.Ref(), /is made by/);
});
