"""`bakeoff logs`: what a run wrote, byte for byte."""

from __future__ import annotations

import codecs
import os
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import BinaryIO

import click

from bakeoff.cli.options import root_option, run_argument
from bakeoff.records.files import open_inside
from bakeoff.records.layout import is_held
from bakeoff.records.lookup import find_log, find_run
from bakeoff.records.transcript import run_messages, turn_of
from bakeoff.text import printable

CHUNK = 1 << 16
LONGEST_ESCAPE = 64
POLL_S = 0.2


@click.command()
@run_argument
@click.option("--stderr", is_flag=True, help="Standard error instead of standard output.")
@click.option("-f", "--follow", is_flag=True, help="Keep printing until the run has ended.")
@click.option("--attempt", type=click.IntRange(min=1), help="An earlier attempt instead of the one that counts.")
@click.option("--tail", type=click.IntRange(min=0), metavar="N", help="Only the last N lines.")
@root_option
@click.pass_context
def command(
    ctx: click.Context, run: str, stderr: bool, follow: bool, attempt: int | None, tail: int | None, root: Path
) -> None:
    """Print what RUN wrote to standard output; of a task rollout, what its agent wrote; of an imported run, what was said.

    On a terminal, escape sequences and control characters are left out; a pipe or file gets the bytes unchanged.
    Exits with 1 when there is nothing to print.
    """
    edition, position = find_run(run, root)
    with closing(edition):
        log = find_log(edition, position, stderr=stderr, attempt=attempt)
        writer = Writer()
        offset: int | None = None
        while True:
            # The status is read before the file: what the run writes last is then never missed.
            live = follow and attempt is None and is_held(edition.paths.lease)
            live = live and edition.run(position).status in ("running", "planned")
            if log.path.exists():
                with open_inside(log.home, log.name) as file:
                    if offset is None:
                        offset = last_lines(file, tail) if tail is not None else 0
                    file.seek(offset)
                    while chunk := file.read(CHUNK):
                        writer.write(chunk)
                        offset += len(chunk)
            if not live:
                break
            time.sleep(POLL_S)
        if not offset and not stderr:
            for name in log.others():
                with open_inside(log.home, name) as file:
                    offset = offset or 0
                    while chunk := file.read(CHUNK):
                        writer.write(chunk)
                        offset += len(chunk)
        if offset is None and not stderr and attempt is None:
            for message in run_messages(edition, position):
                offset = 0
                writer.write(f"{turn_of(message)}\n\n".encode())
    if offset is None:
        click.echo(log.silence, err=True)
        ctx.exit(1)


def last_lines(file: BinaryIO, count: int) -> int:
    """The offset at which the last `count` lines begin. Reads backwards: a large file costs no more than its tail."""
    end = file.seek(0, os.SEEK_END)
    position, newlines = end, 0
    while position > 0:
        start = max(0, position - CHUNK)
        file.seek(start)
        block = file.read(position - start)
        for index in range(len(block) - 1, -1, -1):
            if block[index] == 0x0A and start + index != end - 1:
                newlines += 1
                if newlines == count:
                    return start + index + 1
        position = start
    return 0 if count else end


class Writer:
    """Writes bytes to standard output: unchanged into a pipe or file, as text without escapes onto a terminal."""

    def __init__(self) -> None:
        self._terminal = sys.stdout.isatty()
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._held = ""

    def write(self, chunk: bytes) -> None:
        if not self._terminal:
            sys.stdout.buffer.write(chunk)
            sys.stdout.buffer.flush()
            return
        # A chunk may end inside a character (the decoder keeps it) or inside an escape: that waits for its other half.
        text = self._held + self._decode(chunk)
        cut = text.rfind("\x1b", max(0, len(text) - LONGEST_ESCAPE))
        text, self._held = (text[:cut], text[cut:]) if cut >= 0 and "\n" not in text[cut:] else (text, "")
        click.echo(printable(text), nl=False)
