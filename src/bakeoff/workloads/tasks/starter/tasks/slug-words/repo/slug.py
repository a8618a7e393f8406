"""The last part of a page's address."""


def make(title: str) -> str:
    """Return the slug of a title."""
    return "".join(letter for letter in title.lower() if letter.isalnum())
