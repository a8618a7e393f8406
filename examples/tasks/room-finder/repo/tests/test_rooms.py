from rooms import assign


def test_meetings_that_overlap_get_different_rooms():
    assert assign([(9, 11), (10, 12)]) == [0, 1]


def test_meetings_that_do_not_overlap_share_a_room():
    assert assign([(9, 10), (11, 12)]) == [0, 0]
