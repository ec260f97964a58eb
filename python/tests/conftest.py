"""Real parts only: the wheel that is installed, its own node, and the guests that the other tests use."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import wasmrun

GUESTS = Path(os.environ.get("WASMRUN_GUESTS", Path(__file__).parents[2] / "target" / "guests"))


def python(code, **env):
    """Runs a program of its own."""
    given = {**os.environ, **env}
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env=given,
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.fixture(scope="session")
def session():
    """A session whose node ends with it."""
    with wasmrun.init(node_options=["--node-cpus", "2", "--node-name", "own"]) as session:
        yield session


@pytest.fixture(scope="session")
def fixture(session):
    return session.load(GUESTS / "fixture.wasm")


@pytest.fixture(scope="session")
def graph(session):
    return session.load(GUESTS / "graph.wasm")


@pytest.fixture(scope="session")
def web(session):
    return session.load(GUESTS / "web.wasm")


@pytest.fixture(scope="session")
def orders(session):
    return session.load(GUESTS / "orders.wasm")


@pytest.fixture
def guests():
    return GUESTS


def pytest_configure(config):
    # A test that hangs says where.
    import faulthandler

    faulthandler.dump_traceback_later(300, exit=True)
