import subprocess
import unittest


class Sum(unittest.TestCase):
    def test_parts_add_up_to_the_whole(self) -> None:
        submit = ["wasmrun", "submit", "{{name}}.wasm", "--invoke", "sum(1000, 4)"]
        self.assertEqual(subprocess.check_output(submit, text=True), "ok(500500)\n")
