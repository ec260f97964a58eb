"""How a session begins, and what people see of one."""

import asyncio
import inspect
import io
import os
import pydoc
import subprocess
import sys

import pytest

import wasmrun
from conftest import python
from programs import Keeper
from wasmrun import _asyncio, _module, _wasmrun
from wasmrun._node import program


def test_help_shows_types_and_docs(orders, graph):
    price = "price(order: Order, rules: Sequence[Rule]) -> Invoice"
    for of in (orders.price, orders):
        assert price in pydoc.plain(pydoc.render_doc(of))
    counter = pydoc.plain(pydoc.render_doc(graph.Counter))
    assert "Counter(start: int) -> ActorHandle" in counter and "raw" not in counter
    documented = _module._help("twice", inspect.signature(lambda n: 2 * n), "Multiplies.")
    assert documented == "twice(n)\n\nMultiplies."


def test_the_node_of_this_machine_is_found(tmp_path):
    env = {name: it for name, it in os.environ.items() if name != "WASMRUN_ADDRESS"} | {"XDG_RUNTIME_DIR": str(tmp_path)}
    command = [program(), "node", "start", "--tied", "--node-cpus", "1", "--node-name", "there"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=env) as node:
        assert node.stdout.readline()
        said = subprocess.run(
            [sys.executable, "-c", "import wasmrun\nsession = wasmrun.init()\nprint(session.node, session.address, wasmrun.is_initialized())"],
            env=env,
            capture_output=True,
            text=True,
        )
        node.stdin.close()
    assert said.stdout == "there None True\n", said


def test_a_child_begins_a_session_of_its_own(tmp_path):
    ended = python(
        f"""
        import multiprocessing, sys, wasmrun
        sys.path.insert(0, {os.path.dirname(__file__)!r})
        from programs import add

        def work(n):
            return add.remote(n, 1).get()

        print(add.remote(1, 1).get(), flush=True)
        with multiprocessing.get_context("fork").Pool(2) as pool:
            print(pool.map(work, range(4)))
        print(add.remote(1, 1).get())
        """,
        XDG_RUNTIME_DIR=str(tmp_path),
    )
    assert ended.stdout == "2\n[1, 2, 3, 4]\n2\n", ended


def test_what_is_awaited_is_asked_for_before_its_loop_is_looked_for(graph, monkeypatch):
    given, one = [], _asyncio.one
    monkeypatch.setattr(_asyncio, "one", lambda ref, early: given.append(early) or one(ref, early))

    async def call():
        return await graph.add.remote(1, 1)

    assert asyncio.run(call()) == 2
    assert [type(early) for early in given] == [_wasmrun.Early]
    # Who asked for it early may be gone.
    ref = graph.add.remote(1, 2)
    ref.__await__().close()
    assert ref.get() == 3


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize("where", ["terminal", "notebook", "file"])
def test_a_bar_shows_how_far_it_is(session, graph, monkeypatch, where):
    out = Terminal() if where == "terminal" else io.StringIO()
    monkeypatch.setattr(sys, "stderr", out)
    if where == "notebook":
        monkeypatch.setitem(sys.modules, "ipykernel", sys)
    assert wasmrun.progress([graph.add.remote(n, 1) for n in range(4)], text="sums") == [1, 2, 3, 4]
    bars = out.getvalue().split("\r")[1:]
    assert bars[-1].startswith(f"sums {'█' * 30} 4/4, ") and bars[-1].endswith(" s\n")
    # A file has the last one only.
    assert len(bars) == (1 if where == "file" else 4)
    assert wasmrun.progress([]) == [] and out.getvalue().count("\n") == 1


def test_an_actor_that_idles_is_small(session):
    def weighed():
        with open(f"/proc/{session._node._process.pid}/smaps_rollup") as parts:
            (size,) = (line.split()[1] for line in parts if line.startswith("Pss:"))
        return int(size) << 10

    def made(count):
        actors = [Keeper.options(cpus=0).remote() for _ in range(count)]
        wasmrun.get([it.keep.remote(1) for it in actors])
        return actors

    # The first ones have what all share.
    first = made(5)
    before = weighed()
    more = made(20)
    assert (weighed() - before) / 20 < 3 << 20
    assert wasmrun.get([it.kept.remote() for it in first + more]) == [1] * 25
