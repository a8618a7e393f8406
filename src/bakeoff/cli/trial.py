"""`bakeoff try`: run commands against each other without an experiment file, and say which one is better.

It writes the experiment file that the call means (workload `command`), runs it as `bakeoff run` does and answers as
`bakeoff compare FILE` does, so a trial can be edited, resumed and reported like any other experiment.
"""

from __future__ import annotations

import hashlib
import json
import re
import shlex
import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bakeoff.cli.options import json_option, root_option
from bakeoff.cli.questions import ask, print_answer, question_options
from bakeoff.errors import SpecError, UsageError
from bakeoff.spec.formats import parse_value
from bakeoff.verdicts.question import Compare
from bakeoff.workloads.metrics import PRINTED, WALL_TIME, read_printed

if TYPE_CHECKING:
    from bakeoff.engine.session import Options, Session
    from bakeoff.records.recorded import Recorded
    from bakeoff.records.run import Attempt
    from bakeoff.spec.plan import Plan
    from bakeoff.verdicts.answer import Answer

SEEDS, MAX_SEEDS = "10", "30"
"""Seeds of a trial, and most seeds of one that runs until it is decided, where the call says nothing."""
MAX_NAME = 40
"""Characters of an arm's name."""
QUESTION = ("metric", "direction", "failure_score", "bounds", "margin", "relative_margin", "alpha")
_WRITTEN = re.compile(r"\A# Written by `bakeoff try`[^\n]*\(digest ([0-9a-f]{12})\)[^\n]*\n")


@click.command(name="try")
@click.argument("commands", nargs=-1, required=True, metavar="COMMAND...")
@click.option("--arms", "axes", multiple=True, metavar="NAME=VALUE,...", help="Run the commands once for each value, as {NAME}. Can be repeated.")  # fmt: skip
@click.option("--seeds", metavar="N", help=f"Runs of each arm, or a range such as 1..15; {{seed}} in a command (default: {SEEDS}). With --until-decided: at most (default: {MAX_SEEDS}).")  # fmt: skip
@question_options(Compare, *QUESTION)
@click.option("--until-decided", is_flag=True, help="Add seeds in blocks until an anytime-valid test has decided.")
@click.option("-j", "--jobs", type=click.IntRange(min=1), help="Runs at a time (default: all cores).")
@click.option("--fresh", is_flag=True, help="Start anew instead of going on with what was run before.")
@click.option("--allow-code-change", is_flag=True, help="Go on although the code has changed since the first run.")
@click.option("-v", "verbosity", count=True, help="-v: one line for each run; -vv: also what the runs write.")
@click.option("--verbose", is_flag=True, help="Show everything about the verdict: effect sizes, tests, settings.")
@root_option
@json_option
@click.pass_context
def command(
    ctx: click.Context, /, commands: tuple[str, ...], root: Path, as_json: bool, verbosity: int, **how: Any
) -> None:
    """Run commands against each other and say which one is better. The first one is the control.

    Each COMMAND is one text for the shell, such as 'python train.py --seed {seed}'; {{ and }} are braces. Its metrics are
    the last JSON line that it prints or, without one, its lines such as `score: 0.9`; if it prints neither, its wall
    time is judged. Arms take turns in random order. The same call again does only what is missing.

    \b
    Exit code, as of compare: 0 decided; 3 not enough evidence; 2 the call is wrong, or a question is open;
    130 interrupted, and resumable.
    """
    from bakeoff.cli.run import do_runs, failure_lines, opened, quiet_stdout
    from bakeoff.engine.session import Options
    from bakeoff.records.run import failure_groups

    trial = Trial.of(commands, how)
    trial.check_file(fresh=how["fresh"])
    with quiet_stdout(as_json):
        plan = trial.plan()
        options = Options(
            root, verdict_follows=True, source=trial.path, **{key: how[key] for key in ("jobs", "fresh", "allow_code_change")}
        )  # fmt: skip
        if trial.until_decided:
            from bakeoff.verdicts.sequential.until_decided import prepare

            plan = prepare(plan, options)
        trial.check(plan, options)
        trial.write()
        with opened(plan, options) as session:
            choice = MetricChooser(trial, session)
            summary, _ = do_runs(session, verbosity, [choice])
            stopped = summary.stopped.reason if summary.stopped else ""
            for line in failure_lines(failure_groups(session.edition.runs())):
                click.echo(line, err=True)
            if stopped != "interrupted":
                choice.settle()
                for line in choice.unscored():
                    click.echo(line, err=True)
            reading = how_metrics_were_read(session.edition, choice.metric)
    if stopped == "interrupted":
        click.echo(f"interrupted; the same command continues from here, and so does bakeoff run {trial.path}", err=True)
        ctx.exit(130)
    answered = trial.answer(root)
    print_answer(answered, as_json, verbose=how["verbose"], file=str(trial.path.absolute()), reading=reading)
    if not as_json:
        if len(trial.commands) > 1 and list(trial.commands) == letters(len(trial.commands)):
            click.echo("; ".join(f"{name} is {text}" for name, text in trial.commands.items()))
        click.echo(reading)
        if choice.metric == WALL_TIME and session.jobs > 1:
            click.echo(f"{session.jobs} runs at a time shared this machine; -j 1 measures times without that")
        click.echo(
            f"wrote {trial.path}: edit it and go on with `bakeoff run {trial.path}`; `bakeoff report` shows the runs"
        )
    ctx.exit(answered.exit_code)


@dataclass
class Trial:
    """The experiment that a call means, and the file that says it."""

    commands: Mapping[str, str]
    """By the name of the arm."""
    axes: Mapping[str, Sequence[Any]]
    """Values of `--arms`, by name."""
    seeds: str
    until_decided: bool
    analysis: dict[str, Any] = field(default_factory=dict)
    """Keys of `[analysis]` that the call sets."""

    @classmethod
    def of(cls, commands: Sequence[str], how: Mapping[str, Any]) -> Trial:
        """Return the trial that the arguments mean. Raises UsageError for what cannot be tried."""
        axes: dict[str, list[Any]] = {}
        for text in how["axes"]:
            name, equals, values = text.partition("=")
            if not equals or not re.fullmatch(r"[A-Za-z_]\w*", name) or name in axes:
                raise UsageError(
                    f"--arms {text}: write --arms NAME=VALUE,VALUE with a name of its own, such as lr=0.1,0.01"
                )
            axes[name] = [parse_value(each) for each in values.split(",")]
        if len(commands) * max(1, *map(len, axes.values()), 1) < 2:
            raise UsageError(
                "there is nothing to compare: name two commands, or one with --arms, such as --arms lr=0.1,0.01 'python "
                "train.py --lr {lr} --seed {seed}'"
            )
        question = ask(Compare, {name: how[name] for name in QUESTION})
        analysis = question.model_dump(
            mode="json", exclude_unset=True, exclude={"primary"} if not question.primary else ()
        )
        names = arm_names(commands)
        seeds = how["seeds"] or (MAX_SEEDS if how["until_decided"] else SEEDS)
        if how["until_decided"] and "metric" not in analysis:
            raise UsageError(
                "--until-decided needs --metric: the rule of a sequential test is fixed before its first run "
                f"(--metric {WALL_TIME} judges the wall time)"
            )
        trial = cls(dict(zip(names, commands, strict=True)), axes, seeds, how["until_decided"], analysis)
        if analysis.get("metric") == WALL_TIME:
            analysis.setdefault("direction", "minimize")
        return trial

    @property
    def name(self) -> str:
        """The name of the experiment: commands, values and the directory make it, so that the same call finds it again."""
        what = [str(Path.cwd()), list(self.commands.values()), dict(self.axes), self.until_decided]
        return f"try-{hashlib.sha256(json.dumps(what).encode()).hexdigest()[:8]}"

    @property
    def path(self) -> Path:
        return Path(f"{self.name}.toml")

    @property
    def text(self) -> str:
        """The experiment file."""
        seeds = int(self.seeds) if self.seeds.isdigit() else self.seeds
        single = (
            []
            if len(self.commands) > 1
            else [f"command = {_toml(_literal(command))}" for command in self.commands.values()]
        )
        lines = [
            f"name = {_toml(self.name)}",
            'workload = "command"',
            f"seeds = {_toml(seeds)}",
            "",
            "[params]",
            "# The last JSON line of the output, else its lines such as `score: 0.9`; and wall_time_s.",
            f"metrics = {_toml(PRINTED)}",
            *single,
        ]
        if self.axes:
            lines += ["", "[matrix]", *(f"{name} = {_toml(list(values))}" for name, values in self.axes.items())]
        for name, command in self.commands.items() if not single else ():
            lines += ["", "[[arms]]", f"name = {_toml(name)}", f"params = {{ command = {_toml(_literal(command))} }}"]
        if self.analysis:
            lines += ["", "[analysis]", *(f"{key} = {_toml(value)}" for key, value in self.analysis.items())]
        if self.until_decided:
            lines += ["", "[sequential]"]
        body = "\n".join(lines) + "\n"
        how = f"edit it, and go on with: bakeoff run {self.path} (digest {_digest(body)}): an edited file is never replaced."
        return f"# Written by `bakeoff try`; {how}\n{body}"

    def check_file(self, *, fresh: bool) -> None:
        """Keep the metric that an earlier call of this trial has chosen. Raises UsageError for a file that was edited."""
        if not self.path.exists():
            return
        text = self.path.read_text(encoding="utf-8")
        written = _WRITTEN.match(text)
        if written is None or _digest(text[written.end() :]) != written[1]:
            raise UsageError(
                f"{self.path} was edited since `bakeoff try` wrote it: go on with `bakeoff run {self.path}` and "
                f"`bakeoff compare {self.path}`, or remove it"
            )
        if "metric" not in self.analysis and not fresh:
            before = tomllib.loads(text).get("analysis", {})
            self.analysis = {**{key: before[key] for key in ("metric", "direction") if key in before}, **self.analysis}

    def write(self) -> None:
        """Write the file into the working directory. Raises UsageError where that is not possible."""
        try:
            self.path.write_text(self.text, encoding="utf-8")
        except OSError as error:
            raise UsageError(
                f"{self.path.absolute()}: cannot be written: {error.strerror}; `bakeoff try` writes its experiment file into the "
                "working directory"
            ) from error

    def plan(self) -> Plan:
        """Return the plan of the file, which is not written yet. Raises UsageError for what is wrong with the call."""
        from bakeoff.spec.load import plan_of_text

        try:
            return plan_of_text(self.text, self.path)
        except SpecError as error:
            problem = error.problems[0]
            raise UsageError(problem.message + (f"; {problem.fix}" if problem.fix else "")) from error

    def check(self, plan: Plan, options: Options) -> None:
        """Say what is odd about the commands before anything runs; raise UsageError for what cannot be judged or started."""
        from bakeoff.engine.session import check_plan
        from bakeoff.verdicts.answer import check_direction

        analysis = plan.experiment.analysis
        for metric in analysis.metrics:
            check_direction(metric, analysis.about(metric), analysis, analysis.metrics)
        try:
            check_plan(plan, replace(options, source=None))
        except SpecError as error:
            problem = error.problems[0]
            raise UsageError(problem.message + (f"; {problem.fix}" if problem.fix else "")) from error

    def answer(self, root: Path) -> Answer:
        """Compare the arms, as `bakeoff compare FILE` does; the verdict is recorded as a look."""
        from bakeoff.results.editions import open_by_file
        from bakeoff.verdicts.answer import answer

        results = open_by_file(self.path, root)
        assert results is not None, "it was run a moment ago"
        with closing(results):
            return answer(results, Compare(), verb="try")


class MetricChooser:
    """Chooses the metric of a trial whose call names none, from what its runs report. It is an observer of the session.

    A question that only the user can answer stops the runs as soon as a run of every arm has ended: which of several
    metrics, or which way is better.
    """

    def __init__(self, trial: Trial, session: Session) -> None:
        self._trial, self._session = trial, session
        self.metric: str | None = trial.analysis.get("metric")
        self._problem: UsageError | None = None
        self._reported: dict[str, set[str]] = {}
        """The metrics of each arm that has had a run."""
        self._arms = len({cell.arm for cell in session.edition.cells()})

    def finished(self, attempt: Attempt) -> None:
        self._note(attempt.arm, attempt.metrics if attempt.status == "succeeded" else {})
        if self.metric is None and self._problem is None and len(self._reported) == self._arms:
            try:
                self._choose()
            except UsageError as error:
                from bakeoff.engine.scheduler import Stop

                self._problem = error
                self._session.switch.press(Stop("first failure", "a question is open"))

    def tick(self, running: Sequence[Attempt]) -> None:
        """Nothing to do."""

    def close(self) -> None:
        """Nothing to do."""

    def settle(self) -> None:
        """Write the metric into the file and the edition's record. Raises UsageError where it cannot be chosen."""
        if self._problem is not None:
            raise self._problem
        if self.metric is not None:
            return
        runs = list(self._session.edition.runs(["succeeded"]))
        if not runs:
            raise UsageError("no run succeeded, so there is nothing to judge")
        for run in runs:
            self._note(run.arm, run.metrics)
        self.metric = self._choose()
        self._trial.analysis = {"metric": self.metric, **self._trial.analysis}
        if self.metric == WALL_TIME:
            self._trial.analysis.setdefault("direction", "minimize")
        self._trial.write()
        self._session.edition.restate(self._trial.plan().experiment)

    def unscored(self) -> list[str]:
        """Return a line for each arm with runs that succeeded and have no number for the metric."""
        from bakeoff.records.run import unscored

        first: dict[str, str] = {}
        counts: Counter[str] = Counter()
        for run, reason in unscored(self._session.edition):
            counts[run.arm] += 1
            first.setdefault(run.arm, f"{run.run_id}: {reason.why}")
        return [
            f"{count} run{'s' if count > 1 else ''} of {arm} ended well without a number for {self.metric!r}, which counts as "
            f"failed ({first[arm]})"
            for arm, count in counts.items()
        ]

    def _note(self, arm: str, metrics: Mapping[str, Any]) -> None:
        # Metrics with numbers, besides the wall time.
        self._reported.setdefault(arm, set()).update(
            name
            for name, value in metrics.items()
            if isinstance(value, int | float) and not isinstance(value, bool) and name != WALL_TIME
        )

    def _choose(self) -> str:
        from bakeoff.spec.experiment import Analysis
        from bakeoff.verdicts.answer import check_direction

        names = set().union(*self._reported.values())
        if len(names) > 1:
            arms = {name: [arm for arm, known in self._reported.items() if name in known] for name in names}
            known = [
                name if len(arms[name]) == len(self._reported) else f"{name} (only {', '.join(arms[name])})"
                for name in sorted(names)
            ]
            raise UsageError(
                f"the commands report {len(names)} metrics; name the one to judge with --metric: {', '.join(known)}. "
                "What has been run is kept"
            )
        if not names:
            return WALL_TIME
        (metric,) = names
        analysis = Analysis.model_validate({**self._trial.analysis, "metric": metric})
        check_direction(metric, analysis.about(metric), analysis)
        return metric


def how_metrics_were_read(edition: Recorded, metric: str | None) -> str:
    """Return a line that says where a run of each arm had its metrics."""
    from bakeoff.records.rundir import STDERR, STDOUT

    if metric == WALL_TIME:
        judged = f"judged by {WALL_TIME}, the time that a command takes"
        first = next(iter(edition.runs(["succeeded"])), None)
        stderr = edition.paths.run(first.run_id) / STDERR if first is not None else None
        names = sorted(read_printed(stderr.parent, stderr).metrics) if stderr is not None and stderr.exists() else []
        unread = f"; {', '.join(names)} in the error output is not read (2>&1 would do that)" if names else ""
        return judged + unread
    places: dict[str, list[str]] = {}
    for run in edition.runs(["succeeded"]):
        if not any(run.arm in arms for arms in places.values()):
            directory = edition.paths.run(run.run_id)
            stdout = directory / STDOUT
            read = read_printed(directory, stdout if stdout.exists() else None)
            places.setdefault(read.source, []).append(run.arm)
    words = {
        "files": "files of the run",
        "JSON": "the last JSON line of the output",
        "lines": "`name: value` lines of the output",
        "": "nothing that was printed",
    }
    if len(places) == 1:
        (source,) = places
        return f"metrics read from {words[source]}"
    return "metrics read from " + ", ".join(f"{words[source]} ({', '.join(arms)})" for source, arms in places.items())


def arm_names(commands: Sequence[str]) -> list[str]:
    """Return a name for each command: the words in which they differ, or A, B, ... where these would not do.

    Of a path, its last part counts.
    """
    words = [[word.rpartition("/")[2] or word for word in _words(text)] for text in commands]
    shortest = min(map(len, words))
    start = next((n for n in range(shortest) if len({each[n] for each in words}) > 1), shortest)
    end = next((n for n in range(shortest - start) if len({each[-1 - n] for each in words}) > 1), shortest - start)
    names = [" ".join(each[start : len(each) - end]).lstrip("-") for each in words]
    usable = all(
        name and len(name) <= MAX_NAME and name.isprintable() and not set(":/\\") & set(name) for name in names
    )
    if usable and len(set(names)) == len(names):
        return names
    return letters(len(commands))


def letters(count: int) -> list[str]:
    """A, B, ..., Z, A26, A27: names of commands that differ in nothing short."""
    return [chr(ord("A") + number) if number < 26 else f"A{number}" for number in range(count)]


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:  # an open quote, which the shell will report
        return text.split()


def _literal(command: str) -> str:
    """The command with dollars doubled where an experiment file would fill in a variable: the shell does that here."""
    return command.replace("$", "$$") if "${" in command or "$$" in command else command


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _toml(value: Any) -> str:
    """A value of TOML, which differs from JSON in tables and in the character DEL."""
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{json.dumps(key)} = {_toml(item)}" for key, item in value.items()) + " }"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_toml, value))}]"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
