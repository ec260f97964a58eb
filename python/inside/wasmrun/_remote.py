"""`remote` inside a sandbox: functions and classes of the program, to be called in other sandboxes.

Owns how options are said to the node.
"""

from __future__ import annotations

import inspect
from typing import Any

from wit_world.imports import actors, objects, tasks

from . import _host

# The object that has this program: the tasks that it starts run it, too.
program: objects.Object | None = None


def _amount(value: Any) -> str:
    return value if isinstance(value, str) else format(value, "f") if isinstance(value, float) else str(value)


def _whole(options: dict[str, Any], name: str, least: int, most: int) -> int | None:
    """An option that is a whole number. What is none would end the sandbox when the node is told."""
    value = options.pop(name, None)
    if value is not None and (type(value) is not int or not least <= value <= most):
        raise ValueError(f"option {name}: {value!r} is not a whole number from {least} to {most}")
    return value


def _count(options: dict[str, Any], name: str) -> int | None:
    return _whole(options, name, 0, (1 << 32) - 1)


def _text(options: dict[str, Any], name: str) -> str | None:
    value = options.pop(name, None)
    if value is not None and not isinstance(value, str):
        raise TypeError(f"option {name}: expected text, got {type(value).__qualname__}")
    return value


def _resources(options: dict[str, Any]) -> list[tuple[str, str]]:
    found = [(str(name), _amount(value)) for name, value in (options.pop("resources", None) or {}).items()]
    for option, name in (("cpus", "CPU"), ("gpus", "GPU"), ("memory", "memory")):
        value = options.pop(option, None)
        if value is not None:
            found.append((name, _amount(value)))
    return found


def _of_task(given: dict[str, Any]) -> tasks.Options:
    options = dict(given)
    for ignored in ("name", "no_preempt", "env", "secrets", "http", "modules"):
        options.pop(ignored, None)
    retry_on_error = options.pop("retry_on_error", None)
    made = tasks.Options(
        resources=_resources(options),
        retries=_count(options, "retries"),
        retry_on_error=None if retry_on_error is None else bool(retry_on_error),
        time_limit_ms=_host.milliseconds(options.pop("time_limit", None)),
        priority=_whole(options, "priority", -(1 << 31), (1 << 31) - 1),
        label_selector=_text(options, "labels"),
        strategy=_text(options, "strategy"),
    )
    _none_left(options)
    return made


def _of_actor(given: dict[str, Any]) -> actors.Options:
    options = dict(given)
    for ignored in ("env", "secrets", "http", "modules", "priority"):
        options.pop(ignored, None)
    if options.pop("detached", False):
        raise TypeError("a task cannot create a detached actor: do that outside")
    made = actors.Options(
        resources=_resources(options),
        name=_text(options, "name"),
        restarts=_count(options, "restarts"),
        call_retries=_count(options, "call_retries"),
        label_selector=_text(options, "labels"),
        strategy=_text(options, "strategy"),
        time_limit_ms=_host.milliseconds(options.pop("time_limit", None)),
    )
    _none_left(options)
    return made


def _none_left(options: dict[str, Any]) -> None:
    if options:
        raise TypeError(f"there is no option '{next(iter(options))}'")


def _program() -> objects.Object:
    if program is None:
        raise TypeError(".remote(…) is for functions of a program, and a snippet is none: call it outside")
    return program


class RemoteFunction:
    """A function whose calls run in sandboxes of their own."""

    def __init__(self, function: Any, options: dict[str, Any], name: str) -> None:
        self._definition = function
        self._options = options
        self._name = name
        self.__name__ = function.__name__
        self.__qualname__ = function.__qualname__
        self.__module__ = function.__module__
        self.__doc__ = function.__doc__

    def remote(self, /, *args: Any, **kwargs: Any) -> _host.ObjectRef:
        """Calls it in a sandbox of its own."""
        given, _ = _host.call_data(args, kwargs, self.__name__)
        after = [it for it in (*args, *kwargs.values()) if isinstance(it, _host.ObjectRef)]
        return _host.spawn(_program(), self._name, given, after, _of_task(self._options))

    def options(self, **options: Any) -> RemoteFunction:
        """The same function, whose calls ask for something."""
        return RemoteFunction(self._definition, {**self._options, **options}, self._name)

    def __call__(self, *_: object, **__: object) -> Any:
        raise TypeError(f"{self.__name__} runs in a sandbox: call .remote(…)")


class RemoteClass:
    """A class whose instances are actors."""

    def __init__(self, cls: type, options: dict[str, Any], name: str) -> None:
        self._definition = cls
        self._options = options
        self._name = name
        self.__name__ = cls.__name__
        self.__qualname__ = cls.__qualname__
        self.__module__ = cls.__module__
        self.__doc__ = cls.__doc__

    def remote(self, /, *args: Any, **kwargs: Any) -> _host.ActorHandle:
        """Creates an actor."""
        given, _ = _host.call_data(args, kwargs, self.__name__)
        options = _of_actor(self._options)
        return _host.create(_program(), self._name, given, options, methods(self._definition))

    def options(self, **options: Any) -> RemoteClass:
        """The same class, whose actors ask for something."""
        return RemoteClass(self._definition, {**self._options, **options}, self._name)

    def __call__(self, *_: object, **__: object) -> Any:
        raise TypeError(f"instances of {self.__name__} are actors: call .remote(…)")

    def __mro_entries__(self, bases: Any) -> tuple[type, ...]:
        # A class of its own may be derived from it.
        return (self._definition,)


def methods(cls: type) -> str:
    """The names of a class's methods."""
    found = (name for name, _ in inspect.getmembers(cls, callable) if not name.startswith("_"))
    return ",".join(found)


def remote(given: Any = None, /, **options: Any) -> Any:
    """Makes a function's calls tasks, or a class's instances actors. Also `@remote(cpus=2)`."""
    if given is None:
        return lambda given: remote(given, **options)
    return made(given, options, f"{given.__module__}:{given.__name__}")


def made(given: Any, options: dict[str, Any], name: str) -> RemoteFunction | RemoteClass:
    """Of what is found by this name in the program."""
    return (RemoteClass if isinstance(given, type) else RemoteFunction)(given, options, name)
