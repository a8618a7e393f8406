import random

import pytest
from bakeoff_work import script

# In a process of the work, which sees the meetings and nothing else of the tests.
ALL = """
from rooms import assign
result = []
for meetings in many:
    given = [tuple(meeting) for meeting in meetings]
    try:
        rooms = assign(given)
    except ValueError:
        rooms = "refused"
    result.append([rooms, given == [tuple(meeting) for meeting in meetings]])
"""
SEEDS = range(60)


def assign(meetings):
    return script(ALL, many=[meetings])[0][0]


def by_the_book(meetings):
    """Slow and plain: the rule, word for word."""
    rooms = [None] * len(meetings)
    for index in sorted(range(len(meetings)), key=lambda i: (meetings[i][0], i)):
        start, end = meetings[index]
        busy = {rooms[i] for i, (s, e) in enumerate(meetings) if rooms[i] is not None and s < end and start < e}
        rooms[index] = next(room for room in range(len(meetings)) if room not in busy)
    return rooms


def some(rng, number, latest):
    made = []
    for _ in range(number):
        start = rng.randint(0, latest)
        made.append((start, start + rng.randint(1, 6)))
    return made


def drawn(seed):
    rng = random.Random(seed)
    return some(rng, rng.randint(0, 40), rng.choice([3, 20, 100]))


@pytest.fixture(scope="module")
def answers():
    return script(ALL, many=[drawn(seed) for seed in SEEDS])


@pytest.mark.parametrize("seed", SEEDS)
def test_rooms_are_those_of_the_rule(seed, answers):
    assert answers[seed][0] == by_the_book(drawn(seed))


def test_one_meeting_may_begin_when_another_ends():
    assert assign([(1, 2), (2, 3), (0, 1)]) == [0, 0, 0]


def test_a_room_that_becomes_free_is_used_before_a_higher_one():
    assert assign([(0, 10), (0, 2), (1, 9), (3, 4), (3, 5)]) == [0, 1, 2, 1, 3]


def test_fractions_are_numbers_too():
    assert assign([(0.5, 1.25), (1.2, 2.0), (1.25, 1.5)]) == [0, 1, 0]


def test_the_list_of_meetings_is_left_alone():
    assert script(ALL, many=[[(5, 6), (1, 2), (1, 3)]])[0][1] is True


@pytest.mark.parametrize("meeting", [(3, 3), (4, 2)])
def test_a_meeting_that_takes_no_time_is_refused(meeting):
    assert assign([(0, 1), meeting]) == "refused"


def test_no_meetings_need_no_rooms():
    assert assign([]) == []
