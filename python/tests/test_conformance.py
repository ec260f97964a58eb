"""What every driver does, and every guest: the tables of `tests/conformance`, as Python has it."""

import json
import math
import re
from pathlib import Path

import numpy
import pytest

import conformance_guest
import wasmrun
from conftest import GUESTS
from wasmrun import Err, Ok, Some, _errors, _values

FOLDER = Path(__file__).parents[2] / "tests" / "conformance"
TABLE = json.loads((FOLDER / "drivers.json").read_text())
GUESTS_TABLE = json.loads((FOLDER / "guests.json").read_text())
NUMBERS = {
    "s8": "int8", "u16": "uint16", "s16": "int16", "u32": "uint32", "s32": "int32", "u64": "uint64", "s64": "int64",
    "f32": "float32", "f64": "float64",
}  # fmt: skip


def types(text):
    """A list of types, each its head and what is in its brackets."""
    tokens = re.findall(r"[\w-]+|[<>,]", text)

    def some():
        found = []
        while tokens and tokens[0] != ">":
            head, parts = tokens.pop(0), []
            if tokens and tokens[0] == "<":
                tokens.pop(0)
                parts = some()
                tokens.pop(0)
            found.append((head, parts))
            if tokens and tokens[0] == ",":
                tokens.pop(0)
        return found

    return some()


class Driver:
    """A session, as the table speaks of it."""

    def __init__(self, guests):
        self.guests = {name: wasmrun.load(guests / f"{name}.wasm") for name in ("fixture", "graph", "sdk")}
        # Objects and actors, and of what type the objects are: a module, and the type.
        self.named, self.types = {}, {}

    def value(self, module, ty, it):
        """A value of a type, from JSON."""
        head, parts = ty
        if isinstance(it, dict) and set(it) == {"ref"}:
            return self.named[it["ref"]]
        given = TABLE["types"].get(head)
        if given is not None:
            return self.of_named(module, head, given, it)
        match head:
            case "u64" | "s64":
                return int(it)
            case "f32" | "f64":
                return float(it)
            case "list" if parts[0][0] == "u8":
                return bytes(it)
            case "list" if parts[0][0] in NUMBERS:
                return numpy.array([self.value(module, parts[0], each) for each in it], NUMBERS[parts[0][0]])
            case "list":
                return [self.value(module, parts[0], each) for each in it]
            case "tuple":
                return tuple(self.value(module, part, each) for part, each in zip(parts, it, strict=True))
            case "option" if it is None:
                return None
            case "option" if parts[0][0] == "option":
                return Some(self.value(module, parts[0], it["some"]))
            case "option":
                return self.value(module, parts[0], it)
            case "result":
                ((case, payload),) = it.items()
                return Ok(self.value(module, parts[0], payload)) if case == "ok" else Err(self.value(module, parts[1], payload))
        return it

    def of_named(self, module, head, given, it):
        cls = getattr(module, _values.pascal(head))
        ((kind, members),) = given.items()
        if kind == "record":
            return cls(*(self.value(module, types(ty)[0], it[name]) for name, ty in members.items()))
        if kind == "variant":
            ((case, payload),) = [(it, None)] if isinstance(it, str) else it.items()
            made = getattr(cls, _values.pascal(case))
            return made() if members[case] is None else made(self.value(module, types(members[case])[0], payload))
        if kind == "enum":
            return cls(it)
        made = cls(0)
        for name in it:
            made |= cls[name.replace("-", "_").upper()]
        return made

    def find(self, path, spell=_values.identifier):
        """What a module has by a name, and the module."""
        name, of = path.split(".", 1)
        module = it = self.guests[name]
        *interface, plain = of.split("#")
        for part in interface:
            it = getattr(it, _values.identifier(part))
        return module, getattr(it, spell(plain))

    def arguments(self, module, step, path):
        given = step.get("args", [])
        # What does not fit goes as it is.
        if kind_of(step) == "misfit":
            return given
        return [self.value(module, ty, it) for ty, it in zip(signature(path)[0], given)]

    def keep(self, step, it, *of):
        self.named[step["as"]] = it
        self.types[step["as"]] = of

    def call(self, step):
        path = step["call"]
        if "on" in step:
            module, callee = None, getattr(self.named[step["on"]], _values.identifier(path.split(".")[1]))
        else:
            module, callee = self.find(path)
        if asked := options(step):
            callee = callee.options(**asked)
        ref, of = callee.remote(*self.arguments(module, step, path)), (module, signature(path)[1])
        if "as" in step:
            return self.keep(step, ref, *of)
        return ref.get(), of

    def get(self, step):
        name, timeout = step["get"], seconds(step)
        if isinstance(name, list):
            got = wasmrun.get([self.named[it] for it in name], timeout=timeout)
            return got, [self.types[it] for it in name]
        got = self.named[name].get(timeout=timeout)
        if "as" not in step:
            return got, self.types[name]
        path = step.get("of")
        return self.keep(step, got, *((self.find(path)[0], signature(path)[1]) if path else ()))

    def perform(self, step):
        """What a step gives, and of which type that is, if it is not kept."""
        match step:
            case {"call": _}:
                return self.call(step)
            case {"get": _}:
                return self.get(step)
            case {"put": it, "for": path}:
                module, ty = self.find(path)[0], signature(path)[0][0]
                self.keep(step, wasmrun.put(self.value(module, ty, it)), module, ty)
            case {"create": path}:
                module, cls = self.find(path, _values.pascal)
                self.keep(step, cls.options(**options(step)).remote(*self.arguments(module, step, path)))
            case {"find": name}:
                self.keep(step, wasmrun.get_actor(name))
            case {"kill": name}:
                wasmrun.kill(self.named[name])
            case {"cancel": name}:
                wasmrun.cancel(self.named[name])
            case {"wait": names, "count": count, "ready": ready}:
                given = [self.named[it] for it in names]
                there, waiting = wasmrun.wait(given, num_returns=count, timeout=seconds(step))
                assert there == [self.named[it] for it in ready] and len(waiting) == len(names) - len(ready)
            case {"completed": names, "first": first}:
                assert next(wasmrun.as_completed([self.named[it] for it in names])) is self.named[first]
            case _:
                raise AssertionError(f"there is no step {step}")
        return None

    def step(self, step):
        if "fails" in step:
            with pytest.raises(FAILURES[kind_of(step)]) as error:
                self.perform(step)
            return check(error.value, step["fails"])
        made = self.perform(step)
        if "is" in step:
            got, of = made
            if isinstance(of, list):
                expected = [self.value(*it, each) for it, each in zip(of, step["is"])]
            else:
                expected = self.expected(*of, step["is"])
            assert plain(got) == plain(expected)
        return None

    def expected(self, module, ty, it):
        # Of a result that a function returns it is the ok case.
        if ty is not None and ty[0] == "result":
            ty = ty[1][0] if ty[1] else ("_", [])
        return None if ty is None else self.value(module, ty, it)


# Those of one kind, and what is raised before anything is sent.
FAILURES = {**_errors._KINDS, "misfit": (TypeError, ValueError), "name": AttributeError}


def kind_of(step):
    return step.get("fails", {}).get("kind")


def check(error, expected):
    if "value" in expected:
        assert error.value == expected["value"]
    if "argument" in expected:
        assert error.argument == expected["argument"]
    if "cause" in expected:
        assert type(error.__cause__) is FAILURES[expected["cause"]]


def signature(path):
    """The types of the parameters, and that of the result."""
    params, _, result = TABLE["functions"].get(path, "").partition("->")
    return types(params), (types(result) or [None])[0]


def seconds(step):
    return step["timeout-ms"] / 1000 if "timeout-ms" in step else None


def options(step):
    given = dict(step.get("options", {}))
    limit = given.pop("time-limit-ms", None)
    asked = {_values.identifier(name): it for name, it in given.items()}
    return asked if limit is None else {**asked, "time_limit": limit / 1000}


def plain(it):
    """As it can be compared: types of numbers count, and what is no number is the same."""
    if isinstance(it, numpy.ndarray):
        return str(it.dtype), [plain(each) for each in it.tolist()]
    if isinstance(it, float) and math.isnan(it):
        return "nan"
    return type(it)(map(plain, it)) if type(it) in (list, tuple) else it


@pytest.fixture(scope="module")
def driver(session):
    return Driver(GUESTS)


@pytest.mark.parametrize("path", TABLE["values"])
def test_values_there_and_back(driver, path):
    module, function = driver.find(path)
    ty, *values = TABLE["values"][path]
    for it in values:
        given = driver.value(module, types(ty)[0], it)
        assert plain(function.remote(given).get()) == plain(given)


@pytest.mark.parametrize("path", TABLE["misfits"])
def test_values_that_do_not_fit(driver, path):
    for it in TABLE["misfits"][path]:
        with pytest.raises(FAILURES["misfit"]):
            driver.find(path)[1].remote(it)


@pytest.mark.parametrize("name", TABLE["cases"])
def test_behaviour(driver, name):
    for step in TABLE["cases"][name]:
        driver.step(step)


@pytest.mark.parametrize("kind", TABLE["kinds"])
def test_each_kind_of_failure_has_a_class(kind):
    assert type(_errors.made(kind, "why", {})) is not wasmrun.WasmrunError


# What a guest of Python does not have.
LACKS = {"checkpoints"}


@pytest.mark.parametrize("row", [name for name, row in GUESTS_TABLE.items() if row.get("needs") not in LACKS])
def test_behaviour_of_guests(session, row):
    function = getattr(conformance_guest, _values.identifier(row))
    for call in GUESTS_TABLE[row]["calls"]:
        ref = function.remote(*call["args"])
        if "fails" in call:
            with pytest.raises(FAILURES[call["fails"]]):
                ref.get()
        else:
            assert ref.get() == call["is"]
