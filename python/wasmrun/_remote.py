"""Functions and classes of Python, in sandboxes.

Owns `remote`, with the same meaning as in Ray. What such a function needs is taken when it is first called.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar, overload

from . import _inside
from ._capture import Captured
from ._inside import PythonActor
from ._wasmrun import ObjectRef

T = TypeVar("T")


class RemoteFunction(Generic[T]):
    """A function whose calls run in sandboxes of their own, each in a fresh one."""

    def __init__(self, function: Callable[..., T], options: dict[str, Any], captured: Captured | None = None) -> None:
        self._definition = function
        self._options = options
        self._captured = captured or Captured(function, options.get("modules", ()))
        self._ready: tuple[Any, Any] | None = None
        self.__name__ = getattr(function, "__name__", "function")
        self.__qualname__ = getattr(function, "__qualname__", self.__name__)
        self.__module__ = function.__module__
        self.__doc__ = function.__doc__
        self.__wrapped__ = function

    def remote(self, /, *args: Any, **kwargs: Any) -> ObjectRef[T]:
        """Calls it in a sandbox of its own. Objects among the arguments stand for their values; the task starts when
        they are there."""
        session = _session()
        program, name = self._captured.program()
        inside = _inside.of(session)
        ready = self._ready
        if ready is None or ready[0] is not session:
            options = {"name": self.__qualname__, **self._options}
            options.pop("modules", None)
            ready = self._ready = session, inside.function(program, options)
        given = inside.call_data(args, kwargs, program, self.__name__)
        after = [it for it in (*args, *kwargs.values()) if isinstance(it, ObjectRef)]
        return inside.call(ready[1], after, program, name, given)

    def options(self, **options: Any) -> RemoteFunction[T]:
        """The same function, whose calls ask for something: `cpus`, `gpus`, `memory` (bytes, or text such as '64MiB'),
        `resources` (a dict), `retries`, `retry_on_error`, `no_preempt`, `time_limit` (seconds), `strategy`, `labels`, `priority`, `name`,
        `env` (a dict), `dirs`, `secrets` and `http` (lists, as of `--dir`, `--secret` and `--http` of `wasmrun submit`), `trace` (a
        dict that `opentelemetry.propagate.inject` has filled: their spans are in that trace),
        `modules` (names of modules and paths of wheels, pure Python, that it imports)."""
        captured = None if "modules" in options else self._captured
        return RemoteFunction(self._definition, {**self._options, **options}, captured)

    def __call__(self, *_: object, **__: object) -> Any:
        raise TypeError(f"{self.__name__} runs in a sandbox: call .remote(…), and get what that gives")

    def __repr__(self) -> str:
        return f"<wasmrun function {self.__qualname__}>"

    def __reduce__(self) -> Any:
        raise TypeError(f"{self.__name__} is not pickled: name it in the functions that use it")


class RemoteClass:
    """A class whose instances are actors."""

    def __init__(self, cls: type, options: dict[str, Any], captured: Captured | None = None) -> None:
        self._definition = cls
        self._options = options
        self._captured = captured or Captured(cls, options.get("modules", ()))
        self.__name__ = cls.__name__
        self.__qualname__ = cls.__qualname__
        self.__module__ = cls.__module__
        self.__doc__ = cls.__doc__

    def remote(self, /, *args: Any, **kwargs: Any) -> PythonActor:
        """Creates an actor. What its `__init__` raises, its calls raise."""
        program, name = self._captured.program()
        inside = _inside.of(_session())
        given = inside.call_data(args, kwargs, program, self.__name__)
        options = {name: value for name, value in self._options.items() if name != "modules"}
        return inside.actor(program, name, given, options, methods(self._definition))

    def options(self, **options: Any) -> RemoteClass:
        """The same class, whose actors ask for something: as for functions, and `detached`, `restarts`, `call_retries`."""
        captured = None if "modules" in options else self._captured
        return RemoteClass(self._definition, {**self._options, **options}, captured)

    def __call__(self, *_: object, **__: object) -> Any:
        raise TypeError(f"instances of {self.__name__} are actors: call .remote(…)")

    def __mro_entries__(self, bases: Any) -> tuple[type, ...]:
        # A class of its own may be derived from it.
        return (self._definition,)

    def __repr__(self) -> str:
        return f"<wasmrun class {self.__qualname__}>"


def methods(cls: type) -> str:
    """The names of a class's methods."""
    return ",".join(name for name, _ in inspect.getmembers(cls, callable) if not name.startswith("_"))


def _session() -> Any:
    from ._api import _session as session

    return session()


class _Decorator(Protocol):
    """`remote` with options."""

    @overload
    def __call__(self, given: type, /) -> RemoteClass: ...  # type: ignore[overload-overlap]
    @overload
    def __call__(self, given: Callable[..., T], /) -> RemoteFunction[T]: ...


@overload
def remote(given: type, /) -> RemoteClass: ...  # type: ignore[overload-overlap]
@overload
def remote(given: Callable[..., T], /) -> RemoteFunction[T]: ...
@overload
def remote(**options: Any) -> _Decorator: ...


def remote(given: Any = None, /, **options: Any) -> Any:
    """Makes a function's calls tasks, or a class's instances actors: `@remote`, or `@remote(cpus=0.5, retries=3)`.

    mypy does not look at what decorators of classes return: `Counters = remote(Counter)` tells it.
    """
    if given is None:
        return lambda given: remote(given, **options)
    if isinstance(given, type):
        return RemoteClass(given, options)
    if not inspect.isfunction(given):
        raise TypeError(f"remote() is for functions and classes; got {type(given).__qualname__}")
    return RemoteFunction(given, options)
