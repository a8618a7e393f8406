"""What an in-process run can do to its worker: it costs that run, and the next one finds a clean world."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bakeoff.engine.node.context import stream_key
from support.processes import Lab

FAULTS = '''
import ctypes, os, random, signal, subprocess, sys, threading, time
import numpy as np
import bakeoff

class Mute(Exception):
    def __str__(self):
        raise RuntimeError("no words")

def segfault(ctx): ctypes.string_at(0)
def sys_exit(ctx): sys.exit(3)
def os_exit(ctx): os._exit(0)
def exception(ctx): raise ValueError("a bad day")
def mute_exception(ctx): raise Mute
def surrogates(ctx): raise ValueError("half \\ud800 and \\0 nul")
def keyboard_interrupt(ctx): raise KeyboardInterrupt
def infra(ctx): raise bakeoff.InfraError("no licence left")
def bad_metric(ctx): return {"score": [1, 2]}
def bad_status(ctx): return bakeoff.Outcome(status="splendid")
def killed_by_itself(ctx): os.kill(os.getpid(), signal.SIGABRT)
def recursion(ctx):
    def deeper(): deeper()
    deeper()

def numpy_metrics(ctx):
    ctx.finish(a=np.float64(1.5), b=np.int64(3), c=np.bool_(True))
    return {"d": np.float32(0.5), "big": 2**70}

def environment(ctx):
    os.environ["LEFT_BEHIND"] = "yes"; del os.environ["HOME"]
    sys.path.insert(0, "/nowhere")
def directory(ctx): os.chdir("/")
def deleted_directory(ctx):
    os.mkdir("gone"); os.chdir("gone"); os.rmdir("../gone")
def handlers(ctx):
    for number in (signal.SIGTERM, signal.SIGALRM, signal.SIGUSR1): signal.signal(number, lambda *a: None)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    os.umask(0o777)
    signal.alarm(1)
def seeds(ctx): random.seed(99); np.random.seed(99)
def stdout_replaced(ctx): sys.stdout = None; sys.stderr = object()
def stdout_closed(ctx): print("before"); sys.stdout.close()
def descriptors_closed(ctx): print("before", flush=True); os.close(1); os.close(2); open("/dev/null"); return {"done": 1}
def all_descriptors_closed(ctx): os.closerange(3, 5000)
def socket_written(ctx):
    for number in range(3, 5000):
        try: os.write(number, b"\\x05\\0\\0\\0hello")
        except OSError: pass
def forked(ctx):
    if (pid := os.fork()) == 0: return {"from": 1}
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT); return {"from": 0}
def forked_and_left(ctx):
    if os.fork() == 0: sys.exit(0)
    os.wait(); return {"from": 0}
def thread(ctx): threading.Thread(target=time.sleep, args=(600,)).start(); return {"done": 1}
def child(ctx): return {"pid": subprocess.Popen(["sleep", "600"]).pid}
def daemon(ctx):
    out = subprocess.run(["setsid", "sh", "-c", "sleep 600 >/dev/null 2>&1 & echo $!"], stdout=subprocess.PIPE)
    return {"pid": int(out.stdout)}
def daemon_without_a_mark(ctx):
    command = "env -i setsid sleep 600 >/dev/null 2>&1 & echo $!"
    return {"pid": int(subprocess.run(["sh", "-c", command], stdout=subprocess.PIPE).stdout)}
def dies_with_a_daemon(ctx):
    subprocess.run(["sh", "-c", "env -i setsid sleep 600 & echo $! > " + str(ctx.directory / "pid")])
    os._exit(9)

def probe(ctx):
    """What the world looks like to the next run."""
    print("probe")
    sys.stdout.flush()
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    umask = os.umask(0); os.umask(umask)
    return {
        "env": "LEFT_BEHIND" in os.environ or "HOME" not in os.environ, "path": sys.path[0] == os.getcwd(),
        "cwd": os.getcwd(), "term": callable(signal.getsignal(signal.SIGTERM)), "alarm": signal.getsignal(signal.SIGALRM) == signal.SIG_DFL,
        "usr1": signal.getsignal(signal.SIGUSR1) == signal.SIG_DFL, "blocked": len(mask), "umask": umask, "draw": random.random(), "np_draw": float(np.random.random()),
        "threads": threading.active_count(), "children": len(open(f"/proc/self/task/{os.getpid()}/children").read().split()),
    }

def run(ctx, faults):
    return probe(ctx) if ctx.seed % 2 else globals()[faults[ctx.seed // 2]](ctx)
'''
EXPECTED: dict[str, tuple[str, str | None]] = {
    "segfault": ("failed", "killed by SIGSEGV"),
    "sys_exit": ("failed", "called sys.exit(3)"),
    "os_exit": ("failed", "ended its process (exit code 0)"),
    "exception": ("failed", "ValueError: a bad day"),
    "mute_exception": ("failed", "Mute: (its message cannot be shown)"),
    "surrogates": ("failed", "ValueError: half \\ud800 and \\x00 nul"),
    "keyboard_interrupt": ("failed", "KeyboardInterrupt: "),
    "infra": ("failed", "RuntimeError: the function raised InfraError: no licence left"),
    "bad_metric": ("failed", "TypeError: metric 'score' is a list"),
    "bad_status": ("failed", "TypeError: a function ends with one of failed, succeeded, timeout, not 'splendid'"),
    "killed_by_itself": ("failed", "killed by SIGABRT"),
    "recursion": ("failed", "RecursionError: maximum recursion depth exceeded"),
    "numpy_metrics": ("succeeded", None),
    "environment": ("succeeded", None),
    "directory": ("succeeded", None),
    "deleted_directory": ("succeeded", None),
    "handlers": ("succeeded", None),
    "seeds": ("succeeded", None),
    "stdout_replaced": ("succeeded", None),
    "stdout_closed": ("succeeded", None),
    "descriptors_closed": ("succeeded", None),
    "all_descriptors_closed": ("failed", "ended its process (exit code 1)"),
    "socket_written": ("failed", "wrote into the socket through which workers report"),
    "forked": ("succeeded", None),
    "forked_and_left": ("succeeded", None),
    "thread": ("succeeded", None),
    "child": ("succeeded", None),
    "daemon": ("succeeded", None),
    "daemon_without_a_mark": ("succeeded", None),
    "dies_with_a_daemon": ("failed", "ended its process (exit code 9)"),
}


@pytest.fixture(scope="module")
def aftermath(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Each fault once, and right after it, in the same worker where one is left, a run that looks around."""
    with Lab(tmp_path_factory.mktemp("faults")) as lab:
        lab.experiment(
            f'workload = "python"\nseeds = {2 * len(EXPECTED)}\njobs = 1\nretries = {{ infra = 0 }}\n'
            f'params = {{ function = "faults:run", faults = {list(EXPECTED)} }}',
            faults=FAULTS,
        )
        lab.run()
        yield lab


def _row(lab: Lab, fault: str, after: int) -> dict[str, Any]:
    """The run with the fault, or the one after it."""
    seed = 2 * list(EXPECTED).index(fault) + after
    (row,) = (row for row in lab.rows() if row["seed"] == seed)
    return row


@pytest.mark.slow
@pytest.mark.parametrize("fault", EXPECTED)
def test_a_fault_costs_its_own_run_and_says_what_happened(aftermath: Lab, fault: str) -> None:
    row = _row(aftermath, fault, 0)
    status, error = EXPECTED[fault]
    assert row["status"] == status
    assert (row["error"] or "").startswith(error or "") and (error is None) == (row["error"] is None)


@pytest.mark.slow
@pytest.mark.parametrize("fault", EXPECTED)
def test_the_next_run_finds_a_clean_world(aftermath: Lab, fault: str) -> None:
    row, first = _row(aftermath, fault, 1), _row(aftermath, "segfault", 1)
    assert row["status"] == "succeeded", row["error"]
    seen = {key: row[key] for key in ("env", "path", "cwd", "term", "alarm", "usr1", "blocked", "umask", "threads")}
    assert seen == {
        "env": False, "path": True, "cwd": str(aftermath.place), "term": True, "alarm": True, "usr1": True,
        "blocked": 0, "umask": first["umask"], "threads": 2,
    }  # fmt: skip
    draws = random.Random(stream_key("default", row["seed"], "global"))
    assert (row["draw"], row["children"]) == (draws.random(), 0)
    assert (aftermath.run_directory(row["run_id"]) / "stdout.txt").read_text() == "probe\n"


def test_metrics_of_numpy_arrive_as_plain_numbers(aftermath: Lab) -> None:
    row = _row(aftermath, "numpy_metrics", 0)
    assert (row["a"], row["b"], row["c"], row["metric.d" if "metric.d" in row else "d"]) == (1.5, 3, True, 0.5)
    assert row["big"] == float(2**70)


def test_output_is_kept_although_the_run_closed_its_descriptors(aftermath: Lab) -> None:
    for fault in ("descriptors_closed", "stdout_closed"):
        directory = aftermath.run_directory(_row(aftermath, fault, 0)["run_id"])
        assert (directory / "stdout.txt").read_text() == "before\n"


def test_a_traceback_is_kept_with_the_run(aftermath: Lab) -> None:
    directory = aftermath.run_directory(_row(aftermath, "exception", 0)["run_id"])
    assert "ValueError: a bad day" in (directory / "stderr.txt").read_text()


def test_a_forked_child_that_returns_reports_nothing(aftermath: Lab) -> None:
    assert _row(aftermath, "forked", 0)["from"] == 0


@pytest.mark.parametrize("fault", ["child", "daemon", "daemon_without_a_mark", "dies_with_a_daemon"])
def test_what_a_run_leaves_running_is_ended(aftermath: Lab, fault: str) -> None:
    row = _row(aftermath, fault, 0)
    if fault == "dies_with_a_daemon":
        pid = int((aftermath.run_directory(row["run_id"]) / "pid").read_text())
    else:
        pid = int(row["pid"])
    state = Path(f"/proc/{pid}/stat")
    assert not state.exists() or state.read_text().rpartition(")")[2].split()[0] == "Z"


def test_nothing_is_left_in_the_scratch_directory(aftermath: Lab) -> None:
    assert list((aftermath.directory() / ".scratch").iterdir()) == []


@pytest.mark.slow
def test_a_run_that_hangs_is_ended_and_the_others_go_on(lab: Lab) -> None:
    code = """
import signal, subprocess, time
def run(ctx):
    if ctx.seed == 1:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        child = subprocess.Popen(["sh", "-c", "trap '' TERM; sleep 600 & wait; sleep 600"])
        (ctx.directory / "pid").write_text(str(child.pid))
        ctx.log(1, loss=0.5)
        time.sleep(600)
    return {"seed": ctx.seed}
"""
    lab.experiment(
        'workload = "python"\nseeds = 4\nparams = { function = "hang:run" }\nlimits = { time = 3, grace = 0.3 }',
        hang=code,
    )
    summary = lab.run(jobs=2)
    assert summary.statuses == {"succeeded": 3, "timeout": 1}
    (row,) = (row for row in lab.rows() if row["seed"] == 1)
    assert row["error"] == "took longer than 3 s"
    assert lab.series(row["run_id"]) == {"loss": [(1, 0.5)]}
    assert lab.processes() == []


@pytest.mark.slow
def test_a_polite_run_gets_the_time_to_clean_up(lab: Lab) -> None:
    code = """
import time
def cooperative(ctx):
    ctx.cancelled
    while not ctx.cancelled: time.sleep(0.01)
    time.sleep(0.3); ctx.finish(saved=1)
def interrupted(ctx):
    try: time.sleep(600)
    finally: ctx.finish(saved=1)
def run(ctx, how): globals()[how](ctx)
"""
    text = 'workload = "python"\njobs = 2\nparams = { function = "polite:run" }\nlimits = { time = 1.5, grace = 120 }\n'
    lab.experiment(text + '[matrix]\nhow = ["cooperative", "interrupted"]', polite=code)
    assert lab.run().statuses == {"timeout": 2}
    assert [row["saved"] for row in lab.rows()] == [1, 1]


@pytest.mark.slow
def test_a_run_that_uses_too_much_memory_is_ended(lab: Lab) -> None:
    code = """
import time
def run(ctx):
    if ctx.seed == 0:
        hog = []
        while True: hog.append(bytearray(b"x" * 20_000_000)); time.sleep(0.01)
    return {"x": 1}
"""
    lab.experiment(
        'workload = "python"\nseeds = 3\nparams = { function = "hog:run" }\nlimits = { memory = "400MB" }', hog=code
    )
    assert lab.run(jobs=2).statuses == {"failed": 1, "succeeded": 2}
    (row,) = (row for row in lab.rows() if row["status"] == "failed")
    assert row["error"] == "used more than 400,000,000 bytes of memory"


@pytest.mark.slow
def test_very_short_time_limits_hit_only_the_run_that_is_late(lab: Lab) -> None:
    code = """
import time
def run(ctx):
    time.sleep(0.12 if ctx.seed % 25 == 24 else 0.0005)
"""
    lab.experiment(
        'workload = "python"\nseeds = 100\nparams = { function = "late:run" }\nlimits = { time = 0.06 }', late=code
    )
    lab.run(jobs=2)
    rows = lab.rows()
    late = [row for row in rows if row["status"] == "timeout"]
    assert {24, 49, 74, 99} <= {row["seed"] for row in late}
    assert {row["status"] for row in rows if row not in late} == {"succeeded"}
    assert min(row["wall_s"] for row in late) >= 0.06, "on a slow machine others are late, too, but none for another"


@pytest.mark.slow
def test_a_module_beside_the_experiment_cannot_replace_the_engines_own(lab: Lab) -> None:
    lab.experiment(
        'workload = "python"\nseeds = 2\nparams = { function = "fine:run" }',
        fine="def run(seed): return seed",
        queue="raise RuntimeError('not this one')",
        socket="raise RuntimeError('nor this one')",
        signal="raise RuntimeError('nor this')",
    )
    lab.cli("run", "trial.toml")
    assert [row["value"] for row in lab.rows()] == [0, 1]


def test_parameters_that_a_run_changes_are_whole_again_for_the_next(lab: Lab) -> None:
    code = "def run(items, table): items.append(1); table['x'] = 1; return {'n': len(items), 'm': len(table)}"
    lab.experiment(
        'workload = "python"\nseeds = 5\njobs = 1\nparams = { function = "grow:run", items = [], table = { a = 1 } }',
        grow=code,
    )
    lab.run()
    assert {(row["n"], row["m"]) for row in lab.rows()} == {(1, 2)}


@pytest.mark.slow
def test_workers_that_cannot_start_end_the_experiment_with_their_own_words(lab: Lab) -> None:
    """Not with a hundred runs that failed."""
    lab.experiment('workload = "python"\nseeds = 3\nparams = { function = "fine:run" }', fine="def run(): pass")
    broken = lab.write("site/sitecustomize.py", "import sys\nif 'bakeoff.engine.node.worker' in sys.orig_argv: 1 / 0\n")
    lab.environment["PYTHONPATH"] = str(broken.parent)
    broken.write_text(
        "import sys\nif 'bakeoff.engine.node.worker' in sys.orig_argv:\n    print('no luck', file=sys.stderr); sys.exit(4)\n"
    )
    done = lab.cli("run", "trial.toml", code=1)
    assert "worker processes keep dying (exit code" in done.stderr and "no luck" in done.stderr
    shutil.rmtree(broken.parent)
    lab.cli("run", "trial.toml")
    assert [row["status"] for row in lab.rows()] == ["succeeded"] * 3


@pytest.mark.slow
def test_a_worker_keeps_its_housekeeper_when_it_cannot_complain(lab: Lab) -> None:
    """On a full disk neither the output nor the complaint about it can be written."""
    lab.experiment(
        'workload = "python"\nparams = { function = "full:run" }',
        full="""\
import os, threading, time
def run(ctx):
    ctx.path.parent.mkdir(parents=True, exist_ok=True)
    ctx.path.write_text("in the way")
    os.dup2(os.open("/dev/full", os.O_WRONLY), 2)
    before = threading.active_count()
    ended = time.monotonic() + 2.5
    while threading.active_count() == before and time.monotonic() < ended:
        time.sleep(0.05)
    left = threading.active_count() - before
    ctx.path.unlink()
    return {"left": left}
""",
    )
    lab.run()
    [row] = lab.rows()
    assert row["left"] == 0
