"""The same answer by several HTTP servers, in turn, as one table or as JSON.

Run by `cargo xtask bench --against serve`, which installs the servers and keeps them on the loopback of a network
namespace. Usage: against_serve.py [-o json] MODULE NAME=PROGRAM…

`hyper` is xtask/examples/bare_http.rs, `wasmrun` and `wasmtime` run the module, `ray` is a Python with Ray Serve. One
runs at a time, with its own defaults and without an access log. wrk sends each request when its connection has got the
answer to the one before. What is shown is the median of the rounds.
"""

import contextlib
import json
import os
import platform
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

HOST, PORT = "127.0.0.1", 8000
ANSWER = b"hello\n"
ROUNDS = 3
CONNECTIONS = (32, 1)
WARM_UP_S, MEASURE_S = 2, 10
PATIENCE_S = 120  # For a server to answer first, and to end.
PAUSE_S = 0.05
UNITS_US = {"us": 1, "ms": 1e3, "s": 1e6, "m": 60e6, "h": 3600e6}


def command(name, program, module):
    address = f"{HOST}:{PORT}"
    return {
        "hyper": [program, address],
        "wasmrun": [program, "serve", module, "--listen", address, "--quiet"],
        # What Rust's standard library imports is more than the world of a proxy has.
        "wasmtime": [program, "serve", "-S", "cli", "--addr", address, module],
        "ray": [program, os.path.abspath(__file__), "--ray"],
    }[name]


def serve_with_ray():
    """Answers until standard input ends."""
    import ray
    from ray import serve
    from starlette.responses import PlainTextResponse

    quiet = {"enable_access_log": False, "log_level": "ERROR"}
    text = ANSWER.decode()

    # By default a replica takes five requests at a time, which keeps connections waiting.
    @serve.deployment(max_ongoing_requests=1000)
    class Hello:
        async def __call__(self, request):
            return PlainTextResponse(text)

    ray.init(
        num_cpus=os.cpu_count(),
        object_store_memory=256 << 20,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="ERROR",
    )
    serve.start(http_options={"host": HOST, "port": PORT}, logging_config=quiet)
    serve.run(Hello.bind(), route_prefix="/hello", logging_config=quiet)
    sys.stdin.read()
    serve.shutdown()
    ray.shutdown()


def url():
    return f"http://{HOST}:{PORT}/hello"


def wait_for(name, is_there):
    deadline = time.monotonic() + PATIENCE_S
    while not is_there():
        if time.monotonic() > deadline:
            raise RuntimeError(f"{name}: nothing for {PATIENCE_S} s")
        time.sleep(PAUSE_S)


def answers(name, server):
    """Whether a server answers yet. It must be what the others answer."""
    if server.poll() is not None:
        raise RuntimeError(f"{name} has ended")
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with direct.open(url(), timeout=PATIENCE_S) as response:
            answer = response.read()
    except OSError:  # Nobody listens yet, or knows the path.
        return False
    if answer != ANSWER:
        raise RuntimeError(f"{name} answers {answer!r}, not {ANSWER!r}")
    return True


def is_gone():
    with socket.socket() as probe:
        return probe.connect_ex((HOST, PORT)) != 0


@contextlib.contextmanager
def running(name, command, folder):
    """A server that answers, and has gone afterwards. Its log is shown if something goes wrong."""
    environment = dict(os.environ, XDG_RUNTIME_DIR=folder)  # No node is there, so that ours serves.
    environment.pop("WASMRUN_ADDRESS", None)
    with open(os.path.join(folder, f"{name}.log"), "w+") as log:
        server = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=log, env=environment
        )
        try:
            wait_for(name, lambda: answers(name, server))
            yield
        except Exception:
            log.seek(0)
            sys.stderr.write(log.read())
            raise
        finally:
            server.stdin.close()
            if name != "ray":
                server.terminate()
            try:
                server.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()
    wait_for(f"the end of {name}", is_gone)


def load(connections, seconds):
    """What wrk prints of so many connections."""
    wrk = ["wrk", "--threads", "1", "--connections", str(connections)]
    wrk += ["--duration", f"{seconds}s", "--latency", url()]
    return subprocess.run(wrk, check=True, stdout=subprocess.PIPE, text=True).stdout


def figures(said):
    """The figures in what wrk prints: requests per second, two percentiles of their times, and how many failed."""
    rate = re.search(r"^Requests/sec: +([\d.]+)$", said, re.M)
    times = re.findall(r"^ +(\d+)% +([\d.]+)(us|ms|s|m|h) *$", said, re.M)
    times = {percent: float(time) * UNITS_US[unit] for percent, time, unit in times}
    if not rate or not {"50", "99"} <= times.keys():
        raise RuntimeError(f"wrk prints what this script cannot read:\n{said}")
    failures = re.findall(r"^ +(?:Socket errors|Non-2xx or 3xx responses): (.*)$", said, re.M)
    return {
        "value": float(rate[1]),
        "p50_us": times["50"],
        "p99_us": times["99"],
        "failed": sum(int(count) for line in failures for count in re.findall(r"\d+", line)),
    }


def measure(name, command, folder):
    """The figures of one turn, by the number of connections."""
    found = {}
    with running(name, command, folder):
        for connections in CONNECTIONS:
            load(connections, WARM_UP_S)
            found[connections] = figures(load(connections, MEASURE_S))
    return found


def summary(name, connections, rounds):
    def median(key):
        return statistics.median(it[key] for it in rounds)

    return {
        "name": name,
        "connections": connections,
        "value": median("value"),
        "unit": "1/s",
        "runs": [it["value"] for it in rounds],
        "p50_us": median("p50_us"),
        "p99_us": median("p99_us"),
        "failed": sum(it["failed"] for it in rounds),
    }


def figure(value):
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def table(results):
    """The lines of the table. `times` is how many times as many requests wasmrun answers."""
    ours = {it["connections"]: it["value"] for it in results if it["name"] == "wasmrun"}
    columns = "{:>11}  {:<9} {:>11} {:>9} {:>9} {:>7} {:>7}"
    yield columns.format("connections", "server", "requests/s", "p50 us", "p99 us", "failed", "times")
    for it in results:
        our = ours.get(it["connections"])
        shown = [figure(it[key]) for key in ("value", "p50_us", "p99_us")]
        times = figure(our / it["value"]) if our and it["value"] else "-"
        yield columns.format(it["connections"], it["name"], *shown, it["failed"], times)


def machine():
    with open("/proc/cpuinfo") as file:
        model = re.search(r"^model name\s*: (.*)$", file.read(), re.M)
    return {
        "cpus": os.cpu_count(),
        "cpu_model": model[1] if model else "unknown CPU",
        "kernel": platform.release(),
    }


def main(arguments):
    is_json = arguments[:2] == ["-o", "json"]
    module, *servers = arguments[2:] if is_json else arguments
    servers = dict(server.split("=", 1) for server in servers)
    rounds = []
    with tempfile.TemporaryDirectory() as folder:
        for at in range(ROUNDS):
            rounds.append({})
            for name, program in servers.items():
                print(f"{name}, round {at + 1} of {ROUNDS}…", file=sys.stderr, flush=True)
                rounds[-1][name] = measure(name, command(name, program, module), folder)
    results = [
        summary(name, connections, [it[name][connections] for it in rounds])
        for connections in CONNECTIONS
        for name in servers
    ]
    here = machine()
    if is_json:
        print(json.dumps({"version": 1, "machine": here, "results": results}))
        return
    for line in table(results):
        print(line)
    print(
        f"{here['cpus']} CPUs ({here['cpu_model']}), Linux {here['kernel']}. wrk has no CPUs of its own: what it takes the "
        "server lacks. Compare figures of one run only.",
        file=sys.stderr,
    )


if __name__ == "__main__":
    if sys.argv[1:] == ["--ray"]:
        serve_with_ray()
    else:
        main(sys.argv[1:])
