"""`podvisor run -- COMMAND` on a terminal: the command is our job in the foreground."""

from __future__ import annotations

import os
import pty
import signal
import sys
import termios
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress

import pytest
import trio

from supervisor.process import procfs
from supervisor.process.subreaper import become_subreaper
from tests.support.real_processes import TIMEOUT_SEC, gone
from tests.support.running_supervisor import PODVISOR, environment

RUN = (*PODVISOR, "run", "--")
needs_namespaces = pytest.mark.skipif(os.geteuid() != 0, reason="a pid namespace of its own needs root")
PID_NAMESPACE = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
TELLS = """
import os, signal, sys, time
def tell(number, frame): os.write(1, f"got {number}\\n".encode())
for number in map(int, sys.argv[1:]): signal.signal(number, tell)
while os.tcgetpgrp(0) != os.getpgrp(): time.sleep(0.001)
os.write(1, b"foreground\\n")
while True:
    line = sys.stdin.readline()
    if not line: break
    os.write(1, f"read {line}".encode())
"""
SHELL = """
import os, signal, sys
signal.signal(signal.SIGTTOU, signal.SIG_IGN)
def foreground(group): os.tcsetpgrp(0, group)
pid = os.fork()
if pid == 0:
    os.setpgid(0, 0)
    foreground(os.getpid())
    signal.signal(signal.SIGTTOU, signal.SIG_DFL)
    os.execv(sys.argv[1], sys.argv[1:])
try: os.setpgid(pid, pid)
except PermissionError: pass
while True:
    _, status = os.waitpid(pid, os.WUNTRACED)
    foreground(os.getpgrp())
    if not os.WIFSTOPPED(status): break
    os.write(1, b"job stopped\\n")
    word = sys.stdin.readline().strip()
    if word == "fg": foreground(pid)
    os.kill(pid, signal.SIGCONT)
    os.write(1, f"job continued by {word}\\n".encode())
os.write(1, f"job ended {os.waitstatus_to_exitcode(status)}\\n".encode())
"""
"""As much of a shell's job control as one job needs."""
INTERRUPT, SUSPEND, END_OF_FILE = b"\x03", b"\x1a", b"\x04"


class Screen:
    """A terminal's other end."""

    def __init__(self, descriptor: int, pid: int) -> None:
        self.pid = pid
        self._descriptor = descriptor
        self._shown = ""

    async def type(self, keys: bytes) -> None:
        await trio.lowlevel.wait_writable(self._descriptor)
        os.write(self._descriptor, keys)

    def resize(self, rows: int, columns: int) -> None:
        termios.tcsetwinsize(self._descriptor, (rows, columns))

    async def shows(self, text: str) -> str:
        """What is shown after this text, once it is."""
        with trio.move_on_after(TIMEOUT_SEC):
            while text not in self._shown:
                await trio.lowlevel.wait_readable(self._descriptor)
                try:
                    self._shown += os.read(self._descriptor, 4096).decode()
                except OSError:
                    break  # everybody at the other end has closed it
        assert text in self._shown, f"expected {text!r} in:\n{self._shown}"
        self._shown = self._shown.split(text, 1)[1]
        return self._shown


@asynccontextmanager
async def on_a_terminal(*command: str) -> AsyncIterator[Screen]:
    """The command as the leader of a session whose terminal we hold; at the end everything of it is killed."""
    become_subreaper()
    pid, descriptor = pty.fork()
    if pid == 0:
        os.execvpe(command[0], command, environment())
    attributes = termios.tcgetattr(descriptor)
    attributes[1] &= ~termios.OPOST
    attributes[3] &= ~termios.ECHO
    termios.tcsetattr(descriptor, termios.TCSANOW, attributes)
    os.set_blocking(descriptor, False)
    try:
        yield Screen(descriptor, pid)
    finally:
        os.close(descriptor)
        _kill_all_below_us()


def _kill_all_below_us() -> None:
    while pids := procfs.children_of_ours():
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for pid in pids:
            with suppress(ChildProcessError):
                os.waitpid(pid, 0)


def children_of(pid: int) -> list[int]:
    return [stat.pid for stat in procfs.scan().values() if stat.parent == pid]


def python(program: str, *arguments: str | int) -> Sequence[str]:
    return (sys.executable, "-I", "-S", "-c", program, *map(str, arguments))


async def exit_code(pid: int) -> int:
    with trio.fail_after(TIMEOUT_SEC):
        await gone(pid)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


async def test_the_command_stands_in_the_foreground_and_reads_the_keyboard() -> None:
    async with on_a_terminal(*RUN, *python(TELLS)) as screen:
        await screen.shows("foreground")
        await screen.type(b"typed\n")
        await screen.shows("read typed")
        await screen.type(END_OF_FILE)
        assert await exit_code(screen.pid) == 0


async def test_keys_and_the_windows_size_reach_the_command_once() -> None:
    """From the kernel; ours would be a second one."""
    async with on_a_terminal(*RUN, *python(TELLS, signal.SIGINT, signal.SIGWINCH)) as screen:
        await screen.shows("foreground")
        await screen.type(INTERRUPT)
        await screen.shows("got 2")
        screen.resize(50, 132)
        rest = await screen.shows("got 28")
        await screen.type(b"after\n")
        assert "got" not in rest + (await screen.shows("read after"))


async def test_a_shell_under_us_has_job_control() -> None:
    async with on_a_terminal(*RUN, "/bin/bash", "--norc", "-m") as screen:
        await screen.type(b"sh -c 'echo started; exec sleep 600'\n")
        await screen.shows("started")
        await screen.type(SUSPEND)
        await screen.shows("Stopped")
        await screen.type(b"kill %1; wait %1; exit 5\nexit 5\n")  # bash refuses once while it thinks a job is stopped
        assert await exit_code(screen.pid) == 5


@pytest.mark.parametrize("above", [(), pytest.param(PID_NAMESPACE, marks=needs_namespaces)], ids=["leader", "PID 1"])
async def test_with_no_shell_above_us_nobody_is_left_suspended(above: Sequence[str]) -> None:
    """As the session's leader, as in `docker run -it`, or as PID 1, nobody could wake the command up again."""
    async with on_a_terminal(*above, *RUN, *python(TELLS)) as screen:
        await screen.shows("foreground")
        await screen.type(SUSPEND)
        await screen.type(b"still here\n")
        await screen.shows("read still here")


async def test_under_a_shell_the_whole_job_is_suspended_and_resumed() -> None:
    async with on_a_terminal(*python(SHELL, *RUN, *python(TELLS))) as screen:
        await screen.shows("foreground")
        for _ in range(2):
            await screen.type(SUSPEND)
            await screen.shows("job stopped")
            await screen.type(b"fg\n")
            await screen.shows("job continued by fg")
            await screen.type(b"again\n")
            await screen.shows("read again")
        await screen.type(END_OF_FILE)
        await screen.shows("job ended 0")


async def test_in_the_background_the_command_runs_on_and_stops_when_it_reads() -> None:
    async with on_a_terminal(*python(SHELL, *RUN, *python(TELLS, signal.SIGUSR1))) as screen:
        await screen.shows("foreground")
        (init,) = children_of(screen.pid)
        (pid,) = children_of(init)
        await screen.type(SUSPEND)
        await screen.shows("job stopped")
        await screen.type(b"bg\n")
        await screen.shows("job continued by bg")
        await screen.shows("job stopped")  # it reads
        await screen.type(b"fg\n")
        await screen.shows("job continued by fg")
        os.kill(pid, signal.SIGUSR1)
        await screen.shows("got 10")
        await screen.type(INTERRUPT)
        await screen.shows("job ended 130")
