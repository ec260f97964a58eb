"""What goes wrong, as exceptions.

Owns the classes, outside sandboxes and inside. A message says what, why and what to do; notes say where in the guest, and what led to it.
"""

from __future__ import annotations

import functools
from typing import Any, ClassVar

from . import _data


class WasmrunError(Exception):
    """Anything that wasmrun raises."""


class NodeNotRunningError(WasmrunError, ConnectionError):
    """No node runs at the address."""


class ConnectionLostError(WasmrunError, ConnectionError):
    """The node is gone, or does not let us in. What was submitted through it is cancelled, unless it was detached."""


class RefusedError(WasmrunError):
    """The node does not do what it was asked for."""


class GetTimeoutError(WasmrunError, TimeoutError):
    """Not all values were there in time. What makes them goes on."""


class TaskError(WasmrunError):
    """A task or call failed.

    `task` is the id of the one that failed first and `function` what people call what was waited for, if they are known;
    `frames` is where the guest was, innermost first.
    """

    task: str | None = None
    function: str | None = None
    frames: list[str]

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.frames = []


class TrapError(TaskError):
    """The guest stopped with a trap, such as a panic or an access out of bounds."""


class GuestError(TaskError):
    """The function returned an error. `value` is its payload, and `text` the same as text."""

    value: Any = None
    text: str = ""


class PythonError(GuestError):
    """A function of Python, or a snippet, raised an exception.

    If its class is one of Python's own, or one that was sent there, this is an instance of that too: `except ValueError` catches it.
    Its `args` and attributes are there as far as they can cross.
    `traceback` is as it was printed there; `stdout` and `stderr` are what a snippet had printed.
    """

    traceback: str = ""
    stdout: str = ""
    stderr: str = ""


class ExitError(TaskError):
    """The program ended with a code other than 0."""

    code: int = 1


class LimitError(TaskError):
    """It reached a limit: of memory, time, output or the like."""


class TaskCancelledError(TaskError):
    """Somebody cancelled it."""


class ArgumentsError(TaskError):
    """The arguments do not fit the function."""


class DependencyError(TaskError):
    """An object that it needs could not be made. `argument` counts from 0; the cause is how that failed."""

    argument: int = 0


class ActorDiedError(TaskError):
    """The actor is dead. The cause is how it died, if it was not killed."""

    actor: str = ""


class UnschedulableError(TaskError):
    """No node can ever run it."""


class ObjectLostError(TaskError):
    """An object is gone with the nodes that had it."""


class SandboxError(TaskError):
    """The sandbox could not be set up: not what the guest does wrong."""


class _Joined:
    """An error of several classes. It pickles if they do."""

    __slots__ = ()
    _parts: ClassVar[tuple[type, ...]]

    def __init_subclass__(cls, **_: object) -> None:
        # It is no class of the user's: those need not hear of it.
        pass

    def __reduce__(self) -> Any:
        error: Any = self
        return _of_parts, (type(self)._parts, _data.arguments(error), self.__dict__)


@functools.lru_cache(256)
def _join(*parts: type) -> type:
    of = parts[0]
    return type(of.__name__, (_Joined, *parts), {"__module__": of.__module__, "__qualname__": of.__qualname__, "_parts": parts})


def _of_parts(parts: tuple[type, ...], args: tuple[Any, ...], attributes: dict[str, Any]) -> BaseException:
    made = _data.exception(_join(*parts), args)
    made.__dict__.update(attributes)
    return made


def joined(cause: BaseException | None, error: TaskError) -> Any:
    """An error that is of the class of its cause too, if there can be such a class: `except ValueError` catches it."""
    # What waits in generators and coroutines would take these for its own end.
    if cause is None or isinstance(cause, (StopIteration, StopAsyncIteration)):
        return error
    own = type(cause)._parts if isinstance(cause, _Joined) else (type(cause),)
    attributes = {**cause.__dict__, **error.__dict__}
    notes = [*getattr(error, "__notes__", ())]
    if error.__cause__ is not cause:
        notes = [*getattr(cause, "__notes__", ()), *notes]
    try:
        made: Any = _of_parts((*own, type(error)), _data.arguments(cause), attributes)
    except Exception:
        # There can be no such class.
        return error
    if isinstance(cause, (NameError, AttributeError, ImportError)):
        made.name = cause.name
    made.__dict__["__notes__"] = notes
    BaseException.__dict__["__cause__"].__set__(made, error.__cause__)
    return made


_KINDS: dict[str, type[WasmrunError]] = {
    "not-running": NodeNotRunningError,
    "connection": ConnectionLostError,
    "refused": RefusedError,
    "timeout": GetTimeoutError,
    "trap": TrapError,
    "guest-error": GuestError,
    "exit": ExitError,
    "limit": LimitError,
    "cancelled": TaskCancelledError,
    "arguments": ArgumentsError,
    "dependency": DependencyError,
    "actor-died": ActorDiedError,
    "unschedulable": UnschedulableError,
    "object-lost": ObjectLostError,
    "sandbox": SandboxError,
}


def made(kind: str, message: str, details: dict[str, Any]) -> WasmrunError:
    """An exception of this kind. For the compiled part."""
    error = _KINDS.get(kind, WasmrunError)(message)
    cause = details.pop("cause", None)
    for name, value in details.items():
        setattr(error, name, value)
    if cause is not None:
        error.__cause__ = cause
    if function := details.get("function"):
        error.add_note(f"{function} needed it" if kind == "dependency" else f"in {function}, task {details.get('task')}")
    for frame in details.get("frames", ()):
        error.add_note(f"  at {frame}")
    return error
