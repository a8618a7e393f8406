"""`python -m bakeoff.engine.warden MARK`: waits until its standard input ends, then ends what carries the mark.

The scheduler holds the other end of the pipe, so when it dies, by whatever signal, its runs die with it.
"""

from __future__ import annotations

import os
import signal
import sys

from bakeoff.engine.processes import end_marked


def main() -> None:
    os.setsid()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    while os.read(0, 4096):
        pass
    end_marked(sys.argv[1])


if __name__ == "__main__":
    main()
