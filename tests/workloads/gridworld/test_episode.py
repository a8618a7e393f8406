"""Episodes are recorded, replayed and drawn, and `bakeoff gridworld` shows them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image

from bakeoff.cli import main
from bakeoff.errors import UsageError
from bakeoff.workloads.gridworld.episode import as_text, play, read_recording, replay_actions
from bakeoff.workloads.gridworld.levels import find_level
from bakeoff.workloads.gridworld.params import GridworldParams
from bakeoff.workloads.gridworld.replay import as_html, write_gif, write_html
from bakeoff.workloads.gridworld.walkers import Clairvoyant, make_walker, walk
from bakeoff.workloads.gridworld.workload import GridworldWorkload
from workloads.gridworld.small import SMALL, context

LEVEL, TASK = find_level("level_0"), 4712


def bakeoff(*words: str) -> tuple[int, str]:
    done = CliRunner().invoke(main, ["gridworld", *words])
    return done.exit_code, done.output


def test_a_recorded_episode_has_the_hearts_of_the_same_walk() -> None:
    episode = play(LEVEL, TASK, Clairvoyant(), "clairvoyant")
    assert episode.hearts == walk(LEVEL, np.array([TASK], np.uint64), Clairvoyant()).hearts[0] > 3
    assert [frame.step for frame in episode.frames] == list(range(episode.horizon + 1))


def test_the_actions_are_enough_to_replay_it() -> None:
    episode = play(LEVEL, TASK, make_walker("random", np.random.default_rng(1)), "somebody")
    assert replay_actions(LEVEL, TASK, episode.actions, "somebody") == episode


def test_a_frame_as_text_shows_agent_stations_and_what_they_do() -> None:
    episode = play(LEVEL, TASK, Clairvoyant(), "clairvoyant")
    first, last = as_text(episode, 0), as_text(episode)
    assert first.count("@") == last.count("@") == 1
    for station in episode.stations:
        assert f"{station.look} {station.does}" in first
        assert first.splitlines()[station.y][station.x] == station.look
    cooling = next(number for number, frame in enumerate(episode.frames) if frame.cooling)
    room = "\n".join(line.partition("   ")[0] for line in as_text(episode, cooling).splitlines())
    assert episode.frames[cooling].cooling[0].lower() in room
    assert f"hearts {episode.hearts}" in last


def test_replays_are_written_as_gif_and_as_a_page_of_its_own(tmp_path: Path) -> None:
    episodes = [
        play(LEVEL, TASK, make_walker(name, np.random.default_rng(1)), name) for name in ("random", "clairvoyant")
    ]
    write_gif(episodes, tmp_path / "x.gif")
    with Image.open(tmp_path / "x.gif") as image:
        assert getattr(image, "n_frames", 1) > episodes[0].horizon * 0.8  # equal frames in a row are merged
    write_html(episodes, tmp_path / "x.html")
    page = (tmp_path / "x.html").read_text()
    assert "http" not in page and page.count("<script") == page.count("</script>") == 2
    data = json.loads(re.findall(r'application/json">(.*?)</script>', page, re.DOTALL)[0])
    assert [each["frames"][-1][2] for each in data["episodes"]] == [episode.hearts for episode in episodes]


def test_the_name_of_an_agent_cannot_leave_the_data_of_the_page() -> None:
    page = as_html([play(LEVEL, TASK, Clairvoyant(), "</script><script>alert(1)")])
    assert "</script><script>alert" not in page


def recording(directory: Path, **changes: object) -> Path:
    """A run's directory with the evaluation of a random walker in two rooms."""
    directory.mkdir()
    rooms = []
    for task in (TASK + 1, TASK + 3):
        episode = play(LEVEL, task, make_walker("random", np.random.default_rng(task)), "")
        rooms.append({"task": str(task), "hearts": episode.hearts, "actions": "".join(map(str, episode.actions))})
    content = {"level": "level_0", "horizon": None, "rooms": rooms} | changes
    (directory / "held_out.json").write_text(json.dumps(content))
    return directory


def test_the_evaluation_of_a_run_is_replayed_beside_a_walker(tmp_path: Path) -> None:
    run = str(recording(tmp_path / "run"))
    code, output = bakeoff("play", run, "clairvoyant", "--room", "1", "--json")
    episodes = json.loads(output)
    assert code == 0 and [episode["task"] for episode in episodes] == [TASK + 3] * 2
    assert episodes[0]["hearts"] == read_recording(tmp_path / "run").rooms[TASK + 3][1] < episodes[1]["hearts"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rooms": []}, "is not held_out.json"),
        ({"rooms": [{"task": "1", "hearts": 0}]}, "has no key 'actions'"),
        ({"level": "level_9"}, "there is no level 'level_9'"),
        ({"rooms": [{"task": str(TASK + 1), "hearts": 9, "actions": "0"}]}, "another version of the world"),
    ],
)
def test_a_recording_that_is_wrong_says_what(changes: dict[str, object], message: str, tmp_path: Path) -> None:
    code, output = bakeoff("play", str(recording(tmp_path / "run", **changes)))
    assert code == 2 and message in output


def test_a_file_that_is_no_recording_is_refused(tmp_path: Path) -> None:
    (tmp_path / "held_out.json").write_text("[1]")
    with pytest.raises(UsageError, match=r"held_out\.json"):
        read_recording(tmp_path)
    (tmp_path / "held_out.json").write_bytes(b"\xff")
    with pytest.raises(UsageError, match=r"held_out\.json"):
        read_recording(tmp_path)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("play", "clairvoyent"), "did you mean 'clairvoyant'"),
        (("play", "--level", "terain_2"), "did you mean 'terrain_2'"),
        (("play", "--horizon", "3"), "too short"),
        (("play", "--output", "x.png"), ".gif, .html or .json"),
        (("bench", "--level", "levle_0"), "did you mean 'level_0'"),
    ],
)
def test_a_wrong_call_says_what_is_wrong(words: tuple[str, ...], message: str) -> None:
    code, output = bakeoff(*words)
    assert code == 2 and message in output


def test_playing_without_a_terminal_prints_the_last_frame_and_the_hearts() -> None:
    code, output = bakeoff("play", "random", "clairvoyant", "--seed", "3")
    assert code == 0 and output.count("@") == 2
    assert re.search(r"^clairvoyant: \d+ hearts in \d+ steps$", output, re.MULTILINE)
    assert bakeoff("play", "random", "clairvoyant", "--seed", "3")[1] == output


def test_bench_prints_steps_per_second() -> None:
    code, output = bakeoff("bench", "--seconds", "0.05", "--envs", "16", "--json")
    figures = json.loads(output)
    assert code == 0 and figures["steps_per_processor_second"] > 0 and figures["level"] == "level_0"


@pytest.mark.slow
def test_a_trained_run_replays_its_evaluation_and_plays_any_other_room(tmp_path: Path) -> None:
    GridworldWorkload().run(GridworldParams(**SMALL), context(tmp_path))
    run = str(tmp_path / "run")
    recorded = read_recording(tmp_path / "run")
    code, output = bakeoff("play", run, "clairvoyant", "--json")
    ours, _ = json.loads(output)
    assert code == 0 and recorded.rooms[ours["task"]][1] == ours["hearts"]
    code, output = bakeoff("play", run, "--task", "12", "--json")
    assert code == 0 and json.loads(output)[0]["task"] == 12
    assert bakeoff("play", run, "--task", "12", "--json")[1] == output
    code, output = bakeoff("play", run, "--room", "99")
    assert code == 2 and "evaluated in 4 rooms" in output
