"""A service that runs code of strangers: POST a snippet, get what it leaves in `result` and what it prints.

    python examples/python/snippets.py [PORT]
    curl --data 'print("hi"); result = 6 * 7' localhost:8000

Each snippet has a fresh sandbox: 2 seconds, 128 MiB, no files, no network, no environment. With `--try` the service asks
itself a few things, some of them nasty, and ends.
"""

import json
import sys
import threading
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import wasmrun

MOST_CODE_BYTES = 100_000


def answer(code: str) -> dict[str, object]:
    """What became of a snippet, as JSON has it."""
    try:
        done = wasmrun.run(code, time_limit=2, memory="128MiB")
    except wasmrun.PythonError as error:
        return {"error": error.traceback, "stdout": error.stdout}
    except wasmrun.TaskError as error:
        return {"error": str(error)}
    return {"result": repr(done.result), "stdout": done.stdout}


class Service(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        length = int(self.headers.get("Content-Length", 0))
        if length > MOST_CODE_BYTES:
            self.send_error(413)
            return
        body = json.dumps(answer(self.rfile.read(length).decode(errors="replace"))).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


NASTY = [
    'print("hi"); result = 6 * 7',
    "while True: pass",
    'open("/etc/passwd")',
    "x = []\nwhile True: x.append(bytearray(1 << 20))",
    "import os; os._exit(1)",
]


def main() -> None:
    is_trial = "--try" in sys.argv
    port = int(next((it for it in sys.argv[1:] if it.isdigit()), 0 if is_trial else 8000))
    server = ThreadingHTTPServer(("127.0.0.1", port), Service)
    where = f"http://127.0.0.1:{server.server_port}"
    if not is_trial:
        print(f"listening at {where}")
        server.serve_forever()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    for code in NASTY:
        with urllib.request.urlopen(where, code.encode()) as told:
            said = json.load(told)
        last = str(said.get("error", said)).strip().splitlines()[-1]
        print(f"{code.splitlines()[-1]:<45} {last}")
    server.shutdown()


if __name__ == "__main__":
    with wasmrun.init():
        main()
