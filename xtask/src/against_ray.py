"""The same cases on Ray and on wasmrun, in turn, as one table.

Run by `cargo xtask bench --against ray`, which installs Ray into a virtual environment of its own and
keeps both systems on the loopback of a network namespace. Usage: against_ray.py WASMRUN GUEST FLOW-GUEST [CASE…]

Each case is run several times, Ray and wasmrun one after the other, so that a machine whose speed drifts
treats both alike; what is shown is the median.
"""

import json
import os
import statistics
import subprocess
import sys
import time

import numpy as np
import ray

ROUNDS = 3
GIB = 1 << 30
IDLE_ACTORS = 20


def start():
    ray.init(
        num_cpus=os.cpu_count(),
        object_store_memory=4 * GIB,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="ERROR",
    )
    tasks_async()  # Its workers are there from now on.


@ray.remote
def noop():
    pass


@ray.remote
def spawn_many(count):
    ray.get([noop.remote() for _ in range(count)])


@ray.remote(num_cpus=0)
class Idler:
    def noop(self):
        pass

    def process(self):
        return os.getpid()


@ray.remote
def total(numbers):
    return float(numbers.sum())


def seconds(work):
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def median_seconds(work, times):
    return statistics.median(seconds(work) for _ in range(times))


def tasks_sync():
    return 300 / seconds(lambda: [ray.get(noop.remote()) for _ in range(300)])


def tasks_async():
    return 5_000 / seconds(lambda: ray.get([noop.remote() for _ in range(5_000)]))


def tasks_nested():
    return 5_000 / seconds(lambda: ray.get(spawn_many.remote(5_000)))


def actor_create():
    def create():
        actor = Idler.remote()
        ray.get(actor.noop.remote())
        ray.kill(actor)

    return median_seconds(create, 5) * 1e6


def with_actor(work):
    actor = Idler.remote()
    ray.get(actor.noop.remote())
    result = work(actor)
    ray.kill(actor)
    return result


def actor_sync():
    def calls(actor):
        return 1_000 / seconds(lambda: [ray.get(actor.noop.remote()) for _ in range(1_000)])

    return with_actor(calls)


def actor_async():
    def calls(actor):
        return 10_000 / seconds(lambda: ray.get([actor.noop.remote() for _ in range(10_000)]))

    return with_actor(calls)


def wait_1k():
    futures = [noop.remote() for _ in range(1_000)]
    ray.get(futures)
    return 1 / median_seconds(lambda: ray.wait(futures, num_returns=1_000), 5)


def put(size):
    data = np.full(size, 7, dtype=np.uint8)
    ray.put(data)

    def put_and_drop():
        ray.put(data)

    return size / median_seconds(put_and_drop, 5 if size >= 1 << 20 else 500) / 1e9


def have_free(size):
    """What is free a virtual machine may have given back to its host, which is not what is measured."""
    np.ones(size, dtype=np.uint8)


def put_first(size):
    """Into a store that nobody has touched: that of a session which has just begun."""
    data = np.full(size, 7, dtype=np.uint8)
    ray.shutdown()
    start()
    have_free(size)
    return size / seconds(lambda: ray.put(data)) / 1e9


def proportional_bytes(process):
    """What a process has in memory, with its part of what it shares."""
    with open(f"/proc/{process}/smaps_rollup") as rollup:
        kib = next(line.split()[1] for line in rollup if line.startswith("Pss:"))
    return int(kib) * 1024


def memory_actor():
    actors = [Idler.remote() for _ in range(IDLE_ACTORS)]
    processes = ray.get([actor.process.remote() for actor in actors])
    memory = sum(proportional_bytes(process) for process in processes)
    for actor in actors:
        ray.kill(actor)
    return memory / IDLE_ACTORS


def get(size):
    stored = ray.put(np.full(size, 7, dtype=np.uint8))
    return median_seconds(lambda: ray.get(stored), 200) * 1e6


def arg_100m():
    stored = ray.put(np.arange((100 << 20) // 8, dtype=np.float64))
    ray.get(total.remote(stored))
    return median_seconds(lambda: ray.get(total.remote(stored)), 5) * 1e3


CASES = {
    "tasks_sync": tasks_sync,
    "tasks_async": tasks_async,
    "tasks_nested": tasks_nested,
    "actor_create": actor_create,
    "actor_sync": actor_sync,
    "actor_async": actor_async,
    "wait_1k": wait_1k,
    "put_1k": lambda: put(1 << 10),
    "put_1m": lambda: put(1 << 20),
    "put_100m": lambda: put(100 << 20),
    "put_1g": lambda: put(GIB),
    "put_1g_first": lambda: put_first(GIB),
    "get_1k": lambda: get(1 << 10),
    "get_1m": lambda: get(1 << 20),
    "get_100m": lambda: get(100 << 20),
    "get_1g": lambda: get(GIB),
    "arg_100m_mapped": arg_100m,
    "memory_actor": memory_actor,
}

# Of these less is better.
COSTS = ("us", "ms", "bytes")


def wasmrun(binary, guests, name):
    guests = ["--module", guests[0], "--flow-module", guests[1]]
    command = [binary, "bench", name, "--runs", "1", *guests, "-o", "json"]
    result = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    row = result["results"][0]
    return row["value"], row["unit"]


def figure(value):
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def table(rows, version):
    """The lines of the table. A row is a case, its unit, and the figures of wasmrun and of Ray."""
    yield f"{'case':<16} {'unit':<5} {'wasmrun':>12} {'Ray ' + version:>12} {'times':>9}"
    for name, unit, our, their in rows:
        times = their / our if unit in COSTS else our / their
        yield f"{name:<16} {unit:<5} {figure(our):>12} {figure(their):>12} {figure(times):>9}"


def main():
    binary, guest, flow, *names = sys.argv[1:]
    unknown = [name for name in names if name not in CASES]
    if unknown:
        sys.exit(f"no such case on both: {', '.join(unknown)}; there are {', '.join(CASES)}")
    start()
    rows = []
    for name in names or CASES:
        ours, theirs = [], []
        for _ in range(ROUNDS):
            print(f"{name}…", file=sys.stderr, flush=True)
            theirs.append(CASES[name]())
            value, unit = wasmrun(binary, [guest, flow], name)
            ours.append(value)
        rows.append((name, unit, statistics.median(ours), statistics.median(theirs)))
    for line in table(rows, ray.__version__):
        print(line)
    ray.shutdown()


if __name__ == "__main__":
    main()
