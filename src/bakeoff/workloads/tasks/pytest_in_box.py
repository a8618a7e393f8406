"""Runs pytest on one hidden script, inside the sandbox. `verify.py` mounts this file there and reads its report.

It is started with `python3 -I`, so that neither variables nor the working directory decide what is imported. pytest
and what it needs are loaded before the repository comes on sys.path: no file of the agent can take their place.

Tests import the work, so the work runs in their process and may do anything there. Therefore three kinds of process. The
first loads pytest, forks, and never runs a line of the work. It is not dumpable, so no process of the same user can read
its memory or open files, and no box in which it runs allows tracing. It gets the outcome of each test through a pipe,
looks after each one whether hidden files are what they were, ends everything that the tests left running, writes the
report and exits. An exit code of 0 is the proof that it came that far: the work can end it by a signal, not by a code.

The second collects the tests. Each test runs in a process of its own that the second forks, which watches pytest's own
classes, functions and plugins. A test counts as passed only if the test itself said that it came to its end
(`witness.py`). Written for any Python from 3.8 on; it imports nothing of this package.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib
import importlib.util
import json
import os
import signal
import stat
import sys
import time
from json import dumps, loads  # by name: the work may exchange them in their module
from typing import Any

NO_PYTEST = 97
"""Exit code if pytest cannot be imported in this sandbox. No code of the agent ran before."""
LIAR = "equal to values that differ: "
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
         "monkeypatch", "python", "python_api", "raises", "recwarn", "runner", "skipping", "terminal", "tmpdir", "unittest",
         "warnings")  # fmt: skip

# Options and marks of plugins that are not in this sandbox are warnings, and a configuration may make those errors.
ALWAYS = ("-p", "no:cacheprovider", "-W", "ignore::pytest.PytestConfigWarning",
          "-W", "ignore::pytest.PytestUnknownMarkWarning", "--tb=short", "-v")  # fmt: skip
LONGEST_MESSAGE = 4000
LONGEST_LINE = 1 << 20
LONGEST_REPORTS = 1 << 24
MOST_CASES = 200_000

WATCHED = ("_pytest", "pytest", "pluggy", "unittest.case", "unittest.suite", "unittest.loader", "unittest.result")
WATCHED_BUILTINS = ("AssertionError", "BaseException", "Exception", "all", "any", "bool", "compile", "exec", "getattr",
                    "hasattr", "isinstance", "issubclass", "repr", "type")  # fmt: skip
_PR_SET_DUMPABLE, _PR_SET_CHILD_SUBREAPER = 4, 36


def main() -> None:
    """Arguments: the library, the repository's top, the working directory, pytest's configuration, report, orders, script.

    The orders are a JSON object: `hidden` (paths of hidden files), `trusted` (names of types that may be equal to
    anything), `launched` (whether the work is in a sandbox of its own), `modules` of the work that are imported through a launcher, and `local`, packages below them of the tests.
    """
    tools, top, cwd, configuration, report, instructions, script = sys.argv[1:8]
    with open(instructions) as file:
        orders = json.load(file)
    os.unlink(instructions)
    sys.argv[1:] = []
    sys.dont_write_bytecode = True
    witness, hidden_values = load_file("witness.py"), load_file("hidden_values.py")
    with open(script, encoding="utf-8") as file:
        must_end = witness.witnesses(file.read())
    key = os.urandom(8).hex()
    try:
        load_pytest(tools)
    except ImportError as error:
        print(f"pytest cannot be imported in this sandbox: {error}", file=sys.stderr)
        os._exit(NO_PYTEST)
    for name in ("PYTEST_ADDOPTS", "PYTEST_PLUGINS"):
        os.environ.pop(name, None)
    os.chdir(cwd)
    given = [part for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if part]
    places = [cwd, *(part for part in (*given, top) if part != cwd)]
    arguments = ["-c", configuration, "--rootdir", os.path.dirname(configuration), "--confcutdir", top]
    arguments += [*ALWAYS, script]
    prctl(_PR_SET_DUMPABLE, 0)
    prctl(_PR_SET_CHILD_SUBREAPER, 1)
    source, target = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(source)
        os.set_inheritable(target, False)
        values = hidden_values.HiddenValues(orders["hidden"])
        session = Tests(target, top, script, orders, places, witness, values, key)
        code = session.run(arguments, script)
        sys.stdout.flush()
        sys.stderr.flush()
        session.send({"end": code})  # last: the first process ends this one when it has read that
        os._exit(0)  # at once: no exit handler of the code under test runs
    os.close(target)
    gathered = Gathered(orders["hidden"], must_end, key)
    gathered.read(source)
    end_descendants(child)
    gathered.look()
    os._exit(gathered.write(report))


def prctl(option: int, value: int) -> None:
    """prctl(2); where there is no C library to call, the process stays as it is."""
    try:
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)
    except (AttributeError, OSError):
        pass


def load_file(name: str) -> Any:
    """The module in a file beside this one, which is not entered into sys.modules."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), name)
    spec = importlib.util.spec_from_file_location(name[:-3], path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


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


# -- the first process


class Gathered:
    """What the first process knows: the outcomes that came through the pipe, and the state of hidden files."""

    def __init__(self, hidden: list[str], must_end: set[str], key: str) -> None:
        self.before = {path: (fingerprint(path), digest(path)) for path in hidden}
        self.must_end = must_end
        self.key = key
        self.ended: set[str] = set()
        self.cases: dict[str, dict[str, Any]] = {}
        self.marks: list[str] = []
        self.code = 1

    def read(self, source: int) -> None:
        """Read messages until the last test process closes its end, or says that it is done."""
        with os.fdopen(source, "rb") as pipe:
            for line in iter(lambda: pipe.readline(LONGEST_LINE), b""):
                try:
                    message = loads(line)
                except ValueError:
                    continue  # the code under test can write here too
                if not isinstance(message, dict):
                    continue
                if "mark" in message and len(self.marks) < 100:
                    self.mark(str(message["mark"])[:400])
                elif "ended" in message and len(self.ended) < MOST_CASES:
                    if message.get("key") == self.key:
                        self.ended.add(str(message["ended"]))
                elif "case" in message and len(self.cases) < MOST_CASES:
                    self.take(message)
                    self.look()
                elif "end" in message:
                    self.code = message["end"] if isinstance(message["end"], int) else 1
                    return

    def take(self, case: dict[str, Any]) -> None:
        """Keep an outcome. A pass of a test that did not say that it came to its end is none, and is marked."""
        test = str(case["case"])
        function = test.partition("::")[2].partition("[")[0]
        if case.get("outcome") == "passed" and function in self.must_end and test not in self.ended:
            case = {**case, "outcome": "failed", "message": "the test did not come to its end"}
            self.mark(f"passed without its end: {test}"[:400])
        self.cases[test] = case

    def look(self) -> None:
        """Mark hidden files that are not what they were, by the time of their last change, which nobody can set."""
        for path, (before, content) in self.before.items():
            now = fingerprint(path)
            # Another time and the same content: a link to it, or a change that was taken back.
            if now != before or (now is not None and digest(path) != content):
                self.mark(f"changed while the tests ran: {path}")

    def mark(self, text: str) -> None:
        if text not in self.marks:
            self.marks.append(text)

    def write(self, report: str) -> int:
        """Write the report; nothing else runs by now. Returns the exit code, which is never 0 without a report."""
        try:
            if os.path.lexists(report):
                os.unlink(report)
            fd = os.open(report, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644)
            with os.fdopen(fd, "w") as file:
                json.dump({"cases": list(self.cases.values()), "marks": self.marks, "code": self.code}, file)
        except OSError:
            return 1
        return 0 if self.code == 0 else max(1, min(self.code, 90))


def fingerprint(path: str) -> tuple[int, ...] | None:
    """What a file is without reading it. Its ctime changes with every write, rename, link and change of mode."""
    try:
        status = os.lstat(path)
    except OSError:
        return None
    if not stat.S_ISREG(status.st_mode):
        return None
    return (status.st_ino, status.st_size, status.st_ctime_ns)


def digest(path: str) -> str | None:
    """The content of a plain file; None if there is none."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(fd, "rb") as file:
            return hashlib.sha256(file.read()).hexdigest()
    except OSError:
        return None


def end_descendants(child: int, seconds: float = 10.0) -> None:
    """Kill the test process and everything that it started, which as orphans are our children (prctl(2), subreaper)."""
    deadline = time.monotonic() + seconds
    kill(child)
    while time.monotonic() < deadline:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid:
            continue
        for pid in children():
            kill(pid)
        time.sleep(0.001)
    os._exit(1)  # something forks faster than it is killed


def kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except OSError:
        pass  # it has ended


def children() -> list[int]:
    """Processes whose parent is this one, from /proc."""
    found = []
    own = str(os.getpid())
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", errors="replace") as file:
                    # The second field is the program's name in parentheses, which may contain anything (proc(5)).
                    if file.read().rpartition(")")[2].split()[1] == own:
                        found.append(int(name))
            except (OSError, IndexError):
                continue
    return found


# -- the second process


class Tests:
    """The process in which tests and work run. A plugin object of pytest: its `pytest_*` methods are hooks."""

    def __init__(
        self,
        target: int,
        top: str,
        script: str,
        orders: dict[str, Any],
        places: list[str],
        witness: Any,
        values: Any,
        key: str,
    ) -> None:
        self.target = target
        self.key = key
        self.top = os.path.realpath(top)
        self.hidden = {os.path.realpath(path) for path in orders["hidden"]}
        self.tests = os.path.dirname(os.path.realpath(script))
        self.by_the_work: set[str] = set()
        self.launched = bool(orders["launched"])
        self.modules = orders["modules"]
        self.local = orders["local"]
        self.places = places
        self.witness = witness
        self.values = values
        self.trusted = set(orders["trusted"])
        self.current: Any = None
        """The test that runs now, or ran last."""
        self.marks: set[str] = set()
        self.watch = Watch(self.top, witness)
        self.started = False
        self.collected = 0
        self.done: set[str] = set()
        self.interrupted = False
        self.cases: dict[str, dict[str, Any]] = {}

    def send(self, message: dict[str, Any]) -> None:
        write_all(self.target, dumps(message).encode() + b"\n")

    def mark(self, text: str) -> None:
        if text not in self.marks:
            self.marks.add(text)
            self.send({"mark": text})

    def run(self, arguments: list[str], script: str) -> int:
        """pytest's exit code. 0 becomes INTERRUPTED if not every collected test has run."""
        import pytest

        self.witness.install(os.path.realpath(script), self.key, self.test_ended, self.liar, self.trusted)
        for name in (
            "pytest_load_initial_conftests",
            "pytest_runtest_protocol",
            "pytest_runtest_setup",
            "pytest_runtest_makereport",
        ):
            setattr(type(self), name, pytest.hookimpl(tryfirst=True)(getattr(type(self), name)))
        # A configuration may ask for --assert=plain, and no test would say that it came to its end.
        arguments = [*arguments, "--assert=rewrite"]
        code = int(pytest.main([*arguments], plugins=[self]))  # a copy: pytest puts its addopts into the list
        if code == pytest.ExitCode.USAGE_ERROR and not self.started:
            # The start state's configuration may ask for plugins (coverage, workers) that are not in this sandbox.
            print("\npytest cannot start with this configuration; once more without its addopts", flush=True)
            code = int(pytest.main([*arguments, "-o", "addopts=", "-o", "required_plugins="], plugins=[self]))
        if code == 0 and (self.interrupted or len(self.done) < self.collected):
            code = int(pytest.ExitCode.INTERRUPTED)
        return code

    def test_ended(self, key: str) -> None:
        self.send({"ended": self.current.nodeid, "key": key})

    def pytest_runtest_protocol(self, item: Any, nextitem: Any) -> Any:
        """Run a test in a process of its own, which sends its reports here. One that ends without them has failed."""
        from _pytest.reports import TestReport
        from _pytest.runner import runtestprotocol

        if self.launched:  # the work is in another sandbox, so tests share fixtures as always
            return None
        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        source, target = os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        child = System.fork()
        if child == 0:
            try:
                System.close(source)
                reports = runtestprotocol(item, log=False, nextitem=None)
                self.look(None)
                trees = [report._to_json() for report in reports]
                skipped = item.nodeid in self.by_the_work
                write_all(target, dumps({"reports": trees, "by_the_work": skipped}, default=str).encode())
            finally:
                os._exit(0)
        System.close(target)
        with os.fdopen(source, "rb") as pipe:
            data = pipe.read(LONGEST_REPORTS)
        kill(child)  # a process that it left may hold the pipe open no longer than this
        status = System.waitpid(child, 0)[1]
        try:
            message = loads(data)
            reports = [TestReport._from_json(tree) for tree in message["reports"]]
            if message["by_the_work"]:
                self.by_the_work.add(item.nodeid)
        except Exception:
            reports = [broken_report(item, status)]
        for report in reports:
            item.ihook.pytest_runtest_logreport(report=report)
        item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        return True

    def liar(self, kind: str) -> None:
        # By test: one that compares with such an object itself does not make room for the work's in another.
        self.mark(f"{LIAR}{kind} in {self.current.nodeid if self.current is not None else ''}")

    def pytest_sessionstart(self) -> None:
        self.started = True

    def pytest_load_initial_conftests(self, early_config: Any) -> None:
        """All plugins are loaded, nothing of the repository is: what is now is what may not change."""
        self.watch.remember(early_config.pluginmanager, self)
        # `python -m pytest` has the working directory on sys.path from the beginning.
        sys.path[0:0] = self.places
        if self.modules:
            importlib.import_module("bakeoff_imports").install(self.modules, self.local, in_runner=True)

    def pytest_collection_finish(self, session: Any) -> None:
        self.collected = len(session.items)
        self.watch.hook = next((finder for finder in sys.meta_path if is_rewriter(finder)), None)

    def pytest_runtest_setup(self, item: Any) -> None:
        self.current = item
        self.look(item)

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self.done.add(nodeid)
        if nodeid in self.cases:
            self.send(self.cases[nodeid])

    def pytest_keyboard_interrupt(self) -> None:
        self.interrupted = True

    def look(self, item: Any) -> None:
        for text in (*self.watch.changes(item), *self.values.changes(getattr(self.current, "module", None))):
            self.mark(text)

    def pytest_collectreport(self, report: Any) -> None:
        if report.outcome != "passed":
            self.send(self.case(report, "error" if report.failed else "skipped"))

    def pytest_runtest_logreport(self, report: Any) -> None:
        """One of setup, call and teardown. The worst of them is the outcome of the test."""
        known = self.cases.get(report.nodeid)
        if report.failed:
            outcome = "failed" if report.when == "call" else "error"
        elif report.skipped:
            # A test may skip itself; the code that it tests may not.
            outcome = "failed" if report.nodeid in self.by_the_work else "skipped"
        elif report.when == "call":
            outcome = "passed"
        else:
            return
        if known is None or (known["outcome"] in ("passed", "skipped") and outcome in ("failed", "error")):
            self.cases[report.nodeid] = self.case(report, outcome)

    def pytest_runtest_makereport(self, item: Any, call: Any) -> None:
        """Record whether the work had a part in the exception that ended a test, before pytest converts it."""
        trace = call.excinfo.value.__traceback__ if call.excinfo is not None else None
        while trace is not None:
            path = os.path.realpath(trace.tb_frame.f_code.co_filename)
            if (
                path.startswith(self.top + os.sep)
                and not path.startswith(self.tests + os.sep)
                and path not in self.hidden
            ):
                self.by_the_work.add(item.nodeid)
            trace = trace.tb_next

    def case(self, report: Any, outcome: str) -> dict[str, Any]:
        from _pytest.junitxml import mangle_test_address

        names = mangle_test_address(report.nodeid)
        text = ""
        if outcome != "passed":
            crash = getattr(getattr(report.longrepr, "reprcrash", None), "message", "")
            text = f"{crash}\n{report.longreprtext}".strip()
        return {
            "case": report.nodeid,
            "name": "::".join(part for part in (".".join(names[:-1]), names[-1]) if part),
            "outcome": outcome,
            "seconds": float(getattr(report, "duration", 0.0)),
            "message": text[:LONGEST_MESSAGE],
        }


class System:
    """Functions of `os` as they were first. Packages that fake files or switch threads (pyfakefs, gevent) exchange them
    there, and in names that modules bind to them, but not in a class."""

    close = staticmethod(os.close)
    fork = staticmethod(os.fork)
    waitpid = staticmethod(os.waitpid)
    write = staticmethod(os.write)


def write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[System.write(fd, view) :]


def broken_report(item: Any, status: int) -> Any:
    """The report of a test whose process ended without one."""
    from _pytest.reports import TestReport

    ended = f"signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else f"code {os.WEXITSTATUS(status)}"
    text = f"the process of this test ended with {ended} before the test did"
    return TestReport(item.nodeid, item.location, {}, "failed", text, "call")


def is_rewriter(finder: Any) -> bool:
    return type(finder).__name__ == "AssertionRewritingHook" and type(finder).__module__ == "_pytest.assertion.rewrite"


class Watch:
    """pytest's own classes, functions, plugins and import hook, as they were before the repository was imported."""

    def __init__(self, top: str, witness: Any) -> None:
        self.top = top
        self.witness = witness
        self.known: list[tuple[str, Any, str, Any, Any, Any]] = []
        self.legacy: dict[str, Any] = {}
        self.plugins: list[Any] = []
        self.manager: Any = None
        self.inner: Any = None
        self.hook: Any = None

    def remember(self, manager: Any, own: Any) -> None:
        """Record what there is now; `own` is the plugin object of this runner."""
        own_modules = {"__main__": sys.modules["__main__"], "witness": self.witness}
        self.known = [*watched(sys.modules), *watched(own_modules, ("__main__", "witness"))]
        builtin = vars(sys.modules["builtins"])
        for key in (*WATCHED_BUILTINS, self.witness.ENDED, self.witness.COMPARED):
            self.known.append((f"builtins.{key}", builtin, key, builtin.get(key), None, None))
        self.legacy = {key: entry for name, _, key, entry, _, _ in self.known if name.startswith("_pytest.legacypath.")}
        self.manager = manager
        self.inner = manager._inner_hookexec
        self.plugins = [own, *(plugin for _, plugin in manager.list_name_plugin() if plugin is not None)]

    def changes(self, item: Any) -> list[str]:
        """What is no longer as it was; `item` is the test that is about to run, or None."""
        if self.manager is None:
            return []
        texts = []
        for name, holder, key, entry, function, code in self.known:
            now = holder.get(key)
            # `_pytest.legacypath` adds to classes of pytest when a session starts, by functions named `Class_method`.
            if now is not entry and now is self.legacy.get("_".join(name.split(".")[-2:])):
                continue
            if now is not entry or (function is not None and function.__code__ is not code):
                texts.append(f"patched: {name}")
        if self.manager._inner_hookexec is not self.inner:
            texts.append("patched: the plugin manager")
        for _, plugin in self.manager.list_name_plugin():
            if plugin is not None and not any(plugin is known for known in self.plugins):
                self.plugins.append(plugin)
                if not expected_plugin(plugin, self.top):
                    texts.append(f"registered a plugin: {type(plugin).__name__}")
        for name, plugin, function in hook_functions(self.manager):
            if getattr(plugin, function.__name__, function) != function:
                texts.append(f"patched: {name}")
        if self.hook is not None and not any(finder is self.hook for finder in sys.meta_path):
            texts.append("patched: the rewriting of assertions")
        own = vars(item) if item is not None else {}
        texts += [f"patched: {name} of a test" for name in ("runtest", "setup", "ihook") if name in own]
        return texts


def watched(modules: dict[str, Any], names: tuple[str, ...] = WATCHED) -> Any:
    """Every function, class and method of the watched modules: its name, where it is held, and what it executes."""
    for name, module in list(modules.items()):
        if name in names or name.partition(".")[0] in ("_pytest", "pluggy"):
            for key, value in list(vars(module).items()):
                if getattr(value, "__module__", None) != name:
                    continue  # imported there; packages that fake time or files exchange such names
                if isinstance(value, type):
                    yield f"{name}.{key}", vars(module), key, value, None, None
                    for attribute, entry in list(vars(value).items()):
                        function = function_of(entry)
                        if function is not None:
                            yield (
                                f"{name}.{key}.{attribute}",
                                vars(value),
                                attribute,
                                entry,
                                function,
                                function.__code__,
                            )
                elif function_of(value) is not None:
                    yield f"{name}.{key}", vars(module), key, value, function_of(value), function_of(value).__code__


def function_of(entry: Any) -> Any:
    """The Python function that an attribute calls; None for other values."""
    for name in ("__func__", "fget"):
        entry = getattr(entry, name, entry)
    return entry if hasattr(entry, "__code__") else None


def expected_plugin(plugin: Any, top: str) -> bool:
    """Whether pytest, a package or a conftest.py, none of which the agent's diff can change, brings this plugin."""
    if isinstance(plugin, type(sys)):
        return sys.modules.get(plugin.__name__) is plugin and os.path.isfile(plugin.__file__ or "")
    kind = plugin if isinstance(plugin, type) else type(plugin)
    module = sys.modules.get(kind.__module__)
    held: Any = module
    for part in kind.__qualname__.split("."):
        held = getattr(held, part, None)
    file = getattr(module, "__file__", None) or ""
    codes = [entry.__code__ for entry in map(function_of, vars(kind).values()) if entry is not None]
    outside = bool(file) and not os.path.realpath(file).startswith(top + os.sep)
    return held is kind and outside and all(os.path.isfile(code.co_filename) for code in codes)


def hook_functions(manager: Any) -> Any:
    """The implementations of the hooks that run and report a test: name of the hook, plugin, function."""
    for name in ("pytest_runtest_protocol", "pytest_runtest_call", "pytest_pyfunc_call", "pytest_runtest_makereport",
                 "pytest_runtest_logreport"):  # fmt: skip
        for implementation in getattr(manager.hook, name).get_hookimpls():
            yield name, implementation.plugin, implementation.function


if __name__ == "__main__":
    main()
