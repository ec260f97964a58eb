"""Functions, actors and classes that tests of several files have run in sandboxes."""

import dataclasses
import enum
import threading
import typing

import wasmrun


@dataclasses.dataclass(frozen=True)
class Point:
    x: float
    y: float = 0.0

    def __post_init__(self):
        if self.x == 666:
            raise AssertionError("this runs where it should not")


class Color(enum.Enum):
    RED = 1
    BLUE = "b"


class Rights(enum.Flag):
    READ = 1
    WRITE = 2


class Pair(typing.NamedTuple):
    left: int
    right: str


class Wrong(Exception):
    def __init__(self, code, why):
        super().__init__(code, why)
        self.code = code


LOCK = threading.Lock()


@wasmrun.remote
def echo(value, *more, **named):
    return (value, more, named) if more or named else value


@wasmrun.remote
def add(a, b=0):
    return a + b


@wasmrun.remote
def fail(code):
    nothing = {}
    if code == 0:
        return nothing["no"]
    raise Wrong(code, "because")


@wasmrun.remote
def kind(value):
    """It names no class."""
    return type(value).__name__, getattr(value, "x", None)


@wasmrun.remote
class Keeper:
    def keep(self, value):
        self.value = value
        return type(value).__name__

    def kept(self):
        return self.value

    def fail(self):
        raise Wrong(1, self.value)


@wasmrun.remote(cpus=0.5)
def fib(n):
    if n < 2:
        return n
    return sum(wasmrun.get([fib.remote(n - 1), fib.remote(n - 2)]))


@wasmrun.remote
class Counter:
    def __init__(self, start=0):
        if start < 0:
            raise ValueError("it counts from 0")
        self.total = start

    def add(self, n):
        self.total += n
        return self.total

    async def later(self, n):
        return await add.remote(self.total, n)

    def fail(self):
        raise Wrong(self.total, "asked for")


@wasmrun.remote(cpus=1)
def count(counter):
    return counter.add.remote(1).get()
