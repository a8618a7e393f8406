"""Users as an image knows them: its /etc/passwd and /etc/group, read before anybody could change them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from bakeoff.errors import UsageError

_MOST = 1 << 20
MOST_IDS = 65536


@dataclass(frozen=True, slots=True)
class Account:
    name: str
    uid: int
    gid: int
    groups: tuple[int, ...]
    home: str


class Readable(Protocol):
    def read(self, source: str, most: int) -> bytes: ...


class Accounts:
    def __init__(self, image: Readable) -> None:
        self._users = _table(image, "/etc/passwd", 7)
        self._groups = _table(image, "/etc/group", 4)

    def find(self, user: str | None) -> Account:
        """`name`, `number`, `name:group` or `number:number`, as a Dockerfile's USER; None is root."""
        wanted, _, group = (user or "0").partition(":")
        row = next((row for row in self._users if wanted in (row[0], row[2])), None)
        if row is None and not wanted.isdigit():
            known = ", ".join(row[0] for row in self._users) or "none"
            raise UsageError(f"the image has no user {wanted!r} (it has: {known}); give one of those or a number")
        uid = int(row[2]) if row else int(wanted)
        gid = self._gid(group) if group else int(row[3]) if row else uid
        if not (uid < MOST_IDS and gid < MOST_IDS):
            raise UsageError(f"user {user!r}: numbers of users and groups in a box are below {MOST_IDS}")
        name = row[0] if row else "root" if uid == 0 else wanted
        extra = tuple(int(entry[2]) for entry in self._groups if name in entry[3].split(",") and entry[2].isdigit())
        home = row[5] if row and row[5].startswith("/") else "/root" if uid == 0 else "/"
        return Account(name, uid, gid, extra, home)

    def _gid(self, group: str) -> int:
        for row in self._groups:
            if group in (row[0], row[2]):
                return int(row[2])
        if not group.isdigit():
            raise UsageError(f"the image has no group {group!r}; give one of its groups or a number")
        return int(group)


def _table(image: Readable, path: str, width: int) -> list[list[str]]:
    try:
        text = image.read(path, _MOST).decode(errors="replace")
    except UsageError:
        return []  # an image without accounts knows only numbers
    rows = [line.split(":") for line in text.splitlines()]
    return [row for row in rows if len(row) >= width and row[2].isdigit()]
