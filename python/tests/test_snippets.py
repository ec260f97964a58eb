"""Code that nobody has read: what it can do, and what its results can."""

import dataclasses
import textwrap
import typing

import pytest

import wasmrun
from programs import Keeper, Point, add, echo, kind

pytestmark = pytest.mark.usefixtures("session")


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
