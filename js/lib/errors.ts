/** What goes wrong, as errors. A message says what, why and what to do. */

/** Anything that wasmrun throws, but for a `TypeError` where a value does not fit. */
export class WasmrunError extends Error {
  static {
    this.prototype.name = 'WasmrunError';
  }
}

/** No node runs at the address. */
export class NodeNotRunningError extends WasmrunError {
  static {
    this.prototype.name = 'NodeNotRunningError';
  }
}

/** The node is gone, or does not let us in. What was submitted through it is cancelled, unless it was detached. */
export class ConnectionLostError extends WasmrunError {
  static {
    this.prototype.name = 'ConnectionLostError';
  }
}

/** The node does not do what it was asked for. */
export class RefusedError extends WasmrunError {
  static {
    this.prototype.name = 'RefusedError';
  }
}

/** A value was not there in time. What makes it goes on. */
export class GetTimeoutError extends WasmrunError {
  static {
    this.prototype.name = 'GetTimeoutError';
  }
}

/** A file cannot be bundled for sandboxes: the message says where and why. */
export class BundleError extends WasmrunError {
  static {
    this.prototype.name = 'BundleError';
  }
}

/** A task or call failed. */
export class TaskError extends WasmrunError {
  /** The id of the one that failed first. */
  task?: string;
  /** What was called. */
  function?: string;
  /** Where the guest was, innermost first. */
  frames: string[] = [];
  static {
    this.prototype.name = 'TaskError';
  }
}

/** The guest stopped with a trap, such as a panic or an access out of bounds. */
export class TrapError extends TaskError {
  static {
    this.prototype.name = 'TrapError';
  }
}

/** The function returned the error of its `result`. */
export class GuestError extends TaskError {
  /** The error. */
  payload: unknown;
  /** The same as text. */
  text = '';
  static {
    this.prototype.name = 'GuestError';
  }
}

/** The program ended with a code other than 0. */
export class ExitError extends TaskError {
  code = 1;
  static {
    this.prototype.name = 'ExitError';
  }
}

/** It reached a limit: of memory, time, output or the like. */
export class LimitError extends TaskError {
  static {
    this.prototype.name = 'LimitError';
  }
}

/** Somebody cancelled it. */
export class TaskCancelledError extends TaskError {
  static {
    this.prototype.name = 'TaskCancelledError';
  }
}

/** The arguments do not fit the function. */
export class ArgumentsError extends TaskError {
  static {
    this.prototype.name = 'ArgumentsError';
  }
}

/** An object that it needs could not be made. The cause is how that failed. */
export class DependencyError extends TaskError {
  /** Which argument, from 0. */
  argument = 0;
  static {
    this.prototype.name = 'DependencyError';
  }
}

/** The actor is dead. The cause is how it died, if it was not killed. */
export class ActorDiedError extends TaskError {
  actor = '';
  static {
    this.prototype.name = 'ActorDiedError';
  }
}

/** No node can ever run it. */
export class UnschedulableError extends TaskError {
  static {
    this.prototype.name = 'UnschedulableError';
  }
}

/** An object is gone with the nodes that had it. */
export class ObjectLostError extends TaskError {
  static {
    this.prototype.name = 'ObjectLostError';
  }
}

/** The sandbox could not be set up: not what the guest does wrong. */
export class SandboxError extends TaskError {
  static {
    this.prototype.name = 'SandboxError';
  }
}

const byKind = new Map<string, new (message: string, options?: ErrorOptions) => WasmrunError>([
  ['not-running', NodeNotRunningError],
  ['connection', ConnectionLostError],
  ['refused', RefusedError],
  ['timeout', GetTimeoutError],
  ['trap', TrapError],
  ['guest-error', GuestError],
  ['exit', ExitError],
  ['limit', LimitError],
  ['cancelled', TaskCancelledError],
  ['arguments', ArgumentsError],
  ['dependency', DependencyError],
  ['actor-died', ActorDiedError],
  ['unschedulable', UnschedulableError],
  ['object-lost', ObjectLostError],
  ['sandbox', SandboxError],
]);

/** What the compiled part says of a failure. */
export interface Failure {
  kind: string;
  message: string;
  frames?: string[];
  cause?: Failure;
  [detail: string]: unknown;
}

/** The error of a failure. */
/** @internal */
export function made({ kind, message, cause, ...details }: Failure): WasmrunError {
  const options = cause === undefined ? undefined : { cause: made(cause) };
  const error = new (byKind.get(kind) ?? WasmrunError)(message, options);
  return Object.assign(error, details);
}
