"""Functions and actors of Python in sandboxes: how they run. What goes there with them is in `test_capture.py`."""

import contextlib
import io
import math
import subprocess
import sys
import textwrap
import threading

import pytest

import wasmrun
from programs import Counter, Point, Wrong, add, echo, fail

pytestmark = pytest.mark.usefixtures("session")


SCALE = 3


def says_e():
    print("\u00e9")
    return 1


def test_stored_bytes_inside_of_a_list_are_bytes():
    for stored in (b"x", b""):
        (ref,) = echo.remote([wasmrun.put(stored)]).get()
        got = ref.get()
        assert type(got) is bytes and got == stored


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


def test_tasks_know_the_trace_of_their_client():
    @wasmrun.remote
    def trace():
        return wasmrun.trace()

    @wasmrun.remote
    def traces():
        return wasmrun.trace(), trace.remote().get()

    @wasmrun.remote
    class Tracer:
        def trace(self):
            return wasmrun.trace()

    carrier = {"traceparent": f"00-{'a' * 32}-{'b' * 16}-01", "tracestate": "k=v"}
    own, nested = traces.options(trace=carrier).remote().get()
    method = Tracer.remote().trace
    for given in (own, nested, method.options(trace=carrier).remote().get()):
        assert given["traceparent"].startswith(f"00-{'a' * 32}-") and given["tracestate"] == "k=v"
    assert own != nested
    # Where there is no span, `inject` leaves a carrier empty.
    for function in (trace, trace.options(trace={}), method):
        given = function.remote().get()
        assert list(given) == ["traceparent"] and "a" * 32 not in given["traceparent"]


def test_times_and_options_that_are_none():
    @wasmrun.remote
    def wait(seconds):
        ref = add.remote(1, 2)
        return wasmrun.get(ref, timeout=seconds), len(wasmrun.wait([ref], timeout=seconds)[0])

    @wasmrun.remote
    def ask(options, of_actor=False):
        if of_actor:
            return Counter.options(**options).remote(1).add.remote(2).get()
        return add.options(**options).remote(1, 2).get()

    @wasmrun.remote
    def find(name):
        return wasmrun.get_actor(name)

    for seconds in (1e17, 1e300, math.inf):
        assert wait.remote(seconds).get() == (3, 1)
        assert ask.remote({"time_limit": seconds}).get() == ask.remote({"time_limit": seconds}, True).get() == 3
    for seconds in (-1, math.nan):
        for call in (wait.remote(seconds), ask.remote({"time_limit": seconds}), ask.remote({"time_limit": seconds}, True)):
            with pytest.raises(ValueError, match="is no time: give seconds, not negative"):
                call.get()
    # They say so, and the sandbox goes on.
    for options, of_actor, kind, says in (
        ({"retries": -1}, False, ValueError, "option retries: -1 is not a whole number from 0 to 4294967295"),
        ({"priority": 1 << 31}, False, ValueError, "option priority"),
        ({"strategy": 3}, False, TypeError, "option strategy: expected text, got int"),
        ({"restarts": 1.5}, True, ValueError, "option restarts: 1.5"),
        ({"call_retries": 1 << 32}, True, ValueError, "option call_retries"),
        ({"name": 3}, True, TypeError, "option name"),
        ({"labels": 3}, True, TypeError, "option labels"),
    ):
        with pytest.raises(kind, match=says):
            ask.remote(options, of_actor).get()
    with pytest.raises(TypeError, match="the name of an actor is text"):
        find.remote(3).get()


def test_a_placement_group_goes_along_with_a_function():
    with wasmrun.placement_group([{"CPU": 1}]) as group:
        for where in (group, group.bundle(0)):
            child = add.options(strategy=where, cpus=0.5)

            @wasmrun.remote(cpus=0.5)
            def parent():
                return child.remote(1, 2).get()

            assert parent.remote().get() == 3


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


def test_an_executor_forgets_functions():
    import gc
    import weakref

    def made(n):
        def own():
            return n

        return own

    with wasmrun.Executor() as executor:
        functions = [made(n) for n in range(100)]
        assert [it.result() for it in [executor.submit(it) for it in functions]] == list(range(100))
        known = [weakref.ref(it) for it in functions]
        # What they refer to is taken once, as long as they are used.
        assert executor._remote(functions[-1]) is executor._remote(functions[-1])
        functions.clear()
        gc.collect()
        assert known[0]() is None and known[-1]() is not None


def test_coroutines():
    @wasmrun.remote
    async def gathered(n):
        import asyncio

        await asyncio.sleep(0.01)
        return await asyncio.gather(*(add.remote(at, 1) for at in range(n)))

    assert gathered.remote(4).get() == [1, 2, 3, 4]


def test_actors():
    counter = Counter.remote(5)
    assert wasmrun.get([counter.add.remote(n) for n in range(4)]) == [5, 6, 8, 11]
    assert counter.later.remote(1).get() == 12
    assert counter.add is counter.add
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
