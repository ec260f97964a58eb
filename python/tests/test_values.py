"""Values by their WIT types, there and back, and what does not fit."""

import array
import collections.abc
import ctypes
import dataclasses
import inspect
import math
import signal

import numpy
import pytest

import wasmrun
from wasmrun import Err, Ok, Some


def echo(function, value):
    return function.remote(value).get()


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("bool", [True, False]),
        ("u8", [0, 255]),
        ("s8", [-128, 127]),
        ("u16", [0, 65535]),
        ("s32", [-(2**31), 2**31 - 1]),
        ("u64", [0, 2**64 - 1]),
        ("s64", [-(2**63), 2**63 - 1]),
        ("f32", [0.5, math.inf]),
        ("f64", [0.1, -math.inf, 1]),
        ("char", ["a", "🦀"]),
        ("string", ["", "Grüße 🦀"]),
        ("bytes", [b"", b"\x00\xff"]),
        ("list_string", [[], ["a", ""]]),
        ("list_option", [[1, None, 2]]),
        ("list_result", [[Ok(1), Err("no")]]),
        ("tuple", [(1, "a", True)]),
        ("option", [None, "a"]),
        ("option_option", [None, Some(None), Some(1)]),
    ],
)
def test_there_and_back(fixture, name, values):
    function = getattr(fixture, f"echo_{name}")
    for value in values:
        got = echo(function, value)
        assert got == value
        assert type(got) is type(value) or isinstance(value, int)


def test_not_a_number(fixture):
    assert math.isnan(echo(fixture.echo_f64, math.nan))


def test_numbers_are_arrays(fixture):
    for given in (
        [1, -2, 3],
        (1, -2, 3),
        array.array("i", [1, -2, 3]),
        numpy.array([1, -2, 3], "int32"),
        numpy.array([1, 0, -2, 0, 3], "int32")[::2],
        numpy.asfortranarray(numpy.array([1, -2, 3], "int32")),
    ):
        got = echo(fixture.echo_list_s32, given)
        assert isinstance(got, numpy.ndarray)
        assert got.dtype == "int32"
        assert got.tolist() == [1, -2, 3]
        assert not got.flags.writeable
    assert echo(fixture.echo_list_f64, []).tolist() == []
    assert [row.tolist() for row in echo(fixture.echo_matrix, [[1, 2], []])] == [[1, 2], []]
    for given in (bytearray(b"ab"), memoryview(b"ab"), numpy.array([97, 98], "uint8")):
        assert echo(fixture.echo_bytes, given) == b"ab"


def test_buffers_of_any_layout(fixture):
    unaligned = numpy.frombuffer(bytes(4) + numpy.arange(3.0).tobytes(), "f8", offset=4)
    assert not unaligned.flags.aligned
    for given in (
        unaligned,
        (ctypes.c_double * 3)(0, 1, 2),
        numpy.arange(3, dtype="<f8"),
        numpy.arange(3.0)[::-1][::-1],
        memoryview(numpy.repeat(numpy.arange(3.0), 2))[::2],
    ):
        assert echo(fixture.echo_list_f64, given).tolist() == [0, 1, 2]
        assert list(wasmrun.put(given).get()) == [0, 1, 2]
    assert echo(fixture.echo_list_f64, numpy.zeros(0)).tolist() == []
    assert echo(fixture.echo_list_s32, (ctypes.c_int32 * 2)(-1, 1)).tolist() == [-1, 1]
    assert echo(fixture.echo_bytes, (ctypes.c_uint8.__ctype_be__ * 2)(97, 98)) == b"ab"


def test_records(fixture):
    point = fixture.Point
    assert dataclasses.is_dataclass(point)
    value = point(*range(len(dataclasses.fields(point))))
    assert echo(fixture.echo_record, value) == value
    assert echo(fixture.echo_record, dataclasses.asdict(value)) == value
    with pytest.raises(dataclasses.FrozenInstanceError):
        value.x = 2
    assert list(echo(fixture.echo_list_record, [value, value])) == [value, value]


def test_variants_are_matched(fixture):
    shape = fixture.Shape
    cases = [case for case in vars(shape).values() if isinstance(case, type)]
    assert cases
    for case in cases:
        fields = dataclasses.fields(case)
        if not fields:
            assert echo(fixture.echo_variant, case()) == case()
        elif fields[0].type == "float":
            got = echo(fixture.echo_variant, case(1.5))
            match got:
                case case_ if isinstance(case_, shape):
                    assert got == case(1.5)
    with pytest.raises(TypeError, match="is one of Shape"):
        shape()


def test_enums_and_flags(fixture):
    for role in fixture.Role:
        assert echo(fixture.echo_enum, role) is role
        assert echo(fixture.echo_enum, role.value) is role
    rights = list(fixture.Rights)
    everything = rights[0]
    for right in rights:
        everything |= right
    assert echo(fixture.echo_flags, everything) == everything
    assert echo(fixture.echo_flags, []) == fixture.Rights(0)


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("u8", 256, "argument v: expected int of 0 to 255 (u8), got 256"),
        ("u8", True, "expected int of 0 to 255 (u8), got bool"),
        ("u8", 1.0, "got float"),
        ("f32", 1e300, "expected float of -3.4028235e38 to 3.4028235e38 (f32), got 1e+300"),
        ("f32", True, "expected float, got bool"),
        ("f64", "1", "expected float, got str"),
        ("bool", 1, "expected bool, got int"),
        ("string", b"a", "expected str, got bytes"),
        ("char", "ab", "a str of one character"),
        ("bytes", "text", "a buffer or sequence of numbers (uint8), got str"),
        ("list_s32", [1, "x"], "argument v[1]: 'x' is no int32 (s32)"),
        ("list_s32", numpy.array([1.5]), "a buffer of format 'd'"),
        ("list_s32", numpy.array([1], "int64"), "a buffer of format 'l'"),
        ("list_f64", numpy.array([1, 2], ">f8"), "x.astype(x.dtype.newbyteorder('='))"),
        ("list_s32", numpy.array([1, 2], ">i4"), "format '>i', whose byte order is big-endian"),
        ("list_f64", (ctypes.c_double.__ctype_be__ * 2)(1, 2), "whose byte order is big-endian"),
        ("list_string", ["a", 1], "argument v[1]: expected str, got int"),
        ("list_string", "abc", "expected a sequence, got str"),
        ("tuple", (1, "a"), "expected a tuple of 3, got 2 items"),
        ("option_option", 1, "wasmrun.Some"),
        ("enum", "nobody", "has no member 'nobody'; it has"),
        ("flags", ["nothing"], "has no member 'nothing'"),
        ("record", {}, "Point needs the field"),
        ("record", {"nope": 1}, "Point has no field nope"),
        ("variant", "circle", "expected one of Shape."),
    ],
)
def test_what_does_not_fit_says_where(fixture, name, value, says):
    with pytest.raises(TypeError) as error:
        getattr(fixture, f"echo_{name}").remote(value)
    assert says in str(error.value)
    assert str(error.value).startswith(f"echo_{name}() argument v")


def test_large_numbers_are_shown_in_part(fixture):
    for name, value, says in (
        ("u8", 10**99, "argument v: expected int of 0 to 255 (u8), got 1000000000000000000000000000000000000000…"),
        # More digits than Python writes.
        ("u8", 10**5000, "(u8), got what cannot be shown"),
        ("f32", -(10**39), "(f32), got -1000"),
        ("f64", 10**400, "argument v: 1000000000000000000000000000000000000000… is too large for a float"),
        ("record", {"x": 10**400, "y": 0}, "argument v.x: 1000"),
        ("list_f64", [1, 10**400], "argument v[1]: 1000"),
    ):
        with pytest.raises(TypeError) as error:
            getattr(fixture, f"echo_{name}").remote(value)
        assert says in str(error.value)


def test_numbers_that_f32_cannot_have(session, fixture):
    most = 3.4028234663852886e38
    assert echo(fixture.echo_f32, most) == most
    assert list(session._raw.put("f32", [0.5, -most, math.inf]).get()) == [0.5, -most, math.inf]
    for given in ([0.5, 1e300], (numpy.float64(0), 10**39)):
        with pytest.raises(TypeError, match=r"value\[1\]: .* is no float32 \(f32\)"):
            session._raw.put("f32", given)
    with pytest.raises(TypeError, match=r"argument v\.y: expected float of .* got 1e\+39"):
        fixture.echo_record.remote({"x": 0, "y": 1e39})


class SaysItIsLong(collections.abc.Sequence):
    def __len__(self):
        return 2**60

    def __getitem__(self, at):
        return 1


def test_a_length_is_no_reason_to_take_memory(fixture):
    for function, given in (
        (fixture.echo_list_s32, range(10**17)),
        (fixture.echo_list_s32, SaysItIsLong()),
        (fixture.echo_list_f64, range(2**29)),
        (fixture.echo_list_string, range(10**18)),
        (fixture.echo_list_option, SaysItIsLong()),
        (fixture.echo_bytes, range(2**32)),
    ):
        with pytest.raises(TypeError, match="argument v: it has more items than fit into a sandbox, .* pass parts"):
            function.remote(given)
    with pytest.raises(TypeError, match=r"argument v\[1\]: it has more items"):
        fixture.echo_matrix.remote([[1], range(10**17)])
    with pytest.raises(TypeError, match="it cannot be read") as error:
        fixture.echo_list_f64.remote(numpy.broadcast_to(1.0, 10**15))
    assert isinstance(error.value.__cause__, MemoryError)


class Fails(collections.abc.Mapping):
    def __init__(self, error):
        self.error = error

    def __getitem__(self, key):
        if key == "full_name":
            return "a"
        if key == "age":
            return 1
        raise self.error

    def __iter__(self):
        return iter(())

    def __len__(self):
        return 0


def test_what_code_of_a_value_raises(fixture):
    # The next field may be left out.
    with pytest.raises(TypeError, match="argument v: it cannot be read") as error:
        fixture.echo_person.remote(Fails(OSError("no disk")))
    assert isinstance(error.value.__cause__, OSError)
    with pytest.raises(TypeError, match="Person needs the field tags"):
        fixture.echo_person.remote(Fails(KeyError("x")))
    with pytest.raises(KeyboardInterrupt):
        fixture.echo_person.remote(Fails(KeyboardInterrupt()))


def test_ctrl_c_ends_reading_a_long_sequence(fixture):
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    try:
        with pytest.raises(KeyboardInterrupt):
            fixture.echo_list_s32.remote(range(10**9))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_nothing_that_nests_without_end(fixture):
    endless: list = []
    endless.append(endless)
    with pytest.raises(TypeError):
        fixture.echo_list_string.remote(endless)


def test_arguments_are_bound_as_in_python(fixture):
    assert fixture.join.remote("a", times=2, last="b").get() == fixture.join.remote("a", 2, "b").get()
    # Options may be left out.
    assert fixture.join.remote("a", times=2).get() == fixture.join.remote("a", 2, None).get()
    assert str(inspect.signature(fixture.join)).startswith("(first: 'str', times: 'int', last: 'str | None' = None)")
    for args, kwargs, says in (
        (("a",), {}, "misses the argument 'times'"),
        (("a", 1, None, 4), {}, "takes 3 arguments, got 4"),
        (("a", 1, None), {"first": "b"}, "two values for the argument 'first'"),
        (("a", 1, None), {"nope": 1}, "no argument 'nope'"),
    ):
        with pytest.raises(TypeError, match=says):
            fixture.join.remote(*args, **kwargs)


def test_a_large_array_is_not_copied(graph):
    numbers = numpy.arange(1_000_000, dtype="uint32")
    ref = wasmrun.put(numbers)
    got = ref.get()
    assert (got == numbers).all()
    # It lies in the node's store, and stays there while it is looked at.
    del ref
    assert got.sum() == numbers.sum()
    assert graph.sum.remote(wasmrun.put(numbers)).get() == int(numbers.sum())
