"""The program: the parts of the user's code that were sent here.

Owns how the parts become functions and classes, and where their lines are. `_capture.py` of the package outside writes what this
reads: a list of parts in an order in which they can be executed.
"""

from __future__ import annotations

import functools
import hashlib
import hmac
import importlib.abc
import importlib.util
import inspect
import linecache
import marshal
import sys
import traceback
import types
from typing import Any

from . import _data

# What each file of the user's has, as far as it is here: the line at which a text begins, and the text.
_lines: dict[str, list[tuple[int, str]]] = {}
_files: dict[str, tuple[Any, ...]] = {}
_scopes: dict[str, types.ModuleType] = {}
# Parts of programs of others that could not be executed, and why.
_broken: dict[tuple[str, str], Exception] = {}
# What authenticates programs of the driver, where calls of its functions run; None where nothing is to be kept apart.
key: str | None = None
MAC_BYTES = 32
# The object that has the program which defines each class, function and variable of a scope, and each file.
_homes: dict[tuple[str, str], Any] = {}


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Modules that were sent whole."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        found = _files.get(name)
        if found is None:
            return None
        return importlib.util.spec_from_loader(name, self, origin=found[0], is_package=found[2])

    def create_module(self, spec: Any) -> None:
        return None

    def exec_module(self, module: types.ModuleType) -> None:
        filename, source, _, *code = _files[module.__name__]
        _lines[filename] = [(1, source)]
        exec(_code(filename, 1, source, code), module.__dict__)


sys.meta_path.insert(0, _Finder())


def scope(name: str) -> types.ModuleType:
    """The module in which parts of this name live."""
    found = _scopes.get(name)
    if found is None:
        if name in _files:
            found = _scopes[name] = importlib.import_module(name)
        else:
            found = _scopes[name] = types.ModuleType(name)
            if sys.modules.get(name) not in _mains:
                # Dataclasses and others look for it there.
                sys.modules[name] = found
    return found


# What snippets and scripts have for it. Parts of programs are beside it.
_mains: list[types.ModuleType] = []


def main() -> types.ModuleType:
    """A new module `__main__`."""
    _mains.append(types.ModuleType("__main__"))
    sys.modules["__main__"] = _mains[-1]
    return _mains[-1]


def buffer(kind: str, shape: tuple[int, ...], data: memoryview) -> Any:
    """A list of numbers, which keeps nothing else."""
    data = memoryview(bytes(data))
    return data.cast(kind) if len(shape) == 1 or not len(data) else data.cast(kind, shape)


def read(written: bytes) -> Any:
    """A value without handles."""
    return _data.Reader(written, lambda *_: None, lambda module, name, _: find_class(module, name), buffer).read()


def _authentication(parts: bytes) -> bytes:
    return hashlib.blake2b(parts, digest_size=MAC_BYTES, key=(key or "").encode()).digest()


def _parted(program: Any) -> tuple[bytes, bytes]:
    """What authenticates a program, and its parts."""
    written = bytes(program.get(None).bytes)
    return written[:MAC_BYTES], written[MAC_BYTES:]


def compiled(program: Any) -> bytes:
    """A program of the driver, with its code."""
    parts = [_with_code(part) for part in read(_parted(program)[1])]
    parts = _data.Writer(lambda _: None, class_name).write(parts)
    return _authentication(parts) + parts


def _with_code(part: Any) -> Any:
    kind, _, _, filename, *rest = part
    if kind == "file":
        line, text = 1, rest[0]
    elif kind == "source":
        line, text = rest
    else:
        return part
    try:
        return (*part, marshal.dumps(_code(filename, line, text, ())))
    except Exception:
        # What is wrong with it is said when it is executed; it may have more memory there.
        return part


def _code(filename: str, line: int, text: str, code: Any) -> types.CodeType:
    if code:
        return marshal.loads(code[0])
    return compile("\n" * (line - 1) + text, filename, "exec", dont_inherit=True)


def load(program: Any, is_own: bool = False) -> None:
    """Executes the parts of a program that are not there yet.

    A program that a value names may be hostile: it is executed only if the driver has authenticated it, or if this is a snippet. If
    a part of it fails, the error is raised when a class of that part is needed.
    """
    mac, parts = _parted(program)
    if key is not None and not is_own and not hmac.compare_digest(mac, _authentication(parts)):
        raise TypeError("a value names a program that was not sent by the driver of this call: its classes are not defined here")
    later: list[Any] = []
    before = set(_homes)
    for part in read(parts):
        kind, home, name, *_ = part
        place = (name, "") if kind == "file" else (home, name)
        if place in before or place in _broken:
            continue
        _homes[place] = program
        _try(part, later, is_own)
    for part in later:
        _try(part, None, is_own)


def _try(part: Any, later: list[Any] | None, is_own: bool) -> None:
    try:
        _execute(part, later)
    except Exception as error:
        if is_own:
            raise
        kind, home, name, *_ = part
        place = (name, "") if kind == "file" else (home, name)
        _homes.pop(place, None)
        _broken[place] = error


class _Absent:
    """What could not be sent along with a class: its methods say so when they use it."""

    def __init__(self, why: str) -> None:
        self._why = why

    def __getattr__(self, name: str) -> Any:
        raise TypeError(self._why)

    def __call__(self, *_: object, **__: object) -> Any:
        raise TypeError(self._why)


def _execute(part: Any, later: list[Any] | None) -> None:
    """Executes a part. What refers to something that is defined behind it, and there in the end, is added to `later`."""
    kind, home, name, *rest = part
    if kind == "file":
        _files[name] = tuple(rest)
    else:
        names = scope(home).__dict__
        if kind == "source":
            filename, line, text, *code = rest
            _lines.setdefault(filename, []).append((line, text))
            exec(_code(filename, line, text, code), names)
        elif kind == "import":
            importlib.import_module(rest[0])
            names[name] = sys.modules[rest[0]]
        elif kind == "from":
            names[name] = getattr(importlib.import_module(rest[0]), rest[1])
        elif kind == "call":
            module, called, args, kwargs = rest
            names[name] = getattr(importlib.import_module(module), called)(*args, **kwargs)
        elif kind == "defaults":
            path, moved = rest
            if later is None or set(moved.values()) <= names.keys():
                _set_defaults(_function(names, path), {argument: names[it] for argument, it in moved.items()})
            else:
                later.append(part)
        elif kind == "attribute":
            (attribute,) = rest
            # In the end: to define other classes may change it too.
            if later is None:
                _set_attribute(getattr(names[name], "_definition", names[name]), attribute, names[f"{name}/{attribute}"])
            else:
                later.append(part)
        elif kind == "data":
            try:
                names[name] = read(rest[0])
            except TypeError:
                # A class of it is not there yet.
                if later is None:
                    raise
                later.append(part)
        elif kind == "absent":
            names.setdefault(name, _Absent(rest[0]))
        elif later is None or rest[1].partition(".")[0] in scope(rest[0]).__dict__:
            names[name] = _referred(kind, *rest)
        else:
            later.append(part)


def _function(names: dict[str, Any], path: str) -> Any:
    first, *rest = path.split("/")
    found = getattr(names[first], "_definition", names[first])
    for part in rest:
        found = vars(found)[part]
    found = getattr(found, "__func__", getattr(found, "fget", found))
    return inspect.unwrap(found)


def _set_defaults(function: Any, moved: dict[Any, Any]) -> None:
    """What arguments are if they are not given, by their numbers and names."""
    if function.__defaults__:
        function.__defaults__ = tuple(moved.get(at, it) for at, it in enumerate(function.__defaults__))
    if function.__kwdefaults__:
        function.__kwdefaults__ = {name: moved.get(name, it) for name, it in function.__kwdefaults__.items()}


def _set_attribute(cls: type, name: str, value: Any) -> None:
    made = vars(cls).get(name)
    # As its source has made it where that is the same: it may be that of another name.
    if type(made) is not type(value) or made != value:
        setattr(cls, name, value)


def forget(name: str, *filenames: str) -> None:
    """Takes a scope away, and what is known of files."""
    del _scopes[name], sys.modules[name]
    _homes.clear()
    for filename in filenames:
        del _lines[filename]


def _referred(kind: str, home: str, name: str, options: Any = None) -> Any:
    found = _found(home, name)
    if kind == "cache":
        return functools.lru_cache(**options)(found)
    if kind == "remote":
        from ._remote import made

        return made(getattr(found, "_definition", found), options, f"{home}:{name}")
    return found


def _found(home: str, name: str) -> Any:
    first, *rest = name.split(".")
    found = getattr(scope(home), first)
    for part in rest:
        # In a class.
        found = getattr(getattr(found, "_definition", found), part)
    return found


def find(name: str) -> Any:
    """A function or class: `scope:name`."""
    home, _, inner = name.rpartition(":")
    return _found(home, inner)


def class_name(cls: type) -> tuple[str, str]:
    """By what name a class crosses."""
    return cls.__module__, cls.__qualname__


def home(module: str, name: str) -> Any:
    """The object that has the program with this class, if one has it."""
    return _homes.get((module, name.partition(".")[0])) or _homes.get((module, ""))


def programs() -> list[Any]:
    """The objects that have the programs which are here."""
    return list(dict.fromkeys(_homes.values()))


def lines() -> dict[str, list[tuple[int, str]]]:
    """What each file has of the user's code, as far as it is here."""
    return _lines


def find_class(module: str, name: str, programs: Any = ()) -> type:
    """The class of a name. These programs are loaded, in turn, until one has it."""
    for program in (None, *programs):
        if program is not None:
            load(program)
        broken = _broken.get((module, name.partition(".")[0]))
        if broken is not None:
            raise broken
        found = _class(module, name)
        if found is not None:
            return found
    raise TypeError(f"the class {name} of {module} is not in this sandbox, and its value does not bring it: name it in the function")


def _class(module: str, name: str) -> type | None:
    found: Any = _scopes.get(module) or sys.modules.get(module)
    if found is None:
        try:
            found = importlib.import_module(module)
        except ImportError:
            return None
    for part in name.split("."):
        found = getattr(found, part, None)
    return found if isinstance(found, type) else None


def told(error: BaseException) -> str:
    """A traceback as Python prints it, with the user's lines and without those of this package."""
    for filename, texts in _lines.items():
        longest = max(line + text.count("\n") for line, text in texts)
        lines = ["\n"] * (longest + 1)
        for line, text in texts:
            for at, part in enumerate(text.splitlines(keepends=True), line - 1):
                lines[at] = part
        linecache.cache[filename] = (sum(map(len, lines)), None, lines, filename)
    made = traceback.TracebackException.from_exception(error, limit=-40, compact=True)
    seen = set()

    def strip(made: traceback.TracebackException | None) -> None:
        if made is None or id(made) in seen:
            return
        seen.add(id(made))
        kept = [frame for frame in made.stack if not _is_ours(frame.filename)]
        made.stack = traceback.StackSummary.from_list(kept)
        strip(made.__cause__)
        strip(made.__context__)

    strip(made)
    return "".join(made.format())


def snippet(filename: str, code: str) -> Any:
    """Compiles a snippet, whose lines tracebacks show."""
    _lines[filename] = [(1, code)]
    return compile(code, filename, "exec", dont_inherit=True)


_OURS = (__file__.rpartition("/")[0] + "/",)


def _is_ours(filename: str) -> bool:
    return filename.startswith(_OURS) or filename.endswith("/_app.py") or "componentize_py" in filename


# Made once: what it imports is in the image from which sandboxes start.
told(ValueError())
