"""What can be asked for tasks and actors, and that they have it."""

import os

import pytest

import wasmrun
from conftest import python

pytestmark = pytest.mark.usefixtures("session")

FOLDER = os.path.dirname(__file__)
# A node with something of everything.
NODE = '"--node-cpus", "1", "--node-gpus", "1", "--node-resource", "tokens=2", "--node-label", "zone=a", "--node-name", "n"'


def test_a_task_has_what_it_asks_for(guests, tmp_path):
    ended = python(
        f"""
        import wasmrun
        wasmrun.init(node_options=[{NODE}])
        app = wasmrun.load({str(guests / "fixture.wasm")!r})
        info = app.context_info.options(cpus=0.5, gpus=0.5, memory="32MiB", resources={{"tokens": 1}}).remote().get()
        print({{it.name: it.amount / 10_000 for it in info.resources}})
        for retries in (2, 1):
            try:
                print(app.succeed_at.options(retries=retries).remote(2, app.Failure.TRAP, "", []).get()[0])
            except wasmrun.TrapError:
                print("trap")
        for asked in ({{"labels": "zone=a"}}, {{"labels": "zone=b"}}, {{"strategy": "node:n"}}, {{"strategy": "node:m"}}, {{"resources": {{"tokens": 3}}}}):
            try:
                print(app.noop.options(**asked).remote().get())
            except wasmrun.RefusedError as error:
                print(error)
        """,
        XDG_RUNTIME_DIR=str(tmp_path),
    )
    said = ended.stdout.splitlines()
    assert said[:4] == ["{'CPU': 0.5, 'GPU': 0.5, 'memory': 33554432.0, 'tokens': 1.0}", "2", "trap", "None"], ended
    assert "zone=b does not match" in said[4] and said[5] == "None" and "node m is not in the cluster" in said[6], ended
    assert "tokens: needs 3" in said[7], ended


def test_who_has_priority_begins_first(guests, tmp_path):
    ended = python(
        f"""
        import sys, wasmrun
        sys.path.insert(0, {FOLDER!r})
        from programs import Counter, count
        wasmrun.init(node_options=["--node-cpus", "1"])
        # It has the CPU while the others come.
        first = wasmrun.load({str(guests / "fixture.wasm")!r}).sleep_forever.remote()
        counter = Counter.options(cpus=0).remote(0)
        low, high = (count.options(priority=it, name=f"count{{it}}").remote(counter) for it in (-1, 1))
        print(high.name, "CPU: needs 1" in wasmrun.explain(low), "CPU: needs 1" in wasmrun.explain(high))
        wasmrun.cancel(first)
        print(wasmrun.get([low, high]))
        """,
        XDG_RUNTIME_DIR=str(tmp_path),
    )
    assert ended.stdout == "count1 True True\n[2, 1]\n", ended


def test_an_actor_without_a_driver_is_found_by_its_name(session):
    detached = """
        import sys, wasmrun
        sys.path.insert(0, {folder!r})
        from programs import Counter
        if {begins}:
            print(Counter.options(name="left", detached=True, cpus=0).remote(5).add.remote(1).get())
        else:
            left = wasmrun.get_actor("left")
            print(left.add.remote(1).get())
            wasmrun.kill(left)
    """
    for begins, says in ((True, "6\n"), (False, "7\n")):
        ended = python(detached.format(folder=FOLDER, begins=begins), WASMRUN_ADDRESS=session.address)
        assert ended.stdout == says, ended
    with pytest.raises(wasmrun.RefusedError):
        wasmrun.get_actor("left")


def test_directories_that_are_granted(fixture, tmp_path, monkeypatch):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "note").write_text("granted")
    monkeypatch.chdir(tmp_path)
    read = "result = open('/d/note').read()"
    assert wasmrun.run(read, dirs=["data::/d:ro"]).result == "granted"
    for code, dirs in ((read, []), ("open('/d/other', 'w')", ["data::/d:ro"])):
        with pytest.raises(OSError):
            wasmrun.run(code, dirs=dirs)
    wasmrun.run("open('/d/other', 'w').write('made')", dirs=["data::/d"])
    assert (tmp_path / "data" / "other").read_text() == "made"
    with wasmrun.Sandbox(dirs=[f"{tmp_path}/data::/d"]) as sandbox, sandbox.fork() as fork:
        assert sandbox.run(read).result == fork.run(read).result == "granted"

    @wasmrun.remote(dirs=["data::/d:ro"])
    def reads():
        with open("/d/note") as file:
            return file.read()

    assert reads.remote().get() == "granted"
    assert fixture.read_file.options(dirs=["data::/d:ro"]).remote("/d/note").get() == "granted"
    for wrong, says in ((["data:/d"], "option dirs: .*one colon"), ("data::/d", "(?i)str")):
        with pytest.raises((TypeError, ValueError), match=says):
            fixture.read_file.options(dirs=wrong)
