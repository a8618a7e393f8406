"""`bakeoff prereg FILE`: say before the first result how it will be judged."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from bakeoff.cli.display import print_facts, print_json
from bakeoff.cli.options import json_option, root_option
from bakeoff.engine.session import Options
from bakeoff.errors import UsageError
from bakeoff.records.layout import registration_of
from bakeoff.spec.load import load_plan
from bakeoff.spec.plan import Plan
from bakeoff.verdicts import prereg
from bakeoff.verdicts.until_decided import settled


@click.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Write it there instead; `run` finds it only beside the experiment file.")  # fmt: skip
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Change a key of the file, as for `run`.")
@click.option("--late", is_flag=True, help="Register although there are results; it is marked as late.")
@root_option
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    /,
    file: Path,
    output: Path | None,
    overrides: tuple[str, ...],
    late: bool,
    root: Path,
    as_json: bool,
) -> None:
    """Freeze plan, seeds, metric, test, alpha and margin of FILE, with a hash, before the first result.

    Writes FILE.prereg.json. `run` keeps a copy with the results, and `compare` then says whether the analysis is the
    registered one. Refused when results are there already.
    """
    plan = load_plan(file, overrides)
    given = ctx.get_parameter_source("root") is not ParameterSource.DEFAULT
    root = root if given or plan.root is None else plan.root
    if plan.experiment.analysis.metric is None:
        raise UsageError(f"{file}: there is nothing to register without a metric; set analysis.metric")
    if plan.experiment.sequential is not None:
        plan = settled(plan, Options(root=root))
    found = prereg.results_exist(root, plan.experiment.name)
    if found is not None and not late:
        raise UsageError(f"{found} has results already, so this would be no promise; --late registers it as late")
    target = output or registration_of(file)
    content = _kept(target, prereg.register(plan, file, late=found is not None))
    if as_json:
        print_json({**content, "file": target})
    else:
        _tell(plan, content, target)


def _kept(target: Path, content: dict[str, Any]) -> dict[str, Any]:
    """The registration that is there, when it promises the same; a different one is never overwritten."""
    if not target.exists():
        whole = json.dumps(content, indent=2, ensure_ascii=False) + "\n"
        fresh = target.with_name(f".{target.name}-{os.getpid()}")
        fresh.write_text(whole, encoding="utf-8")
        fresh.replace(target)
        return content
    before = prereg.read(target)
    if prereg.promise(before) != prereg.promise(content):
        raise UsageError(f"{target}: another registration is there; a promise is not rewritten. Move it away first")
    return before


def _tell(plan: Plan, content: dict[str, Any], target: Path) -> None:
    analysis, test = content["analysis"], content["test"]
    print_facts(
        {
            "experiment": content["experiment"],
            "metric": ", ".join(dict.fromkeys([analysis["metric"], *analysis["primary"]])),
            "control": analysis["control"] or plan.arms[0].name,
            "runs": f"{content['runs']['count']} ({content['runs']['digest']})",
            "test": f"{test['name']}, {test['units']} units ({test['unit']})",
            "alpha": f"{analysis['alpha']:g}",
            "margin": "none" if analysis["margin"] is None else f"{analysis['margin']:g}",
            "code": _code(content["code"]),
            "hash": content["hash"],
            "file": str(target),
        }
    )
    if content["late"]:
        click.echo("Registered late: there were results already.")


def _code(code: dict[str, Any] | None) -> str:
    if code is None:
        return "not under version control"
    return f"{str(code['commit'])[:12]}{', with uncommitted changes' if code['dirty'] else ''}"
