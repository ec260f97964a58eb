// Names that both sides of a sandbox must agree on: what `wasmrun/guest` exports, and the methods of a class.

/** What `wasmrun/guest` exports at run time. A test compares it with what there is. */
export const GUEST = [
  'Actor',
  'ActorDiedError',
  'DependencyError',
  'GetTimeoutError',
  'LimitError',
  'ObjectRef',
  'RefusedError',
  'TaskCancelledError',
  'TaskError',
  'TrapError',
  'asCompleted',
  'cancel',
  'context',
  'get',
  'getActor',
  'kill',
  'put',
  'remote',
  'spawn',
  'value',
  'wait',
] as const;

/** How a program gets them. */
export const GUEST_OF_SANDBOX = "globalThis[Symbol.for('wasmrun/guest')]";

/** The names of a class's methods, for the error of a call of another. */
export function methods(of: Function): string {
  const found = new Set<string>();
  for (let it = of.prototype; it && it !== Object.prototype; it = Object.getPrototypeOf(it)) {
    for (const name of Object.getOwnPropertyNames(it)) {
      const isMethod = typeof Object.getOwnPropertyDescriptor(it, name)?.value === 'function';
      if (isMethod && name !== 'constructor' && !name.startsWith('_')) found.add(name);
    }
  }
  return [...found].join(',');
}
