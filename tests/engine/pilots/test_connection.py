"""No thread of a pilot's connection ends without a word: a run gets a result, or the pilot learns that it cannot go on."""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from bakeoff.engine.pilots.connection import Connection
from bakeoff.engine.pilots.messages import Downward, Order, Report, Upward
from bakeoff.records.run import Attempt
from support.processes import eventually

ERRORS = [RecursionError("too deep"), OverflowError("too late"), ValueError("odd"), MemoryError("too much")]


class FaultyLink:
    """A link whose methods raise `error`, those of `faulty`."""

    def __init__(self, error: BaseException, *faulty: str) -> None:
        self._error, self._faulty = error, faulty
        self.sent: list[Upward] = []

    def _may_fail(self, method: str) -> None:
        if method in self._faulty:
            raise self._error

    def exchange(self, messages: Sequence[Upward]) -> list[Downward]:
        self._may_fail("exchange")
        self.sent += messages
        return []

    def fetch(self, name: str, directory: Path) -> None:
        self._may_fail("fetch")

    def deliver(self, token: str, directory: Path) -> None:
        self._may_fail("deliver")

    def save(self, token: str, directory: Path) -> None:
        self._may_fail("save")


def attempt() -> Attempt:
    return Attempt(0, "a__s0__000000000000", 0, "a", "default", 0, 0, 1, status="succeeded")


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_whatever_goes_wrong_with_a_directory_is_the_runs_result_and_the_next_one_is_carried(
    error: Exception, tmp_path: Path
) -> None:
    link = FaultyLink(error, "deliver", "save", "fetch")
    connection = Connection(link)
    connection.save("1", tmp_path)
    connection.fetch(Order("2", attempt(), True), tmp_path / "fetched", tmp_path / "cache")
    for token in ("3", "4"):
        (tmp_path / token).mkdir()
        connection.deliver(Report(token, attempt(), True), tmp_path / token)
    eventually(lambda: len(link.sent) == 2 and not connection.carrying)
    reports = [message for message in link.sent if isinstance(message, Report)]
    assert [report.token for report in reports] == ["3", "4"]
    for report in reports:
        assert (report.attempt.status, report.directory) == ("infra_error", False)
        assert type(error).__name__ in (report.attempt.error or "")
    ((order, fetched),) = connection.fetched
    assert order.token == "2" and type(error).__name__ in str(fetched)
    assert not connection.saving
    connection.close(5.0)


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_error_that_ends_the_exchange_of_messages_is_told(error: Exception) -> None:
    connection = Connection(FaultyLink(error, "exchange"))
    eventually(lambda: connection.broken is error)
    connection.close(5.0)  # returns at once: nothing can be sent


class FullLog(io.StringIO):
    def write(self, text: str) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("error", [*ERRORS, SystemExit("odd")], ids=lambda error: type(error).__name__)
def test_a_log_on_a_full_disk_keeps_no_error_from_being_told(
    error: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stderr", FullLog())
    link = FaultyLink(error, "deliver", "save")
    connection = Connection(link)
    connection.save("1", tmp_path)
    for token in ("2", "3"):
        (tmp_path / token).mkdir()
        connection.deliver(Report(token, attempt(), True), tmp_path / token)
    eventually(lambda: len(link.sent) == 2 and not connection.carrying and not connection.saving)
    connection.close(5.0)
    silent = Connection(FaultyLink(error, "exchange"))
    eventually(lambda: silent.broken is error)
