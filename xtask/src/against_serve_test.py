"""Tests of against_serve.py that need neither wrk nor any of the servers: `cargo xtask test comparisons` runs them.

What wrk prints is of Debian's wrk 4.1.0. In place of a server is one of Python's.
"""

import contextlib
import importlib.util
import io
import json
import os
import socket
import sys
import tempfile
import unittest
from unittest import mock

HERE = os.path.dirname(os.path.abspath(__file__))

WRK = """\
Running 2s test @ http://127.0.0.1:8000/hello
  1 threads and 2 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency    79.83ms   19.03ms  94.11ms   69.39%
    Req/Sec    24.50      6.86    40.00     90.00%
  Latency Distribution
     50%   91.97ms
     75%   92.03ms
     90%   93.35ms
     99%    1.02s
  49 requests in 2.00s, 5.82KB read
"""
ERRORS = """\
  Socket errors: connect 0, read 7, write 0, timeout 2
  Non-2xx or 3xx responses: 6
"""
RATE = """\
Requests/sec:  24310.47
Transfer/sec:      2.91MB
"""

STAND_IN = """
import http.server, sys

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(sys.argv[2].encode())

http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


def script():
    spec = importlib.util.spec_from_file_location("against_serve", f"{HERE}/against_serve.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class AgainstServe(unittest.TestCase):
    def setUp(self):
        self.script = script()
        self.script.PORT = free_port()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def stand_in(self, answer):
        return [sys.executable, "-c", STAND_IN, str(self.script.PORT), answer]

    def test_what_wrk_prints_is_read(self):
        figures = self.script.figures(WRK + RATE)
        self.assertEqual(figures, {"value": 24310.47, "p50_us": 91970, "p99_us": 1020000, "failed": 0})
        self.assertEqual(self.script.figures(WRK + ERRORS + RATE)["failed"], 15)
        # Where a unit is one letter, wrk puts a blank behind it.
        other = WRK.replace("91.97ms", "250.00us").replace("1.02s", "2.50m ") + RATE
        figures = self.script.figures(other)
        self.assertEqual((figures["p50_us"], figures["p99_us"]), (250, 150e6))

    def test_what_cannot_be_read_is_shown(self):
        for said in ("unable to connect\n", WRK, RATE):
            with self.assertRaisesRegex(RuntimeError, "cannot read:\n" + said[:6]):
                self.script.figures(said)

    def test_a_server_runs_for_its_turn(self):
        with self.script.running("wasmrun", self.stand_in("hello\n"), self.folder):
            self.assertFalse(self.script.is_gone())
        self.assertTrue(self.script.is_gone())

    def test_a_server_that_answers_something_else_is_an_error(self):
        with self.assertRaisesRegex(RuntimeError, r"wasmrun answers b'bye\\n', not b'hello\\n'"):
            with contextlib.redirect_stderr(io.StringIO()):
                with self.script.running("wasmrun", self.stand_in("bye\n"), self.folder):
                    self.fail("it answers something else")
        self.assertTrue(self.script.is_gone())

    def test_a_server_that_ends_has_its_log_shown(self):
        shown = io.StringIO()
        ends = [sys.executable, "-c", "import sys; sys.exit('no such option')"]
        with self.assertRaisesRegex(RuntimeError, "wasmtime has ended"):
            with contextlib.redirect_stderr(shown):
                with self.script.running("wasmtime", ends, self.folder):
                    self.fail("it has ended")
        self.assertEqual(shown.getvalue(), "no such option\n")

    def outcome(self, *options):
        """What is printed of two servers that are faster from turn to turn."""
        turns = []

        def measure(name, command, _):
            turns.append((name, command[0]))
            rate = len(turns) * (1000.0 if name == "wasmrun" else 100.0)
            figures = {"value": rate, "p50_us": 50.0, "p99_us": 1234.0, "failed": len(turns) // 4}
            return {32: figures, 1: dict(figures, value=rate / 10)}

        out = io.StringIO()
        given = [*options, "a.wasm", "wasmrun=/bin/ours", "ray=/bin/theirs"]
        with mock.patch.object(self.script, "measure", measure), contextlib.redirect_stdout(
            out
        ), contextlib.redirect_stderr(io.StringIO()):
            self.script.main(given)
        self.assertEqual(turns, [("wasmrun", "/bin/ours"), ("ray", "/bin/theirs")] * 3)
        return out.getvalue()

    def test_all_rounds_count_in_turn(self):
        lines = self.outcome().splitlines()
        self.assertEqual(len({len(line) for line in lines}), 1, "columns are aligned")
        rows = [line.split() for line in lines[1:]]
        self.assertEqual(rows[0], ["32", "wasmrun", "3,000", "50", "1,234", "1", "1"])
        self.assertEqual(rows[1], ["32", "ray", "400", "50", "1,234", "2", "7.5"])
        self.assertEqual([row[:3] for row in rows[2:]], [["1", "wasmrun", "300"], ["1", "ray", "40"]])

    def test_json_has_every_round(self):
        said = json.loads(self.outcome("-o", "json"))
        self.assertEqual(said["version"], 1)
        self.assertEqual(said["machine"]["cpus"], os.cpu_count())
        self.assertEqual(len(said["results"]), 4)
        wanted = {
            "name": "ray",
            "connections": 32,
            "value": 400.0,
            "unit": "1/s",
            "runs": [200.0, 400.0, 600.0],
            "p50_us": 50.0,
            "p99_us": 1234.0,
            "failed": 2,
        }
        self.assertEqual(said["results"][1], wanted)


if __name__ == "__main__":
    unittest.main()
