"""`bakeoff logs`: what a run wrote, byte for byte."""

from __future__ import annotations

import codecs
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import click

from bakeoff.cli.display import printable
from bakeoff.cli.options import root_option, run_argument
from bakeoff.records.edition import Edition, find_run
from bakeoff.records.rundir import Log, find_log

CHUNK = 1 << 16
LONGEST_ESCAPE = 64
POLL_S = 0.2


@click.command()
@run_argument
@click.option("--stderr", is_flag=True, help="Standard error instead of standard output.")
@click.option("-f", "--follow", is_flag=True, help="Go on printing until the run has ended.")
@click.option("--attempt", type=click.IntRange(min=1), help="An earlier attempt instead of the one that counts.")
@click.option("--tail", type=click.IntRange(min=0), metavar="N", help="Only the last N lines.")
@root_option
@click.pass_context
def command(
    ctx: click.Context, run: str, stderr: bool, follow: bool, attempt: int | None, tail: int | None, root: Path
) -> None:
    """Print what RUN wrote to standard output.

    On a terminal, escape sequences and control characters are left out; a pipe or file gets the bytes as they are.
    Exits 1 when there is nothing to print.
    """
    edition, position = find_run(run, root)
    try:
        log = find_log(edition, position, stderr=stderr, attempt=attempt)
        write = _writer()
        if follow and attempt is None:
            found = _follow(edition, position, log, tail, write)
        else:
            found = _print(log.path, tail, write)
    finally:
        edition.close()
    if not found:
        click.echo(log.silence, err=True)
        ctx.exit(1)


def _print(path: Path, tail: int | None, write: Callable[[bytes], None]) -> bool:
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return False
    with file:
        if tail is not None:
            file.seek(last_lines(file, tail))
        while chunk := file.read(CHUNK):
            write(chunk)
    return True


def _follow(edition: Edition, position: int, log: Log, tail: int | None, write: Callable[[bytes], None]) -> bool:
    """Everything there is, then what comes, until the run is no longer running."""
    offset = None
    while True:
        live = edition.run(position).status in ("running", "planned") and _is_held(edition)
        if log.path.exists():
            with log.path.open("rb") as file:
                if offset is None:
                    offset = last_lines(file, tail) if tail is not None else 0
                file.seek(offset)
                while chunk := file.read(CHUNK):
                    write(chunk)
                    offset += len(chunk)
        if not live:
            return offset is not None
        time.sleep(POLL_S)


def _is_held(edition: Edition) -> bool:
    from bakeoff.records.lease import is_held

    return is_held(edition.paths.lease)


def last_lines(file: BinaryIO, count: int) -> int:
    """Where the last `count` lines begin; reads backwards, so a large file costs no more than its tail."""
    end = file.seek(0, os.SEEK_END)
    position, seen = end, 0
    while position > 0:
        start = max(0, position - CHUNK)
        file.seek(start)
        block = file.read(position - start)
        for index in range(len(block) - 1, -1, -1):
            if block[index] == 0x0A and start + index != end - 1:
                seen += 1
                if seen == count:
                    return start + index + 1
        position = start
    return 0 if count else end


def _writer() -> Callable[[bytes], None]:
    return TerminalWriter() if sys.stdout.isatty() else _write_bytes


class TerminalWriter:
    """Prints text without escapes; a character or an escape that is cut in two waits for its other half."""

    def __init__(self) -> None:
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._held = ""

    def __call__(self, chunk: bytes) -> None:
        text = self._held + self._decode(chunk)
        cut = text.rfind("\x1b", max(0, len(text) - LONGEST_ESCAPE))
        text, self._held = (text[:cut], text[cut:]) if cut >= 0 and "\n" not in text[cut:] else (text, "")
        click.echo(printable(text), nl=False)


def _write_bytes(chunk: bytes) -> None:
    sys.stdout.buffer.write(chunk)
    sys.stdout.buffer.flush()
