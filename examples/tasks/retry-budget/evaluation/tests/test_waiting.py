from steps import retried


def test_no_pause_after_the_last_attempt():
    came = retried(99, attempts=4, base=1)
    assert (came["raised"], came["pauses"]) == ("GaveUp", [1, 2, 4])


def test_a_single_attempt_never_pauses():
    came = retried(99, attempts=1)
    assert (came["raised"], came["pauses"]) == ("GaveUp", [])


def test_a_pause_that_would_end_after_the_deadline_is_not_begun():
    came = retried(99, attempts=9, base=2, deadline=10)
    assert (came["raised"], came["pauses"]) == ("GaveUp", [2, 4])


def test_a_pause_may_end_exactly_at_the_deadline():
    came = retried(3, attempts=9, base=2, deadline=14)
    assert (came["returned"], came["pauses"]) == ("done", [2, 4, 8])


def test_the_time_that_calls_take_counts():
    came = retried(99, cost=3, attempts=9, base=1, factor=1, deadline=10)
    assert (came["raised"], came["pauses"]) == ("GaveUp", [1, 1])


def test_the_cap_is_what_counts_against_the_deadline():
    came = retried(4, attempts=9, base=4, factor=10, cap=5, deadline=19)
    assert (came["returned"], came["pauses"]) == ("done", [4, 5, 5, 5])


def test_no_time_at_all_means_one_attempt():
    came = retried(99, attempts=9, base=1, deadline=0)
    assert (came["raised"], came["made"], came["pauses"]) == ("GaveUp", 1, [])
