"""The same command again: what is done stays, what is new is added, and what became another experiment is refused."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

import bakeoff
from bakeoff.records.rundir import set_aside, write_meta
from support.processes import Lab

FILE = 'seeds = {seeds}\nparams = {{ command = "echo {{seed}} >> done" }}\n'


def _done(lab: Lab) -> list[int]:
    return sorted(map(int, (lab.place / "done").read_text().split()))


@pytest.mark.slow
def test_a_complete_experiment_is_reported_and_nothing_runs(lab: Lab) -> None:
    lab.experiment(FILE.format(seeds=3))
    lab.cli("run", "trial.toml")
    done = lab.cli("run", "trial.toml")
    assert "complete already; 3 succeeded" in done.stdout
    assert _done(lab) == [0, 1, 2]


@pytest.mark.slow
def test_a_plan_that_grew_gets_its_new_runs(lab: Lab) -> None:
    lab.experiment(FILE.format(seeds=3))
    lab.cli("run", "trial.toml")
    lab.experiment(FILE.format(seeds=5) + '[[arms]]\nname = "default"\n[[arms]]\nname = "second"\n')
    done = lab.cli("run", "trial.toml")
    assert "the plan grew by 7 runs" in done.stderr
    assert _done(lab) == sorted([*range(5), *range(5)])
    assert len(list((lab.root / "trial").glob("2*"))) == 1
    assert [(row["arm"], row["seed"]) for row in lab.rows()][:3] == [("default", 0), ("default", 1), ("default", 2)]


@pytest.mark.slow
def test_a_plan_that_lost_runs_is_refused(lab: Lab) -> None:
    lab.experiment(FILE.format(seeds=3))
    lab.run()
    lab.experiment(FILE.format(seeds=2))
    done = lab.cli("run", "trial.toml", code=2)
    assert "the file now describes other runs than trial/" in done.stderr
    assert "1 of its 3 are gone, 0 are new. Start a new edition with --fresh, or restore the file" in done.stderr
    lab.cli("run", "trial.toml", "--fresh")
    assert _done(lab) == [0, 0, 1, 1, 2]


def test_latest_names_the_newest_edition(lab: Lab) -> None:
    lab.experiment(FILE.format(seeds=1))
    lab.run()
    first = (lab.root / "trial" / "latest").resolve()
    assert (
        first == lab.directory() and (first / "experiment.toml").read_text() == (lab.place / "trial.toml").read_text()
    )
    lab.run(fresh=True)
    assert (lab.root / "trial" / "latest").resolve() == lab.directory() != first


def test_an_experiment_that_repeats_begins_a_new_edition_when_it_is_complete(lab: Lab) -> None:
    lab.experiment('editions = "repeat"\n' + FILE.format(seeds=2))
    lab.run(only="seed=0")
    lab.run()
    assert len(list((lab.root / "trial").glob("2*"))) == 1, "an unfinished one is finished first"
    lab.run()
    assert len(list((lab.root / "trial").glob("2*"))) == 2
    assert _done(lab) == [0, 0, 1, 1]


def _git(place: Path, *arguments: str) -> None:
    who = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    subprocess.run(["git", *who, *arguments], cwd=place, check=True, capture_output=True)


@pytest.mark.slow
def test_other_code_is_refused_unless_it_is_allowed(lab: Lab) -> None:
    text = 'workload = "python"\nseeds = 4\nparams = { function = "model:run" }'
    lab.experiment(text, model="def run(seed): return seed")
    lab.write(".gitignore", "results/\n__pycache__/\n")
    _git(lab.place, "init", "-q")
    _git(lab.place, "add", ".")
    _git(lab.place, "commit", "-qm", "first")
    lab.run(only="seed<1")
    lab.experiment(text + "\n# a remark", model="def run(seed): return seed * 10")
    done = lab.cli("run", "trial.toml", code=2)
    assert "the code changed since trial/" in done.stderr and "--allow-code-change" in done.stderr
    lab.experiment(text.replace("4", "5"), model="def run(seed): return seed * 10")
    lab.cli("run", "trial.toml", code=2)
    assert len(lab.rows()) == 4, "a plan that is refused adds nothing"
    lab.cli("run", "trial.toml", "--allow-code-change")
    assert [row["value"] for row in lab.rows()] == [0, 10, 20, 30, 40]
    lab.write("model.py", "def run(seed): return seed * 100")
    lab.cli("run", "trial.toml")  # it is complete: nothing would be mixed
    lab.cli("run", "trial.toml", "--retry-failed", code=2)
    _git(lab.place, "commit", "-qam", "second")


@pytest.mark.slow
def test_the_same_content_under_another_commit_is_the_same_code(lab: Lab) -> None:
    lab.experiment(FILE.format(seeds=2))
    lab.write(".gitignore", "results/\ndone\n")
    _git(lab.place, "init", "-q")
    _git(lab.place, "add", ".")
    _git(lab.place, "commit", "-qm", "first")
    lab.run(only="seed=0")
    _git(lab.place, "commit", "-q", "--allow-empty", "-m", "second")
    lab.cli("run", "trial.toml")


def test_an_empty_plan_is_a_wrong_call(lab: Lab) -> None:
    lab.experiment('exclude = ["seed < 5"]\n' + FILE.format(seeds=2))
    with pytest.raises(bakeoff.BakeoffError, match="the plan is empty"):
        lab.run()
    assert not lab.root.exists()


def test_files_of_an_attempt_that_nobody_recorded_take_no_number_from_another(tmp_path: Path) -> None:
    directory = tmp_path / "run"
    for content in ("killed with its scheduler", "killed again"):
        directory.mkdir(exist_ok=True)
        (directory / "stdout.txt").write_text(content)
        set_aside(directory, 0)
    (directory / "stdout.txt").write_text("recorded")
    write_meta(directory, {"attempt": 1, "status": "infra_error"})
    set_aside(directory, 1)
    found = {path.parent.name: path.read_text() for path in directory.glob("attempts/*/stdout.txt")}
    assert found == {"1-lost": "killed with its scheduler", "1-lost-2": "killed again", "1": "recorded"}
