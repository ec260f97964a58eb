/// <reference lib="esnext.disposable" preserve="true" />
/**
 * Drive wasmrun from JavaScript: sandboxed WebAssembly tasks, actors and objects.
 *
 *     import { connect } from 'wasmrun';
 *
 *     const node = await connect();
 *     const orders = await node.load('orders.wasm');
 *     console.log(await orders.price(order, rules));
 */

import { native } from './native.js';

export * from './errors.js';
export { Actor, Ref } from './handles.js';
export { Node, connect } from './node.js';
export type { ConnectOptions, Member } from './node.js';
export type { WaitOptions } from './link.js';
export type { Module } from './module.js';
export { JavaScriptError } from './inside/inside.js';
export type { Exports, Remote, RemoteActor, RemoteClass, RemoteMethod, RunOptions } from './remote.js';
export type { TypedArray } from './numbers.js';
export type {
  ActorOptions,
  CallOptions,
  Class,
  Fn,
  Given,
  Method,
  MethodOptions,
  Resources,
} from './functions.js';

/** The version of the package, of the program in it, and of what they speak. */
export const version: string = native.version();

/** A value where `undefined` is a value, too: an option in an option. */
export type Option<T> = { tag: 'none' } | { tag: 'some'; val: T };

/** A `result` inside a value. Where a function itself returns one, a call gives the value, or throws a `GuestError`. */
export type Result<T, E> = { tag: 'ok'; val: T } | { tag: 'err'; val: E };
