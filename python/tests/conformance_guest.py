"""What `tests/conformance/guests.json` asks of guests, by Python in sandboxes. Each of its rows is a function of the same name."""

import os

import wasmrun


def word(error):
    """How something failed, in the table's words."""
    for cls, said in (
        (wasmrun.GetTimeoutError, "timed-out"),
        (wasmrun.RefusedError, "refused"),
        (wasmrun.DependencyError, "dependency"),
        (wasmrun.GuestError, "guest"),
        (wasmrun.LimitError, "limit"),
        (wasmrun.TaskCancelledError, "cancelled"),
        (wasmrun.ActorDiedError, "actor-died"),
        (wasmrun.TaskError, "ended"),
    ):
        if isinstance(error, cls):
            return said
    return repr(error)


def said(call):
    """What a call gives, or in one word how it fails."""
    try:
        return str(call())
    except wasmrun.WasmrunError as error:
        return word(error)


@wasmrun.remote
def add(a, b):
    return a + b


@wasmrun.remote
def total(numbers):
    return sum(numbers)


@wasmrun.remote
def gather(futures):
    return sum(wasmrun.get(futures))


@wasmrun.remote
def fail(why):
    raise ValueError(why)


@wasmrun.remote
def end():
    os._exit(3)


@wasmrun.remote(time_limit=60)
def spin():
    while True:
        pass


@wasmrun.remote
def whoami():
    return wasmrun.task_id()


@wasmrun.remote
class Counter:
    def __init__(self, start):
        self.n = start

    def add(self, n):
        self.n += n
        return self.n

    def end(self):
        os._exit(3)


@wasmrun.remote
def spawn(a, b):
    return add.remote(a, b).get()


@wasmrun.remote
def futures(times):
    last = wasmrun.put(0)
    for _ in range(times):
        last = add.remote(last, 1)
    return last.get()


@wasmrun.remote
def put_and_get(numbers):
    return wasmrun.put(numbers).get()


@wasmrun.remote
def share(numbers):
    stored = wasmrun.put(numbers)
    return wasmrun.get([total.remote(stored), total.remote(stored)])


@wasmrun.remote
def pass_handles(count):
    return gather.remote([add.remote(n, 1) for n in range(count)]).get()


@wasmrun.remote
def wait_for_one():
    ready, rest = wasmrun.wait([spin.remote(), add.remote(1, 2)], num_returns=1)
    value = ready[0].get()
    wasmrun.cancel(rest)
    return [len(ready), len(rest), value]


@wasmrun.remote
def error_of(what):
    if what in ("cancel", "timeout"):
        ref = spin.remote()
        if what == "cancel":
            wasmrun.cancel(ref)
        told = said(lambda: ref.get(timeout=0.01 if what == "timeout" else None))
        wasmrun.cancel(ref)
        return told
    return said(
        {
            "fail": lambda: fail.remote("why").get(),
            "end": lambda: end.remote().get(),
            "limit": lambda: spin.options(time_limit=0.05).remote().get(),
            "argument": lambda: add.remote(fail.remote("why"), 1).get(),
            "resources": lambda: add.options(cpus=100_000).remote(1, 2).get(),
        }[what]
    )


@wasmrun.remote
def payload(why):
    try:
        return fail.remote(why).get()
    except ValueError as error:
        return error.args[0]


@wasmrun.remote
def pass_on(why):
    return fail.remote(why).get()


@wasmrun.remote
def count(times):
    counter = Counter.remote(0)
    return wasmrun.get([counter.add.remote(1) for _ in range(times)])


@wasmrun.remote
def count_by_future(a, b):
    return Counter.remote(0).add.remote(add.remote(a, b)).get()


@wasmrun.remote
def count_for(counter, times):
    wasmrun.get([counter.add.remote(1) for _ in range(times)])


@wasmrun.remote
def count_together(times):
    counter = Counter.remote(0)
    wasmrun.get([count_for.remote(counter, times), count_for.remote(counter, times)])
    return counter.add.remote(0).get()


@wasmrun.remote
def named(name):
    counter = Counter.options(name=name).remote(1)
    found = wasmrun.get_actor(name).add.remote(1).get()
    nobody = said(lambda: wasmrun.get_actor(f"{name}-nobody"))
    again = said(lambda: Counter.options(name=name).remote(1))
    wasmrun.kill(counter)
    return [str(found), nobody, again]


@wasmrun.remote
def killed():
    counter = Counter.remote(0)
    wasmrun.kill(counter)
    return said(lambda: counter.add.remote(1).get())


@wasmrun.remote
def begin_anew():
    counter = Counter.options(restarts=1).remote(10)
    before = counter.add.remote(1).get()
    said(lambda: counter.end.remote().get())
    return [before, counter.add.remote(1).get()]


@wasmrun.remote
def identity():
    own, other = wasmrun.task_id(), whoami.remote().get()
    return [len(own) == 32, own != other, wasmrun.node() != ""]
