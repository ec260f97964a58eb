/** Numbers, and lists of them: typed arrays. */

import { Misfit, inside, misfit } from './misfit.js';
import type { Codec } from './codec.js';
import type { Packet } from './packet.js';
import type { Reader } from './mail.js';

export type TypedArray =
  | Uint8Array
  | Int8Array
  | Uint16Array
  | Int16Array
  | Uint32Array
  | Int32Array
  | BigUint64Array
  | BigInt64Array
  | Float32Array
  | Float64Array;

interface ArrayClass {
  new (length: number): TypedArray;
  new (buffer: ArrayBufferLike, at?: number, length?: number): TypedArray;
  readonly BYTES_PER_ELEMENT: number;
  readonly name: string;
}

/** A kind of numbers. */
export interface Kind {
  readonly wit: string;
  /** Its place in the order that the compiled part has them in. */
  readonly index: number;
  readonly array: ArrayClass;
  /** The number, as it is in a typed array; throws if it is none. */
  check(value: unknown): number | bigint;
  write(to: Packet, value: number | bigint): void;
  read(from: Reader): number | bigint;
}

/** What a sandbox can address, in bytes. */
const MOST_BYTES = 2 ** 32;

function whole(wit: string, from: number, to: number) {
  const expected = `number of ${from} to ${to} (${wit})`;
  return (value: unknown): number => {
    if (typeof value !== 'number' || !Number.isInteger(value) || value < from || value > to) {
      throw misfit(expected, value);
    }
    return value;
  };
}

/** A bigint, or a number that stands for just one. */
function long(wit: string, from: bigint, to: bigint) {
  const expected = `bigint of ${from} to ${to} (${wit})`;
  return (value: unknown): bigint => {
    if (typeof value === 'number') {
      if (!Number.isSafeInteger(value)) {
        if (!Number.isInteger(value)) throw misfit(expected, value);
        throw new Misfit(`expected ${expected}, got ${value}, which is beyond 2^53 and so not exact: give a bigint`);
      }
      value = BigInt(value);
    }
    if (typeof value !== 'bigint' || value < from || value > to) throw misfit(expected, value);
    return value;
  };
}

function float(wit: string, expected: string) {
  const isNarrow = wit === 'f32';
  return (value: unknown): number => {
    if (typeof value !== 'number') throw misfit(expected, value);
    if (isNarrow && Number.isFinite(value) && !Number.isFinite(Math.fround(value))) throw misfit(expected, value);
    return value;
  };
}

const zigzag = (value: number) => ((value << 1) ^ (value >> 31)) >>> 0;
const unzigzag = (value: number) => (value >>> 1) ^ -(value & 1);
const zigzag64 = (value: bigint) => BigInt.asUintN(64, (value << 1n) ^ (value >> 63n));
const unzigzag64 = (value: bigint) => BigInt.asIntN(64, (value >> 1n) ^ -(value & 1n));

type Parts = Omit<Kind, 'index'>;
const array = (it: unknown) => it as ArrayClass;
const byte = (to: Packet, value: number | bigint) => to.u8(Number(value) & 255);
const varint = (to: Packet, value: number | bigint) => to.varint(value as number);
const signed = (to: Packet, value: number | bigint) => to.varint(zigzag(value as number));
const readVarint = (from: Reader) => from.varint();
const readSigned = (from: Reader) => unzigzag(from.varint());

const parts: Parts[] = [
  { wit: 'u8', array: array(Uint8Array), check: whole('u8', 0, 255), write: byte, read: (from) => from.u8() },
  { wit: 's8', array: array(Int8Array), check: whole('s8', -128, 127), write: byte, read: (from) => from.s8() },
  { wit: 'u16', array: array(Uint16Array), check: whole('u16', 0, 65_535), write: varint, read: readVarint },
  { wit: 's16', array: array(Int16Array), check: whole('s16', -32_768, 32_767), write: signed, read: readSigned },
  { wit: 'u32', array: array(Uint32Array), check: whole('u32', 0, 2 ** 32 - 1), write: varint, read: readVarint },
  { wit: 's32', array: array(Int32Array), check: whole('s32', -(2 ** 31), 2 ** 31 - 1), write: signed, read: readSigned },
  {
    wit: 'u64',
    array: array(BigUint64Array),
    check: long('u64', 0n, 2n ** 64n - 1n),
    write: (to, value) => to.varint64(value as bigint),
    read: (from) => from.varint64(),
  },
  {
    wit: 's64',
    array: array(BigInt64Array),
    check: long('s64', -(2n ** 63n), 2n ** 63n - 1n),
    write: (to, value) => to.varint64(zigzag64(value as bigint)),
    read: (from) => unzigzag64(from.varint64()),
  },
  {
    wit: 'f32',
    array: array(Float32Array),
    check: float('f32', 'number of -3.4028235e38 to 3.4028235e38 (f32)'),
    write: (to, value) => to.f32(value as number),
    read: (from) => from.f32(),
  },
  {
    wit: 'f64',
    array: array(Float64Array),
    check: float('f64', 'number (f64)'),
    write: (to, value) => to.f64(value as number),
    read: (from) => from.f64(),
  },
];

/** All kinds, in the order of `NumberKind::ALL`. */
export const kinds: readonly Kind[] = parts.map((it, index) => ({ ...it, index }));

/** Kinds whose numbers lie in postcard as they do in memory. */
const isRaw = (kind: Kind) => ['u8', 's8', 'f32', 'f64'].includes(kind.wit);

/** The kind of a typed array, of whichever realm. */
export function kindOf(value: unknown): Kind | undefined {
  if (!ArrayBuffer.isView(value)) return undefined;
  const name = (value as unknown as { [Symbol.toStringTag]: string })[Symbol.toStringTag];
  return kinds.find((it) => it.array.name === (name === 'Uint8ClampedArray' ? 'Uint8Array' : name));
}

/** The bytes of numbers of a kind: of a typed array of just that kind where they lie, of an array of numbers anew. */
export function bytesOf(kind: Kind, value: unknown): Uint8Array {
  if (value instanceof ArrayBuffer && kind.wit === 'u8') return new Uint8Array(value);
  if (kindOf(value) === kind) {
    const view = value as TypedArray;
    const bytes = new Uint8Array(view.buffer, view.byteOffset, view.byteLength);
    // Others may write to it meanwhile.
    return view.buffer instanceof ArrayBuffer ? bytes : bytes.slice();
  }
  if (!Array.isArray(value)) throw misfit(`${kind.array.name} or an array of numbers (list<${kind.wit}>)`, value);
  const { length } = value;
  if (length * kind.array.BYTES_PER_ELEMENT > MOST_BYTES) {
    throw new Misfit(`it has more items than fit into a sandbox (list<${kind.wit}>): pass parts of it`);
  }
  const numbers = new kind.array(length);
  for (let at = 0; at < length; at += 1) {
    try {
      numbers[at] = kind.check(value[at]);
    } catch (error) {
      throw inside(error, `[${at}]`);
    }
  }
  return new Uint8Array(numbers.buffer as ArrayBuffer);
}

/** A list of numbers of a kind, inside a value. */
export function numbersList(numbers: Kind): Codec {
  const width = numbers.array.BYTES_PER_ELEMENT;
  return {
    wit: `list<${numbers.wit}>`,
    hasHandles: false,
    numbers,
    write(to, value) {
      const bytes = bytesOf(numbers, value);
      to.varint(bytes.length / width);
      if (isRaw(numbers)) return to.raw(bytes);
      // A part of a larger buffer may lie anywhere in it.
      const aligned = bytes.byteOffset % width === 0 ? bytes : bytes.slice();
      const list = new numbers.array(aligned.buffer, aligned.byteOffset, aligned.length / width);
      for (const number of list as Iterable<number | bigint>) numbers.write(to, number);
    },
    read(from) {
      const length = from.varint();
      if (isRaw(numbers)) return arrayOf(numbers, from.raw(length * width));
      const list = new numbers.array(length);
      for (let at = 0; at < length; at += 1) list[at] = numbers.read(from);
      return list;
    },
  };
}

/** Bytes, which are a whole number of numbers and have their buffer for themselves, as a typed array. */
export function arrayOf(kind: Kind, bytes: Uint8Array): TypedArray {
  return new kind.array(bytes.buffer);
}
