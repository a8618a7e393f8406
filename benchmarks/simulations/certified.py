"""Certificates of random tables, certificates that were tampered with, and what `scripts/verify.py` says about them."""

from __future__ import annotations

import contextlib
import io
import json
import math
import random
import sys
from collections.abc import Callable
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

from random_tables import RandomTable

from bakeoff.errors import UsageError
from bakeoff.spec.experiment import Analysis
from bakeoff.verdicts.certificate import certificate, decision_facts, digest
from bakeoff.verdicts.comparison import compare
from bakeoff.verdicts.observations import Observation, Observations
from bakeoff.verdicts.question import Compare
from bakeoff.verdicts.questions.compare import answer

Certificate = dict[str, Any]
SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "verify.py"


def load_script() -> Any:
    """Return scripts/verify.py as a module."""
    spec = spec_from_file_location("verify", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    sys.modules["verify"] = module
    spec.loader.exec_module(module)
    return module


verify = load_script()


def certify(table: RandomTable) -> Certificate | None:
    """Return the certificate of a table as a reader of its file sees it; None where `compare` refuses the table."""
    results = table.results()
    try:
        facts = certificate(results, answer(results, table.question(Compare)))
    except UsageError:
        return None
    read: Certificate = json.loads(json.dumps(facts))
    return read


def outcome(facts: Certificate, path: Path) -> tuple[int, str]:
    """Return exit code and output of verify.py for a certificate."""
    path.write_text(json.dumps(facts))
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        code = verify.main([str(path)])
    return code, text.getvalue()


def judged_again(facts: Certificate) -> list[dict[str, Any]]:
    """Return the decisions that bakeoff itself reaches from the rows and the question of a certificate."""
    asked = facts["question"]
    observed = []
    for metric, rows in facts["rows"].items():
        given = asked["metrics"][metric]
        names = (
            "direction",
            "alpha",
            "margin",
            "relative_margin",
            "bounds",
            "failure_score",
            "tasks",
            "seeds",
            "cluster",
            "ties",
        )
        analysis = Analysis.model_validate({name: given[name] for name in names})
        values = [Observation(*row[:5], math.nan if row[5] is None else row[5]) for row in rows]
        observed.append(Observations(metric, values, analysis, final=given["final"], groups=facts["groups"]))
    options = {name: asked[name] for name in ("control", "unpaired", "intersect", "simultaneous")}
    return [decision_facts(each) for each in compare(observed, Compare.ask(**options), verdict_only=True)]


def _scaled(number: float | None, rng: random.Random) -> float:
    """Return another number, wrong from the second or third digit on."""
    return rng.random() if not number else number * rng.choice((0.5, 0.99, 1.01, 2.0))


def _wrong_decision(facts: Certificate, rng: random.Random) -> None:
    decision = rng.choice(facts["decisions"])
    name = rng.choice(list(decision))
    value = decision[name]
    if isinstance(value, dict):
        end = rng.choice(list(value))
        value[end] = _scaled(value[end], rng)
    elif name == "verdict":
        decision[name] = rng.choice([word for word in ("better", "worse", "equivalent", "undecided") if word != value])
    elif isinstance(value, bool):
        decision[name] = not value
    elif isinstance(value, str):
        decision[name] = value + "x"
    elif isinstance(value, int):
        decision[name] = value + 1
    else:
        decision[name] = _scaled(value, rng)


def _other_decisions(facts: Certificate, rng: random.Random) -> None:
    decisions = facts["decisions"]
    if rng.random() < 0.5:
        decisions.remove(rng.choice(decisions))
    else:
        decisions.append(dict(rng.choice(decisions)))


def _other_question(facts: Certificate, rng: random.Random) -> None:
    asked = rng.choice(list(facts["question"]["metrics"].values()))
    others: dict[str, Callable[[Any], Any]] = {
        "alpha": lambda alpha: min(0.49, alpha * rng.choice((0.5, 2.0, 4.0))),
        "margin": lambda margin: None if asked["relative_margin"] else _scaled(margin, rng),
        "direction": lambda word: "minimize" if word == "maximize" else "maximize",
        "tasks": lambda word: "fixed" if word == "sample" else "sample",
        "seeds": lambda word: "crossed" if word == "nested" else "nested",
        "ties": lambda word: "full" if word == "half" else "half",
        "bounds": lambda bounds: [-1e6, 1e6] if bounds is None else None,
        "failure_score": lambda score: (score or 0.0) + 1.0,
        "final": lambda final: not final,
    }
    name = rng.choice(list(others))
    asked[name] = others[name](asked[name])


def _other_family(facts: Certificate, rng: random.Random) -> None:
    asked = facts["question"]
    match rng.randrange(4):
        case 0:
            asked["planned"]["arms"].append("Z")
            asked["planned"]["candidates"].append("Z")
        case 1:
            asked["primary"].append("another")
        case 2:
            asked["planned"]["candidates"].pop()
        case 3:
            asked["unpaired"] = not asked["unpaired"]


def _other_rows(facts: Certificate, rng: random.Random) -> None:
    rows = rng.choice(list(facts["rows"].values()))
    row = rng.choice(rows)
    match rng.randrange(4):
        case 0:
            row[5] = (row[5] or 0.0) + rng.choice((0.25, 1.0, -1.0))
            row[4] = "scored"
        case 1:
            rows.remove(row)
        case 2:
            rows.append([row[0], row[1], 99 if row[2] is not None else None, 99, "scored", rng.gauss(0, 1)])
        case 3:
            row[4:] = ["missing", None]


KINDS = (
    _wrong_decision,
    _wrong_decision,
    _wrong_decision,
    _other_decisions,
    _other_question,
    _other_family,
    _other_rows,
)


def tampered(facts: Certificate, number: int) -> Certificate | None:
    """Return the certificate with something false in it and a digest that fits; None where it is still true.

    A changed question or row leaves a certificate true where bakeoff reaches the same decisions from it, or is one that
    bakeoff would refuse to judge.
    """
    rng = random.Random(number)
    changed: Certificate = json.loads(json.dumps(facts))
    if number % 20 == 0:
        changed["decisions"][0]["units"] += 1  # and the digest of before
        return changed
    rng.choice(KINDS)(changed, rng)
    try:
        # The family's size cannot be told from the rows of a table, so bakeoff is asked about everything else.
        family = changed["question"]["planned"] != facts["question"]["planned"] or (
            changed["question"]["primary"] != facts["question"]["primary"]
        )
        if not family and same(judged_again(changed), changed["decisions"]):
            return None
    except (UsageError, ValueError, IndexError, TypeError, ArithmeticError):
        return None
    return {**changed, "sha256": digest(changed)}


def same(found: Any, said: Any) -> bool:
    """Whether decisions are equal up to rounding."""
    if isinstance(found, list):
        return len(found) == len(said) and all(same(x, y) for x, y in zip(found, said, strict=True))
    if isinstance(found, dict):
        return isinstance(said, dict) and found.keys() == said.keys() and all(same(found[k], said[k]) for k in found)
    if isinstance(found, float) and isinstance(said, float):
        return math.isclose(found, said, rel_tol=1e-5, abs_tol=1e-9)
    return bool(found == said)
