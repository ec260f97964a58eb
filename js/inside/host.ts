// What a program asks of the node.
//
// Owns handles to objects and actors, how they and values cross, and what goes wrong there.

import { Actor, create as createActor, find, type Options as ActorOptions } from 'wasmrun:runtime/actors@0.1.0';
import { Object as Stored, put as store, putWith, wait as await_, type Fault, type Form } from 'wasmrun:runtime/objects@0.1.0';
import { spawn as spawnTask, type Argument, type Options as TaskOptions } from 'wasmrun:runtime/tasks@0.1.0';

import { read, write, type Handle } from '../lib/inside/data';
import { decoded, release } from '../lib/inside/text';
import { ActorDiedError, DependencyError, GetTimeoutError, LimitError, RefusedError, TaskCancelledError, TaskError, TrapError } from '../lib/inside/guest-errors';
import { show } from './console';

const OBJECT_NAME_BYTES = 36;
const ACTOR_NAME_BYTES = 32;
const POSTCARD: Form = { tag: 'postcard' };

const KINDS = new Map<string, new (message: string) => TaskError>([
  ['trap', TrapError],
  ['limit', LimitError],
  ['cancelled', TaskCancelledError],
  ['dependency', DependencyError],
  ['actor-died', ActorDiedError],
]);

const BUFFERS = new Map<string, any>([
  ['u8', Uint8Array],
  ['s8', Int8Array],
  ['u16', Uint16Array],
  ['s16', Int16Array],
  ['u32', Uint32Array],
  ['s32', Int32Array],
  ['u64', BigUint64Array],
  ['s64', BigInt64Array],
  ['f32', Float32Array],
  ['f64', Float64Array],
]);

/** An object that is there or will be. As an argument of a call it stands for its value. */
export class ObjectRef {
  // What kinds there are, `python/inside/wasmrun/_host.py` says, too.
  readonly #kind: string;
  readonly #handle: Stored;

  constructor(handle: Stored, kind: string) {
    this.#handle = handle;
    this.#kind = kind;
  }

  /** The object's id. */
  get id(): string {
    return this.#handle.id();
  }

  /** Gives the handle back. */
  [Symbol.dispose](): void {
    this.#handle[Symbol.dispose]();
  }

  static is(value: unknown): value is ObjectRef {
    return typeof value === 'object' && value !== null && #handle in value;
  }

  static parts(of: ObjectRef): { handle: Stored; kind: string } {
    return { handle: of.#handle, kind: of.#kind };
  }
}

const actors = new WeakMap<object, { actor: Actor; methods: string }>();

/** An actor, whose methods are properties. */
export function actorHandle(actor: Actor, methods: string): any {
  const known = methods ? methods.split(',') : undefined;
  const made = new Proxy(Object.create(null), {
    get(_, name) {
      if (typeof name !== 'string' || name === 'then' || name === 'toJSON') return undefined;
      if (known !== undefined && !known.includes(name)) {
        throw new TypeError(`the actor has no method '${name}'; it has ${methods}`);
      }
      const ref = (...args: unknown[]): ObjectRef => {
        const given = data(args, `${name}() argument `);
        const made = faults(() => actor.call('call', [value(text(name)), value(given)]));
        release(given);
        return new ObjectRef(made, 'p');
      };
      return Object.assign((...args: unknown[]) => settled(ref(...args), true), { ref });
    },
  });
  actors.set(made, { actor, methods });
  return made;
}

export function ofActor(handle: unknown): Actor {
  const found = actors.get(handle as object);
  if (found === undefined) throw new TypeError('expected an actor');
  return found.actor;
}

/** A time as the node takes it. */
export function milliseconds(given: number | undefined, what = 'timeout'): bigint | undefined {
  if (given === undefined || given === Infinity) return undefined;
  if (!(given >= 0)) throw new RangeError(`${what}: ${given} is no time: give milliseconds, not negative`);
  return BigInt(Math.min(Math.floor(given), Number.MAX_SAFE_INTEGER));
}

/** What the node says as an exception. */
function faults<T>(ask: () => T): T {
  try {
    return ask();
  } catch (error) {
    const fault: Fault | undefined = (error as any)?.payload;
    throw fault === undefined ? error : raised(fault);
  }
}

function raised(fault: Fault): Error {
  switch (fault.tag) {
    case 'timed-out':
      return new GetTimeoutError('timed out: it is not there yet');
    case 'deadlock':
      return new TaskError(fault.val);
    case 'refused':
      return new RefusedError(fault.val);
  }
  const { kind, message, origin, payload } = fault.val;
  const cause = payload === undefined ? undefined : thrown(payload);
  if (kind === 'guest' && cause !== undefined) return cause;
  const made = new (KINDS.get(kind) ?? TaskError)(message);
  made.task = origin;
  if (cause !== undefined) made.cause = cause;
  return made;
}

/** What a function has thrown. */
function thrown(payload: Uint8Array): Error | undefined {
  try {
    const from = new Postcard(payload);
    const [name, message, stack] = [from.text(), from.text(), from.text()];
    const details: any = from.data();
    const error = details.error;
    const made = error instanceof Error ? error : new Error(`${name}: ${message}`, { cause: error });
    made.stack = stack;
    return made;
  } catch {
    return undefined;
  }
}

/** A length as postcard has it. */
export function number(value: number): number[] {
  const out: number[] = [];
  for (; value > 127; value = Math.floor(value / 128)) out.push((value & 127) | 128);
  out.push(value);
  return out;
}

/** Parts, one after the other. */
export function joined(parts: (Uint8Array | number[])[]): Uint8Array {
  let size = 0;
  for (let at = 0; at < parts.length; at++) size += parts[at]!.length;
  const all = new Uint8Array(size);
  size = 0;
  for (let at = 0; at < parts.length; at++) {
    all.set(parts[at]!, size);
    size += parts[at]!.length;
  }
  return all;
}

const encoder = new TextEncoder();

/** Text as postcard has it. */
export function text(value: string): Uint8Array {
  if (!value) return new Uint8Array(1);
  const bytes = encoder.encode(value);
  return joined([number(bytes.length), bytes]);
}

/** Reads what the node has checked. */
export class Postcard {
  private bytes: Uint8Array;
  private at = 0;

  constructor(bytes: Uint8Array) {
    this.bytes = bytes;
  }

  number(): number {
    for (let number = 0, scale = 1; ; scale *= 128) {
      const byte = this.bytes[this.at++]!;
      number += (byte & 127) * scale;
      if (byte < 128) return number;
    }
  }

  take(count: number): Uint8Array {
    this.at += count;
    return this.bytes.subarray(this.at - count, this.at);
  }

  text(): string {
    const end = this.number() + this.at;
    const from = this.at;
    this.at = end;
    return decoded(this.bytes, from, end);
  }

  private names(size: number): Uint8Array[] {
    const names: Uint8Array[] = [];
    for (let left = this.number(); left > 0; left--) names.push(this.take(size));
    return names;
  }

  /** The record `data`. */
  data(): unknown {
    const given = this.take(this.number());
    const objects = this.names(OBJECT_NAME_BYTES);
    const of_actors = this.names(ACTOR_NAME_BYTES);
    return read(given, ({ tag, at, kind }: Handle) => {
      if (tag === 'R') return new ObjectRef(Stored.named(objects[at]!), kind);
      return actorHandle(Actor.named(of_actors[at]!), kind);
    });
  }
}

/** What is written, as postcard has the record `data`, and the names in it. */
export function crossing(given: unknown, what: string, names: Uint8Array[] = []): Uint8Array {
  const objects: Uint8Array[] = [];
  const of_actors: Uint8Array[] = [];
  const bytes = write(
    given,
    (it) => {
      if (ObjectRef.is(it)) {
        const { handle, kind } = ObjectRef.parts(it);
        objects.push(handle.name());
        return { tag: 'R', at: objects.length - 1, kind };
      }
      const actor = actors.get(it);
      if (actor === undefined) return undefined;
      of_actors.push(actor.actor.name());
      return { tag: 'H', at: of_actors.length - 1, kind: actor.methods };
    },
    what,
  );
  let all: Uint8Array;
  if (!objects.length && !of_actors.length) {
    // As a rule there are none, and calls are to be cheap.
    all = joined([number(bytes.length), bytes, [0, 0]]);
  } else {
    names.push(...objects, ...of_actors);
    all = joined([number(bytes.length), bytes, number(objects.length), ...objects, number(of_actors.length), ...of_actors]);
  }
  release(bytes);
  return all;
}

/** The arguments of a call. */
export function data(args: unknown[], what: string): Uint8Array {
  return crossing(args, what);
}

export const value = (val: Uint8Array): Argument => ({ tag: 'value', val });
const object = (val: Stored): Argument => ({ tag: 'object', val });

/** The value of an object, once it is there. */
export function get(ref: ObjectRef, timeout?: number): unknown {
  const { handle, kind } = ObjectRef.parts(ref);
  const { form, bytes } = faults(() => handle.get(milliseconds(timeout)));
  const got = form.tag === 'buffer' ? new (BUFFERS.get(form.val))(new Uint8Array(bytes).buffer) : decodedBy(kind, bytes);
  release(bytes);
  return got;
}

function decodedBy(kind: string, bytes: Uint8Array): unknown {
  const from = new Postcard(bytes);
  switch (kind) {
    case 'p': {
      // What went well: an error would have been thrown.
      from.number();
      const got = from.data();
      show(from.text());
      return got;
    }
    case 'd':
      return from.data();
    case 's':
      return from.text();
  }
  if (kind === 'n' || !bytes.length) return undefined;
  throw new TypeError("this object is of a type of its module's, which JavaScript cannot read in a sandbox: get it outside");
}

/** Which of these are there, once so many are, or time is up. */
export function arrived(refs: ObjectRef[], count: number, timeout?: number): number[] {
  const handles = refs.map((ref) => ObjectRef.parts(ref).handle);
  return Array.from(faults(() => await_(handles, count, milliseconds(timeout))));
}

export function put(given: unknown): ObjectRef {
  const names: Uint8Array[] = [];
  const bytes = crossing(given, 'put() argument', names);
  const made = faults(() => (names.length ? putWith(POSTCARD, bytes, names) : store(POSTCARD, bytes)));
  release(bytes);
  return new ObjectRef(made, 'd');
}

// Programs that are no longer go along with each call of them.
const MOST_ALONG = 2 << 10;

/** A program as it crosses: its text, or the object that has it. */
export function programOf(text: string): Uint8Array {
  const bytes = encoder.encode(text);
  if (bytes.length <= MOST_ALONG) return joined([[0], number(bytes.length), bytes]);
  return joined([[1], faults(() => store({ tag: 'buffer', val: 'u8' }, bytes)).name()]);
}

/** A program's text. */
export function textOf(program: Uint8Array): string {
  const from = new Postcard(program);
  if (from.number() === 0) return from.text();
  const handle = Stored.named(from.take(OBJECT_NAME_BYTES));
  const { bytes } = faults(() => handle.get());
  handle[Symbol.dispose]();
  return decoded(bytes);
}

/** Starts a function of a program, once these are there. */
export function spawn(program: Uint8Array, name: string, given: Uint8Array, after: ObjectRef[], options: TaskOptions): ObjectRef {
  const args = [value(program), value(text(name)), value(given)];
  for (let at = 0; at < after.length; at++) args.push(object(ObjectRef.parts(after[at]!).handle));
  const made = faults(() => spawnTask('call', args, options));
  release(given);
  return new ObjectRef(made, 'p');
}

/** Creates an actor of a class of a program. */
export function create(program: Uint8Array, name: string, given: Uint8Array, options: ActorOptions, methods: string): any {
  const args = [value(program), value(text(name)), value(given)];
  return actorHandle(faults(() => createActor('instance', args, options)), methods);
}

export function findActor(name: string): any {
  return actorHandle(faults(() => find(name)), '');
}

let settle: (ref: ObjectRef, isOurs: boolean) => Promise<unknown>;

/** `loop.ts` is above this. */
export function settleBy(by: typeof settle): void {
  settle = by;
}

/** The value of an object, as a promise. One that is ours, and that nobody else has, is given back then. */
export const settled = (ref: ObjectRef, isOurs = false): Promise<unknown> => settle(ref, isOurs);
