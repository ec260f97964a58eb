import { remote } from 'wasmrun/guest';

import { double } from './double.js';

function caught(): never {
  throw new Error('caught');
}

export function task(): never {
  throw new TypeError('a task');
}

export default async function (): Promise<void> {
  for (const fails of [caught, remote(task)]) {
    try {
      await fails();
    } catch (error) {
      console.error(error);
    }
  }
  const last = () => {
    throw new RangeError('not caught', { cause: double(1) });
  };
  last();
}
