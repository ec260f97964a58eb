"""What a function or class needs to run elsewhere: its source, and that of what it refers to.

Owns [`Program`]: parts in an order in which they can be executed. Source travels, and not byte code: the Python in a sandbox may
be another. Of a script only what is referred to is taken, so that nothing else of it runs there. `inside/wasmrun/_program.py` reads
what this writes.

Global variables, and those of enclosing functions, are taken as they are when the function is first called: functions and classes
as source, modules as imports, everything else as data.
"""

from __future__ import annotations

import ast
import builtins
import importlib.util
import inspect
import itertools
import linecache
import logging
import os
import re
import symtable
import sys
import threading
import types
import weakref
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NewType, ParamSpec, TypeVar, TypeVarTuple

from . import _data, _errors

# Modules that are known to have native code, and what to do instead.
_NATIVE = {
    name: "it has native code, and there is no build of that for WebAssembly: call it outside, or pass its numbers as a "
    "buffer, which is a memoryview inside"
    for name in ("numpy", "pandas", "scipy", "torch", "tensorflow", "sklearn", "pyarrow", "polars", "cv2", "PIL")
}


# Programs grow as they are used, from several threads.
_lock = threading.RLock()


def _after_fork() -> None:
    global _lock
    _lock = threading.RLock()


os.register_at_fork(after_in_child=_after_fork)


class CaptureError(TypeError):
    """A function that cannot run elsewhere. The message says which variable is why."""


# Scopes of closures, which have no module of their own.
_scopes: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()
_number = itertools.count()


class Program:
    """The parts of a program, and the classes among them."""

    def __init__(self, modules: Iterable[str | os.PathLike[str]] = (), *, of_values: bool = False) -> None:
        # For a class that goes along with its values: what cannot be sent is an error when it is used, and not before.
        self._is_of_values = of_values
        self.parts: list[Any] = []
        self.classes: dict[tuple[str, str], type] = {}
        self._taken: set[tuple[str, str]] = set()
        self._whole: set[str] = set()
        for module in modules:
            self._add_module(module)

    def add(self, given: Any) -> str:
        """Adds a function or class, and what it needs: the name by which it is found there. Nothing of it if it cannot go."""
        with _lock:
            before = len(self.parts), set(self._taken), dict(self.classes)
            try:
                home, name = self._definition(given, given.__name__)
            except BaseException:
                del self.parts[before[0] :]
                self._taken, self.classes = before[1:]
                raise
            return f"{home}:{name}"

    def class_name(self, cls: type) -> tuple[str, str]:
        """By what name a class crosses. It is added if it is not there."""
        with _lock:
            key = self._key(cls)
            if not self._has(key, cls):
                if "." in key[1]:
                    raise CaptureError(
                        f"{cls.__qualname__} is a class within another, and its values cannot cross: define it by itself"
                    )
                self.add(cls)
            self.classes[key] = cls
            return key

    def own_name(self, cls: type) -> tuple[str, str] | None:
        """The name of a class for receivers that have this program; None if it is not in it."""
        with _lock:
            key = self._key(cls)
            if not self._has(key, cls):
                return None
            self.classes[key] = cls
            return key

    def _key(self, cls: type) -> tuple[str, str]:
        return self._home(cls), cls.__qualname__.rpartition("<locals>.")[2]

    def _has(self, key: tuple[str, str], cls: type) -> bool:
        return self.classes.get(key) is cls or self._is_there(cls.__module__) or _is_ours(cls.__module__)

    def find_class(self, module: str, name: str) -> type:
        """The class of a name that came from a sandbox: one that was sent there, or a built-in exception or one of this package."""
        found = self.classes.get((module, name))
        if found is not None:
            return found
        if module in self._whole:
            of = sys.modules.get(module)
            if of is None:
                raise LookupError(f"the class {module}.{name} is of a module that is not imported here: import {module}")
            # As it is: a module may import what it is asked for.
            whole = vars(of).get(name)
            if isinstance(whole, type) and whole.__module__ == module:
                return whole
        of = {"builtins": builtins, "wasmrun._errors": _errors}.get(module)
        exception = getattr(of, name, None)
        if isinstance(exception, type) and issubclass(exception, Exception):
            return exception
        raise ValueError(f"the class {module}.{name} is not known here")

    def written(self) -> bytes:
        """All parts, as data."""
        with _lock:
            return self._data(self.parts, "program")

    def _home(self, given: Any) -> str:
        """In which scope it is defined there: that of its module, or one of its own if it is a closure."""
        if given.__qualname__ == given.__name__ or "<locals>" not in given.__qualname__:
            return str(given.__module__)
        home = _scopes.get(given)
        if home is None:
            home = _scopes[given] = f"{given.__module__}.<{next(_number)}>"
        return home

    def _put(self, part: tuple[Any, ...]) -> None:
        self.parts.append(part)

    def _definition(self, given: Any, name: str) -> tuple[str, str]:
        """The source of a function or class, once."""
        given = inspect.unwrap(given) if not isinstance(given, type) else given
        home, name = self._home(given), given.__name__
        if (home, name) in self._taken or home in self._whole:
            return home, name
        self._taken.add((home, name))
        if isinstance(given, type) and given.__bases__ == (tuple,) and hasattr(given, "_field_defaults"):
            # It may have no source: of `collections.namedtuple`.
            self.classes[home, name] = given
            options = {"module": home, "defaults": tuple(given._field_defaults.values())}
            if not given.__dict__.get("__annotations__"):
                self._put(("call", home, name, "collections", "namedtuple", (name, getattr(given, "_fields")), options))
                return home, name
        if name == "<lambda>":
            raise CaptureError("a lambda cannot be taken out of its line: define a function with `def`")
        if isinstance(given, type):
            self.classes[home, name] = given
        values = _variables(given)
        filename, line, source = _source(given, values)
        defaults = self._defaults(given)
        if defaults is not None:
            source = _without_defaults(source)
        needed = _names(_without_annotations(source), filename, name)
        for variable in needed:
            if variable in values:
                try:
                    self._need(given, home, variable, values[variable])
                except CaptureError as error:
                    if not self._is_of_values:
                        raise
                    self._taken.add((home, variable))
                    self._put(("absent", home, variable, str(error)))
        for module in _submodules(source, values):
            self._need(given, home, module, sys.modules[module])
        # Annotations are evaluated there when somebody asks for them, which few do: what they name goes along if it can.
        for variable in _names(source, filename, name):
            if variable in values and variable not in needed:
                try:
                    self._need(given, home, variable, values[variable])
                except CaptureError:
                    continue
        self._put(("source", home, name, filename, line, source))
        if defaults is not None:
            self._put(("defaults", home, name, defaults))
        # By its name it is what it was made here.
        made = values.get(name)
        if getattr(made, "_definition", None) is given:
            self._put(("remote", home, name, home, name, _sent(made)))
        return home, name

    def _defaults(self, given: Any) -> bytes | None:
        """What arguments of a function are if they are not given: as it was when the function was defined, if that is data."""
        if isinstance(given, type) or not (given.__defaults__ or given.__kwdefaults__):
            return None
        try:
            return self._data((given.__defaults__, given.__kwdefaults__), "defaults")
        except TypeError:
            # Then it is evaluated there.
            return None

    def _need(self, of: Any, home: str, name: str, value: Any) -> None:
        """A variable that a function or class refers to."""
        if (home, name) in self._taken:
            return
        part = self._part(of, home, name, value)
        if (home, name) not in self._taken:
            self._taken.add((home, name))
            self._put(part)

    def _part(self, of: Any, home: str, name: str, value: Any) -> tuple[Any, ...]:
        from ._remote import RemoteClass, RemoteFunction

        if isinstance(value, (RemoteFunction, RemoteClass)):
            target = self._definition(value._definition, name)
            return ("remote", home, name, *target, _sent(value))
        if isinstance(value, types.ModuleType):
            self._check_module(of, name, value.__name__)
            return ("import", home, name, value.__name__)
        module = getattr(value, "__module__", None) or type(value).__module__
        found = _exported(module, value, name)
        if found is not None and (_is_ours(module) or self._is_there(module)):
            return ("from", home, name, "wasmrun" if _is_ours(module) else module, found)
        if isinstance(value, re.Pattern):
            return ("call", home, name, "re", "compile", (value.pattern, value.flags), {})
        if isinstance(value, (TypeVar, ParamSpec, TypeVarTuple)):
            return ("call", home, name, "typing", type(value).__name__, (value.__name__,), {})
        if isinstance(value, NewType):
            return ("call", home, name, "typing", "NewType", (value.__name__, str(value.__supertype__)), {})
        if isinstance(value, logging.Logger):
            named = (value.name,) if value.parent is not None else ()
            return ("call", home, name, "logging", "getLogger", named, {})
        is_wrapped = isinstance(getattr(value, "__wrapped__", None), types.FunctionType)
        if is_wrapped or isinstance(value, (types.FunctionType, type)):
            if module.partition(".")[0] in _NATIVE:
                self._check_module(of, name, module)
            return ("alias", home, name, *self._definition(value, name))
        try:
            written = self._data(value, name)
        except TypeError as error:
            raise CaptureError(
                f"{of.__qualname__} uses the variable '{name}', which cannot be sent to a sandbox: {error}; pass what is needed as "
                "an argument, or make it in the function"
            ) from None
        return ("data", home, name, written)

    def _data(self, value: Any, name: str) -> bytes:
        """A value, to be read when the classes that it is of are there."""
        return _data.Writer(lambda _: None, self.class_name).write(value, name)

    def _is_there(self, module: str) -> bool:
        return _is_standard(module) or module in self._whole

    def _check_module(self, of: Any, name: str, module: str) -> None:
        top = module.partition(".")[0]
        if _is_ours(module) or self._is_there(module):
            return
        if top in _NATIVE:
            raise CaptureError(f"{of.__qualname__} uses '{name}', the module {module}: {_NATIVE[top]}")
        raise CaptureError(
            f"{of.__qualname__} uses '{name}', the module {module}, which sandboxes do not have: name it, as in "
            f"@wasmrun.remote(modules=[{top!r}])"
        )

    def _add_module(self, given: str | os.PathLike[str]) -> None:
        path = Path(given)
        if path.suffix == ".whl":
            with zipfile.ZipFile(path) as wheel:
                for entry in wheel.namelist():
                    self._add_file(Path(entry), lambda: wheel.read(entry).decode(), path.name)
            return
        name = os.fspath(given)
        try:
            spec = importlib.util.find_spec(name)
        except (ImportError, ValueError):
            spec = None
        if spec is None or spec.origin is None:
            raise CaptureError(f"there is no module '{name}' to send: give the name of one, or the path of a wheel")
        if spec.submodule_search_locations:
            root = Path(spec.origin).parent
            for of_package in sorted(root.rglob("*")):
                file = Path(*name.split("."), of_package.relative_to(root))
                self._add_file(file, of_package.read_text, name)
        else:
            file = Path(*name.split(".")).with_suffix(Path(spec.origin).suffix)
            self._add_file(file, Path(spec.origin).read_text, name)

    def _add_file(self, file: Path, read: Callable[[], str], of: str) -> None:
        if file.suffix in (".so", ".pyd"):
            raise CaptureError(
                f"{of} has native code ({file.name}), and there is no build of that for WebAssembly: use what is pure Python"
            )
        if file.suffix != ".py":
            return
        is_package = file.name == "__init__.py"
        name = ".".join(file.parent.parts if is_package else file.with_suffix("").parts)
        if name not in self._whole:
            self._whole.add(name)
            self._put(("file", "", name, str(file), read(), is_package))


class Captured:
    """The program of one function or class, taken when it is first asked for: the same for all threads, and whatever the options."""

    def __init__(self, definition: Any, modules: Iterable[str | os.PathLike[str]]) -> None:
        self._definition = definition
        self._modules = modules
        self._found: tuple[Program, str] | None = None

    def program(self) -> tuple[Program, str]:
        """The program, and the name by which it is found there."""
        if self._found is None:
            with _lock:
                if self._found is None:
                    program = Program(self._modules)
                    self._found = program, program.add(self._definition)
        return self._found


def _is_standard(module: str) -> bool:
    return module.partition(".")[0] in sys.stdlib_module_names and module != "__main__"


def _is_ours(module: str) -> bool:
    return module.partition(".")[0] == "wasmrun"


def _exported(module: str, value: Any, name: str) -> str | None:
    """By what name a module has this value."""
    found = sys.modules.get("wasmrun" if _is_ours(module) else module)
    for known in (getattr(value, "__name__", None), getattr(value, "_name", None), name):
        if isinstance(known, str) and getattr(found, known, None) is value:
            return known
    return None


def _sent(remote: Any) -> dict[str, Any]:
    """The options that hold inside too."""
    return {name: value for name, value in remote._options.items() if name != "modules"}


def _source(given: Any, values: dict[str, Any]) -> tuple[str, int, str]:
    try:
        lines, line = inspect.getsourcelines(given)
        filename = inspect.getsourcefile(given) or "<unknown>"
    except (OSError, TypeError):
        found = _in_cells(given) if isinstance(given, type) else None
        if found is None:
            raise CaptureError(
                f"the source of {given.__qualname__} is not to be had, and source is what is sent: define it in a file or a notebook"
            ) from None
        filename, line, lines = found
    if lines[0][:1].isspace():
        # As it is, for texts in it may span lines.
        lines.insert(0, "if 1:\n")
        line -= 1
    # Our decorators are not executed there: what their arguments refer to need not be there.
    definition = _parsed("".join(lines))
    for decorator in getattr(definition, "decorator_list", ()):
        named = decorator.func if isinstance(decorator, ast.Call) else decorator
        if _is_remote(named, values):
            for at in range(decorator.lineno - 1, decorator.end_lineno or decorator.lineno):
                lines[at] = "\n"
    return filename, max(line, 1), "".join(lines)


def _in_cells(cls: type) -> tuple[str, int, list[str]] | None:
    """Where a notebook has a class: it has no file in which `inspect` looks for it."""
    own = {it.__code__.co_filename for it in vars(cls).values() if isinstance(it, types.FunctionType)}
    cells = [it for it in linecache.cache if it.startswith("<") or "ipykernel" in it]
    # Of a class without methods, the last cell that has one of its name.
    for filename in reversed([it for it in cells if it in own] or cells):
        lines = linecache.getlines(filename)
        try:
            nodes = list(ast.walk(ast.parse("".join(lines))))
        except SyntaxError:
            continue
        for node in nodes:
            if isinstance(node, ast.ClassDef) and node.name == cls.__name__:
                first = min([node.lineno, *(it.lineno for it in node.decorator_list)])
                return filename, first, lines[first - 1 : node.end_lineno]
    return None


def _parsed(source: str) -> ast.stmt:
    """The definition in a source of `_source`."""
    found = ast.parse(source).body[0]
    return found.body[0] if isinstance(found, ast.If) else found


def _is_remote(named: ast.expr, values: dict[str, Any]) -> bool:
    from ._remote import remote

    if isinstance(named, ast.Attribute) and isinstance(named.value, ast.Name):
        return getattr(values.get(named.value.id), named.attr, None) is remote
    return isinstance(named, ast.Name) and values.get(named.id) is remote


def _variables(given: Any) -> dict[str, Any]:
    """What names mean to a function or class: globals, and variables of functions around it."""
    if not isinstance(given, type):
        return _of_function(given)
    module = sys.modules.get(given.__module__)
    members = (getattr(it, "__func__", getattr(it, "fget", it)) for it in vars(given).values())
    functions = [inspect.unwrap(it) for it in members if isinstance(it, types.FunctionType)]
    values = dict(module.__dict__) if module is not None else {}
    for function in functions:
        values |= function.__globals__
    for function in functions:
        values |= _cells(function)
    values.pop("__class__", None)
    return values


def _of_function(function: types.FunctionType) -> dict[str, Any]:
    return function.__globals__ | _cells(function)


def _cells(function: types.FunctionType) -> dict[str, Any]:
    values = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or ()):
        try:
            values[name] = cell.cell_contents
        except ValueError:
            # It is not set yet.
            continue
    return values


class _Annotations(ast.NodeTransformer):
    """Takes annotations away."""

    def visit_arg(self, node: ast.arg) -> ast.arg:
        node.annotation = None
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.returns = None
        return self.generic_visit(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        node.returns = None
        return self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        if node.value is None:
            return ast.Pass()
        return self.generic_visit(ast.Assign([node.target], node.value))


def _without_defaults(source: str) -> str:
    """The source of a function, where arguments that are not given are None."""
    definition = _parsed(source)
    assert isinstance(definition, (ast.FunctionDef, ast.AsyncFunctionDef))
    lines = [line.encode() for line in source.splitlines(keepends=True)]
    found = [it for it in (*definition.args.defaults, *definition.args.kw_defaults) if it is not None]
    # From behind, so that places stay what they are.
    for it in sorted(found, key=lambda it: (it.lineno, it.col_offset), reverse=True):
        assert it.end_lineno is not None and it.end_col_offset is not None
        first, last = it.lineno - 1, it.end_lineno - 1
        rest = lines[last][it.end_col_offset :]
        lines[first] = lines[first][: it.col_offset] + b"None" + b"\n" * (last - first) + rest
        lines[first + 1 : last + 1] = []
        # As many lines as before.
        lines[first : first + 1] = lines[first].splitlines(keepends=True)
    return b"".join(lines).decode()


def _without_annotations(source: str) -> str:
    return ast.unparse(ast.fix_missing_locations(_Annotations().visit(ast.parse(source))))


def _submodules(source: str, values: dict[str, Any]) -> list[str]:
    """The modules in modules that a source names, such as `xml.etree.ElementTree`."""
    found = []
    for node in ast.walk(ast.parse(source)):
        path: list[str] = []
        while isinstance(node, ast.Attribute):
            path.insert(0, node.attr)
            node = node.value
        root = values.get(node.id) if isinstance(node, ast.Name) and path else None
        if isinstance(root, types.ModuleType) and not _is_ours(root.__name__):
            name = root.__name__
            for part in path:
                name += f".{part}"
                if not isinstance(sys.modules.get(name), types.ModuleType):
                    break
                found.append(name)
    return found


def _names(source: str, filename: str, own: str) -> list[str]:
    """What the source refers to and does not define."""
    found: dict[str, None] = {}

    def look(table: symtable.SymbolTable, is_top: bool) -> None:
        for symbol in table.get_symbols():
            is_global = symbol.is_referenced() if is_top else symbol.is_global()
            if is_global and symbol.get_name() != own:
                found[symbol.get_name()] = None
        for child in table.get_children():
            look(child, False)

    look(symtable.symtable(source, filename, "exec"), True)
    return list(found)
