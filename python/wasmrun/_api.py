"""Sessions, and what can be asked of them.

Owns which session is used where nobody names one. Sessions are safe to use from several threads, and begin anew in a process
that was forked.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
import weakref
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, overload

from . import _values, _wasmrun
from ._errors import NodeNotRunningError, WasmrunError
from ._inside import PythonActor
from ._module import Module
from ._node import Node
from ._wasmrun import ActorHandle, ObjectRef

if TYPE_CHECKING:
    from ._group import PlacementGroup

T = TypeVar("T")

# Classes of values whose module is not known are made once for each value.
_UNNAMED = _values.factory(lambda scope, cls: None)


class Session:
    """A session with a node. It ends with `shutdown`, with the block in which it is the context, or with the process."""

    def __init__(self, raw: _wasmrun.Session, node: Node | None, shows_output: bool) -> None:
        self._raw = raw
        self.shows_output = shows_output
        self._node = node
        _sessions.add(self)

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()

    def __repr__(self) -> str:
        own = ", its own" if self._node is not None else ""
        return f"<wasmrun.Session with node {self.node}{own}>"

    @property
    def node(self) -> str:
        """What the node is called."""
        return self._raw.node

    @property
    def is_connected(self) -> bool:
        """Whether the node is there."""
        return self._raw.is_connected

    @property
    def address(self) -> str | None:
        """Where the node that was started for this process is; None if it is another."""
        return self._node.address if self._node is not None else None

    def load(self, module: str | os.PathLike[str] | bytes) -> Any:
        """Loads a module, from a file or as bytes: a `Module`, whose functions, classes and types are attributes.

        Type checkers know of them by what `wasmrun stubs` writes: `orders: orders.Module = wasmrun.load("orders.wasm")`.
        """
        if isinstance(module, (bytes, bytearray, memoryview)):
            name, data = "module", bytes(module)
        else:
            name = os.fspath(module)
            with open(module, "rb") as file:
                data = file.read()
        return Module(self._raw, name, data)

    def shutdown(self) -> None:
        """Ends the session, all that it has submitted and that is not detached, and the node if it is its own."""
        global _default
        with _lock:
            if _default is self:
                _default = None
        self._raw.close()
        node, self._node = self._node, None
        if node is not None:
            node.end()

    def _forked(self) -> None:
        self._raw.was_forked()
        node, self._node = self._node, None
        if node is not None:
            node.forget()


_sessions: weakref.WeakSet[Session] = weakref.WeakSet()
_default: Session | None = None
_lock = threading.RLock()


def init(
    address: str | None = None,
    *,
    tenant: str | None = None,
    identity: str | os.PathLike[str] | None = None,
    node_options: Sequence[str] = (),
    log_to_driver: bool = True,
) -> Session:
    """Begins the session that the functions of this module use.

    Connects to the node at `address` (`unix:PATH`, `HOST:PORT`, or as `WASMRUN_ADDRESS` says); else to the node of this
    machine, if one runs; else it starts one that ends with this process, with `node_options` as of `wasmrun node start`.
    `tenant` pays for what is submitted. `identity` is the folder of `wasmrun login`. What functions of Python print is shown here
    when their results are got, unless `log_to_driver` is False.
    """
    global _default
    with _lock:
        if _default is not None and _default.is_connected:
            raise WasmrunError("there is a session already: use that, or call wasmrun.shutdown() first")
        if _default is not None:
            # Its node is gone.
            _default.shutdown()
        folder = os.fspath(identity) if identity is not None else None
        node: Node | None = None
        try:
            raw = _wasmrun.Session.connect(address, tenant, folder, _UNNAMED)
        except NodeNotRunningError:
            if address is not None or os.environ.get("WASMRUN_ADDRESS"):
                raise
            node = Node(list(node_options))
            try:
                raw = _wasmrun.Session.connect(node.address, tenant, folder, _UNNAMED)
            except BaseException:
                node.end()
                raise
        _default = Session(raw, node, log_to_driver)
        return _default


def _session() -> Session:
    with _lock:
        return _default if _default is not None else init()


def is_initialized() -> bool:
    """Whether there is a session."""
    return _default is not None


def shutdown() -> None:
    """Ends the session, if there is one. See `Session.shutdown`."""
    session = _default
    if session is not None:
        session.shutdown()


@atexit.register
def _at_exit() -> None:
    for session in list(_sessions):
        session.shutdown()


def _after_fork() -> None:
    global _default, _lock
    _lock = threading.RLock()
    _default = None
    for session in list(_sessions):
        session._forked()
    _sessions.clear()


os.register_at_fork(after_in_child=_after_fork)


def load(module: str | os.PathLike[str] | bytes) -> Any:
    """Loads a module: see `Session.load`."""
    return _session().load(module)


@overload
def get(refs: ObjectRef[T], *, timeout: float | None = None) -> T: ...
@overload
def get(refs: Iterable[ObjectRef[T]], *, timeout: float | None = None) -> list[T]: ...


def get(refs: Any, *, timeout: float | None = None) -> Any:
    """The value of an object, or the values of several, once all are there.

    Raises what the first of them failed with; `GetTimeoutError` after `timeout` seconds. Ctrl-C cancels what is waited for.
    """
    if isinstance(refs, ObjectRef):
        return _get([refs], timeout)[0]
    return _get(_refs(refs), timeout)


def _refs(refs: Any) -> list[ObjectRef[Any]]:
    try:
        found: list[ObjectRef[Any]] = list(refs)
    except TypeError:
        found = [refs]
    for at, ref in enumerate(found):
        if not isinstance(ref, ObjectRef):
            raise TypeError(f"expected an ObjectRef, got {type(ref).__qualname__} (at [{at}])")
    return found


def _get(refs: list[ObjectRef[Any]], timeout: float | None) -> list[Any]:
    if not refs:
        return []
    return refs[0]._session.get(refs, timeout)


def wait(
    refs: Iterable[ObjectRef[T]], *, num_returns: int = 1, timeout: float | None = None
) -> tuple[list[ObjectRef[T]], list[ObjectRef[T]]]:
    """Waits until `num_returns` of the objects are there or have failed. Those that are, at most so many, and the others."""
    all_of_them = _refs(refs)
    if not 1 <= num_returns <= max(len(all_of_them), 1):
        raise ValueError(f"num_returns is 1 to {len(all_of_them)}, the number of objects; got {num_returns}")
    if not all_of_them:
        return [], []
    ready = set(all_of_them[0]._session.wait(all_of_them, num_returns, timeout)[:num_returns])
    done = [ref for at, ref in enumerate(all_of_them) if at in ready]
    return done, [ref for at, ref in enumerate(all_of_them) if at not in ready]


def as_completed(
    refs: Iterable[ObjectRef[T]], *, timeout: float | None = None
) -> Iterator[ObjectRef[T]]:
    """The objects, each as soon as it is there or has failed. `GetTimeoutError` if that takes longer than `timeout`."""
    from ._errors import GetTimeoutError

    end = None if timeout is None else time.monotonic() + timeout
    left = _refs(refs)
    while left:
        remaining = None if end is None else max(end - time.monotonic(), 0)
        ready = set(left[0]._session.wait(left, 1, remaining))
        if not ready:
            raise GetTimeoutError(f"timed out: {len(left)} objects are not there yet")
        done = [ref for at, ref in enumerate(left) if at in ready]
        left = [ref for at, ref in enumerate(left) if at not in ready]
        yield from done


def progress(
    refs: Iterable[ObjectRef[T]], *, text: str = "tasks", timeout: float | None = None
) -> list[T]:
    """As `get`, with a bar on standard error meanwhile."""
    all_of_them = _refs(refs)
    began, total, done = time.monotonic(), len(all_of_them), 0
    for _ in as_completed(all_of_them, timeout=timeout):
        done += 1
        filled = done * 30 // total
        took = time.monotonic() - began
        bar = f"\r{text} {'█' * filled}{'░' * (30 - filled)} {done}/{total}, {took:.1f} s"
        if sys.stderr.isatty() or done == total or "ipykernel" in sys.modules:
            sys.stderr.write(bar)
            sys.stderr.flush()
    if total:
        sys.stderr.write("\n")
    return get(all_of_them)


_KINDS = {
    "B": "u8", "b": "s8", "H": "u16", "h": "s16", "I": "u32", "i": "s32", "f": "f32", "d": "f64",
    "Q": "u64", "q": "s64", "L": "u64", "l": "s64",
}  # fmt: skip


def put(value: Any) -> ObjectRef[Any]:
    """Stores a value in the node, to be given to many tasks.

    Text, bytes, and numbers in one dimension that have the buffer protocol, such as an array of NumPy, are stored as such, for
    modules in any language. Everything else is for functions of Python.
    """
    session = _session()
    if type(value) is str:
        return session._raw.put("string", value)
    try:
        view = memoryview(value)
    except TypeError:
        view = None
    kind = view.format.lstrip("<=@") if view is not None and view.ndim == 1 else ""
    if kind in _KINDS:
        return session._raw.put(_KINDS[kind], value)
    from . import _inside

    return _inside.of(session).put(value)


def cancel(refs: ObjectRef[Any] | Iterable[ObjectRef[Any]]) -> None:
    """Cancels the tasks that are to make these objects, and all that those have started."""
    all_of_them = [refs] if isinstance(refs, ObjectRef) else _refs(refs)
    if all_of_them:
        all_of_them[0]._session.cancel(all_of_them)


def explain(what: ObjectRef[Any] | ActorHandle | PythonActor | PlacementGroup | str) -> str:
    """Why a task, object, actor or placement group does not go on, or where it is, for people."""
    if isinstance(what, ObjectRef):
        return what._session.explain(what._task)
    if isinstance(what, PythonActor):
        what = what._actor
    if isinstance(what, ActorHandle):
        return what._session.explain(what._id)
    return _session()._raw.explain(what if isinstance(what, str) else what.id)


def get_actor(name: str) -> Any:
    """An actor of the session's tenant, by its name."""
    session = _session()
    found = session._raw.find_actor(name)
    if not found._class_name.startswith("wasmrun:python/"):
        return found
    from . import _inside
    from ._capture import Program

    return PythonActor(_inside.of(session), Program(), found, "")


def kill(actor: ActorHandle | PythonActor) -> None:
    """Ends an actor, also one that is detached. Its calls fail, the one that runs included."""
    actor = getattr(actor, "_actor", actor)
    if not isinstance(actor, ActorHandle):
        raise TypeError(f"expected an actor, got {type(actor).__qualname__}")
    actor._session.kill(actor)


def nodes() -> list[dict[str, Any]]:
    """The nodes of the cluster: name, id, state, address, and what each has in total and available."""
    return _session()._raw.members()


def cluster_resources() -> dict[str, float]:
    """What all nodes that live have together. Memory is in bytes."""
    return _sum("total")


def available_resources() -> dict[str, float]:
    """What of that no task holds."""
    return _sum("available")


def _sum(which: str) -> dict[str, float]:
    total: dict[str, float] = {}
    for node in nodes():
        if node["state"] != "dead":
            for name, amount in node[which].items():
                total[name] = total.get(name, 0) + amount
    return total
