"""What runs around the code that the tool `run_python` is given: it is itself a snippet, see `python.rs`.

Owns how inputs become variables, and the variable `result` JSON. What it leaves in its own `result` is a text of JSON:
`{"result": ..., "note": ...}`, or `{"raised": ...}` with a traceback of the given code alone. Runs in the sandbox.
"""

import inspect
import json
import linecache
import math
import traceback

FILE, OURS = "<code>", "<snippet>"
# Below what readers of JSON take.
MOST_NESTED = 60
MOST_SHOWN = 16 << 10


def shown(value, notes):
    """What JSON has no form for, as text."""
    notes.add(f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins."))
    text = repr(value)
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}..."


def text_of(value, notes):
    try:
        value.encode()
    except UnicodeEncodeError:
        notes.add("str with surrogates")
        return value.encode("utf-8", "backslashreplace").decode()
    return str(value)


def key_of(key, notes):
    return text_of(key, notes) if isinstance(key, str) else shown(key, notes)


def plain(value, notes, left=MOST_NESTED):
    """The value as JSON has it."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return text_of(value, notes)
    if isinstance(value, int) and -(2**63) <= value < 2**64:
        return int(value)
    if isinstance(value, float) and math.isfinite(value):
        return float(value)
    if left > 0 and isinstance(value, (list, tuple)):
        return [plain(item, notes, left - 1) for item in value]
    if left > 0 and isinstance(value, dict):
        named = {key_of(key, notes): plain(item, notes, left - 1) for key, item in value.items()}
        if len(named) == len(value):
            return named
    return shown(value, notes)


def answer(value):
    notes = set()
    answered = {"result": plain(value, notes)}
    if notes:
        answered["note"] = f"JSON has no form for these, and they are shown as Python writes them: {', '.join(sorted(notes))}"
    return json.dumps(answered)


def told(error, code):
    linecache.cache[FILE] = (len(code), None, code.splitlines(keepends=True), FILE)
    made = traceback.TracebackException.from_exception(error, limit=-40, compact=True)
    rest, seen = [made], set()
    while rest:
        one = rest.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        kept = [frame for frame in one.stack if frame.filename != OURS]
        one.stack = traceback.StackSummary.from_list(kept)
        rest += [one.__cause__, one.__context__]
    return json.dumps({"raised": "".join(made.format())})


def run(code, inputs):
    names = {"__name__": "__main__", "__builtins__": __builtins__} | json.loads(inputs)
    names.pop("result", None)
    try:
        try:
            exec(compile(code, FILE, "exec", dont_inherit=True), names)
        except SystemExit as end:
            if end.code not in (None, 0):
                raise
        value = names.get("result")
        return awaited(value, code) if inspect.iscoroutine(value) else answer(value)
    except BaseException as error:
        return told(error, code)


async def awaited(value, code):
    try:
        return answer(await value)
    except BaseException as error:
        return told(error, code)


result = run(code, inputs)  # noqa: F821
