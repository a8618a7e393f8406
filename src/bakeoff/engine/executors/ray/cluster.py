"""A Ray cluster: connect to it, see what its nodes hold, start pilots as actors and end them.

Actors are detached and named, so they outlive the scheduler, and the next one finds them. Ray restarts nothing and
repeats nothing (`max_restarts=0`, `max_task_retries=0`): claims decide that.
"""

from __future__ import annotations

import json
import logging
import math
import os
import re
import secrets
import signal
import socket
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from bakeoff.engine.executors import Executor, ExecutorSetup
from bakeoff.engine.executors.ray import RaySettings
from bakeoff.engine.executors.ray.host import Host
from bakeoff.engine.executors.ray.transport import RayTransport
from bakeoff.engine.pilots.attachments import Attachments
from bakeoff.engine.pilots.executor import PilotExecutor
from bakeoff.engine.pilots.settings import pilot_setup
from bakeoff.engine.pilots.transport import PilotSetup
from bakeoff.errors import BakeoffError, UsageError
from bakeoff.records import layout
from bakeoff.records.claims import is_pilot_name
from bakeoff.records.files import read_inside
from bakeoff.records.layout import RAY_FILE, EditionPaths, atomic_write
from bakeoff.spec.experiment import Resources

_NAMESPACE = "bakeoff"
_CALLS = 8
"""Calls that an actor answers at the same time: some of them wait."""
_TIME_TO_END = 20.0
_CONNECTS = 10.0
_GIVEN_VARIABLES = re.compile(r"\$\{(\w+)\}")
_NOT_SENT = [".git", ".venv", "venv", "__pycache__", "node_modules", ".mypy_cache", ".ruff_cache", ".pytest_cache"]


def open_executor(setup: ExecutorSetup) -> Executor:
    """Connect, and return an executor whose pilots are actors. Raises BakeoffError or UsageError."""
    settings, paths = setup.settings, setup.node.paths
    assert isinstance(settings, RaySettings)
    _connect(settings.address, _code(setup))
    try:
        slots, pilots = _size(settings, setup.node.resources, setup.jobs)
        pilot = msgspec.structs.replace(pilot_setup(setup, settings, base="."), slots=slots)
        transport = RayTransport(paths, Attachments(setup.node.base, setup.tasks))
        launcher = RayLauncher(setup, pilot, transport)
    except BaseException:
        ray.shutdown()
        raise
    return PilotExecutor(
        pilot, paths, setup.claims, transport, launcher,
        pilots=pilots, expiry=settings.expiry, same_packages=settings.same_packages,
    )  # fmt: skip


def _code(setup: ExecutorSetup) -> dict[str, Any]:
    """What Ray sends to nodes, by content digest: the experiment's directory without results, and bakeoff.

    Ray applies `excludes` to both. So they name each experiment's results, and not the root: it may be called `results`,
    as a package of bakeoff is.
    """
    base, root, package = setup.node.base.resolve(), setup.node.paths.directory.parent.parent, Path(__file__).parents[3]
    excluded = []
    if root.resolve().is_relative_to(base):
        place = root.resolve().relative_to(base)
        excluded = [place / name for name in (*layout.experiments(root), setup.node.paths.experiment)]
        for path in excluded:
            if (package / path).exists():
                raise UsageError(f"{base / path} has the name of a package of bakeoff; choose another root with --root")
    return {
        "working_dir": str(base),
        "excludes": [*_NOT_SENT, *(f"/{path.as_posix()}" for path in excluded)],
        "py_modules": [str(package)],
    }


def _connect(address: str | None, runtime_env: dict[str, Any]) -> None:
    address = address or os.environ.get("RAY_ADDRESS") or None
    where = address or "a local cluster"
    found = re.fullmatch(r"(?:ray://)?\[?([^\[\]/]+?)\]?:(\d{1,5})", address or "")
    try:
        if found is not None:  # Ray itself tries for minutes
            socket.create_connection((found[1], int(found[2])), timeout=_CONNECTS).close()
    except (OSError, OverflowError) as error:
        raise BakeoffError(f"cannot connect to Ray ({where}): {error}. Is the cluster running?") from error
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    os.environ.setdefault("RAY_RUNTIME_ENV_IGNORE_GITIGNORE", "1")  # data may be ignored by git, and is needed
    try:
        ray.init(
            address=address, namespace=_NAMESPACE, runtime_env=runtime_env,
            log_to_driver=False, logging_level=logging.ERROR,
        )  # fmt: skip
    except Exception as error:  # Ray raises many kinds here
        raise BakeoffError(
            f"cannot connect to Ray ({where}): {error}\nIs the cluster running, and is this machine one of its nodes? "
            "`ray status` says so"
        ) from error
    finally:
        for number, handler in handlers.items():  # Ray takes SIGTERM for itself; stopping is the scheduler's
            signal.signal(number, handler)


def _size(settings: RaySettings, resources: Resources, jobs: int | None) -> tuple[int, int]:
    """(slots for each pilot, pilots): as many as fit, and together not more than `jobs`."""
    needs = {"CPU": resources.cpus or 1.0, "GPU": resources.gpus or 0.0, "memory": float(resources.memory or 0)}
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    room = [min(int(node.get(name, 0.0) / need + 1e-9) for name, need in needs.items() if need) for node in nodes]
    room = [number for number in room if number > 0]
    if not room and (settings.slots is None or settings.pilots is None):
        wanted = ", ".join(f"{need:g} {name}" for name, need in needs.items() if need)
        raise UsageError(
            f"no node of the Ray cluster has room for a run ({wanted}). "
            "If nodes are added on demand, say how many there will be: [executor] pilots and slots"
        )
    if settings.pilots is False:
        return 1, settings.number_of_pilots(jobs)
    slots = settings.slots or min(min(room), jobs or min(room))
    pilots = settings.pilots or max(1, sum(number // slots for number in room))
    if jobs is not None and settings.pilots is None:
        pilots = min(pilots, math.ceil(jobs / slots))
    return slots, pilots


class RayLauncher:
    """`Launcher`: one actor for each pilot."""

    def __init__(self, setup: ExecutorSetup, pilot: PilotSetup, transport: RayTransport) -> None:
        settings = setup.settings
        assert isinstance(settings, RaySettings)
        self._transport = transport
        self._setup = msgspec.msgpack.encode(pilot)
        self._edition, names = _remembered(setup.node.paths)
        self._paths = setup.node.paths
        self._names = dict.fromkeys(names)
        wanted = {name for text in setup.variables.values() for name in _GIVEN_VARIABLES.findall(text)}
        self._env = {name: os.environ[name] for name in (*wanted, *settings.secrets) if name in os.environ}
        absent = [name for name in settings.secrets if name not in os.environ]
        if absent:
            raise UsageError(f"executor.secrets: {', '.join(absent)} is not set; export it before the run")
        resources = setup.node.resources
        gpus = pilot.slots * (resources.gpus or 0.0)
        self._options: dict[str, Any] = {
            "num_cpus": pilot.slots * (resources.cpus or 1.0),
            "num_gpus": math.ceil(gpus) if gpus > 1 else gpus,
            "memory": pilot.slots * resources.memory if resources.memory else None,
            "max_restarts": 0,
            "max_task_retries": 0,
            "max_concurrency": _CALLS,
            "lifetime": "detached",
            "namespace": _NAMESPACE,
        }
        self._actor = ray.remote(Host)
        for name in names:
            try:
                transport.attach(name, ray.get_actor(self._full(name), namespace=_NAMESPACE))
            except ValueError:
                del self._names[name]  # it is gone, or belongs to another cluster

    def _full(self, name: str) -> str:
        return f"{self._edition}-{name}"

    def start(self, pilots: Sequence[str], *, avoid: Sequence[str]) -> None:
        nodes = [
            node["NodeID"]
            for node in ray.nodes()
            if node["Alive"] and node["Resources"].get("CPU") and node["NodeManagerHostname"] not in avoid
        ]
        self._names |= dict.fromkeys(pilots)
        # Before they exist: a scheduler that is killed now finds them later.
        atomic_write(self._paths.directory / RAY_FILE, json.dumps([self._edition, list(self._names)]))
        for number, name in enumerate(pilots):
            strategy: Any = "SPREAD"
            if avoid and nodes:
                strategy = NodeAffinitySchedulingStrategy(nodes[number % len(nodes)], soft=True)
            try:
                actor = self._actor.options(
                    **self._options, name=self._full(name), scheduling_strategy=strategy
                ).remote(name)
            except Exception as error:  # Ray packs and uploads the working directory here
                raise BakeoffError(f"Ray refuses the pilot {name}: {error}") from error
            self._transport.attach(name, actor, begin=actor.begin.remote(self._setup, self._env))

    def ended(self) -> Mapping[str, str]:
        return self._transport.ended

    def explained(self, why: str) -> bool:
        return "node" in why.lower() and "died" in why.lower()

    def log(self, pilot: str) -> str:
        actor = self._transport.actors.get(pilot)
        if actor is None or pilot in self._transport.ended:
            return ""
        try:
            ready, _ = ray.wait([reference := actor.log.remote()], timeout=5.0)
            return str(ray.get(reference)) if ready else ""
        except RayError:
            return ""

    def close(self) -> None:
        """End all actors, and return when Ray has forgotten them. One on a node that is cut off ends by itself."""
        self._transport.pause()
        actors = self._transport.actors
        _end_actors(
            [actor for name, actor in actors.items() if name not in self._transport.ended],
            list(actors.values()),
            {self._full(name) for name in self._names},
        )
        (self._paths.directory / RAY_FILE).unlink(missing_ok=True)
        ray.shutdown()


def _end_actors(living: Sequence[Any], actors: Sequence[Any], names: set[str]) -> None:
    """Let the pilots of `living` leave, end all `actors`, and return when Ray has none of these names any more."""
    leaving = [actor.leave.remote() for actor in living]
    if leaving:
        ray.wait(leaving, num_returns=len(leaving), timeout=10.0)
    for actor in actors:
        ray.kill(actor)
    deadline = time.monotonic() + _TIME_TO_END
    while time.monotonic() < deadline:
        if not names & {entry["name"] for entry in ray.util.list_named_actors(all_namespaces=True)}:
            break
        time.sleep(0.05)


def abandon(paths: EditionPaths) -> None:
    """End the actors of an edition that goes on elsewhere: they hold CPUs of the cluster until they have lingered.

    Only those of the cluster that RAY_ADDRESS names: an edition that came from somebody else must not choose where we
    connect to. Others leave by themselves.
    """
    edition, names = _remembered(paths)
    (paths.directory / RAY_FILE).unlink(missing_ok=True)
    address = os.environ.get("RAY_ADDRESS")
    if not names or not address:
        return
    try:
        _connect(address, {})
    except BakeoffError:
        return  # the cluster is gone, and they are gone with it
    try:
        actors = []
        for name in names:
            with suppress(ValueError):  # it has left
                actors.append(ray.get_actor(f"{edition}-{name}", namespace=_NAMESPACE))
        _end_actors(actors, actors, {f"{edition}-{name}" for name in names})
    finally:
        ray.shutdown()


def _remembered(paths: EditionPaths) -> tuple[str, list[str]]:
    """The edition's name in Ray, which no other edition has, and the pilots that earlier sessions started."""
    try:
        edition, names = json.loads(read_inside(paths.directory, RAY_FILE))
        # Actors of these names are ended by `close`. The file came with the edition, so it may name anybody's.
        if re.fullmatch(r".+-[0-9a-f]{16}", edition) and all(map(is_pilot_name, names)):
            return edition, names
    except (OSError, ValueError, TypeError):
        pass
    return f"{paths.experiment}-{secrets.token_hex(8)}", []
