"""`wasmrun mcp`: the tool that runs Python, as a client of the protocol sees it. What else the server does, `tests/it/mcp.rs` tries."""

import json
import os
import subprocess
import urllib.request

import pytest

from wasmrun._node import program


class Server:
    """A client at the other end of pipes, which asks one thing after the other."""

    def __init__(self, *arguments):
        environment = {name: value for name, value in os.environ.items() if name != "WASMRUN_ADDRESS"}
        command = [program(), "mcp", *map(str, arguments)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        # A runtime folder of its own: no node runs there.
        environment["XDG_RUNTIME_DIR"] = "/nowhere"
        self.process = subprocess.Popen(command, env=environment, text=True, **pipes)
        self.asked = 0
        client = {"name": "tests", "version": "1"}
        self.ask("initialize", protocolVersion="2025-06-18", capabilities={}, clientInfo=client)
        self.send(method="notifications/initialized")

    def send(self, **message):
        print(json.dumps({"jsonrpc": "2.0", **message}), file=self.process.stdin, flush=True)

    def ask(self, method, **params):
        self.asked += 1
        self.send(id=self.asked, method=method, params=params)
        answer = json.loads(self.process.stdout.readline())
        assert answer["id"] == self.asked
        return answer["result"]

    def run(self, code, **arguments):
        result = self.ask("tools/call", name="run_python", arguments={"code": code, **arguments})
        assert not result["isError"], result
        assert json.loads(result["content"][0]["text"]) == result["structuredContent"]
        return result["structuredContent"]

    def fails(self, code, **arguments):
        result = self.ask("tools/call", name="run_python", arguments={"code": code, **arguments})
        assert result["isError"], result
        return "\n".join(block["text"] for block in result["content"])

    def end(self):
        self.process.stdin.close()
        assert self.process.wait(60) == 0
        self.process.stdout.close()


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("granted")
    (folder / "note").write_text("granted")
    server = Server("--dir", f"{folder}::/d:ro", "--time-limit", "20s")
    yield server
    server.end()


def test_the_tool_says_what_it_takes_and_gives(server):
    [tool] = server.ask("tools/list")["tools"]
    assert tool["name"] == "run_python"
    assert "/d (read only)" in tool["description"] and "20s" in tool["description"]
    assert tool["inputSchema"]["required"] == ["code"]
    assert tool["inputSchema"]["properties"]["time_limit_s"]["maximum"] == 20
    assert tool["annotations"] == {"readOnlyHint": True, "destructiveHint": False, "openWorldHint": False}


def test_json_goes_in_and_comes_out(server):
    values = {"a": [1, 2.5, None, True, "é\n\0", {"b": []}], "large": 2**64 - 1, "least": -(2**63)}
    ran = server.run("print(sorted(x))\nresult = x", inputs={"x": values})
    assert ran == {"result": values, "stdout": "['a', 'large', 'least']\n", "stderr": ""}
    assert server.run("x = 1")["result"] is None
    assert server.run("import sys\nprint('no', file=sys.stderr)\nresult = (1, 2)") == {
        "result": [1, 2],
        "stdout": "",
        "stderr": "no\n",
    }
    coroutine = "import asyncio\nasync def f():\n    await asyncio.sleep(0)\n    return 3\nresult = f()"
    assert server.run(coroutine)["result"] == 3
    assert server.run("raise SystemExit")["result"] is None
    # Nothing is left of the calls before.
    assert server.run("result = sorted(set(globals()) - {'__name__', '__builtins__'})")["result"] == []


def test_what_json_has_not_is_text_and_a_note_says_so(server):
    ran = server.run("result = {'s': {1}, 'n': float('nan'), 'i': 1 << 70, 2: b'', 'u': '\\ud800'}")
    assert ran["result"] == {"s": "{1}", "n": "nan", "i": str(1 << 70), "2": "b''", "u": "\\ud800"}
    assert ran["note"].endswith("bytes, float, int, set, str with surrogates")
    endless = server.run("result = []\nresult.append(result)")
    assert "list" in endless["note"]
    assert server.run("result = {(1, 2): 3, '(1, 2)': 4}")["result"] == "{(1, 2): 3, '(1, 2)': 4}"


def test_an_exception_is_the_traceback_of_the_code_alone(server):
    told = server.fails("def f():\n    print('before')\n    return 1 / 0\n\nresult = f()")
    expected = [
        "Traceback (most recent call last):",
        '  File "<code>", line 5, in <module>',
        "    result = f()",
        '  File "<code>", line 3, in f',
        "    return 1 / 0",
        "           ~~^~~",
        "ZeroDivisionError: division by zero",
        "",
        "Printed to standard output:",
        "before",
    ]
    assert told.splitlines() == expected
    assert "SyntaxError" in server.fails("x = (") and "line 1" in server.fails("x = (")
    assert "SystemExit: 3" in server.fails("raise SystemExit(3)")
    chained = server.fails("try:\n    {}['a']\nexcept KeyError as e:\n    raise ValueError('b') from e")
    assert chained.count('File "<code>"') == 2 and "<snippet>" not in chained
    of_repr = "class A:\n    def __repr__(self):\n        raise OSError('no text')\nresult = A()"
    assert "OSError: no text" in server.fails(of_repr)
    coroutine = "async def f():\n    raise LookupError('awaited')\nresult = f()"
    assert 'File "<code>", line 2, in f' in server.fails(coroutine)


def test_limits_and_grants_hold(server):
    assert "longer time_limit_s, up to 20" in server.fails("while True: pass", time_limit_s=0.2)
    assert "MemoryError" in server.fails("x = bytearray(1 << 30)")
    assert server.run("result = open('/d/note').read()")["result"] == "granted"
    assert "Error" in server.fails("open('/d/new', 'w')")
    assert "FileNotFoundError" in server.fails("open('/etc/passwd')")
    printed = server.run("print('x' * 100_000)")["stdout"]
    assert printed.startswith("xxx") and printed.endswith("KiB more were printed]") and len(printed) < 70_000


@pytest.mark.parametrize(
    "arguments, said",
    [
        ({}, 'argument "code" is missing'),
        ({"code": 1}, "argument `code`: expected a string"),
        ({"code": "", "inputs": [1]}, "argument `inputs`: expected an object"),
        ({"code": "", "time_limit_s": 21}, "above 0 and up to 20, found 21"),
        ({"code": "", "time_limit_s": 0}, "found 0"),
        ({"code": "", "time_limit_s": "1"}, 'found "1"'),
        ({"code": "", "more": 1}, 'no argument "more"; the arguments are code, inputs, time_limit_s'),
    ],
)
def test_wrong_arguments_are_told(server, arguments, said):
    result = server.ask("tools/call", name="run_python", arguments=arguments)
    assert result["isError"] and said in result["content"][0]["text"]


def test_modules_have_their_tools_beside_it(guests):
    server = Server(guests / "orders.wasm")
    assert [tool["name"] for tool in server.ask("tools/list")["tools"]] == ["run_python", "price", "price-all"]
    server.end()


def test_the_tool_is_there_over_http():
    environment = {name: value for name, value in os.environ.items() if name != "WASMRUN_ADDRESS"} | {"XDG_RUNTIME_DIR": "/nowhere"}
    command = [program(), "mcp", "--listen", "127.0.0.1:0"]
    with subprocess.Popen(command, env=environment, text=True, stdout=subprocess.PIPE) as server:
        try:
            line = next(line for line in server.stdout if "http://" in line)
            url = "http://" + line.split("http://")[1].split()[0]
            session = {}

            def ask(method, params, **message):
                body = json.dumps({"jsonrpc": "2.0", "method": method, "params": params, **message}).encode()
                headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream", **session}
                with urllib.request.urlopen(urllib.request.Request(url, body, headers)) as answer:
                    return answer.headers, answer.read().decode()

            begin = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "tests", "version": "1"}}
            headers, _ = ask("initialize", begin, id=1)
            session["Mcp-Session-Id"] = headers["Mcp-Session-Id"]
            ask("notifications/initialized", {})
            call = {"name": "run_python", "arguments": {"code": "result = sum(x)", "inputs": {"x": [1, 2]}}}
            _, said = ask("tools/call", call, id=2)
            assert '"result":3' in said and '"isError":true' not in said, said
        finally:
            server.terminate()
