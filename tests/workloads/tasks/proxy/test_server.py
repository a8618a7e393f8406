"""Runs of a proxy: tokens, models, listening, closing, and what happens when a call cannot be recorded."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from bakeoff.errors import BakeoffError, StorageError, UsageError, install
from bakeoff.workloads.tasks.proxy import providers
from bakeoff.workloads.tasks.proxy.providers import Provider, Providers
from bakeoff.workloads.tasks.proxy.server import GatewayLimits, ModelProxy
from workloads.tasks.proxied import (
    MODEL,
    PATHS,
    WIRES,
    headers,
    lab,
    request,
)
from workloads.tasks.scripted import ScriptedModel, Use, say


@pytest.mark.parametrize("wire", WIRES)
def test_a_token_is_good_for_its_run_only_while_it_runs(wire: str, tmp_path: Path) -> None:
    with lab(tmp_path, [say("hi")]) as here:
        strange = here.client.post(PATHS[wire], json=request(wire, "hi"), headers={"authorization": "Bearer sk-other"})
        known = here.client.post(PATHS[wire], json=request(wire, "hi"), headers={"x-api-key": here.run.token})
        here.run.close()
        late = here.ask(wire)
        requests = len(here.model.requests)
    assert (strange.status_code, known.status_code, late.status_code) == (401, 200, 401)
    assert "error" in strange.json()
    assert requests == 1


def test_it_listens_on_a_unix_socket(tmp_path: Path) -> None:
    place = tmp_path / "proxy.sock"
    with ScriptedModel([say("over the socket")], side=None) as model, ModelProxy(socket=place) as proxy:
        providers = Providers.read({"test": Provider(base_url=f"{model.url}/v1")}, {})
        run = proxy.open(providers, MODEL, record=tmp_path / "calls.jsonl")
        with httpx.Client(transport=httpx.HTTPTransport(uds=str(place)), headers=headers(run)) as client:
            answer = client.post("http://proxy/v1/chat/completions", json=request("chat", "hi"))
        totals = run.close()
    assert answer.json()["choices"][0]["message"]["content"] == "over the socket"
    assert totals.cost is None  # nobody said what it costs
    assert not place.exists()


def test_a_proxy_that_cannot_listen_says_so(tmp_path: Path) -> None:
    with pytest.raises(BakeoffError, match="did not start"), ModelProxy(socket=tmp_path / "absent" / "s"):
        pass
    with pytest.raises(UsageError, match="107 bytes"):
        ModelProxy(socket=tmp_path / ("x" * 120))
    with pytest.raises(UsageError, match="listen on"):
        ModelProxy()


@pytest.mark.slow
def test_one_proxy_serves_many_runs_at_once_and_keeps_them_apart(tmp_path: Path) -> None:
    runs, calls_each = 12, 5
    with lab(tmp_path, [say("ok", use=Use(input=10, output=1), pause_s=0.002)]) as here:
        opened = [here.proxy.open(here.providers, MODEL, record=tmp_path / f"{n}.jsonl") for n in range(runs)]
        together = threading.Barrier(runs)

        def work(number: int) -> None:
            together.wait()
            with httpx.Client(base_url=here.proxy.url, headers=headers(opened[number]), timeout=20) as client:
                for _ in range(number % 2 + calls_each):
                    body = request("chat", f"run {number}", stream=True)
                    assert client.post(PATHS["chat"], json=body).status_code == 200

        with ThreadPoolExecutor(runs) as pool:
            list(pool.map(work, range(runs)))
        totals = [run.close() for run in opened]
        texts = [run.record.read_text() for run in opened]
    assert [(total.calls, total.tokens) for total in totals] == [
        (calls_each + n % 2, 11 * (calls_each + n % 2)) for n in range(runs)
    ]
    assert all(f'"run {n}"' in text and f'"run {(n + 1) % runs}"' not in text for n, text in enumerate(texts))


def test_another_model_means_the_runs_own_unless_it_is_allowed(tmp_path: Path) -> None:
    with lab(
        tmp_path, [say("hi")], provider={"models": {"small": "small-v2"}}, others={"helper": "test/small"}
    ) as here:
        for model in (MODEL, "something-bigger", "helper"):
            here.ask(text=model, model=model)
        sent = [asked.body["model"] for asked in here.model.requests]
        recorded = [(call.model, call.asked_model) for call in here.calls()]
        listed = [entry["id"] for entry in here.client.get("/v1/models").json()["data"]]
    assert sent == [MODEL, MODEL, "small-v2"]
    assert recorded == [(MODEL, None), (MODEL, "something-bigger"), ("small-v2", "helper")]
    assert listed == [f"test/{MODEL}", "helper"]


@pytest.mark.slow
def test_closing_a_run_ends_its_calls(tmp_path: Path) -> None:
    with lab(tmp_path, [say("word " * 1000, pause_s=0.02)], limits=GatewayLimits(drain_s=0.1)) as here:
        with here.client.stream("POST", PATHS["chat"], json=request("chat", "hi", stream=True)) as answer:
            pieces = answer.iter_raw()
            next(pieces)
            here.run.close()
            with pytest.raises(httpx.RemoteProtocolError):
                list(pieces)
        [call] = here.calls()
    assert (call.end, call.error) == ("client", "the run was over")


@pytest.mark.parametrize(
    ("path", "key", "told"),
    [
        ("/v1/chat/completions", "another", "did not send the key of its run"),
        ("/v1/embeddings", None, "speaks another API: POST to one of /v1/chat/completions"),
    ],
)
def test_a_client_that_never_gets_through_makes_the_run_broken(
    path: str, key: str | None, told: str, tmp_path: Path
) -> None:
    """Its key or its API is wrong, which says nothing about a model."""
    with lab(tmp_path, [say("hi")]) as here:
        here.client.post(path, json=request("chat", "hi"), headers={"authorization": f"Bearer {key}"} if key else {})
        before = here.run.totals().broken
        here.ask()
        after = here.run.totals().broken
    assert before is not None and told in before
    assert after is None


@pytest.mark.parametrize("stream", [False, True])
def test_a_run_whose_calls_cannot_be_recorded_does_not_count(stream: bool, tmp_path: Path) -> None:
    with lab(tmp_path, [say("hi")]) as here:
        run = here.proxy.open(here.providers, MODEL, record=Path("/dev/full"))
        with httpx.Client(base_url=here.proxy.url, headers=headers(run)) as client:
            if stream:
                with pytest.raises(httpx.RemoteProtocolError):
                    client.post(PATHS["chat"], json=request("chat", "hi", stream=True))
            else:
                assert client.post(PATHS["chat"], json=request("chat", "hi")).status_code == 500
        with pytest.raises(StorageError, match="No space left"):
            run.close()


def test_a_last_record_that_cannot_be_written_is_reported_and_its_file_closed(tmp_path: Path) -> None:
    with lab(tmp_path, [say("hi")]) as here:
        run = here.proxy.open(here.providers, MODEL, record=Path("/dev/full"))
        run.met("answer")
        with pytest.raises(StorageError, match=r"could not be recorded: .*No space left"):
            run.close()
        opened = {os.path.realpath(f"/proc/self/fd/{number}") for number in os.listdir("/proc/self/fd")}
        assert "/dev/full" not in opened


@pytest.mark.slow
def test_the_libraries_of_the_proxy_are_imported_when_one_starts_and_not_before() -> None:
    code = (
        "import sys; import bakeoff.workloads.tasks.workload; from bakeoff.workloads.tasks.proxy import server\n"
        "heavy = ('httpx', 'httpx_sse', 'h11', 'starlette', 'uvicorn')\n"
        "before = [name for name in heavy if name in sys.modules]\n"
        "with server.ModelProxy(loopback=True): print(before, [name for name in heavy if name not in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[] []\n"


def test_a_missing_extra_is_named_before_an_agent_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(providers, "LIBRARIES", ("httpx", "no_such_library"))
    with pytest.raises(UsageError, match=r"no_such_library\n  fix: " + re.escape(install("tasks"))):
        Providers.read({}, {}).route("gpt-x").check("chat", "agent builtin")
    with pytest.raises(UsageError, match="no_such_library"), ModelProxy(loopback=True):
        pass


def test_a_proxy_whose_thread_failed_says_so(tmp_path: Path) -> None:
    socket = tmp_path / "model.sock"
    with (
        pytest.raises(BakeoffError, match=r"the model proxy failed: (IsADirectory|Permission)Error"),
        ModelProxy(socket=socket),
    ):
        socket.unlink()
        socket.mkdir()  # which is in the way of the proxy's own cleaning up
