import slug


def test_a_single_word_stays():
    assert slug.make("Hello") == "hello"
