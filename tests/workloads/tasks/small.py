"""A task that takes no time: a function that adds wrongly, a test that notices, and the diff that mends it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

WRONG = "def add(a, b):\n    return a - b\n"
RIGHT = "def add(a, b):\n    return a + b\n"
MEND = "printf 'def add(a, b):\\n    return a + b\\n' > sums.py"
"""The shell command that does it."""
DIFF = """\
diff --git a/sums.py b/sums.py
--- a/sums.py
+++ b/sums.py
@@ -1,2 +1,2 @@
 def add(a, b):
-    return a - b
+    return a + b
"""
TEST = "from sums import add\n\n\ndef test_adds():\n    assert add(2, 3) == 5\n"


def write_task(place: Path, *, tests: dict[str, str] | None = None, **meta: Any) -> Path:
    """A prepared task directory. `tests` are scripts by rubric; a rubric with no text has no script."""
    tests = {"adds": TEST} if tests is None else tests
    (place / "repo").mkdir(parents=True)
    (place / "repo" / "sums.py").write_text(WRONG)
    (place / "LM_INSTRUCTIONS.md").write_text("`add` in sums.py does not add. Mend it.\n")
    (place / "diff.patch").write_text(DIFF)
    rubrics = [{"id": name, "criterion": f"It {name}.", "weight": 1.0 / len(tests)} for name in tests]
    scripts = [
        {"path": f"hidden/test_{name}.py", "rubric_id": name, "content": text} for name, text in tests.items() if text
    ]
    table = {
        "task_id": place.name,
        "metadata": {"title": "Sums", "tags": []},
        "repo": {"git_url": "repo", "branch": "main"},
        "lm": {"instructions": "See LM_INSTRUCTIONS.md."},
        "evaluation": {"rubrics": rubrics, "test_scripts": scripts},
        "agent": {"timeout_sec": 60},
        "verifier": {"timeout_sec": 60},
        **meta,
    }
    (place / "tb_meta.json").write_text(json.dumps(table))
    return place
