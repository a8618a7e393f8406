"""A pilot's letters to and from the scheduler, and the run directories that go with them.

A network file system may hang, and so may the call of an engine. So threads talk to the link, and the pilot looks at what
they left it.
"""

from __future__ import annotations

import shutil
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from queue import Queue

from bakeoff.engine.pilots.messages import Downward, Order, Report, Upward
from bakeoff.engine.pilots.transport import Link

_DELIVERY_TRIES = 5
_QUICKEST, _SLOWEST = 0.005, 0.25
"""Seconds between two exchanges: while there is something to exchange, and at rest. Each costs as much as a short run."""


class Mail:
    """Letters to and from the scheduler, and the run directories that go with them.

    Two threads call the link: one exchanges messages, the other carries directories, so that no gigabyte holds up a
    heartbeat. A report is sent when its directory has been delivered.
    """

    def __init__(self, link: Link) -> None:
        self._link = link
        self._out: deque[Upward] = deque()
        self._in: deque[Downward] = deque()
        self._freight: Queue[Callable[[], None]] = Queue()
        self._posted = threading.Event()
        self._closing = False
        self.carrying: dict[str, float | None] = {}
        """Claims whose reports wait for their directories to arrive, and when their attempts began."""
        self.reached = time.monotonic()
        """When the control plane was reached last."""
        self.saving: set[str] = set()
        """Claims whose directories are being saved."""
        self.save_took = 0.0
        """Seconds that the last one took."""
        self.fetched: deque[tuple[Order, OSError | None]] = deque()
        """Orders whose directories have been brought here, or could not be."""
        self.trouble = ""
        """What the last failed exchange said."""
        self._threads = [threading.Thread(target=work, daemon=True) for work in (self._exchange, self._carry)]
        for thread in self._threads:
            thread.start()

    def post(self, message: Upward) -> None:
        self._out.append(message)
        self._posted.set()

    def deliver(self, report: Report, directory: Path) -> None:
        """Bring the directory home, delete it here, and send the report."""
        self.carrying[report.token] = report.attempt.started_at
        self._freight.put(lambda: self._deliver(report, directory))

    def save(self, token: str, directory: Path) -> None:
        """Bring home a copy of the directory of a run that goes on."""
        self.saving.add(token)
        self._freight.put(lambda: self._save(token, directory))

    def fetch(self, order: Order, directory: Path, cache: Path) -> None:
        """Bring what the order needs: files to `cache`, and the run's directory at home to `directory`.

        Then the order is in `fetched`, with the error if any.
        """
        self._freight.put(lambda: self._fetch(order, directory, cache))

    def take(self) -> list[Downward]:
        """What has arrived."""
        return [self._in.popleft() for _ in range(len(self._in))]

    def close(self, patience: float) -> None:
        """Send what is left, for `patience` seconds at most."""
        deadline = time.monotonic() + patience
        while (self.carrying or self._out) and time.monotonic() < deadline:
            time.sleep(0.005)
        self._closing = True
        self._posted.set()
        self._threads[0].join(max(0.1, deadline - time.monotonic()))

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
            self._freight.get()()

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
                shutil.rmtree(directory, ignore_errors=True)
                self._link.fetch(order.attempt.run_id, directory)
        except (OSError, shutil.Error) as trouble:
            error = OSError(f"{what} could not be brought here: {trouble}")
        self.fetched.append((order, error))

    def _save(self, token: str, directory: Path) -> None:
        began = time.monotonic()
        try:
            if directory.is_dir():
                self._link.save(token, directory)
                self.save_took = time.monotonic() - began
        except (OSError, shutil.Error):
            pass  # the next one may arrive; until then a lost run goes on from an older one
        finally:
            self.saving.discard(token)

    def _deliver(self, report: Report, directory: Path) -> None:
        """A directory that cannot be brought home is an infrastructure failure, never a success without files."""
        for number in range(1, _DELIVERY_TRIES + 1):
            try:
                self._link.deliver(report.token, directory)
                break
            except (OSError, shutil.Error) as error:
                reason = str(error)
                time.sleep(0.2 * 2**number)
        else:
            report.attempt.status = "infra_error"
            report.attempt.error = f"its directory could not be brought home: {reason}"
            report = Report(report.token, report.attempt)
        self.post(report)
        del self.carrying[report.token]
        shutil.rmtree(directory, ignore_errors=True)
