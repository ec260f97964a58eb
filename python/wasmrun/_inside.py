"""The Python that runs in sandboxes, as a module that a session has loaded.

Owns how values and errors cross. What comes out of a sandbox is read as data, and nothing of it is ever executed.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import sys
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from . import _data, _values, _wasmrun
from ._capture import Program
from ._errors import DependencyError, GuestError, PythonError, WasmrunError, joined
from ._module import Module
from ._wasmrun import ActorHandle, ObjectRef

# What CPython needs for itself is about 30 MiB.
MEMORY = "128MiB"

# After so long it is said what takes so long.
SLOW_S = 1.0
# Programs of these sizes are compiled once, in a sandbox, and not in each that calls them. Smaller ones are not worth another task,
# and a larger one may need more memory than that has.
COMPILED_BYTES = range(16 << 10, 8 << 20)

# What scopes are called that are not those of modules: see `_capture.py`.
_SCOPE = re.compile(r"\.<\d+>")

COMPONENT = Path(__file__).with_name("python.wasm")

# What is made once is made by one thread, and the others wait for it.
_lock = threading.RLock()


def _after_fork() -> None:
    global _lock
    _lock = threading.RLock()


os.register_at_fork(after_in_child=_after_fork)


class PythonActor:
    """An actor whose class is of Python. Its methods are attributes: `counter.add.remote(1)`."""

    def __init__(self, inside: Inside, program: Program, actor: ActorHandle, methods: str) -> None:
        self._inside = inside
        self._program = program
        self._actor = actor
        self._methods = methods

    def __getattr__(self, name: str) -> PythonMethod:
        if name.startswith("_") or (self._methods and name not in self._methods.split(",")):
            raise AttributeError(f"the actor has no method '{name}'; it has {self._methods}")
        # From now on it is an attribute like others, and is not made for each call.
        made = self.__dict__[name] = PythonMethod(self._inside, self._program, name, self._actor.call)
        return made

    def __dir__(self) -> list[str]:
        return self._methods.split(",")

    def __repr__(self) -> str:
        return f"PythonActor({self._actor._id})"

    def __reduce__(self) -> Any:
        raise TypeError("an actor belongs to its session: pass it to tasks, or give it a name and find it with get_actor")


class PythonMethod:
    """A method of an actor whose class is of Python."""

    def __init__(self, inside: Inside, program: Program, name: str, raw: _wasmrun.Method) -> None:
        self._inside = inside
        self._program = program
        self._name = name
        self._raw = raw.decoded_by(Decoder(inside, program, name))

    def remote(self, /, *args: Any, **kwargs: Any) -> ObjectRef[Any]:
        """Calls it. Calls of one session run in the order in which they are made."""
        given = self._inside.call_data(args, kwargs, self._program, self._name)
        return self._raw.remote(self._name, given)

    def options(self, *, time_limit: float | None = None, trace: dict[str, str] | None = None) -> PythonMethod:
        """The same method, whose calls may take so many seconds, and belong to a trace: see `Function.options`. A longer one ends
        this generation of the actor."""
        raw = self._raw.options(time_limit=time_limit, trace=trace)
        return PythonMethod(self._inside, self._program, self._name, raw)

    def __call__(self, *_: object, **__: object) -> Any:
        raise TypeError(f"methods of actors run elsewhere: call .{self._name}.remote(…), and get what that gives")


class Decoder:
    """Reads what a program has made."""

    def __init__(self, inside: Inside, program: Program, name: str = "") -> None:
        self._inside = inside
        self._program = program
        self._name = name

    def _show(self, printed: str) -> None:
        if printed and self._name and self._inside.shows_output:
            shown = "".join(f"({self._name}) {_plain(line)}\n" for line in printed.splitlines())
            try:
                encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
                sys.stdout.write(shown.encode(encoding, "backslashreplace").decode(encoding))
            except (OSError, ValueError, AttributeError):
                # Nobody reads it: the value counts.
                pass

    def __call__(self, data: Any) -> Any:
        if hasattr(data, "printed"):
            self._show(data.printed)
            data = data.value
        try:
            return self._inside.value(data, self._program)
        except Exception as error:
            # Of ours, or of methods of the user's classes that met what they did not expect.
            raise WasmrunError(f"what came out of the sandbox is no value: {error}") from None

    def raised(self, error: WasmrunError) -> BaseException:
        """An exception of the program's, with its class where that is known here."""
        if isinstance(error, DependencyError) and isinstance(error.__cause__, GuestError):
            cause = self._raised(error.__cause__)
            if not isinstance(cause, PythonError):
                return error
            error.__cause__ = cause
            made: BaseException = joined(cause, error)
            return made
        if isinstance(error, GuestError):
            made = self._raised(error)
            if isinstance(made, PythonError):
                self._show(made.stdout)
            return made
        return error

    def _raised(self, error: GuestError) -> GuestError:
        told = error.value
        if not hasattr(told, "class_"):
            return error
        try:
            details = self._inside.value(told.details, self._program)
        except Exception:
            details = {}
        if not isinstance(details, dict):
            details = {}
        made = PythonError(_plain(f"{_SCOPE.sub('', told.class_).removeprefix('builtins.')}: {told.message}"))
        made.__dict__.update(error.__dict__, traceback=told.traceback)
        # What is told of it is in the exception itself.
        del made.value, made.text
        made.stdout = _text(details.get("stdout"))
        made.stderr = _text(details.get("stderr"))
        try:
            objects = told.details.objects
            finder = self._inside.finder(self._program, objects)
            find: Any = lambda module, name, _: finder(module, name, list(range(len(objects))))  # noqa: E731
            nobody: Any = lambda *_: None  # noqa: E731
            cause = _data.Reader(details["error"], nobody, find, _buffer).read()
        except Exception:
            # What it says is there.
            cause = None
        error = joined(cause, made)
        error.add_note("in the sandbox:\n" + _plain(told.traceback.rstrip()))
        return error


def _plain(text: str) -> str:
    """Text without what terminals act on."""
    return "".join(it if it.isprintable() or it in "\t\n" else repr(it)[1:-1] for it in text)


def _text(given: Any) -> str:
    return given if type(given) is str else ""


class Inside:
    """The interpreter's exports, for one session."""

    def __init__(self, session: _wasmrun.Session, shows_output: bool) -> None:
        self.shows_output = shows_output
        if not COMPONENT.exists():
            raise WasmrunError(
                f"{COMPONENT} is not there, which runs Python in sandboxes: install the package from its wheel"
            )
        slow = threading.Timer(SLOW_S, _say_why)
        slow.start()
        try:
            module = Module(session, COMPONENT.name, COMPONENT.read_bytes())
        finally:
            slow.cancel()
        self._call: _wasmrun.Callable = module.call._raw.with_options({"memory": MEMORY})
        self._compile: _wasmrun.Callable = module.compile._raw.with_options({"cpus": 0, "memory": MEMORY, "name": "compile"})
        self._run: _wasmrun.Callable = module.run._raw.with_options({"memory": MEMORY})
        self._instance: _wasmrun.Class = module.Instance._raw.with_options({"memory": MEMORY})
        self._session: _wasmrun.Class = module.Session._raw.with_options({"memory": MEMORY})
        self._objects: weakref.WeakKeyDictionary[Program, ObjectRef[Any]] = weakref.WeakKeyDictionary()
        # A program for each class whose values went to receivers that may lack it. Values name it.
        self._classes: dict[type, Program] = {}
        # Authenticates programs to functions and actors. Snippets do not have it.
        self._key = secrets.token_hex(16)

    def function(self, program: Program, options: dict[str, Any]) -> _wasmrun.Callable:
        """What calls functions of a program."""
        return self._call.with_options(options).decoded_by(Decoder(self, program, options["name"]))

    def snippet(self, options: dict[str, Any]) -> _wasmrun.Callable:
        """What runs snippets."""
        return self._run.with_options(options).decoded_by(Decoder(self, Program()))

    def call(self, function: _wasmrun.Callable, after: list[Any], program: Program, name: str, given: Any) -> ObjectRef[Any]:
        """Calls a function of a program, once these are there."""
        return function.remote_after(after, self.program(program), name, self._key, given)

    def actor(self, program: Program, name: str, given: Any, options: dict[str, Any], methods: str) -> PythonActor:
        """Creates an actor of a class of a program."""
        made = self._instance.with_options(options).remote(self.program(program), name, self._key, given)
        return PythonActor(self, program, made, methods)

    def session(self, options: dict[str, Any], state: list[ObjectRef[Any]]) -> ActorHandle:
        """Creates an interpreter that keeps its variables, and has those of a state, if there is one."""
        return self._session.with_options(options).remote(state)

    def program(self, program: Program) -> ObjectRef[Any]:
        """The object that has a program."""
        sent = self._objects.get(program)
        if sent is not None:
            return sent
        with _lock:
            sent = self._objects.get(program)
            if sent is None:
                sent = self._objects[program] = self._sent(program)
        return sent

    def _sent(self, program: Program) -> ObjectRef[Any]:
        written = program.written()
        # As `inside/wasmrun/_program.py` checks it.
        mac = hashlib.blake2b(written, digest_size=32, key=self._key.encode()).digest()
        sent = self._call._session.put("u8", mac + written)
        if len(written) in COMPILED_BYTES:
            sent = self._compile.remote(sent, self._key)
        return sent

    def _of_class(self, cls: type) -> Program:
        """The program for values of a class that goes along with them."""
        with _lock:
            found = self._classes.get(cls)
            if found is None:
                found = Program(of_values=True)
                found.class_name(cls)
                self._classes[cls] = found
        return found

    def put(self, value: Any) -> ObjectRef[Any]:
        """Stores a value of Python's."""
        program = Program()
        return self._call.decoded_by(Decoder(self, program)).put(self.data(value, program, "put() argument"))

    def data(self, value: Any, program: Program, what: str) -> Any:
        """A value as it crosses."""
        return self._crossing(program, lambda to: to.write(value, what))

    def call_data(self, args: tuple[Any, ...], kwargs: dict[str, Any], program: Program, function: str) -> Any:
        """The arguments of a call as they cross."""
        return self._crossing(program, lambda to: to.write_call(args, kwargs, function))

    def _crossing(self, program: Program, write: Callable[[_data.Writer], bytes]) -> Any:
        objects: list[ObjectRef[Any]] = []
        actors: list[ActorHandle] = []
        programs: list[Program] = []

        def name(cls: type) -> tuple[str, str]:
            own = program.own_name(cls)
            if own is not None:
                return own
            of_class = self._classes.get(cls) or self._of_class(cls)
            if of_class not in programs:
                programs.append(of_class)
            return of_class.class_name(cls)

        def ref(given: Any) -> tuple[str, int, str] | None:
            if isinstance(given, ObjectRef):
                objects.append(given)
                return "R", len(objects) - 1, given._kind
            if isinstance(given, PythonActor):
                actors.append(given._actor)
                return "H", len(actors) - 1, given._methods
            if isinstance(given, ActorHandle):
                raise TypeError("an actor of another module's class cannot be called from Python in a sandbox")
            return None

        written = write(_data.Writer(ref, name))
        written = _data.with_programs([len(objects) + at for at in range(len(programs))], written)
        objects += map(self.program, programs)
        return {"bytes": written, "objects": objects, "actors": actors}

    def value(self, data: Any, program: Program) -> Any:
        """What has crossed."""

        def ref(tag: str, at: int, kind: str) -> Any:
            if tag == "H":
                return PythonActor(self, program, data.actors[at], kind)
            found = data.objects[at]
            if kind in ("p", "d"):
                return self._call.decoded_by(Decoder(self, program)).made(found, kind == "d")
            if kind == "s":
                # Of the type of its last parameter, the key: text.
                return self._compile.made(found, True)
            # Numbers and bytes say what they are, and nothing is nothing.
            return found

        return _data.Reader(data.bytes, ref, self.finder(program, data.objects), _buffer).read()

    def finder(self, program: Program, objects: list[Any]) -> Callable[[str, str, list[int]], type]:
        """What finds classes of values of a program: there, or in one that the value names and that was sent from here."""

        named: list[Program] | None = None

        def find(module: str, name: str, programs: list[int]) -> type:
            nonlocal named
            if named is None:
                named = list(self._named(objects[at] for at in set(programs)))
            for other in (program, *named, *list(self._classes.values())):
                try:
                    return other.find_class(module, name)
                except ValueError:
                    continue
            raise ValueError(f"the class {module}.{name} is not known here: nothing that was sent from here has it")

        return find

    def _named(self, objects: Iterable[Any]) -> Iterator[Program]:
        """The programs that are these objects, which are texts in errors."""
        named = {it.id if isinstance(it, ObjectRef) else str(it).partition("@")[0] for it in objects}
        with _lock:
            sent_here = list(self._objects.items())
        for program, sent in sent_here:
            if sent.id in named:
                yield program


def _say_why() -> None:
    sys.stderr.write("wasmrun: the node compiles the interpreter, once for this machine…\n")


def _buffer(kind: str, shape: tuple[int, ...], data: memoryview) -> Any:
    if _values.has_numpy:
        return _values.numbers(data, kind, kind).reshape(shape)
    cast: Any = data.cast
    return cast(kind) if len(shape) == 1 or not data.nbytes else cast(kind, shape)


_insides: weakref.WeakKeyDictionary[Any, Inside] = weakref.WeakKeyDictionary()


def of(session: Any) -> Inside:
    """The interpreter of a session of `_api`, loaded when it is first needed."""
    found = _insides.get(session)
    if found is not None:
        return found
    with _lock:
        found = _insides.get(session)
        if found is None:
            # Values of one interpreter are not for another: there is one only.
            found = _insides[session] = Inside(session._raw, session.shows_output)
    return found


