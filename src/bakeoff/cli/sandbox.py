"""`bakeoff sandbox`: which sandboxes work here, what killed runs left behind, and the images that boxes start from."""

from __future__ import annotations

import os
import statistics
import time
from pathlib import Path
from typing import Any

import click

from bakeoff.cli.display import print_json, print_table
from bakeoff.cli.options import json_option
from bakeoff.errors import BakeoffError
from bakeoff.sandbox.base import BACKENDS, DEFAULT, VARIABLE, BoxSpec, Limits, Sandbox, choose
from bakeoff.text import NOTHING

_LIMITS = Limits(memory_mb=512, cpus=1, pids=64, disk_mb=64)
_TRIES = 5
_WITHOUT_CGROUP = {
    "memory": "memory is watched 20 times a second",
    "pids": "processes are counted for the whole user",
    "cpu": "CPU time is limited by the number of cores",
}
"""What replaces a cgroup controller that we cannot get."""


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
    """Show which sandboxes work here, why others do not, and what one box costs.

    Opens a box with limits, runs one command and closes it, a few times, and prints the median time. Exits 0 when
    every named SANDBOX works or, without names, when the default one works.
    """
    default = choose().name
    entries = [_try_out(choose(name, accepted=True)) for name in names or BACKENDS]
    if as_json:
        print_json({"default": default, "variable": VARIABLE, "sandboxes": entries})
    else:
        rows = []
        for entry in entries:
            name = f"{entry['sandbox']}{' (default)' if entry['sandbox'] == default else ''}"
            cost = f"{entry['milliseconds']:.0f} ms" if entry["milliseconds"] is not None else NOTHING
            rows.append([name, "yes" if entry["works"] else "no", cost, entry["why_not"] or entry.get("note", "")])
        print_table(["sandbox", "works", "one box", ""], rows, right=["one box"])
        if default != DEFAULT:
            click.echo(f"{VARIABLE} is set to {default}.")
    required = set(names) or {default}
    ctx.exit(0 if all(entry["works"] for entry in entries if entry["sandbox"] in required) else 1)


def _try_out(sandbox: Sandbox) -> dict[str, Any]:
    """One entry of the JSON output: whether a backend works, why not, and the median time of one box."""
    entry: dict[str, Any] = {
        "sandbox": sandbox.name,
        "works": False,
        "why_not": sandbox.missing(),
        "milliseconds": None,
    }
    if entry["why_not"] is not None:
        return entry
    if sandbox.name == "modal":
        return {**entry, "works": True, "note": "hosted: no box was opened, because that costs money"}
    seconds = []
    try:
        sandbox.open(BoxSpec(limits=_LIMITS)).close()  # what is made once is made before the clock starts
        for _ in range(_TRIES):
            began = time.perf_counter()
            with sandbox.open(BoxSpec(limits=_LIMITS)) as box:
                result = box.run(["/bin/sh", "-c", "exit 0"], timeout=60)
            seconds.append(time.perf_counter() - began)
            if not result.ok:
                output = result.stderr.decode(errors="replace")
                return {**entry, "why_not": f"a box starts, but a command in it ends with {result.code}: {output}"}
    except BakeoffError as error:
        return {**entry, "why_not": str(error)}
    milliseconds = round(1000 * statistics.median(seconds), 1)
    return {**entry, "works": True, "milliseconds": milliseconds, "note": _note(sandbox)}


def _note(sandbox: Sandbox) -> str:
    """Which limits the kernel enforces, what replaces the others, and how to get them."""
    if sandbox.name == "none":
        return "isolates nothing; of the limits, time and memory are watched"
    if sandbox.name != "bubblewrap":
        return "cgroups limit memory, cpu, pids; disk is checked once a second"
    from bakeoff.sandbox import cgroups, overlay, syscalls

    enforced = sorted(set(cgroups.parents()) & set(_WITHOUT_CGROUP))
    notes = [f"cgroups limit {', '.join(enforced)}"] if enforced else []
    if missing := [text for name, text in _WITHOUT_CGROUP.items() if name not in enforced]:
        fix = "run as root, or in a group of your own: systemd-run --user --scope -p Delegate=yes bakeoff ..."
        some = "some" if enforced else "any"
        notes.append(f"{', '.join(missing)}, because we may not create {some} cgroups (fix: {fix})")
    problem = overlay.disk_image_problem()
    notes.append("disk is an ext4 image" if problem is None else f"disk is a tmpfs, which counts as memory ({problem})")
    if syscalls.seccomp_filter() is None:
        notes.append(f"system calls are not filtered: there is no table for {os.uname().machine}")
    return "; ".join(notes)


@command.command()
@click.option("--images", "also_images", is_flag=True, help="Also remove built images that have no name.")
@json_option
def clean(also_images: bool, as_json: bool) -> None:
    """Remove what killed runs left behind: directories, cgroups and containers of processes that are gone."""
    from bakeoff.sandbox import cache, images

    removed = cache.remove_abandoned()
    containers = 0
    for name in ("docker", "podman", "modal"):
        sandbox: Any = choose(name)
        if sandbox.missing() is None:
            containers += sandbox.remove_abandoned()
    layers = images.clean() if also_images else 0
    counts = {"boxes": removed.boxes, "cgroups": removed.groups, "containers": containers, "layers": layers}
    if as_json:
        print_json(counts)
    else:
        click.echo("removed " + ", ".join(f"{number} {what}" for what, number in counts.items()))


@command.group()
def image() -> None:
    """Images that boxes start from, kept unpacked in the cache (BAKEOFF_CACHE, else ~/.cache/bakeoff)."""


@image.command()
@click.argument("name")
@click.argument("source", type=click.Path(exists=True, path_type=Path))
@json_option
def add(name: str, source: Path, as_json: bool) -> None:
    """Add an image under NAME.

    SOURCE is an archive (docker save, podman save, docker export, OCI) or a directory with an unpacked root.
    """
    from bakeoff.sandbox import images

    stored = images.add(name, source)
    added = {"name": images.full_name(name), "digest": stored.digest, "layers": len(stored.layers)}
    if as_json:
        print_json(added)
    else:
        click.echo(f"{added['name']} is sha256:{stored.digest[:12]}, {added['layers']} layers")


@image.command("ls")
@json_option
def list_images(as_json: bool) -> None:
    """List images by name."""
    from bakeoff.sandbox import images

    named = sorted(images.names().items())
    if as_json:
        print_json([{"name": name, "digest": digest} for name, digest in named])
    elif named:
        print_table(["name", "digest"], [[name, digest[:12]] for name, digest in named])
    else:
        click.echo("no images; add one with `bakeoff sandbox image add NAME FILE|DIR`", err=True)


@image.command()
@click.argument("name")
def rm(name: str) -> None:
    """Remove the name of an image; `bakeoff sandbox clean --images` frees its space."""
    from bakeoff.sandbox import images

    images.forget(name)
