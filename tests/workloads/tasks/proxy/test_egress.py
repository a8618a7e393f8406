"""The way out to a list of hosts: what is let through, what is refused, and what a sandbox sees of it."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from bakeoff.sandbox.base import BoxSpec
from bakeoff.sandbox.bubblewrap import Bubblewrap
from bakeoff.workloads.tasks.environment import built_for
from bakeoff.workloads.tasks.loading import load_task
from bakeoff.workloads.tasks.network import HostLists, granted, hosts_of, opened
from bakeoff.workloads.tasks.proxy import egress as module
from bakeoff.workloads.tasks.proxy.egress import Egress, allows, checked_hosts, is_public, variables
from bakeoff.workloads.tasks.task_command import command
from support.processes import Lab
from workloads.tasks.small import write_task
from workloads.tasks.tasked import HARBOR, harbor_task


@contextmanager
def site() -> Iterator[tuple[int, list[str]]]:
    """A web server on loopback: its port, and the hosts that it was asked for."""
    hosts: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            hosts.append(self.headers["host"])
            self.send_response(200)
            self.send_header("content-length", "5")
            self.end_headers()
            self.wfile.write(b"hello")

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield server.server_address[1], hosts
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


async def here(host: str, port: int) -> list[str]:
    return ["127.0.0.1"]


@pytest.fixture
def loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loopback stands for the world outside."""
    monkeypatch.setattr(module, "is_public", lambda address: True)


def ask(path: Path, text: str) -> bytes:
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(20)
        client.connect(str(path))
        client.sendall(text.encode())
        answer = b""
        while piece := client.recv(65536):
            answer += piece
            if answer.startswith(b"HTTP/1.1 200 OK\r\n\r\n") and "CONNECT" in text and b"hello" not in answer:
                client.sendall(b"GET / HTTP/1.0\r\nhost: inside\r\n\r\n")
        return answer


@pytest.mark.usefixtures("loopback")
def test_listed_hosts_are_reached_and_others_are_refused_and_recorded(tmp_path: Path) -> None:
    with site() as (port, hosts), Egress(tmp_path / "e.sock", tmp_path / "refused.jsonl", here) as egress:
        egress.enter("agent", [f"pypi.org:{port}", f"*.example.org:{port}"])
        get = f"GET http://pypi.org:{port}/a?b HTTP/1.1\r\nHost: evil.example\r\nProxy-Authorization: x\r\n\r\n"
        assert ask(egress.path, get).endswith(b"hello")
        assert ask(egress.path, f"CONNECT a.example.org:{port} HTTP/1.1\r\n\r\n").endswith(b"hello")
        for target in (
            "evil.example",
            "example.org",
            "notexample.org",
            "pypi.org.evil.example",
            "127.0.0.1",
            "[::1]",
            "0x7f.1",
        ):
            assert ask(egress.path, f"CONNECT {target}:{port} HTTP/1.1\r\n\r\n").startswith(b"HTTP/1.1 403")
        assert ask(egress.path, "CONNECT pypi.org:22 HTTP/1.1\r\n\r\n").startswith(b"HTTP/1.1 403")
        egress.enter("verify", [])
        assert ask(egress.path, get).startswith(b"HTTP/1.1 403")
        refused = egress.refused
    assert hosts == [f"pypi.org:{port}", "inside"]
    assert ("agent", "evil.example") in {(entry["phase"], entry["host"]) for entry in refused}
    assert ("verify", "pypi.org") in {(entry["phase"], entry["host"]) for entry in refused}
    assert [json.loads(line) for line in (tmp_path / "refused.jsonl").read_text().splitlines()] == refused


def test_a_listed_name_that_leads_to_this_machine_is_refused(tmp_path: Path) -> None:
    with site() as (port, hosts), Egress(tmp_path / "e.sock", resolve=here) as egress:
        egress.enter("agent", [f"pypi.org:{port}"])
        answer = ask(egress.path, f"CONNECT pypi.org:{port} HTTP/1.1\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 403") and b"private network" in answer
    assert hosts == []


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "0.0.0.0", "224.0.0.1", "::1",
     "fe80::1%eth0", "fc00::1", "::ffff:127.0.0.1", "::ffff:169.254.169.254", "2002:7f00:1::",
     "64:ff9b::7f00:1", "64:ff9b::169.254.169.254", "64:ff9b::a00:1", "64:ff9b:1::808:808", "::7f00:1", "::ffff:0:a00:1", "fec0::1"],
)  # fmt: skip
def test_private_addresses_are_known_in_every_dress(address: str) -> None:
    assert not is_public(address)
    assert is_public("151.101.0.223") and is_public("2a04:4e42::223") and is_public("64:ff9b::151.101.0.223")


@pytest.mark.usefixtures("loopback")
@pytest.mark.parametrize(
    "header",
    ["X: a\nHost: evil.example", "X: a\rHost: evil.example", "Host : evil.example", "X: a\r\n folded", "X: \0", "none"],
)
def test_a_header_that_servers_read_in_different_ways_is_refused(header: str, tmp_path: Path) -> None:
    with site() as (port, hosts), Egress(tmp_path / "e.sock", resolve=here) as egress:
        egress.enter("agent", [f"pypi.org:{port}"])
        answer = ask(egress.path, f"GET http://pypi.org:{port}/ HTTP/1.1\r\nA: b\r\n{header}\r\n\r\n")
        plain = ask(egress.path, f"GET http://pypi.org:{port}/ HTTP/1.1\r\nA: b\r\n\r\n")
        line = ask(egress.path, f"GET http://pypi.org:{port}/\nHost:x HTTP/1.1\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 400") and line.startswith(b"HTTP/1.1 400") and plain.endswith(b"hello")
    assert hosts == [f"pypi.org:{port}"] and [entry["host"] for entry in egress.refused] == ["pypi.org"]


def test_a_list_has_names_of_hosts_only() -> None:
    assert checked_hosts(["PyPI.org.", "*.example.org", "a:8443"]) == ("pypi.org", "*.example.org", "a:8443")
    for wrong in ("https://pypi.org", "10.0.0.1", "pypi.org/simple", "a b", "*", "", "*.*.org")[:4]:
        with pytest.raises(ValueError, match="not the name of a host"):
            checked_hosts([wrong])
    assert allows(["*"], "any.example", 443) and not allows(["*"], "any.example", 22)


@pytest.mark.apt
@pytest.mark.usefixtures("loopback")
def test_a_sandbox_without_network_reaches_listed_hosts_through_the_proxy(
    tmp_path: Path, bubblewrap: Bubblewrap
) -> None:
    fetch = "import sys, urllib.request as r; print(r.urlopen(sys.argv[1], timeout=10).read().decode())"
    with site() as (port, _), Egress(tmp_path / "e.sock", resolve=here) as egress:
        egress.enter("agent", [f"pypi.org:{port}"])
        spec = BoxSpec(sockets={4001: egress.path}, env=variables(4001))
        with bubblewrap.open(spec) as box:
            fine = box.run(["python3", "-c", fetch, f"http://pypi.org:{port}/"], timeout=30)
            other = box.run(["python3", "-c", fetch, f"http://evil.example:{port}/"], timeout=30)
            direct = box.run(["env", "-i", "/usr/bin/python3", "-c", fetch, "http://93.184.215.14/"], timeout=30)
    assert fine.stdout == b"hello\n" and b"403" in other.stderr and not direct.ok
    assert [entry["host"] for entry in egress.refused] == ["evil.example"]


LISTED = '[agent]\nnetwork_mode = "allowlist"\nallowed_hosts = ["pypi.org"]\n'


def test_a_tasks_own_list_counts_once_a_network_is_granted(tmp_path: Path, bubblewrap: Bubblewrap) -> None:
    task = load_task(harbor_task(tmp_path / "t", {}, HARBOR + LISTED))
    assert hosts_of(task, "agent") == () == hosts_of(task, "verify")
    both = granted(task, True)
    assert hosts_of(both, "agent") == ("pypi.org",) and hosts_of(both, "verify") == ("*",)
    with opened(both, bubblewrap) as (reachable, egress):
        assert egress is not None and reachable.egress == (4001, egress.path)
    lists = granted(task, HostLists(agent=("files.example.org",)))
    assert hosts_of(lists, "agent") == ("files.example.org",) and hosts_of(lists, "verify") == ()
    none = load_task(harbor_task(tmp_path / "n", {}, HARBOR + '[agent]\nnetwork_mode = "no-network"\n'))
    assert hosts_of(granted(none, HostLists(agent=("pypi.org",))), "agent") == ()


def test_a_task_with_a_full_network_or_none_has_no_proxy(tmp_path: Path, bubblewrap: Bubblewrap) -> None:
    task = load_task(write_task(tmp_path / "sums"))
    for network in (False, True):
        with opened(granted(task, network), bubblewrap) as (_, egress):
            assert egress is None


FETCH = """\
import sys, urllib.request
try:
    print(urllib.request.urlopen(sys.argv[1], timeout=20).read().decode())
except Exception as error:
    print(error)
"""
BY_PHASE = {
    "environment/fetch.py": FETCH,
    "environment/Dockerfile": """\
FROM debian:stable-slim
WORKDIR /app
COPY fetch.py /fetch.py
RUN python3 /fetch.py http://build.example:PORT/ > /built && python3 /fetch.py http://agent.example:PORT/ > /not-built
""",
    "solution/solve.sh": """#!/bin/sh
python3 /fetch.py http://agent.example:PORT/ > answer
python3 /fetch.py http://build.example:PORT/ > refused
""",
    "tests/test.sh": """#!/bin/sh
python3 /fetch.py http://verify.example:PORT/ > /tmp/verified
python3 /fetch.py http://agent.example:PORT/ > /tmp/refused
grep -h . /built /not-built answer refused /tmp/verified /tmp/refused
[ "$(cat /built answer /tmp/verified | sort | uniq -c | tr -d ' \\n')" = 3hello ] && r=1 || r=0
echo $r > /logs/verifier/reward.txt
""",
}


@pytest.fixture
def example_hosts(monkeypatch: pytest.MonkeyPatch, loopback: None) -> None:
    """Every host below .example is on loopback."""
    found = socket.getaddrinfo

    def look_up(host: str, *args: Any, **more: Any) -> Any:
        return found("127.0.0.1" if host.endswith(".example") else host, *args, **more)

    monkeypatch.setattr(socket, "getaddrinfo", look_up)


@pytest.mark.apt
@pytest.mark.slow
@pytest.mark.usefixtures("example_hosts", "bubblewrap")
def test_task_check_lets_each_phase_reach_its_own_hosts(tmp_path: Path) -> None:
    with site() as (port, hosts):
        files = {name: text.replace("PORT", str(port)) for name, text in BY_PHASE.items()}
        task, logs = harbor_task(tmp_path / "t", files), tmp_path / "logs"
        lists = [f"--hosts={phase}={phase}.example:{port}" for phase in ("build", "agent", "verify")]
        good = CliRunner().invoke(command, ["check", str(task), "--logs", str(logs), *lists])
        assert good.exit_code == 0, good.output
        assert "reference passes: score 1" in good.output and "doing nothing fails: score 0" in good.output
        asked = [host.partition(".")[0] for host in hosts]
        # The image is built once, and only the reference's agent asks; cheats are verified, too.
        assert asked[:2] == ["build", "agent"] and len(asked) > 4 and set(asked[2:]) == {"verify"}
        refused = [json.loads(line) for line in (logs / "t/reference/refused_hosts.jsonl").read_text().splitlines()]
        assert [(entry["phase"], entry["host"]) for entry in refused] == [
            ("agent", "build.example"),
            ("verify", "agent.example"),
        ]
        # A host that was refused is an error of the check, and no score of the reference.
        bad = CliRunner().invoke(command, ["check", str(task), *lists[:2], "--json"])
        assert bad.exit_code == 1
        (finding,) = [one for one in json.loads(bad.stdout)[0]["findings"] if one["name"] == "reference passes"]
        assert (
            not finding["ok"] and f"verify.example:{port} (verify: this host is not on the list)" in finding["message"]
        )


@pytest.mark.apt
@pytest.mark.usefixtures("example_hosts")
def test_images_are_built_with_the_hosts_of_the_build_list_only(tmp_path: Path, bubblewrap: Bubblewrap) -> None:
    """The image of a separate verifier, too."""
    separate = HARBOR + '[verifier]\nenvironment_mode = "separate"\n[verifier.environment]\nworkdir = "/app"\n'
    with site() as (port, hosts):
        files = {name: text.replace("PORT", str(port)) for name, text in BY_PHASE.items()}
        files |= {"tests/Dockerfile": files["environment/Dockerfile"], "tests/fetch.py": FETCH + "# tests\n"}
        task = granted(
            load_task(harbor_task(tmp_path / "t", files, separate)), HostLists(build=(f"build.example:{port}",))
        )
        verifier = task.first.verifier.environment
        assert verifier is not None and verifier.dockerfile is not None
        for environment in (task.environment, verifier):
            image = built_for(environment, bubblewrap).image
            with bubblewrap.open(BoxSpec(image=image)) as box:
                assert box.run(["cat", "/built"]).stdout == b"hello\n"
                assert b"403" in box.run(["cat", "/not-built"]).stdout
        assert hosts == [f"build.example:{port}"] * 2


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("pypi.org", "write build=HOST, agent=HOST or verify=HOST"),
        ("test=pypi.org", "write build=HOST, agent=HOST or verify=HOST"),
        ("build=https://pypi.org", "is not the name of a host"),
    ],
)
def test_a_wrong_list_on_the_command_line_is_explained(lab: Lab, option: str, message: str) -> None:
    harbor_task(lab.place / "t")
    assert message in lab.cli("task", "check", "t", "--hosts", option, cwd=lab.place, code=2).stderr
    both = lab.cli("task", "check", "t", "--hosts", "build=pypi.org", "--network", cwd=lab.place, code=2)
    assert "exclude each other" in both.stderr
