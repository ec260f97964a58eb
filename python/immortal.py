"""Makes the objects of an interpreter's image immortal, as the build's last step: immortal.py COMPONENT.

CPython does not count references to immortal objects (PEP 683), so sandboxes that share the image do not write to the pages of those
that they only use, and need no copies of them. `inside/_image.py` says where the objects are. An object is changed only where its
type lies behind its count, as in CPython 3.12 and later on 32 bits.
"""

import struct
import sys
from bisect import bisect_right

MARK = b"wasmrun objects:"
# What CPython 3.14 takes for an immortal object's count on 32 bits (Include/refcount.h).
IMMORTAL = 5 << 28
# A count beyond this is none, or says so already.
MOST_REFERENCES = 1 << 20
# With fewer something has changed in how objects lie, or are found.
FEWEST = 10_000

CORE_MODULE, COMPONENT, DATA = 1, 4, 11
I32_CONST, END = 0x41, 0x0B


def number(data: bytes, at: int, is_signed: bool = False) -> tuple[int, int]:
    """A number in LEB128, and where the next thing is."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            if is_signed and byte & 64:
                value -= 1 << shift
            return value, at


def segments(data: bytes, at: int, end: int, is_core: bool = False) -> list[tuple[int, int, int]]:
    """The data of memories: addresses, where their bytes are in the file, and how many."""
    found = []
    at += 8
    while at < end:
        kind = data[at]
        size, at = number(data, at + 1)
        if is_core and kind == DATA:
            found += active(data, at)
        elif not is_core and kind in (CORE_MODULE, COMPONENT):
            found += segments(data, at, at + size, kind == CORE_MODULE)
        at += size
    return found


def active(data: bytes, at: int) -> list[tuple[int, int, int]]:
    """The segments of a section that are there from the start, at fixed addresses."""
    found = []
    count, at = number(data, at)
    for _ in range(count):
        flags, at = number(data, at)
        if flags != 0 or data[at] != I32_CONST:
            raise SystemExit("immortal.py: the component's memory begins in another way than it did")
        address, at = number(data, at + 1, is_signed=True)
        assert data[at] == END
        size, at = number(data, at + 1)
        found.append((address & 0xFFFFFFFF, at, size))
        at += size
    return found


def objects(data: bytes) -> list[tuple[int, int]]:
    """The addresses of all objects, and of their types. Copies of the mark may lie where something was freed."""
    at = -1
    while (at := data.find(MARK, at + 1)) >= 0:
        begin = at + len(MARK) + 4
        (count,) = struct.unpack_from("<I", data, begin - 4)
        if FEWEST < count <= (len(data) - begin) // 8:
            words = struct.unpack_from(f"<{2 * count}I", data, begin)
            if all(word % 4 == 0 and word > 0 for word in words):
                return list(zip(words[::2], words[1::2]))
    raise SystemExit("immortal.py: the component does not say where its objects are")


def main(path: str) -> None:
    with open(path, "rb") as file:
        data = bytearray(file.read())
    parts = sorted(segments(data, 0, len(data)))
    starts = [address for address, _, _ in parts]
    made = 0
    for address, of_type in objects(data):
        start, at, size = parts[bisect_right(starts, address) - 1]
        if not start <= address <= start + size - 8:
            continue
        at += address - start
        references, found = struct.unpack_from("<II", data, at)
        # What was freed in the meantime is none any more.
        if found == of_type and 0 < references < MOST_REFERENCES:
            struct.pack_into("<I", data, at, IMMORTAL)
            made += 1
    if made < FEWEST:
        raise SystemExit(f"immortal.py: {made} objects are as they should be, which are too few")
    with open(path, "wb") as file:
        file.write(data)


if __name__ == "__main__":
    main(sys.argv[1])
