"""A node of one's own.

Owns how the program is found and started, and that it ends with this process however that ends: it watches its standard
input, which this process keeps open.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

from ._errors import WasmrunError

# How long a node may take to listen, and to end.
START_S = 30.0
END_S = 10.0


def program() -> str:
    """The `wasmrun` that belongs to this package, or the one on the path."""
    named = os.environ.get("WASMRUN_BIN")
    if named:
        return named
    name = "wasmrun"
    for scheme in (None, f"{os.name}_user"):
        folder = sysconfig.get_path("scripts", scheme) if scheme else sysconfig.get_path("scripts")
        beside = Path(folder) / name
        if beside.is_file():
            return str(beside)
    beside = Path(sys.prefix) / "bin" / name
    if beside.is_file():
        return str(beside)
    found = shutil.which(name)
    if found is None:
        raise WasmrunError(
            "the program `wasmrun` is neither beside this package nor on the path: install the package anew, or name the "
            "program in WASMRUN_BIN"
        )
    return found


class Node:
    """A node that was started for this process."""

    def __init__(self, options: list[str]) -> None:
        self._folder = tempfile.mkdtemp(prefix="wasmrun-")
        self.address = f"unix:{self._folder}/node.sock"
        command = [program(), "node", "start", "--tied", "--address", self.address, *options]
        log = open(os.path.join(self._folder, "log"), "wb")
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                # Ctrl-C is for us: we say what is to end.
                start_new_session=True,
            )
        except OSError as error:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise WasmrunError(f"cannot start {command[0]}: {error}") from error
        finally:
            log.close()
        assert self._process.stdout is not None
        # Its first line comes when it listens.
        if not self._process.stdout.readline():
            self._process.wait()
            said = Path(self._folder, "log").read_text(errors="replace").strip()
            self.end()
            raise WasmrunError(f"the node did not start: {said}")

    def end(self) -> None:
        """Ends it. What runs there ends too."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def forget(self) -> None:
        """It is another process's: a child must not keep it alive, nor end it."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        # Nobody is to wait for what is not our child.
        self._process.returncode = 0
