// Values as data: there and back, to Python and from it, and bytes that are none.

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { test } from 'node:test';

import { here, load } from './modules.mjs';

const { NoValue, NotData, read, write } = await load('data');
const nobody = () => undefined;
const back = (value) => read(write(value, nobody), nobody);
const bytes = (...all) => new Uint8Array(all);

class Custom extends TypeError {}

test('values come back as they were', () => {
  const same = [
    undefined, null, true, false, 0, 1, -1, 127, 128, -128, -129, 2 ** 31, -(2 ** 47), 2 ** 53 - 1, -(2 ** 53 - 1), 2 ** 53, 1e300, 1.5,
    -0, NaN, Infinity, 0n, 5n, -1n, 127n, 128n, -128n, -129n, 2n ** 64n, -(2n ** 70n), '', 'text', 'ä€😀', '\ud800', 'x\udc00y\ud83d', 'x'.repeat(1000),
    [], [1, [2, [null]]], {}, { a: { b: undefined } }, new Map([[1, 'a'], [{ k: 1 }, new Set([1, 'x'])]]), new Set(), new Date(0),
    new Date(-1), new Date(8.64e15), new Date(-8.64e15), bytes(1, 2), new Float64Array([1.5, NaN]), new BigInt64Array([-1n]), new Int16Array([-2]),
  ];
  for (const value of same) assert.deepStrictEqual(back(value), value);
});

test('what is special in objects stays data', () => {
  const made = back(JSON.parse('{"__proto__": {"evil": 1}, "then": 1, "constructor": 2}'));
  assert.equal(Object.getPrototypeOf(made), Object.prototype);
  assert.deepEqual(Object.keys(made), ['__proto__', 'then', 'constructor']);
  assert.equal(made.evil, undefined);
  assert.deepEqual(back(Object.assign(Object.create(null), { x: 1 })), { x: 1 });
  assert.deepEqual(back([, 1]), [undefined, 1]);
  assert.deepEqual(back(Buffer.from('ab')), bytes(97, 98));
});

test('errors keep their class, and what they have of data', () => {
  const error = Object.assign(new RangeError('far', { cause: [1] }), { code: 7, run: () => 1 });
  const made = back(error);
  assert.ok(made instanceof RangeError);
  assert.deepEqual([made.message, made.cause, made.code, made.run], ['far', [1], 7, undefined]);
  const custom = back(new Custom('c'));
  assert.ok(custom instanceof TypeError && !(custom instanceof Custom));
  assert.equal(custom.name, 'Custom');
  assert.equal(back(AbortSignal.abort().reason).name, 'AbortError');
  assert.deepEqual(back(new AggregateError([new Error('a')], 'all')).errors[0].message, 'a');
});

test('what is no data is refused, and it is said where', () => {
  const circle = {};
  circle.self = circle;
  const refused = [
    [() => 1, /^x: a function .*no data/], [{ a: [function named() {}] }, /^x\.a\[0\]: a function named/], [Symbol('s'), /symbol/],
    [circle, /^x(\.self){5}…: it is nested too deep, or contains itself/], [new Custom('x').constructor, /function Custom/],
    [new (class Point {})(), /a Point cannot cross/], [new WeakMap(), /WeakMap/], [Promise.resolve(), /Promise/], [/x/, /RegExp/],
    [new Date(NaN), /Date that is none/], [new DataView(new ArrayBuffer(1)), /DataView/], [new Map([[{}, () => 1]]), /^x\[…\]: a function/],
  ];
  for (const [value, why] of refused) {
    assert.throws(() => write(value, nobody, 'x'), (error) => error instanceof NotData && why.test(error.message), String(why));
  }
});

test('a getter that writes another value harms none', () => {
  const value = { first: 1, get second() { return write([1, 2, 3], nobody).length; }, third: 'x' };
  assert.deepEqual(back(value), { first: 1, second: 11, third: 'x' });
});

test('bytes that are no value are an error', () => {
  const all = write({ a: [1, 2.5, 'text', 5n, new Date(0), new Set([1]), new Error('x'), new Float64Array(2)] }, nobody);
  for (let end = 0; end < all.length; end++) assert.throws(() => read(all.subarray(0, end), nobody), NoValue);
  const wrong = [
    bytes(0x7a), bytes(...all, 0), bytes(0x6c, 255, 255, 255, 255, 15), bytes(0x73, 1, 0xff), bytes(0x73, 3, 0xed, 0xa0, 0x20), bytes(0x41, 0x7a, 1, 0),
    bytes(0x41, 0x64, 2, 0, 0), bytes(0x44, 0x4e, 0x4e), bytes(0x63, ...Array(16).fill(0)), bytes(...Array.from({ length: 1000 }, (_, at) => (at % 2 ? 1 : 0x6c)), 0x4e),
    bytes(0x73, ...Array(12).fill(255)),
  ];
  for (const value of wrong) assert.throws(() => read(value, nobody), NoValue, String(value));
});

test('a value may not take much more memory than bytes', () => {
  const many = new Uint8Array(4 << 20);
  many.set([0x6c, 0xfb, 0xff, 0xff, 0x01]);
  for (let at = 5; at + 2 <= many.length; at += 2) many.set([0x64, 0], at);
  assert.throws(() => read(many, nobody), /times its bytes of memory|cut off/);
});

// What each is in Python, by its `repr`, and what comes back.
const CROSSING = [
  [null, 'None'], [undefined, 'None', null], [true, 'True'], [5, '5'], [-300, '-300'], [1.5, '1.5'], [2 ** 53, '9007199254740992.0'], [-0, '-0.0'],
  [7n, '7', 7], [2n ** 80n, '1208925819614629174706176'], ['ä\ud800', "'ä\\ud800'"], [bytes(1, 2), "b'\\x01\\x02'"], [[1, 'x'], "[1, 'x']"],
  [{ a: 1 }, "{'a': 1}"], [new Map([[1, 2]]), '{1: 2}'], [new Set([1]), '{1}'],
  [new Date(1e12 + 1), 'datetime.datetime(2001, 9, 9, 1, 46, 40, 1000, tzinfo=datetime.timezone.utc)'],
  [new Float64Array([1.5]), '[1.5]'], [new TypeError('t'), "TypeError('t')"], [new RangeError('r'), "ValueError('r')"], [new Custom('c'), "TypeError('c')"],
];

test('Python reads what JavaScript writes, and JavaScript what Python does', { skip: spawnSync('python3', ['-c', 'import sys; sys.exit(sys.version_info < (3, 11))']).status !== 0 }, () => {
  const code = `
import builtins, importlib.util, sys, types
package = types.ModuleType("wasmrun")
package.__path__ = []
spec = importlib.util.spec_from_file_location("wasmrun._data", sys.argv[1])
data = importlib.util.module_from_spec(spec)
spec.loader.exec_module(data)
def find(module, name, _):
    if module != "builtins":
        raise ValueError(module)
    return getattr(builtins, name)
for line in sys.stdin:
    value = data.Reader(bytes.fromhex(line), None, find, lambda kind, shape, it: list(it.cast(kind))).read()
    print(ascii(value) if isinstance(value, str) else repr(value))
    print(data.Writer(lambda _: None, lambda cls: (cls.__module__, cls.__qualname__)).write(value).hex())
`;
  const input = CROSSING.map(([value]) => `${Buffer.from(write(value, nobody)).toString('hex')}\n`).join('');
  const { stdout, stderr, status } = spawnSync('python3', ['-c', code, here('../../../python/wasmrun/_data.py')], { input, encoding: 'utf8', env: { ...process.env, PYTHONIOENCODING: 'utf8' } });
  assert.equal(status, 0, stderr);
  const lines = stdout.trimEnd().split('\n');
  CROSSING.forEach(([value, repr, again = value], at) => {
    assert.equal(lines[2 * at].replace('\\xe4', 'ä'), repr);
    const got = read(Buffer.from(lines[2 * at + 1], 'hex'), nobody);
    if (value instanceof Error) assert.equal(got.message, value.message);
    else if (ArrayBuffer.isView(value) && !(value instanceof Uint8Array)) assert.deepEqual(got, [...value]);
    else assert.deepStrictEqual(got, again);
  });
});
