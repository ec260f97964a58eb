// Errors of tasks, as programs in sandboxes throw and catch them.

/** A task that has failed, or what it needs. `task` is the id of the one where it began. */
export class TaskError extends Error {
  task?: string;
}
export class TrapError extends TaskError {}
export class LimitError extends TaskError {}
export class TaskCancelledError extends TaskError {}
export class DependencyError extends TaskError {}
export class ActorDiedError extends TaskError {}
export class GetTimeoutError extends Error {}
/** The node refuses what was asked. */
export class RefusedError extends Error {}
for (const made of [TaskError, TrapError, LimitError, TaskCancelledError, DependencyError, ActorDiedError, GetTimeoutError, RefusedError]) {
  Object.defineProperty(made.prototype, 'name', { value: made.name, writable: true, configurable: true });
}
