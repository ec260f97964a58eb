// Tasks, objects and actors of a program, and what waits for them.

import { Actor, ObjectRef, asCompleted, cancel, context, get, getActor, kill, put, remote, spawn, value, wait, type Handle } from 'wasmrun/guest';
import { same, thrown } from './check';

export const square = (n: number): number => n * n;
export async function later(n: number): Promise<number> {
  await new Promise((done) => setTimeout(done, 5));
  return n;
}
export function far(): never {
  throw Object.assign(new RangeError('too far'), { code: 7 });
}
export const sum = (refs: ObjectRef<number>[]): number => get(refs).reduce((all, it) => all + it, 0);
export const echo = (it: unknown): unknown => it;
export const nested = (n: number): number => (n ? get(spawn(nested, n - 1)) + 1 : 0);
export const add = (to: Handle<Counter>, n: number): Promise<number> => to.add(n);
export const hang = (): Promise<never> => new Promise(() => {});
export const forever = (): void => {
  for (;;);
};
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
  async slowly(n: number): Promise<number> {
    await null;
    return this.add(n);
  }
  fail(): never {
    throw new SyntaxError('as asked');
  }
  _own(): void {}
}

export default async function (...args: string[]): Promise<void> {
  same(args, ['a', 'b c'], 'arguments');
  same([context.args, context.env, context.attempt], [args, { FOO: 'bar' }, 0], 'context');
  same(get([1, 2, 3].map((n) => spawn(square, n))), [1, 4, 9], 'tasks');
  same(get(spawn(nested, 3)), 3, 'nested');
  same([get(spawn(square, spawn(square, 2))), await remote(later)(spawn(square, 3))], [16, 9], 'objects are arguments');
  same(await Promise.all([remote(later)(1), remote(square)(2), new Promise((done) => setTimeout(done, 1, 'time'))]), [1, 4, 'time'], 'side by side');
  const stored = put({ deep: [1, 2n] });
  same([get(stored), await value(stored), await remote(echo)(stored)], Array(3).fill({ deep: [1, 2n] }), 'put');
  same(await remote(sum)([spawn(square, 3), spawn(later, 4)]), 13, 'objects inside of arguments');
  const [, , error] = await thrown(() => remote(far)());
  same([error instanceof RangeError, error.message, error.code, /far@/.test(error.stack)], [true, 'too far', 7, true], 'errors');
  const [ready, waiting] = wait([spawn(square, 1), spawn(hang)]);
  same([ready.length, waiting.length], [1, 1], 'wait');
  same([...asCompleted([spawn(square, 5)])].map((it) => get(it)), [25], 'asCompleted');
  same((await thrown(() => remote(hang)()))[1], 'the promise is never settled: nothing is left that could do that', 'never settled');
  same((await thrown(() => remote(forever, { timeLimit: 100 })()))[0], 'LimitError', 'limits');
  const slow = spawn(forever);
  cancel(slow);
  same((await thrown(() => get(slow)))[0], 'TaskCancelledError', 'cancel');
  same((await thrown(() => get(spawn(hang), 0)))[0], 'GetTimeoutError', 'time is up');

  // More than the task's memory in all: what is copied for a call does not stay.
  const large = new Uint8Array(8 << 20);
  for (let at = 0; at < 40; at++) {
    using _ = put(large);
  }

  const counter = await Counter.options({ name: 'inside' }).create(10);
  same([await counter.add(1), get(counter.add.ref(1)), await counter.slowly(1), await remote(add)(counter, spawn(square, 1))], [11, 12, 13, 14], 'an actor');
  same(await getActor<Counter>('inside').add(1), 15, 'by name');
  same((await thrown(() => counter.fail())).slice(0, 2), ['SyntaxError', 'as asked'], 'a method that fails');
  same((await thrown(() => (counter as any)._own()))[1], "the actor has no method '_own'; it has add,slowly,fail", 'own methods');
  kill(counter);
  same((await thrown(() => counter.add(1)))[0], 'ActorDiedError', 'kill');
  const none = await Counter.create(-1);
  same((await thrown(() => none.add(1))).slice(0, 2), ['TypeError', 'not below nothing'], 'a constructor that fails');

  same((await thrown(() => spawn(() => 1)))[1].includes('is exported by its first module'), true, 'what is not exported');
  same((await thrown(() => remote(square, { bogus: 1 } as object)(1)))[1], "there is no option 'bogus'", 'options');
  same((await thrown(() => remote(square, { retries: -1 })(1)))[0], 'RangeError', 'options that are none');
  same((await thrown(() => put(() => 1)))[1].startsWith('put() argument: a function cannot cross'), true, 'functions');
}
