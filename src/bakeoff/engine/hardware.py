"""What a machine has, and how runs share it: cores, memory, GPU devices.

    devices = find_devices(declared=2)                 # ("0", "1")
    slots = DeviceSlots(devices, share=0.5)            # four slots
    held = slots.take()                                # ("0",)
    device_variables(held)                             # {"CUDA_VISIBLE_DEVICES": "0", ...}
    slots.give(held)

Nothing here needs a vendor's library: devices are counted by the files that their drivers make.
"""

from __future__ import annotations

import os
import platform
import re
from functools import cache
from pathlib import Path

from bakeoff.errors import UsageError
from bakeoff.spec.experiment import Resources

VISIBLE = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ASCEND_RT_VISIBLE_DEVICES")
"""How the runtimes of NVIDIA, AMD and Huawei are told which devices a process may use."""
_FILES = (
    (Path("/dev"), r"nvidia(\d+)"),
    (Path("/sys/class/kfd/kfd/topology/nodes"), r"(\d+)"),
    (Path("/dev"), r"davinci(\d+)"),
)


def find_devices(declared: int | None) -> tuple[str, ...]:
    """The devices that runs may use, as their runtimes number them.

    What an engine or the user assigned to this process (CUDA_VISIBLE_DEVICES and the others) goes first, then the number
    that the file declares, then what the drivers show. Raises UsageError when more are declared than are assigned.
    """
    assigned = next((os.environ[name] for name in VISIBLE if name in os.environ), None)
    if assigned is not None:
        devices = tuple(name.strip() for name in assigned.split(",") if name.strip() and name.strip() != "-1")
        if declared is not None and declared > len(devices):
            raise UsageError(
                f"executor.gpus declares {declared} devices, and this process may use {len(devices)} ({assigned!r})"
            )
        return devices if declared is None else devices[:declared]
    if declared is not None:
        return tuple(map(str, range(declared)))
    for (directory, pattern), variable in zip(_FILES, VISIBLE, strict=True):
        names = os.listdir(directory) if directory.is_dir() else []
        numbers = sorted(int(found[1]) for name in names if (found := re.fullmatch(pattern, name)))
        if variable == "HIP_VISIBLE_DEVICES":  # nodes without SIMD units are processors
            simd = [(directory / str(number) / "properties").read_text() for number in numbers]
            numbers = list(range(sum(bool(re.search(r"simd_count [1-9]", text)) for text in simd)))
        if numbers:
            return tuple(map(str, numbers))
    return ()


class DeviceSlots:
    """Devices, handed out so that each is used by as many runs as its shares allow."""

    def __init__(self, devices: tuple[str, ...], share: float) -> None:
        """`share` is what one run needs: a fraction of one device, or a whole number of devices."""
        self._whole = int(share) if share >= 1 else 1
        # 1 / 0.1 is 10, and 1 / 0.3 is 3: a sum of binary fractions must not lose the last run.
        self._sharing = 1 if share >= 1 else int(1 / share + 1e-9)
        self._used = dict.fromkeys(devices, 0)
        self.total = (len(devices) // self._whole) * self._sharing

    def take(self) -> tuple[str, ...] | None:
        """Devices for one run: the least used; None when all are taken."""
        free = sorted(
            (used, order, name) for order, (name, used) in enumerate(self._used.items()) if used < self._sharing
        )
        if len(free) < self._whole:
            return None
        taken = tuple(name for _, _, name in free[: self._whole])
        for name in taken:
            self._used[name] += 1
        return taken

    def give(self, devices: tuple[str, ...]) -> None:
        """The run that had them has ended."""
        for name in devices:
            self._used[name] -= 1


def device_variables(devices: tuple[str, ...]) -> dict[str, str]:
    """The environment of a run that may use these devices and no others."""
    return dict.fromkeys(VISIBLE, ",".join(devices))


def memory_bytes() -> int:
    """The machine's memory."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0))


def fitting(resources: Resources, devices: tuple[str, ...], jobs: int) -> int:
    """How many runs may be going on at once on this machine: at most `jobs`, and as many as fit beside each other.

    Raises UsageError when not a single one fits.
    """
    most = {"jobs": jobs}
    if resources.cpus:
        most["cpus"] = int(cores() / resources.cpus + 1e-9)
    if resources.memory:
        most["memory"] = memory_bytes() // resources.memory
    if resources.gpus:
        most["gpus"] = DeviceSlots(devices, resources.gpus).total
    scarcest = min(most, key=lambda name: most[name])
    if most[scarcest] < 1:
        has = {"cpus": f"{cores()} cores", "memory": f"{memory_bytes():,} bytes", "gpus": f"{len(devices)} devices"}
        fix = "; declare them with [executor] gpus = N" if scarcest == "gpus" else ""
        raise UsageError(
            f"resources.{scarcest}: a run needs {getattr(resources, scarcest):g}, and {platform.node()} has "
            f"{has[scarcest]}{fix}"
        )
    return most[scarcest]


@cache
def kind_of_node(devices: tuple[str, ...] = ()) -> str:
    """Processor, cores, memory and devices in one line. Nodes with the same line are of one kind."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        text = ""
    model = re.search(r"^(?:model name|Model|cpu model)\s*:\s*(.+)$", text, re.MULTILINE)
    processor = re.sub(r"\s+", " ", model[1]).strip() if model else platform.machine()
    parts = [f"{processor}, {os.cpu_count()} cores", f"{round(memory_bytes() / 2**30)} GB"]
    if devices:
        models = sorted({_device_model(number) for number in range(len(devices))} - {""})
        parts.append(f"{len(devices)} x {' and '.join(models) or 'GPU'}")
    return ", ".join(parts)


def _device_model(number: int) -> str:
    """The name of the NVIDIA device with this number; empty when the driver does not say."""
    try:
        folders = sorted(Path("/proc/driver/nvidia/gpus").iterdir())
        found = re.search(r"Model:\s*(.+)", (folders[number] / "information").read_text())
    except (OSError, IndexError):
        return ""
    return found[1].strip() if found else ""
