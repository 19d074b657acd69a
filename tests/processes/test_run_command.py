"""`podvisor run -- COMMAND`, in the place of tini or dumb-init."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import trio

from supervisor.process import procfs
from tests.support.real_processes import TIMEOUT_SEC
from tests.support.running_supervisor import (
    PODVISOR,
    Running,
    blocks,
    environment,
    left_behind,
    podvisor,
    program,
    shell,
)

RUN = (*PODVISOR, "run", "--")
PYTHON = (sys.executable, "-I", "-S", "-c")
FAULTS = [signal.SIGILL, signal.SIGTRAP, signal.SIGBUS, signal.SIGFPE, signal.SIGSEGV, signal.SIGSYS]
FORWARDED = [
    *(signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGABRT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGPIPE),
    *(signal.SIGALRM, signal.SIGTERM, signal.SIGCONT, signal.SIGURG, signal.SIGXCPU, signal.SIGXFSZ, signal.SIGPROF),
    *(signal.SIGVTALRM, signal.SIGWINCH, signal.SIGIO, signal.SIGPWR, signal.SIGRTMIN, signal.SIGRTMIN + 3),
    *FAULTS,
]
LISTENER = """
import os, signal, sys
def tell(number, frame): os.write(1, f"{who} got {number}\\n".encode())
for number in map(int, sys.argv[1:]): signal.signal(number, tell)
who = "child" if os.fork() == 0 else "main"
os.write(1, f"{who} ready\\n".encode())
while True: signal.pause()
"""
ORPHANS = 50
ORPHAN_MAKER = f"""
import os, sys, time
def others(): return sum(pid.isdecimal() for pid in os.listdir("/proc")) - len({{1, os.getpid()}})
alive, held = os.pipe()
for _ in range({ORPHANS}):
    if os.fork() == 0:
        if os.fork() == 0: os.read(0, 1)
        os._exit(0)
    os.wait()
os.close(held)
print("made", flush=True)
os.read(alive, 1)
expected = int(sys.argv[1])
while others() != expected: time.sleep(0.01)
print("left:", others(), flush=True)
"""
"""The orphans end when our standard input does; it ends when so many are left in its pid namespace."""

needs_namespaces = pytest.mark.skipif(os.geteuid() != 0, reason="a pid namespace of its own needs root")
needs_another_user = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("setpriv") is None, reason="to become another user needs root, and setpriv(1)"
)
WITHOUT_CAP_KILL = ("setpriv", "--bounding-set=-kill", "--inh-caps=-kill")
PID_NAMESPACE = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")


@pytest.mark.parametrize("code", [0, 1, 3, 126, 127, 128, 255])
async def test_the_exit_code_is_the_commands(code: int) -> None:
    done = await podvisor("run", "--", *shell(f"exit {code}"))
    assert (done.returncode, done.stdout, done.stderr) == (code, "", "")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV, signal.SIGRTMIN + 3])
async def test_death_by_a_signal_is_128_and_its_number(number: int) -> None:
    done = await podvisor("run", "--", *shell(f"kill -{number} $$"))
    assert done.returncode == 128 + number


async def test_a_command_that_cannot_be_executed(tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.touch(mode=0o644)
    missing = await podvisor("run", "--", "/no/such/program")
    assert (missing.returncode, missing.stderr) == (
        127,
        "podvisor: cannot execute '/no/such/program': no such file\n",
    )
    refused = await podvisor("run", "--", str(plain))
    assert refused.returncode == 126
    assert "permission denied (its mode is 0644)" in refused.stderr


async def test_signals_reach_the_command_and_its_group() -> None:
    async with program(*RUN, *PYTHON, LISTENER, *map(str, map(int, FORWARDED))) as running:
        for who in ("main", "child"):
            await running.stdout.saw(f"{who} ready")
        for number in FORWARDED:
            os.kill(running.pid, number)
            for who in ("main", "child"):
                await running.stdout.saw(f"{who} got {int(number)}$")


@pytest.mark.parametrize("number", [signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU])
async def test_what_suspends_a_job_suspends_the_command_and_us(number: signal.Signals) -> None:
    """So that a shell's job control sees one job. In its session of its own the command would not stop by SIGTSTP."""
    async with program(*RUN, *PYTHON, LISTENER, str(int(signal.SIGCONT))) as running:
        for who in ("main", "child"):
            await running.stdout.saw(f"{who} ready")
        everybody = [running.pid, *all_below(running.pid)]
        assert len(everybody) == 3
        running.signal(number)
        await in_state("T", *everybody)
        running.signal(signal.SIGCONT)
        for who in ("main", "child"):
            await running.stdout.saw(f"{who} got {int(signal.SIGCONT)}$")
        await in_state("S", *everybody)


async def test_signals_are_rewritten_or_dropped() -> None:
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGWINCH, signal.SIGUSR1)
    rewrites = ("--rewrite", "TERM:SIGINT", "--rewrite", "28:0")
    command = (*PODVISOR, "run", *rewrites, "--", *PYTHON, LISTENER, *map(str, map(int, numbers)))
    async with program(*command) as running:
        for who in ("main", "child"):
            await running.stdout.saw(f"{who} ready")
        for number, becomes in ((signal.SIGTERM, 2), (signal.SIGWINCH, None), (signal.SIGUSR1, 10)):
            running.signal(number)
            if becomes is not None:
                await running.stdout.saw(f"main got {becomes}$")
        assert not running.stdout.matching("main got (15|28)$")


@needs_another_user
@pytest.mark.parametrize("namespace", [(), PID_NAMESPACE], ids=["subreaper", "PID 1"])
async def test_a_signal_that_is_refused_is_told_once_and_ends_nothing(namespace: Sequence[str]) -> None:
    """The command has become another user (su-exec, a setuid helper), and CAP_KILL is missing."""
    ends = "signal.signal(2, lambda *_: sys.exit(3))"
    becomes = f"import os, signal, sys; {ends}; os.setresuid(1, 1, 1); print('became', flush=True); signal.pause()"
    async with program(*namespace, *WITHOUT_CAP_KILL, *RUN, *PYTHON, becomes) as running:
        await running.stdout.saw("became")
        init = await child_of(running) if namespace else running.pid
        for number in (signal.SIGTERM, signal.SIGCONT, signal.SIGILL):
            os.kill(init, number)
            await running.stderr.saw("podvisor: may not pass signals on to the command: .* CAP_KILL")
        (command,) = all_below(init)
        os.kill(command, signal.SIGINT)
        assert await running.ended() == 3
        assert len(str(running.stderr).splitlines()) == 1


@pytest.mark.parametrize("written", ["TERM", "TERM:", ":TERM", "SIGNONE:TERM", "0:15", "15::12", "1:65"])
async def test_a_rewrite_that_cannot_be_read(written: str) -> None:
    done = await podvisor("run", "--rewrite", written, "--", "true")
    assert done.returncode == 2
    assert f"--rewrite: found '{written}', expected two signals such as SIGTERM:SIGINT" in done.stderr


@pytest.mark.parametrize("option", ["--rewrite=TERM:INT", "--success-exit-status=143"])
async def test_options_of_a_command_are_refused_without_one(tmp_path: Path, option: str) -> None:
    done = await podvisor("run", "--units", str(tmp_path), option)
    assert done.returncode == 2
    assert "units have KillSignal and SuccessExitStatus" in done.stderr


async def test_exit_statuses_that_count_as_success() -> None:
    options = ("--success-exit-status", "143", "--success-exit-status", "3")
    assert (await podvisor("run", *options, "--", *shell("exit 3"))).returncode == 0
    assert (await podvisor("run", *options, "--", *shell("kill $$"))).returncode == 0
    assert (await podvisor("run", *options, "--", *shell("exit 4"))).returncode == 4


async def test_the_command_inherits_what_was_blocked_and_ignored() -> None:
    """Under nohup, say, or in the background of a script."""
    surroundings = """
import os, signal, sys
for number in (signal.SIGHUP, signal.SIGTTOU, signal.SIGSEGV, signal.SIGINT): signal.signal(number, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTTIN, signal.SIGILL, signal.SIGTERM))
os.execv(sys.argv[1], sys.argv[1:])
"""
    async with program(*PYTHON, surroundings, *RUN, "cat", "/proc/self/status") as running:
        assert await running.ended() == 0
        blocked = int((await running.stdout.saw("^SigBlk:\t([0-9a-f]+)"))[1], 16)
        ignored = int((await running.stdout.saw("^SigIgn:\t([0-9a-f]+)"))[1], 16)
    assert signals_of(blocked) == {signal.SIGTTIN, signal.SIGILL, signal.SIGTERM}
    # Whoever runs the tests may be ignoring something himself, even what the C library keeps to itself.
    found = re.search("^SigIgn:\t([0-9a-f]+)", Path("/proc/self/status").read_text(), re.M)
    assert found is not None
    ours = signals_of(int(found[1], 16))
    ours -= {signal.SIGPIPE, signal.SIGXFSZ}  # Python's own, which it takes back for its children
    assert signals_of(ignored) == {signal.SIGHUP, signal.SIGTTOU, signal.SIGSEGV, signal.SIGINT} | ours


async def test_a_signal_that_we_ignore_is_passed_on_all_the_same() -> None:
    """The command may have set a handler of its own, and whoever sends it means the command."""
    surroundings = "import os, signal, sys; signal.signal(2, signal.SIG_IGN); os.execv(sys.argv[1], sys.argv[1:])"
    async with program(*PYTHON, surroundings, *RUN, *PYTHON, LISTENER, str(int(signal.SIGINT))) as running:
        for who in ("main", "child"):
            await running.stdout.saw(f"{who} ready")
        running.signal(signal.SIGINT)
        for who in ("main", "child"):
            await running.stdout.saw(f"{who} got {int(signal.SIGINT)}$")


async def test_we_hold_no_directory() -> None:
    done = await podvisor("run", "--", *shell("readlink /proc/$PPID/cwd; pwd"))
    assert done.stdout == f"/\n{os.getcwd()}\n"


async def test_standard_streams_and_environment_are_passed_through() -> None:
    with trio.fail_after(TIMEOUT_SEC):
        done = await trio.run_process(
            [*RUN, *shell("cat; echo $GREETING; echo complaint >&2; pwd")],
            stdin=b"what was typed\n",
            capture_stdout=True,
            capture_stderr=True,
            env=environment(GREETING="hello", PODVISOR_SOCKET="/not/used"),
            cwd="/usr",
        )
    assert done.stdout.decode() == "what was typed\nhello\n/usr\n"
    assert done.stderr.decode() == "complaint\n"


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
async def test_closed_standard_streams_cost_nothing(closed: str) -> None:
    """Else the first descriptors that are opened are taken for them."""
    command = (*RUN, *shell("cat; echo out; echo err >&2; exit 3"))
    async with program("sh", "-c", f'exec "$@" {closed}', "sh", *command, stdin=subprocess.DEVNULL) as running:
        assert await running.ended() == 3
        assert not running.stderr.matching("Traceback|rror")


async def test_what_the_command_leaves_behind_is_ended() -> None:
    async with program(*RUN, *shell("setsid sleep 600 & sleep 600 & exit 7")) as running:
        assert await running.ended() == 7
        assert left_behind() == {}


async def test_what_the_command_leaves_behind_is_asked_first() -> None:
    """A left-over that handles SIGTERM gets to do what it does at its end."""
    left_over = "trap 'echo asked; exit' TERM; echo waiting; while :; do sleep 0.1; done"
    script = f'sh -c "{left_over}" & read ready; exit 7'
    async with program(*RUN, *shell(script)) as running:
        await running.stdout.saw("waiting")
        assert running.process.stdin is not None
        await running.process.stdin.send_all(b"\n")
        await running.stdout.saw("asked")
        assert await running.ended() == 7
        assert left_behind() == {}


@needs_namespaces
@pytest.mark.parametrize(
    "init, left",
    [(RUN, 0), (("sh", "-c", 'exec "$@"', "sh"), ORPHANS)],
    ids=["podvisor", "no init at all"],
)
async def test_orphans_are_reaped(init: Sequence[str], left: int) -> None:
    """The second case is the control: without an init the same program counts every one of its orphans."""
    async with program(*PID_NAMESPACE, *init, *PYTHON, ORPHAN_MAKER, str(left)) as running:
        await running.stdout.saw("made")
        assert running.process.stdin is not None
        await running.process.stdin.aclose()
        await running.stdout.saw(f"left: {left}$")
        assert await running.ended() == 0


@needs_namespaces
async def test_as_pid_1_sigterm_during_start_up_is_not_lost() -> None:
    async with program(*PID_NAMESPACE, *RUN, "sleep", "600") as running:
        init = await child_of(running)
        await blocks(init, signal.SIGTERM)
        os.kill(init, signal.SIGTERM)
        assert await running.ended() == 128 + signal.SIGTERM


async def child_of(running: Running) -> int:
    """The one that runs podvisor: between its fork and its exec, unshare(1) itself holds SIGTERM back."""
    with trio.fail_after(TIMEOUT_SEC):
        while not (found := [pid for pid in children_of(running.pid) if is_podvisor(pid)]):
            await trio.sleep(0.001)  # another process does it: there is no event to wait for
    return found[0]


def all_below(pid: int) -> list[int]:
    return [each for child in children_of(pid) for each in (child, *all_below(child))]


async def in_state(letter: str, *pids: int) -> None:
    with trio.fail_after(TIMEOUT_SEC):
        while not all(letter in (stat.state if (stat := procfs.read_stat(pid)) else "") for pid in pids):
            await trio.sleep(0.001)  # other processes are stopped: there is no event to wait for


def signals_of(mask: int) -> set[int]:
    return {number for number in range(1, 65) if mask >> (number - 1) & 1}


def children_of(pid: int) -> list[int]:
    return [stat.pid for stat in procfs.scan().values() if stat.parent == pid]


def is_podvisor(pid: int) -> bool:
    return procfs.command_of(pid).startswith(PODVISOR[0])
