"""What type checkers and editors are told of a module: a `.pyi` file.

Owns how the types of a module are written for them. `python -m wasmrun stubs MODULE.wasm`, or `wasmrun stubs`, writes one beside the
module: `import orders` under `TYPE_CHECKING`, and `app: orders.Module = wasmrun.load("orders.wasm")`.
"""

from __future__ import annotations

import argparse
import dataclasses
import enum
import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import wasmrun

from . import _values
from ._module import Class, Function, Interface, Module

_HEAD = '''\
"""{name}, as `wasmrun.load` gives it. Made by `wasmrun stubs {name}`."""

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self, TypeAlias

from typing_extensions import Buffer
from wasmrun import ActorHandle, Err, ObjectRef, Ok, Some

# A memoryview, or an array of NumPy.
Numbers: TypeAlias = Any
'''


def stubs(module: Module) -> str:
    """The text of the file."""
    parts = [_HEAD.format(name=Path(module.__name__).name)]
    named = {name: it for name, it in vars(module).items() if not name.startswith("_") and name != "digest"}
    # Those that are ambiguous are in their interfaces only.
    for space in [it for it in named.values() if isinstance(it, Interface)]:
        named |= {f"{space.__name__}_{name}": it for name, it in _public(space) if it not in named.values()}
    for name, it in named.items():
        if isinstance(it, type):
            parts.append("".join(_type(name, it)))
    for name, it in named.items():
        if isinstance(it, (Function, Class)):
            parts.append(_callable(name, it))
    names = {id(it): name for name, it in named.items()}
    for space in [it for it in named.values() if isinstance(it, Interface)]:
        parts.append(_members(_hidden(space.__name__), dict(_public(space)), names))
    parts.append(_members("Module", {name: it for name, it in named.items() if hasattr(module, name)}, names))
    return "\n".join(parts)


def _public(space: Interface) -> list[tuple[str, Any]]:
    return [(name, it) for name, it in vars(space).items() if not name.startswith("_")]


def _hidden(name: str) -> str:
    return f"_{_values.pascal(name.replace('_', '-'))}"


def _members(name: str, members: dict[str, Any], names: dict[int, str]) -> str:
    text = f"class {name}(Protocol):\n"
    for member, it in members.items():
        of = names.get(id(it), member)
        written = f"type[{of}]" if isinstance(it, type) else _hidden(of)
        text += f"    @property\n    def {member}(self) -> {written}: ...\n"
    return text if members else text + "    ...\n"


def _docs(of: Any, indent: str) -> str:
    docs = of._docs if isinstance(of, (Function, Class)) else vars(of).get("__doc__")
    docs = inspect.cleandoc(docs or "")
    # What Python makes by itself says nothing.
    if not docs or docs.startswith(of.__name__ + "("):
        return ""
    text = docs.replace("\\", "\\\\").replace('"""', "'''").replace("\n", "\n" + indent)
    return f'{indent}"""{text}"""\n'


def _parameters(signature: inspect.Signature) -> str:
    # An object stands for its value.
    given = (
        f"{it.name}: {it.annotation} | ObjectRef[Any]{'' if it.default is it.empty else ' = None'}"
        for it in signature.parameters.values()
    )
    return ", ".join(["self", *given])


def _callable(name: str, it: Function | Class) -> str:
    """A function, or a class: the methods of its actors are looked up when they are called."""
    signature = it.__signature__
    result = "ActorHandle" if isinstance(it, Class) else f"ObjectRef[{signature.return_annotation}]"
    return (
        f"class {_hidden(name)}(Protocol):\n{_docs(it, '    ')}"
        f"    def remote({_parameters(signature)}) -> {result}: ...\n    def options(self, **options: Any) -> Self: ...\n"
    )


def _type(name: str, cls: type) -> Iterator[str]:
    if issubclass(cls, enum.Enum):
        yield f"class {name}(enum.{'Flag' if issubclass(cls, enum.Flag) else 'Enum'}):\n{_docs(cls, '    ')}"
        yield from (f"    {member} = {it.value!r}\n" for member, it in cls.__members__.items())
    elif dataclasses.is_dataclass(cls):
        yield f"@dataclass(frozen=True)\nclass {name}:\n{_docs(cls, '    ')}"
        yield from _fields(cls, "    ")
    else:
        # A variant: its cases are classes in it, and none else is one.
        cases = [it for it in vars(cls).values() if dataclasses.is_dataclass(it) and isinstance(it, type)]
        yield f"class {name}:\n{_docs(cls, '    ')}"
        for case in cases:
            yield f"    @dataclass(frozen=True)\n    class {case.__name__}({name}):\n{_docs(case, '        ')}{''.join(_fields(case, '        '))}"


def _fields(cls: Any, indent: str) -> Iterator[str]:
    fields = dataclasses.fields(cls)
    for field in fields:
        default = "" if field.default is dataclasses.MISSING else f" = {field.default!r}"
        yield f"{indent}{field.name}: {field.type}{default}\n"
    if not fields:
        yield f"{indent}...\n"


def main(arguments: list[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="wasmrun stubs", description="Writes what type checkers and editors need to know of a module.")
    parser.add_argument("module", type=Path, help="the module")
    parser.add_argument("--out", type=Path, help="the file to write, - for standard output; beside the module if it is not given")
    given = parser.parse_args(arguments)
    out: Path = given.out or given.module.with_name(given.module.stem.replace("-", "_") + ".pyi")
    try:
        text = stubs(wasmrun.load(given.module))
        if out == Path("-"):
            sys.stdout.write(text)
            return
        out.write_text(text)
    except OSError as error:
        told = f"{error.filename or given.module}: {error.strerror}; check the path: a relative one begins at {Path.cwd()}"
        raise SystemExit(f"error: {told}") from None
    except wasmrun.WasmrunError as error:
        raise SystemExit(f"error: {given.module}: {error}") from None
    print(f"{out}: for type checkers and editors")
