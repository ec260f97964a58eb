import struct

from wit_world import exports
from wit_world.exports import app
from wit_world.imports.actors import create
from wit_world.imports.objects import Form_Buffer, Number, put
from wit_world.imports.tasks import Argument_Object, Argument_Value, spawn


class Tally(app.Tally):
    def __init__(self) -> None:
        self.total = 0.0

    def add(self, n: float) -> float:
        self.total += n
        return self.total


class App(exports.App):
    """What `wit/world.wit` promises: functions are tasks, classes are actors."""

    def sum_part(self, numbers: list[float], index: int, parts: int) -> float:
        start, end = (len(numbers) * part // parts for part in (index, index + 1))
        return sum(numbers[start:end])

    def sum(self, n: int, parts: int) -> float:
        numbers = [float(i) for i in range(1, n + 1)]
        stored = put(Form_Buffer(Number.F64), struct.pack(f"<{n}d", *numbers))
        tally = create("tally", [], None)
        total = tally.call("add", [f64(0)])
        for index in range(parts):
            part = spawn("sum-part", [Argument_Object(stored), u32(index), u32(parts)], None)
            # Nothing has waited so far: the call runs when the task has ended, after the calls before it.
            total = tally.call("add", [Argument_Object(part)])
        return float(struct.unpack("<d", total.get(None).bytes)[0])


def f64(n: float) -> Argument_Value:
    """An argument as its bytes, by its type: wasmrun's docs/values.md has the table."""
    return Argument_Value(struct.pack("<d", n))


def u32(n: int) -> Argument_Value:
    encoded = bytearray()
    while n > 127:
        encoded.append(n & 127 | 128)
        n >>= 7
    return Argument_Value(bytes([*encoded, n]))
