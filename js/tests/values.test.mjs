/** Values by their WIT types, there and back, and what does not fit. */

import assert from 'node:assert/strict';
import { test } from 'node:test';
import vm from 'node:vm';

import { Ref } from 'wasmrun';

import { fixture, graph, node } from './session.mjs';

const some = (val) => ({ tag: 'some', val });
const ok = (val) => ({ tag: 'ok', val });
const err = (val) => ({ tag: 'err', val });

const same = {
  echoBool: [true, false],
  echoU8: [0, 255],
  echoU16: [0, 65_535],
  echoU32: [0, 2 ** 31, 2 ** 32 - 1],
  echoU64: [0n, 127n, 128n, 2n ** 32n, 2n ** 53n + 1n, 2n ** 64n - 1n],
  echoS8: [-128, -1, 127],
  echoS16: [-32_768, -1, 32_767],
  echoS32: [-(2 ** 31), -1, 2 ** 31 - 1],
  echoS64: [-(2n ** 63n), -1n, 0n, 2n ** 63n - 1n],
  echoF32: [0.5, -0, Infinity, NaN],
  echoF64: [0.1, -Infinity, NaN, 2 ** 53],
  echoChar: ['a', 'ü', '🦀'],
  echoString: ['', 'Grüße 🦀', 'a'.repeat(47), 'a'.repeat(48), `${'a'.repeat(46)}ü`, 'ü'.repeat(50_000)],
  echoBytes: [new Uint8Array(), new Uint8Array([0, 255]), new Uint8Array(70_000).fill(7)],
  echoListS32: [new Int32Array([1, -2, 3]), new Int32Array()],
  echoListF64: [new Float64Array([0.5, NaN]), new Float64Array(20_000).fill(1.5)],
  echoListString: [[], ['a', '']],
  echoListRecord: [[{ x: 1, y: -1 }]],
  echoListOption: [[1, undefined, 2]],
  echoListResult: [[ok(1), err('no')]],
  echoMatrix: [[new Uint16Array([1, 300, 65_535]), new Uint16Array()]],
  echoTuple: [[1, 'a', true]],
  echoOption: [undefined, 'a'],
  echoOptionOption: [{ tag: 'none' }, some(undefined), some(1)],
  echoRecord: [{ x: 1.5, y: -2 }],
  echoPerson: [
    {
      fullName: 'Ada',
      age: 36,
      home: { x: 1, y: 2 },
      tags: ['a'],
      role: 'site-admin',
      rights: { read: true, write: false, runJobs: true },
    },
  ],
  echoEnum: ['guest', 'member', 'site-admin'],
  echoFlags: [{ read: false, write: true, runJobs: false }],
  echoVariant: [{ tag: 'empty' }, { tag: 'circle', val: 2 }, { tag: 'named', val: ['a', { x: 0, y: 1 }] }],
  echoNested: [[['a', [{ tag: 'empty' }, { tag: 'polygon', val: [{ x: 1, y: 1 }] }]], ['b', undefined]]],
};

for (const [name, values] of Object.entries(same)) {
  test(`${name} gives what it is given`, async () => {
    for (const value of values) assert.deepEqual(await fixture[name](value), value);
  });
}

test('what else may be given', async () => {
  assert.equal(await fixture.echoU64(5), 5n);
  assert.equal(await fixture.echoOption(null), undefined);
  assert.equal(await fixture.echoOption(), undefined);
  assert.deepEqual(await fixture.echoListS32([1, -2]), new Int32Array([1, -2]));
  assert.deepEqual(await fixture.echoBytes(Buffer.from('ab')), new Uint8Array([97, 98]));
  assert.deepEqual(await fixture.echoBytes(new Uint8Array([1, 2]).buffer), new Uint8Array([1, 2]));
  assert.deepEqual(await fixture.echoListF64(new Float64Array([1, 2, 3]).subarray(1)), new Float64Array([2, 3]));
  assert.deepEqual(await fixture.echoBytes(new Uint8Array(new SharedArrayBuffer(2))), new Uint8Array(2));
  // Of another realm.
  assert.deepEqual(await fixture.echoListF64(vm.runInNewContext('new Float64Array([1])')), new Float64Array([1]));
  assert.deepEqual(await fixture.echoFlags({ write: true }), { read: false, write: true, runJobs: false });
});

test('objects of any prototype are records', async () => {
  class Point {
    get x() {
      return 1;
    }
    y = 2;
  }
  const bare = Object.assign(Object.create(null), { x: 1, y: 2 });
  for (const given of [new Point(), bare]) {
    const got = await fixture.echoRecord(given);
    assert.deepEqual(got, { x: 1, y: 2 });
    assert.equal(Object.getPrototypeOf(got), Object.prototype);
  }
});

test('a result of a function is its value, or thrown', async () => {
  assert.equal(await fixture.echoResult(ok(1)), 1);
  await assert.rejects(fixture.echoResult(err('no')), { name: 'GuestError', payload: 'no' });
  assert.equal(await fixture.echoResultEmpty(ok()), undefined);
  await assert.rejects(fixture.echoResultEmpty(err()), { name: 'GuestError', payload: undefined });
});

const misfits = [
  ['echoU8', 256, 'expected number of 0 to 255 (u8), got 256'],
  ['echoU8', 1.5, '(u8), got 1.5'],
  ['echoU8', 1n, '(u8), got 1n'],
  ['echoU8', true, '(u8), got boolean'],
  ['echoU64', 2 ** 53, '(u64), got 9007199254740992, which is beyond 2^53 and so not exact: give a bigint'],
  ['echoU64', -1n, '(u64), got -1n'],
  ['echoS64', 2n ** 64n, '(s64), got 18446744073709551616n'],
  ['echoF32', 1e300, '(f32), got 1e+300'],
  ['echoF64', '1', "expected number (f64), got string '1'"],
  ['echoBool', 1, 'expected boolean (bool), got 1'],
  ['echoString', 1, 'expected string, got 1'],
  ['echoString', 'a\ud800', 'a lone surrogate'],
  ['echoChar', 'ab', 'a string of one character (char)'],
  ['echoChar', '\udc00', 'a string of one character (char)'],
  ['echoBytes', 'text', "expected Uint8Array or an array of numbers (list<u8>), got string 'text'"],
  ['echoListS32', [1, 'x'], "[1]: expected number of -2147483648 to 2147483647 (s32), got string 'x'"],
  ['echoListS32', new Float64Array(1), '(list<s32>), got Float64Array'],
  ['echoListS32', new Array(2 ** 32 - 1), 'more items than fit into a sandbox'],
  ['echoListString', 'abc', 'expected an array (list<string>)'],
  ['echoTuple', [1, 'a'], 'expected an array of 3 (tuple<u8, string, bool>), got an array of 2'],
  ['echoOptionOption', 1, "{ tag: 'none' } or { tag: 'some', val }"],
  ['echoEnum', 'nobody', 'expected one of guest, member, site-admin (enum)'],
  ['echoEnum', 'toString', 'expected one of guest'],
  ['echoFlags', ['read'], 'an object of booleans (flags { read, write, runJobs })'],
  ['echoFlags', { nothing: true }, "there is no flag 'nothing'"],
  ['echoRecord', { x: 1 }, '.y: expected number'],
  ['echoRecord', null, 'expected an object (record { x: f32, y: f32 }), got null'],
  ['echoPerson', { fullName: 'a', age: 1, home: { x: 0, y: 'a' } }, ".home.y: expected number of"],
  ['echoVariant', 'circle', 'expected { tag, val }'],
  ['echoVariant', { tag: 'constructor' }, 'expected a tag of empty, circle, polygon, named'],
  ['echoVariant', { tag: 'empty', val: 1 }, '.val: it has no value here'],
];

for (const [name, value, says] of misfits) {
  test(`${name} does not take what does not fit: ${says}`, async () => {
    const refused = (error) => {
      assert(error instanceof TypeError);
      return error.message.startsWith(`${name}() argument v`) && error.message.includes(says);
    };
    await assert.rejects(fixture[name](value), refused);
    assert.throws(() => fixture[name].ref(value), refused);
  });
}

test('code of a value that throws is told', async () => {
  const cause = new Error('no');
  const given = {
    get x() {
      throw cause;
    },
  };
  await assert.rejects(fixture.echoRecord(given), { name: 'TypeError', message: /v\.x: it cannot be read/, cause });
  // What was written before it is not sent.
  assert.equal(await fixture.echoU8(1), 1);
});

test('arguments are counted', async () => {
  await assert.rejects(fixture.join('a'), { name: 'TypeError', message: /misses the argument times \(u32\)/ });
  await assert.rejects(fixture.noop(1), { name: 'TypeError', message: /takes 0 arguments/ });
  assert.equal(typeof (await fixture.join('a', 2)), 'string');
});

test('a stored list is not copied, and is its own when it is written to', async () => {
  const numbers = Float64Array.from({ length: 1 << 20 }, (_, at) => at);
  const stored = await node.put(numbers);
  const [one, other] = await Promise.all([stored.get(), stored.get()]);
  assert.deepEqual(one, numbers);
  one[0] = -1;
  assert.equal(other[0], 0);
  assert.equal((await stored.get())[0], 0);
  const sum = await graph.sumCopied(await node.put(new Uint8Array(1 << 20).fill(1)));
  assert.equal(sum, 1n << 20n);
});

test('what is given may be changed at once', async () => {
  const bytes = new Uint8Array(100_000).fill(1);
  const given = [fixture.echoBytes(bytes), node.put(bytes)];
  bytes.fill(2);
  assert.equal((await given[0])[99_999], 1);
  assert.equal((await (await given[1]).get())[99_999], 1);
});

test('puts', async () => {
  assert.equal(await (await node.put('text')).get(), 'text');
  const person = same.echoPerson[0];
  const stored = await fixture.echoPerson.put('v', person);
  assert.deepEqual(await fixture.echoPerson(stored), person);
  await assert.rejects(node.put(() => 1), { name: 'TypeError', message: /put\(\) argument: a function cannot cross/ });
  await assert.rejects(fixture.echoPerson.put('w', person), { name: 'TypeError', message: /no parameter 'w'; it has v/ });
  // A stored result is a value: nothing throws.
  for (const result of [ok(7), err('abc')]) {
    const at = await fixture.echoResult.put('v', result);
    assert.deepEqual(await at.get(), result);
  }
});

test('a getter of an argument cannot call', async () => {
  let inner;
  const value = {
    x: 1,
    get y() {
      inner = fixture.echoU32(5).catch((error) => error.message);
      return 2;
    },
  };
  assert.deepEqual(await fixture.echoRecord(value), { x: 1, y: 2 });
  assert.match(await inner, /a getter of an argument calls wasmrun/);
});

test('handles in values', async () => {
  // It is not with the node yet when the next is made.
  const given = await graph.passOn(graph.add.ref(1n, 2n));
  assert(given instanceof Ref);
  assert.equal(await given.get(), 3n);
  for (const value of [new Uint8Array([1, 2]), new Float64Array()]) {
    const again = await graph.passOn(await node.put(value));
    assert.deepEqual(await again.get(), value);
  }
});
