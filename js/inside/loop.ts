// Waiting: for objects and for time, which is all there is to wait for in a sandbox.
//
// Owns timers, and which objects promises wait for. The engine's own loop knows no objects, so it has at most one timer: what
// that runs waits in the node, and lets others have the CPU meanwhile.

import { arrived, get, settleBy, ObjectRef } from './host';

type Timer = { id: number; due: number; every?: number; run: () => void };
type Waiting = { ref: ObjectRef; isOurs: boolean; resolve: (value: unknown) => void; reject: (error: unknown) => void };

// No more than it is sure to have room for.
const MOST_MS = 2 ** 31 - 1;
const now = (): number => Date.now();
const [native, nativeClear] = [setTimeout, clearTimeout];
let timers: Timer[] = [];
let waiting: Waiting[] = [];
let last = 0;
let coming: { due: number; id: any } | undefined;

function come(delay: number): void {
  const due = now() + delay;
  if (coming !== undefined) {
    if (coming.due <= due) return;
    nativeClear(coming.id);
  }
  coming = { due, id: native(turn, delay) };
}

function next(): Timer | undefined {
  let first: Timer | undefined;
  for (const timer of timers) if (first === undefined || timer.due < first.due) first = timer;
  return first;
}

/** Runs one timer, or lets arrive what is there. */
function turn(): void {
  coming = undefined;
  const timer = next();
  const left = timer === undefined ? undefined : Math.max(timer.due - now(), 0);
  if (waiting.length) {
    // What is due does not wait, and does not keep objects from arriving.
    let ready: number[] = [];
    let failed: unknown;
    try {
      ready = arrived(
        waiting.map((it) => it.ref),
        1,
        left,
      );
    } catch (error) {
      failed = error;
    }
    const done = waiting.filter((_, at) => failed !== undefined || ready.includes(at));
    waiting = waiting.filter((it) => !done.includes(it));
    for (const { ref, isOurs, resolve, reject } of done) {
      if (failed !== undefined) {
        reject(failed);
        continue;
      }
      try {
        resolve(get(ref));
      } catch (error) {
        reject(error);
      }
      if (isOurs) ref[Symbol.dispose]();
    }
  } else if (left !== undefined && left > 0) {
    return come(left);
  }
  if (timer !== undefined && timer.due <= now()) {
    if (timer.every === undefined) timers = timers.filter((it) => it !== timer);
    else timer.due = now() + timer.every;
    // First what comes after: it may throw.
    if (waiting.length || timers.length) come(0);
    try {
      timer.run();
    } catch (error) {
      if (current === undefined) throw error;
      current.fail(error);
    }
  }
  if (waiting.length || timers.length) come(0);
}

// The call that runs, if it is not done at once.
let current: { fail: (error: unknown) => void } | undefined;
// So often nothing is found to wait for until that is an error: the engine may have something of its own.
const ROUNDS = 3;

/** What becomes of a call, which fails if nothing is left that it could wait for, or if a timer of it throws. */
export function watched<T>(promise: PromiseLike<T>): Promise<T> {
  return new Promise((resolve, reject) => {
    const call = (current = { fail: reject });
    let looking: any;
    const end = () => {
      nativeClear(looking);
      if (current === call) current = undefined;
    };
    promise.then(
      (value) => (end(), resolve(value)),
      (error) => (end(), reject(error)),
    );
    let rounds = 0;
    const look = () => {
      if (waiting.length || timers.length) rounds = 0;
      else if (++rounds > ROUNDS) return reject(new Error('the promise is never settled: nothing is left that could do that'));
      // Once the turn has been in which something arrives.
      looking = native(look, coming === undefined ? 0 : Math.max(coming.due - now(), 0) + 1);
    };
    looking = native(look, 0);
  });
}

settleBy(
  (ref, isOurs) =>
    new Promise((resolve, reject) => {
      waiting.push({ ref, isOurs, resolve, reject });
      come(0);
    }),
);

function set(run: unknown, delay: unknown, args: unknown[], repeats: boolean): number {
  if (typeof run !== 'function') throw new TypeError('a timer runs a function');
  const every = Math.min(Math.max(Number(delay) || 0, 0), MOST_MS);
  const timer: Timer = { id: ++last, due: now() + every, run: () => run(...args) };
  if (repeats) timer.every = every;
  timers.push(timer);
  come(0);
  return timer.id;
}

function clear(id: unknown): void {
  timers = timers.filter((it) => it.id !== id);
}

Object.assign(globalThis, {
  setTimeout: (run: unknown, delay?: unknown, ...args: unknown[]) => set(run, delay, args, false),
  setInterval: (run: unknown, delay?: unknown, ...args: unknown[]) => set(run, delay, args, true),
  clearTimeout: clear,
  clearInterval: clear,
});
