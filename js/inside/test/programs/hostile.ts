// What programs may do wrong ends or fails them alone.

import { remote } from 'wasmrun/guest';
import { same, thrown } from './check';

export const rejected = (): number => {
  void Promise.reject(new Error('nobody handles it'));
  return 1;
};
export const patched = (): unknown => {
  (Array.prototype as any)[Symbol.iterator] = null;
  (Object.prototype as any).extra = 1;
  Map.prototype.get = null as any;
  return { a: [1, 'x'] };
};
export const broken = (): unknown => {
  Array.prototype.push = () => {
    throw new Error('not any more');
  };
  return { a: [1] };
};
export const worker = (): unknown => new (globalThis as any).Worker('x.js');
export const deep = (): number => deep() + 1;
export const memory = (): void => {
  for (const all: unknown[] = []; ; ) all.push(new Uint8Array(1 << 20));
};
export const inTimer = (): unknown => {
  setTimeout(() => {
    throw new Error('in a timer');
  }, 1);
  return new Promise(() => {});
};
export const throwsText = (): never => {
  throw 'text';
};
export const throwsTrap = (): never => {
  throw { get message() { throw 1; }, toString() { throw 2; } };
};
export const getter = (): unknown => ({ get x() { throw new Error('in a getter'); } });
export const thenable = (): unknown => ({ then: (done: (of: number) => void) => done(5) });
export const interval = (): Promise<number> =>
  new Promise((done) => {
    let count = 0;
    const timer = setInterval(() => {
      if (++count === 3) {
        clearInterval(timer);
        done(count);
      }
    }, 1);
  });
export const engine = (): unknown => [typeof Intl, performance.now() >= 0, performance.now() < 60_000, Math.random() !== Math.random()];

export default async function (): Promise<void> {
  same(await remote(rejected)(), 1);
  same(await remote(patched)(), { a: [1, 'x'] });
  same((await thrown(() => remote(broken)()))[1].includes('changed prototypes that the interpreter needs'), true);
  same((await thrown(() => remote(worker)()))[0], 'TypeError');
  same((await thrown(() => remote(deep)()))[1], 'too much recursion');
  same((await thrown(() => remote(memory)()))[1].includes('out of memory'), true);
  same((await thrown(() => remote(inTimer)())).slice(0, 2), ['Error', 'in a timer']);
  same((await thrown(() => remote(throwsText)()))[2].cause, 'text');
  same((await thrown(() => remote(throwsTrap)()))[1], 'object: [what cannot be shown]');
  same((await thrown(() => remote(getter)()))[1], 'in a getter');
  same([await remote(thenable)(), await remote(interval)()], [5, 3]);
  same(await remote(engine)(), ['undefined', true, true, true]);
}
