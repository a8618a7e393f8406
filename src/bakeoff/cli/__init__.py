"""The command line: one module for each verb, imported when that verb is called and not before.

Verbs share `options` (click options and what they name) and `display` (what is printed). Verbs that answer a question
(`compare`, `gate`, `rank` and so on) share `questions`, which makes click options from the question models. `run` shows
its progress with `progress` and its plan with `dry_run`; `try` is `trial`, which runs as `run` does. Workloads add verbs through the entry-point group
`bakeoff.commands`.
"""

from __future__ import annotations

import errno
import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar

import click

from bakeoff.version import __version__

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

VERBS: dict[str, tuple[str, str]] = {
    "try": ("bakeoff.cli.trial", "Run commands against each other, without a file, and say which one is better."),
    "init": ("bakeoff.cli.init", "Write a small experiment file that runs, to start from."),
    "validate": ("bakeoff.cli.validate", "Check an experiment file and show what it would run."),
    "run": ("bakeoff.cli.run", "Run what an experiment file asks for and is not done yet."),
    "launch": ("bakeoff.cli.launch", "Run an experiment as a job of SkyPilot, KubeRay or Slurm."),
    "prereg": ("bakeoff.cli.prereg", "Freeze plan, metric, test and alpha with a hash before the first result."),
    "ls": ("bakeoff.cli.ls", "List experiments, or the editions of one."),
    "status": ("bakeoff.cli.status", "Show the progress of an edition, its failures and its plain means."),
    "show": ("bakeoff.cli.show", "Show everything recorded about one run."),
    "logs": ("bakeoff.cli.logs", "Print what a run wrote."),
    "reproduce": ("bakeoff.cli.reproduce", "Print or execute the exact command of one run."),
    "diff": ("bakeoff.cli.diff", "Show what differs between two editions."),
    "collect": ("bakeoff.cli.collect", "Write an edition's table as CSV and Parquet."),
    "plot": ("bakeoff.cli.plot", "Draw results: curves, differences, profiles and more, as PNG, SVG or HTML."),
    "view": ("bakeoff.cli.view", "Show experiments in a browser while they run and after."),
    "report": ("bakeoff.cli.report", "Write an edition's report: a folder of HTML that opens without a network."),
    "export": (
        "bakeoff.cli.export",
        "Write runs as training data for TRL, ART, verifiers and others, or as logs of Inspect.",
    ),
    "summarize": ("bakeoff.cli.summarize", "Show tries, scores, passes, tokens and cost by task and arm."),
    "query": ("bakeoff.cli.query", "Query an edition's table of runs in SQL."),
    "compare": ("bakeoff.cli.compare", "Say which arm is better, worse or equivalent, and how sure that is."),
    "gate": ("bakeoff.cli.gate", "For CI: check that no metric regressed more than allowed."),
    "calibrate": ("bakeoff.cli.calibrate", "Measure how often these runs would lead to a wrong verdict."),
    "variance": ("bakeoff.cli.variance", "Show how precise a mean is at N runs, and how many runs it needs."),
    "power": ("bakeoff.cli.power", "Show how many runs an effect needs, and what the runs so far can detect."),
    "litmus": ("bakeoff.cli.litmus", "Check rules with thresholds and evidence: confirmed, failed or inconclusive."),
    "rank": ("bakeoff.cli.rank", "Rank many arms on many tasks: IQM, profiles, ranks, pass@k."),
    "sandbox": ("bakeoff.cli.sandbox", "Check the sandboxes of this machine, clean up, and take in images."),
    "import": ("bakeoff.cli.importing", "Import a directory of results from elsewhere."),
    "rm": ("bakeoff.cli.rm", "Delete an edition or a whole experiment."),
}
"""Each verb of the core: its module, which has a click command called `command`, and its line in `bakeoff --help`."""

COMMANDS = "bakeoff.commands"
"""The entry-point group of tables like VERBS, by which workloads add verbs. A table's module must import nothing heavy."""


def print_note(message: str) -> None:
    """Print a note on standard error."""
    click.echo(f"note: {message}", err=True)


class Verbs(click.Group):
    """A group that has a table of its verbs. Help is written from the table, so that it imports no verb.

    A subclass with its own table is a group of verbs inside a verb, such as `bakeoff market`.
    """

    verbs: ClassVar[dict[str, tuple[str, str]]] = VERBS
    plugins: ClassVar[str | None] = None
    """The entry-point group with further tables."""

    def table(self) -> dict[str, tuple[str, str]]:
        """Its own verbs, then those of plug-ins. A plug-in cannot replace a verb of the core."""
        table = dict(self.verbs)
        if self.plugins is None:
            return table
        from bakeoff.plugins import load_all

        for _, added in load_all(self.plugins, report=print_note):
            table = {**table, **{verb: entry for verb, entry in added.items() if verb not in table}}
        return table

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.table())

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        entry = self.verbs.get(cmd_name) or self.table().get(cmd_name)  # plug-ins only if it is not one of ours
        if entry is None:
            return None
        from importlib import import_module

        command: click.Command = import_module(entry[0]).command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in self.table().items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Verbs from the table, so that completing one imports none."""
        from click.shell_completion import CompletionItem

        verbs = [CompletionItem(name, help=line) for name, (_, line) in self.table().items()]
        return [
            *(verb for verb in verbs if verb.value.startswith(incomplete)),
            *click.Command.shell_complete(self, ctx, incomplete),
        ]

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args == ["help"]:
            click.echo(ctx.get_help())
            ctx.exit()
        if args[:1] == ["help"]:
            args = [*args[1:], "--help"]
        if args and not args[0].startswith("-") and args[0] not in self.verbs and args[0] not in self.table():
            from bakeoff.errors import did_you_mean

            hint = did_you_mean(args[0], self.table(), f"`{ctx.command_path} --help` lists them")
            ctx.fail(f"no such command {args[0]!r}; {hint}")
        return super().resolve_command(ctx, args)

    def main(self, *args: Any, **settings: Any) -> Any:
        """Call the verb, with /dev/null open for each standard stream that the caller closed.

        Otherwise printing fails, and the next file to be opened, such as the database, gets descriptor 0, 1 or 2.
        """
        for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
            if getattr(sys, name) is None:
                number = os.open(os.devnull, os.O_RDWR)
                os.set_inheritable(number, True)
                setattr(sys, name, os.fdopen(number, mode))
        return super().main(*args, **settings)

    def make_context(self, *args: Any, **settings: Any) -> click.Context:
        try:
            return super().make_context(*args, **settings)
        except OSError as error:  # --help and --version print here
            sys.exit(_output_error(error))

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (KeyboardInterrupt, click.Abort):
            click.echo("interrupted", err=True)
            ctx.exit(130)
        except OSError as error:
            ctx.exit(_output_error(error))
        except ModuleNotFoundError as error:
            from bakeoff.errors import install, missing_extra

            extra = missing_extra(error)
            if extra is None:
                raise
            _fail(ctx, f"this needs the package {error.name}: {install(extra)}", 2)
        except (click.ClickException, click.exceptions.Exit):
            raise
        except Exception as error:
            from bakeoff.errors import BakeoffError

            if not isinstance(error, BakeoffError):  # damage in an edition that this call has opened, or a bug of ours
                from bakeoff.records.damage import explained
                from bakeoff.records.recorded import OPENED

                error = explained(error, OPENED)
            _fail(ctx, str(error), error.exit_code)


def _output_error(error: OSError) -> int:
    """Report an error of the system and return the exit code: 141, as after SIGPIPE, when nobody reads our output."""
    if error.errno != errno.EPIPE:
        with suppress(OSError):
            click.echo(f"error: {error.filename}: {error.strerror}" if error.filename else f"error: {error}", err=True)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:  # Python would try again when it exits, print that it failed and exit with 120
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    return 141 if error.errno == errno.EPIPE else 1


def _fail(ctx: click.Context, message: str, code: int) -> None:
    from bakeoff.text import printable

    click.echo(f"error: {printable(message)}", err=True)
    ctx.exit(code)


class Bakeoff(Verbs):
    plugins = COMMANDS


@click.group(cls=Bakeoff, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(
    __version__,
    message=f"bakeoff %(version)s (Python {sys.version.split()[0]})",
    help="Show the version and exit.",
)
def main() -> None:
    """Run agents, policies and training recipes against each other and learn which one is better."""
