// The program: the text that was sent here, and what it exports.

import { programOf, textOf } from './host';
import { placesOf } from './places';

// Before anything of the program's can change it.
const evaluate = eval;
const isOwn = Object.hasOwn;

let exported: Record<string, unknown> | undefined;
// As it crosses, if it has.
let home: Uint8Array | undefined;
let source: string | undefined;

/** A function with this body. What it declares is its own. */
export function evaluated(body: string, parameters: string[]): Function {
  const kind = /\bawait\b/.test(body) ? 'async function' : 'function';
  return evaluate(`(${kind} (${parameters.join()}) {${body}\n})`);
}

function loaded(text: string): unknown {
  exported = undefined;
  source = text;
  placesOf(text);
  const made = evaluate(`(function () {${text}\n})`)();
  if (typeof made?.then === 'function') return Promise.resolve(made).then((it) => void (exported = it));
  exported = made;
}

/** Evaluates a program as it crosses: a promise if that takes time. */
export function load(given: Uint8Array): unknown {
  home = given;
  return loaded(textOf(given));
}

/** Evaluates a program that is text. */
export function loadText(text: string): unknown {
  home = undefined;
  return loaded(text);
}

/** What the program exports under this name. */
export function find(name: string): any {
  if (exported === undefined || !isOwn(exported, name)) {
    throw new TypeError(`the program exports no '${name}'; it exports ${Object.keys(exported ?? {}).join(', ') || 'nothing'}`);
  }
  return exported[name];
}

/** Whether the program exports something under this name. */
export const has = (name: string): boolean => exported !== undefined && isOwn(exported, name);

/** By what name the program exports this. */
export function nameOf(given: Function): string {
  if (source === undefined) throw new TypeError('a snippet has no functions for other sandboxes: call them outside');
  if (exported === undefined) {
    throw new TypeError('top-level code runs in each sandbox, so it starts no tasks: do that in a function, such as the default export');
  }
  for (const name of Object.keys(exported)) if (exported[name] === given) return name;
  throw new TypeError(`the program does not export ${given.name || 'this function'}: what runs in other sandboxes is exported by its first module`);
}

/** The program as it crosses. */
export function program(): Uint8Array {
  return (home ??= programOf(source!));
}
