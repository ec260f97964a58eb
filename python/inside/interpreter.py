"""Classes that the component exports by their types. Their instances are made by the fast lane: see `_app.py`."""

from wit_world.exports import interpreter


def not_by_types(*_):
    """What the node never calls: it takes the fast lane."""
    raise NotImplementedError("calls come by the fast lane")


class Instance(interpreter.Instance):
    """See `_app._Instance`."""

    __init__ = call = not_by_types


class Session(interpreter.Session):
    """See `_app._Session`."""

    __init__ = run = snapshot = not_by_types
