import pytest
import slug


@pytest.mark.parametrize(
    ("title", "expected"),
    [
        ("Ready, steady: go!", "ready-steady-go"),
        ("  two   spaces ", "two-spaces"),
        ("C3 PO", "c3-po"),
        ("Zoë's", "zo-s"),
    ],
)
def test_words_are_separated_by_one_dash(title, expected):
    assert slug.make(title) == expected


@pytest.mark.parametrize("title", ["", "?!", "日本"])
def test_nothing_usable_is_untitled(title):
    assert slug.make(title) == "untitled"
