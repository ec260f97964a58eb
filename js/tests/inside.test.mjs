/** JavaScript in sandboxes, as a session drives it. */

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';

import * as wasmrun from 'wasmrun';
import { get } from 'wasmrun/guest';

import { fixture, node } from './session.mjs';

const file = (name) => fileURLToPath(new URL(`programs/${name}`, import.meta.url));
const app = await node.program(file('app.ts'));
const echo = node.remote((it) => it);

/** Runs code with a session of its own, whose node is ours. */
const program = (code) =>
  spawnSync(process.execPath, ['--input-type=module', '--eval', code], {
    env: { ...process.env, ADDRESS: node.address },
    encoding: 'utf8',
    timeout: 60_000,
  });

test('functions', async () => {
  const square = node.remote((n) => n * n);
  assert.deepEqual(await Promise.all([1, 2, 3].map((n) => square(n))), [1, 4, 9]);
  const ref = square.ref(4);
  assert(ref instanceof wasmrun.Ref);
  assert.deepEqual([await ref.get(), await node.get(ref), await square(ref)], [16, 16, 256]);
  assert.deepEqual(await node.wait([ref]), [[ref], []]);
  assert.deepEqual(await node.get([ref, square.ref(ref)]), [16, 256]);
  const later = node.remote(async (n) => {
    await new Promise((done) => setTimeout(done, 1));
    return n;
  });
  assert.equal(await later.options({ cpus: 0.5, name: 'later' })(5), 5);
  assert.throws(() => square.options({ cpu: 1 }).ref(1), { name: 'TypeError', message: /no option 'cpu'/ });
  assert.throws(() => node.remote(5), { name: 'TypeError', message: /for functions and classes/ });
});

test('what is around a function stays here, but for the names of the guest', async () => {
  const around = 5;
  await assert.rejects(node.remote(() => around)(), { name: 'ReferenceError', message: /takes nothing along/ });
  const sum = node.remote((refs) => get(refs).reduce((all, it) => all + it, 0));
  assert.equal(await sum([echo.ref(1), echo.ref(2)]), 3);
});

test('values of all kinds, there and back', async () => {
  const values = [
    null, undefined, true, 0, -1, 2 ** 53, -0, 1.5, NaN, 2n ** 80n, 'ä😀', '\ud800', [1, [2]], { a: { b: [] } },
    new Map([[1, 'a']]), new Set([1]), new Date(1e12), new Uint8Array([1, 2]), new Float64Array([1.5]),
    new Uint8Array(1 << 20).fill(7), 'x'.repeat(1 << 20), JSON.parse('{"__proto__": 1, "then": 2}'),
  ];
  const back = await Promise.all(values.map((it) => echo([it])));
  values.forEach((it, at) => assert.deepStrictEqual(back[at], [it]));
  assert.equal((await echo(new RangeError('far', { cause: 1 }))).cause, 1);
  await assert.rejects(echo({ a: [() => 1] }), { name: 'TypeError', message: /\.a\[0\]: a function/ });
  await assert.rejects(node.remote(() => () => 1)(), (error) => error instanceof TypeError && /result: a function/.test(error.message));
});

test('objects are arguments', async () => {
  const stored = await node.put({ deep: [1n] });
  assert.deepEqual(await stored.get(), { deep: [1n] });
  assert.deepEqual(await echo(stored), { deep: [1n] });
  assert.equal(await echo(await node.put('text')), 'text');
  assert.deepEqual(await echo(await node.put(new Float64Array(10_000))), new Float64Array(10_000));
  assert.equal(await echo(fixture.noop.ref()), undefined);
  const inner = await echo([stored, echo.ref(6)]);
  assert.deepEqual(await node.get(inner), [{ deep: [1n] }, 6]);
  await assert.rejects(echo(app.far.ref()), (error) => error instanceof wasmrun.DependencyError && error.cause.code === 7);
  const gone = await wasmrun.connect(node.address);
  await assert.rejects(echo(await gone.put('theirs')), { name: 'TypeError', message: /another session/ });
  await gone.close();
});

test('programs', async () => {
  assert.equal(await app.twice(21), 42);
  assert.equal(await app.total([app.twice.ref(1), app.twice.ref(2)]), 6);
  // What a sandbox has started or stored is read here.
  assert.equal(await (await app.started(4)).get(), 8);
  assert.deepEqual(await (await app.stored()).at.get(), { deep: [1n] });
  await assert.rejects(app.nope(), { name: 'TypeError', message: /exports no 'nope'; it exports .*twice/ });
  await assert.rejects(node.program(file('nowhere.ts')), { name: 'BundleError', message: /nowhere\.ts/ });
});

test('classes are actors', async () => {
  const counter = await app.Counter.options({ name: 'inside' }).create(1);
  assert.deepEqual(await Promise.all([1, 2, 3].map((n) => counter.add(n))), [2, 4, 7]);
  assert.equal(await counter.add.ref(3).get(), 10);
  await assert.rejects(counter.fail(), { name: 'SyntaxError', message: 'as asked' });
  await assert.rejects(counter.nope(), /no method 'nope'/);
  const add = node.remote((to, n) => to.add(n));
  assert.equal(await add(counter, 1), 11);
  assert.equal(await (await node.getActor('inside')).add(1), 12);
  assert.match(await node.explain(counter), /actor/);
  await node.kill(counter);
  await assert.rejects(counter.add(1), { name: 'ActorDiedError' });
  // Made in a sandbox, called here.
  assert.equal(await (await app.counter()).add(5), 15);
  await assert.rejects((await app.Counter.create(-1)).add(1), { name: 'TypeError', message: 'not below nothing' });
  const Sum = node.remote(class Sum {
    total = 0;
    add(n) {
      return (this.total += n);
    }
  });
  const sum = await Sum.create();
  assert.equal(await sum.add(2), 2);
  assert.throws(() => sum.nope, /no method 'nope'; it has add/);
});

test('an actor that is started again goes on from its checkpoint', async () => {
  const Sum = node.remote(class Sum {
    total = 0;
    seen = new Set();
    add(n) {
      this.seen.add(n);
      return (this.total += n);
    }
    /** Its instance traps. */
    end() {
      Object.defineProperty(Object.prototype, 'then', { get: () => { throw new Error('no promises'); } });
    }
    async checkpoint() {
      return this.total < 100 ? [this.total, this.seen] : () => this.total;
    }
    static async restore([total, seen]) {
      await null;
      return Object.assign(new Sum(), { total, seen });
    }
  });
  const sum = await Sum.options({ restarts: 2 }).create();
  await sum.add(2);
  await assert.rejects(sum.end(), { name: 'TrapError' });
  assert.equal(await sum.add(3), 5);
  // A state that cannot cross ends the instance, and the last one counts.
  await sum.add(100).catch(() => {});
  assert.equal(await sum.add(1), 6);
  const Half = node.remote(class Half {
    checkpoint() {}
    add() {}
  });
  await assert.rejects((await Half.create()).add(), { name: 'TypeError', message: /Half has the method checkpoint, and so needs a static method restore/ });
});

test('what is thrown inside is thrown here', async () => {
  await assert.rejects(app.far(), (error) => {
    assert(error instanceof RangeError);
    assert.deepEqual([error.message, error.code], ['order 7 is too far', 7]);
    return /at far@.*app\.ts:21:\d+ \(in the sandbox\)/.test(error.stack);
  });
  await assert.rejects(app.far.ref().get(), /order 7/);
  const thrown = node.remote(() => {
    throw { code: 5 };
  });
  await assert.rejects(thrown(), (error) => error instanceof wasmrun.JavaScriptError && error.cause.code === 5);
  await assert.rejects(node.remote(() => new Promise(() => {}))(), /never settled/);
  const endless = node.remote(() => {
    for (;;);
  });
  await assert.rejects(endless.options({ timeLimit: 100 })(), { name: 'LimitError' });
});

test('a signal cancels a call', async () => {
  const endless = node.remote(() => {
    for (;;);
  });
  const asked = endless.options({ signal: AbortSignal.timeout(50) });
  await assert.rejects(asked(), { name: 'TimeoutError' });
  await assert.rejects(asked(), { name: 'TimeoutError' });
  const ref = endless.ref();
  await assert.rejects(ref.get({ timeout: 10 }), { name: 'GetTimeoutError' });
  await node.cancel(ref);
  await assert.rejects(ref.get(), { name: 'TaskCancelledError' });
  await assert.rejects(node.run('for (;;);', { signal: AbortSignal.timeout(50) }), { name: 'TimeoutError' });
});

test('snippets', async () => {
  assert.deepEqual(await node.run('console.log("hi"); return a * b', { inputs: { a: 6, b: 7 } }), { value: 42, printed: 'hi\n' });
  assert.deepEqual((await node.run('await null; return [a]', { inputs: { a: await echo.ref({ x: 1 }).get() } })).value, [{ x: 1 }]);
  await assert.rejects(node.run('throw new RangeError("no")'), { name: 'RangeError', message: 'no' });
  await assert.rejects(node.run('return ('), { name: 'SyntaxError' });
  await assert.rejects(node.run('for (;;);', { timeLimit: 100 }), { name: 'LimitError' });
});

test('calls that are made before the interpreter is loaded keep their order', () => {
  const ran = program(`
    import { connect } from 'wasmrun';
    const node = await connect(process.env.ADDRESS);
    const add = node.remote(function add(a, b) { console.log('adds'); return a + b; });
    const one = add.ref(1, 0);
    const wrong = add.options({ cpu: 1 }).ref(1, 2).get().catch((error) => error.message);
    const three = add.ref(one, await node.put(2));
    const other = node.put('text').then((it) => it.get());
    one[Symbol.dispose]();
    console.log(await three.get(), await other, await wrong);
    await node.close();
  `);
  assert.match(ran.stdout, /^(\(add\) adds\n){2}3 text .*no option 'cpu'.*\n$/, ran.stderr);
  assert.equal(ran.status, 0);
});

test('`wasmrun submit` and `wasmrun run` run a file', () => {
  const env = { ...process.env, WASMRUN_ADDRESS: node.address };
  const submit = (name, command = 'submit') =>
    spawnSync('npx', ['wasmrun', command, '--quiet', file(name), '--', 'a', 'b c'], { env, encoding: 'utf8' });
  for (const command of ['submit', 'run']) {
    const ran = submit('app.ts', command);
    assert.deepEqual([ran.status, ran.stdout], [0, 'a+b c 2 42\n'], ran.stderr);
  }
  const thrown = submit('throws.ts');
  assert.equal(thrown.status, 1);
  // What is caught and printed, here and in a task, and what is not.
  assert.match(thrown.stderr, /Error: caught\n    at caught@tests\/programs\/throws\.ts:6:9\n/);
  assert.match(thrown.stderr, /TypeError: a task\n    at task@tests\/programs\/throws\.ts:10:9\n/);
  assert.match(thrown.stderr, /RangeError: not caught\nlast@tests\/programs\/throws\.ts:22:11\n/);
  assert.doesNotMatch(thrown.stderr, /bundle/);
  const missing = submit('nowhere.ts');
  assert.notEqual(missing.status, 0);
  assert.match(missing.stderr, /nowhere\.ts/);
});
