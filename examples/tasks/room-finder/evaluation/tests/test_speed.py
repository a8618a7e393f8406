import random
import subprocess

import pytest
from bakeoff_work import script

N = 100_000


def chain(n):
    return [(i, i + 1) for i in range(n)]


def crowd(n):
    """All of them at once: the last one ends first."""
    return [(i, 2 * n - i) for i in range(n)]


def mixed(n):
    rng = random.Random(4)
    return [(start, start + rng.expovariate(1 / 500) + 1) for start in (rng.uniform(0, n / 2) for _ in range(n))]


@pytest.fixture(scope="module")
def slow():
    return []


@pytest.fixture
def limited(slow):
    """`assign` with a limit on its time. One that is too slow once is not waited for again."""

    def call(meetings, seconds):
        assert not slow, "it was too slow before"
        code = "from rooms import assign\nresult = assign([tuple(meeting) for meeting in meetings])"
        try:
            return script(code, timeout=seconds, meetings=meetings)
        except subprocess.TimeoutExpired:
            slow.append(True)
            pytest.fail(f"it took more than {seconds} s", pytrace=False)

    return call


@pytest.mark.parametrize(
    ("meetings", "seconds"),
    [(crowd(N // 10), 5), (chain(N), 10), (crowd(N), 10), (mixed(N), 10)],
    ids=["small crowd", "chain", "crowd", "mixed"],
)
def test_many_meetings_take_seconds(meetings, seconds, limited):
    rooms = limited(meetings, seconds)
    assert [type(room) for room in rooms] == [int] * len(meetings)
    last = {}
    for index in sorted(range(len(meetings)), key=lambda i: meetings[i][0]):
        start, end = meetings[index]
        assert last.get(rooms[index], start) <= start
        last[rooms[index]] = end
    most = now = 0
    for _, change in sorted([(end, -1) for _, end in meetings] + [(start, 1) for start, _ in meetings]):
        now += change
        most = max(most, now)
    assert max(rooms) + 1 == most
