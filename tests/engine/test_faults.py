"""No thread ends quietly: after an error in its loop it goes on, or whoever depends on it ends with that error.

Each test raises every kind of error once, in one loop of the scheduler, a pilot, its connection, a host or a transport.
"""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection as Pipe
from multiprocessing.connection import Listener
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import bakeoff.engine
from bakeoff.engine.executors.ray import host as host_module
from bakeoff.engine.executors.ray.host import Envelope, Host, HostLink
from bakeoff.engine.node import worker
from bakeoff.engine.node.enclosure import open_enclosure, start_keeper
from bakeoff.engine.pilots import connection as connection_module
from bakeoff.engine.pilots import pilot as pilot_module
from bakeoff.engine.pilots.arrivals import checkpoint_unchanged
from bakeoff.engine.pilots.attachments import Attachments
from bakeoff.engine.pilots.connection import Connection
from bakeoff.engine.pilots.messages import Bye, Downward, Hello, Order, Orders, Quit, Report, Upward
from bakeoff.engine.pilots.pilot import Pilot, run_pilot
from bakeoff.engine.pilots.transport import PilotSetup
from bakeoff.engine.scheduler import Scheduler
from bakeoff.errors import BakeoffError
from bakeoff.records.codefiles import code_digest
from bakeoff.records.layout import EditionPaths
from bakeoff.records.run import Attempt
from support.processes import Lab, eventually


class Odd(BaseException):
    """What nobody expects."""


ERRORS = (MemoryError, RecursionError, OverflowError, OSError, ValueError, Odd)


@pytest.fixture(params=ERRORS, ids=lambda kind: kind.__name__)
def error(request: pytest.FixtureRequest) -> BaseException:
    made: BaseException = request.param("injected")
    return made


class Once:
    """A function that raises `error` the first time, and then does what `then` does."""

    def __init__(self, error: BaseException, then: Callable[..., Any] = lambda *given, **named: None) -> None:
        self._error, self._then = error, then
        self.calls = 0

    def __call__(self, *given: Any, **named: Any) -> Any:
        self.calls += 1
        if self.calls == 1:
            raise self._error
        return self._then(*given, **named)


class QuietLink:
    """A link to a scheduler that says what is `coming`, and then nothing."""

    def __init__(self) -> None:
        self.sent: list[Upward] = []
        self.coming: list[Downward] = []

    def exchange(self, messages: Sequence[Upward]) -> list[Downward]:
        self.sent += messages
        coming, self.coming = self.coming, []
        return coming

    def fetch(self, name: str, directory: Path) -> None: ...

    def deliver(self, token: str, directory: Path) -> None: ...

    def save(self, token: str, directory: Path) -> None: ...


def in_thread(target: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=target, daemon=True)
    thread.start()
    return thread


# -- the scheduler


def test_an_error_in_the_schedulers_loop_ends_the_session_and_the_next_one_does_the_rest(
    lab: Lab, error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.experiment("seeds = 3\nparams = { command = 'true' }\n")
    with monkeypatch.context() as patch:
        patch.setattr(Scheduler, "_tick", Once(error))
        with pytest.raises(type(error), match="injected"):
            lab.run()
    assert lab.edition().sessions()[-1]["ended"] == "failed"
    assert not lab.processes()
    assert lab.run().complete and lab.statuses() == {"succeeded": 3}


# -- a pilot


@pytest.fixture
def setup(tmp_path: Path) -> Iterator[PilotSetup]:
    handler = signal.getsignal(signal.SIGTERM)
    yield PilotSetup(
        workload="command", dialect="native", experiment="trial", edition="x", base=str(tmp_path), slots=1, limits={},
        resources={}, gpus=None, env={}, fresh=False, checkpoints=True, settle_after=1, code=code_digest(tmp_path, None),
        unreachable=30.0,
    )  # fmt: skip
    signal.signal(signal.SIGTERM, handler)


@pytest.mark.parametrize("place", ["_save", "_beat", "_start"])
def test_an_error_in_a_pilots_loop_is_the_last_word_of_the_pilot(
    place: str, setup: PilotSetup, error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Pilot, place, Once(error))
    link = QuietLink()
    assert "injected" in run_pilot(setup, link, "1-1")
    hello, *_, bye = link.sent
    assert isinstance(hello, Hello) and isinstance(bye, Bye)
    assert not bye.expected and "injected" in bye.why


def test_a_pilot_that_cannot_exchange_messages_any_more_leaves_with_the_error(
    setup: PilotSetup, error: BaseException
) -> None:
    link = QuietLink()
    exchange = Once(error, link.exchange)
    link.exchange = exchange  # type: ignore[method-assign]
    if isinstance(error, OSError):  # a network file system that was away

        def ended_from_outside(*arguments: Any) -> Any:
            answer = exchange(*arguments)  # raises once
            if signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
                os.kill(os.getpid(), signal.SIGTERM)
            return answer

        link.exchange = ended_from_outside  # type: ignore[method-assign]
        assert run_pilot(setup, link, "1-1") == "terminated"
        assert isinstance(link.sent[0], Hello)
    else:
        assert "injected" in run_pilot(setup, link, "1-1")


def report(token: str) -> Report:
    attempt = Attempt(0, "a__s0__000000000000", 0, "a", "default", 0, 0, 1, status="succeeded")
    return Report(token, attempt, True)


@pytest.mark.parametrize("place", ["deliver", "make_readable", "remove"])
def test_an_error_while_a_directory_is_carried_is_reported_and_the_next_one_is_carried(
    place: str, tmp_path: Path, error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A claim whose report is never sent would be named in every sign of life, and never expire."""
    link = QuietLink()
    if place == "deliver":
        link.deliver = Once(error, link.deliver)  # type: ignore[method-assign]
    else:
        monkeypatch.setattr(connection_module, place, Once(error, getattr(connection_module, place)))
        link.deliver = Once(PermissionError("closed"), link.deliver)  # type: ignore[method-assign]
    connection = Connection(link)
    for token in ("1", "2"):
        (tmp_path / token).mkdir()
        connection.deliver(report(token), tmp_path / token)
    eventually(lambda: not connection.carrying and len(link.sent) == 2)
    assert [sent.token for sent in link.sent if isinstance(sent, Report)] == ["1", "2"]
    connection.close(5.0)


def test_a_pilot_whose_transfer_hangs_for_ever_leaves_and_says_what_is_lost(
    setup: PilotSetup, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It names the claim in every sign of life, so the claim would never expire."""
    monkeypatch.setattr(connection_module, "_TRANSFER_LASTS", 0.2)
    hangs = threading.Event()
    link = QuietLink()
    link.deliver = lambda token, directory: hangs.wait() and None  # type: ignore[method-assign]
    pilot = Pilot(setup, link, "1-1")
    pilot._connection.deliver(report("hangs"), pilot._scratch.path / "leaving")
    assert "could not be brought home" in pilot.run()
    bye = link.sent[-1]
    assert isinstance(bye, Bye) and bye.lost == ["hangs"]
    hangs.set()


def test_a_run_whose_checkpoint_never_comes_home_says_so(setup: PilotSetup, monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkpoint that changes during every copy is dropped each time: a lost run would begin again, unexpectedly."""
    monkeypatch.setattr(pilot_module, "_PATIENCE", 0.1)
    params = json.dumps({"command": "for i in 1 2 3 4 5 6 7 8 9; do echo $i > {checkpoint}/state; sleep 0.3; done"})
    attempt = Attempt(0, "a__s0__000000000000", 0, "a", "default", 0, 0, 1, params=params)
    link = QuietLink()
    link.coming = [Orders([Order("1.0.1.0000000000000000", attempt)]), Quit()]

    def save(token: str, directory: Path) -> None:
        with checkpoint_unchanged(directory):
            (directory / "checkpoint" / "state").write_text("longer than before")

    link.save = save  # type: ignore[method-assign]
    assert run_pilot(setup, link, "1-1") == "nothing left to do"
    (report,) = (sent for sent in link.sent if isinstance(sent, Report))
    assert report.attempt.status == "succeeded"
    assert "no copy of its checkpoint came home" in (report.attempt.error or "")


# -- the host of a pilot on Ray


@pytest.fixture
def host() -> Iterator[Host]:
    host = Host("1-1")
    yield host
    host.leave()


def test_a_host_goes_on_asking_for_the_control_plane(
    host: Host, error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    internal_kv = pytest.importorskip("ray.experimental.internal_kv")
    ask = Once(error)
    monkeypatch.setattr(internal_kv, "_internal_kv_exists", ask)
    monkeypatch.setattr(host_module, "_PROBE", 0.01)
    host._reached = 0.0
    in_thread(host._probe)
    eventually(lambda: host._reached > 0.0)


def test_a_host_goes_on_accepting_connections(host: Host, tmp_path: Path, error: BaseException) -> None:
    with Listener(str(tmp_path / "socket"), "AF_UNIX", authkey=b"key") as listener:
        in_thread(lambda: host._accept(SimpleNamespace(accept=Once(error, listener.accept))))  # type: ignore[arg-type]
        assert HostLink(str(tmp_path / "socket"), "key", tmp_path).exchange([]) == []


def test_a_host_that_cannot_answer_hangs_up_and_answers_over_the_next_connection(
    host: Host, tmp_path: Path, error: BaseException
) -> None:
    """Otherwise the thread of the pilot that asked would wait for ever."""
    host._pilot_exchange = Once(error, host._pilot_exchange)  # type: ignore[method-assign]
    with Listener(str(tmp_path / "socket"), "AF_UNIX", authkey=b"key") as listener:
        accepted: list[Pipe[Any, Any]] = []  # held here: nothing but the host itself closes them

        def accept() -> Pipe[Any, Any]:
            accepted.append(listener.accept())
            return accepted[-1]

        in_thread(lambda: host._accept(SimpleNamespace(accept=accept)))  # type: ignore[arg-type]
        link = HostLink(str(tmp_path / "socket"), "key", tmp_path)
        with pytest.raises(ConnectionError):
            link.exchange([])
        assert link.exchange([]) == []


def test_a_host_that_cannot_watch_its_pilot_ends(
    host: Host, error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It holds CPUs of the cluster."""
    exits: list[int] = []
    monkeypatch.setattr(host, "_outlast_pilot", Once(error))
    monkeypatch.setattr(host_module.os, "_exit", exits.append)
    host._watch()
    assert exits == [0]


def test_a_pilot_leaves_when_it_cannot_see_its_host_any_more(
    error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends: list[object] = []
    monkeypatch.setattr(host_module.os, "read", Once(error))
    monkeypatch.setattr(host_module.os, "kill", lambda *given: ends.append(given))
    monkeypatch.setattr(host_module.os, "_exit", ends.append)
    monkeypatch.setattr(host_module, "_LEAVING", 0.0)
    host_module._leave_with_host()
    assert ends == [(os.getpid(), signal.SIGTERM), 1]


# -- the scheduler's end of the wire to Ray


class Actor:
    """A host whose calls return at once and whose answers never come."""

    def __init__(self) -> None:
        self.poll = self.post = self.read = self.taken = self.give = self
        self.calls = 0

    def remote(self, *given: Any) -> object:
        self.calls += 1
        return object()


@pytest.fixture
def transport(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    module = pytest.importorskip("bakeoff.engine.executors.ray.transport")
    monkeypatch.setattr(module.ray, "wait", lambda references, **named: (time.sleep(0.01) or [], references))
    transport = module.RayTransport(EditionPaths(tmp_path), Attachments(tmp_path, []))
    yield transport
    transport.pause()


def ends_with(transport: Any, error: BaseException) -> bool:
    try:
        transport.receive()
    except BakeoffError as raised:
        return raised.__cause__ is error
    return False


def test_an_error_in_the_thread_that_waits_for_ray_ends_the_session(
    transport: Any, error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = pytest.importorskip("bakeoff.engine.executors.ray.transport")
    monkeypatch.setattr(module.ray, "wait", Once(error, module.ray.wait))
    transport.attach("1-1", Actor())
    eventually(lambda: ends_with(transport, error))


@pytest.mark.parametrize("kind", ["fetch", "deliver"])
def test_an_error_in_the_thread_that_carries_ends_the_session_or_the_next_directory_is_carried(
    kind: str, transport: Any, error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    carry = Once(error)
    monkeypatch.setattr(transport, "_give" if kind == "fetch" else "_pull", carry)
    transport.actors["1-1"] = Actor()
    for number in (1, 2):
        transport._transfers.put(("1-1", Envelope(kind, token=str(number), archive="archive")))
    eventually(lambda: carry.calls == 2 or ends_with(transport, error))


# -- the second thread of a worker


def test_a_worker_goes_on_writing_what_runs_log(error: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "_HOUSEKEEPING", 0.001)
    settle = Once(error)
    process = SimpleNamespace(
        _lock=threading.Lock(),
        _context=SimpleNamespace(path="run", flush=lambda: None),
        _began=0.0,
        _setup=SimpleNamespace(settle_after=0.0),
        _capture=SimpleNamespace(settle=settle),
    )
    in_thread(lambda: worker.Worker._keep_house(process))  # type: ignore[arg-type]
    eventually(lambda: settle.calls > 2)
    process._context = None


# -- the thread that spawns commands in their namespace


def test_an_error_while_a_command_is_spawned_reaches_the_caller_and_the_next_one_is_spawned(
    error: BaseException,
) -> None:
    enclosure = open_enclosure(start_keeper(os.environ))
    if enclosure is None:
        pytest.skip("no namespaces here")
    spawn = Once(error, lambda: 7)
    try:
        with pytest.raises(type(error), match="injected"):
            enclosure.spawn(spawn)
        assert enclosure.spawn(spawn) == 7
    finally:
        enclosure.close()


def test_every_thread_of_the_engine_has_an_error_raised_in_it_here() -> None:
    """Whoever starts another thread writes a test above, and counts it."""
    places = {path: path.read_text().count("Thread(") for path in Path(bakeoff.engine.__file__).parent.rglob("*.py")}
    assert {path.name: number for path, number in places.items() if number} == {
        "enclosure.py": 1, "worker.py": 1, "connection.py": 1, "host.py": 5, "transport.py": 1,
    }  # fmt: skip
