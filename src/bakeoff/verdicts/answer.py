"""One way from results to an answer, `answer(results, question)`, and five ways to show it.

Every question has an `Answer` with the same structure: settings, facts for programs, blocks for people, records for
spreadsheets, and an exit code. `as_text`, `as_markdown`, `as_csv`, `as_json` and `as_html` read that structure only.
"""

from __future__ import annotations

import json
import re
import shlex
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self, overload

from bakeoff.errors import UsageError
from bakeoff.records.conditions import Conditions, find_differences
from bakeoff.results.reading import reading_line
from bakeoff.results.table import Results
from bakeoff.spec.directions import suggests_less, suggests_more
from bakeoff.spec.experiment import Analysis
from bakeoff.text import (
    Stroke,
    csv_text,
    drawn_table,
    fitted_table,
    markdown,
    markdown_table,
    paragraph,
    plain_table,
    printable,
    standard,
)
from bakeoff.verdicts.observations import Observations, observe
from bakeoff.verdicts.question import Calibrate, Compare, Gate, Litmus, Power, Question, Rank, Summarize, Variance
from bakeoff.verdicts.repeats import refuse_copies, refuse_curves, refuse_ranks, refuse_shared_repeats
from bakeoff.version import __version__

if TYPE_CHECKING:
    from jinja2 import Environment

    from bakeoff.verdicts.questions.calibrate import CalibrateAnswer
    from bakeoff.verdicts.questions.compare import CompareAnswer
    from bakeoff.verdicts.questions.gate import GateAnswer
    from bakeoff.verdicts.questions.litmus import LitmusAnswer
    from bakeoff.verdicts.questions.power import PowerAnswer
    from bakeoff.verdicts.questions.rank import RankAnswer
    from bakeoff.verdicts.questions.variance import VarianceAnswer

NOT_ENOUGH_EVIDENCE = 3
"""The exit code of every answer that the data cannot give."""
TEMPLATES = Path(__file__).parent / "templates"
"""`answer.html.j2` has the macros that every page with an answer uses."""
_MODULES: Mapping[type[Question], str] = {
    Compare: "compare",
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
    below: str = ""
    """What stands right below the table."""
    strokes: Sequence[Stroke | None] = ()
    """One for each row: a terminal that is wide enough gets a forest plot beside the table, over `span`."""
    span: tuple[float, float] = (0.0, 1.0)
    optional: Sequence[str] = ()
    """Headers of columns that a narrow terminal can do without, the first one first."""
    verdicts: Sequence[str] = ()
    """One for each row of a table of verdicts; pages colour rows by it."""


@dataclass(frozen=True, slots=True)
class Notes:
    """Short lines under a heading."""

    heading: str
    lines: Sequence[str]


Block = Text | Table | Notes


class Remark(Protocol):
    """A fact about how an answer came about, which every output has: in JSON as facts, for people as a sentence."""

    @property
    def sentence(self) -> str: ...

    def facts(self) -> dict[str, Any]: ...


REMARKS = ("conditions", "edition", "choice", "changed", "looks")
"""In this order: that runs differ in code, packages or nodes, which of several editions this is, that a metric may have
been chosen among others, that the analysis was changed after a look, and what earlier looks changed."""


@dataclass(frozen=True)
class Answer(ABC):
    """What a question was answered with."""

    source: str
    """Where the runs come from."""
    settings: Mapping[str, Any]
    """What produced the answer; every output carries it."""
    remarks: Mapping[str, Remark] = field(default_factory=dict, kw_only=True)
    """By name of `REMARKS`."""

    @property
    @abstractmethod
    def title(self) -> str:
        """The heading of a page or file that shows this answer."""

    @abstractmethod
    def facts(self) -> dict[str, Any]:
        """Everything, as JSON shows it."""

    @abstractmethod
    def blocks(self) -> list[Block]:
        """For people, in reading order: everything that files and `--verbose` show."""

    def screen(self) -> list[Block]:
        """The part of the blocks that a terminal shows unless more is asked for."""
        return self.blocks()

    @property
    @abstractmethod
    def exit_code(self) -> int:
        """0 the thing asked for holds, 1 it does not, 3 not enough evidence."""

    def verdicts(self) -> dict[str, str]:
        """What it says about each arm, by arm and metric; empty for an answer that only describes."""
        return {}

    def asked(self) -> dict[str, dict[str, Any]]:
        """How each primary metric was judged, as a look records it; empty for an answer that only describes."""
        return {}

    @property
    def shows_means(self) -> bool:
        """Whether it shows what arms achieved, so that whoever sees it has looked at results."""
        return bool(self.verdicts())

    @property
    def said(self) -> list[str]:
        """Return the sentences of the remarks."""
        return [self.remarks[name].sentence for name in REMARKS if name in self.remarks]

    @property
    def all_settings(self) -> dict[str, Any]:
        """Settings and remarks, as JSON shows them."""
        remarks = {name: {**each.facts(), "sentence": each.sentence} for name, each in self.remarks.items()}
        return {**self.settings, **remarks}

    def remarked(self, **remarks: Remark | None) -> Self:
        """Return the answer with further remarks; None adds none."""
        return replace(self, remarks={**self.remarks, **{name: each for name, each in remarks.items() if each}})

    @property
    def anytime_valid(self) -> bool:
        """Whether its tests may be looked at any number of times."""
        return False

    def shown(self, verbose: bool = True) -> list[Block]:
        """What people see: the blocks or the first screen, what earlier looks changed, and how a table was read.

        What runs differ in besides their arms stands right after the first block.
        """
        columns, reading = self.settings.get("columns"), self.settings.get("reading")
        conditions = self.remarks.get("conditions")
        blocks = self.blocks() if verbose else self.screen()
        return [
            *blocks[:1],
            *([Text(conditions.sentence, colour="yellow")] if conditions else []),
            *blocks[1:],
            *(Text(sentence) for sentence in self.said[1 if conditions else 0 :]),
            *([Text(_reading_in_words(columns, self.settings))] if columns else []),
            *([Text(reading_line(reading))] if reading else []),
        ]

    def _repr_html_(self) -> str:
        """The first screen, as a notebook shows it."""
        return as_html(self, verbose=False)

    def records(self) -> Table:
        """Flat rows for a spreadsheet: the first table, unless the question has its own."""
        tables = [block for block in self.blocks() if isinstance(block, Table)]
        return tables[0] if tables else Table([], [])


def observe_metric(
    results: Results, metric: str, question: Question, declared: Analysis | None = None, *, directed: bool = True
) -> Observations:
    """One metric of the results, judged as the question says.

    Raises UsageError where nothing says which way is better, or where repeats are runs or rows of one curve, or
    seeds are ranks, and `directed` asks for it.
    """
    judged = question.analysis(declared or results.analysis.about(metric), metric)
    if directed:
        family = question.metrics or results.analysis.metrics
        check_direction(metric, judged, results.analysis, family, results.label)
    observations = observe(results, metric, judged)
    if directed:
        refuse_dependent(observations, question)
    return observations


def refuse_dependent(observations: Observations, question: Question) -> None:
    """Raise UsageError where repeats are runs or rows of one curve, or where pairs are of ranks.

    Results from elsewhere only: what bakeoff ran itself has the seeds and repeats that were planned.
    """
    if observations.declared is not None:
        return
    refuse_curves(observations)
    refuse_shared_repeats(observations)
    if not question.unpaired:
        refuse_ranks(observations)


def check_direction(
    metric: str,
    judged: Analysis,
    declared: Analysis,
    family: Sequence[str] = (),
    label: str = "",
    *,
    in_file: bool = False,
) -> None:
    """Raise UsageError where nothing says which way of a metric is better and its name suggests that less is.

    So does one direction for several metrics (`family`) that contradicts a metric's name, and a metric of results that
    declare another one to be minimised. `in_file`: only the experiment file can say it, because results do not exist yet.
    """
    where = f"{label}: " if label else ""
    options = f"--direction {metric}=minimize or --direction {metric}=maximize, or "
    key = metric if re.fullmatch(r"[A-Za-z0-9_-]+", metric) else json.dumps(metric)
    table = f'directions = {{ {key} = "minimize" }} (or "maximize") in [analysis] of the file'
    if judged.direction is None:
        other = declared.metric is not None and declared.direction == "minimize"
        if suggests_less(metric) or (other and metric not in (declared.metric, *declared.primary)):
            raise UsageError(
                f"{where}is more {metric!r} better, or less? {'Set' if in_file else f'Say {options}set'} {table}"
            )
    elif len(family) > 1 and metric not in judged.directions:
        wrong = suggests_less(metric) if judged.direction == "maximize" else suggests_more(metric)
        if wrong:
            raise UsageError(
                f"{where}{judged.direction} is said for {len(family)} metrics, and {metric!r} may mean the opposite. "
                f"{'Set' if in_file else f'Say {options}set'} {table}"
            )


def refuse_sequential(results: Results, what: str) -> None:
    """For questions that a sequential test does not answer: no test of a fixed size is valid on its runs."""
    if results.is_sequential:
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
def answer(results: Results, question: Litmus) -> LitmusAnswer: ...
@overload
def answer(results: Results, question: Question, *, verb: str = "") -> Answer: ...
def answer(results: Results | None, question: Question, *, verb: str = "") -> Answer:
    """The answer to a question about results. Raises UsageError when the question cannot be asked of them.

    `results` is None only for a `Power` question that numbers alone answer. Means and verdicts on editions of ours are
    recorded in them as a look by `verb`, by default the question's own.
    """
    if type(question) not in _MODULES:
        raise TypeError(f"{type(question).__name__} is not a question that can be answered")
    module = import_module(f"bakeoff.verdicts.questions.{_MODULES[type(question)]}")
    try:
        if results is not None and not isinstance(question, Summarize):
            refuse_copies(results, question)
        answered: Answer = module.answer(results, question)
    except UsageError as error:
        if results is None or not results.reading.get("tools"):
            raise
        raise UsageError(f"{error} ({reading_line(results.reading)})") from error
    if results is not None and results.editions() and answered.shows_means:
        from bakeoff.results.editions import same_editions
        from bakeoff.verdicts.sequential.looks import counted

        answered = counted(answered, results, verb or type(question).__name__.lower())
        if results.edition is not None and (same := same_editions(results.edition)) is not None:
            answered = answered.remarked(edition=same)
    if results is not None and (differences := find_differences(results.shares)):
        answered = answered.remarked(conditions=Conditions(differences))
    if results is None or not results.reading:
        return answered
    how = "reading" if "runs" in results.reading else "columns"
    return replace(answered, settings={**answered.settings, how: results.reading})


def _reading_in_words(reading: Mapping[str, Any], settings: Mapping[str, Any]) -> str:
    """`columns: arm from model, seed from seed; metrics score; ignored note; more score is better (assumed)`."""
    roles = [f"{role} from {name}" for role, name in reading.items() if isinstance(name, str)]
    if reading.get("step_assumed"):
        column = shlex.quote(reading["step"])
        roles.append(f"so rows are steps of one run (assumed; --rollout-from {column} if it numbers repeats)")
    parts = [", ".join(roles)]
    if reading["metrics"]:
        parts.append(f"metrics {', '.join(reading['metrics'])}")
    if reading.get("incidental"):
        parts.append(f"not judged unless named {', '.join(reading['incidental'])}")
    if reading.get("step") and (settings.get("summary") or {}).get("type") == "auc":
        parts.append("one number for each run: the area under its curve (--summary)")
    if ignored := [name or repr(name) for name in reading["ignored"] if name != settings.get("cluster")]:
        parts.append(f"ignored {', '.join(ignored)}")
    if assumed := settings.get("directions_assumed"):
        parts.append(f"more {', '.join(assumed)} is better (assumed)")
    return f"columns: {'; '.join(parts)}"


# -- showing an answer


def as_text(answer: Answer, width: int | None = None, *, verbose: bool = True) -> str:
    """For people. `width` is that of a terminal, which gets drawn tables and colours; None for a pipe or a file."""
    import textwrap

    import click

    parts = []
    blocks = answer.shown(verbose)
    for block in blocks:
        match block:
            case Text(text, strong, colour):
                line = paragraph(text)
                if width is not None:
                    line = textwrap.fill(line, width, break_long_words=False, break_on_hyphens=False)
                    line = click.style(line, bold=strong, fg=colour or None)
                parts.append(line)
            case Table(headers, rows, title, right, below):
                title = paragraph(title)
                if width is None:
                    drawn = (f"{title}\n" if title else "") + plain_table(headers, rows, right)
                elif block.strokes:
                    head = textwrap.fill(title, width, break_long_words=False, break_on_hyphens=False)
                    drawn = click.style(head, bold=True) + "\n" if title else ""
                    drawn += fitted_table(headers, rows, right, width, block.optional, block.strokes, block.span)
                    below = textwrap.fill(below, width, break_long_words=False, break_on_hyphens=False)
                else:
                    drawn = drawn_table(headers, rows, right, title, width)
                parts.append(f"{drawn}\n{below}" if below else drawn)
            case Notes(heading, lines):
                head = click.style(heading, bold=True) if width is not None else heading
                parts.append("\n".join([head, *(f"  {paragraph(line)}" for line in lines)]))
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
                lines += [f"**{markdown(text)}**" if strong else markdown(text), ""]
            case Table(headers, rows, title):
                lines += [*([f"## {markdown(title)}", ""] if title else []), *markdown_table(headers, rows), ""]
                lines += [markdown(block.below), ""] if block.below else []
            case Notes(heading, notes):
                lines += [f"## {heading}", "", *(f"- {markdown(note)}" for note in notes), ""]
    return "\n".join(lines).rstrip() + "\n"


def as_csv(answer: Answer) -> str:
    """The answer's records as comma-separated values."""
    records = answer.records()
    return csv_text(records.headers, records.rows)


def as_json(answer: Answer) -> str:
    """Everything, as standard JSON: NaN and infinities are null."""
    return json.dumps(standard(answer.facts()), indent=2, ensure_ascii=False, allow_nan=False)


def as_html(answer: Answer, *, verbose: bool = True) -> str:
    """A fragment of a page, by the macros that the report uses too."""
    macros: Any = environment().get_template("answer.html.j2").module
    return str(macros.answer(answer.shown(verbose)))


@cache
def environment(*directories: Path) -> Environment:
    """Return Jinja as all pages use it. `directories` hold further templates; those of answers come last."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    made = Environment(
        loader=FileSystemLoader([*directories, TEMPLATES]), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True, keep_trailing_newline=True,
        finalize=lambda value: printable(value) if isinstance(value, str) and not hasattr(value, "__html__") else value,
    )  # fmt: skip
    made.globals["version"] = __version__
    return made
