"""Installed as `sitecustomize` where tests of a task with a launcher run: Python imports it when it starts.

It makes the modules that the task names importable from the work (`imported_work.py`). bakeoff's own runner of tests starts
Python without it and does the same itself.
"""

import os

if os.environ.get("BAKEOFF_WORK_MODULES"):
    import bakeoff_imports  # type: ignore[import-not-found]

    bakeoff_imports.install(os.environ["BAKEOFF_WORK_MODULES"].split(","))
