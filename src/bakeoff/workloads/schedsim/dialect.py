"""The sweep runner's dialect: how its files are recognised, and what its users expect to find on disk.

`sweep_plan` reads its experiments, and `sweep_files` its directories and tables. Both are imported when they are
needed: every `bakeoff run` imports this module to find out in which dialect a file is written.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from bakeoff.spec.experiment import Analysis
from bakeoff.spec.registry import Dialect, IdentifiedRun

if TYPE_CHECKING:
    from bakeoff.engine.session import Session
    from bakeoff.records.layout import EditionPaths
    from bakeoff.records.recorded import Recorded
    from bakeoff.results.columns import Sheet
    from bakeoff.spec.plan import Plan
    from bakeoff.workloads.schedsim.sweep_files import BothStreams, Sweeps

DIRECTIONS: dict[str, Literal["maximize", "minimize"]] = dict.fromkeys(
    (
        *(f"{name}_{part}_ms" for name in ("makespan", "flow_time") for part in ("mean", "p50", "p95", "p99")),
        "cost_mean", "cost_p50", "cost_total", "total_time_ms", "wasted_ms", "workflows_failed", "failures", "timeouts",
        "retries", "cancellations", "restarts",
    ), "minimize",
)  # fmt: skip
"""Of the metrics of a run's summary: less is better."""
PARAMETERS = (
    "workflows", "pdfs", "iters", "subqueries", "policy", "seed", "time_scale", "heavy_tail_prob", "heavy_tail_mult",
)  # fmt: skip
"""The simulator's options that take a value, in the order in which the sweep runner writes them."""
SWITCH = "enable_model_routing"
"""The one parameter that is a flag."""
TASK_KEY = "workflows"


def arm_name(base: str, ablation: str) -> str:
    """`full+no_hedge`; the base alone for the ablation that changes nothing."""
    return base if ablation == "baseline" else f"{base}+{ablation}"


class SweepDialect(Dialect):
    """Experiment files of the sweep runner, and the files that its users expect; see `Dialect` for the hooks."""

    name: ClassVar[str] = "sweep"
    keys: ClassVar[frozenset[str]] = frozenset({"sim_binary", "common_args", "out_root"})
    live_files: ClassVar[bool] = True
    variables: ClassVar[bool] = False
    analysis: ClassVar[Analysis] = Analysis(
        metric="makespan_p95_ms", direction="minimize", directions=DIRECTIONS, tasks="fixed"
    )

    def plan(self, tree: dict[str, Any], path: Path) -> Plan:
        from bakeoff.workloads.schedsim.sweep_plan import plan

        return plan(tree, path)

    def meta(self, params: dict[str, Any], run: IdentifiedRun) -> dict[str, Any]:
        """The sweep runner counts the seed among the parameters."""
        return {**params, "seed": run.seed}

    def observers(self, session: Session) -> Sequence[BothStreams]:
        """The original leaves both files of output in every run's directory, also when nothing was written."""
        from bakeoff.workloads.schedsim.sweep_files import BothStreams

        return [BothStreams(session.edition.paths)]

    def after_begin(self, paths: EditionPaths) -> None:
        """Its users look for `runs/`, `aggregate/` and `report/` right below the experiment."""
        from bakeoff.records.layout import LATEST, replace_link

        for name in ("runs", "aggregate", "report"):
            (paths.directory / name).mkdir(exist_ok=True)
            replace_link(paths.directory.parent / name, f"{LATEST}/{name}")

    def table(self, edition: Recorded) -> Sheet:
        from bakeoff.workloads.schedsim.sweep_files import sheet_of_edition

        return sheet_of_edition(edition)

    def importer(self) -> Sweeps:
        from bakeoff.workloads.schedsim.sweep_files import Sweeps

        return Sweeps()

    def table_of_directory(self, directory: Path) -> tuple[Sheet, list[str]] | None:
        from bakeoff.workloads.schedsim.sweep_files import sheet_of_directory

        return sheet_of_directory(directory) if (directory / "runs").is_dir() else None


SWEEP = SweepDialect()
