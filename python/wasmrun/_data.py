"""Values of Python as data, outside sandboxes and inside.

Owns one format, which is the same in both directions: a tag for each value, and its parts behind it. What a sandbox has made is
only ever read as this: there are no pickles, and no code in it. Classes of dataclasses, enums and exceptions are names. In front
of a value may stand which objects among its handles are the programs that define them. `js/lib/inside/data.ts` has the same format, with
kinds for what Python has not, which are only read here.

Runs on any Python from 3.11 on, also in sandboxes: it imports nothing that is not in the standard library there.
"""

from __future__ import annotations

import array
import collections
import dataclasses
import datetime
import decimal
import enum
import fractions
import pathlib
import struct
import uuid
from collections.abc import Callable
from typing import Any

# How deep values may be nested: below what Python's own stack takes, in sandboxes too.
MOST_NESTED = 200
MOST_FRACTION_BITS = 1 << 16
# How many keys of a dictionary or set may have the same hash.
MOST_COLLISIONS = 100
# How many base classes an exception may have.
MOST_BASES = 64
# How much memory a value may take: so much, and so many times its bytes.
MEMORY_BYTES = 64 << 20
MEMORY_RATIO = 16

_FLOAT = struct.Struct("<d")
_SIZES = {"?": 1, "b": 1, "B": 1, "h": 2, "H": 2, "i": 4, "I": 4, "q": 8, "Q": 8, "f": 4, "d": 8}
_EPOCH = datetime.datetime(1970, 1, 1)
_EPOCH_UTC = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)
_MICROSECOND = datetime.timedelta(microseconds=1)
# Behind the second of two times that a clock shows alike.
_FOLD = "~"


class NotData(TypeError):
    """A value that cannot cross: the message says where it is and why."""


def exception(cls: type[BaseException], args: tuple[Any, ...]) -> BaseException:
    """An exception as it was made, without what its constructor does."""
    base: Any = cls
    while base.__module__ != "builtins":
        assert base.__base__ is not None
        base = base.__base__
    try:
        made: BaseException = base.__new__(cls, *args)
        # It sets what is not among the arguments, such as the line of a `SyntaxError`.
        base.__init__(made, *args)
    except TypeError:
        made = base.__new__(cls)
    if getattr(made, "filename", None) is None or not isinstance(made, OSError):
        # Past what the class may say against it, as frozen dataclasses do. Files are no longer among the arguments.
        BaseException.__dict__["args"].__set__(made, args)
    return made


def arguments(error: BaseException) -> tuple[Any, ...]:
    """What `exception` makes it of."""
    if not isinstance(error, OSError) or error.filename is None:
        return error.args
    args = error.errno, error.strerror, error.filename
    return args if error.filename2 is None else (*args, None, error.filename2)


def _made_deque(parts: tuple[Any, ...]) -> collections.deque[Any]:
    items, length = parts
    # Of a `range`, a few bytes would be without end.
    if type(items) is not list:
        raise ValueError("a deque is made of a list")
    return collections.deque(items, length)


# Classes of the standard library: name, type of the parts, function to the parts, and function from them.
_LIBRARY: dict[type, tuple[str, type, Callable[[Any], Any], Callable[[Any], Any]]] = {
    collections.Counter: ("Counter", dict, dict, collections.Counter),
    collections.OrderedDict: ("OrderedDict", dict, dict, collections.OrderedDict),
    collections.deque: ("deque", tuple, lambda it: (list(it), it.maxlen), _made_deque),
    range: ("range", tuple, lambda it: (it.start, it.stop, it.step), lambda it: range(*it)),
    pathlib.PurePosixPath: ("PurePosixPath", str, str, pathlib.PurePosixPath),
    pathlib.PosixPath: ("Path", str, str, pathlib.Path),
}
_OF_LIBRARY = {name: (kind, made) for name, kind, _, made in _LIBRARY.values()}
# What a `defaultdict` may make.
_FACTORIES = {"": None, "int": int, "float": float, "str": str, "list": list, "dict": dict, "set": set}


def with_programs(numbers: list[int], written: bytes) -> bytes:
    """A written value, whose classes are defined by the objects of these numbers."""
    if not numbers:
        return written
    return b"P" + len(numbers).to_bytes(2, "little") + b"".join(it.to_bytes(4, "little") for it in numbers) + written


class Writer:
    """Writes one value. `ref` says what a handle is, if something is one: its tag, and a number."""

    def __init__(
        self,
        ref: Callable[[Any], tuple[str, int, str] | None],
        name: Callable[[type], tuple[str, str]],
    ) -> None:
        self._out = bytearray()
        self._ref = ref
        self._name = name
        self._path: list[str] = []

    def write(self, value: Any, what: str = "value") -> bytes:
        """The value as bytes."""
        self._path = [what]
        self._value(value)
        return bytes(self._out)

    def write_call(self, args: tuple[Any, ...], kwargs: dict[str, Any], function: str) -> bytes:
        """The arguments of a call, as a tuple of both."""
        self._out += b"t\x02t"
        self._number(len(args))
        for at, value in enumerate(args):
            self._path = [f"{function}() argument {at + 1}"]
            self._value(value)
        self._out += b"d"
        self._number(len(kwargs))
        for name, value in kwargs.items():
            self._path = [f"{function}() argument {name}"]
            self._str(name)
            self._value(value)
        return bytes(self._out)

    def apart(self, value: Any) -> bytes:
        """Another value, by itself, with classes by the same names. What is a handle elsewhere cannot cross."""
        return Writer(lambda _: None, self._name).write(value)

    def _number(self, number: int) -> None:
        while number > 127:
            self._out.append(number & 127 | 128)
            number >>= 7
        self._out.append(number)

    def _bytes(self, tag: bytes, given: bytes | bytearray | memoryview) -> None:
        self._out += tag
        self._number(len(given))
        self._out += given

    def _text(self, given: str) -> None:
        encoded = given.encode("utf-8", "surrogatepass")
        self._number(len(encoded))
        self._out += encoded

    def _class(self, cls: type) -> None:
        module, name = self._name(cls)
        self._text(module)
        self._text(name)

    def _enter(self, count: int) -> None:
        if len(self._path) > MOST_NESTED:
            raise self._wrong("it is nested too deep, or contains itself")
        self._number(count)

    def _all(self, tag: bytes, values: Any) -> None:
        self._out += tag
        self._enter(len(values))
        for at, value in enumerate(values):
            self._path.append(f"[{at}]")
            self._value(value)
            self._path.pop()

    def _pairs(self, pairs: Any) -> None:
        self._enter(len(pairs))
        for key, value in pairs:
            self._path.append(f"[{key!r}]")
            self._value(key)
            self._value(value)
            self._path.pop()

    def _fields(self, pairs: Any) -> None:
        self._enter(len(pairs))
        for name, value in pairs:
            self._path.append(f".{name}")
            self._text(name)
            self._value(value)
            self._path.pop()

    def _attributes(self, attributes: dict[str, Any]) -> None:
        """Those that can cross."""
        start, depth, count = len(self._out), len(self._path), 0
        for name, value in attributes.items():
            before = len(self._out)
            try:
                self._path.append(f".{name}")
                self._text(name)
                self._value(value)
                count += 1
            except TypeError:
                del self._out[before:]
            del self._path[depth:]
        written = self._out[start:]
        del self._out[start:]
        self._enter(count)
        self._out += written

    def _exception(self, value: BaseException) -> None:
        """With its base classes, down to one that every Python has."""
        attributes = dict(value.__dict__)
        args = arguments(value)
        if isinstance(value, (NameError, AttributeError, ImportError)) and value.name is not None:
            attributes["name"] = value.name
        names = []
        for cls in type(value).__mro__:
            if issubclass(cls, BaseException):
                try:
                    names.append(self._name(cls))
                except TypeError:
                    # It cannot be sent: a base class of it can.
                    continue
                if cls.__module__ == "builtins":
                    break
        self._out += b"E"
        self._number(len(names))
        for module, name in names:
            self._text(module)
            self._text(name)
        before, depth = len(self._out), len(self._path)
        try:
            self._all(b"t", args)
        except TypeError:
            # What it says is there in any case.
            del self._out[before:], self._path[depth:]
            self._all(b"t", (str(value),))
        self._attributes(attributes)

    def _wrong(self, why: str) -> NotData:
        return NotData(f"{''.join(self._path)}: {why}")

    def _value(self, value: Any) -> None:
        write = _WRITERS.get(type(value))
        if write is not None:
            write(self, value)
        else:
            self._other(value)

    def _other(self, value: Any) -> None:
        ref = self._ref(value)
        if ref is not None:
            tag, number, kind = ref
            self._out += tag.encode()
            self._number(number)
            self._text(kind)
        elif isinstance(value, enum.Flag):
            self._out += b"X"
            self._class(type(value))
            self._value(value.value)
        elif isinstance(value, enum.Enum):
            self._out += b"x"
            self._class(type(value))
            self._text(value.name)
        elif isinstance(value, BaseException):
            self._exception(value)
        elif dataclasses.is_dataclass(value) and not isinstance(value, type):
            self._out += b"o"
            self._class(type(value))
            try:
                given = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
            except AttributeError as error:
                raise self._wrong(f"a field has no value yet: {error}") from None
            self._fields((getattr(value, "__dict__", {}) | given).items())
        elif isinstance(value, tuple) and hasattr(value, "_fields") and not getattr(value, "__dict__", None):
            self._out += b"n"
            self._class(type(value))
            self._all(b"t", tuple(value))
        elif type(value) in _LIBRARY:
            name, _, parts, _ = _LIBRARY[type(value)]
            self._out += b"L"
            self._text(name)
            self._value(parts(value))
        elif isinstance(value, array.array):
            self._array(value.typecode, (len(value),), memoryview(value))
        elif isinstance(value, memoryview):
            self._array(value.format, value.shape or (), value)
        else:
            self._buffer(value)

    def _buffer(self, value: Any) -> None:
        if hasattr(value, "dtype") and hasattr(value, "item") and getattr(value, "shape", None) == ():
            # A number of NumPy's.
            item = value.item()
            if type(item) is type(value):
                raise self._wrong(f"a {value.dtype} of NumPy cannot cross: make a float or an int of it")
            if value.dtype.kind in "mM" and not isinstance(item, (datetime.date, datetime.timedelta)):
                # Python has none for it, and it would be a number, or nothing.
                raise self._wrong(
                    f"{value!r} cannot cross, for Python has no such date or duration: make one of microseconds of it, as in "
                    f".astype('{value.dtype.kind}8[us]'), or pass what it is as a number"
                )
            return self._value(item)
        if isinstance(value, (bytes, bytearray)):
            raise self._wrong(f"{type(value).__qualname__} cannot cross, which is derived from bytes: pass bytes of it")
        if hasattr(value, "mask"):
            raise self._wrong("a masked array cannot cross: pass its data and its mask")
        try:
            view = memoryview(value)
        except ValueError as error:
            raise self._wrong(f"a buffer cannot cross: {error}") from None
        except TypeError:
            of = type(value)
            if hasattr(of, "__next__"):
                raise self._wrong("an iterator or generator cannot cross into or out of a sandbox: make a list of it") from None
            raise self._wrong(
                f"{of.__module__}.{of.__qualname__} cannot cross into or out of a sandbox: numbers, text, bytes, "
                "containers, dataclasses, enums, dates, paths, exceptions, buffers of numbers and references can"
            ) from None
        self._array(view.format, view.shape or (), view)

    def _array(self, kind: str, shape: tuple[int, ...], view: memoryview) -> None:
        kind = kind.lstrip("<=@")
        if kind in "lL":
            kind = {4: "i", 8: "q"}[view.itemsize]
            kind = kind.upper() if view.format.endswith("L") else kind
        if kind not in _SIZES:
            raise self._wrong(f"buffers of format '{view.format}' cannot cross")
        self._out += b"A" + kind.encode()
        self._number(len(shape))
        for length in shape:
            self._number(length)
        if view.nbytes and view.c_contiguous:
            self._out += view.cast("B")
        else:
            self._out += view.tobytes()

    def _none(self, _: None) -> None:
        self._out += b"N"

    def _bool(self, value: bool) -> None:
        self._out += b"T" if value else b"F"

    def _int(self, value: int) -> None:
        length = value.bit_length() // 8 + 1
        self._out += b"i"
        self._number(length)
        self._out += value.to_bytes(length, "little", signed=True)

    def _float(self, value: float) -> None:
        self._out += b"f" + _FLOAT.pack(value)

    def _complex(self, value: complex) -> None:
        self._out += b"c" + _FLOAT.pack(value.real) + _FLOAT.pack(value.imag)

    def _str(self, value: str) -> None:
        self._out += b"s"
        self._text(value)

    def _dict(self, value: dict[Any, Any]) -> None:
        self._out += b"d"
        self._pairs(value.items())

    def _default_dict(self, value: collections.defaultdict[Any, Any]) -> None:
        for name, factory in _FACTORIES.items():
            if factory is value.default_factory:
                self._out += b"j"
                self._text(name)
                return self._dict(value)
        raise self._wrong(f"a defaultdict cannot cross that makes what is missing by {value.default_factory}: make a dict of it")

    def _told(self, tag: bytes, told: str) -> None:
        self._out += tag
        self._text(told)

    def _offset(self, value: datetime.datetime | datetime.time) -> datetime.timedelta | None:
        zone = value.utcoffset()
        if zone is None and value.tzinfo is not None:
            raise self._wrong(f"{value!r} cannot cross: what its zone is from UTC depends on the date")
        return zone

    def _time(self, value: datetime.time) -> None:
        self._offset(value)
        self._told(b"h", value.isoformat() + _FOLD * value.fold)

    def _datetime(self, value: datetime.datetime) -> None:
        zone = self._offset(value)
        since = value - _EPOCH if zone is None else value - _EPOCH_UTC
        self._out += b"D"
        self._int(since // _MICROSECOND)
        if zone is not None:
            self._int(zone // _MICROSECOND)
        elif value.fold:
            self._bool(True)
        else:
            self._none(None)

    def _fraction(self, value: fractions.Fraction) -> None:
        self._out += b"q"
        self._int(value.numerator)
        self._int(value.denominator)

    def _timedelta(self, value: datetime.timedelta) -> None:
        self._out += b"p"
        self._int(value // _MICROSECOND)


_WRITERS: dict[type, Callable[[Writer, Any], None]] = {
    type(None): Writer._none,
    bool: Writer._bool,
    int: Writer._int,
    float: Writer._float,
    complex: Writer._complex,
    str: Writer._str,
    bytes: lambda to, value: to._bytes(b"b", value),
    bytearray: lambda to, value: to._bytes(b"B", value),
    list: lambda to, value: to._all(b"l", value),
    tuple: lambda to, value: to._all(b"t", value),
    set: lambda to, value: to._all(b"S", value),
    frozenset: lambda to, value: to._all(b"Z", value),
    dict: Writer._dict,
    collections.defaultdict: Writer._default_dict,
    datetime.datetime: Writer._datetime,
    datetime.timedelta: Writer._timedelta,
    datetime.date: lambda to, value: to._told(b"y", value.isoformat()),
    datetime.time: Writer._time,
    decimal.Decimal: lambda to, value: to._told(b"k", str(value)),
    fractions.Fraction: Writer._fraction,
    uuid.UUID: lambda to, value: to._bytes(b"u", value.bytes),
}


def _is_free(cls: type, name: str) -> bool:
    """Whether an attribute of this name hides nothing that the class can do."""
    return not name.startswith("__") and not callable(getattr(cls, name, None))


def _check_hashes(keys: list[Any]) -> None:
    """Keys that were chosen to collide take time that grows with the square of their number, which nothing can stop."""
    if len(keys) > MOST_COLLISIONS and max(collections.Counter(map(hash, keys)).values()) > MOST_COLLISIONS:
        raise ValueError("the keys of a dictionary or set collide")


class Reader:
    """Reads one value. `ref` makes a handle of its tag, number and kind; `find` gives the class of a module and a name, or raises:
    it is told the numbers of the programs in front of the value."""

    def __init__(
        self,
        data: bytes | memoryview,
        ref: Callable[[str, int, str], Any],
        find: Callable[[str, str, list[int]], type],
        buffer: Callable[[str, tuple[int, ...], memoryview], Any],
    ) -> None:
        self._data = memoryview(data)
        self._at = 0
        self._memory = MEMORY_BYTES + MEMORY_RATIO * len(data)
        self._programs: list[int] = []
        self._ref = ref
        self._find = find
        self._buffer = buffer
        self._depth = 0

    def read(self) -> Any:
        """The value. `ValueError` if these bytes are none."""
        if self._data and self._data[0] == ord("P"):
            self._at += 1
            count = int.from_bytes(self._take(2), "little")
            self._programs = [int.from_bytes(self._take(4), "little") for _ in range(count)]
        value = self._value()
        if self._at != len(self._data):
            raise ValueError("there is more than one value")
        return value

    def _take(self, count: int) -> memoryview:
        end = self._at + count
        if end > len(self._data):
            raise ValueError("the value is cut off")
        taken = self._data[self._at : end]
        self._at = end
        return taken

    def _charge(self, memory: int) -> None:
        """What takes much more memory than bytes."""
        self._memory -= memory
        if self._memory < 0:
            raise ValueError(f"it would take more than {MEMORY_RATIO} times its bytes of memory")

    def _byte(self) -> int:
        at = self._at
        if at >= len(self._data):
            raise ValueError("the value is cut off")
        self._at = at + 1
        return self._data[at]

    def _number(self) -> int:
        number = self._byte()
        if number < 128:
            return number
        number &= 127
        shift = 7
        while True:
            byte = self._byte()
            number |= (byte & 127) << shift
            if byte < 128:
                return number
            shift += 7
            if shift > 63:
                raise ValueError("a length has too many bytes")

    def _text(self) -> str:
        return str(self._take(self._number()), "utf-8", "surrogatepass")

    def _count(self) -> int:
        # Each has a byte at least: no room is made for what is not there.
        count = self._number()
        if count > len(self._data) - self._at:
            raise ValueError("the value is cut off")
        return count

    def _all(self) -> list[Any]:
        count = self._count()
        self._charge(64 + 8 * count)
        return [self._value() for _ in range(count)]

    def _dict(self) -> dict[Any, Any]:
        count = self._count()
        self._charge(64 + 100 * count)
        pairs = [(self._value(), self._value()) for _ in range(count)]
        _check_hashes([key for key, _ in pairs])
        return dict(pairs)

    def _members(self) -> list[Any]:
        members = self._all()
        self._charge(160 + 64 * len(members))
        _check_hashes(members)
        return members

    def _value(self) -> Any:
        tag = self._byte()
        read = _READERS.get(tag)
        if read is None:
            raise ValueError(f"there is no value of kind {tag}")
        self._depth += 1
        if self._depth > 2 * MOST_NESTED:
            raise ValueError("the value is nested too deep")
        value = read(self)
        self._depth -= 1
        return value

    def _int(self) -> int:
        return int.from_bytes(self._take(self._number()), "little", signed=True)

    def _float(self) -> float:
        number: float = _FLOAT.unpack(self._take(8))[0]
        return number

    def _array(self) -> Any:
        kind = chr(self._byte())
        if kind not in _SIZES:
            raise ValueError(f"there are no buffers of {kind!r}")
        shape = tuple(self._number() for _ in range(self._number()))
        if len(shape) > 16:
            raise ValueError("a buffer has too many dimensions")
        self._charge(512)
        size = _SIZES[kind]
        for length in shape:
            size *= length
        return self._buffer(kind, shape, self._take(size))

    def _integer(self) -> int:
        if self._byte() != ord("i"):
            raise ValueError("expected an int")
        return self._int()

    def _fraction(self) -> fractions.Fraction:
        self._charge(112)
        parts = self._integer(), self._integer()
        # To reduce it takes time that grows with the square of their length.
        if max(map(int.bit_length, parts)) > MOST_FRACTION_BITS:
            raise ValueError("a fraction is too long")
        return fractions.Fraction(*parts)

    def _datetime(self) -> datetime.datetime:
        self._charge(200)
        since, zone = self._integer() * _MICROSECOND, self._value()
        if zone is None:
            return _EPOCH + since
        if zone is True:
            # The second of two that a clock shows alike.
            return (_EPOCH + since).replace(fold=1)
        if type(zone) is not int:
            raise ValueError("the offset of a time zone is no int")
        of = datetime.timezone(zone * _MICROSECOND) if zone else datetime.timezone.utc
        return (_EPOCH_UTC + since).astimezone(of)

    def _time(self) -> datetime.time:
        text = self._text()
        return datetime.time.fromisoformat(text.removesuffix(_FOLD)).replace(fold=text.endswith(_FOLD))

    def _class(self) -> type:
        return self._find(self._text(), self._text(), self._programs)

    def _named(self) -> dict[str, Any]:
        """What has names: fields and attributes."""
        count = self._count()
        self._charge(160 + 100 * count)
        return {self._text(): self._value() for _ in range(count)}

    def _object(self) -> Any:
        cls, given = self._class(), self._named()
        if not dataclasses.is_dataclass(cls):
            raise ValueError(f"{cls.__qualname__} is no dataclass")
        names = {field.name for field in dataclasses.fields(cls)}
        if not names <= given.keys():
            raise ValueError(f"{cls.__qualname__} has other fields: {', '.join(sorted(names))}")
        # As it was: what its constructor would do has been done.
        made = object.__new__(cls)
        for name, value in given.items():
            if name in names:
                object.__setattr__(made, name, value)
            elif hasattr(made, "__dict__") and _is_free(cls, name):
                made.__dict__[name] = value
            else:
                raise ValueError(f"{cls.__qualname__} has no field {name}")
        return made

    def _member(self) -> enum.Enum:
        cls, name = self._class(), self._text()
        if not issubclass(cls, enum.Enum):
            raise ValueError(f"{cls.__qualname__} is no enum")
        return cls[name]

    def _flags(self) -> enum.Flag:
        cls, value = self._class(), self._integer()
        if not issubclass(cls, enum.Flag):
            raise ValueError(f"{cls.__qualname__} has no flags")
        known = 0
        for member in cls.__members__.values():
            known |= member.value
        # A class remembers each value that it has made.
        if value & ~known:
            raise ValueError(f"{cls.__qualname__} has no such flags")
        return cls(value)

    def _exception(self) -> BaseException:
        found = None
        count = self._count()
        if count > MOST_BASES:
            raise ValueError("an exception has too many classes")
        for _ in range(count):
            module, name = self._text(), self._text()
            if found is None:
                try:
                    found = self._find(module, name, self._programs)
                except Exception:
                    # The next is a base class of it.
                    continue
        args, attributes = self._value(), self._named()
        if found is None or not issubclass(found, BaseException) or not isinstance(args, tuple):
            raise ValueError("there is no such exception")
        made = exception(found, args)
        notes = attributes.pop("__notes__", None)
        if isinstance(made, (NameError, AttributeError, ImportError)):
            missing = attributes.pop("name", None)
            if type(missing) is str:
                made.name = missing
        made.__dict__.update({name: value for name, value in attributes.items() if _is_free(found, name)})
        if isinstance(notes, list):
            made.__dict__["__notes__"] = [note for note in notes if type(note) is str]
        return made

    def _named_tuple(self) -> Any:
        cls, args = self._class(), self._value()
        if not issubclass(cls, tuple) or not isinstance(args, tuple):
            raise ValueError(f"{cls.__qualname__} is no tuple")
        if len(args) != len(getattr(cls, "_fields", ())):
            raise ValueError(f"{cls.__qualname__} has another number of fields")
        return tuple.__new__(cls, args)

    def _library(self) -> Any:
        self._charge(700)
        kind, made = _OF_LIBRARY[self._text()]
        parts = self._value()
        if type(parts) is not kind:
            raise ValueError(f"{kind.__name__} expected")
        return made(parts)

    def _default_dict(self) -> Any:
        factory, members = _FACTORIES[self._text()], self._value()
        if type(members) is not dict:
            raise ValueError("dict expected")
        return collections.defaultdict(factory, members)

    def _byte_array(self) -> bytearray:
        self._charge(64)
        return bytearray(self._take(self._number()))

    def _decimal(self) -> decimal.Decimal:
        self._charge(112)
        return decimal.Decimal(self._text())

    def _handle(self, tag: str) -> Any:
        self._charge(200)
        number = self._number()
        return self._ref(tag, number, self._text())


_READERS: dict[int, Callable[[Reader], Any]] = {
    ord("N"): lambda of: None,
    ord("T"): lambda of: True,
    ord("F"): lambda of: False,
    ord("i"): Reader._int,
    ord("f"): Reader._float,
    ord("c"): lambda of: complex(of._float(), of._float()),
    ord("s"): Reader._text,
    ord("b"): lambda of: bytes(of._take(of._number())),
    ord("B"): Reader._byte_array,
    ord("l"): Reader._all,
    ord("t"): lambda of: tuple(of._all()),
    ord("S"): lambda of: set(of._members()),
    ord("Z"): lambda of: frozenset(of._members()),
    ord("d"): Reader._dict,
    ord("D"): Reader._datetime,
    ord("p"): lambda of: of._integer() * _MICROSECOND,
    ord("y"): lambda of: datetime.date.fromisoformat(of._text()),
    ord("h"): Reader._time,
    ord("k"): Reader._decimal,
    ord("q"): Reader._fraction,
    ord("u"): lambda of: uuid.UUID(bytes=bytes(of._take(of._number()))),
    ord("A"): Reader._array,
    ord("L"): Reader._library,
    ord("j"): Reader._default_dict,
    ord("o"): Reader._object,
    ord("x"): Reader._member,
    ord("X"): Reader._flags,
    ord("E"): Reader._exception,
    ord("n"): Reader._named_tuple,
    ord("R"): lambda of: of._handle("R"),
    ord("H"): lambda of: of._handle("H"),
    # JavaScript's: undefined, a BigInt and a Map.
    ord("U"): lambda of: None,
    ord("I"): Reader._int,
    ord("M"): Reader._dict,
}
