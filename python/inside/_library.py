"""The standard library, for a place without files.

Owns which modules of it are there: all that are of Python, as code that was compiled when the component was made. It is
imported before everything else, so that what this leaves free is used by what comes after.
"""

import importlib.abc
import importlib.util
import json
import marshal
import os
import sys

# What is no use without a terminal, a screen, other processes or the network's sockets; and tests.
_LEFT_OUT = {
    "__phello__", "_aix_support", "_android_support", "_apple_support", "_ios_support", "_osx_support", "_pyrepl", "antigravity",
    "ensurepip", "idlelib", "lib2to3", "pydoc_data", "site-packages", "test", "tests", "this", "tkinter", "turtle", "turtledemo",
    "venv",
}  # fmt: skip

_code: dict[str, tuple[str, bool, bytes]] = {}


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path=None, target=None):
        found = _code.get(name)
        if found is None:
            return None
        return importlib.util.spec_from_loader(name, self, origin=found[0], is_package=found[1])

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        exec(marshal.loads(_code[module.__name__][2]), module.__dict__)


def _keep() -> None:
    root = os.path.dirname(os.path.dirname(json.__file__))
    for folder, folders, files in os.walk(root):
        folders[:] = [it for it in folders if it not in _LEFT_OUT and it != "__pycache__"]
        for file in files:
            stem, suffix = os.path.splitext(file)
            if suffix != ".py" or stem in _LEFT_OUT:
                continue
            path = os.path.join(folder, file)
            name = os.path.relpath(path, root)[: -len(".py")].replace(os.sep, ".")
            is_package = stem == "__init__"
            with open(path, "rb") as source:
                code = compile(source.read(), path, "exec", dont_inherit=True, optimize=0)
            _code[name.removesuffix(".__init__")] = (path, is_package, marshal.dumps(code))
    sys.meta_path.append(_Finder())


_keep()
