"""bakeoff: run agents, policies and training recipes against each other and learn which one is better.

    import bakeoff

    experiment = bakeoff.load("experiment.toml")
    experiment.run()
    experiment.table()  # a Polars frame; .to_pandas() with pip install 'bakeoff[pandas]'
    print(bakeoff.compare(experiment)[0].sentence)

Inside a script that bakeoff runs (or that runs on its own): `bakeoff.log(step, reward=1.0)`, `bakeoff.finish(score=2)`.
Names are imported when they are first used, so that `import bakeoff` costs next to nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bakeoff.version import __version__ as __version__

if TYPE_CHECKING:
    from bakeoff.api import Experiment as Experiment
    from bakeoff.api import calibrate as calibrate
    from bakeoff.api import compare as compare
    from bakeoff.api import gate as gate
    from bakeoff.api import litmus as litmus
    from bakeoff.api import load as load
    from bakeoff.api import power as power
    from bakeoff.api import rank as rank
    from bakeoff.api import variance as variance
    from bakeoff.errors import BakeoffError as BakeoffError
    from bakeoff.errors import InfraError as InfraError
    from bakeoff.errors import SpecError as SpecError
    from bakeoff.records.script import finish as finish
    from bakeoff.records.script import log as log
    from bakeoff.spec.workload import Outcome as Outcome
    from bakeoff.spec.workload import RunContext as RunContext
    from bakeoff.spec.workload import Step as Step
    from bakeoff.verdicts.comparison import Verdict as Verdict

_HOMES = {
    "BakeoffError": "bakeoff.errors",
    "Experiment": "bakeoff.api",
    "InfraError": "bakeoff.errors",
    "Outcome": "bakeoff.spec.workload",
    "RunContext": "bakeoff.spec.workload",
    "SpecError": "bakeoff.errors",
    "Step": "bakeoff.spec.workload",
    "Verdict": "bakeoff.verdicts.comparison",
    "calibrate": "bakeoff.api",
    "compare": "bakeoff.api",
    "finish": "bakeoff.records.script",
    "gate": "bakeoff.api",
    "litmus": "bakeoff.api",
    "load": "bakeoff.api",
    "log": "bakeoff.records.script",
    "power": "bakeoff.api",
    "rank": "bakeoff.api",
    "variance": "bakeoff.api",
}

__all__ = [*_HOMES, "__version__"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'bakeoff' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
