"""Classes for the values of a module, made of its types.

Owns how names of WIT become names of Python. Must not: convert values; the compiled part does.
"""

from __future__ import annotations

import dataclasses
import enum
import keyword
from collections.abc import Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")

# How a member of a type comes: its name in WIT, how its type is written, whether it may be None, what is said of it.
Member = tuple[str, "str | None", bool, "str | None"]


@dataclasses.dataclass(frozen=True, slots=True)
class Some(Generic[T]):
    """A value where None is a value, too: `option<option<T>>` in WIT."""

    value: T


@dataclasses.dataclass(frozen=True, slots=True)
class Ok(Generic[T]):
    """A `result` inside a value that went well. Where a function itself returns one, `get` gives the value."""

    value: T = None  # type: ignore[assignment]


@dataclasses.dataclass(frozen=True, slots=True)
class Err(Generic[T]):
    """A `result` inside a value that did not go well. Where a function itself returns one, `get` raises `GuestError`."""

    value: T = None  # type: ignore[assignment]


def identifier(name: str) -> str:
    """A function's or field's name: `tree-of` is `tree_of`, and `class` is `class_`."""
    name = name.replace("-", "_")
    return name + "_" if keyword.iskeyword(name) else name


def pascal(name: str) -> str:
    """A class's name: `line-item` is `LineItem`."""
    name = "".join(part[:1].upper() + part[1:] for part in name.split("-"))
    return name + "_" if keyword.iskeyword(name) else name


def factory(add: Callable[[str | None, type], None]) -> Callable[..., tuple[type, list[Any]]]:
    """What makes classes for one module, each of which is given to `add` with the interface that it belongs to."""

    def make(
        kind: str, scope: str | None, name: str, members: list[Member], docs: str | None
    ) -> tuple[type, list[Any]]:
        made = {"record": _record, "variant": _variant, "enum": _enum, "flags": _flags}[kind]
        cls, parts = made(pascal(name), members)
        cls.__doc__ = docs or cls.__doc__
        cls.__module__ = f"wasmrun.{identifier(scope)}" if scope else "wasmrun"
        add(scope, cls)
        return cls, parts

    return make


def _record(name: str, members: list[Member]) -> tuple[type, list[Any]]:
    names = [identifier(member) for member, _, _, _ in members]
    fields: list[Any] = []
    # Those that may be None may be left out, if all behind them may.
    may_be_none = True
    for field, (_, hint, is_optional, docs) in zip(reversed(names), reversed(members)):
        may_be_none = may_be_none and is_optional
        metadata = {"doc": docs} if docs else {}
        if may_be_none:
            fields.append((field, hint, dataclasses.field(default=None, metadata=metadata)))
        else:
            fields.append((field, hint, dataclasses.field(metadata=metadata)))
    cls = dataclasses.make_dataclass(name, reversed(fields), frozen=True, slots=True)
    return cls, names


def _variant(name: str, members: list[Member]) -> tuple[type, list[Any]]:
    def only_cases(cls: type, *args: object, **kwargs: object) -> object:
        if cls is base:
            cases = ", ".join(case.__qualname__ for case in parts)
            raise TypeError(f"{name} is one of {cases}: call one of those")
        return object.__new__(cls)

    base = type(name, (), {"__new__": only_cases, "__slots__": ()})
    parts: list[Any] = []
    for member, hint, _, docs in members:
        fields = [("value", hint)] if hint is not None else []
        case = dataclasses.make_dataclass(
            pascal(member), fields, bases=(base,), frozen=True, slots=True
        )
        case.__qualname__ = f"{name}.{case.__name__}"
        case.__doc__ = docs or case.__doc__
        setattr(base, case.__name__, case)
        parts.append(case)
    return base, parts


def _members(members: list[Member]) -> list[str]:
    return [identifier(member).upper() for member, _, _, _ in members]


def _enum(name: str, members: list[Member]) -> tuple[type, list[Any]]:
    values = [(upper, member[0]) for upper, member in zip(_members(members), members)]
    make: Any = enum.Enum
    cls = make(name, values)
    return cls, list(cls)


def _flags(name: str, members: list[Member]) -> tuple[type, list[Any]]:
    names = _members(members)
    make: Any = enum.Flag
    cls = make(name, [(upper, 1 << at) for at, upper in enumerate(names)])
    return cls, [cls[upper] for upper in names]


try:
    import numpy
except ImportError:
    numpy = None  # type: ignore[assignment]


has_numpy = numpy is not None


def numbers(buffer: Any, dtype: str, code: Any) -> Any:
    """A buffer as a list of numbers that can only be read: an array of NumPy, or a memoryview where there is no NumPy."""
    if numpy is not None:
        return numpy.frombuffer(buffer, dtype)
    return memoryview(buffer).cast(code)
