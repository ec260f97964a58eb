"""Estimates pi by throwing darts: the Monte Carlo program that tutorials of Ray begin with, in sandboxes.

    python examples/python/monte_carlo.py [TASKS [THROWS]]

Each task is a function of this file in a fresh CPython of its own. An actor counts how far they are.
"""

import random
import sys
import time

import wasmrun


class Progress:
    """How many throws each task has made."""

    def __init__(self, throws: int):
        self.throws = throws
        self.made: dict[int, int] = {}

    def report(self, task: int, made: int) -> None:
        self.made[task] = made

    def fraction(self) -> float:
        return sum(self.made.values()) / self.throws


@wasmrun.remote
def throw(task: int, throws: int, progress: wasmrun.PythonActor) -> int:
    """How many of so many darts hit the circle."""
    chance = random.Random(task)
    hits = 0
    for made in range(1, throws + 1):
        x, y = chance.random(), chance.random()
        hits += x * x + y * y <= 1
        if made % 20_000 == 0 or made == throws:
            progress.report.remote(task, made)
    return hits


def main() -> None:
    tasks, throws = (int(it) for it in (sys.argv[1:] + ["8", "100000"])[:2])
    # As a decorator it would do as well; mypy understands it so.
    progress = wasmrun.remote(Progress).options(cpus=0).remote(tasks * throws)
    refs = [throw.remote(task, throws, progress) for task in range(tasks)]
    while len(wasmrun.wait(refs, num_returns=tasks, timeout=0.5)[0]) < tasks:
        print(f"{progress.fraction.remote().get():4.0%} of the darts are thrown", flush=True)
    pi = 4 * sum(wasmrun.get(refs)) / (tasks * throws)
    print(f"pi is about {pi:.4f}, after {tasks * throws:,} darts")


if __name__ == "__main__":
    began = time.perf_counter()
    with wasmrun.init():
        main()
    print(f"{time.perf_counter() - began:.1f} s in all")
