"""One way from results to an answer, `answer(results, question)`, and five ways to show it.

Every question has an `Answer` with the same structure: settings, facts for programs, blocks for people, records for
spreadsheets, and an exit code. `as_text`, `as_markdown`, `as_csv`, `as_json` and `as_html` read that structure only.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from bakeoff.errors import UsageError
from bakeoff.results.table import Results
from bakeoff.spec.experiment import Analysis
from bakeoff.text import csv_text, drawn_table, markdown_table, plain_table, printable, standard
from bakeoff.verdicts.observations import Observations, observe
from bakeoff.verdicts.question import Calibrate, Compare, Gate, Litmus, Power, Question, Rank, Summarize, Variance
from bakeoff.version import __version__

if TYPE_CHECKING:
    from jinja2 import Environment

    from bakeoff.records.edition import Edition
    from bakeoff.verdicts.calibrate import CalibrateAnswer
    from bakeoff.verdicts.compare_answer import CompareAnswer
    from bakeoff.verdicts.gate import GateAnswer
    from bakeoff.verdicts.power import PowerAnswer
    from bakeoff.verdicts.rank import RankAnswer
    from bakeoff.verdicts.variance import VarianceAnswer

NOT_ENOUGH_EVIDENCE = 3
"""The exit code of every answer that the data cannot give."""
TEMPLATES = Path(__file__).parent / "templates"
"""`answer.html.j2` has the macros that every page with an answer uses."""
_MODULES: Mapping[type[Question], str] = {
    Compare: "compare_answer",
    Gate: "gate",
    Rank: "rank",
    Litmus: "litmus",
    Variance: "variance",
    Power: "power",
    Calibrate: "calibrate",
    Summarize: "summarize",
}
"""The module whose `answer` knows the question. It is imported when needed: each loads other statistics."""


@dataclass(frozen=True, slots=True)
class Text:
    """A paragraph; `strong` ones are what a reader should see first."""

    text: str
    strong: bool = False
    colour: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    headers: Sequence[str]
    rows: Sequence[Sequence[str]]
    title: str = ""
    right: Sequence[str] = ()
    """Headers of the columns with numbers."""


@dataclass(frozen=True, slots=True)
class Notes:
    """Short lines under a heading."""

    heading: str
    lines: Sequence[str]


Block = Text | Table | Notes


@dataclass(frozen=True)
class Answer(ABC):
    """What a question was answered with."""

    source: str
    """Where the runs come from."""
    settings: Mapping[str, Any]
    """What produced the answer; every output carries it."""

    @property
    @abstractmethod
    def title(self) -> str:
        """The heading of a page or file that shows this answer."""

    @abstractmethod
    def facts(self) -> dict[str, Any]:
        """Everything, as JSON shows it."""

    @abstractmethod
    def blocks(self) -> list[Block]:
        """For people, in reading order."""

    @property
    @abstractmethod
    def exit_code(self) -> int:
        """0 the thing asked for holds, 1 it does not, 3 not enough evidence."""

    def verdicts(self) -> dict[str, str]:
        """What it says about each arm, by arm and metric; empty for an answer that only describes."""
        return {}

    @property
    def anytime_valid(self) -> bool:
        """Whether its tests may be looked at any number of times."""
        return False

    def shown(self) -> list[Block]:
        """What people see: the blocks, what earlier looks changed, and for a table how its columns were read."""
        reading, looks = self.settings.get("columns"), self.settings.get("looks")
        return [
            *self.blocks(),
            *([Text(looks["sentence"])] if looks else []),
            *([Text(_reading_in_words(reading))] if reading else []),
        ]

    def records(self) -> Table:
        """Flat rows for a spreadsheet: the first table, unless the question has its own."""
        tables = [block for block in self.blocks() if isinstance(block, Table)]
        return tables[0] if tables else Table([], [])


def observe_metric(results: Results, metric: str, question: Question, declared: Analysis | None = None) -> Observations:
    """One metric of the results, judged as the question says."""
    declared = declared or results.analysis.about(metric)
    return observe(results, metric, question.analysis(declared, metric))


def is_sequential(edition: Edition) -> bool:
    """Whether the edition runs until it is decided."""
    return edition.facts()["spec"].get("sequential") is not None


def refuse_sequential(results: Results, what: str) -> None:
    """For questions that a sequential test does not answer: no test of a fixed size is valid on its runs."""
    if any(is_sequential(edition) for edition in results.editions()):
        raise UsageError(
            f"{results.label} was run until it was decided, so no test of a fixed number of runs is valid on it, and "
            f"{what} needs one; `bakeoff compare` on that edition alone shows what its own test found"
        )


@overload
def answer(results: Results, question: Compare, *, verb: str = "") -> CompareAnswer: ...
@overload
def answer(results: Results, question: Calibrate) -> CalibrateAnswer: ...
@overload
def answer(results: Results, question: Rank) -> RankAnswer: ...
@overload
def answer(results: Results, question: Variance) -> VarianceAnswer: ...
@overload
def answer(results: Results | None, question: Power) -> PowerAnswer: ...
@overload
def answer(results: Results, question: Gate, *, verb: str = "") -> GateAnswer: ...
@overload
def answer(results: Results, question: Question, *, verb: str = "") -> Answer: ...
def answer(results: Results | None, question: Question, *, verb: str = "") -> Answer:
    """The answer to a question about results. Raises UsageError when the question cannot be asked of them.

    `results` is None only for a `Power` question that numbers alone answer. A verdict on editions of ours is recorded
    in them as a look by `verb`, by default the question's own.
    """
    if type(question) not in _MODULES:
        raise TypeError(f"{type(question).__name__} is not a question that can be answered")
    module = import_module(f"bakeoff.verdicts.{_MODULES[type(question)]}")
    answered: Answer = module.answer(results, question)
    if results is not None and results.editions() and answered.verdicts():
        from bakeoff.verdicts.looks import counted

        answered = counted(answered, results, verb or type(question).__name__.lower())
    if results is None or not results.reading:
        return answered
    return replace(answered, settings={**answered.settings, "columns": results.reading})


def _reading_in_words(reading: Mapping[str, Any]) -> str:
    """`columns: arm from model, seed from seed; metrics score; ignored note`."""
    roles = [f"{role} from {name}" for role, name in reading.items() if isinstance(name, str)]
    parts = [", ".join(roles), f"metrics {', '.join(reading['metrics'])}"]
    if reading["ignored"]:
        parts.append(f"ignored {', '.join(reading['ignored'])}")
    return f"columns: {'; '.join(parts)}"


# -- showing an answer


def as_text(answer: Answer, width: int | None = None) -> str:
    """For people. `width` is that of a terminal, which gets drawn tables and colours; None for a pipe or a file."""
    import click

    parts = []
    blocks = answer.shown()
    for block in blocks:
        match block:
            case Text(text, strong, colour):
                line = printable(text)
                parts.append(click.style(line, bold=strong, fg=colour or None) if width is not None else line)
            case Table(headers, rows, title, right) if width is not None:
                parts.append(drawn_table(headers, rows, right, title, width))
            case Table(headers, rows, title, right):
                parts.append((f"{title}\n" if title else "") + plain_table(headers, rows, right))
            case Notes(heading, lines):
                head = click.style(heading, bold=True) if width is not None else heading
                parts.append("\n".join([head, *(f"  {printable(line)}" for line in lines)]))
    # Paragraphs that follow each other stand together; everything else has an empty line before it.
    text = parts[0] if parts else ""
    for previous, block, part in zip(blocks, blocks[1:], parts[1:], strict=False):
        together = isinstance(previous, Text) and isinstance(block, Text)
        text += ("\n" if together else "\n\n") + part
    return text


def as_markdown(answer: Answer) -> str:
    """A document with a heading, for a pull request, a job summary or a file."""
    lines = [f"# {answer.title}", ""]
    for block in answer.shown():
        match block:
            case Text(text, strong):
                lines += [f"**{printable(text)}**" if strong else printable(text), ""]
            case Table(headers, rows, title):
                lines += [*([f"## {title}", ""] if title else []), *markdown_table(headers, rows), ""]
            case Notes(heading, notes):
                lines += [f"## {heading}", "", *(f"- {printable(note)}" for note in notes), ""]
    return "\n".join(lines).rstrip() + "\n"


def as_csv(answer: Answer) -> str:
    """The answer's records as comma-separated values."""
    records = answer.records()
    return csv_text(records.headers, records.rows)


def as_json(answer: Answer) -> str:
    """Everything, as standard JSON: NaN and infinities are null."""
    return json.dumps(standard(answer.facts()), indent=2, ensure_ascii=False, allow_nan=False)


def as_html(answer: Answer) -> str:
    """A fragment of a page, by the macros that the report uses too."""
    macros: Any = environment().get_template("answer.html.j2").module
    return str(macros.answer(answer.shown()))


@cache
def environment() -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    made = Environment(
        loader=FileSystemLoader(TEMPLATES), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True, keep_trailing_newline=True,
        finalize=lambda value: printable(value) if isinstance(value, str) and not hasattr(value, "__html__") else value,
    )  # fmt: skip
    made.globals["version"] = __version__
    return made
