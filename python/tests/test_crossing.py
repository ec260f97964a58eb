"""Values on their way into sandboxes and out: which can cross, and their classes."""

import array
import collections
import dataclasses
import datetime
import decimal
import fractions
import math
import os
import pathlib
import sys
import uuid

import numpy
import pytest

import wasmrun
from wasmrun import _data
from programs import Color, Keeper, LOCK, Pair, Point, Rights, Wrong, add, echo, kind

pytestmark = pytest.mark.usefixtures("session")


class Wandering(datetime.tzinfo):
    """A zone that is from UTC what the date says, as those of `zoneinfo` are."""

    def utcoffset(self, at):
        return None if at is None else datetime.timedelta(hours=1)


VALUES = [
    None, True, False, 0, -1, 255, -(1 << 63), 1 << 1000, -(1 << 1000) + 1, 0.0, -0.5, math.inf, 1e300, 2 - 3j,
    "", "text", "é😀\0", "\udcff", b"", b"\0\xff", bytearray(b"ab"), [], [1, [2, []]], (), (1,), {1, 2}, frozenset("ab"),
    {}, {"a": 1, 2: [3], (4, 5): None, None: {}}, datetime.date(2026, 2, 28), datetime.time(1, 2, 3, 4),
    datetime.datetime(1900, 1, 1, 0, 0, 0, 7), datetime.datetime(2026, 5, 4, tzinfo=datetime.timezone.utc),
    datetime.datetime(2026, 5, 4, tzinfo=datetime.timezone(datetime.timedelta(hours=-5))), datetime.timedelta(-3, 4, 5),
    decimal.Decimal("1.10"), fractions.Fraction(-2, 6), uuid.UUID(int=5), Point(1, 2), [Point(0.5)], Color.BLUE, Rights.READ,
    Rights.READ | Rights.WRITE, Rights(0), Pair(1, "x"), {"deep": [({"er": {Point(1): Color.RED}},)]}, Wrong(3, "x").args,
    collections.Counter("abca"), collections.deque([1, 2], 3), collections.defaultdict(list, a=[1]), range(1, 9, 2),
    collections.OrderedDict(a=1), pathlib.Path("/a/b"), pathlib.PurePosixPath("c"),
]  # fmt: skip


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_values_come_back(value):
    back = echo.remote(value).get()
    assert back == value and type(back) is type(value)
    assert wasmrun.put([value]).get() == [value]


@wasmrun.remote
def point(x):
    return Point(x)


def closure(step):
    @dataclasses.dataclass
    class Step:
        n: int

    @wasmrun.remote
    def steps(n):
        return Step(n + step)

    return steps, Step


def test_classes_go_with_values():
    assert kind.remote(Point(1)).get() == kind.remote(wasmrun.put(Point(1))).get() == kind.remote(point.remote(1)).get() == ("Point", 1)
    assert echo.remote(point.remote(2)).get() == Point(2)

    @wasmrun.remote
    def passes(value):
        return kind.remote(value).get(), echo.remote([value]).get(), wasmrun.put(value)

    *told, ref = passes.remote(point.remote(3)).get()
    assert told == [("Point", 3), [Point(3)]] and ref.get() == Point(3)
    # Actors that run already, and those that are found.
    keeper = Keeper.options(name="keeper").remote()
    assert keeper.keep.remote(Pair(1, "x")).get() == "Pair" and keeper.kept.remote().get() == Pair(1, "x")
    assert keeper.keep.remote(point.remote(4)).get() == "Point" and keeper.kept.remote().get() == Point(4)
    found = wasmrun.get_actor("keeper")
    assert found.keep.remote([Color.RED, wasmrun.put(Point(5))]).get() == "list"
    color, ref = found.kept.remote().get()
    assert color is Color.RED and ref.get() == Point(5)
    with pytest.raises(wasmrun.PythonError, match="Wrong"):
        found.fail.remote().get()
    # Closures have classes of their own.
    (one, One), (two, Two) = closure(1), closure(2)
    back = echo.remote(wasmrun.put([One(1), Two(2)])).get()
    assert [type(it) for it in back] == [One, Two]
    assert [type(it.get()) for it in echo.remote([one.remote(1), two.remote(1)]).get()] == [One, Two]
    # Snippets.
    left = wasmrun.run("result = [p.x, type(p).__name__, p]", inputs={"p": Point(6)}).result
    assert left == [6, "Point", Point(6)]
    with wasmrun.Sandbox() as sandbox:
        assert sandbox.run("q = p\nresult = q.x", inputs={"p": Point(7)}).result == 7
        assert sandbox.run("result = q").result == Point(7)


def test_of_two_times_that_are_alike_it_is_the_same():
    given = [datetime.datetime(2020, 10, 25, 2, 30, fold=1), datetime.time(2, 30, 0, 5, fold=1), datetime.time(2, 30)]
    back = echo.remote(given).get()
    assert back == given and [it.fold for it in back] == [1, 1, 0]
    assert wasmrun.run("result = [it.fold for it in given]", inputs={"given": given}).result == [1, 1, 0]


def test_numbers_cross_as_buffers():
    table = numpy.arange(6, dtype="f4").reshape(2, 3)
    back = echo.remote(table).get()
    assert back.dtype == "f4" and (back == table).all()
    assert math.isnan(echo.remote(math.nan).get())
    assert list(echo.remote(array.array("q", [1, -2])).get()) == [1, -2]
    assert add.remote(numpy.float64(1.5), numpy.int16(3)).get() == 4.5
    stored = wasmrun.put(numpy.arange(1000.0))
    seen = wasmrun.run("result = xs.format, len(xs), sum(xs)", inputs={"xs": numpy.arange(1000.0)}).result
    assert seen == ("d", 1000, 499500.0)
    assert add.remote(stored, stored)._kind == "p"
    assert total.remote(stored).get() == 499500.0


@wasmrun.remote
def total(numbers):
    return sum(numbers)


def test_what_is_stored_as_such_keeps_its_type(fixture):
    @wasmrun.remote
    def read(refs):
        return wasmrun.get(refs)

    given = [wasmrun.put("text"), wasmrun.put(""), fixture.noop.remote(), wasmrun.put([1]), wasmrun.put(numpy.arange(2.0))]
    # Through a task, and again.
    once = echo.remote(given).get()
    twice = echo.remote(once).get()
    for refs in (given, once, twice):
        *values, numbers = wasmrun.get(refs)
        assert values == ["text", "", None, [1]] and numbers.tolist() == [0, 1]
        *values, numbers = read.remote(refs).get()
        assert values == ["text", "", None, [1]] and numbers.tolist() == [0, 1]


class Lists(collections.defaultdict):
    pass


class Bytes(bytes):
    pass


class PairWithMore(Pair):
    pass


def test_what_cannot_cross():
    day = numpy.datetime64("2020-01-01")
    assert echo.remote([day, numpy.timedelta64(5, "ms")]).get() == [day.item(), datetime.timedelta(milliseconds=5)]
    for wrong in ("2020-01-01T00:00:00.000000000", "NaT", "12000-01-01"):
        with pytest.raises(TypeError, match="argument 1: .*datetime64.* Python has no such date"):
            echo.remote(numpy.datetime64(wrong))
    for wrong in ((5, "ns"), (5, "Y"), ("NaT", "s")):
        with pytest.raises(TypeError, match=r"timedelta64.* cannot cross.*astype\('m8\[us\]'\)"):
            echo.remote(numpy.timedelta64(*wrong))
    with pytest.raises(TypeError, match="cannot cross: what its zone is from UTC depends on the date"):
        echo.remote(datetime.time(12, tzinfo=Wandering()))
    for wrong in (numpy.array([day]), numpy.ma.masked_array([1], [True]), numpy.longdouble(1.5)):
        with pytest.raises(TypeError, match="argument 1: .* cannot cross"):
            echo.remote(wrong)
    for value, says in (
        (LOCK, r"echo\(\) argument 1: _thread.lock cannot cross"),
        ([1, {"a": LOCK}], r"argument 1\[1\]\['a'\]: _thread.lock"),
        (sys, "module cannot cross"),
        (numpy.array([object()]), "cannot cross"),
    ):
        with pytest.raises(TypeError, match=says):
            echo.remote(value)
    more = PairWithMore(1, "x")
    more.more = 2
    for derived in (Lists(list), Bytes(b"a"), more):
        with pytest.raises(TypeError, match="argument 1: .* cannot cross"):
            echo.remote(derived)
    loop = []
    loop.append(loop)
    with pytest.raises(TypeError, match="contains itself"):
        echo.remote(loop)
    with pytest.raises(wasmrun.PythonError, match="cannot cross"):
        wasmrun.run("import sys\nresult = sys")


os.environ.setdefault("HOME", "/")


@dataclasses.dataclass
class NotThere:
    # Not inside.
    home: str = os.environ["HOME"]


def test_a_class_that_fails_spoils_no_others():
    assert kind.remote(Point(1)).get() == ("Point", 1)
    with pytest.raises(KeyError):
        kind.remote(NotThere("x")).get()
    assert kind.remote(Point(1)).get() == ("Point", 1)
    assert kind.remote(wasmrun.put(Pair(1, "x"))).get() == ("Pair", None)


def test_lengths_have_as_many_bytes_as_they_need():
    def read(data):
        return _data.Reader(data, lambda *_: None, lambda *_: type(None), lambda *_: None).read()

    for length in (0, 1, 127, 128, 300, (1 << 14) - 1, 1 << 14, 1 << 21):
        written = _data.Writer(lambda _: None, lambda _: ("", "")).write(b"x" * length)
        assert read(written) == b"x" * length
        with pytest.raises(ValueError, match="cut off"):
            read(written[:-1])
    for cut in (b"", b"b", b"b\x80", b"l\x01"):
        with pytest.raises(ValueError, match="cut off"):
            read(cut)
    with pytest.raises(ValueError, match="too many bytes"):
        read(b"b" + b"\x80" * 10 + b"\x01")
    for long in ("x" * 127, "x" * 128, list(range(300))):
        assert echo.remote(long).get() == long


@dataclasses.dataclass
class Measured:
    values: list

    def mean(self):
        return numpy.mean(self.values)


def test_a_class_goes_without_what_cannot_go_with_it():
    assert echo.remote(Measured([1])).get() == Measured([1])
    with pytest.raises(TypeError, match="Measured uses 'numpy', the module numpy: it has native code"):
        wasmrun.run("it.mean()", inputs={"it": Measured([1])})


def test_dataclasses_are_not_constructed_outside():
    @wasmrun.remote
    def evil():
        made = object.__new__(Point)
        object.__setattr__(made, "x", 666)
        object.__setattr__(made, "y", None)
        return made

    assert evil.remote().get().x == 666
