// Values of JavaScript as data, outside sandboxes and inside.
//
// Owns the format, which is that of `python/wasmrun/_data.py` with three kinds more: a tag for each value, and its parts behind it.
// What a sandbox has made is only ever read as this: there is no code in it. Must not: use anything that only one of Node and
// SpiderMonkey has.

import { SHORT, decoded, encoded, release } from './text.js';

/** How deep values may be nested. */
export const MOST_NESTED = 200;
/** How much memory a value may take: so much, and so many times its bytes. */
const MEMORY_BYTES = 64 << 20;
const MEMORY_RATIO = 16;

/** What something is that stands for an object (`R`) or an actor (`H`): its number among the handles, and its kind. */
export type Handle = { tag: 'R' | 'H'; at: number; kind: string };

/** A value that cannot cross: the message says where it is and why. */
export class NotData extends TypeError {}

// By the letter of Python's `array` and `struct`.
const ARRAYS: [string, Function & { BYTES_PER_ELEMENT: number }][] = [
  ['b', Int8Array],
  ['h', Int16Array],
  ['H', Uint16Array],
  ['i', Int32Array],
  ['I', Uint32Array],
  ['q', BigInt64Array],
  ['Q', BigUint64Array],
  ['f', Float32Array],
  ['d', Float64Array],
  ['B', Uint8Array],
  ['?', Uint8Array],
];

// What each is called in Python.
const ERRORS: [ErrorConstructor, string][] = [
  [RangeError, 'ValueError'],
  [ReferenceError, 'NameError'],
  [SyntaxError, 'SyntaxError'],
  [TypeError, 'TypeError'],
  [EvalError, 'Exception'],
  [URIError, 'ValueError'],
  [Error, 'Exception'],
];

// Kinds of Python's that JavaScript has nothing for.
const OF_PYTHON: [string, string][] = [
  ['c', 'complex'],
  ['p', 'timedelta'],
  ['y', 'date'],
  ['h', 'time'],
  ['k', 'Decimal'],
  ['q', 'Fraction'],
  ['u', 'UUID'],
  ['L', 'collection of its library'],
  ['j', 'defaultdict'],
  ['o', 'dataclass'],
  ['x', 'enum'],
  ['X', 'flags'],
  ['n', 'named tuple'],
];

function isPlain(value: object): boolean {
  const proto = Object.getPrototypeOf(value);
  // Objects of other realms are plain, too.
  return proto === null || proto === Object.prototype || (Object.getPrototypeOf(proto) === null && Object.hasOwn(proto, 'valueOf'));
}

function className(value: object): string {
  try {
    const name = Object.getPrototypeOf(value)?.constructor?.name;
    return typeof name === 'string' && name ? name : 'Object';
  } catch {
    return 'Object';
  }
}

/** Writes one value. `ref` says what a handle is, if something is one. */
class Writer {
  private bytes: Uint8Array<ArrayBuffer>;
  private at = 0;
  private path: string[];
  private ref: (value: object) => Handle | undefined;

  constructor(ref: (value: object) => Handle | undefined, what: string, bytes = new Uint8Array(256)) {
    this.bytes = bytes;
    this.ref = ref;
    this.path = [what];
  }

  done(): Uint8Array {
    return new Uint8Array(this.bytes.buffer, 0, this.at);
  }

  private room(count: number): void {
    if (this.at + count <= this.bytes.length) return;
    const larger = new Uint8Array(Math.max(2 * this.bytes.length, this.at + count));
    larger.set(this.done());
    release(this.bytes);
    this.bytes = larger;
  }

  private byte(byte: number): void {
    if (this.at === this.bytes.length) this.room(1);
    this.bytes[this.at++] = byte;
  }

  private text(text: string): void {
    if (text.length <= SHORT) {
      const before = this.at;
      this.byte(text.length);
      let at = 0;
      for (let code; at < text.length && (code = text.charCodeAt(at)) < 128; at++) this.byte(code);
      if (at === text.length) return;
      this.at = before;
    }
    this.sized(encoded(text));
  }

  private tag(tag: string): void {
    this.byte(tag.charCodeAt(0));
  }

  private length(number: number): void {
    while (number > 127) {
      this.byte((number & 127) | 128);
      number = Math.floor(number / 128);
    }
    this.byte(number);
  }

  private raw(bytes: Uint8Array): void {
    this.room(bytes.length);
    this.bytes.set(bytes, this.at);
    this.at += bytes.length;
  }

  private sized(bytes: Uint8Array): void {
    this.length(bytes.length);
    this.raw(bytes);
  }

  private wrong(why: string): NotData {
    const path = this.path.length > 20 ? [...this.path.slice(0, 6), '…'] : this.path;
    return new NotData(`${path.join('')}: ${why}`);
  }

  value(value: unknown): void {
    switch (typeof value) {
      case 'undefined':
        return this.tag('U');
      case 'boolean':
        return this.tag(value ? 'T' : 'F');
      case 'number':
        return this.number(value);
      case 'bigint':
        this.tag('I');
        return this.integer(value);
      case 'string':
        this.tag('s');
        return this.text(value);
      case 'object':
        return value === null ? this.tag('N') : this.object(value);
      default: {
        const name = typeof value === 'function' && value.name ? ` ${value.name}` : '';
        throw this.wrong(`a ${typeof value}${name} cannot cross into or out of a sandbox: it is no data`);
      }
    }
  }

  private number(value: number): void {
    if (Number.isSafeInteger(value) && !Object.is(value, -0)) {
      this.tag('i');
      let length = 1;
      for (let most = 128; length < 7 && (value < -most || value >= most); most *= 256) length++;
      this.length(length);
      for (; length > 0; length--) {
        this.byte(value & 255);
        value = Math.floor(value / 256);
      }
    } else {
      this.tag('f');
      // Little-endian, as every machine that WebAssembly or Node runs on.
      this.raw(new Uint8Array(new Float64Array([value]).buffer));
    }
  }

  private integer(value: bigint): void {
    const length = (value < 0n ? -value : value).toString(16).length / 2 + 1;
    const bytes = new Uint8Array(Math.floor(length));
    const digits = BigInt.asUintN(8 * bytes.length, value).toString(16).padStart(2 * bytes.length, '0');
    for (let at = 0; at < bytes.length; at++) {
      const end = digits.length - 2 * at;
      bytes[at] = parseInt(digits.slice(end - 2, end), 16);
    }
    this.sized(bytes);
  }

  private object(value: object): void {
    const ref = this.ref(value);
    if (ref !== undefined) {
      this.tag(ref.tag);
      this.length(ref.at);
      this.text(ref.kind);
    } else if (Array.isArray(value)) {
      this.tag('l');
      this.enter(value.length);
      for (let at = 0; at < value.length; at++) this.part(`[${at}]`, value[at]);
    } else if (ArrayBuffer.isView(value)) {
      this.view(value);
    } else if (value instanceof Map) {
      this.tag('M');
      this.enter(value.size);
      value.forEach((of, key) => {
        this.part('[a key]', key);
        this.part(typeof key === 'object' ? '[…]' : `[${String(key)}]`, of);
      });
    } else if (value instanceof Set) {
      this.tag('S');
      this.enter(value.size);
      value.forEach((of) => this.part('[a member]', of));
    } else if (value instanceof Date) {
      const since = value.getTime();
      if (Number.isNaN(since)) throw this.wrong('a Date that is none cannot cross');
      this.tag('D');
      this.tag('i');
      // In microseconds, which may be more than a number can hold.
      this.integer(BigInt(since) * 1000n);
      this.number(0);
    } else if (value instanceof Error) {
      this.error(value);
    } else if (isPlain(value)) {
      const keys = Object.keys(value);
      this.tag('d');
      this.enter(keys.length);
      for (let at = 0; at < keys.length; at++) {
        const key = keys[at]!;
        this.tag('s');
        this.text(key);
        this.part(`.${key}`, (value as any)[key]);
      }
    } else {
      throw this.wrong(
        `a ${className(value)} cannot cross into or out of a sandbox: null, undefined, booleans, numbers, BigInts, text, arrays, ` +
          'plain objects, Map, Set, Date, Error, typed arrays and references can',
      );
    }
  }

  private enter(count: number): void {
    if (this.path.length > MOST_NESTED) throw this.wrong('it is nested too deep, or contains itself');
    this.length(count);
  }

  private part(name: string, value: unknown): void {
    this.path.push(name);
    this.value(value);
    this.path.pop();
  }

  private view(value: ArrayBufferView): void {
    const bytes = new Uint8Array(value.buffer, value.byteOffset, value.byteLength);
    const name: string = (value as any)[Symbol.toStringTag];
    if (name === 'Uint8Array') {
      this.tag('b');
      return this.sized(bytes);
    }
    const found = ARRAYS.find(([, made]) => made.name === name);
    if (found === undefined) throw this.wrong(`a ${name} cannot cross: make one of the other typed arrays of it`);
    this.tag('A');
    this.tag(found[0]);
    this.length(1);
    this.length(bytes.length / found[1].BYTES_PER_ELEMENT);
    this.raw(bytes);
  }

  /** With the names of its classes, down to one that Python has, and the properties that can cross. */
  private error(value: Error): void {
    const names: [string, string][] = [];
    // Its name says what it is of: `TimeoutError`, `AbortError`.
    if (value instanceof DOMException) names.push(['javascript', value.name]);
    for (let of = Object.getPrototypeOf(value); of !== null && names.length < 60; of = Object.getPrototypeOf(of)) {
      const name = of.constructor?.name;
      if (typeof name !== 'string') break;
      names.push(['javascript', name]);
      const known = ERRORS.find(([made]) => made.name === name);
      if (known !== undefined) {
        names.push(['builtins', known[1]]);
        break;
      }
    }
    this.tag('E');
    this.length(names.length);
    for (let at = 0; at < names.length; at++) {
      this.text(names[at]![0]);
      this.text(names[at]![1]);
    }
    this.tag('t');
    this.length(1);
    this.value(String(value.message));
    const written: [string, Uint8Array][] = [];
    const keys = [...Object.keys(value), ...['cause', 'errors'].filter((it) => Object.hasOwn(value, it))];
    for (const key of new Set(keys)) {
      const of = new Writer(this.ref, '');
      of.path = [...this.path, `.${key}`];
      try {
        of.value((value as any)[key]);
        written.push([key, of.done()]);
      } catch {
        // The error is there in any case.
      }
    }
    this.enter(written.length);
    for (const [key, bytes] of written) {
      this.text(key);
      this.raw(bytes);
    }
  }
}

let spare: Uint8Array<ArrayBuffer> | undefined = new Uint8Array(1024);

/** A value as bytes. `NotData` says what cannot cross, and where it is in `what`. */
export function write(value: unknown, ref: (value: object) => Handle | undefined, what = 'value'): Uint8Array {
  // Most values are small: they are written to the same place and copied once. A getter may write another meanwhile.
  const bytes = spare ?? new Uint8Array(1024);
  spare = undefined;
  try {
    const to = new Writer(ref, what, bytes);
    to.value(value);
    const written = to.done();
    return written.buffer === bytes.buffer ? new Uint8Array(written) : written;
  } finally {
    spare = bytes;
  }
}

/** What goes wrong where bytes are no value. */
export class NoValue extends Error {}

/** Reads one value. `handle` makes what stands for an object or an actor. */
class Reader {
  private bytes: Uint8Array;
  private at = 0;
  private memory: number;
  private depth = 0;
  private handle: (of: Handle) => unknown;

  constructor(bytes: Uint8Array, handle: (of: Handle) => unknown) {
    this.bytes = bytes;
    this.memory = MEMORY_BYTES + MEMORY_RATIO * bytes.length;
    this.handle = handle;
  }

  whole(): unknown {
    if (this.bytes[0] === 0x50) {
      // Python's programs with the classes of the value: of them nothing is for us.
      this.byte();
      const count = this.take(2);
      this.take(4 * (count[0]! + 256 * count[1]!));
    }
    const value = this.value();
    if (this.at !== this.bytes.length) throw new NoValue('there is more than one value');
    return value;
  }

  private take(count: number): Uint8Array {
    const end = this.at + count;
    if (end > this.bytes.length) throw new NoValue('the value is cut off');
    const taken = this.bytes.subarray(this.at, end);
    this.at = end;
    return taken;
  }

  private byte(): number {
    if (this.at === this.bytes.length) throw new NoValue('the value is cut off');
    return this.bytes[this.at++]!;
  }

  /** What takes much more memory than bytes. */
  private charge(memory: number): void {
    this.memory -= memory;
    if (this.memory < 0) throw new NoValue(`it would take more than ${MEMORY_RATIO} times its bytes of memory`);
  }

  private number(): number {
    let number = 0;
    for (let scale = 1; ; scale *= 128) {
      const byte = this.byte();
      number += (byte & 127) * scale;
      if (number > Number.MAX_SAFE_INTEGER) throw new NoValue('a length has too many bytes');
      if (byte < 128) return number;
    }
  }

  private text(): string {
    const end = this.number() + this.at;
    if (end > this.bytes.length) throw new NoValue('the value is cut off');
    const text = decoded(this.bytes, this.at, end);
    this.at = end;
    return text;
  }

  /** How many follow, each of a byte at least. */
  private count(memory: number): number {
    const count = this.number();
    if (count > this.bytes.length - this.at) throw new NoValue('the value is cut off');
    this.charge(64 + memory * count);
    return count;
  }

  private all(): unknown[] {
    const count = this.count(16);
    const all: unknown[] = [];
    for (let at = 0; at < count; at++) all.push(this.value());
    return all;
  }

  private value(): unknown {
    if (++this.depth > 2 * MOST_NESTED) throw new NoValue('the value is nested too deep');
    const value = this.tagged(String.fromCharCode(this.byte()));
    this.depth--;
    return value;
  }

  private tagged(tag: string): unknown {
    switch (tag) {
      case 'N':
        return null;
      case 'U':
        return undefined;
      case 'T':
        return true;
      case 'F':
        return false;
      case 'i':
        return this.integer();
      case 'I':
        return BigInt(this.integer());
      case 'f':
        return new Float64Array(new Uint8Array(this.take(8)).buffer)[0];
      case 's':
        return this.text();
      case 'b':
      case 'B':
        return new Uint8Array(this.take(this.number()));
      case 'A':
        return this.array();
      case 'l':
      case 't':
        return this.all();
      case 'S':
      case 'Z':
        this.charge(160);
        return new Set(this.all());
      case 'M':
        return new Map(this.pairs());
      case 'd':
        return this.dictionary();
      case 'D':
        return this.date();
      case 'E':
        return this.error();
      case 'R':
      case 'H':
        this.charge(200);
        return this.handle({ tag, at: this.number(), kind: this.text() });
    }
    const name = OF_PYTHON.find(([of]) => of === tag)?.[1];
    if (name !== undefined) throw new NoValue(`JavaScript has nothing for a ${name} of Python: pass numbers or text`);
    throw new NoValue(`there is no value of kind ${tag.charCodeAt(0)}`);
  }

  private integer(): number | bigint {
    const length = this.number();
    // More may be more than a number holds.
    if (length > 6) return this.large(this.take(length));
    let value = 0;
    let scale = 1;
    let byte = 0;
    for (let left = length; left > 0; left--) {
      byte = this.byte();
      value += byte * scale;
      scale *= 256;
    }
    return byte > 127 ? value - scale : value;
  }

  private large(bytes: Uint8Array): number | bigint {
    let digits = '0x';
    for (let at = bytes.length - 1; at >= 0; at--) digits += (bytes[at]! + 256).toString(16).slice(1);
    this.charge(4 * digits.length);
    const value = BigInt.asIntN(8 * bytes.length, BigInt(digits));
    return Number.isSafeInteger(Number(value)) ? Number(value) : value;
  }

  private array(): unknown {
    const kind = String.fromCharCode(this.byte());
    const found = ARRAYS.find(([of]) => of === kind);
    if (found === undefined) throw new NoValue(`there are no buffers of '${kind}'`);
    if (this.number() !== 1) throw new NoValue('JavaScript has nothing for a buffer of several dimensions: pass it flat');
    const made: any = found[1];
    this.charge(512);
    const bytes = this.take(made.BYTES_PER_ELEMENT * this.number());
    return new made(new Uint8Array(bytes).buffer);
  }

  private pairs(): [unknown, unknown][] {
    const count = this.count(128);
    const pairs: [unknown, unknown][] = [];
    for (let at = 0; at < count; at++) pairs.push([this.value(), this.value()]);
    return pairs;
  }

  /** An object where all keys are text. */
  private dictionary(): unknown {
    const pairs = this.pairs();
    const made = {};
    for (let at = 0; at < pairs.length; at++) {
      const key = pairs[at]![0];
      if (typeof key !== 'string') return new Map(pairs);
      property(made, key, pairs[at]![1]);
    }
    return made;
  }

  private date(): Date {
    this.charge(100);
    const [since, zone] = [this.value(), this.value()];
    if ((typeof since !== 'number' && typeof since !== 'bigint') || (zone !== null && typeof zone !== 'number' && zone !== true)) {
      throw new NoValue('there is no such date');
    }
    const whole = BigInt(since);
    return new Date(Number((whole - (((whole % 1000n) + 1000n) % 1000n)) / 1000n));
  }

  private error(): Error {
    this.charge(2000);
    let made: ErrorConstructor | undefined;
    let first = '';
    const count = this.count(16);
    for (let at = 0; at < count; at++) {
      const [home, name] = [this.text(), this.text()];
      if (at === 0) first = name;
      if (home === 'javascript') made ??= ERRORS.find(([it]) => it.name === name)?.[0];
    }
    const args = this.value();
    const told = Array.isArray(args) ? args.map(String).join(', ') : '';
    const error = new (made ?? Error)(told);
    if (error.name !== first) property(error, 'name', first, false);
    const attributes = this.count(64);
    for (let at = 0; at < attributes; at++) {
      const [key, value] = [this.text(), this.value()];
      if (key !== 'stack' && key !== 'message' && key !== 'name') property(error, key, value, key !== 'cause' && key !== 'errors');
    }
    return error;
  }
}

/** Past setters, such as that of `__proto__`. */
function property(of: object, key: string, value: unknown, enumerable = true): void {
  Object.defineProperty(of, key, { value, writable: true, enumerable, configurable: true });
}

/** The value of these bytes; `NoValue` if they are none. */
export function read(bytes: Uint8Array, handle: (of: Handle) => unknown): unknown {
  try {
    return new Reader(bytes, handle).whole();
  } catch (error) {
    if (error instanceof NoValue) throw error;
    throw new NoValue(String((error as any)?.message ?? error));
  }
}
