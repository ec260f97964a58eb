/// <reference lib="esnext.disposable" preserve="true" />
/**
 * `wasmrun/guest`: what programs in sandboxes use of wasmrun.
 *
 * Owns its types, and the names where there is no sandbox: a file may import them for the functions that it gives to `remote()`. What
 * they do is in `js/inside/guest.ts`.
 */

/** What a task or an actor asks for. Times are in milliseconds. */
export interface Options {
  cpus?: number | string;
  gpus?: number | string;
  memory?: number | string;
  resources?: Record<string, number | string>;
  timeLimit?: number;
  labels?: string;
  strategy?: string;
  /** Of tasks. */
  retries?: number;
  retryOnError?: boolean;
  priority?: number;
  /** Of actors. */
  name?: string;
  restarts?: number;
  callRetries?: number;
}

/** Arguments: an object stands for its value. */
export type Given<A extends unknown[]> = { [K in keyof A]: A[K] | ObjectRef<A[K]> };

/** A method of an actor: called, it gives a promise of what the method returns. */
export interface Method<A extends unknown[] = any[], R = any> {
  (...args: Given<A>): Promise<Awaited<R>>;
  /** Calls it: the object that it will make. */
  ref(...args: Given<A>): ObjectRef<Awaited<R>>;
}

/** A function whose calls run in sandboxes of their own. */
export interface Remote<A extends unknown[] = any[], R = any> extends Method<A, R> {
  /** The same, whose calls ask for something. */
  options(options: Options): Remote<A, R>;
}

/** An actor: an instance in a sandbox of its own, which runs one call at a time. */
export type Handle<T> = {
  [K in keyof T as T[K] extends (...args: any) => any ? K : never]: T[K] extends (...args: infer A) => infer R ? Method<A, R> : never;
};

/** A class whose instances are actors. */
export interface RemoteClass<A extends unknown[] = any[], T = any> {
  create(...args: Given<A>): Promise<Handle<T>>;
  /** The same, whose actors ask for something. */
  options(options: Options): RemoteClass<A, T>;
}

/** The task, or the call, that runs. */
export interface Context {
  readonly taskId: string;
  readonly attempt: number;
  readonly node: string;
  readonly arrayIndex: number | undefined;
  /** What it holds: amounts in 1/10,000 of a unit. */
  readonly resources: { name: string; amount: bigint; units: { id: number; amount: bigint }[] }[];
  /** Of a program: what stands behind `--` on the command line. */
  readonly args: string[];
  /** What `--env` grants. */
  readonly env: Record<string, string>;
}

function missing(name: string): never {
  throw new Error(`${name} of wasmrun/guest is for functions that run in sandboxes: outside, a session does it`);
}

/** An object that is there or will be. As an argument of a call it stands for its value. */
export class ObjectRef<T = unknown> {
  declare readonly value?: T;

  constructor() {
    missing('ObjectRef');
  }

  get id(): string {
    return missing('ObjectRef');
  }

  /** Gives the handle back, which else goes with the task. */
  [Symbol.dispose](): void {}
}

/**
 * A class that is derived from it makes actors: `await Counter.create(0)`.
 *
 * One with the methods `checkpoint()` and `static restore(state)` keeps its state when it is started again: after each call the node
 * keeps what `checkpoint` returns, and `restore` makes the next instance of that, in place of the constructor.
 */
export class Actor {
  static create<A extends unknown[], T>(this: new (...args: A) => T, ..._: Given<A>): Promise<Handle<T>> {
    return missing('Actor');
  }

  static options<A extends unknown[], T>(this: new (...args: A) => T, _: Options): RemoteClass<A, T> {
    return missing('Actor');
  }
}

/** Makes a function's calls tasks, or a class's instances actors. The program's first module exports it. */
export function remote<A extends unknown[], T>(given: new (...args: A) => T, options?: Options): RemoteClass<A, T>;
export function remote<A extends unknown[], R>(given: (...args: A) => R, options?: Options): Remote<A, R>;
export function remote(): never {
  return missing('remote()');
}

/** Starts a function in a sandbox of its own: the object that it will make. */
export function spawn<A extends unknown[], R>(_: (...args: A) => R, ...__: Given<A>): ObjectRef<Awaited<R>> {
  return missing('spawn()');
}

/** The value of an object, or the values of several. It waits until all are there, and nothing else of this task runs meanwhile. */
export function get<T>(ref: ObjectRef<T>, timeout?: number): T;
export function get<T>(refs: Iterable<ObjectRef<T>>, timeout?: number): T[];
export function get(): never {
  return missing('get()');
}

/** The value of an object as a promise. */
export function value<T>(_: ObjectRef<T>): Promise<T> {
  return missing('value()');
}

/** Waits until `count` of the objects are there or have failed, or time is up. Those that are, at most so many, and the others. */
export function wait<T>(_: Iterable<ObjectRef<T>>, __?: { count?: number; timeout?: number }): [ready: ObjectRef<T>[], waiting: ObjectRef<T>[]] {
  return missing('wait()');
}

/** The objects, each as soon as it is there or has failed. */
export function asCompleted<T>(_: Iterable<ObjectRef<T>>, __?: { timeout?: number }): Generator<ObjectRef<T>> {
  return missing('asCompleted()');
}

/** Stores a value, to be given to many tasks. */
export function put<T>(_: T): ObjectRef<T> {
  return missing('put()');
}

/** Cancels the task that is to make an object, and all that it has started. */
export function cancel(_: ObjectRef): void {
  missing('cancel()');
}

/** Ends an actor. Its calls fail, the one that runs included. */
export function kill(_: Handle<any>): void {
  missing('kill()');
}

/** An actor of the tenant, by its name. */
export function getActor<T = any>(_: string): Handle<T> {
  return missing('getActor()');
}

export const context: Context = new Proxy({} as Context, { get: () => missing('context') });

export * from './inside/guest-errors.js';
