"""The examples that the documentation shows, as people run them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples" / "python"


@pytest.mark.parametrize(
    "arguments, says",
    [
        (["monte_carlo.py", "4", "5000"], "pi is about 3.1"),
        (["parameter_server.py", "2", "4"], "% of 360 unknown digits are read right"),
        (["snippets.py", "--try"], "MemoryError"),
    ],
    ids=lambda it: it[0] if isinstance(it, list) else None,
)
def test_example(arguments, says, guests):
    ran = subprocess.run(
        [sys.executable, EXAMPLES / arguments[0], *arguments[1:]],
        env={**os.environ, "WASMRUN_GUESTS": str(guests)},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert ran.returncode == 0 and says in ran.stdout, ran.stdout + ran.stderr
