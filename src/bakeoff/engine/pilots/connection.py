"""Exchange messages with the scheduler and transfer run directories, in threads of the pilot's own.

A network file system may hang, and so may the call of an engine. So threads talk to the link, and the pilot looks at what
they left it.
"""

from __future__ import annotations

import errno
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from queue import Queue

import msgspec

from bakeoff.engine.pilots.arrivals import remove
from bakeoff.engine.pilots.messages import Downward, Order, Report, Upward
from bakeoff.engine.pilots.transport import Link
from bakeoff.trees import make_readable

_DELIVERY_TRIES = 5
_TRANSFER_LASTS = 6 * 3600.0
"""Seconds after which a transfer counts as stuck. Archives of a thousand pilots may wait for one scheduler for hours."""
_QUICKEST, _SLOWEST = 0.005, 0.25
"""Seconds between two exchanges: while there is something to exchange, and at rest. Each costs as much as a short run."""


class Connection:
    """A pilot's messages to and from the scheduler, and transfers of run directories.

    Two threads call the link: one exchanges messages, the other carries directories, so that no gigabyte holds up a
    heartbeat. A report is sent when its directory has been delivered. Whatever goes wrong with one directory is noted for
    its run, and the next one is carried. An error that ends the exchange of messages is in `broken`: nothing can be sent
    any more, so the pilot has to leave. It also has to leave when a transfer is `stuck`: all others wait behind it.
    """

    def __init__(self, link: Link) -> None:
        self._link = link
        self._out: deque[Upward] = deque()
        self._in: deque[Downward] = deque()
        self._transfers: Queue[Callable[[], None]] = Queue()
        self._posted = threading.Event()
        self._closing = False
        self._transfer_began: float | None = None
        self.carrying: dict[str, float | None] = {}
        """Claims whose reports wait for their directories to arrive, and when their attempts began."""
        self.reached = time.monotonic()
        """When the control plane was reached last."""
        self.saving: set[str] = set()
        """Claims whose directories are being saved."""
        self.unsaved: set[str] = set()
        """Claims of whose directories no copy has arrived, although it was tried."""
        self._saved: set[str] = set()
        """Claims of whose directories one has."""
        self.save_took = 0.0
        """Seconds that the last one took."""
        self.fetched: deque[tuple[Order, OSError | None]] = deque()
        """Orders whose directories have been brought here, or could not be."""
        self.trouble = ""
        """What the last failed exchange said."""
        self.broken: BaseException | None = None
        """What ended the thread that exchanges messages."""
        self._threads = [threading.Thread(target=work, daemon=True) for work in (self._talk, self._carry)]
        for thread in self._threads:
            thread.start()

    def post(self, message: Upward) -> None:
        self._out.append(message)
        self._posted.set()

    def deliver(self, report: Report, directory: Path) -> None:
        """Bring the directory home, delete it here, and send the report."""
        self.carrying[report.token] = report.attempt.started_at
        self._transfers.put(lambda: self._deliver(report, directory))

    def save(self, token: str, directory: Path) -> None:
        """Bring home a copy of the directory of a run that goes on."""
        self.saving.add(token)
        self._transfers.put(lambda: self._save(token, directory))

    def fetch(self, order: Order, directory: Path, cache: Path) -> None:
        """Bring what the order needs: files to `cache`, and the run's directory at home to `directory`.

        Then the order is in `fetched`, with the error if any.
        """
        self._transfers.put(lambda: self._fetch(order, directory, cache))

    def take(self) -> list[Downward]:
        """What has arrived."""
        return [self._in.popleft() for _ in range(len(self._in))]

    def stuck(self) -> bool:
        """Whether the transfer that is under way has taken so long that it will not end."""
        began = self._transfer_began
        return began is not None and time.monotonic() - began > _TRANSFER_LASTS

    def bring_home(self, patience: float) -> None:
        """Wait until the directories of all runs that ended have arrived, for `patience` seconds at most."""
        deadline = time.monotonic() + patience
        while self.carrying and self.broken is None and not self.stuck() and time.monotonic() < deadline:
            time.sleep(0.005)

    def close(self, patience: float) -> None:
        """Send what is left, for `patience` seconds at most."""
        deadline = time.monotonic() + patience
        self.bring_home(patience)
        while self._out and self.broken is None and time.monotonic() < deadline:
            time.sleep(0.005)
        self._closing = True
        self._posted.set()
        self._threads[0].join(max(0.1, deadline - time.monotonic()))

    def _talk(self) -> None:
        try:
            self._exchange()
        except BaseException as error:
            self.broken = error
            print_error()  # in the pilot's log, which the scheduler quotes

    def _exchange(self) -> None:
        interval = _QUICKEST
        while not self._closing or self._out:
            batch = list(self._out)
            try:
                arrived = self._link.exchange(batch)
            except OSError as error:
                self.trouble = str(error)
                if self._closing:
                    return
                time.sleep(0.2)  # and then the same again
                continue
            self.reached = time.monotonic()
            for _ in batch:
                self._out.popleft()
            self._in.extend(arrived)
            interval = _QUICKEST if batch or arrived else min(interval * 1.5, _SLOWEST)
            time.sleep(_QUICKEST)
            self._posted.wait(interval - _QUICKEST)
            self._posted.clear()

    def _carry(self) -> None:
        while True:
            work = self._transfers.get()
            self._transfer_began = time.monotonic()
            try:
                work()
            except BaseException:
                print_error()  # the run itself was told; the next directory is carried all the same
            finally:
                self._transfer_began = None

    def _fetch(self, order: Order, directory: Path, cache: Path) -> None:
        error = None
        what = "files that it needs"
        try:
            for text in order.files.values():
                digest = text.partition("/")[0]
                if not (cache / digest).exists():
                    self._link.fetch(digest, cache / digest)
            if order.resumes:
                what = "its earlier directory"
                remove(directory)
                self._link.fetch(order.attempt.run_id, directory)
        except BaseException as trouble:
            error = OSError(f"{what} could not be brought here: {_describe(trouble)}")
        self.fetched.append((order, error))

    def _save(self, token: str, directory: Path) -> None:
        began = time.monotonic()
        try:
            if directory.is_dir():
                self._link.save(token, directory)
                self.save_took = time.monotonic() - began
                self._saved.add(token)
                self.unsaved.discard(token)
        except Exception:
            print_error()  # the next one may arrive; until then a lost run goes on from an older one
            if token not in self._saved:
                self.unsaved.add(token)
        finally:
            self.saving.discard(token)

    def _deliver(self, report: Report, directory: Path) -> None:
        """Bring the directory home and send the report. Without its directory no run is a success."""
        try:
            error = self._try_delivery(report.token, directory)
            self.post(report if error is None else without_directory(report, directory, error))
        finally:
            del self.carrying[report.token]  # whatever happens: a claim that is named here never expires
        remove(directory)

    def _try_delivery(self, token: str, directory: Path) -> BaseException | None:
        """Deliver the directory, again after errors that may pass. Returns the last error, None after a success."""
        trouble: BaseException | None = None
        for number in range(_DELIVERY_TRIES):
            try:
                if isinstance(trouble, PermissionError):
                    make_readable(directory)
                elif trouble is not None:
                    time.sleep(0.2 * 2**number)
                self._link.deliver(token, directory)
                return None
            except BaseException as error:
                closed = isinstance(error, PermissionError) and trouble is None
                trouble = error
                if not isinstance(error, OSError) or (_own_doing(error, directory) and not closed):
                    print_error()  # it would be the same again
                    break
        return trouble


def without_directory(report: Report, directory: Path, error: BaseException) -> Report:
    """The report of a run whose directory cannot be brought home: an infrastructure failure, unless it is its own doing.

    Nothing takes a path that is too long, and nobody reads files that a run gave to another user. If that were no result, a
    run that is wrong could do it in order to be tried again.
    """
    attempt = msgspec.structs.replace(
        report.attempt,
        status="failed" if _own_doing(error, directory) else "infra_error",
        error=f"its directory could not be brought home: {_describe(error)}",
    )
    return Report(report.token, attempt)


def _own_doing(error: BaseException, directory: Path) -> bool:
    """Whether a run's own files keep its directory from being brought home."""
    return isinstance(error, OSError) and (
        error.errno in (errno.ENAMETOOLONG, errno.EFBIG)
        or (error.errno in (errno.EACCES, errno.EPERM) and str(error.filename or "").startswith(str(directory)))
    )


def print_error() -> None:
    """Print the exception that is being handled. A log that cannot be written, on a full disk, ends no thread."""
    with suppress(Exception):
        traceback.print_exc()


def _describe(error: BaseException) -> str:
    return str(error) if isinstance(error, OSError) else f"{type(error).__name__}: {error}"
