// What `tests/conformance/guests.json` asks of guests, by JavaScript in sandboxes. Each of its rows is a function of the same name.

import * as wasmrun from 'wasmrun/guest';

const { Actor, context, get, put, remote } = wasmrun;
type Ref = wasmrun.ObjectRef<number>;

const CLASSES = [
  [wasmrun.GetTimeoutError, 'timed-out'],
  [wasmrun.RefusedError, 'refused'],
  [wasmrun.DependencyError, 'dependency'],
  [wasmrun.LimitError, 'limit'],
  [wasmrun.TaskCancelledError, 'cancelled'],
  [wasmrun.ActorDiedError, 'actor-died'],
  // A trap, or an exit, which has no class of its own.
  [wasmrun.TaskError, 'ended'],
] as const;

/** What a call gives, or how it fails, in the table's words. What a task throws is thrown here with its own class. */
async function said(call: () => unknown): Promise<string> {
  try {
    return String(await call());
  } catch (error: any) {
    const found = CLASSES.find(([of]) => error instanceof of);
    return found?.[1] ?? (error.message === 'why' ? 'guest' : String(error));
  }
}

export const add = (a: number, b: number): number => a + b;
export const total = (numbers: number[]): number => numbers.reduce(add, 0);
export const gather = (futures: Ref[]): number => total(get(futures));
export function fail(why: string): number {
  throw new Error(why);
}
/** Traps: JavaScript cannot exit, but the engine aborts if the promise of a result cannot be made. */
export function end(): number {
  Object.defineProperty(Object.prototype, 'then', { get: () => fail('no promises') });
  return 0;
}
export function spin(): number {
  for (;;);
}
export const whoami = (): string => context.taskId;

export class Counter extends Actor {
  constructor(protected n: number) {
    super();
  }
  add(n: number): number {
    return (this.n += n);
  }
  end(): number {
    return end();
  }
}

/** Goes on from its checkpoint. */
export class Keeper extends Counter {
  checkpoint(): number {
    return this.n;
  }
  static restore(n: number): Keeper {
    return new Keeper(n);
  }
}
type Counters = wasmrun.Handle<Counter>;

/** The limit is for a test that goes wrong. */
const spinning = remote(spin, { timeLimit: 60_000 });

export const spawn = (a: number, b: number): number => get(wasmrun.spawn(add, a, b));

export function futures(times: number): number {
  let last = put(0);
  for (let at = 0; at < times; at++) last = wasmrun.spawn(add, last, 1);
  return get(last);
}

export const putAndGet = (numbers: number[]): number[] => get(put(numbers));

export function share(numbers: number[]): number[] {
  const stored = put(numbers);
  return get([wasmrun.spawn(total, stored), wasmrun.spawn(total, stored)]);
}

export const passHandles = (count: number): Promise<number> =>
  remote(gather)(Array.from({ length: count }, (_, n) => wasmrun.spawn(add, n, 1)));

export function waitForOne(): number[] {
  const [ready, rest] = wasmrun.wait([spinning.ref(), wasmrun.spawn(add, 1, 2)], { count: 1 });
  const value = get(ready[0]!);
  rest.forEach(wasmrun.cancel);
  return [ready.length, rest.length, value];
}

export async function errorOf(what: string): Promise<string> {
  if (what === 'cancel' || what === 'timeout') {
    const ref = spinning.ref();
    if (what === 'cancel') wasmrun.cancel(ref);
    const told = await said(() => get(ref, what === 'timeout' ? 10 : undefined));
    wasmrun.cancel(ref);
    return told;
  }
  const calls: Record<string, () => unknown> = {
    fail: () => remote(fail)('why'),
    end: () => remote(end)(),
    limit: () => spinning.options({ timeLimit: 50 })(),
    argument: () => remote(add)(wasmrun.spawn(fail, 'why'), 1),
    resources: () => remote(add, { cpus: 100_000 })(1, 2),
  };
  return said(calls[what]!);
}

export const payload = (why: string): Promise<unknown> => remote(fail)(why).catch((error) => error.message);
export const passOn = (why: string): Promise<number> => remote(fail)(why);

export async function count(times: number): Promise<number[]> {
  const counter = await Counter.create(0);
  return get(Array.from({ length: times }, () => counter.add.ref(1)));
}

export async function countByFuture(a: number, b: number): Promise<number> {
  const counter = await Counter.create(0);
  return counter.add(wasmrun.spawn(add, a, b));
}

export async function countFor(counter: Counters, times: number): Promise<void> {
  for (let at = 0; at < times; at++) await counter.add(1);
}

export async function countTogether(times: number): Promise<number> {
  const counter = await Counter.create(0);
  await Promise.all([remote(countFor)(counter, times), remote(countFor)(counter, times)]);
  return counter.add(0);
}

export async function named(name: string): Promise<string[]> {
  const counter = await Counter.options({ name }).create(1);
  const found = await wasmrun.getActor<Counter>(name).add(1);
  const nobody = await said(() => wasmrun.getActor(`${name}-nobody`));
  const again = await said(() => Counter.options({ name }).create(1));
  wasmrun.kill(counter);
  return [String(found), nobody, again];
}

export async function killed(): Promise<string> {
  const counter = await Counter.create(0);
  wasmrun.kill(counter);
  return said(() => counter.add(1));
}

async function endAndAdd(made: typeof Counter): Promise<number[]> {
  const counter = await made.options({ restarts: 1 }).create(10);
  const before = await counter.add(1);
  await said(() => counter.end());
  return [before, await counter.add(1)];
}

export const beginAnew = (): Promise<number[]> => endAndAdd(Counter);
export const goOn = (): Promise<number[]> => endAndAdd(Keeper);

export async function identity(): Promise<boolean[]> {
  const [own, other] = [context.taskId, await remote(whoami)()];
  return [/^[0-9a-f]{32}$/.test(own), own !== other, context.node !== ''];
}
