"""Modules, their functions and classes, by names of Python.

Owns which name an export has: its own where that is unambiguous, `interface.name` always.
"""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Callable
from typing import Any

from . import _values, _wasmrun
from ._wasmrun import ActorHandle, ObjectRef


def _signature(described: tuple[list[tuple[str, str]], str, str | None]) -> inspect.Signature:
    params, result, _ = described
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    made: list[inspect.Parameter] = []
    # Options at the end may be left out.
    default: Any = None
    for name, hint in reversed(params):
        if not hint.endswith("| None"):
            default = inspect.Parameter.empty
        made.insert(0, inspect.Parameter(name, kind, annotation=hint, default=default))
    return inspect.Signature(made, return_annotation=result)


def _help(name: str, signature: inspect.Signature, docs: str | None) -> str:
    """What `help` shows: without a text of an object's own it shows that of its class."""
    # Types of a module are no objects of Python yet, but texts.
    said = f"{name}{signature}".replace("'", "")
    return f"{said}\n\n{docs}" if docs else said


class Function:
    """A function of a module. `remote` calls it, in a fresh sandbox each time."""

    def __init__(self, raw: _wasmrun.Callable, name: str) -> None:
        self._raw = raw
        self.__name__ = self.__qualname__ = name
        described = raw.described()
        self.__signature__ = _signature(described)
        self._docs = described[2]
        self.__doc__ = _help(name, self.__signature__, self._docs)
        # Without a layer between: it is called often.
        self.remote = raw.remote

    def options(self, **options: Any) -> Function:
        """The same function, whose calls ask for something: `cpus`, `gpus`, `memory` (bytes, or text such as '64MiB'),
        `resources` (a dict), `retries`, `retry_on_error`, `no_preempt`, `time_limit` (seconds), `strategy`, `labels`, `priority`, `name`,
        `env` (a dict), `dirs`, `secrets` and `http` (lists, as of `--dir`, `--secret` and `--http` of `wasmrun submit`), `trace` (a
        dict that `opentelemetry.propagate.inject` has filled: their spans are in that trace)."""
        return Function(self._raw.with_options(options), self.__name__)

    def __call__(self, *_: object, **__: object) -> Any:
        raise TypeError(f"{self.__name__} runs in a sandbox: call .remote(…), and get what that gives")

    def __repr__(self) -> str:
        return f"<wasmrun function {self.__name__}{self.__signature__}>"


class Class:
    """A class of a module. `remote` creates an actor."""

    def __init__(self, raw: _wasmrun.Class, name: str) -> None:
        self._raw = raw
        self.__name__ = self.__qualname__ = name
        described = raw.described()
        signature = _signature(described)
        self.__signature__ = signature.replace(return_annotation="ActorHandle")
        self._docs = raw.docs or described[2]
        self.__doc__ = _help(name, self.__signature__, self._docs)
        self.remote = raw.remote

    def options(self, **options: Any) -> Class:
        """The same class, whose actors ask for something: as of `Function.options`, and `restarts`, `call_retries` and
        `detached`; `name` is what `get_actor` finds it by."""
        return Class(self._raw.with_options(options), self.__name__)

    def __call__(self, *_: object, **__: object) -> Any:
        raise TypeError(f"{self.__name__} lives in a sandbox: create one with .remote(…)")

    def __repr__(self) -> str:
        return f"<wasmrun class {self.__name__}{self.__signature__}>"


class Interface:
    """What one interface of a module exports."""

    def __init__(self, name: str) -> None:
        self.__name__ = name

    def __repr__(self) -> str:
        return f"<wasmrun interface {self.__name__}: {', '.join(_public(self))}>"


def _public(of: object) -> list[str]:
    return sorted(name for name in vars(of) if not name.startswith("_"))


class Module:
    """A module. Its functions, classes, and the types of its values are attributes."""

    def __init__(self, session: _wasmrun.Session, name: str, data: bytes) -> None:
        self.__name__ = name
        self._interfaces: dict[str, Interface] = {}
        self._ambiguous: dict[str, list[str]] = {}
        # What makes types lives as long as the session, and is not to keep this.
        add = weakref.WeakMethod(self._add_type)
        self._raw = session.load(data, _values.factory(lambda scope, cls: _call(add(), scope, cls)))
        self.digest = self._raw.digest
        helps: list[str] = []
        for function in self._raw.functions():
            interface, plain = _parts(function.full_name)
            made = Function(function, _values.identifier(plain))
            self._add(interface, made.__name__, made)
            helps.append(str(made.__doc__))
        for cls in self._raw.classes():
            interface, plain = _parts(cls.full_name)
            actor = Class(cls, _values.pascal(plain))
            self._add(interface, actor.__name__, actor)
            helps.append(str(actor.__doc__))
        self.__doc__ = "\n".join(helps)

    def _add_type(self, scope: str | None, cls: type) -> None:
        self._add(scope, cls.__name__, cls)

    def _add(self, interface: str | None, name: str, it: object) -> None:
        owner = interface or ""
        if interface:
            key = _values.identifier(interface)
            space = self._interfaces.setdefault(key, Interface(key))
            setattr(space, name, it)
            vars(self).setdefault(key, space)
        if name in self._ambiguous:
            self._ambiguous[name].append(owner)
        elif name in vars(self) and not isinstance(vars(self)[name], Interface):
            del vars(self)[name]
            self._ambiguous[name] = [owner]
        else:
            vars(self)[name] = it

    def __getattr__(self, name: str) -> Any:
        if name in self.__dict__.get("_ambiguous", ()):
            owners = [key for key, space in self._interfaces.items() if hasattr(space, name)]
            choices = ", ".join(f"{owner}.{name}" for owner in owners)
            raise AttributeError(f"several interfaces of {self.__name__} have '{name}': say {choices}")
        names = ", ".join(_public(self))
        raise AttributeError(f"{self.__dict__.get('__name__')} has no '{name}'; it has {names}")

    def __repr__(self) -> str:
        return f"<wasmrun module {self.__name__}: {', '.join(_public(self))}>"


def _call(method: Callable[..., None] | None, *args: Any) -> None:
    if method is not None:
        method(*args)


def _parts(full: str) -> tuple[str | None, str]:
    """`ns:package/interface@1.0.0#name` as interface and name."""
    if "#" not in full:
        return None, full
    path, name = full.split("#", 1)
    return path.split("@", 1)[0].rsplit("/", 1)[-1], name


__all__ = ["ActorHandle", "Function", "Interface", "Module", "ObjectRef", "Class"]
