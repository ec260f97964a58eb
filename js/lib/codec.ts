/**
 * Values between JavaScript and bytes, by their WIT types: as jco maps them, in the bytes of `docs/values.md`.
 *
 * A value of an object's or actor's type is whatever has a [`HANDLE`]. What comes from a sandbox is only ever data.
 */

import { Misfit, inside, misfit, shown } from './misfit.js';
import { camel } from './names.js';
import { type Kind, kinds, numbersList } from './numbers.js';
import type { Packet } from './packet.js';
import type { Reader } from './mail.js';

/** What of a handle goes along with a value. */
export interface Handle {
  readonly id: number;
  readonly kind: 'object' | 'actor';
  /** Where it is known: its session. */
  readonly link: unknown;
  /** Whether it was let go. */
  isReleased: boolean;
}

export const HANDLE = Symbol('wasmrun.handle');

/** How values of a type are written and read. */
export interface Codec {
  /** The type, as WIT has it. */
  readonly wit: string;
  /** Whether values can name objects and actors. */
  readonly hasHandles: boolean;
  /** The numbers that a list is of. */
  readonly numbers?: Kind;
  /** What a result holds where all went well, if it holds something. */
  readonly ok?: Codec | null;
  /** Whether functions that it may depend on have errors of the same type. */
  readonly isShared?: boolean;
  write(to: Packet, value: unknown): void;
  read(from: Reader): unknown;
}

/** A type as the node describes it: rows, each of which names earlier ones; the last is the type. */
export type Rows = readonly Row[];
type Row = string | { readonly [kind: string]: unknown };

const NAME_BYTES = { object: 36, actor: 32 };

export function codecOf(rows: Rows): Codec {
  const made: Codec[] = [];
  for (const row of rows) made.push(ofRow(row, made));
  return made[made.length - 1]!;
}

function ofRow(row: Row, made: readonly Codec[]): Codec {
  if (typeof row === 'string') return plain(row);
  const [kind, parts] = Object.entries(row)[0] as [string, never];
  const at = (index: number | null) => (index === null ? null : made[index]!);
  switch (kind) {
    case 'list': {
      const item = made[parts]!;
      const numbers = kinds.find((it) => it.wit === item.wit);
      return numbers === undefined ? list(item) : numbersList(numbers);
    }
    case 'option':
      return option(made[parts]!);
    case 'result':
      return result(at(parts[0]), at(parts[1]));
    case 'record':
      return record((parts as [string, number][]).map(([name, of]) => [name, made[of]!]));
    case 'tuple':
      return tuple((parts as number[]).map((of) => made[of]!));
    case 'variant':
      return variant((parts as [string, number | null][]).map(([name, of]) => [name, at(of)]));
    case 'enum':
      return enumeration(parts as string[]);
    case 'flags':
      return flags(parts as string[]);
    case 'handle':
      return handle(parts);
    default:
      throw new TypeError(`there is no type ${kind}: the node is newer than this package`);
  }
}

function plain(wit: string): Codec {
  const numbers = kinds.find((it) => it.wit === wit);
  if (numbers !== undefined) {
    const { check, write, read } = numbers;
    return { wit, hasHandles: false, write: (to, value) => write(to, check(value)), read };
  }
  switch (wit) {
    case 'bool':
      return {
        wit,
        hasHandles: false,
        write(to, value) {
          if (typeof value !== 'boolean') throw misfit('boolean (bool)', value);
          to.u8(value ? 1 : 0);
        },
        read: (from) => from.u8() === 1,
      };
    case 'char':
      return {
        wit,
        hasHandles: false,
        write(to, value) {
          const code = typeof value === 'string' ? (value.codePointAt(0) ?? -1) : -1;
          const isOne = code >= 0 && (value as string).length === (code > 0xffff ? 2 : 1);
          if (!isOne || (code >= 0xd800 && code <= 0xdfff)) throw misfit('a string of one character (char)', value);
          to.text(value as string);
        },
        read: (from) => from.text(from.varint()),
      };
    case 'string':
      return {
        wit,
        hasHandles: false,
        write(to, value) {
          if (typeof value !== 'string') throw misfit('string', value);
          if (!value.isWellFormed()) {
            throw new Misfit('expected string, got one with a lone surrogate, which is no text: see String.toWellFormed');
          }
          to.text(value);
        },
        read: (from) => from.text(from.varint()),
      };
    default:
      throw new TypeError(`there is no type ${wit}: the node is newer than this package`);
  }
}

function list(item: Codec): Codec {
  return {
    wit: `list<${item.wit}>`,
    hasHandles: item.hasHandles,
    write(to, value) {
      if (!Array.isArray(value)) throw misfit(`an array (list<${clipped(item.wit)}>)`, value);
      const { length } = value;
      to.varint(length);
      for (let at = 0; at < length; at += 1) {
        try {
          item.write(to, value[at]);
        } catch (error) {
          throw inside(error, `[${at}]`);
        }
      }
    },
    read(from) {
      const length = from.varint();
      const items: unknown[] = [];
      for (let at = 0; at < length; at += 1) items.push(item.read(from));
      return items;
    },
  };
}

/** Whether none can be told from a value by `undefined`. */
const nullable = new WeakSet<Codec>();

function option(some: Codec): Codec {
  const isTagged = nullable.has(some);
  const wit = `option<${some.wit}>`;
  const made: Codec = {
    wit,
    hasHandles: some.hasHandles,
    write(to, value) {
      if (isTagged) {
        const [tag, val] = tagged(value, wit, "{ tag: 'none' } or { tag: 'some', val }");
        if (tag !== 'none' && tag !== 'some') throw misfit(`tag 'none' or 'some' (${clipped(wit)})`, tag);
        to.u8(tag === 'some' ? 1 : 0);
        if (tag === 'some') payload(to, some, val);
      } else if (value === undefined || value === null) {
        to.u8(0);
      } else {
        to.u8(1);
        some.write(to, value);
      }
    },
    read(from) {
      const isSome = from.u8() === 1;
      if (isTagged) return isSome ? { tag: 'some', val: some.read(from) } : { tag: 'none' };
      return isSome ? some.read(from) : undefined;
    },
  };
  if (!isTagged) nullable.add(made);
  return made;
}

/** Whether a value of this type may be left out. */
export function isOptional(codec: Codec): boolean {
  return nullable.has(codec);
}

function result(ok: Codec | null, err: Codec | null): Codec {
  const parts = `${ok?.wit ?? (err ? '_' : '')}${err ? `, ${err.wit}` : ''}`;
  const wit = parts === '' ? 'result' : `result<${parts}>`;
  return {
    wit,
    hasHandles: Boolean(ok?.hasHandles ?? false) || Boolean(err?.hasHandles ?? false),
    ok,
    write(to, value) {
      const [tag, val] = tagged(value, wit, "{ tag: 'ok', val } or { tag: 'err', val }");
      if (tag !== 'ok' && tag !== 'err') throw misfit(`tag 'ok' or 'err' (${clipped(wit)})`, tag);
      to.u8(tag === 'ok' ? 0 : 1);
      payload(to, tag === 'ok' ? ok : err, val);
    },
    read(from) {
      const isOk = from.u8() === 0;
      const val = (isOk ? ok : err)?.read(from);
      return { tag: isOk ? 'ok' : 'err', val };
    },
  };
}

function record(fields: [name: string, of: Codec][]): Codec {
  const named = fields.map(([name, of]) => [camel(name), of] as const);
  const wit = `record { ${fields.map(([name, of]) => `${name}: ${of.wit}`).join(', ')} }`;
  return {
    wit,
    hasHandles: fields.some(([, of]) => of.hasHandles),
    write(to, value) {
      if (typeof value !== 'object' || value === null || Array.isArray(value)) {
        throw misfit(`an object (${clipped(wit)})`, value);
      }
      for (const [name, of] of named) {
        try {
          of.write(to, (value as Record<string, unknown>)[name]);
        } catch (error) {
          throw inside(error, `.${name}`);
        }
      }
    },
    read(from) {
      const value: Record<string, unknown> = {};
      for (const [name, of] of named) value[name] = of.read(from);
      return value;
    },
  };
}

function tuple(items: Codec[]): Codec {
  const wit = `tuple<${items.map((it) => it.wit).join(', ')}>`;
  return {
    wit,
    hasHandles: items.some((it) => it.hasHandles),
    write(to, value) {
      if (!Array.isArray(value) || value.length !== items.length) {
        throw misfit(`an array of ${items.length} (${clipped(wit)})`, value);
      }
      items.forEach((item, at) => {
        try {
          item.write(to, value[at]);
        } catch (error) {
          throw inside(error, `[${at}]`);
        }
      });
    },
    read: (from) => items.map((item) => item.read(from)),
  };
}

function variant(cases: [name: string, of: Codec | null][]): Codec {
  const names = cases.map(([name]) => name);
  // Not an object: 'constructor' is no case.
  const numbers = new Map(names.map((name, at) => [name, at]));
  const wit = `variant { ${cases.map(([name, of]) => (of ? `${name}(${of.wit})` : name)).join(', ')} }`;
  return {
    wit,
    hasHandles: cases.some(([, of]) => of?.hasHandles ?? false),
    write(to, value) {
      const [tag, val] = tagged(value, wit, '{ tag, val }');
      const at = numbers.get(tag as string);
      if (at === undefined) throw misfit(`a tag of ${names.join(', ')}`, tag);
      to.varint(at);
      payload(to, cases[at]![1], val);
    },
    read(from) {
      const [tag, of] = cases[from.varint()]!;
      return of ? { tag, val: of.read(from) } : { tag };
    },
  };
}

function enumeration(names: string[]): Codec {
  const numbers = new Map(names.map((name, at) => [name, at]));
  return {
    wit: `enum { ${names.join(', ')} }`,
    hasHandles: false,
    write(to, value) {
      const at = numbers.get(value as string);
      if (at === undefined) throw misfit(`one of ${names.join(', ')} (enum)`, value);
      to.varint(at);
    },
    read: (from) => names[from.varint()],
  };
}

function flags(wit: string[]): Codec {
  const names = wit.map(camel);
  const expected = `an object of booleans (flags { ${names.join(', ')} })`;
  return {
    wit: `flags { ${wit.join(', ')} }`,
    hasHandles: false,
    write(to, value) {
      if (typeof value !== 'object' || value === null || Array.isArray(value)) throw misfit(expected, value);
      const unknown = Object.keys(value).find((it) => !names.includes(it));
      if (unknown !== undefined) throw new Misfit(`there is no flag '${unknown}': expected ${expected}`);
      for (const name of names) {
        const flag = (value as Record<string, unknown>)[name];
        if (flag !== undefined && typeof flag !== 'boolean') {
          throw inside(misfit('boolean (of flags)', flag), `.${name}`);
        }
        to.u8(flag === true ? 1 : 0);
      }
    },
    read(from) {
      const value: Record<string, boolean> = {};
      for (const name of names) value[name] = from.u8() === 1;
      return value;
    },
  };
}

function handle(kind: 'object' | 'actor'): Codec {
  const expected = kind === 'object' ? 'a Ref (object)' : 'an Actor (actor)';
  return {
    wit: kind,
    hasHandles: true,
    write(to, value) {
      const found = handleOf(value);
      if (found?.kind !== kind) throw misfit(expected, value);
      to.name(NAME_BYTES[kind], known(to.owner, found));
    },
    read(from) {
      from.skip(NAME_BYTES[kind]);
      return from.named.shift();
    },
  };
}

/** The number of what a session has. */
export function known(link: unknown, handle: Handle): number {
  if (handle.link !== link) {
    throw new Misfit(`it is an ${handle.kind} of another session: pass its value, or use one session`);
  }
  if (handle.isReleased) throw new Misfit(`it is an ${handle.kind} that was disposed of`);
  return handle.id;
}

/** The handle that something is. */
export function handleOf(value: unknown): Handle | undefined {
  if (typeof value !== 'object' || value === null) return undefined;
  return (value as { [HANDLE]?: Handle })[HANDLE];
}

function tagged(value: unknown, wit: string, form: string): [tag: unknown, val: unknown] {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    throw misfit(`${form} (${clipped(wit)})`, value);
  }
  const { tag, val } = value as { tag?: unknown; val?: unknown };
  return [tag, val];
}

function payload(to: Packet, codec: Codec | null, val: unknown): void {
  try {
    if (codec) codec.write(to, val);
    else if (val !== undefined && val !== null) throw new Misfit(`it has no value here, got ${shown(val)}`);
  } catch (error) {
    throw inside(error, '.val');
  }
}

function clipped(wit: string): string {
  return wit.length > 100 ? `${wit.slice(0, 100)}…` : wit;
}
