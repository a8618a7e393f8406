"""scripts/verify.py recomputes certificates: its numbers are those of textbooks, and it finds every changed one."""

from __future__ import annotations

import copy
import itertools
import json
import math
import random
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.contingency_tables import mcnemar

SCRIPT = Path(__file__).parent.parent / "scripts" / "verify.py"
SPEC = spec_from_file_location("verify", SCRIPT)
assert SPEC is not None and SPEC.loader is not None
verify: Any = module_from_spec(SPEC)
sys.modules["verify"] = verify
SPEC.loader.exec_module(verify)

Certificate = dict[str, Any]


def question(**changes: Any) -> dict[str, Any]:
    family = {"m": 1, "comparisons": [["new", "old"]]}
    return {
        "metric": "score",
        "direction": "higher",
        "control": "old",
        "alpha": 0.05,
        "margin": None,
        "relative": False,
        "tasks": "sample",
        "seeds": "nested",
        "bounds": None,
        "failure_score": None,
        "ties": "half",
        "cluster": None,
        "family": family,
        "level_share": 1,
    } | changes


def row(arm: str, task: str, seed: Any, value: float | None, rollout: int = 0, **changes: Any) -> dict[str, Any]:
    state = "missing" if value is None else "scored"
    return {
        "arm": arm,
        "task": task,
        "seed": seed,
        "rollout": rollout,
        "state": state,
        "value": value,
        "group": None,
    } | changes


def table(
    tasks: int, seeds: int, gain: float = 1.0, seed: int = 1, arms: tuple[str, ...] = ("old", "new")
) -> list[dict[str, Any]]:
    rng = random.Random(seed)
    return [
        row(arm, f"t{t}", s, round(rng.gauss(gain if arm != "old" else 0, 1), 3))
        for arm in arms
        for t in range(tasks)
        for s in range(seeds)
    ]


def paired(differences: list[float]) -> list[dict[str, Any]]:
    rng = random.Random(5)
    rows = []
    for i, d in enumerate(differences):
        base = rng.randrange(8) / 8
        rows += [row("old", f"t{i:03}", 0, base), row("new", f"t{i:03}", 0, base + d)]
    return rows


def certify(asked: dict[str, Any], rows: list[dict[str, Any]]) -> Certificate:
    """A certificate whose decisions are those that the script recomputes."""
    decisions = []
    for (candidate, control), variants in zip(
        asked["family"]["comparisons"], verify.recompute(verify.Table(asked, rows), set()), strict=True
    ):
        result = variants[0]
        decision = {k: result[k] for k in ("verdict", "unit", "n", "test")}
        decision |= {"candidate": candidate, "control": control, "reason": min(result["reason"], key=str)}
        if result.get("differs") is not None:
            decision["differs"] = result["differs"]
        for name in verify.NUMBERS:
            decision[name] = result[name][1] if result.get(name) else None
        for name in verify.INTERVALS:
            ends = [result.get(f"{name}[{i}]") for i in (0, 1)]
            decision[name] = [e[0] if math.isfinite(e[0]) else None for e in ends] if all(ends) else None
        decisions.append(decision)
    return sealed({"certificate": 1, "bakeoff": "0.1.0", "question": asked, "rows": rows, "decisions": decisions})


def sealed(certificate: Certificate) -> Certificate:
    return certificate | {"sha256": verify.digest(certificate)}


@pytest.fixture
def outcome(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    """`outcome(certificate)` is the exit code and the output of the script."""

    def run(certificate: Any) -> tuple[int, str]:
        path = tmp_path / "v.json"
        path.write_text(certificate if isinstance(certificate, str) else json.dumps(certificate))
        code = verify.main([str(path)])
        return code, capsys.readouterr().out

    return run


# Textbook values


@pytest.mark.parametrize("df", [1, 1.7, 3, 9.4, 60, 4000])
def test_the_t_distribution_is_scipys(df: float) -> None:
    for t in (-3.0, -0.2, 0.0, 0.01, 0.7, 2.2, 9.0, 60.0):
        assert verify.t_tail(t, df) == pytest.approx(stats.t.sf(t, df), rel=1e-9, abs=1e-280)
    for tail in (0.4, 0.05, 0.025, 0.05 / 6, 1e-5):
        assert verify.t_quantile(tail, df) == pytest.approx(stats.t.isf(tail, df), rel=1e-9)


def test_the_incomplete_beta_function_is_scipys() -> None:
    for a, b, x in itertools.product((0.5, 2.0, 30.0), (0.5, 4.0, 80.0), (0.0, 0.001, 0.3, 0.5, 0.98, 1.0)):
        assert verify.beta_tail(a, b, x) == pytest.approx(stats.beta.cdf(x, a, b), rel=1e-10, abs=1e-14)


def test_few_units_are_tested_by_t() -> None:
    d = [0.5, 1.25, -0.25, 2.0, 1.0]
    result = verify.recompute(verify.Table(question(), paired(d)), set())[0][0]
    expected = stats.ttest_1samp(d, 0)
    interval = expected.confidence_interval(0.95)
    assert result["test"] == "P2"
    assert result["p"][0] == pytest.approx(expected.pvalue)
    assert [result["interval[0]"][0], result["interval[1]"][0]] == pytest.approx([interval.low, interval.high])


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("size", [7, 10])
def test_sign_flips_are_those_of_the_specification(size: int, full: bool) -> None:
    rng = random.Random(size)
    d = [rng.randrange(-4, 9) / 4 for _ in range(size)]
    flips = verify.sign_flip(d, [1] * size, full)
    subsets = [s for k in range(1, size + 1) for s in itertools.combinations(d, k)]
    means = sorted(sum(s) / len(s) for s in subsets)
    for x in (0.0, 0.25, -1.0):
        below = sum(m < x - 1e-12 for m in means)
        ties = sum(abs(m - x) <= 1e-12 for m in means)
        expected = (1 + below + ties * (1.0 if full else 0.5)) / 2**size
        assert flips.tail(x, 1, 0) == pytest.approx(expected, rel=1e-12)
        assert flips.tail(x, -1, 0) == pytest.approx((2**size - below - ties * (0.0 if full else 0.5)) / 2**size)
    j = math.floor(0.05 * 2**size / 2 - 1)
    assert flips.interval(0.05) == pytest.approx((means[j], means[-1 - j]))


def test_continuous_sign_flips_are_scipys_permutation_test() -> None:
    rng = np.random.default_rng(3)
    d = rng.normal(0.4, 1, 12)
    expected = stats.permutation_test((d,), np.mean, permutation_type="samples", n_resamples=np.inf, vectorized=True)
    assert verify.sign_flip(list(d), [1] * 12, False).p() == pytest.approx(expected.pvalue, rel=1e-9)


def test_pure_wins_and_losses_count_ties_in_full() -> None:
    d = [1.0] * 9 + [-1.0] * 2
    assert verify.sign_flip(d, [1] * 11, False).p() == pytest.approx(stats.binomtest(9, 11).pvalue)


def test_more_than_20_units_are_counted_exactly_from_two_halves() -> None:
    rng = random.Random(2)
    d = [rng.gauss(0.3, 1) for _ in range(22)]
    flips = verify.sign_flip(d, [1] * 22, False)
    sums = np.zeros(1)
    for v in d:
        sums = np.concatenate([sums, sums + v])
    assert flips.noisy
    assert flips.p() == pytest.approx(2 * (1 + int((sums[1:] < 0).sum())) / 2**22, rel=1e-12)
    assert flips.p(-1) < flips.p() < flips.p(1)


@pytest.mark.parametrize("sizes", [(6, 6), (9, 9), (5, 8)])
def test_two_samples_take_the_larger_of_permutation_and_welch(sizes: tuple[int, int]) -> None:
    rng = np.random.default_rng(sizes[0])
    b, a = rng.normal(1.0, 1, sizes[0]), rng.normal(0, 2, sizes[1])
    evidence = verify.two_sample(list(b), list(a), 0.05, False)

    def statistic(x: Any, y: Any, axis: int = -1) -> Any:
        return stats.ttest_ind(x, y, equal_var=False, axis=axis).statistic

    welch = stats.ttest_ind(b, a, equal_var=False)
    tails = []
    for alternative, side in (("greater", 1), ("less", -1)):
        permuted = stats.permutation_test(
            (b, a), statistic, n_resamples=np.inf, vectorized=True, alternative=alternative
        ).pvalue
        one_sided = stats.ttest_ind(b, a, equal_var=False, alternative=alternative).pvalue
        tails.append(max(permuted, one_sided))
        assert evidence.tail(0.0, side, 0) == pytest.approx(tails[-1], rel=1e-9)
    interval, p = welch.confidence_interval(0.95), min(1.0, 2 * min(tails))
    low, high = interval.low, interval.high
    expected = (min(low, 0), max(high, 0)) if p > 0.05 else (low, high)
    assert evidence.p() == pytest.approx(p)
    assert evidence.interval(0.05) == pytest.approx(expected)


def test_mcnemar_counts_the_tie_half() -> None:
    d = [1.0] * 9 + [-1.0] * 2 + [0.0] * 14
    midp = mcnemar([[5, 2], [9, 9]], exact=True).pvalue - stats.binom.pmf(2, 11, 0.5)
    assert verify.mcnemar(d, False).p() == pytest.approx(midp)
    assert verify.mcnemar(d, True).p() == pytest.approx(stats.binomtest(2, 11).pvalue)


def test_tangos_interval_solves_the_score_equation() -> None:
    # its defining equation: the score at each end is z or -z
    for wins, losses, n in ((12, 2, 14 + 40), (9, 2, 25), (1, 0, 44), (0, 0, 10)):
        evidence = verify.mcnemar([1.0] * wins + [-1.0] * losses + [0.0] * (n - wins - losses), False)
        z = stats.norm.isf(0.025)
        for x, sign in zip(evidence.span(0.05, 0), (1, -1), strict=True):
            # the restricted maximum of the likelihood over the probability of a loss, by search
            q = np.linspace(max(0, -x) + 1e-9, (1 - x) / 2 - 1e-9, 2_000_001)
            with np.errstate(divide="ignore", invalid="ignore"):
                rest = n - wins - losses
                likelihood = wins * np.log(q + x) + losses * np.log(q) + rest * np.log(1 - 2 * q - x)
            best = q[np.nanargmax(likelihood)]
            score = (wins - losses - n * x) / math.sqrt(n * (2 * best + x * (1 - x)))
            assert score == pytest.approx(sign * z, rel=1e-3)
    assert verify.mcnemar([0.0] * 10, False).span(0.05, 0)[1] == pytest.approx(3.8414588 / (10 + 3.8414588), rel=1e-6)


@pytest.mark.parametrize("table_", [(7, 10, 2, 12), (15, 20, 9, 20), (1, 9, 0, 8), (5, 5, 1, 30)])
def test_fisher_and_miettinen_nurminen(table_: tuple[int, int, int, int]) -> None:
    h1, n1, h0, n0 = table_
    evidence = verify.fisher([1.0] * h1 + [0.0] * (n1 - h1), [1.0] * h0 + [0.0] * (n0 - h0), False)
    law = stats.hypergeom(n1 + n0, h1 + h0, n1)
    greater, less = law.sf(h1) + law.pmf(h1) / 2, law.cdf(h1) - law.pmf(h1) / 2
    assert evidence.p() == pytest.approx(min(1, 2 * min(greater, less)))
    z, n = stats.norm.isf(0.025), n1 + n0
    for x, expected in zip(evidence.span(0.05, 0), (z, -z), strict=True):
        # the maximum of the likelihood over the control's rate, by search
        p = np.linspace(max(0, -x) + 1e-9, min(1, 1 - x) - 1e-9, 2_000_001)
        likelihood = h0 * np.log(p) + (n0 - h0) * np.log1p(-p) + h1 * np.log(p + x) + (n1 - h1) * np.log1p(-p - x)
        p0 = p[likelihood.argmax()]
        v = ((p0 + x) * (1 - p0 - x) / n1 + p0 * (1 - p0) / n0) * n / (n - 1)
        assert (h1 / n1 - h0 / n0 - x) / math.sqrt(v) == pytest.approx(expected, rel=1e-4)


def test_holm_adjusts_and_gives_the_level_of_the_first_failure() -> None:
    levels = verify.holm([0.03, 0.001, 0.02], 3, 0.05)
    assert [p for p, _ in levels] == pytest.approx([0.04, 0.003, 0.04])
    assert [level for _, level in levels] == pytest.approx([0.05, 0.05 / 3, 0.025])
    assert [level for _, level in verify.holm([0.03, 0.001, 0.04], 3, 0.05)] == pytest.approx([0.025, 0.05 / 3, 0.025])


def test_a_complete_crossed_table_has_the_variance_of_the_two_way_layout() -> None:
    rng = np.random.default_rng(1)
    t, s = 8, 7
    d = rng.normal(size=(t, 1)) + rng.normal(size=(1, s)) + rng.normal(size=(t, s))
    cells = {(f"t{i}", j): float(d[i, j]) for i in range(t) for j in range(s)}
    test = verify.Table(question(seeds="crossed"), table(t, s)).crossed(cells, False)
    v_task, v_seed = d.mean(1).var(ddof=1) / t, d.mean(0).var(ddof=1) / s
    v_cell = d.var(ddof=1) / (t * s)
    v = max(v_task, v_seed, v_task + v_seed - v_cell)
    df = (v_task + v_seed) ** 2 / (v_task**2 / (t - 1) + v_seed**2 / (s - 1))
    df = min(max(df, s - 1), t + s - 2)
    assert test.evidence.p() == pytest.approx(2 * stats.t.sf(abs(d.mean()) / math.sqrt(v), df))


def test_fixed_tasks_with_nested_seeds_are_strata() -> None:
    rows = table(3, 5)
    value = {(r["arm"], r["task"], r["seed"]): r["value"] for r in rows}
    strata = [[value["new", f"t{t}", s] - value["old", f"t{t}", s] for s in range(5)] for t in range(3)]
    v = [np.var(x, ddof=1) / 5 / 9 for x in strata]
    df = sum(v) ** 2 / sum(x * x / 4 for x in v)
    result = verify.recompute(verify.Table(question(tasks="fixed"), rows), set())[0][0]
    assert result["test"] == "stratified"
    assert result["p"][0] == pytest.approx(2 * stats.t.sf(abs(np.mean(strata)) / math.sqrt(sum(v)), df))


def test_clusters_of_equal_size_are_units_of_their_means() -> None:
    rng = random.Random(8)
    d = [rng.gauss(0.5, 1) for _ in range(12)]
    rows = paired(d)
    for r in rows:
        r["group"] = f"g{int(r['task'][1:]) // 3}"
    result = verify.recompute(verify.Table(question(cluster="suite"), rows), set())[0][0]
    means = [np.mean(d[i : i + 3]) for i in range(0, 12, 3)]
    assert (result["unit"], result["n"], result["test"]) == ("cluster", 4, "P2")
    assert result["p"][0] == pytest.approx(stats.ttest_1samp(means, 0).pvalue)


def test_swapping_the_arms_swaps_the_verdict_and_negates_the_interval() -> None:
    rows = table(9, 2, gain=1.5)
    swapped = question(control="new", family={"m": 1, "comparisons": [["old", "new"]]})
    forth = verify.recompute(verify.Table(question(), rows), set())[0][0]
    back = verify.recompute(verify.Table(swapped, rows), set())[0][0]
    assert (forth["verdict"], back["verdict"]) == ("better", "worse")
    assert forth["p"] == pytest.approx(back["p"])
    assert forth["interval[0]"][0] == pytest.approx(-back["interval[1]"][0])


# Certificates

CASES: dict[str, Certificate] = {
    "P1": certify(question(), table(9, 2)),
    "P2": certify(question(), table(5, 2)),
    "seeds of one task": certify(question(), table(1, 9)),
    "unpaired": certify(question(), [r | {"seed": None, "rollout": r["seed"]} for r in table(1, 8)]),
    "strata": certify(question(tasks="fixed"), table(3, 4)),
    "samples": certify(question(tasks="fixed"), [r | {"seed": None, "rollout": r["seed"]} for r in table(3, 4)]),
    "crossed": certify(question(seeds="crossed"), table(9, 4)[:-3]),
    "crossed, fixed": certify(question(seeds="crossed", tasks="fixed"), table(4, 8)),
    "runs": certify(question(seeds="crossed"), [r | {"seed": f"{r['arm']}{r['seed']}"} for r in table(6, 4)]),
    "McNemar": certify(question(), [r | {"value": float(r["value"] > 0)} for r in table(20, 1)]),
    "Fisher": certify(
        question(), [r | {"value": float(r["value"] > 0), "seed": None, "rollout": r["seed"]} for r in table(1, 20)]
    ),
    "missing": certify(question(bounds=[-4, 6]), [*table(9, 2), row("new", "t0", 2, None), row("old", "t1", 2, 1.0)]),
    "missing, corners": certify(question(), table(5, 2)[:-1]),
    "equivalent": certify(question(margin=3.0, bounds=[-9, 9]), table(7, 2, gain=0.0)),
    "relative": certify(
        question(margin=0.3, relative=True, bounds=[0, 99]), [r | {"value": r["value"] + 20} for r in table(7, 2)]
    ),
    "lower": certify(question(direction="lower"), table(9, 2)),
    "full ties": certify(question(ties="full"), table(7, 2)),
    "cluster": certify(question(cluster="suite"), [r | {"group": r["task"][:2]} for r in table(25, 1)]),
    "candidate": certify(question(), [r | {"group": min(int(r["task"][1:]), 7)} for r in table(12, 1)]),
    "family": certify(
        question(family={"m": 3, "comparisons": [["new", "old"], ["newer", "old"]]}),
        table(9, 2, arms=("old", "new", "newer")),
    ),
    "too few": certify(question(), table(2, 2)),
    "copies": certify(question(), [row(arm, "t", s, float(arm == "new")) for arm in ("old", "new") for s in range(9)]),
}


@pytest.mark.parametrize("name", CASES)
def test_a_certificate_agrees_with_itself(name: str, outcome: Any) -> None:
    code, output = outcome(CASES[name])
    assert code == 0, output
    assert "new vs old" in output


@pytest.mark.parametrize("name", CASES)
def test_each_changed_field_of_a_decision_is_found(name: str, outcome: Any) -> None:
    for i, decision in enumerate(CASES[name]["decisions"]):
        for field, value in decision.items():
            if field in ("candidate", "control"):
                continue
            for changed in changes(field, value):
                tampered = copy.deepcopy(CASES[name])
                tampered["decisions"][i][field] = changed
                code, output = outcome(sealed(tampered))
                assert code == 1, (field, changed, output)
                assert "differs: new" in output and field in output.replace("reason", "verdict reason")


def changes(field: str, value: Any) -> list[Any]:
    """Other values of a field that must not pass; missing runs leave the effect and the level a range."""
    if field == "verdict":
        return sorted({"better", "worse", "equivalent", "undecided"} - {value})
    if field == "reason":
        return [r for r in ("too_few", "missing", "cluster") if r != value] + ([None] if value else [])
    if field in ("unit", "test"):
        return ["other"]
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, list):
        low, high = value
        return [None, *([[low + 1e-4, high], [low, high - 1e-4]] if low is not None else [[0.0, high]])]
    if field == "n":
        return [value + 1]
    if value is None:
        return [[0.0, 1.0]] if "interval" in field else [0.5]
    return [value + 10, None] if field == "effect" else [value * 1.00001 + 1e-8, None]


def test_changed_rows_and_questions_are_found(outcome: Any) -> None:
    for change in (
        lambda c: c["rows"][0].update(value=c["rows"][0]["value"] + 0.5),
        lambda c: c["rows"].pop(),
        lambda c: c["rows"][3].update(state="missing", value=None),
        lambda c: c["question"].update(alpha=0.01),
        lambda c: c["question"].update(direction="lower"),
        lambda c: c["question"].update(level_share=0.25),
        lambda c: c["question"].update(margin=0.5),
        lambda c: c["question"].update(tasks="fixed"),
        lambda c: c["question"].update(seeds="crossed"),
        lambda c: c["question"]["family"].update(m=2),
    ):
        tampered = copy.deepcopy(CASES["P1"])
        change(tampered)
        assert outcome(sealed(tampered))[0] == 1
        code, output = outcome(tampered)
        assert code == 1 and "sha256" in output


def test_a_family_smaller_than_its_comparisons_is_found(outcome: Any) -> None:
    tampered = copy.deepcopy(CASES["family"])
    tampered["question"]["family"]["m"] = 1
    code, output = outcome(sealed(tampered))
    assert code == 1 and "question.family.m" in output


@pytest.mark.parametrize(
    "change",
    [
        lambda c: c.update(certificate=2),
        lambda c: c.pop("rows"),
        lambda c: c.update(rows=[]),
        lambda c: c.update(decisions={}),
        lambda c: c.pop("sha256"),
        lambda c: c["question"].pop("alpha"),
        lambda c: c["question"].update(alpha=2),
        lambda c: c["question"].update(direction="up"),
        lambda c: c["question"].update(bounds=[1, 0]),
        lambda c: c["question"].update(family={"m": 1}),
        lambda c: c["question"].update(widening={"3": 2}),
        lambda c: c["question"].update(resamples=0),
        lambda c: c["rows"][0].update(value="high"),
        lambda c: c["rows"][0].update(value=None),
        lambda c: c["rows"][0].update(value=math.nan),
        lambda c: c["rows"][0].update(state="failed"),
        lambda c: c["rows"][0].update(seed=None),
        lambda c: c["rows"][0].update(group="x"),
        lambda c: c["rows"].append(c["rows"][0]),
        lambda c: c["decisions"][0].update(candidate="nobody"),
        lambda c: c["decisions"][0].pop("p"),
        lambda c: c["decisions"][0].update(interval=[1]),
        lambda c: c["question"]["family"].update(comparisons=[["new", "old"], ["nobody", "old"]], m=2),
    ],
)
def test_a_malformed_certificate_is_not_one(change: Any, outcome: Any) -> None:
    malformed = copy.deepcopy(CASES["P1"])
    change(malformed)
    code, output = outcome(malformed)
    assert code == 2, output


@pytest.mark.parametrize("text", ["", "[]", "{", "null", '{"certificate": true}', "\x00"])
def test_other_files_are_not_certificates(text: str, outcome: Any) -> None:
    assert outcome(text)[0] == 2


def test_random_subsets_agree_within_monte_carlo_error(outcome: Any) -> None:
    certificate = certify(question(), paired([random.Random(i).gauss(0.35, 1) for i in range(24)]))
    decision = certificate["decisions"][0]
    decision["p"] += 0.0005
    decision["p_adjusted"] += 0.0005
    code, output = outcome(sealed(certificate))
    assert code == 3 and "Monte Carlo" in output, output
    decision["p"] += 0.02
    assert outcome(sealed(certificate))[0] == 1


def test_the_bootstrap_votes_on_equivalence_from_8_units(outcome: Any) -> None:
    rng = random.Random(2)
    d = [rng.expovariate(1) - 1 for _ in range(12)]
    certificate = certify(question(margin=0.7), paired(d))
    decision = certificate["decisions"][0]
    flips = verify.sign_flip(d, [1] * 12, False)
    assert decision["p_equivalence"] > max(flips.tail(-0.7, 1, 0), flips.tail(0.7, -1, 0))
    assert outcome(certificate)[0] == 3
    decision["p_equivalence"] += 0.05
    assert outcome(sealed(certificate))[0] == 1


def test_the_studentized_bootstrap_is_scipys_on_normal_data() -> None:
    rng = np.random.default_rng(11)
    d = rng.normal(size=40)
    tail = verify.bootstrap([list(d)], 9999)(-0.3, 1, 0)
    draws = rng.choice(d, size=(20_000, 40))
    t = (draws.mean(1) - d.mean()) / (draws.std(1, ddof=1) / math.sqrt(40))
    expected = np.mean(t >= (d.mean() + 0.3) / (d.std(ddof=1) / math.sqrt(40)))
    assert tail == pytest.approx(expected, abs=5 * math.sqrt(expected / 6000) + 1e-3)


def test_random_splits_of_two_samples_agree_within_monte_carlo_error(outcome: Any) -> None:
    rng = random.Random(3)
    rows = [row("old", "t", None, rng.gauss(0, 1), i) for i in range(20)]
    rows += [row("new", "t", None, rng.gauss(0.75, 1), i) for i in range(17)]
    certificate = certify(question(), rows)
    code, output = outcome(certificate)
    assert code == 3 and "p of new vs old: compared within Monte Carlo error" in output, output
    certificate["decisions"][0]["p"] *= 2
    assert outcome(sealed(certificate))[0] == 1


def test_a_certificate_with_the_numbers_of_scipy_agrees(outcome: Any) -> None:
    d = [0.5, 1.25, 0.25, 2.0, 1.0]
    expected = stats.ttest_1samp(d, 0)
    interval = list(expected.confidence_interval(0.95))
    decision = {
        "candidate": "new",
        "control": "old",
        "verdict": "better",
        "reason": None,
        "effect": 1.0,
        "p": float(expected.pvalue),
        "p_adjusted": float(expected.pvalue),
        "p_equivalence": None,
        "interval": interval,
        "decision_interval": interval,
        "level": 0.05,
        "unit": "task",
        "n": 5,
        "test": "P2",
    }
    certificate = {"certificate": 1, "bakeoff": "0.1.0", "question": question(), "rows": paired(d)}
    code, output = outcome(sealed(certificate | {"decisions": [decision]}))
    assert code == 0, output


def test_missing_runs_that_could_turn_the_verdict_leave_it_undecided() -> None:
    rows = paired([0.5, 0.75, 1.0, 0.5, 0.75, 1.0, 0.25, 0.5])
    asked = question(bounds=[-9, 9])
    whole = verify.recompute(verify.Table(asked, rows), set())[0][0]
    rows[-1] |= {"state": "missing", "value": None}
    missing = verify.recompute(verify.Table(asked, rows), set())[0][0]
    assert whole["verdict"] == "better"
    assert (missing["verdict"], missing["reason"]) == ("undecided", {"missing"})
    assert missing["interval[0]"][0] < whole["interval[0]"][0]


def test_a_candidate_cluster_that_changes_the_verdict_leaves_it_undecided() -> None:
    rows = paired([2.0, 2.25, 2.5, 1.75, 2.0, 2.25, -0.25, 0.25, 0.5, -0.5, 0.25])
    for r in rows:
        r["group"] = max(0, int(r["task"][1:]) - 5)
    without = verify.recompute(verify.Table(question(cluster="none"), rows), set())[0][0]
    candidate = verify.recompute(verify.Table(question(), rows), set())[0][0]
    assert without["verdict"] == "better"
    assert (candidate["verdict"], candidate["reason"]) == ("undecided", {"cluster"})
    assert candidate["p"] > without["p"]


def test_a_candidate_cluster_that_takes_equivalence_away_leaves_it_undecided() -> None:
    rows = paired([0.5, 0.5, 0.625, 0.5, 0.375, 0.5, -0.5, -0.375, -0.5, -0.25, -0.125, 0.0])
    for r in rows:
        r["group"] = max(0, int(r["task"][1:]) - 6)
    for margin in (0.3, 0.35, 0.4, 0.45):
        asked = question(margin=margin, bounds=[-9, 9])
        without = verify.recompute(verify.Table(asked | {"cluster": "none"}, rows), set())[0][0]
        candidate = verify.recompute(verify.Table(asked, rows), set())[0][0]
        if without["verdict"] == "equivalent" and candidate["p_equivalence"][0] > 0.05:
            assert (candidate["verdict"], candidate["reason"]) == ("undecided", {"cluster"})
            return
    pytest.fail("no margin at which only the cluster stands against equivalence")


def test_the_order_of_rows_a_common_offset_and_a_scale_change_nothing() -> None:
    rows = table(6, 3)
    for asked in (question(), question(seeds="crossed"), question(tasks="fixed")):
        base = verify.recompute(verify.Table(asked, rows), set())[0][0]
        moved = [r | {"value": 4 * r["value"] + 32} for r in random.Random(1).sample(rows, len(rows))]
        other = verify.recompute(verify.Table(asked, moved), set())[0][0]
        assert other["p"] == pytest.approx(base["p"])
        assert other["interval[1]"][0] == pytest.approx(4 * base["interval[1]"][0])


def test_what_the_specification_leaves_open_is_not_recomputed(outcome: Any) -> None:
    for change in (
        lambda c: c["question"].update(statistic="rank"),
        lambda c: c["question"].update(seeds="fixed", tasks="fixed"),
        lambda c: c["question"].update(seeds="crossed", cluster="suite"),
        lambda c: c["decisions"][0].update(reason="looked"),
    ):
        certificate = copy.deepcopy(CASES["P1"])
        change(certificate)
        code, output = outcome(sealed(certificate))
        assert code == 3 and "cannot be recomputed" in output, output


def test_numbers_that_overflow_are_not_recomputed(outcome: Any) -> None:
    certificate = copy.deepcopy(CASES["P2"])
    for r in certificate["rows"]:
        r["value"] *= 1e200
    assert outcome(sealed(certificate))[0] == 3


def test_the_script_needs_only_the_standard_library(tmp_path: Path) -> None:
    path = tmp_path / "v.json"
    path.write_text(json.dumps(CASES["P2"]))
    ran = subprocess.run([sys.executable, "-I", "-S", SCRIPT, path], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
