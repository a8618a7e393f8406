"""`summary.html`: what each agent earned, foresaw, risked, said and cost. Plain means; verdicts are the report's."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from bakeoff.text import NOTHING, figure
from bakeoff.web.folder import Page
from bakeoff.workloads.market.pages.parts import note, section, table, text
from bakeoff.workloads.market.pages.played import Played, arms_of, tasks_of
from bakeoff.workloads.market.pages.tables import metrics_csv

Names = tuple[tuple[str, str], ...]
GROUPS: tuple[tuple[str, str, Names], ...] = (
    (
        "Money",
        "Dollars. Everyone starts with 10,000. Gross is before fees, impact and funding.",
        (
            ("total_pnl", "P&L"), ("prediction_pnl", "from predictions"), ("perp_pnl", "from perpetuals"),
            ("gross_pnl", "gross"), ("fees", "fees"), ("impact", "impact"), ("funding", "funding"),
        ),
    ),
    (
        "Optimality",
        "100 is what the Bayes player earns on average in such worlds, 0 is doing nothing. Regret is the Bayes player's P&L in the same "
        "world less the agent's.",
        (("optimality", "optimality"), ("regret", "regret"), ("bayes_pnl", "Bayes player's P&L")),
    ),
    (
        "Forecasts",
        "Brier scores are better when they are low, log scores when they are high. The edge is the market's Brier score less the "
        "agent's: above 0 it knew more than the price.",
        (
            ("forecasts", "forecasts"), ("brier", "Brier"), ("brier_market", "market's Brier"), ("brier_edge", "edge"),
            ("log_score", "log score"), ("log_score_market", "market's log score"),
        ),
    ),
    (
        "Trades and risk",
        "Accuracy is the share of settled predictions that were on the right side. Turnover counts the starting money. "
        "Drawdown is a share of the highest equity so far; Sharpe is for one tick.",
        (
            ("trades", "trades"), ("turnover", "turnover"), ("predictions_settled", "settled"),
            ("prediction_accuracy", "accuracy"), ("perp_win_rate", "perpetuals won"), ("liquidations", "liquidations"),
            ("max_drawdown", "drawdown"), ("sharpe", "Sharpe"),
        ),
    ),
    (
        "Social",
        "Reputation starts at 50; stated probabilities move it when markets resolve.",
        (
            ("posts", "posts"), ("engagement", "engagement"), ("messages", "messages"), ("groups_joined", "chats joined"),
            ("reputation", "reputation"),
        ),
    ),
    (
        "Conduct and cost",
        "Response time is the agent's own, for one turn. Late, crashed and absent turns did nothing.",
        (
            ("think_ms_mean", "mean response, ms"), ("think_ms_max", "longest, ms"), ("no_ops", "turns lost"),
            ("refused", "actions refused"), ("tokens", "tokens"), ("cost_usd", "cost, $"),
        ),
    ),
)  # fmt: skip


def summary_page(played: Sequence[Played]) -> Page:
    done = [run for run in played if run.status == "succeeded"]
    if not done:
        return Page("Summary", "summary", note("No run has succeeded yet."))
    arms, tasks = arms_of(played), tasks_of(done)
    over = f", averaged over {len(tasks)} tasks that weigh the same" if len(tasks) > 1 else ""
    missing = len(played) - len(done)
    told = [
        f"Cards: mean P&amp;L in dollars. Everything here is a mean over n = {_counts(done, arms)} runs of each agent{over}; which differences hold is "
        'said in the <a href="index.html">report</a>.',
        f"{missing} of {len(played)} runs failed or are missing and are in no mean." if missing else "",
        'Every number of every run: <a href="metrics.csv" download>metrics.csv</a>.',
    ]
    parts = [_cards(done, arms), note(*told), *(_group(done, arms, *group) for group in GROUPS)]
    if len(tasks) > 1:
        parts.insert(3, _by_task(done, arms, tasks))
    return Page("Summary", "summary", "".join(parts), files={"metrics.csv": metrics_csv(played)})


def _counts(done: Sequence[Played], arms: Sequence[str]) -> str:
    counts = sorted({sum(run.arm == arm for run in done) for arm in arms})
    return f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"


def mean_over_tasks(done: Sequence[Played], arm: str, metric: str) -> tuple[float | None, int]:
    """The mean of the tasks' means, and how many runs had the metric."""
    by_task: dict[str, list[float]] = {}
    for run in done:
        if run.arm == arm and (value := run.number(metric)) is not None:
            by_task.setdefault(run.task, []).append(value)
    if not by_task:
        return None, 0
    return statistics.fmean(map(statistics.fmean, by_task.values())), sum(map(len, by_task.values()))


def _cards(done: Sequence[Played], arms: Sequence[str]) -> str:
    cards = []
    for arm in arms:
        earned, n = mean_over_tasks(done, arm, "total_pnl")
        share, _ = mean_over_tasks(done, arm, "optimality")
        look = "" if not earned else ' class="good"' if earned > 0 else ' class="bad"'
        optimal = f", optimality {round(share)}" if share is not None else ""
        cards.append(f"<li{look}><strong>{_money(earned)}</strong>{text(arm)}<br><small>n = {n}{optimal}</small></li>")
    return f'<ul class="tiles" aria-label="Mean P&amp;L in dollars">{"".join(cards)}</ul>'


def _money(value: float | None) -> str:
    return NOTHING if value is None else f"{value:+,.0f}" if round(value) else "0"


def _group(done: Sequence[Played], arms: Sequence[str], title: str, told: str, names: Names) -> str:
    known = [(metric, name) for metric, name in names if any(run.number(metric) is not None for run in done)]
    if not known:
        return ""
    rows = []
    for arm in arms:
        runs = sum(run.arm == arm for run in done)
        cells = "".join(f'<td class="r">{_cell(done, arm, metric, runs)}</td>' for metric, _ in known)
        rows.append(f'<tr><th scope="row">{text(arm)}</th><td class="r">{runs}</td>{cells}</tr>')
    heads = ["agent", "n", *(name for _, name in known)]
    return section(title, table(text(told), heads, rows, right=1, kind="numbers"))


def _cell(done: Sequence[Played], arm: str, metric: str, runs: int) -> str:
    value, n = mean_over_tasks(done, arm, metric)
    return figure(value) + (f" <small>n = {n}</small>" if 0 < n < runs else "")


def _by_task(done: Sequence[Played], arms: Sequence[str], tasks: Sequence[str]) -> str:
    rows = []
    for arm in arms:
        cells = []
        for task in tasks:
            mean, n = mean_over_tasks([run for run in done if run.task == task], arm, "total_pnl")
            cells.append(f'<td class="r">{figure(mean)}{f" <small>n = {n}</small>" if n else ""}</td>')
        rows.append(f'<tr><th scope="row">{text(arm)}</th>{"".join(cells)}</tr>')
    return section("P&L by task", table("Mean dollars.", ["agent", *tasks], rows, right=1, kind="numbers"))
