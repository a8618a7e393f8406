"""Small complete examples that `bakeoff init` writes, found through the entry-point group `bakeoff.starters`.

A workload keeps its example in its own package, so that an installed wheel has it:

    [project.entry-points."bakeoff.starters"]
    market = "bakeoff.workloads.market.starter:STARTER"
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

STARTERS = "bakeoff.starters"


@dataclass(frozen=True, slots=True)
class Starter:
    """A directory with an example, and the one file of it that a user names: an experiment, or a table of results."""

    summary: str
    """What it compares, in one line."""
    directory: Path
    main: str
    """The file that a user names. `{file}` in its text becomes the name that it gets."""
    extra: str | None = None
    """The extra of bakeoff that its runs need."""
    verbs: tuple[str, ...] = ("run {file}", "compare", "report")
    """What to call next, in this order."""

    def files(self, target: Path) -> dict[Path, bytes]:
        """Return where each file goes, with its content, when the main file becomes `target`. The others go beside it."""
        contents = {}
        for source in sorted(path for path in self.directory.rglob("*") if path.is_file()):
            place = source.relative_to(self.directory)
            if "__pycache__" in place.parts:  # pip compiles what it installs
                continue
            if place == Path(self.main):
                contents[target] = source.read_text(encoding="utf-8").replace("{file}", str(target)).encode()
            else:
                contents[target.parent / place] = source.read_bytes()
        return contents
