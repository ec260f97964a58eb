/**
 * Modules: what they export, by names of JavaScript.
 *
 * Owns which name an export has: its own where that is unambiguous, `interface.name` always.
 */

import { type Description, cls, fn, plainName } from './functions.js';
import type { Link } from './link.js';
import { camel } from './names.js';

/** A module of which nothing more is known; `wasmrun stubs MODULE --lang ts` writes what is. */
// Anything may be there, as in what JSON.parse gives.
export type Module = Readonly<Record<string, any>>;

/** What the compiled part says of a module. */
export interface ModuleDescription {
  functions: [name: string, id: number, type: Description][];
  classes: [name: string, id: number, type: Description][];
}

type Space = Record<string, unknown>;

export function moduleOf(link: Link, described: ModuleDescription): Module {
  const module: Space = {};
  const interfaces = new Map<string, Space>();
  /** Who has an export of a name; '' is the module itself. */
  const owners = new Map<string, string[]>();
  const add = (full: string, made: { readonly name: string }) => {
    const owner = interfaceOf(full);
    if (owner !== '') {
      let space = interfaces.get(owner);
      if (space === undefined) {
        space = {};
        interfaces.set(owner, space);
      }
      define(space, made.name, made);
    }
    const all = owners.get(made.name) ?? [];
    owners.set(made.name, [...all, owner]);
    if (all.length === 0) define(module, made.name, made);
  };
  for (const [full, id, type] of described.functions) add(full, fn(link, id, full, type));
  for (const [full, id, type] of described.classes) add(full, cls(link, id, full, type));
  for (const [name, all] of owners) {
    if (all.length > 1) ambiguous(module, name, all);
  }
  for (const [name, space] of interfaces) {
    if (!owners.has(name)) define(module, name, Object.freeze(space));
  }
  return Object.freeze(module);
}

function define(space: Space, name: string, value: unknown): void {
  Object.defineProperty(space, name, { value, enumerable: true, configurable: true });
}

/** A name that several interfaces have: who uses it is told what to say instead. */
function ambiguous(module: Space, name: string, owners: string[]): void {
  Object.defineProperty(module, name, {
    enumerable: false,
    get() {
      const choices = owners.map((it) => `${it}.${name}`).join(', ');
      throw new TypeError(`several interfaces have '${name}': say ${choices}`);
    },
  });
}

/** The interface of an export, if it is of one: of `ns:package/interface@1.0.0#name` that is `interface`. */
function interfaceOf(full: string): string {
  const path = full.slice(0, Math.max(full.length - plainName(full).length - 1, 0));
  return camel(path.split('@', 1)[0]!.split('/').pop()!);
}
