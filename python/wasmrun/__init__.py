"""Drive wasmrun from Python: sandboxed WebAssembly tasks, actors and objects.

    import wasmrun

    app = wasmrun.load("orders.wasm")
    order = app.price.remote(...)
    print(order.get())

Nothing needs to be set up: `load` finds the node of this machine, or starts one that ends with this process.
"""

from ._api import (
    Session,
    as_completed,
    cancel,
    cluster_resources,
    available_resources,
    explain,
    get,
    get_actor,
    init,
    is_initialized,
    kill,
    load,
    nodes,
    progress,
    put,
    shutdown,
    wait,
)
from ._errors import (
    ActorDiedError,
    ArgumentsError,
    ConnectionLostError,
    DependencyError,
    ExitError,
    GetTimeoutError,
    GuestError,
    LimitError,
    NodeNotRunningError,
    ObjectLostError,
    PythonError,
    RefusedError,
    SandboxError,
    TaskCancelledError,
    TaskError,
    TrapError,
    UnschedulableError,
    WasmrunError,
)
from ._executor import Executor
from ._group import Bundle, PlacementGroup, placement_group
from ._inside import PythonActor
from ._module import Class, Function, Interface, Module
from ._remote import RemoteClass, RemoteFunction, remote
from ._sandbox import Outcome, Sandbox, Snapshot, run
from ._source import CaptureError
from ._values import Err, Ok, Some
from ._wasmrun import ActorHandle, ObjectRef, __version__

__all__ = [
    "ActorDiedError",
    "ActorHandle",
    "ArgumentsError",
    "Bundle",
    "CaptureError",
    "Class",
    "ConnectionLostError",
    "DependencyError",
    "Err",
    "Executor",
    "ExitError",
    "Function",
    "GetTimeoutError",
    "GuestError",
    "Interface",
    "LimitError",
    "Module",
    "NodeNotRunningError",
    "ObjectLostError",
    "ObjectRef",
    "Ok",
    "Outcome",
    "PlacementGroup",
    "PythonActor",
    "PythonError",
    "RefusedError",
    "RemoteClass",
    "RemoteFunction",
    "Sandbox",
    "SandboxError",
    "Session",
    "Snapshot",
    "Some",
    "TaskCancelledError",
    "TaskError",
    "TrapError",
    "UnschedulableError",
    "WasmrunError",
    "__version__",
    "as_completed",
    "available_resources",
    "cancel",
    "cluster_resources",
    "explain",
    "get",
    "get_actor",
    "init",
    "is_initialized",
    "kill",
    "load",
    "nodes",
    "placement_group",
    "progress",
    "put",
    "remote",
    "run",
    "shutdown",
    "wait",
]
