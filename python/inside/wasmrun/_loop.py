"""An event loop of asyncio for sandboxes, where there is nothing to wait for but objects and time.

Owns which objects are waited for.
"""

from __future__ import annotations

import asyncio
import selectors
import time
from typing import Any

from . import _host

_waiting: dict[asyncio.Future[None], _host.ObjectRef] = {}


def arrival(ref: _host.ObjectRef) -> asyncio.Future[None]:
    """Done when the object is there or has failed."""
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    _waiting[future] = ref
    return future


class _Selector(selectors.BaseSelector):
    def register(self, fileobj: Any, events: int, data: Any = None) -> Any:
        raise OSError("a sandbox has no sockets to wait for")

    def unregister(self, fileobj: Any) -> Any:
        raise KeyError(fileobj)

    def get_map(self) -> Any:
        return {}

    def select(self, timeout: float | None = None) -> list[Any]:
        for future in [future for future in _waiting if future.done()]:
            del _waiting[future]
        if not _waiting:
            if timeout:
                time.sleep(timeout)
            elif timeout is None:
                raise RuntimeError("everything waits for something that nobody does")
            return []
        futures = list(_waiting)
        for at in _host.arrived(list(_waiting.values()), 1, timeout):
            _waiting.pop(futures[at])
            futures[at].set_result(None)
        return []


class Loop(asyncio.SelectorEventLoop):
    """See the module."""

    def __init__(self) -> None:
        super().__init__(_Selector())

    def _make_self_pipe(self) -> None:
        # No other thread is there that would wake it.
        self._ssock = self._csock = None

    def _close_self_pipe(self) -> None:
        pass

    def _write_to_self(self) -> None:
        pass


def run(coroutine: Any) -> Any:
    """What a coroutine returns."""
    with asyncio.Runner(loop_factory=Loop) as runner:
        return runner.run(coroutine)


# Also where the program asks for one: there are no sockets of which asyncio's own could be made.
asyncio.events.new_event_loop = asyncio.new_event_loop = Loop
