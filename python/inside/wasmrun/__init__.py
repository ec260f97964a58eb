"""wasmrun inside a sandbox: the same names as outside, for code that was written there.

Owns tasks, actors and objects as the program sees them. What is asked of the node is in `_host.py`.
"""

from __future__ import annotations

from ._errors import (
    ActorDiedError,
    ArgumentsError,
    DependencyError,
    ExitError,
    GetTimeoutError,
    GuestError,
    LimitError,
    ObjectLostError,
    PythonError,
    RefusedError,
    SandboxError,
    TaskCancelledError,
    TaskError,
    TrapError,
    UnschedulableError,
    WasmrunError,
)
from ._host import (
    ActorHandle,
    ObjectRef,
    as_completed,
    cancel,
    get,
    get_actor,
    kill,
    put,
    wait,
)
from ._host import context as _context
from ._remote import RemoteClass, RemoteFunction, remote

__all__ = [
    "ActorDiedError",
    "ActorHandle",
    "ArgumentsError",
    "DependencyError",
    "ExitError",
    "GetTimeoutError",
    "GuestError",
    "LimitError",
    "ObjectLostError",
    "ObjectRef",
    "PythonError",
    "RefusedError",
    "RemoteClass",
    "RemoteFunction",
    "SandboxError",
    "TaskCancelledError",
    "TaskError",
    "TrapError",
    "UnschedulableError",
    "WasmrunError",
    "as_completed",
    "cancel",
    "get",
    "get_actor",
    "init",
    "is_initialized",
    "kill",
    "node",
    "put",
    "remote",
    "task_id",
    "trace",
    "wait",
]


def init(*_: object, **__: object) -> None:
    """Nothing: a task is in its session already."""


def is_initialized() -> bool:
    """Always."""
    return True


def task_id() -> str:
    """The id of the task, or of the call, that runs."""
    return _context.task_id()


def trace() -> dict[str, str]:
    """The trace context of the task, or of the call, that runs: headers for what it asks of others, and what
    `opentelemetry.propagate.extract` takes."""
    given = {"traceparent": _context.trace_parent(), "tracestate": _context.trace_state()}
    return {name: text for name, text in given.items() if text is not None}


def node() -> str:
    """The name of the node that runs it."""
    return _context.node()
