"""Runs pytest on one hidden script, inside the sandbox. `verify.py` mounts this file there and reads NO_PYTEST only.

It is started with `python3 -I`, so that neither variables nor the working directory decide what is imported. pytest
and what it needs are loaded before the repository comes on sys.path: no file of the agent can take their place.
A secret from standard input seals the outcome, so that code under test that ends the process has not ended the tests.
Written for any Python from 3.8 on; it imports nothing of this package.
"""

import importlib
import os
import sys
from typing import Any

NO_PYTEST = "no-pytest"
"""What the seal says if pytest cannot be imported in this sandbox. No code of the agent ran before."""
# Standard modules that pytest imports, now or later. Once they are in sys.modules, a file of the same name in the
# repository is not imported in their place.
BEFORE = (
    "argparse", "ast", "bdb", "calendar", "cmd", "code", "codeop", "contextlib", "copy", "dataclasses", "datetime",
    "difflib", "dis", "doctest", "enum", "faulthandler", "fnmatch", "functools", "gc", "glob", "hashlib", "html",
    "importlib.metadata", "importlib.resources", "inspect", "io", "json", "linecache", "locale", "logging", "math",
    "numbers", "pdb", "pickle", "platform", "pprint", "queue", "random", "re", "readline", "reprlib", "shlex", "shutil",
    "signal", "socket", "statistics", "string", "struct", "subprocess", "tempfile", "textwrap", "threading", "timeit",
    "token", "tokenize", "traceback", "types", "typing", "unittest", "unittest.mock", "uuid", "warnings", "weakref",
    "xml.etree.ElementTree", "xml.sax.saxutils", "zipimport", "zlib", "tomllib",
)  # fmt: skip
PARTS = ("assertion.rewrite", "assertion.util", "cacheprovider", "capture", "doctest", "faulthandler", "junitxml", "logging",
         "monkeypatch", "python", "recwarn", "runner", "skipping", "terminal", "tmpdir", "unittest", "warnings")  # fmt: skip

# Options and marks of plugins that are not in this sandbox are warnings, and a configuration may make those errors.
ALWAYS = ("-o", "junit_family=xunit2", "-p", "no:cacheprovider", "-W", "ignore::pytest.PytestConfigWarning",
          "-W", "ignore::pytest.PytestUnknownMarkWarning", "--tb=short", "-v")  # fmt: skip


def main() -> None:
    """Arguments: the library, the repository's top, the working directory, pytest's configuration, report, seal, script."""
    tools, top, cwd, configuration, junit, seal, script = sys.argv[1:8]
    secret = sys.stdin.readline().strip()
    sys.argv[1:] = []
    sys.dont_write_bytecode = True
    try:
        load_pytest(tools)
    except ImportError as error:
        print(f"pytest cannot be imported in this sandbox: {error}", file=sys.stderr)
        end(1, seal, f"{secret} {NO_PYTEST}")
    for name in ("PYTEST_ADDOPTS", "PYTEST_PLUGINS"):
        os.environ.pop(name, None)
    os.chdir(cwd)
    given = [part for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if part]
    arguments = ["-c", configuration, "--rootdir", os.path.dirname(configuration), "--confcutdir", top]
    arguments += ["--junitxml", junit, *ALWAYS, script]
    code = run_pytest(arguments, [cwd, *(part for part in (*given, top) if part != cwd)])
    end(code, seal, f"{secret} {code}")


def run_pytest(arguments: "list[str]", places: "list[str]") -> int:
    """pytest's exit code, with `places` on sys.path. 0 becomes INTERRUPTED if not every collected test has run."""
    import pytest

    session = new_session(places)
    code = int(pytest.main([*arguments], plugins=[session]))  # a copy: pytest puts its addopts into the list
    if code == pytest.ExitCode.USAGE_ERROR and not session.started:
        # The start state's configuration may ask for plugins (coverage, workers) that are not in this sandbox.
        print("\npytest cannot start with this configuration; once more without its addopts", flush=True)
        session = new_session(places)
        code = int(pytest.main([*arguments, "-o", "addopts=", "-o", "required_plugins="], plugins=[session]))
    if code == 0 and (session.interrupted or len(session.done) < session.collected):
        code = int(pytest.ExitCode.INTERRUPTED)
    return code


def new_session(places: "list[str]") -> Any:
    """A plugin; its class is made here because pytest can be imported only now."""
    import pytest

    class Session:
        """Puts `places` on sys.path once all plugins are loaded, and notices tests that were left out.

        `python -m pytest` has the working directory on sys.path from the beginning. `pytest.exit(returncode=0)` in the
        code under test would end the session as if all tests had passed.
        """

        def __init__(self) -> None:
            self.started = False
            self.collected = 0
            self.done: set[str] = set()
            self.interrupted = False

        def pytest_sessionstart(self) -> None:
            self.started = True

        @pytest.hookimpl(tryfirst=True)
        def pytest_load_initial_conftests(self) -> None:
            sys.path[0:0] = places

        def pytest_collection_finish(self, session: "pytest.Session") -> None:
            self.collected = len(session.items)

        def pytest_runtest_logfinish(self, nodeid: str) -> None:
            self.done.add(nodeid)

        def pytest_keyboard_interrupt(self) -> None:
            self.interrupted = True

    return Session()


def load_pytest(tools: str) -> None:
    """Import the sandbox's own pytest, else the one in `tools`, with everything that it will ever import."""
    try:
        importlib.import_module("pytest")
    except ImportError:
        sys.path.append(tools)
        importlib.import_module("pytest")
    for name in (*BEFORE, *(f"_pytest.{part}" for part in PARTS)):
        try:
            importlib.import_module(name)
        except ImportError:  # not in this Python, or not in this pytest
            pass


def end(code: int, seal: str, word: str) -> None:
    """Write the seal and end the process at once: no exit handler of the code under test runs."""
    with open(seal, "w") as file:
        file.write(word)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
