// What `inside.test.mjs` runs in sandboxes: an app with classes, tasks of its own, and an import.

import { Actor, context, get, put, remote, spawn, type ObjectRef } from 'wasmrun/guest';

import { double } from './double.js';

export const twice = (n: number): number => double(n);
export const total = (refs: ObjectRef<number>[]): number => get(refs).reduce((all, it) => all + it, 0);
export const started = (n: number): ObjectRef<number> => spawn(twice, n);
export const stored = (): { at: ObjectRef<unknown> } => ({ at: put({ deep: [1n] }) });
export const echo = (it: unknown): unknown => it;
export const counter = (): Promise<unknown> => Counter.create(10);

class OrderError extends RangeError {
  constructor(readonly code: number) {
    super(`order ${code} is too far`);
  }
}

export function far(): never {
  throw new OrderError(7);
}

export class Counter extends Actor {
  #total: number;
  constructor(total: number) {
    super();
    if (total < 0) throw new TypeError('not below nothing');
    this.#total = total;
  }
  add(n: number): number {
    return (this.#total += n);
  }
  async fail(): Promise<never> {
    await null;
    throw new SyntaxError('as asked');
  }
}

export default async function (...args: string[]): Promise<void> {
  console.log(args.join('+'), context.args.length, await remote(twice)(21));
}
