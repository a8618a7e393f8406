"""Two versions of the code are not mixed in one edition where git does not know the code, and outputs are not code."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from bakeoff.records import codefiles
from bakeoff.records.codefiles import changed_files, code_digest, code_files
from support.processes import Lab

TRAIN = """import json, sys
from pathlib import Path
settings = json.loads(Path("settings.json").read_text())
seed = int(sys.argv[1])
Path("last.json").write_text(json.dumps({"seed": seed}))    # an output beside the code
with open("train.log", "a") as log:
    log.write("trained")
Path("generated.py").write_text(f"SEED = {seed}")
print(json.dumps({"score": seed + settings["bonus"] + 0}))
"""


def experiment(lab: Lab, seeds: int) -> None:
    lab.experiment(
        f'seeds = {seeds}\njobs = 1\nparams = {{ command = "python3 train.py {{seed}}" }}\nanalysis = {{ metric = "score" }}'
    )


@pytest.fixture
def trained(lab: Lab) -> Lab:
    """Two runs outside of git, which also wrote beside the code."""
    lab.write("train.py", TRAIN)
    lab.write("settings.json", '{"bonus": 0}')
    experiment(lab, 2)
    lab.run()
    experiment(lab, 3)
    return lab


def old(path: Path) -> None:
    """As if the file had been edited long before the runs: what the clock says must not be what tells."""
    os.utime(path, (1e9, 1e9))


CHANGES: dict[str, Callable[[Lab], Path]] = {
    "train.py": lambda lab: lab.write("train.py", TRAIN.replace("+ 0", "+ 100")),
    "settings.json": lambda lab: lab.write("settings.json", '{"bonus": 100}'),
}


@pytest.mark.slow
def test_code_that_changed_outside_of_git_is_refused_by_name(trained: Lab) -> None:
    trained.run()
    experiment(trained, 4)
    before = {name: (trained.place / name).read_text() for name in CHANGES}
    for name, change in CHANGES.items():
        old(change(trained))
        told = trained.look("run", "trial.toml", "--dry-run", code=2).stderr
        assert f"{name} differs. Results of two versions would be mixed" in told and "--allow-code-change" in told
        old(trained.write(name, before[name]))
    old(CHANGES["train.py"](trained))
    assert "train.py differs" in trained.cli("run", "trial.toml", code=2).stderr
    trained.cli("run", "trial.toml", "--allow-code-change")
    experiment(trained, 5)
    trained.run()  # the code is that of the newest results


@pytest.mark.slow
def test_a_setting_that_is_edited_right_after_the_runs_is_a_change(trained: Lab) -> None:
    edited = trained.write("settings.json", '{"bonus": 100}')
    with closing(trained.edition()) as edition:
        (session,) = edition.sessions()
    os.utime(edited, (session["seen_at"] + 0.5,) * 2)
    assert "settings.json differs" in trained.cli("run", "trial.toml", code=2).stderr
    os.utime(edited, (session["seen_at"] - 0.01,) * 2)
    trained.cli("run", "trial.toml")  # while they ran: it is their output


def test_data_that_a_parameter_names_is_a_part_of_the_version(lab: Lab) -> None:
    """Whatever its ending, with a directory or without, and behind an equals sign. What a run appends to is its output."""
    text = 'jobs = 1\nseeds = {}\nparams = {{ command = "python3 train.py --data=data/a.csv b.tsv out.csv" }}'
    lab.write("train.py", "import json; open('out.csv', 'a').write('x'); print(json.dumps({'score': 1}))")
    for seeds, name in enumerate(("data/a.csv", "b.tsv"), 1):
        for each in ("data/a.csv", "b.tsv", "out.csv"):
            lab.write(each, "1")
        lab.experiment(text.format(seeds))
        lab.cli("run", "trial.toml", "--fresh")
        old(lab.write(name, "2"))
        lab.experiment(text.format(seeds + 1))
        assert f": {name} differs" in lab.cli("run", "trial.toml", code=2).stderr
        lab.write(name, "1")
        lab.cli("run", "trial.toml")


@pytest.mark.slow
def test_what_runs_and_people_leave_beside_the_code_is_not_a_change_of_it(trained: Lab) -> None:
    for name in (".train.py.swp", "train.py~", "analysis.ipynb", "verdict.json", "notes.md", "plot.py", "run.log"):
        trained.write(name, "new")
    trained.write("__pycache__/train.cpython-311.pyc", "new")
    trained.run()
    for name in ("verdict.json", "notes.md", "analysis.ipynb", "run.log"):
        trained.write(name, "other")
    experiment(trained, 4)
    trained.run()
    with closing(trained.edition()) as edition:
        files = edition.sessions()[-1]["provenance"]["files"]["files"]
    assert {"train.py", "settings.json", "plot.py"} <= files.keys() and "trial.toml" not in files
    assert not any(name.startswith("results") for name in files), "the results root is not code"


@pytest.mark.slow
def test_a_script_elsewhere_and_code_that_git_does_not_track_count(lab: Lab) -> None:
    script = lab.write("elsewhere/work.sh", "echo '{\"score\": 1}'")
    inside = lab.place / "inside"
    inside.mkdir()
    subprocess.run(["git", "init", "-q"], cwd=inside, check=True)
    text = f'seeds = 1\nparams = {{ command = "sh {script} && python3 new.py" }}'
    lab.write("inside/new.py", "pass")
    file = lab.write("inside/mine.toml", text)
    lab.look("run", file)
    file.write_text(text.replace("seeds = 1", "seeds = 2"))
    script.write_text("echo '{\"score\": 2}'")
    assert "../elsewhere/work.sh differs" in lab.look("run", file, code=2).stderr
    script.write_text("echo '{\"score\": 1}'")
    lab.write("inside/new.py", "assert True")
    assert "new.py differs" in lab.look("run", file, code=2).stderr


def test_ignored_files_caches_and_environments_hold_no_code(tmp_path: Path) -> None:
    for name in (
        "a.py", "kept/b.py", "skipped/c.py", "generated_x.py", "deep/only.py", "deep/here/only.py", "deep/keep.py",
        "__pycache__/d.py", "node_modules/e.js", ".venv/f.py", "mine/lib/g.py", "results/h.py", ".hidden.py", "sub/i.py",
        "sub/no.py", "env/world.py", "tools/lib/j.py",
    ):  # fmt: skip
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("pass")
    (tmp_path / "mine" / "pyvenv.cfg").touch()
    (tmp_path / "tools" / "conda-meta").mkdir()
    (tmp_path / ".gitignore").write_text("# made\nskipped/\ngenerated_*\n/deep/*.py\n!keep.py\n")
    (tmp_path / "sub" / ".gitignore").write_text("no.py")
    found = code_files(tmp_path, tmp_path / "results").files
    assert sorted(found) == ["a.py", "deep/here/only.py", "deep/keep.py", "env/world.py", "kept/b.py", "sub/i.py"]
    digest = code_digest(tmp_path, tmp_path / "results")
    for name in ("skipped/c.py", "mine/lib/g.py", "tools/lib/j.py", "results/h.py", "sub/no.py"):
        (tmp_path / name).write_text("changed")
    assert code_digest(tmp_path, tmp_path / "results") == digest, "machines are compared by the same files"
    (tmp_path / "env" / "world.py").write_text("changed")
    assert code_digest(tmp_path, tmp_path / "results") != digest


def test_large_files_count_by_their_size_and_many_files_are_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "large.py").write_bytes(b"x" * (codefiles.LARGEST + 1))
    before = code_files(tmp_path, None)
    (tmp_path / "large.py").write_bytes(b"y" * (codefiles.LARGEST + 2))
    assert changed_files(before, code_files(tmp_path, None)) == ["large.py"]
    (tmp_path / "large.py").unlink()
    assert changed_files(before, code_files(tmp_path, None)) == ["large.py"] and not before.incomplete
    monkeypatch.setattr(codefiles, "MOST_ENTRIES", 3)
    for number in range(5):
        (tmp_path / f"{number}.py").touch()
    assert code_files(tmp_path, None).incomplete
