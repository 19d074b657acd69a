"""The machine: one private outer set of namespaces in which all pods of a network live.

Its first process ends when our end of a pipe closes, and the kernel then takes every process, mount and
network namespace in it: so nothing is left behind even when this program is killed, and two runs never
see one another's names and addresses.
"""

import shlex
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from subprocess import PIPE

import trio

from controller.demo.pod import REMOVAL_TIMEOUT_SEC

COMMAND_TIMEOUT_SEC = 30.0
START_TIMEOUT_SEC = 60.0

# SIGCHLD ignored: the kernel itself reaps what is orphaned to the machine's first process.
_MACHINE = """
import signal, sys
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
print("up", flush=True)
sys.stdin.read()
"""

_MACHINE_SETUP = """
ip link set lo up
mkdir -p /run/netns
mount -t tmpfs -o mode=755 netns /run/netns
exec "$@"
"""


class Machine:
    """The outer namespaces. Made by `open_machine`."""

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def network_namespace(self, name: str) -> str:
        return f"/proc/{self.pid}/root/run/netns/{name}"

    def entering(self, network: str | None = None) -> list[str]:
        """The command prefix that enters the machine, and within it one network namespace."""
        net = f"--net={self.network_namespace(network)}" if network else "--net"
        return ["nsenter", f"--target={self.pid}", "--mount", "--pid", "--ipc", "--uts", net, "--"]

    async def run(self, argv: Sequence[str], *, network: str | None = None) -> None:
        """Run a short command inside. Raises RuntimeError with its words when it fails."""
        with trio.fail_after(COMMAND_TIMEOUT_SEC):
            done = await trio.run_process(
                [*self.entering(network), *argv], check=False, capture_stdout=True, capture_stderr=True
            )
        if done.returncode != 0:
            words = (done.stderr or done.stdout).decode(errors="replace").strip()
            raise RuntimeError(f"cannot run {shlex.join(argv)} (exit {done.returncode}): {words}")

    async def script(self, text: str, *arguments: str) -> None:
        await self.run(["sh", "-ec", text, "sh", *arguments])


@asynccontextmanager
async def open_machine() -> AsyncIterator[Machine]:
    """The machine exists inside the block.

    Leaving it, cancelled or not, takes at most REMOVAL_TIMEOUT_SEC.
    """
    unshare = ["unshare", "--net", "--mount", "--propagation=private", "--pid", "--fork", "--kill-child=KILL"]
    unshare += ["--mount-proc", "--ipc", "--uts", "--"]
    first_process = [sys.executable, "-I", "-S", "-c", _MACHINE]
    process = await trio.lowlevel.open_process(
        [*unshare, "sh", "-ec", _MACHINE_SETUP, "sh", *first_process],
        stdin=PIPE,
        stdout=PIPE,
        start_new_session=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        with trio.fail_after(START_TIMEOUT_SEC):
            if await process.stdout.receive_some(16) == b"":
                raise RuntimeError(f"cannot make namespaces: unshare exited {await process.wait()}")
        pid = only_child(process.pid)
        if pid is None:
            raise RuntimeError("the machine's first process ended as soon as it was up")
        yield Machine(pid)
    finally:
        with trio.move_on_after(REMOVAL_TIMEOUT_SEC, shield=True):
            await process.stdin.aclose()
            await process.wait()
        if process.returncode is None:
            process.kill()  # --kill-child takes the first process along
        await process.stdout.aclose()


def only_child(pid: int) -> int | None:
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return int(children[0]) if children else None
