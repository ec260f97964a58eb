// The driver's side, over a driver that is none.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { here, load } from './modules.mjs';

const { DependencyError, Inside, JavaScriptError, TrapError } = await load('inside');
const { bundle } = await load('bundle');
const { read, write } = await load('data');
const nobody = () => undefined;
const data = (value) => ({ bytes: write(value, nobody), objects: [], actors: [] });

class Ref {
  constructor(result) {
    this.result = result;
  }
}
class Actor {}

function made(answer = () => ({ value: data(null), printed: '' })) {
  const asked = [];
  const driver = {
    call: (name, args, after, options) => (asked.push({ name, args, after, options }), new Ref(answer)),
    create: (args) => (asked.push({ name: 'create', args }), new Actor()),
    invoke: (actor, args) => (asked.push({ name: 'invoke', actor, args }), new Ref(answer)),
    store: (type, value) => new Ref(() => (type === 'data' ? value : undefined)),
    get: async (ref) => ref.result(),
    typed: (ref, type) => asked.push({ name: 'typed', ref, type }),
    kind: () => '',
    isRef: (value) => value instanceof Ref,
    isActor: (value) => value instanceof Actor,
  };
  const shown = [];
  return { inside: new Inside(driver, (...all) => shown.push(all)), asked, shown };
}

function thrown(error, told) {
  return () => {
    throw Object.assign(new Error('guest'), { payload: { class: 'Error', message: 'm', stack: 'f@x:1:2', details: data({ error, printed: 'before\u001b[2J\n' }), ...told } });
  };
}

test('a function goes as its text, with the names of the guest', async () => {
  const { inside, asked, shown } = made(() => ({ value: data({ x: [1n] }), printed: 'hello\n' }));
  const f = inside.remote(function work(n) { return get(n); }, { cpus: 2 });
  assert.deepEqual(await f(1), { x: [1n] });
  assert.deepEqual(shown, [['work', 'hello\n']]);
  const [{ name, args, options }] = asked;
  assert.equal(name, 'call');
  assert.match(args[0].val, /function work\(n\) { return get\(n\); }/);
  globalThis[Symbol.for('wasmrun/guest')] ??= {};
  assert.equal((0, eval)(`(function () {${args[0].val}\n})`)().work.name, 'work');
  assert.deepEqual([args[1], read(args[2].bytes, nobody)], ['work', [1]]);
  assert.deepEqual(options, { name: 'work', cpus: 2 });
});

test('references among the arguments are dependencies, and actors are handles', async () => {
  const { inside, asked } = made();
  const ref = await inside.put({ big: 1 });
  assert.deepEqual(await inside.value(ref), { big: 1 });
  const Counter = inside.remote(class Counter { add() {} _own() {} });
  const counter = await Counter.create(1);
  await counter.add(2);
  assert.throws(() => counter.remove, /no method 'remove'; it has add/);
  await inside.remote((a, b) => [a, b])(ref, [counter]);
  const { args, after } = asked.at(-1);
  assert.deepEqual(after, [ref]);
  assert.deepEqual([args[2].objects, args[2].actors.length], [[ref], 1]);
  assert.ok(args[2].actors[0] instanceof Actor);
});

test('what is no text of its own is refused', () => {
  const { inside } = made();
  for (const wrong of [{ f() {} }.f, Math.max, function () {}.bind()]) assert.throws(() => inside.remote(wrong), /no text of its own/);
  assert.throws(() => inside.remote(5), /functions and classes/);
});

test('what is thrown inside is thrown outside, as data', async () => {
  const { inside, shown } = made(thrown(Object.assign(new RangeError('far'), { code: 7 }), { class: 'RangeError' }));
  await assert.rejects(inside.remote(function f() {})(), (error) => error instanceof RangeError && error.code === 7 && /f@x:1:2 \(in the sandbox\)/.test(error.stack));
  assert.deepEqual(shown, [['f', 'before\\x1b[2J\n']]);
  const other = made(thrown('text', { class: 'string', message: 'text' })).inside;
  await assert.rejects(other.remote(() => 1)(), (error) => error instanceof JavaScriptError && error.cause === 'text');
  const dependency = made(() => {
    const cause = Object.assign(new Error('guest'), { payload: { class: 'RangeError', message: 'far', stack: '', details: data({ error: new RangeError('far') }) } });
    throw new DependencyError('argument 4', { cause });
  }).inside;
  await assert.rejects(dependency.remote(() => 1)(), (error) => error.message === 'argument 4' && error.cause instanceof RangeError);
  const unknown = made(thrown(new ReferenceError('x is not defined'), { class: 'ReferenceError' })).inside;
  await assert.rejects(unknown.remote(() => 1)(), /x is not defined: remote\(\) takes nothing along/);
  const ofNode = made(thrown(new ReferenceError('process is not defined'), { class: 'ReferenceError' })).inside;
  await assert.rejects(ofNode.run('return process.env'), { message: 'process is not defined: a sandbox has none' });
  const trap = () => {
    throw new TrapError('trapped');
  };
  await assert.rejects(made(trap).inside.run('await import("fs")'), /^TrapError: trapped; its import\(\) may be why/);
  await assert.rejects(made(trap).inside.remote(() => import('fs'))(), /its import\(\) may be why/);
  await assert.rejects(made(trap).inside.run('return important()'), { message: 'trapped' });
  const broken = made(thrown(null, { details: { bytes: new Uint8Array([1]), objects: [], actors: [] } })).inside;
  await assert.rejects(broken.remote(() => 1)(), /Error: m/);
  const hostile = made(() => ({ value: { bytes: new Uint8Array([0x52, 9, 0]), objects: [], actors: [] }, printed: '' })).inside;
  await assert.rejects(hostile.remote(() => 1)(), /no value: it names a handle/);
});

test('snippets have inputs, and give what they return', async () => {
  const { inside, asked } = made(() => ({ value: data(3), printed: 'p' }));
  assert.deepEqual(await inside.run('return a', { inputs: { a: 1 } }), { value: 3, printed: 'p' });
  assert.deepEqual(read(asked[0].args[1].bytes, nobody), { a: 1 });
  await assert.rejects(inside.run(() => 1), /a snippet is text/);
});

test('names of a program are functions and classes', async () => {
  const { inside, asked } = made();
  const app = await inside.program({ text: `return {}; //${'x'.repeat(3000)}`, map: '{}' });
  await app.square(3);
  await app.square.options({ cpus: 1 })(3);
  await (await app.Counter.create(0)).add(1);
  assert.deepEqual(asked.map((it) => it.name), ['call', 'call', 'create', 'invoke']);
  // What is long is stored, once.
  assert.equal(asked[0].args[0].tag, 'stored');
  assert.equal(asked[0].args[0].val, asked[2].args[0].val);
  assert.equal(await app, app);
});

test('places in a bundle are told as those of the sources', async () => {
  const program = await bundle(here('programs/hostile.ts'));
  const lines = program.text.split('\n');
  const row = lines.findIndex((it) => it.includes('nobody handles it')) + 1;
  const { inside } = made(thrown(new Error('x'), { stack: `rejected@hostile.ts.bundle:${row}:10\nother` }));
  const app = await inside.program(program);
  await assert.rejects(app.rejected(), (error) => /at rejected@.*hostile\.ts:7:\d+ \(in the sandbox\)\n    at other/.test(error.stack));
});
