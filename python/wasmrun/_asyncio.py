"""Waiting in an event loop of asyncio.

Owns one list of what is done for each loop and session, which the loop watches. Cancelling what waits does not cancel the
task: that is `wasmrun.cancel`.
"""

from __future__ import annotations

import asyncio
import itertools
import weakref
from collections.abc import Iterable
from typing import Any, TypeVar

from . import _wasmrun
from ._wasmrun import ObjectRef

T = TypeVar("T")


class _Bridge:
    def __init__(self, loop: asyncio.AbstractEventLoop, session: _wasmrun.Session) -> None:
        self._completions = session.completions()
        self._ids = itertools.count()
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._loop = loop
        self._is_watched = False

    def ask(self, refs: list[ObjectRef[Any]], timeout: float | None) -> asyncio.Future[Any]:
        if not self._is_watched:
            # Only while somebody waits: the loop may be closed at any other time.
            self._loop.add_reader(self._completions.fileno(), self._done)
            self._is_watched = True
        number = next(self._ids)
        future = self._waiting[number] = self._loop.create_future()
        self._completions.get(number, refs, timeout)
        return future

    def _done(self) -> None:
        for number, value, error in self._completions.take():
            future = self._waiting.pop(number)
            if future.done():
                continue
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(value)
        if not self._waiting:
            self._loop.remove_reader(self._completions.fileno())
            self._is_watched = False


_bridges: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, dict[int, _Bridge]] = (
    weakref.WeakKeyDictionary()
)


async def several(refs: Iterable[ObjectRef[T]], timeout: float | None = None) -> list[T]:
    """The values of these, once all are there."""
    refs = list(refs)
    if not refs:
        return []
    loop, session = asyncio.get_running_loop(), refs[0]._session
    of_loop = _bridges.setdefault(loop, {})
    bridge = of_loop.get(session.number)
    if bridge is None:
        bridge = of_loop[session.number] = _Bridge(loop, session)
    values: list[T] = await bridge.ask(refs, timeout)
    return values


async def one(ref: ObjectRef[T]) -> T:
    """The value of this, once it is there."""
    return (await several([ref]))[0]
