"""Directories, the `latest` link, leases, and finding things by the names that users type."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest

from bakeoff.errors import LeaseHeld, StorageError, UsageError
from bakeoff.records.edition import Edition
from bakeoff.records.layout import (
    EditionPaths,
    Lease,
    all_editions,
    default_root,
    editions,
    experiment_directory,
    experiments,
    find_edition,
    is_held,
    link_experiment,
    new_edition,
    point_latest,
    shadowed,
)
from bakeoff.records.lookup import find_run
from bakeoff.records.rundir import read_meta, set_aside, write_meta
from bakeoff.spec import registry
from support.editions import START, make_edition


def test_the_root_is_a_variable_or_a_directory_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BAKEOFF_ROOT", raising=False)
    assert default_root() == Path("bakeoff-runs")
    monkeypatch.setenv("BAKEOFF_ROOT", "/results")
    assert default_root() == Path("/results")


@pytest.mark.parametrize("name", ["../../etc", "..", ".hidden", "a/b", "x" * 300, "-rf", "name with spaces"])
def test_an_experiments_name_never_leaves_the_root(tmp_path: Path, name: str) -> None:
    directory = experiment_directory(tmp_path, name)
    assert directory.parent == tmp_path and directory.name[0] not in ".-" and len(directory.name) <= 200


def test_names_in_other_scripts_are_directories_of_their_own_and_found_again(tmp_path: Path) -> None:
    names = ["größe", "gröse", "日本", "中国", "日" * 100, "हिन्दी", "two words"]
    for number, name in enumerate(names):
        new_edition(experiment_directory(tmp_path, name), now=START + number).lease.touch()
        assert len(experiment_directory(tmp_path, name).name.encode()) <= 200
    assert [find_edition(name, tmp_path).name[-1] for name in names] == list("0123456")


def test_editions_of_one_second_get_numbers_and_stay_in_order(tmp_path: Path) -> None:
    names = []
    for _ in range(12):
        paths = new_edition(tmp_path / "toy", now=START)
        paths.lease.touch()
        names.append(paths.name)
    assert names[:3] == ["20260101-000000", "20260101-000000-2", "20260101-000000-3"] and len(set(names)) == 12
    later = new_edition(tmp_path / "toy", now=START + 1)
    later.lease.touch()
    assert [paths.name for paths in editions(tmp_path / "toy")] == [*names, "20260101-000001"]


@pytest.mark.parametrize("name", ["20990101-000000-999999999", "٢٠٩٩٠١٠١-٠٠٠٠٠٠"])
def test_a_new_edition_is_the_newest_or_refused(name: str, tmp_path: Path) -> None:
    """A mailed edition may have any name; the number behind this one would make no stamp."""
    (tmp_path / "toy" / name).mkdir(parents=True)
    (tmp_path / "toy" / name / ".lease").touch()
    try:
        made = new_edition(tmp_path / "toy", now=START)
    except StorageError as error:
        assert "rename or remove" in str(error) and name.endswith("9")
        return
    made.lease.touch()
    assert editions(tmp_path / "toy")[-1] == made and made.name == "20260101-000000"


def test_a_stamp_never_goes_back(tmp_path: Path) -> None:
    """Nor does a name that is no stamp, or the gap of an edition that was deleted, put the newest edition elsewhere."""
    for name in ("20260101-000010", "20260101-000010-4", "renamed", "zzz"):
        (tmp_path / "toy" / name).mkdir(parents=True)
        EditionPaths(tmp_path / "toy" / name).lease.touch()
    made = new_edition(tmp_path / "toy", now=START)
    made.lease.touch()
    assert made.name == "20260101-000010-5" and editions(tmp_path / "toy")[-1].name == made.name
    assert new_edition(tmp_path / "toy", now=START, after="20270101-000000").name == "20270101-000000-2"
    assert new_edition(tmp_path / "toy", now=START, after="../../evil").name == "20270101-000000-3"


def test_editions_that_are_begun_at_once_never_share_a_directory(tmp_path: Path) -> None:
    found: list[EditionPaths] = []
    threads = [
        threading.Thread(target=lambda: found.append(new_edition(tmp_path / "toy", now=START))) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({paths.directory for paths in found}) == 8


def test_latest_always_points_at_an_edition(tmp_path: Path) -> None:
    first, second = (new_edition(tmp_path / "toy", now=START + n) for n in (0, 1))
    point_latest(first)
    link = tmp_path / "toy" / "latest"
    missing, stop = [], threading.Event()

    def look() -> None:
        while not stop.is_set():
            try:
                os.readlink(link)
                if not link.exists():
                    missing.append("nowhere")
            except OSError as error:
                missing.append(str(error))

    watcher = threading.Thread(target=look)
    watcher.start()
    for number in range(300):
        point_latest((first, second)[number % 2])
    stop.set()
    watcher.join()
    assert missing == [] and os.readlink(link) == second.name
    assert sorted(entry.name for entry in link.parent.iterdir()) == [first.name, second.name, "latest"]


def test_a_new_root_is_ignored_by_git_and_an_old_one_stays_as_it_is(tmp_path: Path) -> None:
    new_edition(tmp_path / "fresh" / "sorting")
    assert (tmp_path / "fresh/.gitignore").read_text() == "*\n"
    (tmp_path / "old").mkdir()
    new_edition(tmp_path / "old" / "sorting")
    assert not (tmp_path / "old/.gitignore").exists()


def test_an_experiment_kept_elsewhere_is_found_by_its_name_below_the_usual_root(tmp_path: Path) -> None:
    usual = tmp_path / "bakeoff-runs"
    paths = new_edition(tmp_path / "bench_runs" / "smoke")
    paths.lease.touch()
    link_experiment(paths, usual)
    assert (
        find_edition("smoke", usual).directory.resolve()
        == paths.directory
        == find_edition("latest", usual).directory.resolve()
    )
    other = new_edition(tmp_path / "elsewhere" / "smoke")
    other.lease.touch()
    link_experiment(other, usual)
    assert find_edition("smoke", usual).directory.resolve() == other.directory
    own = new_edition(usual / "train")
    link_experiment(own, usual)
    assert not (usual / "train").is_symlink()
    link_experiment(new_edition(tmp_path / "elsewhere" / "train"), usual)
    assert not (usual / "train").is_symlink(), "results that are here are not hidden by a link"


def test_the_sweep_runners_directories_are_found_below_the_experiment(tmp_path: Path) -> None:
    paths = new_edition(tmp_path / "toy", now=START)
    point_latest(paths)
    registry.dialect("sweep").after_begin(paths)
    (paths.runs / "r").mkdir()
    assert (tmp_path / "toy" / "runs" / "r").is_dir() and (tmp_path / "toy" / "aggregate").is_dir()


def test_a_directory_in_the_place_of_the_link_is_told(tmp_path: Path) -> None:
    paths = new_edition(tmp_path / "toy", now=START)
    (tmp_path / "toy" / "latest" / "x").mkdir(parents=True)
    with pytest.raises(StorageError, match="latest: cannot be made a link"):
        point_latest(paths)


# -- the lease

HOLDER = """
import sys, time
from pathlib import Path
from bakeoff.records.layout import Lease
lease = Lease(Path(sys.argv[1]))
print("held", flush=True)
time.sleep(60)
"""


def hold(path: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen([sys.executable, "-c", HOLDER, str(path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "held\n"
    return process


def test_a_second_scheduler_is_refused_by_name_until_the_first_is_gone(tmp_path: Path) -> None:
    paths = new_edition(tmp_path / "toy", now=START)
    holder = hold(paths.lease)
    try:
        assert is_held(paths.lease)
        with pytest.raises(
            LeaseHeld, match=rf"toy/{paths.name} is being run by process {holder.pid} on .* since .*UTC.*--fresh"
        ):
            Lease(paths.lease)
    finally:
        holder.send_signal(signal.SIGKILL)
        holder.communicate()
    assert not is_held(paths.lease)
    with closing(Lease(paths.lease)):
        assert is_held(paths.lease)
    assert not is_held(paths.lease)


def test_looking_at_a_lease_never_keeps_a_scheduler_from_it(tmp_path: Path) -> None:
    path = tmp_path / ".lease"
    path.touch()
    stop = threading.Event()

    def look() -> None:
        while not stop.is_set():
            is_held(path)
            time.sleep(0.0005)

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        for _ in range(100):
            Lease(path).close()
    finally:
        stop.set()
        watcher.join()


def test_a_lease_that_was_never_taken_is_not_held(tmp_path: Path) -> None:
    assert not is_held(tmp_path / ".lease")


# -- names


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two experiments: sorting with two editions, and search, which is the newest."""
    monkeypatch.delenv("BAKEOFF_DATABASE_URL", raising=False)
    monkeypatch.chdir(tmp_path)
    for name, stamp in (("sorting", START), ("sorting", START + 60), ("search", START + 120)):
        make_edition(tmp_path, name, stamp=stamp, files=False).close()
    return tmp_path / "bakeoff-runs"


FIRST, SECOND, THIRD = "20260101-000000", "20260101-000100", "20260101-000200"


@pytest.mark.parametrize(
    ("name", "edition"),
    [
        ("latest", f"search/{THIRD}"),
        ("sorting", f"sorting/{SECOND}"),
        ("sorting/", f"sorting/{SECOND}"),
        ("sorting/latest", f"sorting/{SECOND}"),
        (f"sorting/{FIRST}", f"sorting/{FIRST}"),
        ("bakeoff-runs/sorting", f"sorting/{SECOND}"),
        (f"bakeoff-runs/sorting/{FIRST}", f"sorting/{FIRST}"),
        (f"bakeoff-runs/sorting/{FIRST}/", f"sorting/{FIRST}"),
        ("bakeoff-runs/sorting/latest", f"sorting/{SECOND}"),
        (f"bakeoff-runs/sorting/{FIRST}/experiment.db", f"sorting/{FIRST}"),
    ],
)
def test_an_edition_is_found_by_every_kind_of_name(root: Path, name: str, edition: str) -> None:
    paths = find_edition(name, Path("bakeoff-runs"))
    assert f"{paths.experiment}/{paths.name}" == edition and paths.directory.is_absolute()


def test_a_directory_of_the_same_name_does_not_hide_an_experiment(root: Path) -> None:
    Path("sorting").mkdir()
    assert find_edition("sorting", root).name == SECOND
    assert "write ./sorting for the directory here" in (shadowed("sorting", root) or "")
    assert shadowed("search", root) is None and shadowed("./sorting", root) is None
    with pytest.raises(UsageError, match="is not an experiment of bakeoff"):
        find_edition("./sorting", root)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("sortin", "no experiment called 'sortin' under .*did you mean 'sorting'"),
        ("zzz", "`bakeoff ls` lists what is there"),
        ("sorting/2025", "sorting has no edition '2025'; there are"),
        ("empty", "is not an experiment of bakeoff; `bakeoff import"),
    ],
)
def test_names_that_mean_nothing_are_told(root: Path, name: str, told: str) -> None:
    Path("empty").mkdir()
    with pytest.raises(UsageError, match=told):
        find_edition(name, root)


def test_nothing_is_the_latest_where_nothing_ran(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no experiment has been run"):
        find_edition("latest", tmp_path)
    with pytest.raises(UsageError, match="no experiment has been run"):
        find_run("latest", tmp_path)
    assert experiments(tmp_path / "gone") == [] and all_editions(tmp_path) == []


def run_id(root: Path, name: str) -> str:
    edition, position = find_run(name, root)
    try:
        return f"{edition.paths.experiment}/{edition.paths.name}/{edition.run(position).run_id}"
    finally:
        edition.close()


def test_a_run_is_found_by_every_kind_of_name(root: Path) -> None:
    edition = Edition.open(find_edition(f"sorting/{FIRST}", root))
    full = next(run.run_id for run in edition.runs() if run.run_id.startswith("small__s2"))
    edition.close()
    digest = full[-12:]
    newest = f"search/{THIRD}"
    assert run_id(root, "latest").startswith(f"{newest}/large__s3")
    assert run_id(root, "sorting/latest").startswith(f"sorting/{SECOND}/large__s3")
    assert run_id(root, full) == f"{newest}/{full}"  # experiments that do the same share ids; the newest one counts
    assert run_id(root, digest) == f"{newest}/{full}"
    assert run_id(root, digest[:8].upper()) == f"{newest}/{full}"
    assert run_id(root, "small__s2") == f"{newest}/{full}"
    assert run_id(root, f"sorting/{digest}") == f"sorting/{SECOND}/{full}"
    assert run_id(root, f"sorting/{FIRST}/{digest}") == f"sorting/{FIRST}/{full}"
    runs = find_edition(f"sorting/{FIRST}", root).runs
    (runs / full).mkdir(parents=True)
    assert run_id(root, str(runs / full)) == f"sorting/{FIRST}/{full}"


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("small", r"'small' could be 3 runs of search/.*: small__s1__"),
        ("sorting/s_1", "no run called 's_1'"),
        ("sorting/%", "no run called '%'"),
        ("zzzz", "no run called 'zzzz' under .*`bakeoff status EXPERIMENT --runs` lists them"),
        ("nothing/small", "no experiment called 'nothing'"),
    ],
)
def test_runs_that_are_not_there_or_not_clear_are_told(root: Path, name: str, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        find_run(name, root)


def test_an_edition_that_cannot_be_read_does_not_hide_the_others(root: Path) -> None:
    broken = find_edition("latest", root).database
    broken.write_bytes(b"x" * 5000)
    assert run_id(root, "small__s2").startswith(f"sorting/{SECOND}/")
    with pytest.raises(UsageError, match=r"Not searched: .*experiment\.db"):
        find_run("zzzz", root)


# -- run directories


def test_meta_is_written_whole_and_read_back(tmp_path: Path) -> None:
    write_meta(tmp_path / "r", {"b": 1, "a": float("nan")})
    assert list(read_meta(tmp_path / "r") or {}) == ["a", "b"]
    assert [entry.name for entry in (tmp_path / "r").iterdir()] == ["meta.json"]
    (tmp_path / "r" / "meta.json").write_text("[1]")
    assert read_meta(tmp_path / "r") is None and read_meta(tmp_path / "gone") is None


def test_what_an_earlier_try_left_is_set_aside(tmp_path: Path) -> None:
    for number in (1, 2):
        write_meta(tmp_path, {"attempt": number, "status": "failed"})
        (tmp_path / "out").mkdir()
        (tmp_path / "out" / "f").write_text(str(number))
        set_aside(tmp_path, number)
    assert [entry.name for entry in tmp_path.iterdir()] == ["attempts"]
    assert (tmp_path / "attempts" / "2" / "out" / "f").read_text() == "2"
    (tmp_path / "half").touch()
    set_aside(tmp_path, 2)
    assert (tmp_path / "attempts" / "3-lost" / "half").exists()
    set_aside(tmp_path, 2)
    set_aside(tmp_path / "gone", 1)
    assert sorted(entry.name for entry in (tmp_path / "attempts").iterdir()) == ["1", "2", "3-lost"]


def test_the_latest_edition_is_the_one_that_was_begun_last_although_the_clock_went_back(tmp_path: Path) -> None:
    for name, now in {"first": 2e9, "second": 1e9, "third": 1e9 + 1}.items():
        paths = new_edition(tmp_path / name, now)
        paths.database.touch()
        assert find_edition("latest", tmp_path) == paths
    assert find_edition("first", tmp_path).name == "20330518-033320"
    assert find_edition("third", tmp_path).name == "20330518-033320-3"
