"""Python in sandboxes: functions, actors, snippets, and what those may not do."""

import array
import collections
import contextlib
import dataclasses
import datetime
import decimal
import enum
import fractions
import functools
import io
import logging
import math
import os
import pathlib
import pickle
import re
import subprocess
import sys
import textwrap
import threading
import typing
import uuid
import xml.etree.ElementTree
import zipfile

import numpy
import pytest

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


SCALE = 3


def says_e():
    print("\u00e9")
    return 1


LOCK = threading.Lock()
LOG = logging.getLogger(__name__)


def scaled(point: "typing.Optional[Point]") -> Point:
    return Point(point.x * SCALE, math.floor(point.y))


@wasmrun.remote
def echo(value, *more, **named):
    return (value, more, named) if more or named else value


@wasmrun.remote
def add(a, b=0):
    return a + b


@wasmrun.remote(cpus=0.5)
def fib(n):
    if n < 2:
        return n
    return sum(wasmrun.get([fib.remote(n - 1), fib.remote(n - 2)]))


@wasmrun.remote
def fail(code):
    nothing = {}
    if code == 0:
        return nothing["no"]
    raise Wrong(code, "because")


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


@pytest.fixture(autouse=True)
def _session(session):
    return session


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


def test_what_cannot_cross():
    day = numpy.datetime64("2020-01-01")
    assert echo.remote(day).get() == day.item()
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
    loop = []
    loop.append(loop)
    with pytest.raises(TypeError, match="contains itself"):
        echo.remote(loop)
    with pytest.raises(wasmrun.PythonError, match="cannot cross"):
        wasmrun.run("import sys\nresult = sys")


def test_what_a_function_uses_goes_with_it():
    offset = 10

    def shifted(n):
        return n + offset

    @wasmrun.remote
    def both(n):
        return shifted(n), scaled(Point(n, 2.5)), SCALE

    assert both.remote(1).get() == (11, Point(3, 2), 3)
    # As it was at the first call.
    offset = 20
    assert both.remote(1).get()[0] == 11
    assert fib.remote(5).get() == 5
    assert echo.options(time_limit=20, name="mine").remote(1, 2, a=3).get() == (1, (2,), {"a": 3})


WORDS = re.compile("a+", re.IGNORECASE)
Size = collections.namedtuple("Size", "width height", defaults=[1])


@functools.lru_cache(maxsize=None)
def cached(n):
    return n if n < 2 else cached(n - 1) + cached(n - 2)


@dataclasses.dataclass
class Counted:
    x: float
    start: dataclasses.InitVar[int] = 3

    def __post_init__(self, start):
        self.left = start


class Animal:
    def says(self):
        return "nothing"


class Dog(Animal):
    def says(self):
        return super().says() + " but woof"


def is_even(n):
    return n == 0 or is_odd(n - 1)


def is_odd(n):
    return n != 0 and is_even(n - 1)


UNIT = Point(1)


def closing_over(value):
    def both():
        return value, UNIT

    return both


def test_definitions_of_all_kinds():
    @wasmrun.remote
    def uses(size):
        words = WORDS.findall("aabA")
        return words, size._replace(height=5), Size(2), cached(30), Dog().says(), is_even(10)

    assert echo.remote(Counted(1)).get().left == 3

    def typed(x: numpy.ndarray, y: "numpy.ndarray" = None) -> numpy.float64:
        z: numpy.ndarray = x
        return z

    assert wasmrun.remote(typed).remote(1).get() == 1
    later = []
    for each in range(3):

        def by_default(x, i=each, *, p=Point(
            each,  # over lines
            2), q=[each]) -> tuple:  # fmt: skip
            return x, i, p, q, sys._getframe().f_lineno

        later.append(wasmrun.remote(by_default))
    line = later[0]._definition.__code__.co_firstlineno + 3
    assert [it.remote(9).get() for it in later] == [(9, n, Point(n, 2), [n], line) for n in range(3)]
    def text():
        # A comment, and a text, that begin further left
# than the function.
        return """
    four
none"""

    assert wasmrun.remote(text).remote().get() == text()
    origin = Point(7, 8)
    assert wasmrun.remote(closing_over(origin)).remote().get() == (origin, Point(1))
    kind = "outer"

    class Kept:
        def one(self):
            return kind

        def two(self):
            return None

    assert wasmrun.remote(Kept).remote().one.remote().get() == "outer"
    assert uses.remote(Size(3)).get() == (["aa", "A"], Size(3, 5), Size(2, 1), 832040, "nothing but woof", True)
    functions = []
    for number in range(3):

        def plus(x):
            return x + number

        functions.append(wasmrun.remote(plus))
    assert [function.remote(10).get() for function in functions] == [12, 12, 12]


def test_modules_in_modules_and_loggers():
    @wasmrun.remote
    def text(source):
        LOG.debug("not shown")
        return xml.etree.ElementTree.fromstring(source).text, LOG.name

    assert text.remote("<a>1</a>").get() == ("1", __name__)


def test_a_class_derived_from_a_remote_one():
    class Doubles(Counter):
        def twice(self):
            return 2 * self.total

    assert wasmrun.remote(Doubles).remote(2).twice.remote().get() == 4


def test_classes_of_notebooks(monkeypatch):
    # As notebooks do it: no file has them, and `linecache` knows each cell.
    import linecache
    import types

    for number, body in enumerate(("x: int = 1", "def double(self):\n        return 10", "y: int = 2"), 1):
        source = f"import dataclasses\n@dataclasses.dataclass\nclass Cell:\n    {body}\n"
        name = f"/tmp/ipykernel_1/{number}.py"
        monkeypatch.setitem(linecache.cache, name, (len(source), None, source.splitlines(True), name))
        module = types.ModuleType("of_cells")
        monkeypatch.setitem(sys.modules, "of_cells", module)
        exec(compile(source, name, "exec"), module.__dict__)
        if number == 2:
            with_method = module.Cell()
    assert kind.remote(module.Cell()).get() == ("Cell", None)
    # The same class, before its cell was run again.
    assert wasmrun.run("result = old.double()", inputs={"old": with_method}).result == 10
    assert echo.remote(module.Cell()).get() == module.Cell() and wasmrun.run("result = it.y", inputs={"it": module.Cell()}).result == 2


def test_what_cannot_go_with_it():
    @wasmrun.remote
    def locked():
        return LOCK

    @wasmrun.remote
    def arrays():
        return numpy.zeros(3)

    @wasmrun.remote
    def tests():
        return pytest

    ref = add.remote(1, 2)

    @wasmrun.remote
    def refers():
        return ref

    for function, says in (
        (locked, "uses the variable 'LOCK', which cannot be sent.*_thread.lock"),
        (arrays, "uses 'numpy'.*native code"),
        (tests, r"uses 'pytest'.*modules=\['pytest'\]"),
        (refers, "'ref'.*pass what is needed as an argument"),
        (wasmrun.remote(lambda: 1), "a lambda"),
    ):
        with pytest.raises(wasmrun.CaptureError, match=says):
            function.remote()
    with pytest.raises(TypeError, match=r"call .remote"):
        add(1, 2)
    with pytest.raises(TypeError, match="functions and classes"):
        wasmrun.remote(3)
    with pytest.raises(TypeError, match="no option 'cpu'"):
        add.options(cpu=1).remote(1)


def test_modules_and_wheels(tmp_path, monkeypatch):
    package = tmp_path / "shapes_for_test"
    package.mkdir()
    (package / "__init__.py").write_text(
        "import dataclasses, wasmrun\nfrom .area import area\n"
        "@dataclasses.dataclass\nclass Square:\n    side: int\n"
        "class ShapeError(ValueError):\n    pass\n"
        "@wasmrun.remote\ndef double(n):\n    return 2 * n\n"
    )
    (package / "area.py").write_text("def area(r):\n    return 3 * r * r\n")
    monkeypatch.syspath_prepend(tmp_path)
    import shapes_for_test

    @wasmrun.remote(modules=["shapes_for_test"])
    def area(r):
        from shapes_for_test import area as other

        return shapes_for_test.area(r), other(r)

    assert area.remote(2).get() == (12, 12)

    @wasmrun.remote(modules=["shapes_for_test"])
    def square(side, is_wrong=False):
        if is_wrong:
            raise shapes_for_test.ShapeError("wrong")
        return shapes_for_test.Square(side), shapes_for_test.double.remote(side).get()

    # Values of its classes, also for functions that do not know it.
    given = shapes_for_test.Square(2)
    assert square.remote(2).get() == (given, 4)
    assert [it.get() for it in (kind.remote(given), kind.remote(wasmrun.put(given)))] == [("Square", None)] * 2
    assert echo.options(modules=["shapes_for_test"]).remote([given, Point(1)]).get() == [given, Point(1)]
    with pytest.raises(shapes_for_test.ShapeError):
        square.remote(2, True).get()
    wheel = tmp_path / "shapes-1-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as file:
        file.writestr("in_wheel/__init__.py", "NAME = 'wheel'")
        file.writestr("shapes-1.dist-info/METADATA", "")

    @wasmrun.remote(modules=[wheel])
    def name():
        import in_wheel

        return in_wheel.NAME

    assert name.remote().get() == "wheel"
    with zipfile.ZipFile(wheel, "a") as file:
        file.writestr("in_wheel/_fast.so", b"\x7fELF")
    with pytest.raises(wasmrun.CaptureError, match="native code"):
        wasmrun.remote(modules=[wheel])(name._definition).remote()
    with pytest.raises(wasmrun.CaptureError, match="no module 'nowhere'"):
        add.options(modules=["nowhere"]).remote(1)


def test_objects_and_tasks():
    one = add.remote(1, 2)
    assert add.remote(one, b=add.remote(one, 4)).get() == 10

    @wasmrun.remote
    def tree(stored, ref):
        kept = ref[0]
        parts = [add.remote(stored, n) for n in range(3)] + [kept]
        done, left = wasmrun.wait(parts, num_returns=len(parts))
        assert not left
        everything = sorted(wasmrun.get(list(wasmrun.as_completed(done))))
        return everything, kept, wasmrun.put({"a": everything}), wasmrun.task_id()

    numbers, kept, put, task = tree.remote(wasmrun.put(7), [one]).get()
    assert numbers == [3, 7, 8, 9] and kept.get() == 3 and put.get() == {"a": numbers} and len(task) == 32
    assert add.remote(put.get()["a"][0], kept).get() == 6
    assert echo.remote(put).get() == {"a": numbers}


def test_what_is_printed_is_shown(capsys):
    @wasmrun.remote
    def child(n):
        print("child", n)
        return n

    @wasmrun.remote
    def parent():
        print("before")
        return sum(wasmrun.get([child.remote(1), child.remote(2)]))

    assert parent.options(name="p").remote().get() == 3
    assert capsys.readouterr().out == "(p) before\n(p) child 1\n(p) child 2\n"

    @wasmrun.remote
    class Says:
        def hello(self, n):
            print("hello", n, end="")
            return [][n]

    # Where it cannot be shown, the value counts.
    with contextlib.redirect_stdout(io.TextIOWrapper(io.BytesIO(), encoding="ascii")) as out:
        assert wasmrun.remote(says_e).remote().get() == 1
        out.seek(0)
        assert out.read() == "(says_e) \\xe9\n"
    says = Says.remote()
    for n in (1, 2):
        with pytest.raises(IndexError):
            says.hello.remote(n).get()
        assert capsys.readouterr().out == f"(hello) hello {n}\n"


def test_an_executor_runs_any_function():
    def shifted(n):
        return n + SCALE

    with wasmrun.Executor() as executor:
        assert list(executor.map(shifted, range(3))) == [3, 4, 5]
        assert executor.submit(add, 1, b=2).result() == 3
        with pytest.raises(TypeError, match="got builtin_function_or_method"):
            executor.submit(len, [])
        failed = executor.submit(fail, 7)
        assert isinstance(failed.exception(), Wrong)


def test_coroutines():
    @wasmrun.remote
    async def gathered(n):
        import asyncio

        await asyncio.sleep(0.01)
        return await asyncio.gather(*(add.remote(at, 1) for at in range(n)))

    assert gathered.remote(4).get() == [1, 2, 3, 4]


def test_errors():
    with pytest.raises(KeyError) as error:
        fail.remote(0).get()
    assert isinstance(error.value, wasmrun.PythonError) and error.value.args == ("no",)
    assert 'return nothing["no"]' in error.value.traceback and __file__ in error.value.traceback
    assert "_app" not in error.value.traceback and "fail" in error.value.__notes__[0]
    with pytest.raises(Wrong) as error:
        fail.remote(7).get()
    assert error.value.args == (7, "because")

    @wasmrun.remote
    def passes_on():
        class Here(Exception):
            pass

        try:
            fail.remote(1).get()
        except Wrong as error:
            raise Here(error.args[0]) from error

    with pytest.raises(wasmrun.PythonError, match="Here: 1") as error:
        passes_on.remote().get()
    assert "The above exception was the direct cause" in error.value.traceback
    with pytest.raises(wasmrun.DependencyError) as dependency:
        add.remote(fail.remote(2), 1).get()
    assert isinstance(dependency.value, Wrong) and dependency.value.args == (2, "because")
    assert isinstance(dependency.value.__cause__, Wrong) and 'raise Wrong(code, "because")' in dependency.value.__cause__.traceback

    @wasmrun.remote
    def depends():
        try:
            add.remote(fail.remote(2), 1).get()
        except Wrong as error:
            return isinstance(error, wasmrun.DependencyError), error.args

    assert depends.remote().get() == (True, (2, "because"))
    with pytest.raises(TypeError, match="positional"):
        add.remote(1, 2, 3).get()


@dataclasses.dataclass
class Coded(ValueError):
    code: int
    why: str = "no"


class Keyed(KeyError):
    def __init__(self, key, *, extra):
        super().__init__(key)
        self.extra = extra


def test_exceptions_keep_what_they_have():
    @wasmrun.remote
    def keyed():
        error = Keyed("a", extra=[Point(1), LOCK_NAME])
        error.lock = (it for it in ())
        error.add_note("a note")
        raise error

    with pytest.raises(Keyed) as keyed_error:
        keyed.remote().get()
    error = keyed_error.value
    assert error.args == ("a",) and error.extra == [Point(1), LOCK_NAME] and "a note" in error.__notes__
    back = pickle.loads(pickle.dumps(error))
    assert isinstance(back, Keyed) and isinstance(back, wasmrun.PythonError) and back.traceback == error.traceback

    @wasmrun.remote
    def coded():
        raise Coded(3)

    with pytest.raises(Coded) as coded_error:
        coded.remote().get()
    assert (coded_error.value.code, coded_error.value.why) == (3, "no")

    @wasmrun.remote
    def defined_there():
        class Other(ZeroDivisionError):
            pass

        raise Other("x")

    # Of what is known of it.
    with pytest.raises(ZeroDivisionError, match="x") as other:
        defined_there.remote().get()
    assert isinstance(other.value, wasmrun.PythonError)

    @wasmrun.remote
    def limited():
        recurse.options(time_limit=0.2).remote().get()

    with pytest.raises(wasmrun.LimitError):
        limited.remote().get()

    @wasmrun.remote
    def hides():
        error = ValueError(1)
        error.__dict__ |= {"add_note": 1, "with_traceback": 2, "__class__": 3, "mine": 4}
        raise error

    with pytest.raises(ValueError) as hidden:
        hides.remote().get()
    assert hidden.value.mine == 4 and callable(hidden.value.with_traceback)


LOCK_NAME = "lock"


@wasmrun.remote
def recurse():
    while True:
        pass


def test_actors():
    counter = Counter.remote(5)
    assert wasmrun.get([counter.add.remote(n) for n in range(4)]) == [5, 6, 8, 11]
    assert counter.later.remote(1).get() == 12
    with pytest.raises(Wrong):
        counter.fail.remote().get()
    assert counter.add.remote(add.remote(1, 1)).get() == 13
    with pytest.raises(AttributeError, match="has no method 'nope'; it has add,fail,later"):
        counter.nope

    @wasmrun.remote
    def uses(counter, times):
        own = Counter.options(name="of-a-task").remote(100)
        return [counter.add.remote(1).get() for _ in range(times)], own.add.remote(1).get(), own

    seen, of_own, own = uses.remote(counter, 2).get()
    assert (seen, of_own, own.add.remote(1).get()) == ([14, 15], 101, 102)
    assert wasmrun.get_actor("of-a-task").add.remote(1).get() == 103
    wasmrun.kill(counter)
    with pytest.raises(wasmrun.ActorDiedError):
        counter.add.remote(1).get()
    with pytest.raises(ValueError, match="it counts from 0"):
        Counter.remote(-1).add.remote(1).get()


def test_snippets():
    found = wasmrun.run("print('hi')\nimport sys\nprint('no', file=sys.stderr)\nresult = [x * 2 for x in xs]", inputs={"xs": [1, 2]})
    assert found == wasmrun.Outcome([2, 4], "hi\n", "no\n")
    assert wasmrun.run("pass").result is None
    with pytest.raises(ZeroDivisionError) as error:
        wasmrun.run("x = 1\nprint('before')\nx / 0")
    assert "x / 0" in error.value.traceback and error.value.stdout == "before\n"
    with pytest.raises(SyntaxError):
        wasmrun.run("if")
    with pytest.raises(TypeError, match="a snippet is text"):
        wasmrun.run(b"x")
    with wasmrun.Sandbox(time_limit=20) as sandbox:
        sandbox.run("def f(x):\n    return x + y\ny = 1")
        assert sandbox.run("result = f(x)", inputs={"x": 41}).result == 42
        with pytest.raises(NameError):
            sandbox.run("z")
        assert sandbox.run("y += 1; result = y").result == 2
        assert sandbox.run("pass").result is None


LIMITS = [
    ("while True: pass", wasmrun.LimitError, "time limit"),
    ("x = 'x' * (10 << 30)", OverflowError, "."),
    ("x = 'x' * (1 << 30)", MemoryError, "."),
    ("x = []\nwhile True: x.append('x' * 1_000_000)", MemoryError, "."),
    ("def f(): f()\nf()", (RecursionError, wasmrun.TrapError, wasmrun.LimitError), "."),
    ("while True: print('x' * 1000)", OSError, "may print"),
    ("import os\nos._exit(3)", wasmrun.TaskError, "."),
    ("import sys\nsys.exit(3)", wasmrun.PythonError, "SystemExit: 3"),
    ("open('/etc/passwd')", FileNotFoundError, "."),
    ("open('/tmp/x', 'w')", OSError, "."),
    ("import os\nassert not os.environ.get('HOME')\nresult = os.listdir('/')", OSError, "."),
    ("import socket\nsocket.create_connection(('127.0.0.1', 80))", wasmrun.PythonError, "."),
    ("import subprocess\nsubprocess.run(['ls'])", wasmrun.PythonError, "."),
    ("import ctypes", ImportError, "."),
    ("import numpy", ModuleNotFoundError, "numpy"),
    ("import wasmrun\nwasmrun.remote(int)\nwasmrun.get_actor('nobody')", wasmrun.PythonError, "nobody"),
]


@pytest.mark.parametrize("code, raises, says", LIMITS, ids=[code[-30:] for code, _, _ in LIMITS])
def test_a_snippet_stays_within(code, raises, says):
    with pytest.raises(raises, match=says):
        wasmrun.run(code, time_limit=5)
    assert wasmrun.run("result = 1").result == 1


# Each writes what it likes in the place of a value: no code of it may run outside, whatever it is.
TRICKS = [
    "b''", "b'\\xff'", "b'N' * 5", "b'l\\xff\\xff\\xff\\xff\\x0f'", "b'l\\x01' * 5000", "b'i' + b'\\xff' * 20",
    "b'o\\x02os\\x06system\\x00'", "b'o\\x08builtins\\x04eval\\x00'", "b'E\\x01\\x08builtins\\x04exec' + b't\\x01s\\x01x\\x00'",
    "b'E\\x01\\x02os\\x05error' + b't\\x01s\\x01x\\x00'", "b'x\\x08builtins\\x05print\\x01x'", "b'n\\x0asubprocess\\x05Popen' + b't\\x00'",
    "b'R\\x05\\x01p'", "b'H\\x00\\x00'", "b'AO\\x01\\x01x'", "b'Ad\\x02\\xff\\xff\\x03\\xff\\xff\\x03'", "b'AB' + b'\\x7f' + b'\\x01' * 127",
    "__import__('pickle').dumps(eval)", "b'E\\x01\\x08builtins\\x0aSystemExit' + b't\\x00\\x00'", "b'k\\x03abc'", "b'y\\x03abc'", "b's\\x01\\xff'",
    "b'q' + b'i\\x80\\x80\\x04' + b'\\x7f' * 65536 + b'i\\x01\\x01'", "b'q' + b'i\\x01\\x01' + b'i\\x01\\x00'", "b'pl\\x00'", "b'DNN'",
    "b'k\\x0c1e9999999999'[:5]", "b'd\\x01l\\x00N'", "b'S\\x01l\\x00'", "b'p' + b'i\\x10' + b'\\x7f' * 16",
    "b'L\\x05range' + b't\\x01s\\x01x'", "b'L\\x05deque' + b't\\x02L\\x05ranget\\x01i\\x08' + b'\\x7f' * 8 + b'N'", "b'L\\x04evals\\x011'",
    "b'j\\x04evald\\x00'", "b'L\\x07CounterL\\x05ranget\\x01i\\x08' + b'\\x7f' * 8", "b'P\\x01\\x00\\x05\\x00\\x00\\x00o\\x01a\\x01b\\x00'", "b'P\\xff'",
    "b'P\\x00\\x00'",
]  # fmt: skip


@pytest.mark.parametrize("trick", TRICKS)
def test_what_comes_out_is_only_data(trick):
    code = f"""
        import wasmrun._data as data
        value = {trick}
        data.Writer.write = lambda self, given, what='': value
    """
    with pytest.raises(wasmrun.WasmrunError, match="no value"):
        wasmrun.run(textwrap.dedent(code))
    # The same in the place of an exception.
    with pytest.raises(wasmrun.PythonError):
        wasmrun.run(textwrap.dedent(code) + "raise ValueError(1)")


class Opens:
    def __init__(self, path):
        self.file = open(path, "w")


@dataclasses.dataclass(slots=True)
class Slim:
    x: int


def test_no_constructor_runs_outside(tmp_path):
    made = str(tmp_path / "made")

    @wasmrun.remote
    def poses(path):
        class Posed(Exception):
            def __str__(self):
                return path

        Posed.__module__, Posed.__qualname__ = Opens.__module__, "Opens"
        raise Posed(object())

    with pytest.raises(wasmrun.PythonError):
        poses.remote(made).get()
    assert not (tmp_path / "made").exists()


def test_hostile_values_end_in_time_and_in_an_error_of_ours():
    # Each result is an error in time, whatever it would take to read it.
    for hostile in (
        "b'P\\x7f\\0' + bytes(4) * 127 + b'E\\xa0\\x8d\\x06' + b'\\0\\0' * 100_000 + b't\\0\\0'",
        "b'l\\xc0\\x96\\xb1\\x02' + b'AB\\x01\\0' * 5_000_000",
        "b'l\\xc0\\x96\\xb1\\x02' + b'B\\0' * 5_000_000",
    ):
        with pytest.raises(wasmrun.WasmrunError, match="too many classes|of memory"):
            wasmrun.run(f"import wasmrun._data as data\nvalue = {hostile}\ndata.Writer.write = lambda *_, **__: value")
    collide = "b''.join(b'i\\x0d' + (k * (2**61 - 1)).to_bytes(13, 'little') for k in range(1, 40_001))"
    for tag in ("b'S'", "b'Z'"):
        code = f"import wasmrun._data as data\nvalue = {tag} + b'\\xc0\\xb8\\x02' + {collide}\n"
        with pytest.raises(wasmrun.WasmrunError, match="collide"):
            wasmrun.run(code + "data.Writer.write = lambda *_, **__: value")

    # Few bytes that would take much memory.
    for many in ("b'l\\0'", "b'k\\x011'", "b'S\\0'"):
        code = f"import wasmrun._data as data\nvalue = b'l\\xc0\\x96\\xb1\\x02' + {many} * 5_000_000\n"
        with pytest.raises(wasmrun.WasmrunError, match="of memory"):
            wasmrun.run(code + "data.Writer.write = lambda *_, **__: value")

    @wasmrun.remote
    def adds_a_field():
        import wasmrun._data as data

        Slim(1)
        name = b"".join(len(it).to_bytes(1, "little") + it for it in (Slim.__module__.encode(), b"Slim"))
        written = b"o" + name + b"\x02\x01xN\x01yN"
        data.Writer.write = lambda *_, **__: written

    with pytest.raises(wasmrun.WasmrunError, match="has no field y"):
        adds_a_field.remote().get()


# Stores a program, and a value that names it. What is behind it is what `wasmrun.put` and `_program.py` do.
EVIL = r"""
import wasmrun._data as data, wasmrun._host as host
parts = data.Writer(None, None).write([("source", "evil", "Evil", "e.py", 1, "import wasmrun\nwasmrun.evil = 1\nclass Evil: pass\n")])
program = host.objects.put(host.objects.Form_Buffer(host.objects.Number.U8), bytes(32) + parts)
written = data.with_programs([0], b"o\x04evil\x04Evil\x00")
value = b"".join([host.number(len(written)), written, host.number(1), program.name(), host.number(0)])
result = host.ObjectRef(host.objects.put_with(host._POSTCARD, value, [program.name()]), "d")
"""


@wasmrun.remote
class Trusted:
    def take(self, value):
        return type(value).__name__

    def is_touched(self):
        return hasattr(wasmrun, "evil")


def test_values_of_snippets_bring_no_code_to_functions_and_actors():
    evil = wasmrun.run(EVIL).result
    trusted = Trusted.remote()
    for taken in (trusted.take.remote(evil), kind.remote(evil)):
        with pytest.raises(wasmrun.PythonError, match="was not sent by the driver"):
            taken.get()
    assert trusted.is_touched.remote().get() is False
    assert trusted.take.remote(wasmrun.put(Point(1))).get() == "Point"


@pytest.mark.parametrize(
    "code",
    [
        "import wasmrun\nresult = wasmrun.get_actor('found')",
        "import wasmrun._host as host\nhost.spawn(host.objects.put(host._POSTCARD, b'x'), 'a:b', b'', [], host.tasks.Options(*[None] * 0, resources=[], "
        "retries=None, retry_on_error=None, time_limit_ms=None, priority=None, label_selector=None, strategy=None))",
        "import wasmrun._host as host\nfrom wasmrun._remote import _of_actor\n"
        "host.create(host.objects.put(host._POSTCARD, b'x'), 'a:b', b'', _of_actor({}), '')",
    ],
)
def test_snippets_are_alone(code):
    found = Keeper.options(name="found").remote()
    assert found.keep.remote(1).get() == "int"
    with pytest.raises(wasmrun.PythonError, match="this code is isolated"):
        wasmrun.run(code)
    with wasmrun.Sandbox() as sandbox, pytest.raises(wasmrun.PythonError, match="this code is isolated"):
        sandbox.run(code)
    # What it was given is its own.
    assert wasmrun.run("result = keeper.kept.remote().get()", inputs={"keeper": found}).result == 1
    wasmrun.kill(found)


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


@dataclasses.dataclass
class Measured:
    values: list

    def mean(self):
        return numpy.mean(self.values)


def test_a_class_goes_without_what_cannot_go_with_it():
    assert echo.remote(Measured([1])).get() == Measured([1])
    with pytest.raises(TypeError, match="Measured uses 'numpy', the module numpy: it has native code"):
        wasmrun.run("it.mean()", inputs={"it": Measured([1])})


class Registered(Exception):
    names = []

    def __init_subclass__(cls, *, code=None, **more):
        if cls.__name__ in cls.names:
            raise ValueError("registered already")
        cls.names.append(cls.__name__)
        cls.code = code


class NotFound(Registered, code=404):
    pass


@dataclasses.dataclass(frozen=True)
class Frozen(Exception):
    code: int


def test_exceptions_are_what_they_were():
    with pytest.raises(SyntaxError, match="invalid syntax") as error:
        wasmrun.run("x = = 1")
    assert error.value.lineno == 1
    with pytest.raises(FileNotFoundError) as error:
        wasmrun.run("open('/nope')")
    assert error.value.filename == "/nope"
    with pytest.raises(UnicodeDecodeError, match="invalid start byte"):
        wasmrun.run("b'\\xff'.decode()")
    with pytest.raises(NameError) as error:
        wasmrun.run("nothing")
    assert error.value.name == "nothing"
    for code in ("raise ValueError(object())", "raise ValueError('x' * 100_000)", "raise ValueError('é' * 100_000)"):
        with pytest.raises(ValueError):
            wasmrun.run(code)
    with pytest.raises(ValueError) as error:
        wasmrun.run("import sys\nprint('😀' * 70_000)\nprint('😀' * 70_000, file=sys.stderr)\nraise ValueError('\\x1b[2J')")
    assert error.value.stdout.endswith("😀\n") and not any("\x1b" in note for note in error.value.__notes__)

    @wasmrun.remote
    def raises(which):
        error = NotFound("x") if which else Frozen(3)
        error.__dict__["_parts"] = 1
        raise error

    with pytest.raises(NotFound) as not_found:
        raises.remote(True).get()
    assert not_found.value.code == 404 and Registered.names == ["NotFound"]
    with pytest.raises(Frozen) as frozen:
        kind.remote(raises.remote(False)).get()
    assert frozen.value.code == 3 and isinstance(frozen.value, wasmrun.DependencyError)
    assert type(pickle.loads(pickle.dumps(frozen.value)))._parts == type(frozen.value)._parts


def test_an_actor_ends_with_its_handle():
    import gc

    gc.disable()
    try:
        for _ in range(6):
            # Each holds one of two CPUs.
            assert Counter.options(cpus=1).remote(1).add.remote(1).get(timeout=60) == 2
    finally:
        gc.enable()


def test_threads_share_a_function():
    @wasmrun.remote
    def x_of(point):
        return point.x

    found = []
    threads = [threading.Thread(target=lambda n=n: found.append(x_of.remote(Point(n)).get())) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == list(range(8))


def test_what_failed_once_fails_again():
    class Locked:
        def uses(self):
            return LOCK

    for _ in range(2):
        with pytest.raises(wasmrun.CaptureError, match="LOCK"):
            wasmrun.remote(Locked).remote()


def test_an_end_of_iteration_ends_nothing_outside():
    import asyncio

    @wasmrun.remote
    def ends():
        raise StopIteration(1)

    async def waits():
        await ends.remote()

    with pytest.raises(wasmrun.PythonError, match="StopIteration"):
        asyncio.run(waits())
    with pytest.raises(wasmrun.WasmrunError, match="outcome is missing"):
        wasmrun.run("import wasmrun._data as data\ndata.Writer.write = lambda *_, **__: b'N'")


def test_dataclasses_are_not_constructed_outside():
    @wasmrun.remote
    def evil():
        made = object.__new__(Point)
        object.__setattr__(made, "x", 666)
        object.__setattr__(made, "y", None)
        return made

    assert evil.remote().get().x == 666


def test_scripts_on_the_command_line(tmp_path):
    from wasmrun._node import program

    (tmp_path / "helper.py").write_text("def double(x):\n    return 2 * x\n")
    script = tmp_path / "script.py"
    script.write_text(
        "import os, sys, helper\n"
        "print(sys.argv[1:], helper.double(int(sys.stdin.read())), sorted(os.listdir('/here')), 'WASMRUN_SCRIPT' in os.environ)\n"
        "open('/here/made', 'w').write('yes')\n"
        "sys.exit('bye' if sys.argv[1:] == ['end'] else 0)\n"
    )

    def submit(*arguments, given="21"):
        command = [program(), "submit", "--node-cpus", "1", *arguments]
        return subprocess.run(command, input=given, capture_output=True, text=True, timeout=120)

    granted = ["--dir", f"{tmp_path}::/here", "--env", "PYTHONPATH=/here", str(script)]
    ran = submit(*granted, "--", "a", "$i")
    assert ran.stdout == "['a', '$i'] 42 ['helper.py', 'script.py'] False\n", ran.stderr
    assert (tmp_path / "made").read_text() == "yes"
    ran = submit(*granted, "--", "end")
    assert ran.returncode == 1 and ran.stderr.startswith("bye")
    ran = submit(str(script))
    assert ran.returncode == 1 and "No module named 'helper'" in ran.stderr and f'"{script}", line 1' in ran.stderr
    ran = submit(str(script), "--invoke", "f()")
    assert ran.returncode == 2 and "which has no functions to call" in ran.stderr

    def run(*arguments):
        command = [program(), "run", "--node-cpus", "1", *arguments]
        return subprocess.run(command, input="21", capture_output=True, text=True, timeout=120)

    ran = run("-c", "import sys\nprint(sys.argv)", "--", "a", "-b")
    assert (ran.returncode, ran.stdout) == (0, "['-c', 'a', '-b']\n"), ran.stderr
    ran = run("-c", "open('/here')")
    assert ran.returncode == 1 and "FileNotFoundError" in ran.stderr
    ran = run(*granted, "--", "end")
    assert ran.returncode == 1 and ran.stderr.startswith("bye")
    for wrong in ([], ["-c", "1", str(script)], [__file__ + "x"]):
        assert run(*wrong).returncode == 2
    script.write_bytes(b"\xff")
    assert "it is no UTF-8" in submit(str(script)).stderr


def test_a_script(tmp_path):
    # Nothing of a script runs in sandboxes but what functions refer to.
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent(
            """
            import os, wasmrun
            wasmrun.init(node_options=["--node-cpus", "1"])
            SECRET = os.environ["SECRET"]

            @wasmrun.remote
            def double(x):
                return x * 2

            print(sum(wasmrun.get([double.remote(n) for n in range(5)])))
            """
        )
    )
    import os

    ran = subprocess.run(
        [sys.executable, script], env={**os.environ, "SECRET": "x"}, capture_output=True, text=True, timeout=120
    )
    assert ran.stdout == "20\n", ran.stderr


T = typing.TypeVar("T")
UserId = typing.NewType("UserId", int)


@dataclasses.dataclass
class Box(typing.Generic[T]):
    value: T
    user: UserId = UserId(1)


def test_programs_find_what_the_library_has():
    assert echo.remote(Box(1)).get() == Box(1)
    # A module `__main__`, which the library looks up.
    left = wasmrun.run(
        "from __future__ import annotations\nimport dataclasses, pickle, sys, typing\nfrom typing import ClassVar\n"
        "@dataclasses.dataclass\nclass A:\n    x: int\n    K: ClassVar[int] = 3\n    next: 'A' = None\n"
        "result = [it.name for it in dataclasses.fields(A)], pickle.loads(pickle.dumps(A(1))) == A(1), 'A' in vars(sys.modules['__main__']), "
        "list(typing.get_type_hints(A)), p",
        inputs={"p": Point(1)},
    ).result
    assert left == (["x", "next"], True, True, ["x", "K", "next"], Point(1))
    assert wasmrun.run("import sys\nresult = 5\nsys.exit()").result == 5
    code = "import asyncio\nasync def g():\n    await asyncio.sleep(0.01)\n    return 3\nresult = asyncio.run(g())"
    assert wasmrun.run(code).result == 3

    @wasmrun.remote
    def runs():
        import asyncio

        async def g():
            return await add.remote(1, 2)

        try:
            wasmrun.get(add.remote(1), timeout=-1)
        except wasmrun.ExitError:
            return None
        except ValueError as error:
            return asyncio.run(g()), str(error)

    assert runs.remote().get() == (3, "-1 is no time: give seconds, not negative")
    with pytest.raises(TypeError, match="unexpected keyword argument 'self'"):
        add.remote(1, self=1).get()


def test_a_sandbox_can_be_forked():
    with wasmrun.Sandbox(time_limit=20) as sandbox:
        sandbox.run("import math, dataclasses\nx = [1]\ny = {'x': x, 'p': p, 'ref': ref}", inputs={"p": Point(1), "ref": wasmrun.put([5])})
        sandbox.run("def grow(n):\n    global total\n    x.append(n)\n    total = sum(x)\n    return total, math.floor(1.5)")
        sandbox.run("@dataclasses.dataclass\nclass Here:\n    a: int\n    def twice(self):\n        return 2 * self.a\nhere = Here(4)")
        snapshot = sandbox.snapshot()
        # Each goes on by itself.
        assert sandbox.run("result = grow(10)").result == (11, 1)
        with wasmrun.Sandbox(snapshot) as other, sandbox.fork() as fork:
            assert other.run("result = grow(2), total, y['x'], here.twice(), isinstance(here, Here)").result == ((3, 1), 3, [1, 2], 8, True)
            assert other.run("result = y['p'], y['p'] == p, y['ref']", inputs={"p": Point(1)}).result[:2] == (Point(1), True)
            assert other.run("result = y['ref']").result.get() == [5]
            # Functions see the variables, and not copies.
            assert other.run("x = [7]\nresult = grow(1)").result == (8, 1)
            assert fork.run("result = x").result == [1, 10]
            with pytest.raises(TypeError) as error:
                other.run("grow()")
            assert "<snippet 8>" in error.value.traceback
            with pytest.raises(ZeroDivisionError) as error:
                fork.run("def bad():\n    1 / 0"), fork.run("bad()")
            assert "1 / 0" in error.value.traceback
        assert sandbox.run("result = x").result == [1, 10]
        sandbox.run("numbers = (n for n in x)")
        with pytest.raises(TypeError, match="the variable 'numbers' cannot be kept"):
            sandbox.snapshot()
        sandbox.run("del numbers")
        last = sandbox.snapshot()
    # It does not need the sandbox that it was taken of.
    with wasmrun.Sandbox(last) as other:
        assert other.run("result = grow(0)").result == (11, 1)
    with pytest.raises(TypeError, match="begins from a Snapshot"):
        wasmrun.Sandbox(b"\x80")


def test_nothing_of_a_snapshot_is_unpickled_outside(tmp_path):
    made = tmp_path / "made"
    with wasmrun.Sandbox() as sandbox:
        sandbox.run(f"class Opens:\n    def __reduce__(self):\n        return open, ({str(made)!r}, 'w')\nit = Opens()")
        # Nor can it be had inside.
        with pytest.raises(TypeError, match="the variable 'it' cannot be kept"):
            sandbox.snapshot()
        sandbox.run("import wasmrun._state as state\nstate.kept = lambda *_: 5\ndel it")
        with wasmrun.Sandbox(sandbox.snapshot()) as other, pytest.raises(wasmrun.PythonError):
            other.run("result = 1")
    assert not made.exists()
