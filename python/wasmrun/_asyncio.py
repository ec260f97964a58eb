"""Waiting in an event loop of asyncio.

Owns one list of what is done for each loop, which the loop watches. Cancelling what waits does not cancel the
task: that is `wasmrun.cancel`.
"""

from __future__ import annotations

import asyncio
import itertools
import weakref
from typing import Any, TypeVar

from . import _wasmrun
from ._wasmrun import ObjectRef

T = TypeVar("T")


class _Bridge:
    """It does not know its loop, so that it ends with that: only what waits does, and that is forgotten when it is done."""

    def __init__(self, session: _wasmrun.Session) -> None:
        self.session = session.number
        self._completions = session.completions()
        self._ids = itertools.count()
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._is_watched = False

    def ask(self, ref: ObjectRef[Any], early: _wasmrun.Early) -> asyncio.Future[Any]:
        loop, number = asyncio.get_running_loop(), next(self._ids)
        self._completions.get(number, ref, early)
        future = self._waiting[number] = loop.create_future()
        future.add_done_callback(lambda _: self._forget(number))
        if not self._is_watched:
            # Only while somebody waits: the loop may be closed at any other time.
            loop.add_reader(self._completions.fileno(), self._done)
            self._is_watched = True
        return future

    def _forget(self, number: int) -> None:
        """This waits no longer: it is there, or was cancelled."""
        self._waiting.pop(number, None)
        if not self._waiting and self._is_watched:
            asyncio.get_running_loop().remove_reader(self._completions.fileno())
            self._is_watched = False

    def _done(self) -> None:
        for number, value, error in self._completions.take():
            future = self._waiting.get(number)
            if future is None or future.done():
                continue
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(value)


_bridges: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Bridge] = weakref.WeakKeyDictionary()


def _bridge(session: _wasmrun.Session) -> _Bridge:
    loop = asyncio.get_running_loop()
    found = _bridges.get(loop)
    if found is None or found.session != session.number:
        for known in _bridges.keyrefs():
            other = known()
            if other is not None and other.is_closed():
                # What waited in it would keep it.
                _bridges.pop(other, None)
        found = _bridges[loop] = _Bridge(session)
    return found


async def one(ref: ObjectRef[T], early: _wasmrun.Early) -> T:
    """The value of this, once it is there."""
    values: list[T] = await _bridge(ref._session).ask(ref, early)
    return values[0]
