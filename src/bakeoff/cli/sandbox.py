"""`bakeoff sandbox`: which sandboxes work here, what killed runs left behind, and the images that boxes start from."""

from __future__ import annotations

import os
import statistics
import time
from pathlib import Path
from typing import Any

import click

from bakeoff.cli.display import NOTHING, print_json, print_table
from bakeoff.cli.options import json_option
from bakeoff.errors import BakeoffError
from bakeoff.sandbox.face import BACKENDS, DEFAULT, VARIABLE, Sandbox, choose
from bakeoff.sandbox.spec import BoxSpec, Limits

_LIMITS = Limits(memory_mb=512, cpus=1, pids=64, disk_mb=64)
_TRIES = 5


@click.group()
def command() -> None:
    """Isolation for commands that nobody should trust.

    The sandbox of a run is bubblewrap unless --sandbox or SANDBOX_BACKEND says otherwise.
    """


@command.command()
@click.argument("names", nargs=-1, metavar="[SANDBOX]...")
@json_option
@click.pass_context
def check(ctx: click.Context, names: tuple[str, ...], as_json: bool) -> None:
    """Say which sandboxes work here, why not, and what a box costs.

    A box with limits is opened, runs one command and is closed, a few times; the median counts. Exits 0 when every
    SANDBOX named works, or, when none is named, the default one.
    """
    chosen = choose().name
    found = [_checked(choose(name, accepted=True)) for name in names or BACKENDS]
    if as_json:
        print_json({"default": chosen, "variable": VARIABLE, "sandboxes": found})
    else:
        _print_checked(found, chosen)
    wanted = set(names) or {chosen}
    ctx.exit(0 if all(entry["works"] for entry in found if entry["sandbox"] in wanted) else 1)


def _checked(sandbox: Sandbox) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "sandbox": sandbox.name,
        "works": False,
        "why_not": sandbox.missing(),
        "milliseconds": None,
    }
    if facts["why_not"] is not None:
        return facts
    if sandbox.name == "modal":
        return {**facts, "works": True, "note": "hosted: no box was opened, since that costs money"}
    try:
        sandbox.open(BoxSpec(limits=_LIMITS)).close()  # what is made once is made before the clock starts
        took = [_one_box(sandbox) for _ in range(_TRIES)]
    except BakeoffError as error:
        return {**facts, "why_not": str(error)}
    return {**facts, "works": True, "milliseconds": round(1000 * statistics.median(took), 1), "note": _note(sandbox)}


def _one_box(sandbox: Sandbox) -> float:
    began = time.perf_counter()
    with sandbox.open(BoxSpec(limits=_LIMITS)) as box:
        ended = box.run(["/bin/sh", "-c", "exit 0"], timeout=60)
    if not ended.ok:
        raise BakeoffError(
            f"a box starts, but a command in it ends with {ended.code}: {ended.stderr.decode(errors='replace')}"
        )
    return time.perf_counter() - began


_WEAKER = {
    "memory": "memory is watched 20 times a second",
    "pids": "processes are counted for the whole user",
    "cpu": "CPU time is bound by cores",
}
"""What stands in for a controller of cgroups."""


def _note(sandbox: Sandbox) -> str:
    """Which limits hold, how those that nothing holds are made up for, and what would change that."""
    if sandbox.name == "none":
        return "isolates nothing; of the limits, time and memory are watched"
    if sandbox.name != "bubblewrap":
        return "cgroups hold memory, cpu, pids; disk is looked at once a second"
    from bakeoff.sandbox import cgroups, seccomp, volume

    held = sorted(set(cgroups.parents()) & set(_WEAKER))
    told = [f"cgroups hold {', '.join(held)}"] if held else []
    if missing := [text for name, text in _WEAKER.items() if name not in held]:
        fix = "run as root, or in a group of your own: systemd-run --user --scope -p Delegate=yes bakeoff ..."
        told.append(f"{', '.join(missing)}, since {'some' if held else 'no'} cgroups may be made (fix: {fix})")
    lacking = volume.lacking()
    told.append("disk is an ext4 image" if lacking is None else f"disk is a tmpfs, which counts as memory ({lacking})")
    if seccomp.program() is None:
        told.append(f"system calls are not filtered: they are not listed for {os.uname().machine}")
    return "; ".join(told)


def _print_checked(found: list[dict[str, Any]], chosen: str) -> None:
    rows = []
    for entry in found:
        name = f"{entry['sandbox']}{' (default)' if entry['sandbox'] == chosen else ''}"
        cost = f"{entry['milliseconds']:.0f} ms" if entry["milliseconds"] is not None else NOTHING
        rows.append([name, "yes" if entry["works"] else "no", cost, entry["why_not"] or entry.get("note", "")])
    print_table(["sandbox", "works", "one box", ""], rows, right=["one box"])
    if chosen != DEFAULT:
        click.echo(f"{VARIABLE} is set to {chosen}.")


@command.command()
@click.option("--images", "also_images", is_flag=True, help="Also remove built images that have no name.")
@json_option
def clean(also_images: bool, as_json: bool) -> None:
    """Remove what killed runs left behind: directories, cgroups and containers of processes that are gone."""
    from bakeoff.sandbox import images, leftovers

    removed = leftovers.remove()
    containers = 0
    for name in ("docker", "podman"):
        sandbox: Any = choose(name)
        if sandbox.missing() is None:
            containers += sandbox.remove_leftovers()
    layers = images.clean() if also_images else 0
    facts = {"boxes": removed.boxes, "cgroups": removed.groups, "containers": containers, "layers": layers}
    if as_json:
        print_json(facts)
    else:
        click.echo("removed " + ", ".join(f"{number} {what}" for what, number in facts.items()))


@command.group()
def image() -> None:
    """Images that boxes start from, kept unpacked in the cache (BAKEOFF_CACHE, else ~/.cache/bakeoff)."""


@image.command()
@click.argument("name")
@click.argument("source", type=click.Path(exists=True, path_type=Path))
@json_option
def add(name: str, source: Path, as_json: bool) -> None:
    """Take in an image under NAME.

    SOURCE is an archive (docker save, podman save, docker export, OCI) or a directory with an unpacked root.
    """
    from bakeoff.sandbox import images

    stored = images.add(name, source)
    facts = {"name": images.full_name(name), "digest": stored.digest, "layers": len(stored.layers)}
    if as_json:
        print_json(facts)
    else:
        click.echo(f"{facts['name']} is sha256:{stored.digest[:12]}, {facts['layers']} layers")


@image.command("ls")
@json_option
def list_images(as_json: bool) -> None:
    """List images by name."""
    from bakeoff.sandbox import images

    known = sorted(images.names().items())
    if as_json:
        print_json([{"name": name, "digest": digest} for name, digest in known])
    elif known:
        print_table(["name", "digest"], [[name, digest[:12]] for name, digest in known])
    else:
        click.echo("no images; `bakeoff sandbox image add NAME FILE|DIR` takes one in", err=True)


@image.command()
@click.argument("name")
def rm(name: str) -> None:
    """Remove the name of an image; `bakeoff sandbox clean --images` frees its space."""
    from bakeoff.sandbox import images

    images.forget(name)
