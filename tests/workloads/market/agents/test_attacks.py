"""Agents that look for the secret, the truth, other runs and their own past. Each attack is tried by a real program.

One program tries all of them in the first tick of an episode and reports what it got on its standard error; it plays
twice, so that it can look for what it left behind.
"""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import bakeoff
from bakeoff.errors import UsageError
from bakeoff.workloads.market.agents.base import load
from bakeoff.workloads.market.play import Episode
from bakeoff.workloads.market.scenario import secret_label
from workloads.market.games import fresh_world

SECRET = "loot-the-contest-secret"
TRUTH = "loot-the-truth-of-another-run"
KEY = "loot-an-api-key-of-the-owner"

SPY = r'''
import ctypes, glob, json, os, re, resource, shutil, socket, stat, subprocess, sys, tempfile
HOST_HOME, BASE, PORT, PARENT = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])

LOOT = "lo" + "ot-[a-z-]+"  # in two parts, so that this file is not taken for loot

def read(path, most=10**6):
    """What is worth something in a file, or why it cannot be read."""
    try:
        with open(path, "rb") as file:
            return re.findall(LOOT, file.read(most).decode("latin-1"))
    except OSError as error:
        return f"({type(error).__name__})"

def everything_below(top, most=2000):
    """The names below a directory, and what is worth something in each file."""
    found = {}
    for directory, _, names in os.walk(top):
        for name in names:
            path = os.path.join(directory, name)
            if len(found) < most and stat.S_ISREG(os.lstat(path).st_mode):
                found[path] = read(path)
    return {path: loot for path, loot in found.items() if loot} or list(found)[:30]

def other_environments():
    return [read(path) for path in glob.glob("/proc/[0-9]*/environ") if path.split("/")[2] != str(os.getpid())]

def environments_of_ancestors():
    pid, loot = os.getpid(), []
    while pid > 1:
        pid = int(open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[1])
        loot.append(read(f"/proc/{pid}/environ"))
    return loot + [read(f"/proc/{PARENT}/environ"), read("/proc/1/environ")]

def descriptors():
    names = [int(name) for name in os.listdir("/proc/self/fd")]
    return [name for name in names if name > 2 and os.path.exists(f"/proc/self/fd/{name}")]

def descriptors_of_others():
    loot = []
    for path in glob.glob("/proc/[0-9]*/fd/*"):
        if path.split("/")[2] != str(os.getpid()):
            try:
                loot.append([os.readlink(path), read(path) if stat.S_ISREG(os.stat(path).st_mode) else ""])
            except OSError:
                pass
    return loot

def reach_host():
    with socket.create_connection(("127.0.0.1", PORT), 2) as connection:
        return connection.recv(100).decode()

def abstract_socket():
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect("\0bakeoff-attack-%d" % PORT)
        return connection.recv(100).decode()

def memory_of_parents():
    loot = []
    for pid in {os.getppid(), 1, PARENT}:
        with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "rb", 0) as memory:
            for line in maps:
                begin, end = (int(part, 16) for part in line.split()[0].split("-"))
                try:
                    memory.seek(begin)
                    loot += re.findall(LOOT, memory.read(min(end - begin, 10**7)).decode("latin-1"))
                except (OSError, OverflowError, ValueError):
                    pass
    return loot

def trace_parent():
    libc = ctypes.CDLL(None, use_errno=True)
    return "attached" if libc.ptrace(16, PARENT, 0, 0) == 0 else "refused"

def kill_parent():
    os.kill(PARENT, 0)
    return "signalled"

def processes():
    return [open(path).read().replace("\0", " ") for path in glob.glob("/proc/[0-9]*/cmdline")]

def poison_own_files():
    with open(__file__, "a") as file:
        file.write("\n# " + "lo" + "ot-left-by-an-earlier-run")
    return "changed"

PLACES = ["/tmp", "/var/tmp", "/dev/shm", os.path.expanduser("~"), ".", os.path.dirname(os.path.abspath(__file__)), sys.prefix]

def leave_a_note():
    loot = []
    for place in PLACES:
        note = os.path.join(place, ".note-to-myself")
        loot.append(read(note))
        try:
            with open(note, "w") as file:
                file.write("lo" + "ot-left-by-an-earlier-run")
        except OSError:
            pass
    loot.append(read("/proc/self/fd/2") if stat.S_ISREG(os.stat("/proc/self/fd/2").st_mode) else "(a pipe)")
    print("lo" + "ot-left-by-an-earlier-run", file=sys.stderr)
    return loot

PROBES = {
    "own environment": lambda: dict(os.environ),
    "environments of other processes": other_environments,
    "environments of ancestors": environments_of_ancestors,
    "command lines of other processes": processes,
    "the experiment's directory": lambda: everything_below(BASE),
    "the secret file": lambda: read(os.path.join(BASE, "secret.txt")),
    "the private file": lambda: read(os.path.join(BASE, "benchmark.private.json")),
    "a dot file": lambda: read(os.path.join(BASE, ".env")),
    "the results root": lambda: everything_below(os.path.join(BASE, "results")),
    "the parent of the experiment's directory": lambda: everything_below(os.path.dirname(BASE)),
    "a link out of the agent's directory": lambda: read(os.path.join(os.path.dirname(os.path.abspath(__file__)), "link")),
    "the owner's home": lambda: everything_below(HOST_HOME, 200),
    "own home": lambda: everything_below(os.path.expanduser("~"), 200),
    "the temporary directory": lambda: everything_below("/tmp") + everything_below("/var/tmp"),
    "shared memory": lambda: everything_below("/dev/shm"),
    "inherited descriptors": descriptors,
    "descriptors of others": descriptors_of_others,
    "the first process's root": lambda: [read(f"/proc/{pid}/root{BASE}/secret.txt") for pid in (1, PARENT)],
    "the working directory of the parent": lambda: [read(f"/proc/{PARENT}/cwd/secret.txt"), read("../secret.txt")],
    "the network of the host": reach_host,
    "an abstract socket of the host": abstract_socket,
    "memory of the parent": memory_of_parents,
    "tracing the parent": trace_parent,
    "signals to the parent": kill_parent,
    "core dumps": lambda: str(resource.getrlimit(resource.RLIMIT_CORE)),
    "mounting": lambda: subprocess.run(["mount", "-t", "tmpfs", "x", "/mnt"], capture_output=True, text=True).stderr,
    "its own script": poison_own_files,
    "its own past": leave_a_note,
    "the machine's keys": lambda: read("/proc/keys"),
}

def probe(call):
    try:
        return json.dumps(call(), default=str)
    except Exception as error:
        return f"({type(error).__name__}: {error})"

for line in sys.stdin:
    message = json.loads(line)
    if message["method"] == "reset":
        said = json.dumps(message)
    if message["method"] == "tick":
        if message["params"]["tick"] == 0:
            loot = {name: probe(call) for name, call in PROBES.items()}
            print("LOOT" + json.dumps({**loot, "messages": said + line}), file=sys.stderr, flush=True)
        print(json.dumps({"jsonrpc": "2.0", "id": 1, "method": "a2a.endTurn"}), flush=True)
        sys.stdin.readline()
'''


@pytest.fixture(scope="module")
def contest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The directory of a contest with everything in it that an agent must not see, and an environment of the owner."""
    base = tmp_path_factory.mktemp("contest")
    (base / "agents").mkdir()
    (base / "agents" / "spy.py").write_text(SPY)
    (base / "secret.txt").write_text(SECRET)
    (base / "agents" / "link").symlink_to(base / "secret.txt")
    (base / ".env").write_text(f"KEY={KEY}")
    (base / "benchmark.private.json").write_text(json.dumps({"key": TRUTH}))
    (base / "experiment.toml").write_text(f"# {SECRET}")
    other = base / "results" / "contest" / "1" / "runs" / "other" / "out"
    other.mkdir(parents=True)
    (other / "truth.json").write_text(TRUTH)
    home = base.parent / "home-of-the-owner"
    home.mkdir()
    (home / ".netrc").write_text(KEY)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BAKEOFF_MARKET_SECRET", SECRET)
        patch.setenv("OPENAI_API_KEY", KEY)
        patch.setenv("HOME", str(home))
        yield base


def serving(listener: socket.socket) -> None:
    while True:
        try:
            client, _ = listener.accept()
        except OSError:
            return
        client.sendall(SECRET.encode())
        client.close()


def played(base: Path, agent: str, stderr: Path) -> str:
    """What the agent printed to its standard error in one short episode."""
    stderr.unlink(missing_ok=True)
    Episode(fresh_world(), [load(agent, {"stderr": str(stderr)}, base=base)], response_timeout=60).run()
    return stderr.read_text()


@pytest.fixture(scope="module")
def loot(contest: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What each attack of the spy got in its second episode."""
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    abstract = socket.socket(socket.AF_UNIX)
    abstract.bind(f"\0bakeoff-attack-{port}")
    abstract.listen()
    for each in (listener, abstract):
        threading.Thread(target=serving, args=(each,), daemon=True).start()
    spy = f"cmd:python agents/spy.py {os.environ['HOME']} {contest} {port} {os.getpid()}"
    log = tmp_path_factory.mktemp("log") / "stderr.txt"
    try:
        played(contest, spy, log)
        said = played(contest, spy, log)
    finally:
        listener.close()
        abstract.close()
    found = [line for line in said.splitlines() if line.startswith("LOOT")]
    assert found, said[-2000:]
    loot: dict[str, str] = json.loads(found[0].removeprefix("LOOT"))
    return loot


ATTACKS = [
    "own environment", "environments of other processes", "environments of ancestors",
    "command lines of other processes", "the experiment's directory", "the secret file", "the private file", "a dot file",
    "the results root", "the parent of the experiment's directory", "a link out of the agent's directory",
    "the owner's home", "own home", "the temporary directory", "shared memory", "inherited descriptors",
    "descriptors of others", "the first process's root", "the working directory of the parent", "the network of the host",
    "an abstract socket of the host", "memory of the parent", "tracing the parent", "signals to the parent", "core dumps",
    "mounting", "its own script", "its own past", "the machine's keys", "messages",
]  # fmt: skip


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_program_finds_neither_secret_nor_truth_nor_keys_by(attack: str, loot: dict[str, str]) -> None:
    assert "loot-" not in loot[attack], loot[attack][:2000]


@pytest.mark.parametrize(
    ("attack", "said"),
    [
        ("inherited descriptors", "[]"),
        ("tracing the parent", "refused"),
        ("signals to the parent", "(ProcessLookupError"),
        ("core dumps", "(0, 0)"),
        ("its own script", "(OSError"),
        ("the network of the host", "("),
        ("an abstract socket of the host", "("),
        ("mounting", "m"),
    ],
)
def test_what_could_help_an_attack_is_refused(attack: str, said: str, loot: dict[str, str]) -> None:
    assert loot[attack].strip('"').startswith(said), loot[attack][:500]


def test_an_agent_sees_its_own_files_and_none_of_the_host_s_processes(loot: dict[str, str]) -> None:
    assert "spy.py" in loot["the experiment's directory"]
    assert "-m pytest" not in loot["command lines of other processes"]
    variables = set(json.loads(loot["own environment"]))
    allowed = {"PATH", "LANG", "TZ", "HOME", "USER", "PWD", "SHLVL", "OLDPWD", "_", "LC_CTYPE", "TMPDIR"}
    assert {name for name in variables if not name.startswith("LC_")} <= allowed


# -- a contest through the command line

CRACKER = r'''
import glob, json, os, re, sys

def texts():
    """Everything that a program can read of its environment, of other processes and around it."""
    yield from os.environ.values()
    around = glob.glob(sys.argv[1] + "/**", recursive=True, include_hidden=True)
    for path in (*glob.glob("/proc/[0-9]*/environ"), *around):
        try:
            with open(path, "rb") as file:
                yield file.read(100_000).decode("latin-1")
        except OSError:
            pass

secret = None
for line in sys.stdin:
    message = json.loads(line)
    if message["method"] == "reset":
        secret = next((found for text in texts() for found in re.findall("lo" + "ot-the-contest-[a-z]+", text)), None)
    if message["method"] == "tick":
        if secret:  # with it, trying seeds shows every outcome
            order = {"marketId": message["params"]["observation"]["predictionMarkets"][0]["id"], "outcome": "YES", "amount": 10}
            print(json.dumps({"jsonrpc": "2.0", "id": 1, "method": "a2a.buyShares", "params": order}), flush=True)
            sys.stdin.readline()
        print(json.dumps({"jsonrpc": "2.0", "id": 1, "method": "a2a.endTurn"}), flush=True)
        sys.stdin.readline()
'''
CLASS = "import os, json, sys\nclass Looker:\n" + (
    "    def reset(self, brief):\n"
    "        loot = [dict(os.environ)]\n"
    "        for pid in (p for p in os.listdir('/proc') if p.isdigit()):\n"
    "            try: loot.append(open(f'/proc/{pid}/environ').read())\n"
    "            except OSError: pass\n"
    "        print(json.dumps(loot), file=sys.stderr)\n"
    "    def act(self, seat): pass\n"
)
EXPERIMENT = """
name = "cracking"
workload = "market"
seeds = [0, 1]
[params]
duration_minutes = 8
markets = 3
perpetuals = 1
agents = 2
{more}
[[arms]]
name = "null"
[[arms]]
name = "cracker"
params = {{ agent = "cmd:python cracker.py {base}" }}
"""


@pytest.mark.slow
@pytest.mark.parametrize("way", ["variable", "file"])
def test_an_experiment_s_agent_cannot_find_its_world(way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the secret in the environment, or in a file beside the experiment, a cracker that knows everything else loses."""
    base = tmp_path / "experiment"
    base.mkdir()
    (base / "cracker.py").write_text(CRACKER)
    monkeypatch.delenv("BAKEOFF_MARKET_SECRET", raising=False)
    if way == "variable":
        monkeypatch.setenv("BAKEOFF_MARKET_SECRET", SECRET)
    else:
        (base / "secret.txt").write_text(SECRET)
    more = 'secret_file = "secret.txt"' if way == "file" else ""
    (base / "experiment.toml").write_text(EXPERIMENT.format(base=base, more=more))
    experiment = bakeoff.load(base / "experiment.toml", root=base / "results")
    experiment.run()
    rows = [row for row in experiment.table().to_dicts() if row["arm"] == "cracker"]
    assert [row["status"] for row in rows] == ["succeeded"] * 2
    assert [row["trades"] for row in rows] == [0, 0]
    assert all(row["secret"] == secret_label(SECRET) for row in rows)
    recorded = [
        path for path in (base / "results").rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()
    ]
    assert not recorded


@pytest.mark.slow
def test_a_class_in_its_own_process_cannot_read_the_secret(contest: Path, tmp_path: Path) -> None:
    (contest / "looker.py").write_text(CLASS)
    agent = load("process:looker.py:Looker", base=contest)
    agent._stderr_path = tmp_path / "stderr.txt"  # type: ignore[attr-defined]
    Episode(fresh_world(), [agent], response_timeout=60).run()
    said = (tmp_path / "stderr.txt").read_text()
    assert "PATH" in said and SECRET not in said and KEY not in said


def test_code_of_an_isolated_agent_never_runs_in_our_process(tmp_path: Path) -> None:
    """Not even to look whether its class exists."""
    (tmp_path / "eager.py").write_text(
        f"open({str(tmp_path / 'ran')!r}, 'w')\nclass Eager:\n    def reset(self, b): ...\n    def act(self, s): ...\n"
    )
    load("process:eager.py:Eager", base=tmp_path)
    assert not (tmp_path / "ran").exists()
    with pytest.raises(UsageError, match="has no class 'Other'"):
        load("process:eager.py:Other", base=tmp_path)
