"""Tasks, actors, sessions, and what goes wrong."""

import array
import asyncio
import concurrent.futures
import gc
import inspect
import os
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest

import wasmrun
from conftest import python


def test_names_and_help(orders, fixture):
    assert str(inspect.signature(orders.price)).startswith("(order: 'Order'")
    assert orders.price is not None and orders.pricing.price is not None
    assert fixture.a.who.remote().get() != fixture.b.who.remote().get()
    with pytest.raises(AttributeError, match="say a.who, b.who"):
        fixture.who
    with pytest.raises(AttributeError, match="has no 'nope'"):
        fixture.nope
    with pytest.raises(TypeError, match=r"call .remote"):
        fixture.noop()
    assert "price" in repr(orders)


def test_an_order(orders):
    order = orders.Order(
        id="A-17",
        currency=orders.Currency.EUR,
        tier=orders.Tier.MEMBER,
        items=[orders.Item("mug", 3, 1250, 400)],
        care=orders.Care.FRAGILE,
        delivery=orders.Delivery.Parcel("DE"),
    )
    rules = [orders.Rule.OneFree(("mug", 3)), orders.Rule.Tax(1900)]
    assert orders.price.remote(order, rules).get().total == 3879
    with pytest.raises(wasmrun.GuestError) as error:
        orders.price.remote({**vars_of(order), "items": []}, rules).get()
    assert error.value.value == orders.OrderError.Empty()
    assert "price" in error.value.__notes__[0]


def vars_of(record):
    return {name: getattr(record, name) for name in record.__dataclass_fields__}


def test_objects_are_arguments(graph):
    one = graph.add.remote(1, 2)
    # It is not with the node yet when the next is made.
    total = graph.add.remote(one, graph.add.remote(one, 4))
    assert total.get() == 10
    assert wasmrun.get([one, total]) == [3, 10]
    assert wasmrun.get([]) == []


def test_many(graph):
    refs = [graph.add.remote(n, 1) for n in range(5_000)]
    assert wasmrun.get(refs) == [n + 1 for n in range(5_000)]
    del refs
    gc.collect()
    kept = [graph.add.remote(n, 1) for n in range(100)]
    assert sorted(ref.get() for ref in wasmrun.as_completed(kept)) == list(range(1, 101))
    assert wasmrun.progress(kept)[:2] == [1, 2]


def test_a_call_that_is_refused_is_refused_alone(fixture):
    text = fixture.echo_string.remote("x")
    assert text.get() == "x"
    for _ in range(20):
        refs = [fixture.echo_u32.remote(given) for given in [*range(40), text, *range(40, 80)]]
        with pytest.raises(wasmrun.RefusedError, match="of type u32"):
            refs.pop(40).get()
        assert wasmrun.get(refs) == list(range(80))


def test_many_large_arguments(fixture):
    sizes = [1, 70_000, 30_000, 30_000, 30_000, 300_000, 2] * 10
    refs = [fixture.echo_bytes.remote(bytes(size)) for size in sizes]
    assert [len(value) for value in wasmrun.get(refs)] == sizes
    # Each is sent by itself.
    refs = [fixture.echo_bytes.options(name=f"echo{n}").remote(bytes(300_000)) for n in range(100)]
    assert [len(value) for value in wasmrun.get(refs)] == [300_000] * 100


def test_wait(fixture):
    slow, quick = fixture.sleep.remote(60_000), fixture.noop.remote()
    assert wasmrun.wait([slow, quick], num_returns=1, timeout=30) == ([quick], [slow])
    assert wasmrun.wait([slow], timeout=0.01) == ([], [slow])
    with pytest.raises(wasmrun.GetTimeoutError):
        slow.get(timeout=0.01)
    with pytest.raises(TimeoutError):
        wasmrun.get([slow, quick], timeout=0.01)
    wasmrun.cancel(slow)
    with pytest.raises(wasmrun.TaskCancelledError):
        slow.get()
    with pytest.raises(ValueError, match="num_returns"):
        wasmrun.wait([quick], num_returns=2)


def test_failures_have_classes(fixture, graph):
    with pytest.raises(wasmrun.TrapError) as trap:
        fixture.trap.remote().get()
    assert trap.value.task and trap.value.frames
    with pytest.raises(wasmrun.GuestError) as error:
        fixture.fail.remote("why").get()
    assert error.value.value == "why"
    with pytest.raises(wasmrun.LimitError, match="time limit"):
        fixture.spin.options(time_limit=0.1).remote().get()
    with pytest.raises(wasmrun.LimitError, match="memory limit"):
        fixture.allocate.options(memory="8MiB").remote(64).get()
    with pytest.raises(wasmrun.RefusedError, match="GPU"):
        fixture.noop.options(gpus=64).remote().get()
    broken = graph.double_even.remote(1)
    with pytest.raises(wasmrun.DependencyError) as dependency:
        graph.add.remote(broken, 1).get()
    assert dependency.value.argument == 0
    assert isinstance(dependency.value.__cause__, wasmrun.GuestError)


def test_options(fixture):
    info = fixture.context_info.options(cpus=0.5, memory=32 << 20).remote().get()
    assert {(held.name, held.amount) for held in info.resources} >= {("CPU", 5000)} or info.resources
    named = fixture.noop.options(name="mine", retries=2, priority=1, strategy="spread")
    assert named.remote().get() is None
    assert fixture.env.options(env={"A": "b"}).remote("A").get() == "b"
    for options, says in (
        ({"cpu": 1}, "no option 'cpu'; there are .*cpus"),
        ({"memory": "much"}, "option memory"),
        ({"cpus": True}, "got bool"),
        ({"strategy": "nowhere"}, "option strategy"),
        ({"time_limit": -1.0}, "is no time"),
        ({"trace": {"traceparent": "00-1-2-01"}}, "option trace: .* is no traceparent"),
        ({"trace": "00-1-2-01"}, "(?i)dict"),
        ({"http": ["https://example.com"]}, "option http: 'https://example.com' is no HTTP server: it is a URL"),
        ({"http": "example.com"}, "(?i)str"),
    ):
        with pytest.raises((TypeError, ValueError), match=says):
            fixture.noop.options(**options)


def test_servers_that_are_granted(web):
    # Nobody listens there.
    for granted, said in (([], "HttpRequestDenied"), (["127.0.0.1:1"], "ConnectionRefused")):
        with pytest.raises(wasmrun.GuestError) as error:
            web.fetch.options(http=granted).remote("GET", "http://127.0.0.1:1/", b"").get()
        assert error.value.value == said


def test_actors(graph):
    counter = graph.Counter.remote(10)
    refs = [counter.add.remote(1) for _ in range(50)]
    assert wasmrun.get(refs) == list(range(11, 61))
    assert counter.add.remote(graph.add.remote(20, 20)).get() == 100
    with pytest.raises(AttributeError, match="has no method 'nope'"):
        counter.nope
    graph.count_for.remote(counter, 3).get()
    assert counter.add.remote(0).get() == 103
    wasmrun.kill(counter)
    with pytest.raises(wasmrun.ActorDiedError):
        counter.add.remote(1).get()
    graph.Counter.options(name="total").remote(1)
    assert wasmrun.get_actor("total").add.remote(1).get() == 2
    with pytest.raises(wasmrun.RefusedError):
        wasmrun.get_actor("nobody")
    with pytest.raises(ValueError, match="needs a name"):
        graph.Counter.options(detached=True)


def test_handles_in_values(graph):
    given = graph.pass_on.remote(graph.add.remote(1, 2)).get()
    assert isinstance(given, wasmrun.ObjectRef)
    assert given.get() == 3


def test_stored_values_whose_type_is_not_known(graph):
    for stored in (b"bytes", b""):
        got = graph.pass_on.remote(wasmrun.put(stored)).get().get()
        assert type(got) is bytes and got == stored
    numbers = graph.pass_on.remote(wasmrun.put(array.array("d", [1, 2]))).get().get()
    assert list(numbers) == [1, 2]
    nothing = graph.pass_on.remote(wasmrun.put(array.array("d"))).get().get()
    assert nothing is not None and list(nothing) == []


def test_asyncio(graph, fixture):
    async def many():
        refs = [graph.add.remote(n, 1) for n in range(200)]
        assert await asyncio.gather(*refs) == list(range(1, 201))
        with pytest.raises(wasmrun.TrapError):
            await fixture.trap.remote()
        slow = fixture.sleep.remote(60_000)
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(slow, 0.05)
        wasmrun.cancel(slow)
        return await graph.add.remote(1, 1)

    # In one loop after the other.
    assert asyncio.run(many()) == 2
    assert asyncio.run(many()) == 2


def test_loops_leave_nothing(graph, fixture):
    from wasmrun import _asyncio

    slow = fixture.sleep_forever.remote()

    async def wait(ref):
        return await ref

    async def one(how=None):
        if how == "cancelled":
            left = asyncio.ensure_future(wait(slow))
            await asyncio.sleep(0)
            assert not left.done()
        elif how == "pending":
            slow.__await__().send(None)
        return await graph.add.remote(1, 1)

    def descriptors():
        gc.collect()
        return len(os.listdir("/proc/self/fd"))

    before = descriptors()
    for _ in range(10):
        assert asyncio.run(one()) == 2
    assert descriptors() <= before
    # Nor if something still waits there when it ends.
    for _ in range(5):
        assert asyncio.run(one("cancelled")) == 2
        loop = asyncio.new_event_loop()
        assert loop.run_until_complete(one("pending")) == 2
        loop.close()
        del loop
        gc.collect()
        assert len(_asyncio._bridges) <= 1
    wasmrun.cancel(slow)


def test_executor(graph, fixture):
    with wasmrun.Executor() as executor:
        assert list(executor.map(graph.add, range(10), range(10))) == list(range(0, 20, 2))
        future = executor.submit(fixture.trap)
        assert isinstance(future.exception(), wasmrun.TrapError)
        with pytest.raises(TypeError, match="functions of Python and of modules"):
            executor.submit(print, 1)
        slow = executor.submit(fixture.sleep, 60_000)
        assert slow.cancel()
        with pytest.raises(concurrent.futures.CancelledError):
            slow.result()


def test_threads(graph):
    found = []

    def work(n):
        found.append(wasmrun.get([graph.add.remote(n, k) for k in range(100)])[-1])

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == [n + 99 for n in range(8)]


def test_threads_create_the_first_actors_of_a_class(session, guests):
    ended = python(
        f"""
        import sys, threading, wasmrun

        # Threads take turns as often as they can.
        sys.setswitchinterval(1e-6)
        for _ in range(20):
            graph = wasmrun.load({str(guests / "graph.wasm")!r})
            counter = graph.Counter.options(cpus=0)
            together = threading.Barrier(8)

            def create():
                together.wait()
                counter.remote(1)

            threads = [threading.Thread(target=create) for _ in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        print("created")
        """,
        WASMRUN_ADDRESS=session.address,
    )
    assert ended.stdout == "created\n", ended


def test_threads_begin_at_once(tmp_path):
    ended = python(
        f"""
        import sys, threading, wasmrun
        sys.path.insert(0, {os.path.dirname(__file__)!r})
        from programs import Point, echo
        begin, refs = threading.Barrier(8), {{}}

        def work(n):
            begin.wait()
            refs[n] = wasmrun.put([Point(n)])

        threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        # Any function can read what any thread has stored.
        print(all(echo.remote(refs[n]).get() == [Point(n)] for n in range(8)))
        """,
        XDG_RUNTIME_DIR=str(tmp_path),
    )
    assert ended.stdout == "True\n", ended
    # One interpreter was loaded.
    assert ended.stderr.count("compiles the interpreter") <= 1


def test_what_the_cluster_has(fixture):
    (node,) = wasmrun.nodes()
    assert node["name"] == "own" and node["state"] == "alive"
    assert wasmrun.cluster_resources()["CPU"] == 2
    assert wasmrun.available_resources()["CPU"] <= 2
    slow = fixture.sleep.remote(60_000)
    assert wasmrun.explain(slow).startswith("task " + slow.id[:32])
    wasmrun.cancel(slow)


def test_objects_of_two_sessions(fixture, tmp_path):
    from wasmrun import _api, _node, _wasmrun

    node = _node.Node([])
    try:
        raw = _wasmrun.Session.connect(node.address, None, None, _api._UNNAMED)
        other = raw.put("string", "there")
        assert other.get() == "there"
        here = fixture.noop.remote()
        for ask in (wasmrun.get, wasmrun.wait, wasmrun.cancel):
            with pytest.raises(ValueError, match="different sessions"):
                ask([here, other])
        with pytest.raises(TypeError, match="of another session"):
            fixture.echo_string.remote(other)
        raw.close()
        with pytest.raises(ValueError, match="shut down"):
            other.get()
    finally:
        node.end()


def test_bad_modules(session, tmp_path):
    with pytest.raises(wasmrun.WasmrunError, match="wasm"):
        session.load(b"no module")
    with pytest.raises(FileNotFoundError):
        session.load(tmp_path / "nothing.wasm")
    with pytest.raises(wasmrun.WasmrunError, match="already"):
        wasmrun.init()


def test_puts():
    assert wasmrun.put("text").get() == "text"
    assert wasmrun.put(b"bytes").get() == b"bytes"
    with pytest.raises(TypeError, match="object cannot cross"):
        wasmrun.put(object())


def test_refs_do_not_travel(fixture):
    import pickle

    with pytest.raises(TypeError, match="belongs to its session"):
        pickle.dumps(fixture.noop.remote())


def test_ctrl_c_cancels_what_is_waited_for(fixture):
    # What was started in the background ignores it.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    ref = fixture.sleep_forever.remote()
    timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            ref.get()
    finally:
        signal.signal(signal.SIGINT, before)
    with pytest.raises(wasmrun.TaskCancelledError):
        ref.get(timeout=30)


def test_a_child_says_what_to_do(fixture):
    ref = fixture.noop.remote()
    ref.get()
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        said = b"nothing"
        try:
            ref.get()
        except ValueError as error:
            said = str(error).encode()
        finally:
            os.write(write, said)
            os._exit(0)
    os.close(write)
    said = os.read(read, 1000).decode()
    os.close(read)
    os.waitpid(child, 0)
    assert "call wasmrun.init() here" in said
    # The parent goes on.
    assert fixture.noop.remote().get() is None


NODE = """
    import os, sys, wasmrun
    session = wasmrun.init()
    print(session.address.removeprefix("unix:"), session._node._process.pid, flush=True)
"""


def is_running(pid):
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("end", ["", "os._exit(3)", "os.kill(os.getpid(), 9)"])
def test_the_node_ends_with_the_process(end, tmp_path):
    ended = python(NODE + "    " + end, XDG_RUNTIME_DIR=str(tmp_path))
    address, pid = ended.stdout.split()
    deadline = time.monotonic() + 20
    while is_running(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not is_running(pid), ended
    if not end:
        assert not os.path.exists(address) and not os.path.exists(os.path.dirname(address))


def test_a_session_that_has_ended_leaves_nothing(guests, tmp_path):
    ended = python(
        f"""
        import gc, os, wasmrun

        def one():
            with wasmrun.init(node_options=["--node-cpus", "1"]) as session:
                app = session.load({str(guests / "graph.wasm")!r})
                assert app.add.remote(1, 2).get() == wasmrun.run("result = 3").result
            del session, app
            gc.collect()
            return len(os.listdir("/proc/self/fd"))

        before = one()
        print([one() - before for _ in range(3)])
        """,
        XDG_RUNTIME_DIR=str(tmp_path),
    )
    assert ended.stdout == "[0, 0, 0]\n", ended


def test_a_node_that_dies_under_a_driver(guests, tmp_path):
    ended = python(
        f"""
        import threading, wasmrun
        session = wasmrun.init()
        app = session.load({str(guests / "fixture.wasm")!r})
        refs = [app.sleep_forever.remote() for _ in range(3)]
        threading.Timer(0.3, session._node._process.kill).start()
        for ref in refs:
            try:
                ref.get()
            except wasmrun.ConnectionLostError as error:
                print("lost", "wasmrun status" in str(error))
        print(session.is_connected)
        """,
        XDG_RUNTIME_DIR=str(tmp_path),
    )
    assert ended.stdout.split("\n")[:4] == ["lost True"] * 3 + ["False"], ended


def test_an_address_where_nobody_is(tmp_path):
    ended = python(
        f"""
        import wasmrun
        try:
            wasmrun.init("unix:{tmp_path}/none.sock")
        except wasmrun.NodeNotRunningError as error:
            print(isinstance(error, ConnectionError), error)
        try:
            wasmrun.init("nonsense")
        except ValueError as error:
            print(error)
        """
    )
    first, second = ended.stdout.strip().split("\n")[0], ended.stdout
    assert first.startswith("True") and "nonsense" in second, ended


def test_the_program_comes_with_the_package(guests, tmp_path):
    from wasmrun import _node

    said = subprocess.run([_node.program(), "--version"], capture_output=True, text=True)
    assert said.stdout.strip().endswith(wasmrun.__version__)
    # It finds the package that it came with, if it did.
    told = subprocess.run([_node.program(), "stubs", guests / "orders.wasm", "--out", tmp_path / "o.pyi"], capture_output=True, text=True)
    if Path(_node.program()).parent == Path(sys.executable).parent:
        assert "class Order:" in (tmp_path / "o.pyi").read_text(), told.stderr
    else:
        assert told.returncode == 2 and "python -m wasmrun stubs" in told.stderr


def test_many_objects_are_dropped_at_once(graph):
    refs = [graph.add.remote(n, 1) for n in range(100_000)]
    assert refs[-1].get() == 100_000
    del refs
    gc.collect()
    assert graph.add.remote(1, 2).get(timeout=60) == 3
    # Those that are not there yet.
    for _ in range(2):
        [graph.add.remote(n, 1) for n in range(20_000)]
    assert graph.add.remote(1, 2).get(timeout=60) == 3


def test_a_node_of_another_version_is_told_apart(tmp_path):
    # What another version says first: it never changes.
    greeting = b"wasmrun\0" + bytes([100, 1]) + b" whatever comes then"
    path = tmp_path / "node.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()

        def answer():
            with listener.accept()[0] as peer:
                peer.recv(1000)
                peer.sendall(len(greeting).to_bytes(4, "little") + greeting)

        threading.Thread(target=answer, daemon=True).start()
        ended = python(f"import wasmrun\ntry:\n    wasmrun.init('unix:{path}')\nexcept ConnectionError as error:\n    print(error)")
    assert "speaks version 100.1 of the protocol and we " in ended.stdout and "bring both to the same wasmrun" in ended.stdout, ended


def test_placement_groups(session, graph):
    bundles = [{"CPU": 0.5}, {"CPU": 0.5, "memory": "64MiB"}]
    with wasmrun.placement_group(bundles, "strict_pack", name="both") as group:
        assert group.ready(timeout=30) is group
        for where in (group, group.bundle(1), str(group.bundle(0))):
            assert graph.add.options(strategy=where, cpus=0.5, memory="8MiB").remote(1, 2).get() == 3
        assert "bundle 1: CPU 0.5, memory 64MiB" in wasmrun.explain(group) and wasmrun.explain("both")
        with pytest.raises(IndexError, match="2 bundles"):
            group.bundle(2)
    with pytest.raises(wasmrun.RefusedError, match="no placement group"):
        group.remove()
    with pytest.raises(wasmrun.RefusedError, match="it has ended"):
        graph.add.options(strategy=group).remote(1, 2).get()
    with pytest.raises(ValueError, match="expected one of `pack`"):
        wasmrun.placement_group([{"CPU": 1}], "anyhow")
    with pytest.raises(ValueError, match="no placement group"):
        wasmrun.placement_group([])
    # This node has two CPUs.
    with pytest.raises(wasmrun.WasmrunError, match="CPU"):
        wasmrun.placement_group([{"CPU": 3}]).ready(timeout=0.1)


def test_stubs_say_what_a_module_has(session, guests, tmp_path):
    for name in ("orders", "fixture", "graph"):
        subprocess.run(
            [sys.executable, "-m", "wasmrun", "stubs", guests / f"{name}.wasm", "--out", tmp_path / f"{name}.pyi"],
            check=True,
            env={**os.environ, "WASMRUN_ADDRESS": session.address},
        )
    user = """
        from __future__ import annotations
        from typing import TYPE_CHECKING, assert_type
        import wasmrun

        if TYPE_CHECKING:
            import fixture, graph, orders

        app: orders.Module = wasmrun.load("orders.wasm")
        order = app.Order("a", app.Currency.EUR, app.Tier.MEMBER, [], app.Care.FRAGILE, app.Delivery.Parcel("x"))
        rules = [app.Rule.Sale(app.Sale("s", 10, None, 0))]
        assert_type(app.price.options(cpus=2).remote(order, rules).get().total, int)
        assert_type(app.pricing.price_all.remote([order], []), wasmrun.ObjectRef[list[wasmrun.Ok[orders.Invoice] | wasmrun.Err[orders.OrderError]]])
        app.price.remote(app.price.remote(order, []), [])
        values: fixture.Module = wasmrun.load("fixture.wasm")
        assert_type(values.echo_variant.remote(values.Shape.Circle(1.0)).get(), fixture.Shape)
        assert_type(values.echo_bytes.remote(memoryview(b"x")).get(), bytes)
        counter = wasmrun.load("graph.wasm").Counter.remote(1)
        handles: graph.Module = wasmrun.load("graph.wasm")
        assert_type(handles.Counter.remote(1), wasmrun.ActorHandle)
        app.price.remote(1, [])  # type: ignore[arg-type]
        app.prize  # type: ignore[attr-defined]
    """
    (tmp_path / "user.py").write_text(textwrap.dedent(user))
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--warn-unused-ignores", "user.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONSAFEPATH": "1"},
        capture_output=True,
        text=True,
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
    printing = [sys.executable, "-m", "wasmrun", "stubs", guests / "orders.wasm", "--out", "-"]
    printed = subprocess.run(printing, cwd=tmp_path, capture_output=True, text=True)
    assert printed.stdout == (tmp_path / "orders.pyi").read_text() and not (tmp_path / "-").exists()
    wrong = tmp_path / "wrong.wasm"
    wrong.write_text("no module")
    bad = subprocess.run([sys.executable, "-m", "wasmrun", "stubs", wrong], capture_output=True, text=True)
    assert bad.returncode == 1 and "error:" in bad.stderr and "Traceback" not in bad.stderr
    for given in (["none.wasm"], [guests / "orders.wasm", "--out", "none/it.pyi"]):
        bad = subprocess.run([sys.executable, "-m", "wasmrun", "stubs", *given], cwd=tmp_path, capture_output=True, text=True)
        assert bad.returncode == 1 and "none" in bad.stderr and f"begins at {tmp_path}" in bad.stderr
