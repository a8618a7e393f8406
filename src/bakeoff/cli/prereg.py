"""`bakeoff prereg FILE`: fix the analysis before the first result."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import click

from bakeoff.cli.display import print_facts, print_json
from bakeoff.cli.options import FILE, json_option, results_root, root_option, set_option
from bakeoff.engine.session import Options
from bakeoff.errors import UsageError
from bakeoff.records.layout import registration_of
from bakeoff.spec.load import load_plan
from bakeoff.verdicts.sequential import prereg
from bakeoff.verdicts.sequential.until_decided import settled


@click.command()
@click.argument("file", type=FILE)
@click.option("-o", "--output", type=FILE, metavar="FILE", help="Write it there instead. `run` finds it only beside the experiment file.")  # fmt: skip
@set_option
@click.option("--late", is_flag=True, help="Register although there are results. The registration is marked as late.")
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
    registered one. Refused when there are results already.
    """
    plan = load_plan(file, overrides)
    root = results_root(ctx, root, plan)
    if plan.experiment.analysis.metric is None:
        raise UsageError(f"{file}: there is nothing to register without a metric; set analysis.metric")
    if plan.experiment.sequential is not None:
        plan = settled(plan, Options(root=root))
    results = prereg.results_exist(root, plan.experiment.name)
    if results is not None and not late:
        raise UsageError(f"{results} has results already, so it is too late to register; --late does it and says so")
    target = output or registration_of(file)
    content = _keep(target, prereg.register(plan, file, root=root, late=results is not None))
    if as_json:
        print_json({**content, "file": target})
        return
    analysis, test, code = content["analysis"], content["test"], content["code"]
    state = f"not under version control; {len(content['files']['files'])} files by their digests"
    if code is not None:
        state = f"{str(code['commit'])[:12]}{', with uncommitted changes' if code['dirty'] else ''}"
    print_facts(
        {
            "experiment": content["experiment"],
            "metric": ", ".join(dict.fromkeys([analysis["metric"], *analysis["primary"]])),
            "control": analysis["control"] or plan.arms[0].name,
            "runs": f"{content['runs']['count']} ({content['runs']['digest']})",
            "test": f"{test['name']}, {test['units']} units ({test['unit']})",
            "alpha": f"{analysis['alpha']:g}",
            "margin": "none" if analysis["margin"] is None else f"{analysis['margin']:g}",
            "code": state,
            "hash": content["hash"],
            "file": str(target),
        }
    )
    if content["late"]:
        click.echo("Registered late: there were results already.")


def _keep(target: Path, content: dict[str, Any]) -> dict[str, Any]:
    """Write the registration, or return the one in `target` when it promises the same. Another one is not overwritten."""
    if target.exists():
        earlier = prereg.read(target)
        if prereg.promise(earlier) != prereg.promise(content):
            raise UsageError(f"{target}: holds another registration, which is never overwritten; move it away first")
        return earlier
    fresh = target.with_name(f".{target.name}-{os.getpid()}")  # renamed when complete, so that it is never half written
    fresh.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    fresh.replace(target)
    return content
