"""What a program asks of the node.

Owns handles to objects and actors, how they and values cross, and what goes wrong there.
"""

from __future__ import annotations

import math
import operator
import time
from collections.abc import Callable
from typing import Any

from componentize_py_types import Err
from wit_world.imports import actors, context, objects, tasks

from . import _data, _program
from ._errors import (
    ActorDiedError,
    DependencyError,
    GetTimeoutError,
    GuestError,
    LimitError,
    PythonError,
    RefusedError,
    TaskCancelledError,
    TaskError,
    TrapError,
    joined,
)

__all__ = ["context"]


_KINDS = {
    objects.FailureKind.TRAP: TrapError,
    objects.FailureKind.GUEST: GuestError,
    objects.FailureKind.LIMIT: LimitError,
    objects.FailureKind.CANCELLED: TaskCancelledError,
    objects.FailureKind.DEPENDENCY: DependencyError,
    objects.FailureKind.ACTOR_DIED: ActorDiedError,
}

_BUFFERS = "BbHhIiQqfd"
_POSTCARD = objects.Form_Postcard()

OBJECT_NAME_BYTES = 36
ACTOR_NAME_BYTES = 32

CALL = "call"
INSTANCE = "instance"


class ObjectRef:
    """An object that is there or will be. As an argument of a task it stands for its value."""

    __slots__ = ("_handle", "_kind", "__weakref__")

    def __init__(self, handle: objects.Object, kind: str) -> None:
        self._handle = handle
        self._kind = kind

    @property
    def id(self) -> str:
        """The object's id."""
        return self._handle.id()

    def get(self, timeout: float | None = None) -> Any:
        """Its value, once it is there."""
        try:
            value = self._handle.get(milliseconds(timeout))
        except Err as error:
            raise raised(error.value) from None
        return _value(value, self._kind)

    def __await__(self) -> Any:
        from ._loop import arrival

        yield from arrival(self).__await__()
        return self.get()

    def __class_getitem__(cls, item: object) -> type:
        return cls

    def __repr__(self) -> str:
        return f"ObjectRef({self.id})"

    def __reduce__(self) -> Any:
        raise TypeError("an ObjectRef belongs to its task: pass it to tasks, or get its value")


class Method:
    """A method of an actor."""

    __slots__ = ("_actor", "_name")

    def __init__(self, actor: actors.Actor, name: str) -> None:
        self._actor = actor
        self._name = name

    def remote(self, /, *args: Any, **kwargs: Any) -> ObjectRef:
        """Calls it. Calls of one task run in the order in which they are made."""
        given, _ = call_data(args, kwargs, self._name)
        name = tasks.Argument_Value(text(self._name))
        try:
            made = self._actor.call(CALL, [name, tasks.Argument_Value(given)])
        except Err as error:
            raise raised(error.value) from None
        return ObjectRef(made, "p")


class ActorHandle:
    """An actor. Its methods are attributes: `counter.add.remote(1)`."""

    __slots__ = ("_actor", "_methods")

    def __init__(self, actor: actors.Actor, methods: str) -> None:
        self._actor = actor
        self._methods = methods

    def __getattr__(self, name: str) -> Method:
        if name.startswith("__"):
            raise AttributeError(name)
        if self._methods and name not in self._methods.split(","):
            raise AttributeError(f"the actor has no method '{name}'; it has {self._methods}")
        return Method(self._actor, name)

    def __reduce__(self) -> Any:
        raise TypeError("an actor belongs to its task: pass it to tasks, or find it by its name")


# More than any time, which the node takes: 64 bits.
_MOST_MILLISECONDS = (1 << 64) - 1


def milliseconds(seconds: float | None) -> int | None:
    """A time as the node takes it: None is without end."""
    if seconds is None or seconds == math.inf:
        return None
    # Also not what is no number.
    if not seconds >= 0:
        raise ValueError(f"{seconds} is no time: give seconds, not negative")
    return min(int(seconds * 1000), _MOST_MILLISECONDS)


def raised(error: Any) -> Exception:
    """What the node says as an exception."""
    match error:
        case objects.Error_Failed(failure):
            made = _KINDS.get(failure.kind, TaskError)(failure.message)
            if failure.payload is not None:
                cause = python_error(failure.payload, failure.message)
                if failure.kind == objects.FailureKind.GUEST:
                    made = cause
                else:
                    made.__cause__ = cause
                    made = joined(cause, made)
            made.task = failure.origin
            return made
        case objects.Error_TimedOut():
            return GetTimeoutError("timed out: it is not there yet")
        case objects.Error_Deadlock(why):
            return TaskError(why)
        case objects.Error_Refused(why):
            return RefusedError(why)
    return TaskError(str(error))


def number(value: int) -> bytes:
    """A length as postcard has it."""
    if value < 128:
        return bytes((value,))
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def text(value: str) -> bytes:
    """Text as postcard has it."""
    encoded = value.encode("utf-8", "replace")
    return number(len(encoded)) + encoded


class Postcard:
    """Reads what the node has checked."""

    def __init__(self, given: bytes) -> None:
        self._given = memoryview(given)
        self._at = 0

    def number(self) -> int:
        value = shift = 0
        while True:
            byte = self._given[self._at]
            self._at += 1
            value |= (byte & 127) << shift
            if byte < 128:
                return value
            shift += 7

    def take(self, count: int) -> memoryview:
        self._at += count
        return self._given[self._at - count : self._at]

    def text(self) -> str:
        return str(self.take(self.number()), "utf-8")

    def data(self) -> Any:
        written, of_objects, of_actors = self.crossed()

        def ref(tag: str, at: int, kind: str) -> Any:
            if tag == "R":
                return ObjectRef(objects.Object.named(of_objects[at]), kind)
            return ActorHandle(actors.Actor.named(of_actors[at]), kind)

        def find(module: str, name: str, numbers: list[int]) -> type:
            return _program.find_class(module, name, (objects.Object.named(of_objects[at]) for at in numbers))

        return _data.Reader(written, ref, find, _program.buffer).read()

    def crossed(self) -> tuple[memoryview, list[bytes], list[bytes]]:
        """The record `data`."""
        given = self.take(self.number())
        of_objects = [bytes(self.take(OBJECT_NAME_BYTES)) for _ in range(self.number())]
        return given, of_objects, [bytes(self.take(ACTOR_NAME_BYTES)) for _ in range(self.number())]


def data(value: Any, what: str = "value") -> tuple[bytes, list[bytes]]:
    """A value as postcard has the record `data`, and the names in it."""
    return crossing(lambda to: to.write(value, what))


def crossing(write: Callable[[_data.Writer], bytes]) -> tuple[bytes, list[bytes]]:
    """What is written as postcard has the record `data`, and the names in it."""
    programs: list[objects.Object] = []
    of_objects: list[bytes] = []
    of_actors: list[bytes] = []

    def ref(given: Any) -> tuple[str, int, str] | None:
        if isinstance(given, ObjectRef):
            of_objects.append(given._handle.name())
            return "R", len(of_objects) - 1, given._kind
        if isinstance(given, ActorHandle):
            of_actors.append(given._actor.name())
            return "H", len(of_actors) - 1, given._methods
        return None

    def name(cls: type) -> tuple[str, str]:
        module, name = _program.class_name(cls)
        home = _program.home(module, name)
        if home is not None and home not in programs:
            programs.append(home)
        return module, name

    written = write(_data.Writer(ref, name))
    if not (of_objects or of_actors or programs):
        return b"".join((number(len(written)), written, b"\0\0")), []
    written = _data.with_programs([len(of_objects) + at for at in range(len(programs))], written)
    of_objects += [program.name() for program in programs]
    parts = [number(len(written)), written, number(len(of_objects)), *of_objects]
    return b"".join([*parts, number(len(of_actors)), *of_actors]), of_objects + of_actors


def call_data(args: tuple[Any, ...], kwargs: dict[str, Any], function: str) -> tuple[bytes, list[bytes]]:
    """The arguments of a call."""
    return crossing(lambda to: to.write_call(args, kwargs, function))


def resolved(given: Any) -> Any:
    """Arguments, where objects stand for their values."""
    args, kwargs = given
    args = tuple([it.get() if isinstance(it, ObjectRef) else it for it in args])
    kwargs = {name: it.get() if isinstance(it, ObjectRef) else it for name, it in kwargs.items()}
    return args, kwargs


def _value(value: objects.Value, kind: str) -> Any:
    if isinstance(value.form, objects.Form_Buffer):
        if value.form.value == objects.Number.U8:
            return value.bytes
        return memoryview(value.bytes).cast(_BUFFERS[value.form.value.value])
    if kind in ("p", "d"):
        read = Postcard(value.bytes)
        if kind == "p":
            # What went well: an error would have been raised.
            read.number()
            value = read.data()
            print(read.text(), end="")
            return value
        return read.data()
    if kind == "s":
        return Postcard(value.bytes).text()
    if kind == "n" or not value.bytes:
        # As outside: what has no bytes is nothing, if its type is not known.
        return None
    raise TypeError("this object is of a type of its module's, which Python cannot read in a sandbox: get it outside")


def state(given: Postcard) -> Any:
    """What a snapshot has given: the object is the next thing of these arguments."""
    made = ObjectRef(objects.Object.named(bytes(given.take(OBJECT_NAME_BYTES))), "p")
    try:
        read = Postcard(made._handle.get(None).bytes)
    except Err as error:
        raise raised(error.value) from None
    # What went well.
    read.number()
    return read.data()


def python_error(payload: bytes, message: str) -> GuestError:
    """The exception that a function of Python has raised."""
    try:
        read = Postcard(payload)
        cls, said, told = read.text(), read.text(), read.text()
        written, of_objects, _ = read.crossed()
    except Exception:
        return GuestError(message)
    made = PythonError(f"{cls.removeprefix('builtins.')}: {said}")
    made.traceback = told
    made.add_note(told.rstrip())
    try:
        details = _program.read(written)
        programs = [objects.Object.named(it) for it in of_objects]
        nobody: Any = lambda *_: None  # noqa: E731
        find = lambda module, name, _: _program.find_class(module, name, programs)  # noqa: E731
        return joined(_data.Reader(details["error"], nobody, find, _program.buffer).read(), made)
    except Exception:
        # A class that is not here.
        return made


def get(refs: Any, *, timeout: float | None = None) -> Any:
    """The value of an object, or the values of several, once all are there."""
    if isinstance(refs, ObjectRef):
        return refs.get(timeout)
    found = list(refs) if hasattr(refs, "__iter__") else [refs]
    for at, ref in enumerate(found):
        if not isinstance(ref, ObjectRef):
            raise TypeError(f"expected an ObjectRef, got {type(ref).__qualname__} (at [{at}])")
    end = None if timeout is None else time.monotonic() + timeout
    if end is None:
        return [ref.get() for ref in found]
    return [ref.get(max(end - time.monotonic(), 0)) for ref in found]


def wait(
    refs: Any, *, num_returns: int = 1, timeout: float | None = None
) -> tuple[list[ObjectRef], list[ObjectRef]]:
    """Waits until `num_returns` of the objects are there or have failed. Those that are, at most so many, and the others."""
    found, num_returns = list(refs), operator.index(num_returns)
    if not 1 <= num_returns <= max(len(found), 1):
        raise ValueError(f"num_returns is 1 to {len(found)}, the number of objects; got {num_returns}")
    if not found:
        return [], []
    ready = set(arrived(found, num_returns, timeout)[:num_returns])
    done = [ref for at, ref in enumerate(found) if at in ready]
    return done, [ref for at, ref in enumerate(found) if at not in ready]


def arrived(refs: list[ObjectRef], count: int, timeout: float | None) -> list[int]:
    """Which of these are there, once so many are, or time is up."""
    try:
        return objects.wait([ref._handle for ref in refs], count, milliseconds(timeout))
    except Err as error:
        raise raised(error.value) from None


def as_completed(refs: Any, *, timeout: float | None = None) -> Any:
    """The objects, each as soon as it is there or has failed."""
    end = None if timeout is None else time.monotonic() + timeout
    left = list(refs)
    while left:
        remaining = None if end is None else max(end - time.monotonic(), 0)
        ready = set(arrived(left, 1, remaining))
        if not ready:
            raise GetTimeoutError(f"timed out: {len(left)} objects are not there yet")
        yield from [ref for at, ref in enumerate(left) if at in ready]
        left = [ref for at, ref in enumerate(left) if at not in ready]


def put(value: Any) -> ObjectRef:
    """Stores a value, to be given to many tasks."""
    given, names = data(value)
    try:
        if names:
            return ObjectRef(objects.put_with(_POSTCARD, given, names), "d")
        return ObjectRef(objects.put(_POSTCARD, given), "d")
    except Err as error:
        raise raised(error.value) from None


def cancel(refs: Any) -> None:
    """Cancels the tasks that are to make these objects, and all that those have started."""
    for ref in [refs] if isinstance(refs, ObjectRef) else list(refs):
        ref._handle.cancel()


def kill(actor: ActorHandle) -> None:
    """Ends an actor. Its calls fail, the one that runs included."""
    if not isinstance(actor, ActorHandle):
        raise TypeError(f"expected an actor, got {type(actor).__qualname__}")
    actor._actor.kill()


def get_actor(name: str) -> ActorHandle:
    """An actor of the tenant, by its name."""
    if not isinstance(name, str):
        raise TypeError(f"the name of an actor is text, got {type(name).__qualname__}")
    try:
        return ActorHandle(actors.find(name), "")
    except Err as error:
        raise raised(error.value) from None


def _arguments(program: objects.Object, name: str, given: bytes) -> list[Any]:
    rest = (text(name), text(_program.key or ""), given)
    return [tasks.Argument_Object(program), *map(tasks.Argument_Value, rest)]


def spawn(program: objects.Object, name: str, given: bytes, after: list[ObjectRef], options: Any) -> ObjectRef:
    """Starts a function of a program, once these are there."""
    arguments = _arguments(program, name, given)
    arguments += [tasks.Argument_Object(it._handle) for it in after]
    try:
        made = tasks.spawn(CALL, arguments, options)
    except Err as error:
        raise raised(error.value) from None
    return ObjectRef(made, "p")


def create(program: objects.Object, name: str, given: bytes, options: Any, methods: str) -> ActorHandle:
    """Creates an actor of a class of a program."""
    try:
        made = actors.create(INSTANCE, _arguments(program, name, given), options)
    except Err as error:
        raise raised(error.value) from None
    return ActorHandle(made, methods)
