"""Tests of against_ray.py that need neither Ray nor numpy: `cargo xtask test comparisons` runs them.

The two are stood for by modules in which everything is there and does nothing. What is tested is ours: how the output
of `wasmrun bench` is read, which commands are run, and the table.
"""

import contextlib
import importlib.util
import io
import json
import os
import sys
import tempfile
import types
import unittest
from unittest import mock

HERE = os.path.dirname(os.path.abspath(__file__))


def script():
    """The script, loaded with stand-ins for what it imports."""
    ray = types.ModuleType("ray")
    ray.__version__ = "2.60.0"
    ray.remote = lambda *given, **_: given[0] if given else (lambda it: it)
    for name in ("init", "shutdown", "get", "put", "wait", "kill"):
        setattr(ray, name, mock.Mock())
    numpy = types.ModuleType("numpy")
    driver = types.ModuleType("wasmrun")
    driver.remote = ray.remote
    with mock.patch.dict(sys.modules, ray=ray, numpy=numpy, wasmrun=driver):
        spec = importlib.util.spec_from_file_location("against_ray", f"{HERE}/against_ray.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return module


class AgainstRay(unittest.TestCase):
    def setUp(self):
        self.script = script()

    def test_figures_are_short(self):
        shown = {0.123456: "0.123", 9.876: "9.88", 99.94: "99.9", 100: "100", 123456.7: "123,457"}
        for value, text in shown.items():
            self.assertEqual(self.script.figure(value), text)

    def test_of_costs_less_is_better(self):
        rows = [("tasks_sync", "1/s", 3000, 300), ("get_1k", "us", 0.1, 75), ("memory_actor", "bytes", 50, 200)]
        lines = list(self.script.table(rows, "2.60.0"))
        self.assertEqual(lines[0].split(), ["case", "unit", "wasmrun", "Ray", "2.60.0", "times"])
        self.assertEqual([line.split()[-1] for line in lines[1:]], ["10", "750", "4"])
        self.assertEqual(len({len(line) for line in lines}), 1, "columns are aligned")

    def test_what_wasmrun_prints_is_read(self):
        with tempfile.TemporaryDirectory() as folder:
            binary = os.path.join(folder, "wasmrun")
            said = {"version": 1, "results": [{"name": "get_1k", "value": 0.25, "unit": "us"}]}
            with open(binary, "w") as file:
                file.write(f"#!/bin/sh\necho \"$@\" > '{folder}/given'\necho '{json.dumps(said)}'\n")
            os.chmod(binary, 0o755)
            self.assertEqual(self.script.wasmrun(binary, ["a.wasm", "b.wasm"], "get_1k"), (0.25, "us"))
            with open(f"{folder}/given") as file:
                given = file.read().split()
        wanted = "bench get_1k --runs 1 --module a.wasm --flow-module b.wasm -o json"
        self.assertEqual(given, wanted.split())

    def test_all_rounds_count_in_turn(self):
        ours = iter([(1.0, "us"), (9.0, "us"), (2.0, "us")])
        theirs = iter([30.0, 10.0, 20.0])
        out = io.StringIO()
        with mock.patch.object(self.script, "wasmrun", lambda *_: next(ours)), mock.patch.dict(
            self.script.CASES, get_1k=lambda: next(theirs)
        ), mock.patch.object(self.script, "start"), mock.patch.object(
            sys, "argv", ["against_ray.py", "wasmrun", "a.wasm", "b.wasm", "get_1k"]
        ), contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
            self.script.main()
        row = out.getvalue().splitlines()[1]
        self.assertEqual(row.split(), ["get_1k", "us", "2", "20", "10"])

    def test_cases_that_are_not_there_are_named(self):
        with mock.patch.object(sys, "argv", ["x", "wasmrun", "a", "b", "get_1k", "bogus"]):
            with self.assertRaises(SystemExit) as ended:
                self.script.main()
        self.assertIn("no such case on both: bogus; there are tasks_sync,", str(ended.exception))


if __name__ == "__main__":
    unittest.main()
