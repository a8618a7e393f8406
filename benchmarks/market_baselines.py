"""Check that the market world's agents rank as expected and that the exploit probes earn nothing.

    python benchmarks/market_baselines.py            40 seeds x 6 regimes for every agent: some minutes on 2 cores
    python benchmarks/market_baselines.py --quick    4 seeds x 6 regimes

Uses `bakeoff run` and `bakeoff compare`, as a user's experiment would. Prints one JSON object; the long run also writes
the table in docs/market.md.
"""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path
from typing import Any

from measure import BAKEOFF, environment, machine, options, publish, say, versions, workspace

REGIMES = ("calm", "trend", "crash", "scandal", "pump-and-dump", "drought")
NAIVE = ("random", "buy-and-hold", "momentum", "mean-reversion", "follow-the-news", "follow-insider", "market-price")
PROBES = (
    "generator-cracker",
    "cheap-side",
    "both-sides",
    "always-long",
    "unbounded-stake",
    "wash-trader",
    "price-pusher",
)
SECRET = "market-baselines"
"""Not the published secret, because the generator cracker tries that one."""
MARGIN = 50.0
"""Dollars: half a percent of the stake, and a small part of what the Bayes player earns."""
PAGE = Path(__file__).parents[1] / "docs" / "market.md"
MARKS = ("<!-- verdicts -->", "<!-- /verdicts -->")
METHOD = (
    "Every agent plays the same worlds: six regimes as fixed tasks, seeds paired, tier normal, 30 ticks, 5 markets, 3 perpetuals, "
    "8 background traders, drawn with a secret that no agent knows. `bakeoff compare` on total_pnl: all agents against kelly-bayes "
    f"and, with a margin of {MARGIN:g} dollars, against null; Holm over each family. A probe holds when its verdict is `equivalent` "
    "to null or `worse`; a baseline when it is `worse` than kelly-bayes."
)


def experiment(seeds: int) -> str:
    arms = ("null", *NAIVE, "kelly-bayes", "clairvoyant", *PROBES)
    head = [
        'name = "market-baselines"',
        'workload = "market"',
        f'seeds = "1..{seeds}"',
        'task_keys = ["regime"]',
        f"matrix.regime = {json.dumps(REGIMES)}",
        "[analysis]",
        'metric = "total_pnl"',
        'control = "null"',
        'tasks = "fixed"',
        "failure_score = -10000.0",
    ]
    return "\n".join([*head, *(f'[[arms]]\nname = "{arm}"\nparams.agent = "{arm}"' for arm in arms)]) + "\n"


def bakeoff(directory: Path, *words: str) -> str:
    """Run bakeoff and return its standard output. Exit code 3 is allowed: something is undecided."""
    env = {**environment(), "BAKEOFF_MARKET_SECRET": SECRET}
    done = subprocess.run([*BAKEOFF, *words], cwd=directory, env=env, capture_output=True, text=True)
    if done.returncode not in (0, 3):
        raise SystemExit(f"bakeoff {' '.join(words)} failed with {done.returncode}:\n{done.stderr[-3000:]}")
    return done.stdout


def verdicts(directory: Path, control: str, *more: str) -> dict[str, dict[str, Any]]:
    found = json.loads(bakeoff(directory, "compare", "market-baselines", "--json", "--control", control, *more))
    return {one["candidate"]: one for one in found["comparisons"]}


def checks(bayes: dict[str, Any], null: dict[str, Any]) -> list[dict[str, Any]]:
    """Every expected verdict, and whether it holds."""
    found = [_held(f"{arm} earns less than kelly-bayes", bayes[arm], ("worse",)) for arm in ("null", *NAIVE)]
    found.append(_held("kelly-bayes earns more than null", null["kelly-bayes"], ("better",)))
    found.append(_held("clairvoyant earns more than kelly-bayes", bayes["clairvoyant"], ("better",)))
    return found + [_held(f"{arm} earns nothing", null[arm], ("equivalent", "worse")) for arm in PROBES]


def _held(what: str, verdict: dict[str, Any], wanted: tuple[str, ...]) -> dict[str, Any]:
    holds = verdict["verdict"] in wanted
    say(f"{'holds' if holds else 'FAILS'}: {what}: {verdict['verdict']}, {verdict['effect']:+.1f} dollars")
    return {"what": what, "wanted": list(wanted), "holds": holds, **_short(verdict)}


def _short(verdict: dict[str, Any]) -> dict[str, Any]:
    interval = verdict["decision_interval"]
    return {
        "verdict": verdict["verdict"],
        "effect": verdict["effect"],
        "low": interval and interval["low"],
        "high": interval and interval["high"],
        "p_adjusted": verdict["p_adjusted"],
        "units": verdict["units"],
    }


def table(null: dict[str, Any], bayes: dict[str, Any]) -> str:
    """Rows of the table in docs/market.md, best agent first."""
    lines = [
        f"| agent | mean | interval of the verdict | against `null`, margin {MARGIN:g} | against `kelly-bayes` |",
        "|---|---|---|---|---|",
    ]
    for arm, one in sorted(null.items(), key=lambda item: -item[1]["effect"]):
        found, other = _short(one), bayes.get(arm, {}).get("verdict", "")
        lines.append(
            f"| `{arm}` | {found['effect']:+,.0f} | {found['low']:+,.0f} to {found['high']:+,.0f} | {found['verdict']} | {other} |"
        )
    return "\n".join(lines)


def write_page(text: str) -> None:
    """Write the table into docs/market.md, between its two markers."""
    before, rest = PAGE.read_text().split(MARKS[0])
    PAGE.write_text(f"{before}{MARKS[0]}\n{text}\n{MARKS[1]}{rest.split(MARKS[1])[1]}")


def main() -> None:
    given = options(__doc__ or "")
    seeds = 4 if given.quick else 40
    began = time.perf_counter()
    with workspace() as directory:
        (directory / "market-baselines.toml").write_text(experiment(seeds))
        say(f"{seeds} seeds x {len(REGIMES)} regimes for each of {len(NAIVE) + len(PROBES) + 3} agents")
        bakeoff(directory, "run", "market-baselines.toml")
        bayes = verdicts(directory, "kelly-bayes")
        null = verdicts(directory, "null", "--margin", str(MARGIN))
    publish(
        "market_baselines",
        given,
        checks(bayes, null),
        {
            "scenarios": seeds * len(REGIMES),
            "margin": MARGIN,
            "against_null": {arm: _short(one) for arm, one in null.items()},
            "against_kelly_bayes": {arm: _short(one) for arm, one in bayes.items()},
            "seconds": time.perf_counter() - began,
        },
        method=METHOD,
        facts=machine(Path(__file__).parent),
        programs=versions("numpy", "numba"),
    )
    if not given.quick:
        write_page(table(null, bayes))


if __name__ == "__main__":
    main()
