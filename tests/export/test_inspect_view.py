"""`inspect view`, the real one, serves the logs that `bakeoff export --format inspect` writes."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote
from urllib.request import urlopen

import pytest

from bakeoff.export.exporting import FORMATS

pytestmark = [pytest.mark.trainers, pytest.mark.slow]  # starts the server of .trainers
HOME = Path(os.environ.get("BAKEOFF_TRAINERS", Path(__file__).parents[2] / ".trainers"))


@pytest.fixture
def address(exported: Path) -> Iterator[str]:
    """The address of a viewer on the exported logs, once it says that it runs."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    logs = exported / FORMATS["inspect"].file
    command = [HOME / "bin" / "inspect", "view", "start", "--log-dir", logs, "--port", str(port)]
    server = subprocess.Popen(command, cwd=exported, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        assert server.stdout is not None
        assert any("Running on " in line for line in server.stdout), "the viewer did not start"
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.communicate(timeout=30)


def test_the_viewer_lists_the_logs_and_opens_each_with_its_samples(address: str) -> None:
    def get(path: str) -> Any:
        with urlopen(f"{address}/api/{path}", timeout=60) as answer:
            return json.load(answer)

    names = [file["name"] for file in get("logs")["files"]]
    assert names
    for name in names:
        log = get(f"logs/{quote(name, safe='')}")
        (header,) = get(f"log-headers?file={quote(name, safe='')}")
        assert header["eval"]["eval_id"] == log["eval"]["eval_id"]
        assert log["results"]["total_samples"] == len(log["samples"]) > 0
        assert all(sample["messages"] or sample["error"] for sample in log["samples"])
