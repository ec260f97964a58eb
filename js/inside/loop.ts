// Waiting: for objects, for time and for what WASI has, which is all there is to wait for in a sandbox.
//
// Owns timers, and which objects and pollables promises wait for. The engine's own loop knows none of them, so it has at most one
// timer: what that runs waits in the node, and lets others have the CPU meanwhile.

import { subscribeDuration } from 'wasi:clocks/monotonic-clock@0.2.0';
import { poll, type Pollable } from 'wasi:io/poll@0.2.0';

import { arrived, get, settleBy, ObjectRef } from './host';

type Timer = { id: number; due: number; every?: number; run: () => void };
type Waiting = { ref: ObjectRef; isOurs: boolean; resolve: (value: unknown) => void; reject: (error: unknown) => void };

// No more than it is sure to have room for.
const MOST_MS = 2 ** 31 - 1;
// Objects and pollables cannot be waited for together: how long objects are, before pollables are looked at.
const TURN_MS = 10;
const now = (): number => Date.now();
const [native, nativeClear] = [setTimeout, clearTimeout];
let timers: Timer[] = [];
let waiting: Waiting[] = [];
let polled: { pollable: Pollable; run: () => void }[] = [];
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

const isWaiting = (): boolean => waiting.length > 0 || polled.length > 0;

/** Lets objects arrive, or waits so long for one. */
function arriving(most: number | undefined): void {
  let ready: number[] = [];
  let failed: unknown;
  try {
    ready = arrived(
      waiting.map((it) => it.ref),
      1,
      most,
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
}

/** Runs what waits for pollables that are ready, or waits so long for one. */
function polling(most: number | undefined): void {
  const all = polled.map((it) => it.pollable);
  const end = most === undefined ? undefined : subscribeDuration(BigInt(Math.ceil(most)) * 1_000_000n);
  if (end !== undefined) all.push(end);
  const ready = new Set(poll(all));
  end?.[Symbol.dispose]();
  for (const { run } of polled.filter((_, at) => ready.has(at))) run();
}

/** Runs one timer, or lets arrive what is there. */
function turn(): void {
  coming = undefined;
  const timer = next();
  const left = timer === undefined ? undefined : Math.max(timer.due - now(), 0);
  // What is due does not wait, and does not keep objects from arriving.
  const hasObjects = waiting.length > 0;
  if (hasObjects) arriving(polled.length ? Math.min(left ?? TURN_MS, TURN_MS) : left);
  if (polled.length) polling(hasObjects ? 0 : left);
  else if (!hasObjects && left !== undefined && left > 0) return come(left);
  if (timer !== undefined && timer.due <= now()) {
    if (timer.every === undefined) timers = timers.filter((it) => it !== timer);
    else timer.due = now() + timer.every;
    // First what comes after: it may throw.
    if (isWaiting() || timers.length) come(0);
    try {
      timer.run();
    } catch (error) {
      if (current === undefined) throw error;
      current.fail(error);
    }
  }
  if (isWaiting() || timers.length) come(0);
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
      if (isWaiting() || timers.length) rounds = 0;
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

/** Waits until this is ready, and gives it back; it throws the reason of the signal if that comes first. */
export function ready(pollable: Pollable, signal: AbortSignal | undefined): Promise<void> {
  return new Promise((resolve, reject) => {
    const end = () => {
      polled = polled.filter((it) => it !== waits);
      signal?.removeEventListener('abort', abort);
      pollable[Symbol.dispose]();
    };
    const abort = () => (end(), reject(signal!.reason));
    const waits = { pollable, run: () => (end(), resolve()) };
    if (signal?.aborted) return abort();
    signal?.addEventListener('abort', abort);
    polled.push(waits);
    come(0);
  });
}

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
