"""Snippets that nobody has read, in sandboxes.

Owns `run` and `Sandbox`. A snippet reaches nothing that it was not granted: no files, no network, no environment; what it gives
back is data.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from . import _api, _inside
from ._capture import Program
from ._errors import WasmrunError
from ._inside import PythonActor
from ._wasmrun import ObjectRef


@dataclasses.dataclass(frozen=True, slots=True)
class Outcome:
    """What a snippet has left: the variable `result`, and what it has printed."""

    result: Any
    stdout: str
    stderr: str


def run(
    code: str,
    *,
    inputs: Mapping[str, Any] | None = None,
    time_limit: float | None = 30.0,
    memory: int | str = _inside.MEMORY,
    **options: Any,
) -> Outcome:
    """Runs a snippet in a fresh sandbox, and waits for it.

    The variables of `inputs` are set in it, and what it leaves in the variable `result` comes back. Raises `PythonError` if the
    snippet raises an exception, and `LimitError` if it takes more than `time_limit` seconds or `memory` bytes.
    """
    program = Program()
    inside = _inside.of(_api._session())
    asked = {"name": "snippet", **options, "memory": memory}
    if time_limit is not None:
        asked["time_limit"] = time_limit
    given = inside.data(dict(inputs or {}), program, "inputs")
    ref: ObjectRef[Any] = inside.snippet(asked).remote(_checked(code), given)
    return _outcome(_api.get(ref))


def _outcome(told: Any) -> Outcome:
    try:
        stdout, stderr = told["stdout"], told["stderr"]
        if type(stdout) is not str or type(stderr) is not str:
            raise TypeError
        return Outcome(told["result"], stdout, stderr)
    except (TypeError, LookupError):
        raise WasmrunError("what came out of the sandbox is no value: a snippet's outcome is missing") from None


def _checked(code: str) -> str:
    if not isinstance(code, str):
        raise TypeError(f"a snippet is text; got {type(code).__qualname__}")
    return code


class Snapshot:
    """The variables of a sandbox, with functions and classes. `Sandbox(snapshot)` begins from there, as often as
    wanted. It stays in the node, and what is in it is only ever read in sandboxes."""

    def __init__(self, ref: ObjectRef[Any]) -> None:
        self._ref = ref


class Sandbox:
    """An interpreter that keeps its variables between snippets. A context manager; it ends with the block, or with `close`.

    It begins from a `snapshot`, if one is given. `time_limit` is for each snippet, in seconds. One that takes longer ends the
    sandbox.
    """

    def __init__(
        self,
        snapshot: Snapshot | None = None,
        *,
        time_limit: float | None = 30.0,
        memory: int | str = _inside.MEMORY,
        **options: Any,
    ) -> None:
        if snapshot is not None and not isinstance(snapshot, Snapshot):
            raise TypeError(f"a sandbox begins from a Snapshot; got {type(snapshot).__qualname__}")
        self._inside = _inside.of(_api._session())
        self._program = Program()
        self._options = {name: it for name, it in options.items() if name != "name"}
        self._options |= {"time_limit": time_limit, "memory": memory}
        state = [] if snapshot is None else [snapshot._ref]
        self._actor = self._inside.session({**options, "memory": memory}, state)
        decoder = _inside.Decoder(self._inside, self._program)
        run, keep = self._actor.run.decoded_by(decoder), self._actor.snapshot.decoded_by(decoder)
        if time_limit is not None:
            run, keep = (it.options(time_limit=time_limit) for it in (run, keep))
        self._run, self._snapshot = run, keep

    def run(self, code: str, *, inputs: Mapping[str, Any] | None = None) -> Outcome:
        """As `wasmrun.run`, with the variables that earlier snippets have left."""
        given = self._inside.data(dict(inputs or {}), self._program, "inputs")
        return _outcome(_api.get(self._run.remote(_checked(code), given)))

    def snapshot(self) -> Snapshot:
        """Keeps its variables in the node. Raises `TypeError`, which names the variable, if one cannot be kept, such as an open file."""
        ref = self._snapshot.remote()
        _api.get(ref)
        return Snapshot(ref)

    def fork(self) -> Sandbox:
        """Another one that goes on from here, with the same limits."""
        return Sandbox(self.snapshot(), **self._options)

    def close(self) -> None:
        """Ends it."""
        _api.kill(self._actor)

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        try:
            self.close()
        except Exception:
            # What went wrong before counts.
            if kind is None:
                raise


__all__ = ["Outcome", "PythonActor", "Sandbox", "Snapshot", "run"]
