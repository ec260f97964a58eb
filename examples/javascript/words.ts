// Runs in sandboxes: `in-sandboxes.ts` calls it.

import { Actor } from 'wasmrun/guest';

type Counts = Map<string, number>;

/** How often each word is in a text. */
export function count(text: string): Counts {
  const counts: Counts = new Map();
  for (const [word] of text.toLowerCase().matchAll(/[a-z]+/g)) counts.set(word, (counts.get(word) ?? 0) + 1);
  return counts;
}

/** The words of all texts. */
export class Totals extends Actor {
  readonly #all: Counts = new Map();

  add(counts: Counts): number {
    for (const [word, times] of counts) this.#all.set(word, (this.#all.get(word) ?? 0) + times);
    return this.#all.size;
  }

  most(count: number): [word: string, times: number][] {
    return [...this.#all].sort(([, one], [, other]) => other - one).slice(0, count);
  }
}
