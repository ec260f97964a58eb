"""What functions of Python raise, as their callers see it."""

import dataclasses
import pickle

import pytest

import programs
import wasmrun
from programs import LOCK, Point, Wrong, add, fail, kind

pytestmark = pytest.mark.usefixtures("session")


def test_errors():
    with pytest.raises(KeyError) as error:
        fail.remote(0).get()
    assert isinstance(error.value, wasmrun.PythonError) and error.value.args == ("no",)
    assert 'return nothing["no"]' in error.value.traceback and programs.__file__ in error.value.traceback
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
    assert error.value.filename == "/nope" and len(error.value.args) == 2
    again = pickle.loads(pickle.dumps(error.value))
    assert again.filename == "/nope" and again.args == error.value.args
    with pytest.raises(FileNotFoundError) as error:
        wasmrun.run("import os\nos.rename('/nope', '/other')")
    assert error.value.filename2 == "/other"
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


def test_errors_are_called_as_they_are_in_their_file():
    @wasmrun.remote
    def fails():
        class Local(Exception):
            pass

        raise Local("why")

    # Not by the scope that is made for the function.
    with pytest.raises(wasmrun.PythonError, match=rf"^{__name__}\.fails\.<locals>\.Local: why"):
        fails.remote().get()
