"""The image of memory from which sandboxes start, as good as it can be made from inside.

Owns what makes a start cheap. Each page that a sandbox writes to is copied for it, which takes longer than most calls, so few are to
be written to: what runs in each call has run before (the interpreter rewrites code that it has run often), new objects lie
beside each other and not in gaps between old ones, and old ones are immortal: their counts of references are never written to.
"""

import array
import gc
import sys
import types

# The build looks for this text, backwards: forwards it would be here, too. Behind it are the number of objects, their
# addresses and those of their types, as 32-bit words.
_MARK = ":stcejbo nurmsaw"


def settle(warm):
    """Makes the image, after everything that is in it. Runs `warm` often. What comes back must be kept."""
    for _ in range(100):
        warm()
    gc.collect()
    objects = _objects()
    # Nothing that is here is ever garbage.
    gc.freeze()
    return objects, _gaps()


def _objects():
    """The addresses of all objects. The build makes them immortal: there is no way to do that from inside."""
    found = {}
    left = [*gc.get_objects(), sys.modules]
    while left:
        it = left.pop()
        if id(it) in found or it is found or it is left:
            continue
        found[id(it)] = id(type(it))
        left += gc.get_referents(it)
        if type(it) is types.CodeType:
            left += [it.co_consts, it.co_names, it.co_filename, it.co_name, it.co_qualname, it.co_linetable, it.co_exceptiontable]
    words = array.array("I", [len(found)])
    for pair in found.items():
        words.extend(pair)
    return _MARK[::-1].encode() + words.tobytes()


def _gaps():
    """Fills the gaps between objects: for each size, until what is new lies behind all others."""
    kept = [bytes(1 << 20)]
    last = id(kept[0])

    def fill(make, most):
        for _ in range(most):
            kept.append(make())
            if id(kept[-1]) > last:
                break

    for make in (object, lambda: float("1.5"), lambda: [1], lambda: (kept,)):
        fill(make, 40_000)
    for size in (100_000, 40_000, 20_000, 12_000, 8_000, 5_000, 3_200, 2_400, 1_600, 1_200, *range(1_000, 16, -8)):
        fill(lambda: bytes(size - 16), 5_000)
    return kept
