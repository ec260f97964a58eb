"""The same cases on Ray and on wasmrun, in turn, as one table.

Run by `cargo xtask bench --against ray`, which installs Ray into a virtual environment of its own and
keeps both systems on the loopback of a network namespace. Usage: against_ray.py WASMRUN GUEST FLOW-GUEST [CASE…]

Those whose names begin with py_ are driven by our Python package; of these, py_inside_ run functions of Python.

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
import wasmrun as driver

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

OUR_START = "driver.load(guest).noop.remote().get()"
THEIR_START = """
ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
ray.get(ray.remote(lambda: None).remote())
"""


def py_init(package, work, guest):
    """From a Python that has imported the package to a first result, with a node of its own."""
    code = f"import {package}, sys, time\nguest = sys.argv[1]\nbegan = time.perf_counter()\n{work}\nprint(time.perf_counter() - began)"
    command = [sys.executable, "-c", code, guest]
    told = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    return float(told.stdout.split()[-1]) * 1e3


@driver.remote
def inside_noop():
    pass


@driver.remote(cpus=0)
class InsideIdler:
    def noop(self):
        pass


def p50_us(work, times):
    return median_seconds(work, times) * 1e6


def rate(work, times):
    return times / seconds(lambda: driver.get([work() for _ in range(times)]))


def py_inside_actor():
    actor = InsideIdler.remote()
    actor.noop.remote().get()
    took = p50_us(lambda: actor.noop.remote().get(), 2_000)
    driver.kill(actor)
    return took


def py_inside_memory():
    node = driver._api._session()._node._process.pid
    actors = [InsideIdler.remote() for _ in range(IDLE_ACTORS)]
    before = proportional_bytes(node)
    actors += [InsideIdler.remote() for _ in range(IDLE_ACTORS)]
    driver.get([actor.noop.remote() for actor in actors])
    memory = proportional_bytes(node) - before
    for actor in actors:
        driver.kill(actor)
    return memory / IDLE_ACTORS


def py_put_1g():
    data = np.full(GIB // 4, 7, dtype=np.float32)
    driver.put(data)
    return GIB / median_seconds(lambda: driver.put(data), 3) / 1e9


def py_get_1g():
    stored = driver.put(np.full(GIB // 4, 7, dtype=np.float32))
    return p50_us(lambda: stored.get(), 200)


def ray_sync():
    ray.get(noop.remote())


def typed_async(guest):
    return rate(driver.load(guest).noop.remote, 20_000)


def typed_sync(guest):
    call = driver.load(guest).noop.remote
    return p50_us(lambda: call().get(), 1_000)


def inside_sync():
    return p50_us(lambda: inside_noop.remote().get(), 300)


# The unit, our figure of the guest, and Ray's.
PYTHON_CASES = {
    "py_init": ("ms", lambda guest: py_init("wasmrun as driver", OUR_START, guest), lambda: py_init("ray", THEIR_START, "")),
    "py_tasks_async": ("1/s", typed_async, tasks_async),
    "py_tasks_sync": ("us", typed_sync, lambda: p50_us(ray_sync, 300)),
    "py_put_1g": ("GB/s", lambda _: py_put_1g(), lambda: put(GIB)),
    "py_get_1g": ("us", lambda _: py_get_1g(), lambda: get(GIB)),
    "py_inside_async": ("1/s", lambda _: rate(inside_noop.remote, 1_000), tasks_async),
    "py_inside_sync": ("us", lambda _: inside_sync(), lambda: p50_us(ray_sync, 300)),
    "py_inside_actor": ("us", lambda _: py_inside_actor(), lambda: 1e6 / actor_sync()),
    "py_inside_memory": ("bytes", lambda _: py_inside_memory(), memory_actor),
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
    os.environ["WASMRUN_BIN"] = binary
    every = [*CASES, *PYTHON_CASES]
    unknown = [name for name in names if name not in every]
    if unknown:
        sys.exit(f"no such case on both: {', '.join(unknown)}; there are {', '.join(every)}")
    start()
    rows = []
    for name in names or every:
        ours, theirs = [], []
        for _ in range(ROUNDS):
            print(f"{name}…", file=sys.stderr, flush=True)
            if name in PYTHON_CASES:
                unit, our, their = PYTHON_CASES[name]
                theirs.append(their())
                ours.append(our(guest))
            else:
                theirs.append(CASES[name]())
                value, unit = wasmrun(binary, [guest, flow], name)
                ours.append(value)
        rows.append((name, unit, statistics.median(ours), statistics.median(theirs)))
    for line in table(rows, ray.__version__):
        print(line)
    ray.shutdown()


if __name__ == "__main__":
    main()
