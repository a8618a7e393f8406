import middle


def test_the_middle_of_three():
    assert middle.median([3, 1, 2]) == 2
