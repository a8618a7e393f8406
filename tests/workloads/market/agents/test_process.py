"""Programs as agents: they play over lines, and whatever they do, the episode goes on and nothing of them is left."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from bakeoff.workloads.market.agents import process
from bakeoff.workloads.market.agents.base import Brief, Seat, load
from bakeoff.workloads.market.agents.process import LinesAgent
from bakeoff.workloads.market.play import Episode, Player
from workloads.market.games import SHORT, assert_same_state, fresh_world

TICKS = SHORT.ticks
PROGRAM = """
import json, os, subprocess, sys, time
answers = []
def send(message):
    sys.stdout.write(json.dumps(message) + "\\n"); sys.stdout.flush()
def call(method, **params):
    send({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
    answers.append(json.loads(sys.stdin.readline()))
    return answers[-1]
def buy(amount=10):
    market = call("a2a.getPredictions")["result"]["predictions"][0]["id"]
    return call("a2a.buyShares", marketId=market, outcome="YES", amount=amount)
for line in sys.stdin:
    message = json.loads(line)
    if message["method"] == "tick":
        tick = message["params"]["tick"]
        turn()
        call("a2a.endTurn")
"""


def program(tmp_path: Path, turn: str) -> LinesAgent:
    """A program whose turn is the given Python."""
    body = "".join(f"    {line}\n" for line in turn.strip().splitlines())
    head, loop, tail = PROGRAM.partition("for line in sys.stdin")
    (tmp_path / "program.py").write_text(f"{head}def turn():\n{body}\n{loop}{tail}")
    return LinesAgent([sys.executable, "-S", str(tmp_path / "program.py")], stderr=tmp_path / "stderr.txt")


def command_lines(place: Path) -> list[str]:
    """Command lines on this machine that name something below `place`; pids in a sandbox are others than ours."""
    lines = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            lines.append(file.read_text())
        except OSError:
            continue  # it has just ended
    return [line for line in lines if str(place) in line]


def play(agent: LinesAgent, timeout: float | None = 20.0) -> Player:
    return Episode(fresh_world(), [agent], record=True, response_timeout=timeout).run().players[0]


def conducts(player: Player) -> list[str]:
    return [turn.conduct for turn in player.turns]


def test_a_program_plays_like_a_class_that_does_the_same(tmp_path: Path) -> None:
    class Same:
        name = "same"

        def reset(self, brief: Brief) -> None: ...

        def act(self, seat: Seat) -> None:
            seat.buy(seat.markets()[0].id, "YES", 10)

    there, here = fresh_world(), fresh_world()
    Episode(there, [program(tmp_path, "buy()")], response_timeout=20).run()
    Episode(here, [Same()]).run()
    assert_same_state(there, here)


def test_a_program_is_told_the_brief_and_each_tick_and_the_end(tmp_path: Path) -> None:
    script = "import sys, json\nfor line in sys.stdin:\n sys.stderr.write(line)\n m = json.loads(line)\n" + (
        ' if m["method"] == "tick": print(json.dumps({"jsonrpc": "2.0", "method": "a2a.endTurn"}), flush=True)\n'
    )
    (tmp_path / "p.py").write_text(script)
    agent = LinesAgent([sys.executable, "-S", str(tmp_path / "p.py")], stderr=tmp_path / "stderr.txt")
    assert conducts(play(agent)) == ["acted"] * TICKS
    import json

    heard = [json.loads(line) for line in (tmp_path / "stderr.txt").read_text().splitlines()]
    assert [message["method"] for message in heard] == ["reset", *["tick"] * TICKS, "end"]
    assert heard[0]["params"]["ticks"] == TICKS
    assert [message["params"]["observation"]["tick"] for message in heard[1:-1]] == list(range(TICKS))


def test_a_program_that_dies_is_recorded_with_its_last_words(tmp_path: Path) -> None:
    player = play(program(tmp_path, "if tick == 2:\n    sys.exit('out of ideas')"))
    assert conducts(player) == ["acted", "acted"] + ["crashed"] * (TICKS - 2)
    assert "exit code 1: out of ideas" in player.errors[0]


def test_a_program_that_says_it_failed_plays_on(tmp_path: Path) -> None:
    turn = """
if tick == 1:
    send({"jsonrpc": "2.0", "method": "failed", "params": {"message": "no idea"}})
    json.loads(sys.stdin.readline())
"""
    player = play(program(tmp_path, turn))
    assert conducts(player)[:3] == ["acted", "crashed", "acted"]
    assert "no idea" in player.errors[0]


@pytest.mark.slow
def test_a_late_program_can_change_nothing_until_it_has_ended_the_turn_it_missed(tmp_path: Path) -> None:
    turn = """
if tick == 1:
    while call("a2a.observe")["result"]["tick"] == 1:
        time.sleep(0.02)
    sys.stderr.write(buy()["error"]["data"]["type"])
"""
    player = play(program(tmp_path, turn), timeout=2.0)
    assert conducts(player) == ["acted", "late"] + ["acted"] * (TICKS - 2)
    assert (tmp_path / "stderr.txt").read_text() == "turn_over"


@pytest.mark.slow
def test_a_program_that_says_nothing_is_left_behind_and_killed(tmp_path: Path) -> None:
    agent = program(tmp_path, "sys.stderr.write(str(os.getpid())); sys.stderr.flush(); time.sleep(1000)")
    player = play(agent, timeout=1.0)
    assert player.gone
    assert conducts(player)[-1] == "absent"
    assert not command_lines(tmp_path)


def test_children_of_a_program_die_with_it_even_in_a_session_of_their_own(tmp_path: Path) -> None:
    turn = """
if tick == 0:
    subprocess.Popen(["tail", "-f", sys.argv[0]], start_new_session=True, stdin=subprocess.DEVNULL,
                     stdout=subprocess.DEVNULL)
if tick == 1:
    processes = ""
    until = time.monotonic() + 15
    while "tail" not in processes and time.monotonic() < until:  # exec may still be on its way
        processes = " ".join(open(f"/proc/{pid}/cmdline").read() for pid in os.listdir("/proc") if pid.isdigit())
    sys.stderr.write(processes)
"""
    play(program(tmp_path, turn))
    assert "tail" in (tmp_path / "stderr.txt").read_text()
    assert not command_lines(tmp_path)


def test_lines_that_are_no_requests_are_answered_and_cost_nothing(tmp_path: Path) -> None:
    turn = """
for junk in ("not json", "[]", "5", "{}", '{"jsonrpc": "2.0", "id": 4, "method": "a2a.nothing"}'):
    sys.stdout.write(junk + "\\n"); sys.stdout.flush()
    sys.stderr.write(str(json.loads(sys.stdin.readline())["error"]["code"]) + " ")
buy()
"""
    player = play(program(tmp_path, turn))
    assert conducts(player) == ["acted"] * TICKS
    assert (tmp_path / "stderr.txt").read_text().split()[:5] == ["-32700", "-32600", "-32600", "-32600", "-32601"]
    assert all(len(turn.actions) == 1 for turn in player.turns)


def test_a_program_may_send_batches(tmp_path: Path) -> None:
    turn = """
one = {"jsonrpc": "2.0", "id": 7, "method": "a2a.getBalance"}
send([one, {**one, "id": 8}, {"jsonrpc": "2.0", "method": "a2a.createPost", "params": {"content": "hi"}}])
assert [answer["id"] for answer in json.loads(sys.stdin.readline())] == [7, 8]
"""
    player = play(program(tmp_path, turn))
    assert conducts(player) == ["acted"] * TICKS
    assert len(player.turns[0].actions) == 1


def test_a_program_may_leave_out_the_prefix_of_methods_and_write_empty_lines(tmp_path: Path) -> None:
    agent = program(tmp_path, 'sys.stdout.write("\\r\\n")\ncall("createPost", content="hi")')
    path = tmp_path / "program.py"
    path.write_text(path.read_text().replace("a2a.endTurn", "endTurn"))
    player = play(agent)
    assert conducts(player) == ["acted"] * TICKS
    assert all(len(turn.actions) == 1 for turn in player.turns)


def test_the_end_of_a_turn_is_answered_as_the_table_of_methods_says(tmp_path: Path) -> None:
    turn = """
over, later = call("a2a.endTurn", tick=tick - 1) if tick else None, call("a2a.endTurn", tick=tick + 5)
assert later["error"]["data"]["type"] == "turn_over"
assert over is None or sorted(over["result"]) == ["done", "tick", "ticks", "timestamp"]
buy()
"""
    player = play(program(tmp_path, turn))
    assert conducts(player) == ["acted"] * TICKS
    assert all(turn.actions[0].error is None for turn in player.turns)


def test_a_program_that_leaves_its_pipes_to_a_child_is_known_to_be_gone(tmp_path: Path) -> None:
    turn = """
if tick == 1:
    subprocess.Popen(["sleep", "1000"])
    os._exit(7)
"""
    player = play(program(tmp_path, turn), timeout=None)
    assert conducts(player) == ["acted"] + ["crashed"] * (TICKS - 1)
    assert "exit code 7" in player.errors[0]


@pytest.mark.slow
def test_a_program_that_closes_its_output_is_late(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "GRACE", 0.05)
    player = play(program(tmp_path, "os.close(1); time.sleep(1000)"), timeout=1.0)
    assert player.gone and "missed the deadline" in player.errors[0]


@pytest.mark.slow
def test_a_program_that_floods_without_reading_does_not_hang_the_episode(tmp_path: Path) -> None:
    turn = """
if tick == 1:
    while True:
        send({"jsonrpc": "2.0", "id": 1, "method": "a2a.observe"})
"""
    player = play(program(tmp_path, turn), timeout=1.5)
    assert player.late == 3


@pytest.mark.slow
def test_a_line_without_end_is_a_crash(tmp_path: Path) -> None:
    turn = """
if tick == 1:
    sys.stdout.write("x" * 3_000_000); sys.stdout.flush(); time.sleep(1000)
"""
    player = play(program(tmp_path, turn))
    assert conducts(player)[:2] == ["acted", "crashed"]
    assert "longer than" in player.errors[0]


def test_a_program_that_cannot_be_started_is_absent() -> None:
    player = play(LinesAgent("no-such-program-anywhere"))
    assert player.absent == TICKS
    assert "cannot be started" in player.errors[0]


HOSTED = """
import numpy as np
from bakeoff.workloads.market.rpc import RpcError
class Hosted:
    def reset(self, brief):
        print("what an agent prints is nobody's business")
        assert brief.truth is None and brief.model is None
    def act(self, seat):
        assert seat.account().cash > 0 and seat.perpetuals() and seat.seconds_left > 0
        seat.positions(), seat.chats(), seat.posts(), seat.trades()
        if seat.tick == 1:
            raise ValueError("once")
        seat.buy(seat.markets()[0].id, "YES", np.float64(10))
        seat.open("BTCX", "LONG", np.float32(20), np.int64(2))
        assert seat.call("endTurn") == seat.clock_facts() and seat.actions_left == 0
        try:
            seat.buy(seat.markets()[0].id, "YES", 10)
        except RpcError as error:
            assert error.type == "turn_over"
class Broken:
    def reset(self, brief): raise ValueError("never ready")
    def act(self, seat): ...
"""


@pytest.fixture
def base(tmp_path: Path) -> Path:
    (tmp_path / "hosted_agents.py").write_text(HOSTED)
    return tmp_path


def test_a_class_in_a_process_of_its_own_plays_as_it_would_here(base: Path) -> None:
    there, here = fresh_world(), fresh_world()
    apart = load("process:hosted_agents.py:Hosted", base=base)
    player = Episode(there, [apart], record=True, response_timeout=20).run().players[0]
    Episode(here, [load("hosted_agents.py:Hosted", base=base)], response_timeout=20).run()
    assert_same_state(there, here)
    assert conducts(player) == ["acted", "crashed"] + ["acted"] * (TICKS - 2)
    assert "ValueError: once" in player.errors[0]


def test_a_class_that_cannot_be_reset_in_its_process_is_absent(base: Path) -> None:
    agent = load("process:hosted_agents.py:Broken", base=base)
    player = Episode(fresh_world(), [agent], record=True, response_timeout=20).run().players[0]
    assert player.absent == TICKS
    assert "ValueError: never ready" in player.errors[0]


def test_what_a_program_says_about_itself_is_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    argv = program(tmp_path, "sys.stderr.write(f'thinking about {tick}. ')").argv
    play(LinesAgent(argv))
    assert "thinking about 0. thinking about 1." in capsys.readouterr().err
