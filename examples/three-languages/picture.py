"""Draws a picture as text, in three languages: tasks of Rust render bands of it, tasks of Python measure how light these are, and
one of JavaScript draws what those have found. What a task makes is an argument of the next where it lies: nothing of it comes here.

    cargo xtask guests
    WASMRUN_JAVASCRIPT=node_modules/wasmrun/javascript.wasm python examples/three-languages/picture.py

`WASMRUN_JAVASCRIPT` is the interpreter of the npm package.
"""

import os
from pathlib import Path
from typing import Any

import wasmrun

HERE = Path(__file__).parent
GUESTS = Path(os.environ.get("WASMRUN_GUESTS", HERE.parents[1] / "target" / "guests"))

ROWS = 16
WIDTH = 64
# A character is twice as high as wide.
BAND_HEIGHT = 2
SAMPLES = 4


@wasmrun.remote(strategy="spread")
def lights(band: memoryview, width: int) -> list[float]:
    """How light each column of a band is, from 0 to 1."""
    sums = [0] * width
    for at, value in enumerate(band):
        sums[at // 3 % width] += value
    most = 255 * len(band) // width
    return [it / most for it in sums]


def of_lights(javascript: Any, rows: list[wasmrun.ObjectRef[list[float]]]) -> Any:
    """The arguments of a function of JavaScript: an array, as the interpreter reads values. Each of its elements is an `R`, its number
    among the objects, and the kind of object, whose length stands first: `p`, what a function of Python has returned."""
    elements = (bytes([ord("R"), at, 1, ord("p")]) for at in range(len(rows)))
    return javascript.Data(bytes=bytes([ord("l"), len(rows)]) + b"".join(elements), objects=rows, actors=[])


def main() -> None:
    render = wasmrun.load(GUESTS / "render.wasm")
    javascript = wasmrun.load(os.environ["WASMRUN_JAVASCRIPT"])
    band = render.band.options(strategy="spread")
    draw = javascript.call.options(name="draw", strategy="spread")

    bands = [band.remote(row, ROWS, WIDTH, ROWS * BAND_HEIGHT, SAMPLES) for row in range(ROWS)]
    rows = [lights.remote(it, WIDTH) for it in bands]
    program = javascript.Program.Text((HERE / "draw.js").read_text() + "return { draw };")
    picture = draw.remote(program, "draw", of_lights(javascript, rows))
    print(picture.get().printed, end="")


if __name__ == "__main__":
    with wasmrun.init():
        main()
