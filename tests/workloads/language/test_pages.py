"""The page of a training campaign, from runs that really trained."""

from __future__ import annotations

import re

import pytest
from scipy.stats import fisher_exact

from support.processes import Lab
from workloads.language.test_language import lines, toml


@pytest.mark.slow
def test_the_page_says_what_was_learnt_and_shows_answers_side_by_side(lab: Lab) -> None:
    lab.experiment(f"""
workload = "language"
seeds = 2
[params]
{toml(steps=4, eval_every=2)}
[[arms]]
name = "start"
params = {{ steps = 0 }}
[[arms]]
name = "<dr>"
params = {{ advantage = "dr_grpo" }}
[[arms]]
name = "again"
params = {{ advantage = "dr_grpo", own_sampling = true }}
[[arms]]
name = "ruined"
params = {{ advantage = "dr_grpo", learning_rate = 0.1 }}
""")
    lab.cli("run", "trial.toml")
    lab.cli("report", "trial")
    front = (lab.directory() / "report" / "index.html").read_text()
    assert (
        front.index("No arm beats start")
        < front.index("the two equal arms of the A/A pair differ by")
        < front.index('id="verdicts"')
    )
    page = (lab.directory() / "report" / "training.html").read_text()
    assert "No arm beats start, which trains nothing" in page, "two seeds have no interval, so nothing is claimed"
    heads = ["held-out accuracy, sampled", "greedy", "pass@4"]
    assert "".join(f'<th scope="col" class="r">{head}</th>' for head in heads) in page
    assert "sampled at temperature 1 in all arms" in page
    assert "Greedy accuracy fell" in front and "Greedy accuracy fell" in page
    fell = re.search(r"from (0\.\d\d) to (0\.\d\d) in ruined", front)
    assert fell is not None and fell[1] > fell[2], "an arm that got worse is named in the headline"
    assert "from this warm start (" in page and "A = r - mean; token: A;" in page
    for heading in (
        "Learning curves",
        "Entropies and pooling",
        "Informative groups",
        "Held-out accuracy by sampled tokens",
    ):
        assert heading in page
    assert '<th scope="col">&lt;dr&gt;</th>' in page and "<u>apply</u> <u>" in page and "of 8 right" in page
    assert "<dr>" not in page

    found = re.search(r"again (\d+) of (\d+) against &lt;dr&gt; (\d+) of (\d+): p = ([\d.e-]+), design effect", page)
    assert found is not None
    b, n, a, m = map(int, found.groups()[:4])
    assert n == m == 2 * 32 * 4
    rows = [(row["arm"], lines(lab.run_directory(row["run_id"]) / "metrics.jsonl")[-1]) for row in lab.rows()]
    assert b == sum(round(row["heldout_accuracy"] * 128) for arm, row in rows if arm == "again")
    assert float(found[5]) == pytest.approx(fisher_exact([[a, m - a], [b, n - b]]).pvalue, rel=0.05)
