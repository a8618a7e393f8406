import middle
import pytest


@pytest.mark.parametrize(("values", "expected"), [([1, 2], 1.5), ([4, 1, 3, 2], 2.5), ([5, 5, 1, 9], 5), ([7], 7)])
def test_an_even_number_of_values_has_the_mean_of_two(values, expected):
    assert middle.median(values) == expected


def test_no_values_are_refused():
    with pytest.raises(ValueError):
        middle.median([])
