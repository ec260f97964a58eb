/**
 * Functions, methods and classes, to be called.
 *
 * Owns how arguments become those of a call, and what can be asked for one.
 */

import { type Codec, type Handle, type Rows, codecOf, isOptional } from './codec.js';
import { type Actor, type ActorDescription, type Held, type Ref, actor, ref } from './handles.js';
import type { Link, Result } from './link.js';
import { camel, pascal } from './names.js';
import { CALL, CREATE, IS_ALONE, IS_WANTED, METHOD, PUT, type Packet } from './packet.js';

/** What tasks and actors may ask for. */
export interface Resources {
  /** CPUs: a number, or a decimal as text. */
  cpus?: number | string;
  gpus?: number | string;
  /** Memory: bytes, or text such as '64MiB'. */
  memory?: number | string;
  /** Others, by their names. */
  resources?: Record<string, number | string>;
  /** Milliseconds that an attempt may take. */
  timeLimit?: number;
  /** How the node is chosen, as of `wasmrun submit --strategy`. */
  strategy?: string;
  /** What labels the node must have. */
  labels?: string;
  /** Higher goes first among the tenant's tasks. */
  priority?: number;
  /** Environment variables. */
  env?: Record<string, string>;
  /** Secrets of the tenant, as of `wasmrun submit --secret`. */
  secrets?: string[];
  /** Servers that HTTP requests may go to, as of `wasmrun submit --http`. */
  http?: string[];
}

/** What can be asked for the calls of a function. */
export interface CallOptions extends Resources {
  /** What people call it. */
  name?: string;
  /** How often it is tried again. */
  retries?: number;
  /** Whether it is after an error that the function returns, too. */
  retryOnError?: boolean;
  /** Whether it is not to be paused or stopped for others: refused where its tenant may not ask for that. */
  noPreempt?: boolean;
  /** Cancels calls that are waited for, and what they have started. */
  signal?: AbortSignal;
}

/** What can be asked for actors. */
export interface ActorOptions extends Resources {
  /** What `getActor` finds it by. */
  name?: string;
  /** Whether it lives on when the session ends. */
  detached?: boolean;
  /** How often it starts again after it died. */
  restarts?: number;
  /** How often a call that was under way then is tried again. */
  callRetries?: number;
}

/** What can be asked for the calls of a method. */
export interface MethodOptions {
  /** Milliseconds that a call may take. */
  timeLimit?: number;
  /** Cancels calls that are waited for. */
  signal?: AbortSignal;
}

/** Arguments: each a value, or an object that stands for one. */
export type Given<A extends unknown[]> = { [K in keyof A]: A[K] | Ref<A[K]> };

/** What can be called: a function, each time in a fresh sandbox, or a method of an actor. */
interface Callable<A extends unknown[], R, O> {
  /** Calls it: what it gives. */
  (...values: Given<A>): Promise<R>;
  /** Calls it: an object that will be what it gives. */
  ref(...values: Given<A>): Ref<R>;
  /** The same, whose calls ask for something besides. */
  options(options: O): this;
}

/** A function of a module. */
export interface Fn<A extends unknown[] = any[], R = any> extends Callable<A, R, CallOptions> {
  /** Stores a value of the type of a parameter, to be given to many calls. */
  put<V extends A[number]>(parameter: string, value: V): Promise<Ref<V>>;
}

/** A method of an actor. */
export type Method<A extends unknown[] = any[], R = any> = Callable<A, R, MethodOptions>;

/** A class of a module, whose actors have the methods of `T`. */
export interface Class<A extends unknown[] = any[], T extends object = Record<string, any>> {
  readonly name: string;
  /** Creates an actor. What its constructor fails with, its first call fails with. */
  create(...values: [...Given<A>] | [...Given<A>, ActorOptions]): Promise<Actor & T>;
  /** The same class, whose actors ask for something besides. */
  options(options: ActorOptions): Class<A, T>;
}

/** The type of a function, as the node describes it. */
export interface Description {
  params: [name: string, type: Rows][];
  result: Rows | null;
}
export type MethodDescription = Description;

interface Param {
  readonly name: string;
  readonly codec: Codec;
  readonly rows: Rows;
}

interface Signature {
  readonly name: string;
  readonly params: Param[];
  readonly result: Result;
}

/** The name of an export in its interface: `ns:package/interface@1.0.0#name`. */
export function plainName(full: string): string {
  return full.slice(full.indexOf('#') + 1);
}

function signature(name: string, { params, result }: Description): Signature {
  return {
    name,
    params: params.map(([param, rows]) => ({ name: camel(param), codec: codecOf(rows), rows })),
    result: result === null ? null : codecOf(result),
  };
}

/** Throws where there are too many values, or too few. */
function count({ name, params }: Signature, found: number): void {
  if (found === params.length) return;
  if (found < params.length) {
    const missing = params.slice(found).find((it) => !isOptional(it.codec));
    if (missing === undefined) return;
    throw new TypeError(`${name}() misses the argument ${missing.name} (${missing.codec.wit})`);
  }
  const names = params.map((it) => it.name).join(', ');
  throw new TypeError(`${name}() takes ${params.length} arguments (${names}), got ${found}`);
}

/** Writes a command that gets a number. Nothing is written where its values do not fit. */
function command(link: Link, write: (to: Packet, id: number) => void, id = link.number()): { id: number; to: Packet } {
  const to = link.begin();
  const [start, beside] = [to.length, to.buffers.length];
  link.isReading = true;
  try {
    write(to, id);
  } catch (error) {
    to.length = start;
    to.buffers.length = beside;
    throw error;
  } finally {
    link.isReading = false;
  }
  return { id, to };
}

/** What the compiled part has a number for, as long as somebody can call it. */
interface Callee {
  readonly id: number;
}

const unused = new FinalizationRegistry<{ link: Link; id: number }>(({ link, id }) => link.release(id));

/** Throws where options are none. */
function checked<T extends object>(options: T, name: string): T {
  if (typeof options === 'object' && options !== null && !Array.isArray(options)) return options;
  throw new TypeError(`${name}: options are an object, such as { timeLimit: 1000 }`);
}

/** A function or class that asks for more. */
function asking(link: Link, callee: Callee, options: object, name: string): Callee {
  link.check();
  let id: number;
  try {
    // Numbers of both kinds are amounts.
    const plain = (_: string, value: unknown) => (typeof value === 'bigint' ? Number(value) : value);
    id = link.native.withOptions(callee.id, JSON.stringify(options, plain));
  } catch (error) {
    throw new TypeError(`${name}: ${(error as Error).message}`);
  }
  const made = { id };
  unused.register(made, { link, id });
  return made;
}

/** What is called by a command; `write` writes what is between its number and its values. */
function callable(link: Link, of: Signature, op: number, signal: AbortSignal | undefined, write: (to: Packet) => void) {
  const begin = (flags: number, values: readonly unknown[], number?: number, after?: readonly Handle[]) => {
    count(of, values.length);
    const fill = (to: Packet, id: number) => {
      to.u8(op);
      to.u8(flags);
      to.f64(id);
      write(to);
      link.values(to, of.params, values, of.name, after);
    };
    return command(link, fill, number);
  };
  const wanted = signal === undefined ? IS_WANTED : IS_WANTED | IS_ALONE;
  const call = (...values: unknown[]): Promise<unknown> => {
    try {
      signal?.throwIfAborted();
      const { id, to } = begin(wanted, values);
      const answer =
        signal === undefined
          ? link.wait(id, of.result, of.name)
          : link.limited(id, of.result, of.name, { signal }, true);
      link.end(to);
      return answer;
    } catch (error) {
      return Promise.reject(error);
    }
  };
  Object.defineProperty(call, 'name', { value: of.name });
  return Object.assign(call, {
    ref(...values: unknown[]): Ref {
      const { id, to } = begin(0, values);
      link.end(to);
      return ref(link, id, of.result, of.name);
    },
    [BEGIN](id: number, values: readonly unknown[], after: readonly Handle[]): void {
      link.end(begin(0, values, id, after).to);
    },
  });
}

const BEGIN = Symbol('wasmrun.begin');

/** Calls a function under a number that is taken, once these are there besides its arguments. It is told to nobody. */
export function begin(of: Fn, id: number, values: readonly unknown[], after: readonly Handle[]): void {
  (of as unknown as { [BEGIN](id: number, values: readonly unknown[], after: readonly Handle[]): void })[BEGIN](id, values, after);
}

/** A function of a module, by the number that the compiled part has for it. */
export function fn(link: Link, id: number, full: string, type: Description): Fn {
  return made(link, { id }, signature(camel(plainName(full)), type), undefined);
}

function made(link: Link, callee: Callee, of: Signature, signal: AbortSignal | undefined): Fn {
  const call = callable(link, of, CALL, signal, (to) => to.f64(callee.id));
  return Object.assign(call, {
    options(options: CallOptions): Fn {
      const { signal: given = signal, ...others } = checked(options, of.name);
      const isSame = Object.keys(others).length === 0;
      return made(link, isSame ? callee : asking(link, callee, others, of.name), of, given);
    },
    async put(parameter: string, value: unknown): Promise<Ref> {
      const param = of.params.find((it) => it.name === parameter);
      if (param === undefined) {
        const names = of.params.map((it) => it.name).join(', ');
        throw new TypeError(`${of.name}() has no parameter '${parameter}'; it has ${names || 'none'}`);
      }
      return put(link, param.codec, param.rows, value);
    },
  }) as Fn;
}

/** Stores a value of a type. */
export async function put(link: Link, codec: Codec, rows: Rows, value: unknown): Promise<Ref> {
  const { id, to } = command(link, (to, id) => {
    to.u8(PUT);
    to.f64(id);
    const at = to.open();
    to.raw(Buffer.from(JSON.stringify(rows)));
    to.close(at);
    link.value(to, codec, value, 'put() argument value');
  });
  const stored = link.wait(id, null, 'put');
  link.end(to);
  await stored;
  // Stored, a result is a value, and not what a function comes to.
  const { ok: _, ...whole } = codec;
  return ref(link, id, whole, 'put');
}

/** A method of an actor, by its place among all of them. */
export function method(held: Held, name: string, type: Description, at: number): Method {
  return ofActor(held, signature(camel(name), type), at, {});
}

function ofActor(held: Held, of: Signature, at: number, options: MethodOptions): Method {
  const { signal, timeLimit = Number.NaN, ...others } = options;
  const unknown = Object.keys(others)[0];
  if (unknown !== undefined) {
    throw new TypeError(`${of.name}: there is no option '${unknown}' of a method; there are timeLimit, signal`);
  }
  if (options.timeLimit !== undefined && !(timeLimit >= 0)) {
    throw new TypeError(`${of.name}: option timeLimit: expected milliseconds, got ${String(timeLimit)}`);
  }
  const call = callable(held.link, of, METHOD, signal, (to) => {
    to.f64(held.number(`${of.name}()`));
    to.u32(at);
    to.f64(timeLimit);
  });
  return Object.assign(call, {
    options: (more: MethodOptions) => ofActor(held, of, at, { ...options, ...checked(more, of.name) }),
  }) as Method;
}

/** A class of a module, by the number that the compiled part has for it. */
export function cls(link: Link, id: number, full: string, type: Description): Class {
  return ofClass(link, { id }, signature(pascal(plainName(full)), type));
}

function ofClass(link: Link, callee: Callee, of: Signature): Class {
  const made: Class = {
    name: of.name,
    async create(...values: unknown[]) {
      if (values.length === of.params.length + 1) {
        const options = values.pop() as ActorOptions | undefined;
        if (options !== undefined) return made.options(options).create(...values);
      }
      count(of, values.length);
      const { id, to } = command(link, (to, id) => {
        to.u8(CREATE);
        to.f64(id);
        to.f64(callee.id);
        link.values(to, of.params, values, of.name);
      });
      const created = link.wait(id, null, of.name);
      link.end(to);
      return actor<Record<string, any>>(link, (await created) as ActorDescription);
    },
    options: (options: ActorOptions) => ofClass(link, asking(link, callee, checked(options, of.name), of.name), of),
  };
  return made;
}
