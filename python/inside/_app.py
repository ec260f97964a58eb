"""The interpreter's exports: calls of programs, snippets, actors.

Owns the fast lane, through which all of them come. Values are decoded here, and not element by element on their way in.
"""

import _library  # noqa: F401

import contextlib
import inspect
import io
import os
import sys
import types

import _image
import interpreter
from wasmrun import _data, _host, _loop, _program, _remote, _state
from componentize_py_types import Err
from wit_world import exports
from wit_world.imports import environment

# How much a snippet may print, in characters.
MOST_PRINTED = 8 << 20
# How much of what a function prints comes back with its result, in characters.
MOST_TOLD = 64 << 10
# How much of each part of an error is told, in bytes: errors go along with other messages, as text.
MOST_OF_ERROR = 24 << 10


def _load(handle: bytes, key: bytes) -> None:
    sys.stdout = _told
    _program.key = _host.Postcard(key).text()
    _remote.program = _host.objects.Object.named(handle)
    _program.load(_remote.program, is_own=True)


def _finished(value):
    if inspect.iscoroutine(value):
        return _loop.run(value)
    return value


def _ok(value, what="result"):
    return b"\0" + _host.data(value, what)[0]


class _Told(io.TextIOBase):
    """What a program prints: it goes where the output of tasks goes, and to the caller."""

    def __init__(self, to):
        self._to = to
        self._parts = []
        self._left = MOST_TOLD

    def writable(self):
        return True

    def write(self, text):
        if self._left > 0:
            self._parts.append(text[: self._left])
            self._left -= len(text)
        return self._to.write(text)

    def flush(self):
        self._to.flush()

    def take(self):
        printed = "".join(self._parts)
        self._parts, self._left = [], MOST_TOLD
        return printed


_told = _Told(sys.stdout)


def _returned(value):
    return _ok(value) + _host.text(_told.take())


def _end(text):
    """As much of it as is told."""
    return text.encode("utf-8", "replace")[-MOST_OF_ERROR:].decode("utf-8", "ignore")


def _raised(error, **details):
    cls = type(error)

    def write(to):
        try:
            written = to.apart(error)
            if len(written) > MOST_OF_ERROR:
                written = to.apart(_data.exception(cls, (_end(str(error)),)))
            details["error"] = written
        except Exception:
            # Its class and what it says are there in any case.
            pass
        return to.write(details)

    details = {name: _end(it) for name, it in details.items()}
    given, _ = _host.crossing(write)
    try:
        message = str(error)
    except Exception:
        message = "an exception whose __str__ raises another"
    parts = (f"{cls.__module__}.{cls.__qualname__}", _end(message), _end(_program.told(error)))
    return b"\1" + b"".join(map(_host.text, parts)) + given


def _call(arguments):
    program, name, key, given = arguments
    try:
        _load(program, key)
        function = _program.find(_host.Postcard(name).text())
        args, kwargs = _host.resolved(_host.Postcard(given).data())
        function = getattr(function, "_definition", function)
        return _returned(_finished(function(*args, **kwargs)))
    except BaseException as error:
        return _raised(error, stdout=_told.take())


class _Printed(io.StringIO):
    def write(self, text):
        if self.tell() + len(text) > MOST_PRINTED:
            raise OSError(f"a snippet may print {MOST_PRINTED} characters, and this is more")
        return super().write(text)


def _run(names, number, arguments):
    code, given = arguments
    out, err = _Printed(), _Printed()
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = out, err
    try:
        code = _host.Postcard(code).text()
        names.update(_host.Postcard(given).data())
        names.pop("result", None)
        try:
            exec(_program.snippet(f"<snippet {number}>" if number else "<snippet>", code), names)
        except SystemExit as end:
            if end.code not in (None, 0):
                raise
        result = _finished(names.get("result"))
        sys.stdout, sys.stderr = before
        told = {"result": result, "stdout": out.getvalue(), "stderr": err.getvalue()}
        return _ok(told, "")
    except BaseException as error:
        sys.stdout, sys.stderr = before
        return _raised(error, stdout=out.getvalue(), stderr=err.getvalue())


def _fresh_names(file=None):
    """Those of a module `__main__`, as of any program: the library looks for it there."""
    names = _program.main().__dict__
    names["__builtins__"] = __builtins__
    if file is not None:
        names["__file__"] = file
    return names


class _Instance:
    def __init__(self, arguments):
        program, name, key, given = arguments
        self._failed = None
        try:
            _load(program, key)
            cls = _program.find(_host.Postcard(name).text())
            args, kwargs = _host.resolved(_host.Postcard(given).data())
            self._object = getattr(cls, "_definition", cls)(*args, **kwargs)
        except BaseException as error:
            # Its calls fail with that.
            self._failed = _raised(error, stdout=_told.take())

    def invoke(self, _, arguments):
        if self._failed is not None:
            return self._failed
        name, given = arguments
        try:
            name = _host.Postcard(name).text()
            if name.startswith("_"):
                raise AttributeError(f"methods that begin with _ are the actor's own: {name}")
            args, kwargs = _host.resolved(_host.Postcard(given).data())
            return _returned(_finished(getattr(self._object, name)(*args, **kwargs)))
        except BaseException as error:
            return _raised(error, stdout=_told.take())


class _Session:
    def __init__(self, arguments):
        self._names = _fresh_names()
        self._number = 0
        self._failed = None
        given = _host.Postcard(arguments[0])
        if given.number():
            try:
                self._number = _state.restore(self._names, _host.state(given))
            except BaseException as error:
                # Its calls fail with that.
                self._failed = _raised(error)

    def invoke(self, method, arguments):
        if self._failed is not None:
            return self._failed
        if method.endswith("snapshot"):
            try:
                return _ok(_state.kept(self._names, self._number))
            except BaseException as error:
                return _raised(error)
        self._number += 1
        return _run(self._names, self._number, arguments)


_instances = []


class Calls(exports.Calls):
    def call(self, function, arguments):
        match function.rpartition("#")[2]:
            case "call":
                return _call(arguments)
            case "compile":
                program, _program.key = _host.objects.Object.named(arguments[0]), _host.Postcard(arguments[1]).text()
                return _program.compiled(program)
        return _run(_fresh_names(), 0, arguments)

    def create(self, class_, arguments):
        made = _Session if class_.rpartition("#")[2] == "session" else _Instance
        _instances.append(made(arguments))
        return len(_instances) - 1

    def invoke(self, instance, method, arguments):
        return _instances[instance].invoke(method, arguments)

    def checkpoint(self, instance):
        return None

    def restore(self, class_, state):
        raise NotImplementedError


class Interpreter(exports.Interpreter):
    call = compile = run = interpreter.not_by_types


class Run(exports.Run):
    """The program: what `python` does with a file, or with `-c`."""

    def run(self):
        _, *given = environment.get_arguments()
        # What is granted is for the program, and not for us.
        sys.dont_write_bytecode = True
        sys.path += filter(None, os.environ.get("PYTHONPATH", "").split(":"))
        try:
            match given:
                case []:
                    raise SystemExit("say what to run: -c CODE, or a FILE in a granted directory")
                case ["-c"]:
                    raise SystemExit("-c needs code")
                case ["-c", code, *arguments]:
                    filename, sys.argv = "<string>", ["-c", *arguments]
                case ["-s", filename, *arguments]:
                    code, sys.argv = os.environ.pop("WASMRUN_SCRIPT"), [filename, *arguments]
                case [filename, *_]:
                    sys.argv = given
                    with open(filename, encoding="utf-8") as file:
                        code = file.read()
                    sys.path.insert(0, os.path.dirname(filename) or ".")
            exec(_program.snippet(filename, code.removeprefix("\ufeff")), _fresh_names(filename))
        except SystemExit as end:
            if end.code not in (None, 0):
                if not isinstance(end.code, int):
                    print(end.code, file=sys.stderr)
                raise Err(None) from None
        except BaseException as error:
            print(_program.told(error), end="", file=sys.stderr)
            raise Err(None) from None
        finally:
            for stream in (sys.stdout, sys.stderr):
                # The program may have closed them.
                with contextlib.suppress(ValueError, OSError):
                    stream.flush()


# What programs use most is in the image from which sandboxes start; the rest is read from it when it is imported.
def _prepare():
    import base64, bisect, collections, contextlib, copy, csv, dataclasses, datetime, decimal, enum, fractions  # noqa: E401, F401
    import functools, hashlib, heapq, itertools, json, math, operator, pathlib, random, re, statistics, string  # noqa: E401, F401
    import struct, textwrap, threading, time, types, typing, urllib.parse, uuid  # noqa: E401, F401


class _Stored:
    """An object that stands for those of nodes while the image is made."""

    bytes = bytes(_program.MAC_BYTES) + _data.Writer(lambda _: None, _program.class_name).write(
        [
            ("source", "warm", "f", "warm.py", 3, "def f(x, y):\n    return x\n"),
            ("remote", "warm", "f", "warm", "f", {}),
        ]
    )

    @classmethod
    def named(cls, _):
        return cls()

    def get(self, _):
        return self


def _warm():
    """All that a call and a snippet do."""
    objects, _host.objects = _host.objects, types.SimpleNamespace(Object=_Stored)
    given, _ = _host.call_data((1,), {"y": 2.0}, "f")
    assert Calls().call("call", [b"", _host.text("warm:f"), _host.text(""), given])[0] == 0
    inputs, _ = _host.data({"x": 1})
    assert Calls().call("run", [_host.text("result = x"), inputs])[0] == 0
    _host.objects, _remote.program, _program.key = objects, None, None
    _program.forget("warm", "warm.py", "<snippet>")
    sys.stdout = sys.__stdout__


_prepare()
_kept = _image.settle(_warm)
