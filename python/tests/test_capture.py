"""What goes to a sandbox with a function or class of Python."""

import collections
import dataclasses
import functools
import logging
import math
import re
import sys
import typing
import xml.etree.ElementTree
import zipfile

import numpy
import pytest

import wasmrun
from programs import LOCK, Counter, Point, add, echo, fib, kind

pytestmark = pytest.mark.usefixtures("session")


SCALE = 3


LOG = logging.getLogger(__name__)


def scaled(point: "typing.Optional[Point]") -> Point:
    return Point(point.x * SCALE, math.floor(point.y))


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


STEP = 1


@wasmrun.remote
def stepped(n):
    return n + STEP


@wasmrun.remote
class Stepper:
    def stepped(self, n):
        return n + STEP


def test_it_is_taken_once_whatever_the_options(monkeypatch):
    assert stepped.options(time_limit=20).remote(1).get() == Stepper.options(time_limit=20).remote().stepped.remote(1).get() == 2
    monkeypatch.setattr(sys.modules[__name__], "STEP", 5)
    for function, cls in ((stepped, Stepper), (stepped.options(time_limit=10), Stepper.options(time_limit=10))):
        assert function.remote(1).get() == cls.remote().stepped.remote(1).get() == 2
    # Other modules are another program.
    assert stepped.options(modules=["programs"]).remote(1).get() == 6


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


def hundred(function):
    @functools.wraps(function)
    def more(*args):
        """More."""
        return function(*args) + 100

    return more


def ten(function):
    # It hides what it decorates.
    def more(*args):
        return function(*args) + 10

    return more


def plain(x):
    return x


def countdown(x):
    return x if x <= 0 else countdown(x - 1)


@hundred
@ten
def decorated(x):
    return x


class Adding:
    def __init__(self, function):
        functools.update_wrapper(self, function)

    def __call__(self, x):
        return self.__wrapped__(x) + 1


plus, twice, bare = hundred(plain), hundred(hundred(plain)), decorated.__wrapped__
countdown, adding, kept = hundred(countdown), Adding(plain), functools.lru_cache(plain)


@functools.singledispatch
def kind_of(x):
    return "any"


@kind_of.register
def _(x: int):
    return "int"


def test_what_a_call_has_made_of_a_function_goes_as_that():
    @ten
    def local(x):
        return x

    @wasmrun.remote
    def both(x):
        return plain(x), plus(x), twice(x), decorated(x), bare(x), kept(x), kept(x), kept.cache_info().hits, local(x)

    @wasmrun.remote
    def again():
        # Its name is what was made of it, also in itself.
        return countdown(1), plus.__name__, plus.__wrapped__(1), child.remote(1).get(), child_of_ten.remote(1).get()

    child, child_of_ten = wasmrun.remote(plus), wasmrun.remote(cpus=0.5)(ten(plain))
    assert both.remote(1).get() == (1, 101, 201, 111, 11, 1, 1, 1, 11)
    assert again.remote().get() == (200, "plain", 1, 101, 11)
    assert wasmrun.remote(plus).remote(1).get() == 101 and wasmrun.remote(twice).remote(1).get() == 201

    @wasmrun.remote
    def calls_adding():
        return adding(1)

    @wasmrun.remote
    def dispatches():
        return kind_of(1)

    for function, says in ((calls_adding, "a call of Adding has made of a function"), (dispatches, "kind_of has implementations by type")):
        with pytest.raises(wasmrun.CaptureError, match=says):
            function.remote()


def version():
    return 1


def descend(n):
    return descend(n - 1) + 1 if n else 0


@wasmrun.remote
def task():
    return 1


class Version:
    number = 1


@wasmrun.remote
class Actor:
    def number(self):
        return 1


OldVersion, OldActor, old_version, old_task, old_descend = Version, Actor, version, task, descend


def version():  # noqa: F811
    return 2


def descend(n):  # noqa: F811
    return 100


@wasmrun.remote
def task():  # noqa: F811
    return 2


class Version:  # noqa: F811
    number = 2


@wasmrun.remote
class Actor:  # noqa: F811
    def number(self):
        return 2


def test_of_two_with_one_name_each_is_itself():
    @wasmrun.remote
    def both():
        # What refers to itself by its name means the later one.
        calls = version(), old_version(), descend(3), old_descend(3), Version.number, OldVersion.number
        refs = task.remote(), old_task.remote(), Actor.remote().number.remote(), OldActor.remote().number.remote()
        return calls, wasmrun.get(refs)

    assert both.remote().get() == ((2, 1, 100, 101, 2, 1), [2, 1, 2, 1])
    assert wasmrun.get([task.remote(), old_task.remote()]) == [2, 1]
    assert [it.remote().number.remote().get() for it in (Actor, OldActor)] == [2, 1]


class Outer:
    class Inner:
        n = 1

    def inner(self):
        return self.Inner()

    @staticmethod
    def double(n):
        return 2 * n


Inner, double = Outer.Inner, Outer.double


def test_what_is_in_a_class_is_there_with_it():
    @wasmrun.remote
    def same():
        return isinstance(Outer().inner(), Inner), double is Outer.double, double(2)

    assert same.remote().get() == (True, True, 4)


SEEN = []
also_seen = SEEN


FACTOR = 2


@dataclasses.dataclass
class Cell:
    value: int

    def factor(self, by=FACTOR, *, point=Point(FACTOR)):
        return by, point

    @staticmethod
    def by_default(by=FACTOR):
        return by

    def home(self):
        return Grid.home, CENTER


class Grid:
    factor = FACTOR * 10
    home = None
    seen = []

    def name(self):
        return "grid"

    def size(self):
        return 1


def renamed(self):
    return "other"


CENTER = Cell(3)
Grid.home, Grid.name, Grid.size = Cell(4), renamed, hundred(Grid.size)
Grid.seen.append(1)
FACTOR = 3
root = hundred(math.sqrt)
callers = []
for each in (plain, version):

    def calls(*args, function=each):
        return function(*args)

    callers.append(calls)
call_plain, call_version = callers


def test_classes_and_arguments_are_as_they_are_outside():
    @wasmrun.remote
    def grid():
        return Grid().name(), Grid().size(), Grid.factor, Grid.home, Grid.seen

    assert grid.remote().get() == ("other", 101, 20, Cell(4), [1])

    @wasmrun.remote
    def cell():
        return Cell(1).factor(), Cell.by_default(), Cell(1).home()

    assert cell.remote().get() == ((2, Point(2)), 2, (Cell(4), Cell(3)))
    assert wasmrun.run("result = it.home(), it.factor()", inputs={"it": Cell(1)}).result == ((Cell(4), Cell(3)), (2, Point(2)))

    @wasmrun.remote
    def call():
        return call_plain(5), call_version(), root(4)

    assert call.remote().get() == (5, 2, 102)


def test_a_variable_is_one_by_all_its_names():
    own = SEEN

    def sees():
        return own

    @wasmrun.remote
    def sees_it():
        SEEN.append(1)
        return also_seen, sees()

    assert sees_it.remote().get() == ([1], [1])


def test_variables_of_a_class_are_those_of_its_module(monkeypatch):
    import types

    # What a decorator of another module has made, where the name is another variable.
    other = types.ModuleType("other_for_test")
    exec("SCALE = 1000\ndef same(function):\n    return lambda *args: function(*args)", other.__dict__)
    monkeypatch.setattr(Scaled, "other", other.same(plain), raising=False)
    assert wasmrun.remote(Scaled).remote().scale.remote().get() == SCALE


class Scaled:
    def scale(self):
        return SCALE


def test_a_function_that_changes_a_variable_around_it_says_so():
    count = 0

    @wasmrun.remote
    def counts():
        nonlocal count
        count += 1

    with pytest.raises(wasmrun.CaptureError, match="counts changes a variable of a function around it.*'count'"):
        counts.remote()


def test_a_file_that_has_changed(tmp_path, monkeypatch):
    file = tmp_path / "changes_for_test.py"
    file.write_text("def one():\n    return 1\n\n\ndef two():\n    return 2\n")
    monkeypatch.syspath_prepend(tmp_path)
    import changes_for_test

    file.write_text("# A line.\n" * 3 + file.read_text())
    with pytest.raises(wasmrun.CaptureError, match="two is not where it was in .*: the file has changed"):
        wasmrun.remote(changes_for_test.two).remote()


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


class Locked:
    def lock(self):
        return LOCK


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

    def mentions(it: Locked) -> int:
        return 1

    @wasmrun.remote
    def uses():
        # What cannot go where it is only mentioned cannot go where it is used.
        return mentions(1), Locked()

    for function, says in (
        (locked, "uses the variable 'LOCK', which cannot be sent.*_thread.lock"),
        (arrays, "uses 'numpy'.*native code"),
        (tests, r"uses 'pytest'.*modules=\['pytest'\]"),
        (refers, "'ref'.*pass what is needed as an argument"),
        (uses, "Locked uses the variable 'LOCK'"),
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


@pytest.mark.parametrize("lines", [1, 2_000, 300_000])
def test_large_programs_are_compiled_once(tmp_path, monkeypatch, lines):
    # Small ones and very large ones are compiled by each call, those between once: it makes no difference.
    (tmp_path / "large_for_test.py").write_text(
        "from __future__ import annotations\n"
        + "# A comment that takes its room.\n" * lines
        + "class Wrong(Exception):\n    pass\n"
        + "def fail(x: int):\n    raise Wrong(x)  # here\n"
    )
    (tmp_path / "broken_for_test.py").write_text("# As large.\n" * lines * 2 + "def f(:\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "large_for_test", raising=False)
    import large_for_test

    @wasmrun.remote(modules=["large_for_test", "broken_for_test"])
    def call(what):
        if what == "annotations":
            return large_for_test.fail.__annotations__
        if what == "broken":
            import broken_for_test  # noqa: F401
        large_for_test.fail(what)

    assert call.remote("annotations").get() == {"x": "int"}
    with pytest.raises(large_for_test.Wrong, match="7") as raised:
        call.remote(7).get()
    told = "\n".join(raised.value.__notes__)
    assert f'large_for_test.py", line {lines + 5}, in fail' in told and "# here" in told
    with pytest.raises(SyntaxError):
        call.remote("broken").get()


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


def test_methods_that_are_called_something_else_in_their_class():
    class Stepper:
        """A page
 of text, and another line of it."""

        def __step(self, by=-1, to=[2]):
            return [by, *to]

        def _get(self, scale=(3,)):
            return scale

        size = property(_get)
        del _get

        def both(self):
            return [*self.__step(), *self.size]

    @wasmrun.remote
    def run():
        return Stepper().both()

    assert run.remote().get() == [-1, 2, 3]
