"""Whether a function can be called with the parameters that it will get, found out before any run.

    flaws([Call("train:fit", ("lr", "step"))], base, env)
    # [[Flaw("step", "train:fit takes no argument 'step'", "did you mean 'steps'?")]]

The source is read first, without executing it. That is enough for most functions, takes milliseconds, and can only
find that nothing is wrong. Every doubt (a decorator, a class, an import that is not found, a wrong argument) is settled
by importing the module as a worker would, in a child process with a time limit: user code may hang, crash or take a
minute to import, and does none of that to the scheduler. `python -m bakeoff.workloads.functions` is that child.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import os
import pkgutil
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from bakeoff.engine import processes
from bakeoff.errors import did_you_mean
from bakeoff.text import one_line
from bakeoff.workloads.python import PROVIDED

PATIENCE = 60.0
"""Seconds for importing everything that is in doubt."""
_MOST_SOURCE = 4 << 20
"""Bytes of a module that is read; a longer one is in doubt."""


class Call(NamedTuple):
    """A function, `package.module:name`, and the names of the parameters that it gets."""

    function: str
    names: tuple[str, ...]


class Flaw(NamedTuple):
    """Why a call cannot work. `key` is the parameter to change."""

    key: str
    message: str
    fix: str


def flaws(calls: Sequence[Call], base: Path, env: Mapping[str, str]) -> list[list[Flaw]]:
    """What is wrong with each call; an empty list where nothing is known to be.

    `base` is the experiment file's directory, and `env` what it adds to the environment.
    """
    sources = _Sources(base)
    doubted = [number for number, call in enumerate(calls) if not sources.fine(call)]
    answers: list[list[Flaw]] = [[] for _ in calls]
    if doubted:
        asked = _ask_child([calls[number] for number in doubted], base, env)
        for number, answer in zip(doubted, asked, strict=True):
            answers[number] = answer
    return answers


# -- by reading


def uses(function: str, base: Path) -> frozenset[str] | None:
    """Return the arguments that the function's source reads, with `seed` and `arm` if it may depend on these.

    None where the source cannot be found or is not a plain function. The worker seeds the global generators, so a module
    that imports one, or any package that may, can depend on the seed without naming it.
    """
    sources = _Sources(base)
    module, _, name = function.partition(":")
    tree = sources.tree(module)
    bindings = [] if tree is None else _bindings(tree, name)
    if tree is None or len(bindings) != 1 or not isinstance(found := bindings[0], ast.FunctionDef):
        return None
    loaded = [node for node in ast.walk(found) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)]
    names = {node.id for node in loaded}
    if found.args.kwarg is not None or "locals" in names:
        return None
    read = {argument.arg for argument in (*found.args.args, *found.args.kwonlyargs)} & names
    for context in {"ctx", "context"} & read:
        owners = [node for node in ast.walk(found) if isinstance(node, ast.Attribute)]
        attributes = {node.attr for node in owners if isinstance(node.value, ast.Name) and node.value.id == context}
        passed_on = sum(node.id == context for node in loaded) > sum(
            isinstance(node.value, ast.Name) and node.value.id == context for node in owners
        )
        read |= {"seed", "arm"} if passed_on else {"seed"} & attributes | {"arm"} & attributes
        read |= {"seed", "arm"} if attributes & {"rng", "run_id"} else set()
    return frozenset(read | ({"seed"} if sources.may_draw(module, set()) else set()))


class _Sources:
    """What the source files say, without executing them."""

    def __init__(self, base: Path) -> None:
        self._base = base
        self._trees: dict[str, ast.Module | None] = {}

    def fine(self, call: Call) -> bool:
        """Whether this call will certainly find its function, and fit its parameters."""
        module, _, name = call.function.partition(":")
        tree = self.tree(module)
        if tree is None or not self._imports_are_there(module, set()):
            return False
        bindings = _bindings(tree, name)
        if len(bindings) != 1 or not isinstance(function := bindings[0], ast.FunctionDef):
            return False
        if function.decorator_list or any(isinstance(node, ast.Yield | ast.YieldFrom) for node in ast.walk(function)):
            return False
        arguments = function.args
        if arguments.posonlyargs:
            return False
        names = [argument.arg for argument in arguments.args]
        needed = set(names[: len(names) - len(arguments.defaults)])
        needed |= {a.arg for a, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if not default}
        accepted = {*names, *(argument.arg for argument in arguments.kwonlyargs)}
        given = {*call.names, *(accepted & {*PROVIDED})}
        return needed <= given and (arguments.kwarg is not None or given <= accepted)

    def _imports_are_there(self, module: str, visited: set[str]) -> bool:
        """Whether everything that the module imports when it is imported can be found, as far as it can be seen."""
        if module in visited:
            return True
        visited.add(module)
        tree = self.tree(module)
        if tree is None:
            return False
        for node in tree.body:  # what is inside `try` or `if` may be missing
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
                names = [node.module]
            for name in names:
                first = name.partition(".")[0]
                if self._in_base(first):
                    if self._path(name) is None or not self._imports_are_there(name, visited):
                        return False
                elif first not in sys.builtin_module_names and not _installed(first):
                    return False
        return True

    def may_draw(self, module: str, visited: set[str]) -> bool:
        """Whether a module, or one of the experiment's own that it imports, may use a global random generator."""
        tree = None if module in visited else self.tree(module)
        visited.add(module)
        for node in ast.walk(tree) if tree is not None else ():
            imported = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                imported = [node.module or ""]
            for name in imported:
                first = name.partition(".")[0]
                if self._in_base(first):
                    if self.may_draw(name, visited):
                        return True
                elif first == "random" or first not in sys.stdlib_module_names:
                    return True
        return False

    def _in_base(self, first: str) -> bool:
        return first not in sys.stdlib_module_names and (
            (self._base / f"{first}.py").is_file() or (self._base / first / "__init__.py").is_file()
        )

    def _path(self, module: str) -> Path | None:
        """The source file of a module; None when it is in doubt.

        A module that this process has imported may hide the file in workers too, so it is.
        """
        first, *rest = module.split(".")
        if first in sys.modules or first in sys.stdlib_module_names:
            return None
        if self._in_base(first):
            place = self._base / first
        else:
            spec = find_spec(first)  # imports nothing: the name has no dot
            if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
                return None
            origin = Path(spec.origin)
            place = origin.parent if origin.name == "__init__.py" else origin.with_suffix("")
        for part in rest:
            if not (place / "__init__.py").is_file():
                return None
            place /= part
        package, file = place / "__init__.py", place.with_name(f"{place.name}.py")
        return package if package.is_file() else file if file.is_file() else None

    def tree(self, module: str) -> ast.Module | None:
        if module not in self._trees:
            tree = None
            try:
                path = self._path(module)
                if path is not None and path.stat().st_size <= _MOST_SOURCE:
                    tree = ast.parse(path.read_bytes())
            except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
                pass  # the child tells what it is
            self._trees[module] = tree
        return self._trees[module]


def _installed(first: str) -> bool:
    try:
        return find_spec(first) is not None
    except (ImportError, ValueError):  # a module without a spec, such as __main__
        return False


def _bindings(tree: ast.Module, name: str) -> list[ast.AST]:
    """Every statement that may bind `name` when the module is executed; what is inside functions and classes is not."""
    bindings: list[ast.AST] = []
    waiting: list[ast.AST] = list(tree.body)
    while waiting:
        node = waiting.pop()
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                bindings += [node] if node.name == name else []
                continue
            case ast.Import() | ast.ImportFrom():
                bound = {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
                bindings += [node] if bound & {name, "*"} else []
            case ast.Name(id=bound_name, ctx=ast.Store() | ast.Del()) if bound_name == name:
                bindings.append(node)
            case ast.ExceptHandler(name=bound_name) | ast.MatchAs(name=bound_name) if bound_name == name:
                bindings.append(node)
        waiting += ast.iter_child_nodes(node)
    return bindings


# -- by importing


def _ask_child(calls: Sequence[Call], base: Path, env: Mapping[str, str]) -> list[list[Flaw]]:
    """What is wrong with each call, from a child that imports the modules. One that takes too long finds nothing."""
    order = json.dumps({"base": str(base), "env": dict(env), "calls": calls})
    argv = [sys.executable, "-P", "-m", "bakeoff.workloads.functions", str(os.getpid())]
    # Errors do not go through a pipe: a daemon that the import started would hold it open. Its own session: Ctrl-C at
    # the terminal is for us, and we end it.
    with (
        tempfile.TemporaryFile() as errors,
        subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, start_new_session=True
        ) as child,
    ):
        try:
            answer, _ = child.communicate(order.encode(), timeout=PATIENCE)
        except BaseException as error:
            processes.send(processes.descendants([child.pid]), signal.SIGKILL)
            if isinstance(error, subprocess.TimeoutExpired):
                return [[] for _ in calls]
            raise
        try:
            return [[Flaw(*flaw) for flaw in listed] for listed in json.loads(answer)]
        except ValueError:
            errors.seek(0)
            said = one_line(errors.read().decode(errors="replace"), 200)
    code = child.returncode
    how = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
    why = f"importing its module ends the process ({how})" + (f": {said}" if said else "")
    return [[Flaw("function", f"{call.function}: {why}", "correct the module")] for call in calls]


def check(call: Call, base: Path) -> list[Flaw]:
    """What is wrong with a call, found by importing the function's module into this process."""
    module_name, _, name = call.function.partition(":")
    try:
        module = importlib.import_module(module_name)
    except BaseException as error:  # whatever user code does
        return [_import_flaw(module_name, error, base)]
    own = base / f"{module_name}.py"
    if own.is_file() and not own.samefile(getattr(module, "__file__", None) or os.devnull):
        return []  # a module that only this process has loaded, such as `tempfile`, hides it
    try:
        function = pkgutil.resolve_name(call.function)
    except AttributeError:
        owner, _, last = name.rpartition(".")
        try:
            place: Any = pkgutil.resolve_name(f"{module_name}:{owner}") if owner else module
        except AttributeError:
            place, last = module, name.partition(".")[0]
        functions = [each for each, value in vars(place).items() if callable(value) and not each.startswith("__")]
        file = getattr(module, "__file__", None) or module_name
        fix = did_you_mean(last, functions, f"its functions: {', '.join(functions[:10])}" if functions else "write it")
        return [Flaw("function", f"there is no {name!r} in {file}", fix)]
    if not callable(function):
        return [
            Flaw(
                "function",
                f"{call.function} is not a function but of type {type(function).__name__}",
                "name a function",
            )
        ]
    if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
        kind = "async" if inspect.iscoroutinefunction(function) else "a generator"
        return [Flaw("function", f"{call.function} is {kind}", "name a plain function that returns metrics")]
    return _argument_flaws(call, function)


def _import_flaw(module: str, error: BaseException, base: Path) -> Flaw:
    """What an import that failed means."""
    missing = error.name or "" if isinstance(error, ModuleNotFoundError) else ""
    if missing and (module == missing or module.startswith(f"{missing}.")):
        beside = sorted(path.stem for path in base.glob("*.py"))
        others = f"modules beside the experiment file: {', '.join(beside[:10])}" if beside else f"put it into {base}"
        return Flaw("function", f"no module called {missing!r}", did_you_mean(missing, beside, others))
    said = one_line("".join(traceback.format_exception_only(error)), 200)
    places = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith("<frozen importlib")]
    where = f" ({places[-1].filename}:{places[-1].lineno})" if len(places) > 1 else ""
    if isinstance(error, SyntaxError):
        where = f" ({error.filename}:{error.lineno})"
    fix = f"pip install it for {sys.executable}" if missing else "correct the module"
    return Flaw("function", f"importing {module} fails: {said}{where}", fix)


def _argument_flaws(call: Call, function: Any) -> list[Flaw]:
    """Arguments that the function does not take, and those that it needs and does not get."""
    try:
        parameters = inspect.signature(function).parameters
    except (ValueError, TypeError):  # some functions written in C have no signature
        return []
    by_name = [
        name for name, each in parameters.items() if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)
    ]
    given = {*call.names, *(name for name in PROVIDED if name in parameters)}
    listed: list[Flaw] = []
    meant: set[str] = set()
    if not any(each.kind is each.VAR_KEYWORD for each in parameters.values()):
        free = [name for name in by_name if name not in given]
        for name in (name for name in call.names if name not in parameters):
            takes = f"it takes {', '.join(by_name)}" if by_name else "it takes none"
            fix = did_you_mean(name, free, takes)
            meant.update(each for each in free if f"{each!r}" in fix)
            listed.append(Flaw(name, f"{call.function} takes no argument {name!r}", fix))
    for name, each in parameters.items():
        if each.default is not each.empty or each.kind in (each.VAR_KEYWORD, each.VAR_POSITIONAL) or name in meant:
            continue
        if each.kind is each.POSITIONAL_ONLY:
            fix = "remove the / from its parameters: arguments are passed by name"
            listed.append(Flaw("function", f"{call.function} takes {name!r} by position only", fix))
        elif name not in given:
            fix = f"add {name} = ... to [params], or give the parameter a default"
            listed.append(Flaw("function", f"{call.function} needs the argument {name!r}", fix))
    return listed


def main() -> None:
    """The child: an order on standard input, the flaws of its calls as JSON on standard output."""
    processes.die_with_parent(int(sys.argv[1]))
    processes.become_subreaper()
    order = json.load(sys.stdin)
    report = os.dup(1)  # not inherited: what the modules print, and what they start, cannot write to it
    os.dup2(2, 1)
    os.environ.update(order["env"])
    os.chdir(order["base"])
    sys.path.insert(0, order["base"])
    answers = [check(Call(function, tuple(names)), Path(order["base"])) for function, names in order["calls"]]
    with os.fdopen(report, "w") as file:
        json.dump(answers, file)
    processes.send(processes.descendants(processes.children()), signal.SIGKILL)  # what the modules started
    os._exit(0)  # threads and exit handlers of the modules must not hold us


if __name__ == "__main__":
    main()
