"""Experiments of the larger kinds for both engines: a coding task in a sandbox, and the market world.

with model_on(cluster.site.head, log) as url:
    text = coding(place, url)        # a file for `place`, whose task is outside of it
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cluster.machines import Machine
from support.processes import eventually
from workloads.tasks.small import MEND, write_task

KEY = "sk-" + "w3Rk" * 6
"""What the model server asks for. It must reach the gateway on the node, and no file."""
KEY_VARIABLE = "MODEL_KEY"
_SERVER = """
import json, sys, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
log, key = sys.argv[1:]
class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        known = self.headers.get("authorization") == f"Bearer {key}"
        with open(log, "a") as file:
            file.write(f"{self.client_address[0]} {known}\\n")
        time.sleep(0.5)
        message = {"role": "assistant", "content": "Mend it."}
        usage = {"prompt_tokens": 100, "completion_tokens": 7, "total_tokens": 107}
        choices = [{"index": 0, "finish_reason": "stop", "message": message}]
        body = json.dumps({"id": "1", "object": "chat.completion", "model": "m", "choices": choices, "usage": usage}).encode()
        self.send_response(200 if known else 401)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
server = ThreadingHTTPServer(("0.0.0.0", 0), Handler)
print(server.server_address[1], flush=True)
server.serve_forever()
"""
_ASK = (
    """python3 -c "import json, urllib.request as u; u.urlopen(u.Request('{base_url}/chat/completions', """
    """json.dumps(dict(model='m', messages=[])).encode(), {{'authorization': 'Bearer {api_key}'}}))" """
)
MARKET = """
name = "market"
workload = "market"
seeds = 1
[params]
duration_minutes = 10
markets = 3
perpetuals = 2
agents = 4
outputs = true
[matrix]
agent = ["momentum", "random"]
"""


def devices(seen: Path) -> str:
    """An experiment file for two nodes with two devices each: runs say where and when they had which.

    Four pilots of two slots hold all of its runs, and the first ones last until all four have begun one, so no pilot comes
    too late. `seen` is a new directory that the nodes share.
    """
    seen.mkdir()
    seen.chmod(0o777)
    return f"""
name = "devices"
workload = "command"
seeds = 16
[params]
command = '''
echo $(hostname) $CUDA_VISIBLE_DEVICES $HIP_VISIBLE_DEVICES $(date +%s%N) > {{out}}/begin
touch {seen}/$(hostname)-$CUDA_VISIBLE_DEVICES
for i in $(seq 600); do [ $(ls {seen} | wc -l) -ge 4 ] && break; sleep .1; done
sleep .5
date +%s%N > {{out}}/end
'''
[resources]
gpus = 0.5
"""


def coding(place: Path, url: str, rollouts: int = 2) -> str:
    """An experiment file for `place`: an agent that calls the model at `url` once and mends its task."""
    if not (place.parent / "tasks").exists():
        write_task(place.parent / "tasks" / "sums")
    return f"""
name = "coding"
workload = "tasks"
rollouts = {rollouts}
[params]
agent = "caller"
model = "m"
[params.agents.caller]
wire = "chat"
command = {json.dumps(_ASK + "&& " + MEND)}
[params.providers.here]
base_url = "{url}/v1"
env_key = "{KEY_VARIABLE}"
models = {{ m = "m" }}
[[tasks]]
name = "sums"
path = "../tasks/sums"
"""


@contextmanager
def model_on(machine: Machine, log: Path) -> Iterator[str]:
    """A model on a machine of a site; yields its URL. Each call adds a line to `log`: from where, and whether the key is right."""
    output = log.with_suffix(".port")
    with output.open("w") as file:
        server = machine.start(sys.executable, "-c", _SERVER, log, KEY, stdout=file)
    try:
        port = eventually(lambda: output.read_text().strip(), "the model listens")
        yield f"http://{machine.address}:{port}"
    finally:
        machine.signal(str(log))
        server.wait()


def files_with_key(*places: Path) -> list[Path]:
    """Files that the key is in; the model's own log is not one of them."""
    found = []
    for place in places:
        for path in place.rglob("*"):
            try:
                if path.is_file() and KEY.encode() in path.read_bytes():
                    found.append(path)
            except OSError:
                continue  # gone meanwhile
    return found


def check_devices(runs: Path) -> None:
    """Runs of `devices` had devices 0 and 1 of both nodes, two at a time each, and no others."""
    spans: dict[tuple[str, str], list[tuple[int, int]]] = {}
    for run in runs.iterdir():
        host, device, alike, began = (run / "out" / "begin").read_text().split()
        assert device == alike
        spans.setdefault((host, device), []).append((int(began), int((run / "out" / "end").read_text())))
    assert set(spans) == {(host, device) for host in ("n1", "n2") for device in ("0", "1")}
    most = {where: max(sum(a <= at < b for a, b in inside) for at, _ in inside) for where, inside in spans.items()}
    assert max(most.values()) == 2, most
