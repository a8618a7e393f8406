"""Read 1,000 Inspect logs of 1,000 samples each: seconds and memory of `compare` up to the verdict's table.

The logs are copies of a fixture that Inspect wrote: its header, and the summary of one sample a thousand times with another id and
score. They are compressed as Inspect compresses them.
"""

from __future__ import annotations

import json
import random
import resource
import struct
import subprocess
import sys
import zipfile
import zlib
from pathlib import Path
from typing import Any

from measure import REPOSITORY, check, machine, options, publish, say, seconds, versions, workspace

from bakeoff.zstd import ZstdCompressor, decompress

FIXTURE = REPOSITORY / "tests" / "fixtures" / "inspect" / "skill"
SAMPLES = 1_000
ARMS = 4
METHOD = (
    "One process calls `bakeoff.results.sources.open_results` on a directory; its processor time (one thread; wall time is among the figures) and its peak "
    "resident memory are measured. Half of the arms' samples are right. Logs are on disk and were just written, so they are in the page cache."
)
READ = """
import sys, resource, time
from pathlib import Path
from bakeoff.results.sources import open_results
begin, used = time.perf_counter(), time.process_time()
results = open_results([sys.argv[1]], Path("root"))
took, used = time.perf_counter() - begin, time.process_time() - used
assert len(results.rows) == int(sys.argv[2]), len(results.rows)
print(used, took, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""


def contents(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """The header and the first sample's summary of a real log."""
    entries = {}
    with zipfile.ZipFile(path) as archive, path.open("rb") as file:
        for name in ("header.json", "summaries.json"):
            entry = archive.getinfo(name)
            file.seek(entry.header_offset + 26)
            file.seek(sum(struct.unpack("<HH", file.read(4))), 1)
            data = decompress(file.read(entry.compress_size), entry.file_size)
            entries[name] = json.loads(data)
    return entries["header.json"], entries["summaries.json"][0]


def write(path: Path, header: dict[str, Any], samples: list[dict[str, Any]]) -> None:
    """Write a zip whose entries have method 93; `zipfile` of this Python has no such method, so it stores and is renamed."""
    with path.open("wb") as file:
        directory = b""
        for name, value in (("summaries.json", samples), ("header.json", header)):
            data = json.dumps(value).encode()
            packed, text, offset = (
                ZstdCompressor(level=3).compress(data, ZstdCompressor.FLUSH_FRAME),
                name.encode(),
                file.tell(),
            )
            sizes = struct.pack("<LLLHH", zlib.crc32(data), len(packed), len(data), len(text), 0)
            file.write(struct.pack("<4sHHHHH", b"PK\x03\x04", 63, 0, 93, 0, 33) + sizes + text + packed)
            central = struct.pack("<4sHHHHHH", b"PK\x01\x02", 63, 63, 0, 93, 0, 33) + sizes
            directory += central + struct.pack("<HHHLL", 0, 0, 0, 0, offset) + text
        start = file.tell()
        file.write(directory + struct.pack("<4sHHHHLLH", b"PK\x05\x06", 0, 0, 2, 2, len(directory), start, 0))


def make(directory: Path, logs: int) -> None:
    header, sample = contents(sorted(FIXTURE.glob("*.eval"))[0])
    rng = random.Random(1)
    ids = list(range(1, SAMPLES + 1))
    header["eval"]["dataset"] |= {"samples": SAMPLES, "sample_ids": ids}
    for number in range(logs):
        task, arm = divmod(number, ARMS)
        header["eval"] |= {"task": f"task{task}", "model": f"mockllm/{arm}", "eval_id": str(number)}
        scores = ["C" if rng.random() < 0.5 + 0.1 * arm else "I" for _ in ids]
        header["results"]["scores"][0]["metrics"]["accuracy"]["value"] = scores.count("C") / SAMPLES
        samples = [
            {**sample, "id": i, "scores": {"match": {"value": score}}} for i, score in zip(ids, scores, strict=True)
        ]
        write(directory / f"{number}.eval", header, samples)


def main() -> None:
    given = options(__doc__ or "")
    logs = 100 if given.quick else 1_000
    with workspace() as directory:
        place = directory / "logs"
        place.mkdir()
        say(f"writing {logs} logs of {SAMPLES} samples")
        make(place, logs)
        argv = [sys.executable, "-c", READ, str(place), str(logs * SAMPLES)]
        took, wall, memory = map(float, subprocess.run(argv, capture_output=True, text=True, check=True).stdout.split())
        whole = seconds(
            [sys.executable, "-m", "bakeoff", "compare", str(place)],
            directory,
            (0, 3),
        )
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
        facts = machine(directory)
    what = f"{logs:,} Inspect logs of {SAMPLES:,} samples"
    publish(
        "reading", given,
        [
            check(f"time to read {what}", f"{took:.1f} s", "no peer", took, 60, "under", "s"),
            check(f"memory to read {what}", f"{memory:.0f} MB", "no peer", memory, 500, "under", "MB"),
        ],
        {"seconds": took, "wall_seconds": wall, "megabytes": memory, "compare_seconds": whole, "compare_megabytes": peak, "logs": logs, "samples": SAMPLES},
        method=METHOD, facts=facts, programs=versions("msgspec"),
    )  # fmt: skip


if __name__ == "__main__":
    main()
