/** JavaScript in sandboxes, as TypeScript sees it. What it does is in `inside/inside.ts`. */

import type { ActorOptions, CallOptions, Given } from './functions.js';
import type { Ref } from './handles.js';

/** A method of an actor whose class is of JavaScript. */
export interface RemoteMethod<P extends unknown[] = any[], T = any> {
  /** Calls it: what it returns. */
  (...values: Given<P>): Promise<Awaited<T>>;
  /** Calls it: an object that will be what it returns. */
  ref(...values: Given<P>): Ref<Awaited<T>>;
}

/** A function whose calls run in sandboxes, each in a fresh one. */
export interface Remote<P extends unknown[] = any[], T = any> extends RemoteMethod<P, T> {
  /** The same function, whose calls ask for something besides. */
  options(options: CallOptions): Remote<P, T>;
}

/** An actor whose class is of JavaScript. */
export type RemoteActor<T> = {
  readonly [K in keyof T as T[K] extends (...values: any) => any ? K : never]: T[K] extends (...values: infer P) => infer V
    ? RemoteMethod<P, V>
    : never;
};

/** A class whose instances are actors. */
export interface RemoteClass<P extends unknown[] = any[], T = any> {
  /** Creates an actor. What its constructor throws, its calls throw. */
  create(...values: Given<P>): Promise<RemoteActor<T>>;
  /** The same class, whose actors ask for something besides. */
  options(options: ActorOptions): RemoteClass<P, T>;
}

/** What a program exports. */
export type Exports<M> = {
  readonly [K in keyof M as M[K] extends (new (...values: any) => any) | ((...values: any) => any) ? K : never]: M[K] extends new (
    ...values: infer P
  ) => infer T
    ? RemoteClass<P, T>
    : M[K] extends (...values: infer P) => infer T
      ? Remote<P, T>
      : never;
};

/** What a snippet is given, and may ask for. */
export interface RunOptions extends CallOptions {
  /** Its variables. */
  inputs?: Record<string, unknown>;
}
