"""Pages that take statistics or a whole edition to make, in a process of its own: `Renderer` asks, `main` answers.

The server only passes the text on, so counts stay live while a verdict is computed. The process reads requests from its
standard input, one JSON table on a line, and ends when that is closed, however the server dies.
"""

from __future__ import annotations

import base64
import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from bakeoff.errors import BakeoffError, StorageError, UsageError

if TYPE_CHECKING:
    from bakeoff.web.contents import Contents
    from bakeoff.web.site import Site

VERB = "view"
"""The verb of the looks that are recorded."""


class Renderer:
    """The server's end. Any thread may ask; one question is answered at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None

    def ask(self, what: str, name: str, names: Sequence[str], root: Path, version: int, **more: Any) -> str | bytes:
        """Return a page (`what` is "html"), a file beside the pages ("file"), a section of the first page ("section"), or slugs
        and titles of all listed pages as JSON ("pages").

        `names` and `root` say whose, as `bakeoff compare` would take them; `version` is another number when they have
        changed since. Raises KeyError where there is nothing of that name, UsageError for what the results do not allow,
        and StorageError when the process died.
        """
        request = {"what": what, "name": name, "names": list(names), "root": str(root), "version": version, **more}
        with self._lock:
            if self._process is None or self._process.poll() is not None:
                self._process = subprocess.Popen(
                    [sys.executable, "-m", "bakeoff.web.live.renderer"],
                    stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8",
                )  # fmt: skip
            stdin, stdout = self._process.stdin, self._process.stdout
            assert stdin is not None and stdout is not None
            try:
                stdin.write(json.dumps(request) + "\n")
                stdin.flush()
                line = stdout.readline()
            except OSError:
                line = ""
            if not line:
                self._process.kill()
                self._process.wait()
                self._process = None
                raise StorageError("the process that makes pages has ended; try again")
        reply = json.loads(line)
        if "missing" in reply:
            raise KeyError(name)
        if "error" in reply:
            raise UsageError(reply["error"])
        if "bytes" in reply:
            return base64.b64decode(reply["bytes"])
        text: str = reply["text"]
        return text

    def close(self) -> None:
        """End the process, whatever it does."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    stream.close()


# -- in the process


class _Sites:
    """The results that were asked for last, with their pages."""

    def __init__(self) -> None:
        self._key: object = None
        self._opened: tuple[Contents, Site] | None = None

    def open(self, request: dict[str, Any]) -> tuple[Contents, Site]:
        key = (request["names"], request["root"], request["version"], request.get("columns"))
        if self._opened is None or key != self._key:
            from bakeoff.results.sources import open_results
            from bakeoff.web.contents import Contents
            from bakeoff.web.site import site_of

            if self._opened is not None:
                self._opened[0].results.close()
                self._opened = None
            results = open_results(request["names"], Path(request["root"]), request.get("columns"))
            contents = Contents(results, verb=VERB)
            base = None if results.edition is None else results.edition.paths.directory
            self._opened = contents, site_of(contents, base=base)
            self._key = key
        return self._opened

    def reply(self, request: dict[str, Any]) -> dict[str, str]:
        try:
            contents, site = self.open(request)
            if request["what"] == "section":
                from bakeoff.web.front import section

                return {"text": section(contents, request["name"]).html}
            if request["what"] == "pages":
                return {"text": json.dumps([(page.slug, page.title) for page in site.pages.values() if page.listed])}
            content = site.html(request["name"]) if request["what"] == "html" else site.file(request["name"])
        except KeyError:
            return {"missing": request["name"]}
        except BakeoffError as error:
            return {"error": str(error)}
        except Exception as error:  # one page of one source must not end the others
            return {"error": f"this page cannot be made: {type(error).__name__}: {error}"}
        if isinstance(content, bytes):
            return {"bytes": base64.b64encode(content).decode()}
        return {"text": content}


def main(requests: IO[str], replies: IO[str]) -> None:
    """Answer requests until there are no more; then end at once, whatever is being made."""
    waiting: queue.SimpleQueue[str] = queue.SimpleQueue()

    def read() -> None:
        for line in requests:
            waiting.put(line)
        os._exit(0)

    threading.Thread(target=read, daemon=True).start()
    sites = _Sites()
    while True:
        replies.write(json.dumps(sites.reply(json.loads(waiting.get()))) + "\n")
        replies.flush()


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the server gets it too, and ends this process
    # What a workload's page prints must not end up between the replies.
    out = open(sys.stdout.fileno(), "w", encoding="utf-8", closefd=False, errors="backslashreplace")  # noqa: SIM115
    sys.stdout = sys.stderr
    main(open(sys.stdin.fileno(), encoding="utf-8", closefd=False), out)  # noqa: SIM115
