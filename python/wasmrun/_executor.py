"""An executor as of `concurrent.futures`."""

from __future__ import annotations

import concurrent.futures
import functools
import inspect
import itertools
import select
import threading
from typing import Any

from . import _wasmrun
from ._errors import WasmrunError
from ._module import Function
from ._remote import RemoteFunction, remote
from ._wasmrun import ObjectRef


# How many functions an executor remembers: those that were used last.
_MOST_REMEMBERED = 64


class _Future(concurrent.futures.Future[Any]):
    def __init__(self, ref: ObjectRef[Any]) -> None:
        super().__init__()
        self._ref = ref

    def cancel(self) -> bool:
        """Cancels the task, wherever it is."""
        if not super().cancel():
            return False
        try:
            self._ref._session.cancel([self._ref])
        except WasmrunError:
            pass
        return True


class Executor(concurrent.futures.Executor):
    """Runs functions in sandboxes, as `concurrent.futures` has it: those of Python, decorated or not, and of modules.

    with wasmrun.Executor() as executor:
        print(list(executor.map(square, range(10))))
    """

    def __init__(self) -> None:
        from ._api import _session

        # What a function refers to is taken once, as long as it is remembered.
        self._of_python = functools.lru_cache(_MOST_REMEMBERED)(remote)
        self._session = _session()._raw
        self._completions: _wasmrun.Completions = self._session.completions()
        self._ids = itertools.count()
        self._waiting: dict[int, _Future] = {}
        self._lock = threading.Lock()
        self._is_over = False
        self._thread = threading.Thread(target=self._watch, name="wasmrun-executor", daemon=True)
        self._thread.start()

    def _remote(self, fn: Any) -> Any:
        if isinstance(fn, (Function, RemoteFunction)):
            return fn
        if not inspect.isfunction(fn):
            raise TypeError(
                f"this executor runs functions of Python and of modules that were loaded, got {type(fn).__qualname__}"
            )
        return self._of_python(fn)

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> concurrent.futures.Future[Any]:
        """Calls a function of a module, or one of Python in a sandbox."""
        fn = self._remote(fn)
        with self._lock:
            if self._is_over:
                raise RuntimeError("cannot submit after shutdown")
            ref = fn.remote(*args, **kwargs)
            number, future = next(self._ids), _Future(ref)
            self._completions.get(number, ref)
            self._waiting[number] = future
        return future

    def _watch(self) -> None:
        descriptor = self._completions.fileno()
        while True:
            select.select([descriptor], [], [], 0.2)
            done = self._completions.take()
            with self._lock:
                if self._is_over and not self._waiting:
                    return
                futures = [(self._waiting.pop(number), value, error) for number, value, error in done]
            for future, value, error in futures:
                if not future.set_running_or_notify_cancel():
                    continue
                if error is not None:
                    future.set_exception(error)
                else:
                    future.set_result(value[0])

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """No more is taken. Waits for what is under way, unless it is not to."""
        with self._lock:
            self._is_over = True
            waiting = list(self._waiting.values())
        if cancel_futures:
            for future in waiting:
                future.cancel()
        if wait:
            self._thread.join()
