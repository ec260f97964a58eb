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
