// `wasmrun/guest`: what a program in a sandbox uses of wasmrun.

import { arrayIndex, attempt, node, resources, taskId } from 'wasmrun:runtime/context@0.1.0';
import { getArguments, getEnvironment } from 'wasi:cli/environment@0.2.0';

import * as host from './host';
import { nameOf, program } from './program';
import { GetTimeoutError } from './errors';

export * from './errors';
export { ObjectRef } from './host';
import { ObjectRef } from './host';

/** What a task or an actor asks for. Times are in milliseconds. */
export interface Options {
  cpus?: number | string;
  gpus?: number | string;
  memory?: number | string;
  resources?: Record<string, number | string>;
  retries?: number;
  retryOnError?: boolean;
  timeLimit?: number;
  priority?: number;
  labels?: string;
  strategy?: string;
  /** Of actors only. */
  name?: string;
  restarts?: number;
  callRetries?: number;
}

const OF_TASKS = ['retries', 'retryOnError', 'priority'];
const OF_ACTORS = ['name', 'restarts', 'callRetries'];

function whole(options: any, name: string, least: number, most: number): number | undefined {
  const value = options[name];
  if (value !== undefined && !(Number.isInteger(value) && value >= least && value <= most)) {
    throw new RangeError(`option ${name}: ${String(value)} is not a whole number from ${least} to ${most}`);
  }
  return value;
}

function text(options: any, name: string): string | undefined {
  const value = options[name];
  if (value !== undefined && typeof value !== 'string') throw new TypeError(`option ${name}: expected text, got ${typeof value}`);
  return value;
}

function asked(options: Options, others: string[]): any {
  const known = ['cpus', 'gpus', 'memory', 'resources', 'timeLimit', 'labels', 'strategy', ...others];
  for (const name of Object.keys(options)) if (!known.includes(name)) throw new TypeError(`there is no option '${name}'`);
  const amounts: [string, string][] = Object.entries(options.resources ?? {}).map(([name, it]) => [name, String(it)]);
  for (const [option, name] of [['cpus', 'CPU'], ['gpus', 'GPU'], ['memory', 'memory']] as const) {
    if (options[option] !== undefined) amounts.push([name, String(options[option])]);
  }
  return {
    resources: amounts,
    retries: whole(options, 'retries', 0, 2 ** 32 - 1),
    retryOnError: options.retryOnError === undefined ? undefined : Boolean(options.retryOnError),
    timeLimitMs: host.milliseconds(options.timeLimit, 'option timeLimit'),
    priority: whole(options, 'priority', -(2 ** 31), 2 ** 31 - 1),
    labelSelector: text(options, 'labels'),
    strategy: text(options, 'strategy'),
    name: text(options, 'name'),
    restarts: whole(options, 'restarts', 0, 2 ** 32 - 1),
    callRetries: whole(options, 'callRetries', 0, 2 ** 32 - 1),
  };
}

function methods(of: Function): string {
  const found = new Set<string>();
  for (let it = of.prototype; it && it !== Object.prototype; it = Object.getPrototypeOf(it)) {
    for (const name of Object.getOwnPropertyNames(it)) {
      const isMethod = typeof Object.getOwnPropertyDescriptor(it, name)?.value === 'function';
      if (isMethod && name !== 'constructor' && !name.startsWith('_')) found.add(name);
    }
  }
  return [...found].join(',');
}

const isClass = (given: Function): boolean => Function.prototype.toString.call(given).startsWith('class');

export type Method<A extends unknown[], R> = ((...args: A) => Promise<Awaited<R>>) & { ref(...args: A): ObjectRef<Awaited<R>> };
/** A function whose calls run in sandboxes of their own. */
export type Remote<A extends unknown[], R> = Method<A, R> & { with(options: Options): Remote<A, R> };
/** An actor: an instance in a sandbox of its own, which runs one call at a time. */
export type Handle<T> = { [K in keyof T as T[K] extends (...args: any) => any ? K : never]: T[K] extends (...args: infer A) => infer R ? Method<A, R> : never };
/** A class whose instances are actors. */
export type RemoteClass<A extends unknown[], T> = { create(...args: A): Promise<Handle<T>>; with(options: Options): RemoteClass<A, T> };

/** Makes a function's calls tasks, or a class's instances actors. The program's first module exports it. */
export function remote<A extends unknown[], T>(given: new (...args: A) => T, options?: Options): RemoteClass<A, T>;
export function remote<A extends unknown[], R>(given: (...args: A) => R, options?: Options): Remote<A, R>;
export function remote(given: any, options: Options = {}): any {
  if (typeof given !== 'function') throw new TypeError(`remote() is for functions and classes; got ${typeof given}`);
  const more = (changed: Options) => remote(given, { ...options, ...changed });
  if (isClass(given)) {
    const create = async (...args: unknown[]) => {
      const data = host.data(args, `${given.name}() argument `);
      return host.create(program(), nameOf(given), data, asked(options, OF_ACTORS), methods(given));
    };
    return { create, with: more };
  }
  const ref = (...args: unknown[]): ObjectRef => {
    const data = host.data(args, `${given.name}() argument `);
    return host.spawn(program(), nameOf(given), data, args.filter(ObjectRef.is), asked(options, OF_TASKS));
  };
  return Object.assign((...args: unknown[]) => host.settled(ref(...args)), { ref, with: more });
}

/** Starts a function in a sandbox of its own: the object that it will make. */
export function spawn<A extends unknown[], R>(given: (...args: A) => R, ...args: A): ObjectRef<Awaited<R>> {
  return remote(given).ref(...args);
}

/** A class that is derived from it makes actors: `await Counter.create(0)`. */
export class Actor {
  static create<A extends unknown[], T>(this: new (...args: A) => T, ...args: A): Promise<Handle<T>> {
    return remote(this).create(...args);
  }

  static with<A extends unknown[], T>(this: new (...args: A) => T, options: Options): RemoteClass<A, T> {
    return remote(this, options);
  }
}

function checked(refs: Iterable<ObjectRef>): ObjectRef[] {
  const all = Array.from(refs);
  all.forEach((it, at) => {
    if (!ObjectRef.is(it)) throw new TypeError(`expected an ObjectRef, got ${it === null ? 'null' : typeof it} (at [${at}])`);
  });
  return all;
}

/** The value of an object, or the values of several, once all are there. It waits; `await value(ref)` lets others run. */
export function get<T>(ref: ObjectRef<T>, timeout?: number): T;
export function get<T>(refs: Iterable<ObjectRef<T>>, timeout?: number): T[];
export function get(given: any, timeout?: number): any {
  if (ObjectRef.is(given)) return host.get(given, timeout);
  const end = timeout === undefined ? undefined : Date.now() + timeout;
  return checked(given).map((ref) => host.get(ref, end === undefined ? undefined : Math.max(end - Date.now(), 0)));
}

/** The value of an object as a promise. */
export function value<T>(ref: ObjectRef<T>): Promise<T> {
  return host.settled(checked([ref])[0]!) as Promise<T>;
}

/** Waits until `count` of the objects are there or have failed, or time is up. Those that are, at most so many, and the others. */
export function wait<T>(refs: Iterable<ObjectRef<T>>, { count = 1, timeout }: { count?: number; timeout?: number } = {}): [ObjectRef<T>[], ObjectRef<T>[]] {
  const all = checked(refs) as ObjectRef<T>[];
  if (!(Number.isInteger(count) && count >= 1 && count <= Math.max(all.length, 1))) {
    throw new RangeError(`count is 1 to ${all.length}, the number of objects; got ${count}`);
  }
  const ready = new Set(all.length ? host.arrived(all, count, timeout).slice(0, count) : []);
  return [all.filter((_, at) => ready.has(at)), all.filter((_, at) => !ready.has(at))];
}

/** The objects, each as soon as it is there or has failed. */
export function* asCompleted<T>(refs: Iterable<ObjectRef<T>>, { timeout }: { timeout?: number } = {}): Generator<ObjectRef<T>> {
  const end = timeout === undefined ? undefined : Date.now() + timeout;
  for (let left = checked(refs) as ObjectRef<T>[]; left.length; ) {
    const ready = new Set(host.arrived(left, 1, end === undefined ? undefined : Math.max(end - Date.now(), 0)));
    if (!ready.size) throw new GetTimeoutError(`timed out: ${left.length} objects are not there yet`);
    yield* left.filter((_, at) => ready.has(at));
    left = left.filter((_, at) => !ready.has(at));
  }
}

/** Stores a value, to be given to many tasks. */
export function put<T>(given: T): ObjectRef<T> {
  return host.put(given) as ObjectRef<T>;
}

/** Cancels the task that is to make an object, and all that it has started. */
export function cancel(ref: ObjectRef): void {
  ObjectRef.parts(checked([ref])[0]!).handle.cancel();
}

/** Ends an actor. Its calls fail, the one that runs included. */
export function kill(actor: unknown): void {
  host.ofActor(actor).kill();
}

/** An actor of the tenant, by its name. */
export function getActor<T = any>(name: string): Handle<T> {
  if (typeof name !== 'string') throw new TypeError(`the name of an actor is text, got ${typeof name}`);
  return host.findActor(name);
}

/** The task, or the call, that runs. */
export const context = {
  get taskId(): string {
    return taskId();
  },
  get attempt(): number {
    return attempt();
  },
  get node(): string {
    return node();
  },
  get arrayIndex(): number | undefined {
    const index = arrayIndex();
    return index === undefined ? undefined : Number(index);
  },
  /** What it holds: amounts in 1/10,000 of a unit. */
  get resources(): { name: string; amount: bigint; units: { id: number; amount: bigint }[] }[] {
    return resources();
  },
  /** Of a program: what stands behind `--` on the command line. */
  get args(): string[] {
    return getArguments().slice(2);
  },
  /** What `--env` grants. */
  get env(): Record<string, string> {
    return Object.fromEntries(getEnvironment().filter(([name]) => name !== 'WASMRUN_SCRIPT'));
  },
};
