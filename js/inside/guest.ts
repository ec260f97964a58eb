// `wasmrun/guest`: what a program in a sandbox uses of wasmrun. Its types, with what they mean, are in `lib/guest.ts`.

import { arrayIndex, attempt, node, resources, taskId } from 'wasmrun:runtime/context@0.1.0';
import { getArguments, getEnvironment } from 'wasi:cli/environment@0.2.0';

import * as host from './host';
import { nameOf, program } from './program';
import { GetTimeoutError } from '../lib/inside/guest-errors';
import { methods } from '../lib/inside/names';
import type { Context, Options } from '../lib/guest';

export * from '../lib/inside/guest-errors';
export { ObjectRef } from './host';
import { ObjectRef } from './host';

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

const isClass = (given: Function): boolean => Function.prototype.toString.call(given).startsWith('class');

export function remote(given: any, options: Options = {}): any {
  if (typeof given !== 'function') throw new TypeError(`remote() is for functions and classes; got ${typeof given}`);
  const more = (changed: Options) => remote(given, { ...options, ...changed });
  if (isClass(given)) {
    const create = async (...args: unknown[]) => {
      const data = host.data(args, `${given.name}() argument `);
      return host.create(program(), nameOf(given), data, asked(options, OF_ACTORS), methods(given));
    };
    return { create, options: more };
  }
  const ref = (...args: unknown[]): ObjectRef => {
    const data = host.data(args, `${given.name}() argument `);
    return host.spawn(program(), nameOf(given), data, args.filter(ObjectRef.is), asked(options, OF_TASKS));
  };
  return Object.assign((...args: unknown[]) => host.settled(ref(...args), true), { ref, options: more });
}

export function spawn(given: Function, ...args: unknown[]): ObjectRef {
  return remote(given).ref(...args);
}

export class Actor {
  static create(...args: unknown[]): Promise<unknown> {
    return remote(this).create(...args);
  }

  static options(options: Options): unknown {
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

export function get(given: any, timeout?: number): any {
  if (ObjectRef.is(given)) return host.get(given, timeout);
  const end = timeout === undefined ? undefined : Date.now() + timeout;
  return checked(given).map((ref) => host.get(ref, end === undefined ? undefined : Math.max(end - Date.now(), 0)));
}

export function value(ref: ObjectRef): Promise<unknown> {
  return host.settled(checked([ref])[0]!);
}

export function wait(refs: Iterable<ObjectRef>, { count = 1, timeout }: { count?: number; timeout?: number } = {}): [ObjectRef[], ObjectRef[]] {
  const all = checked(refs);
  if (!(Number.isInteger(count) && count >= 1 && count <= Math.max(all.length, 1))) {
    throw new RangeError(`count is 1 to ${all.length}, the number of objects; got ${count}`);
  }
  const ready = new Set(all.length ? host.arrived(all, count, timeout).slice(0, count) : []);
  return [all.filter((_, at) => ready.has(at)), all.filter((_, at) => !ready.has(at))];
}

export function* asCompleted(refs: Iterable<ObjectRef>, { timeout }: { timeout?: number } = {}): Generator<ObjectRef> {
  const end = timeout === undefined ? undefined : Date.now() + timeout;
  for (let left = checked(refs); left.length; ) {
    const ready = new Set(host.arrived(left, 1, end === undefined ? undefined : Math.max(end - Date.now(), 0)));
    if (!ready.size) throw new GetTimeoutError(`timed out: ${left.length} objects are not there yet`);
    yield* left.filter((_, at) => ready.has(at));
    left = left.filter((_, at) => !ready.has(at));
  }
}

export function put(given: unknown): ObjectRef {
  return host.put(given);
}

export function cancel(ref: ObjectRef): void {
  ObjectRef.parts(checked([ref])[0]!).handle.cancel();
}

export function kill(actor: unknown): void {
  host.ofActor(actor).kill();
}

export function getActor(name: string): unknown {
  if (typeof name !== 'string') throw new TypeError(`the name of an actor is text, got ${typeof name}`);
  return host.findActor(name);
}

export const context: Context = {
  get taskId() {
    return taskId();
  },
  get attempt() {
    return attempt();
  },
  get node() {
    return node();
  },
  get arrayIndex() {
    const index = arrayIndex();
    return index === undefined ? undefined : Number(index);
  },
  get resources() {
    return resources();
  },
  // Behind the names of the interpreter and of the script.
  get args() {
    return getArguments().slice(2);
  },
  get env() {
    return Object.fromEntries(getEnvironment().filter(([name]) => name !== 'WASMRUN_SCRIPT'));
  },
};
