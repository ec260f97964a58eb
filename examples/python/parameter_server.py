"""Learns to read handwritten digits: an actor and tasks of a Rust module, driven and checked from Python.

    cargo xtask guests
    python examples/python/parameter_server.py [WORKERS [PASSES]]

The server and the workers are those of `examples/parameter-server`. This file says who works on what, and tests what was learned
with digits by people whom the net never saw, in sandboxes of its own: the weights go from a Rust actor to Python as a buffer.
"""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import wasmrun

REPOSITORY = Path(__file__).parents[2]
GUESTS = Path(os.environ.get("WASMRUN_GUESTS", REPOSITORY / "target" / "guests"))
DIGITS = REPOSITORY / "examples" / "parameter-server" / "data" / "digits.txt"

# The first are for learning.
KNOWN = 1437
PIXELS, HIDDEN, CLASSES = 64, 32, 10


@wasmrun.remote
def right(numbers: memoryview, digits: list[tuple[bytes, int]]) -> int:
    """How many digits the net with these weights reads right."""
    weights = [float(it) for it in numbers]

    def layer(at: int, inputs: list[float], units: int) -> Iterator[float]:
        for unit in range(units):
            begin = at + unit * (len(inputs) + 1)
            end = begin + len(inputs)
            yield sum(map(float.__mul__, weights[begin:end], inputs)) + weights[end]

    found = 0
    for pixels, label in digits:
        hidden = [max(it, 0.0) for it in layer(0, [it / 16 for it in pixels], HIDDEN)]
        sums = list(layer(HIDDEN * (PIXELS + 1), hidden, CLASSES))
        found += sums.index(max(sums)) == label
    return found


def main() -> None:
    workers, passes = (int(it) for it in (sys.argv[1:] + ["2", "8"])[:2])
    lines = [line.split() for line in DIGITS.read_text().splitlines()]
    digits = [(bytes(int(ink, 17) for ink in inks), int(label)) for label, inks in lines]
    known, unknown = digits[:KNOWN], digits[KNOWN:]

    app = wasmrun.load(GUESTS / "parameter-server.wasm")
    pixels = wasmrun.put(b"".join(pixels for pixels, _ in known))
    labels = wasmrun.put(bytes(label for _, label in known))
    server = app.Server.remote(1)
    for done in range(1, passes + 1):
        shares = [{"worker": worker, "workers": workers} for worker in range(workers)]
        losses = wasmrun.get([app.work.remote(server, pixels, labels, share) for share in shares])
        pushes, stale = server.pushes.remote().get()
        print(f"pass {done:>2}: loss {sum(losses) / workers:.4f} ({pushes} pushes, stale by {stale:.2f})")

    # Not fetched: the tasks get the numbers where they lie.
    weights = server.pull.remote(workers)
    parts = [unknown[at::4] for at in range(4)]
    good = sum(wasmrun.get([right.remote(weights, part) for part in parts]))
    print(f"{100 * good / len(unknown):.1f} % of {len(unknown)} unknown digits are read right")


if __name__ == "__main__":
    with wasmrun.init():
        main()
