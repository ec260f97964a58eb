"""Snapshots of sessions: their variables, functions and classes.

Owns the format: pickles, which only sandboxes read. Objects, actors, and classes that a program defines are references in it.
"""

from __future__ import annotations

import io
import pickle
from typing import Any

import cloudpickle

from . import _host, _program

# Variables of the interpreter and not of the session.
_OWN = ("__builtins__",)


class _Pickler(cloudpickle.Pickler):
    def __init__(self, file: io.BytesIO, names: dict[str, Any], handles: list[Any]) -> None:
        super().__init__(file)
        self._names = names
        self._handles = handles
        # Functions share the variables of the session, and have no copies.
        self.globals_ref[id(names)] = names

    def persistent_id(self, it: Any) -> Any:
        if it is self._names:
            return "names", 0
        if isinstance(it, (_host.ObjectRef, _host.ActorHandle)):
            self._handles.append(it)
            return "handle", len(self._handles) - 1
        if isinstance(it, type) and _program.home(it.__module__, it.__qualname__) is not None:
            return "class", _program.class_name(it)
        return None


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, names: dict[str, Any], handles: list[Any]) -> None:
        super().__init__(file)
        self._names = names
        self._handles = handles

    def persistent_load(self, id: Any) -> Any:
        kind, which = id
        if kind == "names":
            return self._names
        return self._handles[which] if kind == "handle" else _program.find_class(*which)


def _pickled(what: Any, names: dict[str, Any], handles: list[Any]) -> bytes:
    file = io.BytesIO()
    _Pickler(file, names, handles).dump(what)
    return file.getvalue()


def _checked(what: Any, names: dict[str, Any], handles: list[Any]) -> bytes:
    """A pickle that can be read: a class may say wrongly how its instances are pickled."""
    pickled = _pickled(what, names, handles)
    _Unpickler(io.BytesIO(pickled), {}, handles).load()
    return pickled


def kept(names: dict[str, Any], number: int) -> dict[str, Any]:
    """The state of a session with these variables, after so many snippets, as a value that can cross."""
    variables = {name: it for name, it in names.items() if name not in _OWN}
    handles: list[Any] = []
    try:
        pickled = _checked(variables, names, handles)
    except Exception:
        # Together they may share parts, and so are kept together; by themselves they tell which it is.
        for name, it in variables.items():
            try:
                _checked(it, names, [])
            except Exception as error:
                why = f"{type(error).__name__}: {error}"
                raise TypeError(f"the variable '{name}' cannot be kept ({why}): delete it before, or keep what it is made of") from None
        raise
    programs = [_host.ObjectRef(it, "b") for it in _program.programs()]
    return {"number": number, "variables": pickled, "handles": handles, "programs": programs, "lines": _program.lines()}


def restore(names: dict[str, Any], state: dict[str, Any]) -> int:
    """Sets the variables of a state; after how many snippets it was."""
    for program in state["programs"]:
        _program.load(program._handle)
    _program.lines().update(state["lines"])
    variables = _Unpickler(io.BytesIO(state["variables"]), names, state["handles"]).load()
    names.update(variables)
    number: int = state["number"]
    return number
