"""Real parts shared by all tests."""

from __future__ import annotations

import errno
import gc
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import numpy as np
import psycopg
import pytest
from hypothesis import HealthCheck, settings

from bakeoff.sandbox.base import UNSANDBOXED, VARIABLE
from support import editions
from support.processes import Lab

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # Started in the background: every child would inherit it, and tests of Ctrl-C would wait forever.
    signal.signal(signal.SIGINT, signal.default_int_handler)

# A version manager's `python3` is a script, which takes seven times as long to start as the interpreter behind it.
if (found := shutil.which("python3")) and Path(found).read_bytes()[:2] == b"#!":
    os.environ["PATH"] = f"{Path(sys.base_prefix, 'bin')}{os.pathsep}{os.environ['PATH']}"

# A busy machine is slow, which says nothing about what is tested.
settings.register_profile("suite", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("suite")


@pytest.hookimpl(tryfirst=True)  # before tests are deselected by their markers
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A test with a PostgreSQL database needs the server's programs."""
    for item in items:
        if "postgres_url" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.apt)


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[Callable[[], str]]:
    """`postgres_url()` creates an empty database on a real server and returns its URL.

    Each xdist worker that asks has a server of its own, on a unix socket: no port, so nothing to collide.
    """
    programs = _postgres_programs()
    # A socket's path may have 107 bytes: pytest's own temporary directories are too deep.
    home = Path(tempfile.mkdtemp(prefix="pg-", dir="/tmp"))
    as_user = ["setpriv", "--pdeathsig=INT"]  # the server stops even when pytest is killed
    if os.geteuid() == 0:  # PostgreSQL refuses to run as root
        shutil.chown(home, "postgres")
        as_user += ["--reuid=postgres", "--regid=postgres", "--clear-groups"]
    try:
        initdb = [programs / "initdb", "-D", home / "data", "-A", "trust", "-U", "postgres", "-E", "UTF8"]
        subprocess.run([*as_user, *initdb, "--no-locale", "--no-sync"], cwd=home, check=True, stdout=subprocess.DEVNULL)
        settings = ["-c", "listen_addresses=", "-c", "fsync=off", "-c", "shared_buffers=16MB"]
        with (home / "log").open("wb") as log:
            server = subprocess.Popen(
                [*as_user, programs / "postgres", "-D", home / "data", "-k", home, *settings],
                cwd=home,
                stdout=log,
                stderr=log,
            )
        try:
            url = "postgresql://postgres@/{}?host=" + str(home)
            _wait_until_ready(url.format("postgres"), server, home / "log")
            numbers = count(1)

            def fresh_database() -> str:
                name = f"test_{next(numbers)}"
                with psycopg.connect(url.format("postgres"), autocommit=True) as connection:
                    connection.execute(f"CREATE DATABASE {name}")
                return url.format(name)

            yield fresh_database
        finally:
            server.send_signal(signal.SIGINT)  # fast shutdown: open connections are ended
            server.wait(timeout=30)
    finally:
        shutil.rmtree(home)


@pytest.fixture(autouse=True)
def same_numbers_in_any_order(request: pytest.FixtureRequest) -> None:
    """A module's `RNG` starts anew for each test: what it draws does not depend on which tests ran before."""
    rng = getattr(request.module, "RNG", None)
    if rng is not None:
        rng.bit_generator.state = np.random.PCG64(rng.bit_generator.seed_seq).state


@pytest.fixture(autouse=True)
def the_chosen_sandbox_is_forgotten() -> Iterator[None]:
    """`run --sandbox` tells workers through the environment, and so it would tell the tests that come after."""
    before = {name: os.environ.get(name) for name in (VARIABLE, UNSANDBOXED)}
    yield
    for name, value in before.items():
        os.environ.pop(name, None)
        if value is not None:
            os.environ[name] = value


_closed_twice: list[str] = []
"""Where a descriptor was closed that was not open: had its number been used again, another file would have been closed."""
_close = os.close


def _noting_close(fd: int) -> None:
    try:
        _close(fd)
    except OSError as error:
        if error.errno == errno.EBADF:
            _closed_twice.append("".join(traceback.format_stack(limit=6)))
        raise


os.close = _noting_close


@pytest.fixture(autouse=True)
def nobody_closes_what_is_not_theirs() -> Iterator[None]:
    yield
    assert not _closed_twice, f"a descriptor that was not open was closed here:\n{_closed_twice.pop()}"


@pytest.fixture(autouse=True)
def no_edition_stays_open() -> Iterator[None]:
    yield
    while editions.MADE:
        editions.MADE.pop().close()


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    """A place to run experiments in. The test fails when a process of it is left at the end."""
    with Lab(tmp_path) as lab:
        yield lab


def _postgres_programs() -> Path:
    """The directory of the newest installed server's programs."""
    installed = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    if not installed:
        pytest.fail("PostgreSQL is not installed: run `make test`, or scripts/install-postgres.sh", pytrace=False)
    return installed[-1].parent


def _wait_until_ready(url: str, server: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 30
    while True:
        try:
            psycopg.connect(url).close()
            return
        except psycopg.OperationalError:
            if server.poll() is not None or time.monotonic() > deadline:
                pytest.fail(f"PostgreSQL did not start:\n{log.read_text(errors='replace')}", pytrace=False)
            time.sleep(0.02)


@pytest.fixture
def untraced() -> Iterator[None]:
    """For tests that look at the clock, or run for long: coverage does not look on, and garbage is looked for in new objects only.

    Looking through all that earlier tests left in this process takes a second of processor time.
    """
    tracer = sys.gettrace()
    sys.settrace(None)
    gc.freeze()
    yield
    gc.unfreeze()
    sys.settrace(tracer)
