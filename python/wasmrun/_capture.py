"""What a function or class needs to run elsewhere: its source, and that of what it refers to.

Owns [`Program`]: parts in an order in which they can be executed. Source travels, and not byte code: the Python in a sandbox may
be another. Of a script only what is referred to is taken, so that nothing else of it runs there. `inside/wasmrun/_program.py` reads
what this writes.

Global variables, and those of enclosing functions, are taken as they are when the function is first called: functions and classes
as source, modules as imports, everything else as data. Each object is there once. It is in the scope of its module if it is what
its name stands for there, with the decorators above it, and in a scope of its own otherwise.
"""

from __future__ import annotations

import array
import ast
import builtins
import contextlib
import enum
import functools
import importlib.util
import itertools
import logging
import os
import re
import sys
import threading
import types
import weakref
import zipfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NewType, ParamSpec, TypeVar, TypeVarTuple

from . import _data, _errors
from ._source import NOTHING, CaptureError, Source, is_decorator, is_ours, methods, parsed, submodules, without

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


# Scopes of what is not what its name stands for in its module, such as closures: each has one of its own. Those of functions that
# decorators have made others of are known by the function that is decorated.
_scopes: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()
_decorated: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()
_number = itertools.count()
# The class that a name of a module stands for in sandboxes: the first one.
_owners: weakref.WeakValueDictionary[tuple[str, str], type] = weakref.WeakValueDictionary()
# Values that nobody can change: whether two are one makes no difference.
_FIXED = (type(None), bool, int, float, complex, str, bytes)
_MOST_WRAPPED = 100
# What comes as another type.
_BUFFERS = (array.array, memoryview)


def _scope(known: weakref.WeakKeyDictionary[Any, str], of: Any, module: str) -> str:
    found = known.get(of)
    if found is None:
        found = known[of] = f"{module}.<{next(_number)}>"
    return found


class Program:
    """The parts of a program, and the classes among them."""

    def __init__(self, modules: Iterable[str | os.PathLike[str]] = (), *, of_values: bool = False) -> None:
        # For a class that goes along with its values: what cannot be sent is an error when it is used, and not before.
        self._is_of_values = of_values
        self.parts: list[Any] = []
        self.classes: dict[tuple[str, str], type] = {}
        # Where each function and class is, by its id. It is kept, so that no other has that.
        self._places: dict[int, tuple[Any, tuple[str, str]]] = {}
        # What each name of a scope stands for.
        self._taken: dict[tuple[str, str], Any] = {}
        # The variables of each module.
        self._modules: dict[str, dict[str, Any]] = {}
        # The first name of each variable, by the id of its value.
        self._values: dict[int, tuple[Any, tuple[str, str]]] = {}
        self._whole: set[str] = set()
        for module in modules:
            self._add_module(module)

    def add(self, given: Any) -> str:
        """Adds a function or class, and what it needs: the name by which it is found there. Nothing of it if it cannot go."""
        with _lock, self._all_or_nothing():
            home, name = self._definition(given)
            return f"{home}:{name}"

    @contextlib.contextmanager
    def _all_or_nothing(self) -> Iterator[None]:
        """What is added here is not there if there is an error."""
        all_known: list[dict[Any, Any]] = [self.classes, self._places, self._taken, self._values]
        count, before = len(self.parts), [dict(it) for it in all_known]
        try:
            yield
        except BaseException:
            del self.parts[count:]
            for known, it in zip(all_known, before):
                known.clear()
                known.update(it)
            raise

    def class_name(self, cls: type) -> tuple[str, str]:
        """By what name a class crosses. It is added if it is not there."""
        with _lock:
            name = self.own_name(cls)
            if name is None:
                if "." in cls.__qualname__.rpartition("<locals>.")[2]:
                    raise CaptureError(
                        f"{cls.__qualname__} is a class within another, and its values cannot cross: define it by itself"
                    )
                self.add(cls)
                name = self._places[id(cls)][1]
            return name

    def own_name(self, cls: type) -> tuple[str, str] | None:
        """The name of a class for receivers that have this program; None if it is not in it."""
        with _lock:
            known = self._places.get(id(cls))
            if known is not None:
                return known[1]
            if not self._is_there(cls.__module__) and not is_ours(cls.__module__):
                return None
            name = cls.__module__, cls.__qualname__.rpartition("<locals>.")[2]
            self.classes[name] = cls
            return name

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

    def _put(self, *part: Any) -> None:
        self.parts.append(part)

    def _take(self, given: Any, home: str, name: str) -> tuple[str, str]:
        """This is there by this name."""
        self._places[id(given)] = given, (home, name)
        self._taken[home, name] = given
        if isinstance(given, type):
            self.classes[home, name] = given
        return home, name

    def _definition(self, given: Any) -> tuple[str, str]:
        """Where a function or class is. It is added once."""
        known = self._places.get(id(given))
        if known is not None:
            return known[1]
        module, path = given.__module__, given.__qualname__.split(".")
        if "<locals>" not in path:
            of_module = getattr(sys.modules.get(module), "__dict__", {})
            outer = _standing(of_module, path[0])
            found = outer
            for part in path[1:]:
                found = getattr(found, part, None)
            if found is given and module in self._whole:
                return module, ".".join(path)
            is_own = not isinstance(given, types.FunctionType) or given.__code__.co_qualname == given.__qualname__
            if found is given and len(path) > 1 and isinstance(outer, type) and is_own:
                # It is there with the class that it is in.
                home, name = self._definition(outer)
                return self._take(given, home, ".".join([name, *path[1:]]))
        return self._class(given) if isinstance(given, type) else self._function(given)

    def _class(self, cls: type) -> tuple[str, str]:
        module, name = cls.__module__, cls.__name__
        of_module = getattr(sys.modules.get(module), "__dict__", {})
        standing = _standing(of_module, name) if "<locals>" not in cls.__qualname__ else cls
        is_local = standing is not cls or "<locals>" in cls.__qualname__ or not self._is_of(module, of_module)
        # Of one that is defined again, values may be where those of the one before are.
        is_local = is_local or _owners.setdefault((module, name), cls) is not cls
        home = self._take(cls, _scope(_scopes, cls, module) if is_local else module, name)[0]
        if cls.__bases__ == (tuple,) and hasattr(cls, "_field_defaults"):
            # It may have no source: of `collections.namedtuple`.
            options = {"module": home, "defaults": tuple(cls._field_defaults.values())}
            if not cls.__dict__.get("__annotations__"):
                self._put("call", home, name, "collections", "namedtuple", (name, getattr(cls, "_fields")), options)
                return home, name
        values = _variables(cls)
        source = Source(cls, values)
        if standing is not cls and standing is not NOTHING and name in source.names() and not self._is_of_values:
            raise CaptureError(
                f"{cls.__qualname__} was defined again, and the class of that name which is used refers to itself by its name: "
                "give one of them another name"
            )
        self._put_source(cls, home, name, name, source, values)
        if getattr(values.get(name), "_definition", None) is cls:
            # By its name it is what it was made here.
            self._put("remote", home, name, home, name, _sent(values[name]))
        return home, name

    def _function(self, given: Any) -> tuple[str, str]:
        *wrappers, function = _wrapped(given)
        if not isinstance(function, types.FunctionType):
            if not isinstance(given, types.FunctionType):
                raise CaptureError(f"the source of {_called(given)} is not to be had, and source is what is sent: define it with `def`")
            # What it wraps has no source.
            wrappers, function = [], given
        if hasattr(given, "dispatch") and len(getattr(given, "registry", ())) > 1:
            raise CaptureError(
                f"{_called(given)} has implementations by type, which do not go with it: look at the type in one function"
            )
        values = _of_function(function)
        standing = _standing(values, function.__code__.co_name)
        source = Source(function, values)
        if wrappers and (
            len(source.decorators) < len(wrappers)
            or (standing is not given and any(it is function for it in _wrapped(standing)))
        ):
            # A call has made it, and not the decorators of the function: it goes as what it is.
            if isinstance(given, functools._lru_cache_wrapper):
                place = self._take(given, _scope(_scopes, given, given.__module__), function.__code__.co_name)
                self._put("cache", *place, *self._definition(given.__wrapped__), given.cache_parameters())
                return place
            if not isinstance(given, types.FunctionType):
                raise CaptureError(
                    f"{_called(given)} is what a call of {type(given).__qualname__} has made of a function, and cannot be sent: "
                    "use that as the decorator where the function is defined, or call it inside"
                )
            wrappers, function, values = [], given, _of_function(given)
            standing = _standing(values, function.__code__.co_name)
            source = Source(function, values)
        name = function.__code__.co_name
        home = function.__globals__.get("__name__") or function.__module__
        is_local = standing is not given or "<locals>" in function.__code__.co_qualname
        if is_local or not self._is_of(home, function.__globals__):
            home = _scope(_decorated if wrappers else _scopes, function, home)
        if not wrappers and standing is not given:
            # It is what was decorated, and not what came of it.
            source.strip(lambda it: is_decorator(it, values, functools.wraps))
        # Its name may stand for another, that was defined later or made of it, and mean that in it.
        is_other = standing is not given and standing is not NOTHING and name in source.names()
        place = self._take(given, home, f"={name}" if is_other else name)
        self._put_source(function, home, name, place[1], source, values)
        if is_other:
            self._need(function, home, name, values[name])
        elif values.get(name) is not given and standing is given:
            # By its name it is what it was made here.
            self._put("remote", *place, *place, _sent(values[name]))
        return place

    def _is_of(self, module: str, variables: dict[str, Any]) -> bool:
        """Whether these are those of this module, and not of another by its name."""
        return self._modules.setdefault(module, variables) is variables

    def _put_source(self, given: Any, home: str, name: str, known_as: str, source: Source, values: dict[str, Any]) -> None:
        """What a source refers to, and the source."""
        defaults = self._defaults(given, home, known_as, source)
        needed = source.names(annotations=False)
        for variable in needed:
            if variable in values and variable != name:
                try:
                    with self._all_or_nothing():
                        self._need(given, home, variable, values[variable])
                except CaptureError as error:
                    if not self._is_of_values:
                        raise
                    self._taken[home, variable] = values[variable]
                    self._put("absent", home, variable, str(error))
        for module in submodules(source.text, values):
            self._need(given, home, module, sys.modules[module])
        # Annotations are evaluated there when somebody asks for them, which few do: what they name goes along if it can.
        for variable in source.names():
            if variable in values and variable != name and variable not in needed:
                with contextlib.suppress(CaptureError), self._all_or_nothing():
                    self._need(given, home, variable, values[variable])
        self._put("source", home, name, source.filename, source.line, source.text)
        if known_as != name:
            self._put("alias", home, known_as, home, name)
        self.parts += defaults
        if isinstance(given, type):
            self._put_attributes(given, home, name, source)

    def _defaults(self, given: Any, home: str, name: str, source: Source) -> list[tuple[Any, ...]]:
        """Takes out of a source what arguments are if they are not given: they are what they were when it was defined, as far as that
        can go. The rest is evaluated there."""
        parts: list[tuple[Any, ...]] = []
        taken: list[ast.expr] = []
        definition: Any = parsed(source.text)
        if isinstance(given, type):
            found = [(f"{name}/{key}", it) for key, it in methods(given)]
            nodes = {it.name: it for it in definition.body if isinstance(it, (ast.FunctionDef, ast.AsyncFunctionDef))}
        else:
            found, nodes = [(name, given)], {given.__code__.co_name: definition}
        for path, function in found:
            node: Any = nodes.get(function.__code__.co_name)
            if node is None or len(node.args.defaults) != len(function.__defaults__ or ()):
                continue
            known: list[tuple[Any, ast.expr, Any]] = [*zip(itertools.count(), node.args.defaults, function.__defaults__ or ())]
            named = {it.arg: default for it, default in zip(node.args.kwonlyargs, node.args.kw_defaults) if default is not None}
            known += [(it, named[it], value) for it, value in (function.__kwdefaults__ or {}).items() if it in named]
            moved: dict[Any, str] = {}
            for argument, default, value in known:
                if isinstance(default, ast.Constant) and type(default.value) is type(value) and default.value == value:
                    continue
                with contextlib.suppress(CaptureError), self._all_or_nothing():
                    self._need(function, home, f"{path}/{argument}", value)
                    moved[argument] = f"{path}/{argument}"
                    taken.append(default)
            if moved:
                parts.append(("defaults", home, name, path, moved))
        source.text = without(source.text, taken)
        return parts

    def _put_attributes(self, cls: type, home: str, name: str, source: Source) -> None:
        """What attributes of a class are by now, as far as that is data, and methods that others have taken the place of: its source
        would make something else of them."""
        metaclass: Any = type(cls)
        if issubclass(cls, (enum.Enum, tuple)) or metaclass.__setattr__ is not type.__setattr__:
            return
        definition = parsed(source.text)
        assert isinstance(definition, ast.ClassDef)
        plain = {it.name for it in definition.body if isinstance(it, ast.FunctionDef) and not it.decorator_list}
        for attribute, value in list(vars(cls).items()):
            if attribute.startswith("__"):
                continue
            if isinstance(value, types.FunctionType):
                # What its decorators, or the class of the class, make of it, they make there.
                is_own = value.__code__.co_qualname == f"{cls.__qualname__}.{attribute}"
                if attribute not in plain or is_own or definition.decorator_list or metaclass is not type:
                    continue
            elif isinstance(value, _BUFFERS) or hasattr(value, "dtype") or not self._is_data(value):
                continue
            self._need(cls, home, f"{name}/{attribute}", value)
            self._put("attribute", home, name, attribute)

    def _is_data(self, value: Any) -> bool:
        try:
            self._data(value, "attribute")
        except TypeError:
            return False
        return True

    def _need(self, of: Any, home: str, name: str, value: Any) -> None:
        """A variable that a function or class refers to."""
        if (home, name) in self._taken:
            return
        part = self._part(of, home, name, value)
        if (home, name) not in self._taken:
            self._taken[home, name] = value
            self._put(*part)

    def _part(self, of: Any, home: str, name: str, value: Any) -> tuple[Any, ...]:
        from ._remote import RemoteClass, RemoteFunction

        if isinstance(value, (RemoteFunction, RemoteClass)):
            return ("remote", home, name, *self._definition(value._definition), _sent(value))
        if isinstance(value, types.ModuleType):
            self._check_module(of, name, value.__name__)
            return ("import", home, name, value.__name__)
        module = getattr(value, "__module__", None) or type(value).__module__
        found = _exported(module, value, name)
        if found is not None and (is_ours(module) or self._is_there(module)):
            return ("from", home, name, "wasmrun" if is_ours(module) else module, found)
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
            return ("alias", home, name, *self._definition(value))
        known = self._values.get(id(value))
        if known is not None:
            # Who changes it by one name sees it by the other.
            return ("alias", home, name, *known[1])
        try:
            written = self._data(value, name)
        except TypeError as error:
            raise CaptureError(
                f"{of.__qualname__} uses the variable '{name}', which cannot be sent to a sandbox: {error}; pass what is needed as "
                "an argument, or make it in the function"
            ) from None
        if type(value) not in _FIXED:
            self._values[id(value)] = value, (home, name)
        return ("data", home, name, written)

    def _data(self, value: Any, name: str) -> bytes:
        """A value, to be read when the classes that it is of are there."""
        return _data.Writer(lambda _: None, self.class_name).write(value, name)

    def _is_there(self, module: str) -> bool:
        return _is_standard(module) or module in self._whole

    def _check_module(self, of: Any, name: str, module: str) -> None:
        top = module.partition(".")[0]
        if is_ours(module) or self._is_there(module):
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
            self._put("file", "", name, str(file), read(), is_package)


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


def _exported(module: str, value: Any, name: str) -> str | None:
    """By what name a module has this value."""
    found = sys.modules.get("wasmrun" if is_ours(module) else module)
    for known in (getattr(value, "__name__", None), getattr(value, "_name", None), name):
        if isinstance(known, str) and getattr(found, known, None) is value:
            return known
    return None


def _sent(remote: Any) -> dict[str, Any]:
    """The options that hold inside too."""
    options = {name: value for name, value in remote._options.items() if name != "modules"}
    if options.get("strategy") is not None:
        # A placement group, or a bundle of one.
        options["strategy"] = str(options["strategy"])
    return options


def _standing(values: dict[str, Any], name: str) -> Any:
    """What a name stands for: of a function or class whose calls are tasks, that."""
    from ._remote import RemoteClass, RemoteFunction

    found = values.get(name, NOTHING)
    return found._definition if isinstance(found, (RemoteFunction, RemoteClass)) else found


def _wrapped(given: Any) -> list[Any]:
    """It, and all that it wraps."""
    found = [given]
    while hasattr(found[-1], "__wrapped__") and len(found) < _MOST_WRAPPED:
        found.append(found[-1].__wrapped__)
    return found


def _called(given: Any) -> str:
    return str(getattr(given, "__qualname__", type(given).__qualname__))


def _variables(given: Any) -> dict[str, Any]:
    """What names mean to a function or class: globals, and variables of functions around it."""
    if not isinstance(given, type):
        return _of_function(given)
    module = sys.modules.get(given.__module__)
    functions = [it for _, it in methods(given)]
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
