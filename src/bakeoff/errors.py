"""Every error that bakeoff raises on purpose, and the exit code each one ends a command with.

BakeoffError            1   something asked for could not be done
 +- UsageError          2   the call or a file is wrong
 |   +- SpecError       2   an experiment file is wrong: file, line, key and fix
 +- LeaseHeld           1   another scheduler is writing this edition
 +- StorageError        1   results cannot be recorded (full disk, lost database)
 +- InfraError          -   raised by a workload: the run could not be tried; retried, never scored
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path


class BakeoffError(Exception):
    """The thing asked for could not be done."""

    exit_code = 1


class UsageError(BakeoffError):
    """The call, a name or a file that the user gave is wrong."""

    exit_code = 2


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong in an experiment file."""

    key: str
    message: str
    fix: str = ""
    line: int | None = None

    def render(self, file: Path | None) -> str:
        place = str(file) if file else "experiment"
        if self.line is not None:
            place += f":{self.line}"
        text = f"{place}: {self.key}: {self.message}" if self.key else f"{place}: {self.message}"
        return f"{text}\n  fix: {self.fix}" if self.fix else text


class SpecError(UsageError):
    """An experiment file cannot be used; carries every problem that was found."""

    def __init__(self, problems: Sequence[Problem], file: Path | None = None) -> None:
        self.problems = tuple(problems)
        self.file = file
        super().__init__("\n".join(problem.render(file) for problem in self.problems))


class LeaseHeld(BakeoffError):
    """Another scheduler holds the edition's lease."""


class StorageError(BakeoffError):
    """Results cannot be written; nothing that was reported is lost."""


class InfraError(BakeoffError):
    """A run could not be tried for reasons that are not the arm's: it is retried and never scored."""


def did_you_mean(name: str, known: Iterable[str], otherwise: str) -> str:
    """The end of an error about a name that nobody knows: the one that was probably meant, or `otherwise`."""
    from difflib import get_close_matches

    close = get_close_matches(name, list(known), n=1)
    return f"did you mean {close[0]!r}?" if close else otherwise
