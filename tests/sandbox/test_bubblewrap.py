"""Boxes of bubblewrap: files stay from command to command, processes do not, and limits hold."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bakeoff.errors import InfraError, UsageError
from bakeoff.sandbox import cache
from bakeoff.sandbox.base import Box, BoxSpec, Image, Limits, Mount
from bakeoff.sandbox.bubblewrap import Bubblewrap
from support.processes import eventually, process_exists


def output(box: Box, script: str, **settings: object) -> str:
    result = box.run(["/bin/sh", "-c", script], **settings)  # type: ignore[arg-type]
    assert result.ok, result
    return result.stdout.decode().strip()


def test_commands_see_each_others_files(sandbox: Bubblewrap) -> None:
    with sandbox.open(BoxSpec(workdir="/app")) as box:
        assert output(box, "echo one >file; pwd") == "/app"
        assert output(box, "cat file") == "one"
        assert output(box, "echo two >/tmp/other; cat /app/file /tmp/other") == "one\ntwo"


def test_two_boxes_share_nothing(sandbox: Bubblewrap) -> None:
    with sandbox.open(BoxSpec(name="same")) as first, sandbox.open(BoxSpec(name="same")) as second:
        output(first, "echo mine >/tmp/file")
        assert output(second, "ls -A /tmp") == ""


def test_many_boxes_at_once_keep_apart(sandbox: Bubblewrap) -> None:
    def own(number: int) -> str:
        with sandbox.open(BoxSpec(limits=Limits(memory_mb=64, pids=20, disk_mb=8))) as box:
            output(box, f"echo {number} >/tmp/number")
            return output(box, "cat /tmp/number")

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(own, range(12))) == [str(number) for number in range(12)]


def test_exit_codes_are_those_of_the_command(sandbox: Bubblewrap) -> None:
    with sandbox.open(BoxSpec()) as box:
        assert box.run(["/bin/sh", "-c", "exit 3"]).code == 3
        assert box.run(["/bin/sh", "-c", "kill -TERM $$"]).code == 143
        assert box.run(["no-such-program"]).code == 127
        assert box.run(["/etc/passwd"]).code == 126


def test_the_environment_is_what_was_asked_for(sandbox: Bubblewrap, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_SECRET", "the key")
    with sandbox.open(BoxSpec(env={"A": "1", "B": "2"})) as box:
        lines = set(output(box, "env", env={"B": "3", "LD_PRELOAD": ""}).splitlines())
    assert {"A=1", "B=3", "HOME=/root", "USER=root", "LANG=C.UTF-8"} <= lines
    assert not any(line.startswith(("A_SECRET", "BAKEOFF")) for line in lines)


def test_standard_streams_go_where_they_are_sent(sandbox: Bubblewrap, tmp_path: Path) -> None:
    script = "cat; echo out; echo err >&2"
    with sandbox.open(BoxSpec()) as box:
        result = box.run(
            ["/bin/sh", "-c", script], stdin=b"in\n", stdout=tmp_path / "deep/out", stderr=tmp_path / "err"
        )
        assert (result.stdout, result.stderr) == (b"", b"")
        assert (tmp_path / "deep/out").read_text() == "in\nout\n"
        assert (tmp_path / "err").read_text() == "err\n"
        (tmp_path / "input").write_text("from a file\n")
        box.run(["/bin/sh", "-c", script], stdin=tmp_path / "input", stdout=tmp_path / "both", stderr=tmp_path / "both")
        assert (tmp_path / "both").read_text() == "from a file\nout\nerr\n"


def test_a_result_has_only_the_end_of_a_long_output(sandbox: Bubblewrap) -> None:
    with sandbox.open(BoxSpec()) as box:
        result = box.run(["/bin/sh", "-c", "yes | head -c 3000000; echo end"])
    assert len(result.stdout) == 1 << 20
    assert result.stdout.endswith(b"y\nend\n")


def test_a_long_command_line_arrives(sandbox: Bubblewrap) -> None:
    with sandbox.open(BoxSpec()) as box:
        words = ["x" * 100_000] * 12
        assert box.run(["/bin/sh", "-c", 'echo "$*" | wc -c', "sh", *words]).stdout.split() == [b"1200012"]


def test_memory_and_time_are_measured(sandbox: Bubblewrap) -> None:
    with sandbox.open(BoxSpec(limits=Limits(memory_mb=256))) as box:
        result = box.run(["/usr/bin/python3", "-c", "x = b'x' * (60 << 20); [i for i in range(10**6)]"])
        after = box.run(["/bin/true"])
    assert result.peak_memory_mb is not None and 50 < result.peak_memory_mb < 256
    assert result.cpu_seconds is not None and result.cpu_seconds > 0.02
    assert after.peak_memory_mb is not None and after.peak_memory_mb < result.peak_memory_mb


def test_a_cpu_limit_slows_a_busy_command_down(sandbox: Bubblewrap) -> None:
    with sandbox.open(BoxSpec(limits=Limits(cpus=0.2))) as box:
        result = box.run(["/bin/sh", "-c", "while :; do :; done"], timeout=1.5)
    assert result.timed_out
    if os.geteuid() == 0:
        assert result.cpu_seconds is not None and result.cpu_seconds < 0.4 * result.seconds


def test_an_image_is_read_and_never_written(sandbox: Bubblewrap, tiny_root: Path) -> None:
    with sandbox.open(BoxSpec(image=Image.root(tiny_root))) as box:
        assert output(box, "cat /etc/motd") == "from the image"
        output(box, "echo changed >/etc/motd; rm /etc/group; echo new >/new")
        assert output(box, "cat /etc/motd /new") == "changed\nnew"
        assert box.run(["ls", "/usr/bin"]).code != 0
        assert "localhost" in output(box, "cat /etc/hosts")
    assert (tiny_root / "etc/motd").read_text() == "from the image\n"
    assert (tiny_root / "etc/group").exists()


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="an ordinary user's box knows one user at a time")
def test_users_are_those_of_the_image(sandbox: Bubblewrap, tiny_root: Path) -> None:
    with sandbox.open(BoxSpec(image=Image.root(tiny_root), user="agent", workdir="/home/agent/work")) as box:
        assert output(box, "id -u; id -g; echo $HOME $USER") == "1000\n1000\n/home/agent agent"
        box.write("/home/agent/work/given", b"x")
        assert output(box, "echo mine >own; stat -c %u own given") == "1000\n1000"
        assert box.run(["touch", "/etc/planted"]).code != 0
        assert output(box, "stat -c %u /home/agent/work/own", user="root") == "1000"
        assert output(box, "id -u", user="12345:1") == "12345"
        with pytest.raises(UsageError, match=r"no user 'nobody-here'.*root, agent"):
            box.run(["id"], user="nobody-here")


def test_mounts_are_read_only_unless_asked(sandbox: Bubblewrap, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in/file").write_text("given")
    (tmp_path / "out").mkdir()
    mounts = (
        Mount(tmp_path / "in", "/deep/in"),
        Mount(tmp_path / "out", "/deep/out", writable=True),
        Mount(tmp_path / "in/file", "/deep/file"),
    )
    with sandbox.open(BoxSpec(mounts=mounts)) as box:
        assert output(box, "cat /deep/in/file /deep/file; echo made >/deep/out/made") == "givengiven"
        assert box.run(["touch", "/deep/in/planted"]).code != 0
        with pytest.raises(UsageError, match="mounted at /deep/out"):
            box.write("/deep/out/x", b"")
    assert (tmp_path / "out/made").read_text() == "made\n"
    assert os.listdir(tmp_path / "in") == ["file"]


def test_a_mount_point_or_workdir_that_a_command_turned_into_something_else_is_made_again(
    sandbox: Bubblewrap, tmp_path: Path
) -> None:
    (tmp_path / "given").write_text("given")
    with sandbox.open(BoxSpec(workdir="/work/here", mounts=(Mount(tmp_path, "/a/b"),))) as box:
        output(box, "mv /a /c; mkdir /a; ln -s /oldroot/etc /a/b; rm -r /work; echo >/work")
        assert output(box, "cat /a/b/given; pwd") == "given/work/here"
        output(box, "mv /a /d; ln -s /etc /a; rm -r /work")
        assert output(box, "cat /a/b/given; pwd; ls /etc/b || true") == "given/work/here"


def test_a_mount_onto_a_link_of_the_image_is_refused(sandbox: Bubblewrap, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="/var/run/x in the sandbox: a link or a file is in the way"):
        sandbox.open(BoxSpec(mounts=(Mount(tmp_path, "/var/run/x"),)))


def test_a_box_still_works_after_the_process_that_starts_its_commands_was_killed(sandbox: Bubblewrap) -> None:
    with sandbox.open(BoxSpec()) as box:
        output(box, "echo kept >/tmp/file")
        (starter,) = Path(f"/proc/{box.supervisor_pid}/task/{box.supervisor_pid}/children").read_text().split()
        os.kill(int(starter), signal.SIGKILL)
        eventually(lambda: not process_exists(int(starter)), "it is dead")
        assert output(box, "cat /tmp/file") == "kept"


def test_a_layer_can_be_kept(sandbox: Bubblewrap) -> None:
    for limits in (Limits(), Limits(disk_mb=8)):
        with sandbox.open(BoxSpec(keep_layer=True, limits=limits, workdir="/app")) as box:
            output(box, "echo kept >/app/file")
        assert box.layer is not None
        assert (box.layer / "app/file").read_text() == "kept\n"
        cache.remove(box.layer)


def test_ending_processes_ends_a_command_that_another_thread_waits_for(sandbox: Bubblewrap, tmp_path: Path) -> None:
    log = tmp_path / "log"
    with sandbox.open(BoxSpec()) as box, ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(lambda: box.run(["/bin/sh", "-c", "echo here; exec sleep 60"], stdout=log))
        eventually(lambda: log.exists() and log.stat().st_size, "the command has begun")
        box.end_processes()
        assert waiting.result(timeout=30).code == 137
        assert box.run(["/bin/true"]).ok


def test_a_closed_box_refuses_to_be_used(sandbox: Bubblewrap) -> None:
    with sandbox.open(BoxSpec()) as box:
        pass
    box.close()
    for use in (lambda: box.run(["true"]), lambda: box.read("/x"), lambda: box.write("/x", b"")):
        with pytest.raises(UsageError, match="closed"):
            use()


def test_an_exception_inside_leaves_nothing(sandbox: Bubblewrap) -> None:
    with pytest.raises(ZeroDivisionError), sandbox.open(BoxSpec(limits=Limits(memory_mb=64, disk_mb=8))) as box:
        output(box, "echo x >/tmp/x")
        1 / 0  # noqa: B018


def test_wrong_calls_name_the_problem_and_the_fix(sandbox: Bubblewrap, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such directory; give an unpacked image"):
        sandbox.open(BoxSpec(image=Image.root(tmp_path / "nothing")))
    with pytest.raises(UsageError, match=r"(?s)ubuntu:24.04.*bakeoff sandbox image add ubuntu:24.04"):
        sandbox.open(BoxSpec(image=Image.named("ubuntu:24.04")))
    with pytest.raises(UsageError, match="no such file or directory"):
        sandbox.open(BoxSpec(mounts=(Mount(tmp_path / "nothing", "/x"),)))
    with sandbox.open(BoxSpec()) as box:
        with pytest.raises(UsageError, match="/nowhere: no such directory in the sandbox"):
            box.run(["true"], cwd="/nowhere")
        with pytest.raises(UsageError, match="no command"):
            box.run([])
        with pytest.raises(UsageError, match="environment variable"):
            box.run(["true"], env={"A=B": "1"})


def test_a_killed_supervisor_is_an_infrastructure_error(sandbox: Bubblewrap) -> None:
    box = sandbox.open(BoxSpec())
    os.kill(box.supervisor_pid, 9)
    with pytest.raises(InfraError, match="the sandbox is gone"):
        box.run(["true"])
    box.close()
    with sandbox.open(BoxSpec()) as again:
        assert again.run(["true"]).ok


WORKER = """
from bakeoff.engine import processes
from bakeoff.engine.node.worker import World
from bakeoff.sandbox.base import BoxSpec, choose

world = World()
for _ in range(2):
    with choose("bubblewrap").open(BoxSpec()) as box:
        assert box.run(["/bin/true"]).ok
        assert not processes.SPARED, "an open box would be a leftover"
    assert world.restore()
    assert processes.SPARED == set(processes.children())
forgotten = choose("bubblewrap").open(BoxSpec())
assert not world.restore(), "a box that was not closed is ended with its launcher"
"""


@pytest.mark.apt
def test_a_run_that_closes_its_boxes_leaves_its_worker_clean() -> None:
    subprocess.run([sys.executable, "-c", WORKER], check=True)
    assert cache.remove_abandoned().boxes == 1


def test_a_forked_process_opens_boxes_of_its_own(sandbox: Bubblewrap) -> None:
    with sandbox.open(BoxSpec()) as box:
        child = os.fork()
        if child == 0:
            with sandbox.open(BoxSpec()) as own:
                code = own.run(["/bin/sh", "-c", "exit 7"]).code
            os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        assert box.run(["/bin/true"]).ok


def test_a_command_cannot_take_back_what_it_printed(sandbox: Bubblewrap, tmp_path: Path) -> None:
    log = tmp_path / "log"
    script = """
        echo what it did
        python3 -c 'import time; time.sleep(0.1)'
        : >/proc/self/fd/1
        : >/dev/stdout
        python3 -c 'import os; os.ftruncate(1, 0)'
        echo afterwards
    """
    with sandbox.open(BoxSpec()) as box:
        box.run(["/bin/sh", "-c", script], stdout=log)
    assert log.read_text() == "what it did\nafterwards\n"


def test_a_command_does_not_learn_paths_of_this_machine(sandbox: Bubblewrap, tmp_path: Path) -> None:
    place = tmp_path / "private place"
    (place / "tools").mkdir(parents=True)
    (place / "tools" / "tool").write_text("a tool")
    script = """
        cat /opt/tools/tool
        for process in /proc/[0-9]*; do
            ls -l $process/fd $process/cwd $process/exe $process/root
            cat $process/mountinfo $process/mounts $process/environ $process/cmdline $process/maps $process/cgroup
        done
    """
    mounts = (Mount(place / "tools", "/opt/tools"),)
    for stdin in (None, b"input", place / "tools" / "tool"):
        with sandbox.open(BoxSpec(mounts=mounts, limits=Limits(disk_mb=32))) as box:
            log = place / "log"
            box.run(["/bin/sh", "-c", script], stdout=log, stderr=log, stdin=stdin)
        shown = log.read_text()
        assert "a tool" in shown
        assert "/opt/tools" in shown
        for path in (tmp_path.name, "private place", str(cache.directory("boxes").parent)):
            assert path not in shown


def test_a_directory_with_other_mounts_in_it_is_shown_whole(sandbox: Bubblewrap) -> None:
    with sandbox.open(BoxSpec(mounts=(Mount(Path("/dev"), "/opt/devices"),))) as box:
        assert output(box, "ls /opt/devices/pts | grep ptmx") == "ptmx"


def test_what_people_installed_by_hand_is_seen_only_where_it_is_allowed(sandbox: Bubblewrap) -> None:
    wanted = Path("/usr/local/bin")
    with sandbox.open(BoxSpec()) as box:
        assert output(box, "ls -A /usr/local /usr/src") == "/usr/local:\n\n/usr/src:"
        assert box.run(["touch", "/usr/local/mine"]).code == 1
    with sandbox.open(BoxSpec(host_paths=("/usr/local",))) as box:
        assert set(output(box, f"ls -A {wanted}").split()) == {path.name for path in wanted.iterdir()}
        assert output(box, "ls -A /usr/src") == ""
    with pytest.raises(UsageError, match="only /usr/local and /usr/src can be allowed"):
        BoxSpec(host_paths=("/home",))
    with sandbox.open(BoxSpec(mounts=(Mount(wanted, str(wanted)),))) as box:
        assert set(output(box, f"ls -A {wanted}").split()) == {path.name for path in wanted.iterdir()}
        assert output(box, "ls -A /usr/local") == "bin"


def test_output_beyond_the_limit_is_dropped_and_the_log_says_so(sandbox: Bubblewrap, tmp_path: Path) -> None:
    with sandbox.open(BoxSpec(limits=Limits(output_mb=1))) as box:
        log = tmp_path / "log"
        result = box.run(["/bin/sh", "-c", "head -c 3000000 /dev/zero; echo end >&2"], stdout=log)
        assert (result.ok, result.output_dropped, result.stderr) == (True, 3_000_000 - (1 << 20), b"end\n")
        assert log.read_bytes()[1 << 20 :] == b"\n[1951424 more bytes of output were dropped]\n"
        short = box.run(["/bin/sh", "-c", "echo short; echo error >&2"], stdout=log, stderr=log)
        assert (short.output_dropped, log.read_text()) == (0, "short\nerror\n")


def test_output_of_both_streams_is_kept_in_order(sandbox: Bubblewrap, tmp_path: Path) -> None:
    log = tmp_path / "log"
    with sandbox.open(BoxSpec()) as box:
        box.run(["/bin/sh", "-c", "for i in $(seq 500); do echo out $i; echo err $i >&2; done"], stdout=log, stderr=log)
    assert log.read_text().split("\n")[:-1] == [f"{name} {i}" for i in range(1, 501) for name in ("out", "err")]


def test_a_box_leaves_other_boxes_of_its_user_something_to_watch_files_with(sandbox: Bubblewrap) -> None:
    count = "import ctypes\nmade = 0\nwhile ctypes.CDLL(None).inotify_init1(0) >= 0: made += 1\nprint(made)"
    most = int(Path("/proc/sys/fs/inotify/max_user_instances").read_text())
    with sandbox.open(BoxSpec()) as box:
        result = box.run(["/usr/bin/python3", "-c", count], timeout=30)
    assert 0 < int(result.stdout) <= most // 4
