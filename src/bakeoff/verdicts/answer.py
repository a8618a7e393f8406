"""One way from results to an answer: `answer(results, question)`.

Every question has an `Answer` with the same structure: settings, facts for programs, blocks for people, records for
spreadsheets, and an exit code. `verdicts/render.py` turns that structure into text, Markdown, CSV, JSON and HTML.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, overload

from bakeoff.errors import UsageError
from bakeoff.results.table import Results
from bakeoff.spec.experiment import Analysis
from bakeoff.verdicts.observations import Observations, observe
from bakeoff.verdicts.question import Compare, Gate, Litmus, Power, Question, Rank, Summarize, Variance

if TYPE_CHECKING:
    from bakeoff.verdicts.compare_answer import CompareAnswer
    from bakeoff.verdicts.power import PowerAnswer
    from bakeoff.verdicts.rank import RankAnswer
    from bakeoff.verdicts.variance import VarianceAnswer

NOT_ENOUGH_EVIDENCE = 3
"""The exit code of every answer that the data cannot give."""


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

    def records(self) -> Table:
        """Flat rows for a spreadsheet: the first table, unless the question has its own."""
        tables = [block for block in self.blocks() if isinstance(block, Table)]
        return tables[0] if tables else Table([], [])


def observe_all(results: Results, question: Question) -> list[Observations]:
    """The metrics that the question names, or those that the results declare, each judged as the question says."""
    return [observe_metric(results, name, question) for name in question.metrics or results.primary()]


def observe_metric(results: Results, metric: str, question: Question, declared: Analysis | None = None) -> Observations:
    """One metric of the results, judged as the question says."""
    declared = declared or results.analysis.about(metric)
    return observe(results, metric, question.analysis(declared, metric))


def refuse_sequential(results: Results, what: str) -> None:
    """For questions that a sequential test does not answer: no test of a fixed size is valid on its runs."""
    from bakeoff.verdicts import sequential

    if any(sequential.applies(edition) for edition in results.editions()):
        raise UsageError(
            f"{results.label} was run until it was decided, so no test of a fixed number of runs is valid on it, and "
            f"{what} needs one; `bakeoff compare` on that edition alone shows what its own test found"
        )


@overload
def answer(results: Results, question: Compare) -> CompareAnswer: ...
@overload
def answer(results: Results, question: Rank) -> RankAnswer: ...
@overload
def answer(results: Results, question: Variance) -> VarianceAnswer: ...
@overload
def answer(results: Results, question: Power) -> PowerAnswer: ...
@overload
def answer(results: Results, question: Question) -> Answer: ...
def answer(results: Results, question: Question) -> Answer:
    """The answer to a question about results. Raises UsageError when the question cannot be asked of them."""
    match question:
        case Compare():
            from bakeoff.verdicts import compare_answer

            return compare_answer.answer(results, question)
        case Gate():
            from bakeoff.verdicts import gate

            return gate.answer(results, question)
        case Rank():
            from bakeoff.verdicts import rank

            return rank.answer(results, question)
        case Litmus():
            from bakeoff.verdicts import litmus

            return litmus.answer(results, question)
        case Variance():
            from bakeoff.verdicts import variance

            return variance.answer(results, question)
        case Power():
            from bakeoff.verdicts import power

            return power.answer(results, question)
        case Summarize():
            from bakeoff.verdicts import summarize

            return summarize.answer(results, question)
        case _:
            raise TypeError(f"{type(question).__name__} is not a question that can be answered")
