"""A PID namespace for the commands of a node: when its first process dies, the kernel kills all others in it.

Without one, a supervisor that is killed together with its scheduler leaves commands running until the next start ends
them. With one nothing outlives the scheduler, however it shed its session, its environment and its parents, and no
command can signal the scheduler or see other processes of the machine (pid_namespaces(7)).

    scheduler --> keeper --> init, the first process of the namespace
              \\-> commands, whose parent is the scheduler, born into the namespace

The kernel kills the keeper when the scheduler dies, init when the keeper dies (PR_SET_PDEATHSIG), and the commands when
init dies. The namespace has its own /proc, so that process numbers in it are those that programs know. It takes
CAP_SYS_ADMIN to make one, so usually root; elsewhere `open_enclosure` returns None.

This file is also the keeper's program. It imports nothing of ours, so that it starts in a few milliseconds.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping

# Numbers from <sched.h>, <linux/prctl.h> and <sys/mount.h>.
_CLONE_FS, _CLONE_NEWNS, _CLONE_NEWPID = 0x200, 0x20000, 0x20000000
_PR_SET_PDEATHSIG = 1
_MS_NOSUID, _MS_NODEV, _MS_NOEXEC, _MS_REC, _MS_SLAVE = 2, 4, 8, 0x4000, 0x80000
_PATIENCE = 10.0
_libc = ctypes.CDLL(None, use_errno=True)


def _call(name: str, *arguments: object) -> None:
    """Call a function of the C library. Raises OSError when it fails."""
    if getattr(_libc, name)(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")


class Enclosure:
    """A namespace that is ready. `init` is the number of its first process, as the scheduler counts.

    What is spawned is spawned by one thread that stays in the namespace. Entering a mount namespace takes a working
    directory that no other thread shares (setns(2)), and the threads of the scheduler, or of a program that uses us as
    a library, must go on sharing theirs.
    """

    def __init__(self, keeper: subprocess.Popen[bytes], init: int) -> None:
        """Raises OSError where the namespace cannot be entered, or has another root: in a chroot, `setns` leaves it."""
        from queue import SimpleQueue  # not for the keeper, which has to start quickly
        from threading import Thread

        self._keeper = keeper
        self.init = init
        self._calls: SimpleQueue[tuple[Callable[[], object], SimpleQueue[object]] | None] = SimpleQueue()
        """What the thread is to call, and where the result goes; two queues cost half as many locks as a future."""
        self._thread = Thread(target=self._serve, name="enclosure", daemon=True)
        self._thread.start()
        root = os.stat("/")

        def enter() -> None:
            _call("unshare", _CLONE_FS)
            door = os.pidfd_open(init)
            try:
                _call("setns", door, _CLONE_NEWNS | _CLONE_NEWPID)
            finally:
                os.close(door)
            if not os.path.samestat(root, os.stat("/")):
                raise OSError("the namespace has another root")

        try:
            self._inside(enter)
        except OSError:
            self._leave()
            raise

    def _serve(self) -> None:
        while (order := self._calls.get()) is not None:
            call, reply = order
            try:
                reply.put(call())
            except BaseException as error:
                reply.put(error)

    def _inside(self, call: Callable[[], object]) -> object:
        """Call this in the thread. The reply is this call's own, so one that is interrupted leaves nothing for the next."""
        from queue import SimpleQueue

        reply: SimpleQueue[object] = SimpleQueue()
        self._calls.put((call, reply))
        result = reply.get()
        if isinstance(result, BaseException):
            raise result
        return result

    def _leave(self) -> None:
        self._calls.put(None)
        self._thread.join()

    def spawn(self, spawn: Callable[[], int]) -> int:
        """Call `spawn` where what it starts is born in the namespace; it may change its working directory."""
        pid = self._inside(spawn)
        assert isinstance(pid, int)
        return pid

    def alive(self) -> bool:
        """False once it was ended, by `close` or because its keeper or init was killed. No command in it can do that."""
        return self._keeper.poll() is None

    def close(self) -> None:
        """End everything in it."""
        self._leave()
        _end(self._keeper)


def start_keeper(env: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start the keeper, for `open_enclosure` to wait for. `env` has the node's mark."""
    return subprocess.Popen(
        [sys.executable, "-I", "-S", __file__, str(os.getpid())],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C at the terminal is not for it
        env=env,
    )


def open_enclosure(keeper: subprocess.Popen[bytes]) -> Enclosure | None:
    """The keeper's namespace; None where none can be had."""
    assert keeper.stdout is not None
    try:
        readable, _, _ = select.select([keeper.stdout], [], [], _PATIENCE)
        return Enclosure(keeper, int(keeper.stdout.readline() if readable else b""))
    except (OSError, ValueError):
        _end(keeper)
        return None


def _end(keeper: subprocess.Popen[bytes]) -> None:
    keeper.kill()
    keeper.wait()
    for stream in (keeper.stdin, keeper.stdout):
        if stream is not None:
            stream.close()


def main() -> None:
    """The keeper: makes the namespace, prints the number of init, and waits until the scheduler or init has gone."""
    _call("prctl", _PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != int(sys.argv[1]):
        sys.exit(1)  # the scheduler died before the call (prctl(2))
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    _call("unshare", _CLONE_NEWPID | _CLONE_NEWNS)
    # Mounts of the machine still appear inside, and none of inside outside.
    _call("mount", b"none", b"/", None, _MS_REC | _MS_SLAVE, None)
    ready, report = os.pipe()
    init = os.fork()
    if init == 0:
        os.close(ready)
        _be_init(report)
    os.close(report)
    if os.read(ready, 1):
        os.write(1, b"%d\n" % init)
        watched = os.pidfd_open(init)
        while not select.select([0, watched], [], [])[0]:
            pass


def _be_init(report: int) -> None:
    """The first process of the namespace: it lives as long as the keeper, and collects orphans that have ended."""
    _call("prctl", _PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    _call("mount", b"proc", b"/proc", b"proc", _MS_NOSUID | _MS_NODEV | _MS_NOEXEC, None)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
    os.write(report, b"1")  # fails when the keeper is gone already: nobody would kill us then
    while True:
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            pass
        signal.sigwait([signal.SIGCHLD])


if __name__ == "__main__":
    main()
