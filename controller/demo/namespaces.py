"""Pods out of kernel namespaces, each with a copy-on-write root and an address of its own.

All of them live in one `Machine`, so that nothing outlives this program. Needs root;
`sandbox.can_use_namespaces` tells.
"""

import os
import shlex
import signal
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from subprocess import STDOUT

import trio

from controller.demo.engines import engines_directory
from controller.demo.machine import START_TIMEOUT_SEC, Machine, only_child, open_machine
from controller.demo.network_namespace import sockets_in
from controller.demo.pod import (
    REMOVAL_TIMEOUT_SEC,
    Completed,
    ContainerStartError,
    Pod,
    base_environment,
    exit_code_of,
)

_HUB_SETUP = """
ip netns add hub
ip -n hub link set lo up
ip -n hub link add br0 type bridge
ip -n hub addr add "$1/24" dev br0
ip -n hub link set br0 up
"""

_POD_SETUP = """
ip netns add "$1"
ip -n "$1" link set lo up
ip -n "$1" link add eth0 type veth peer name "$2" netns hub
ip -n "$1" addr add "$3/24" dev eth0
ip -n "$1" link set eth0 up
ip -n hub link set "$2" master br0 up
"""

# `unshare --fork` of util-linux 2.38 reports a child's SIGKILL as exit 1. A shell that has unshared
# without forking makes the same first process and tells its status rightly. Its own "Killed" goes to
# nowhere, not to the container's log.
_STATUS_KEEPER = 'exec 4>&2 2>/dev/null; "$@" 2>&4 4>&-; exit $?'

# Where the kernel refuses an overlay the root is the host's, read-only, with writable tmpfs on the usual
# places.
_CONTAINER_SETUP = """
printf 1 >&0
hostname "$1"; shift
base=/mnt; root=$base/root; layers=upperdir=$base/upper,workdir=$base/work
mount -t tmpfs -o size=512m container $base
mkdir $base/upper $base/work $root
if mount -t overlay container -o lowerdir=/,$layers $root 2>/dev/null; then
  cd $root
else
  mount --bind / $root; mount -o remount,bind,ro $root; cd $root
  mount -t tmpfs tmpfs tmp; mount -t tmpfs tmpfs var/tmp
  {hidden}
fi
mount -t proc proc proc
mount -t sysfs -o ro sysfs sys
mount -t tmpfs tmpfs run
mount --rbind /dev dev
mount -t tmpfs shm dev/shm
{binds}
mkdir run/host; pivot_root . run/host
cd /; umount -l /run/host; rmdir /run/host; unset OLDPWD
printf 2 >&0
exec "$@" </dev/null
"""


class NamespaceContainer:
    """Made by `NamespacePod.container`."""

    def __init__(self, process: trio.Process, log: Path) -> None:
        self.log = log
        self.init_pid = _first_process(process) or 0
        self._process = process
        # A number may be used again, a pidfd never means another process.
        self._pidfd = os.pidfd_open(self.init_pid) if self.init_pid else None

    @property
    def exit_code(self) -> int | None:
        returncode = self._process.returncode
        return None if returncode is None else exit_code_of(returncode)

    async def wait(self) -> int:
        return exit_code_of(await self._process.wait())

    def kill(self, signal_number: int) -> None:
        if self._pidfd is None:
            return
        try:
            signal.pidfd_send_signal(self._pidfd, signal_number)
        except ProcessLookupError:
            return

    async def exec(self, argv: Sequence[str], *, timeout_sec: float = 30) -> Completed:
        enter = ["nsenter", f"--target={self.init_pid}", "--pid", "--mount", "--net", "--uts", "--ipc", "--"]
        with trio.fail_after(timeout_sec):
            done = await trio.run_process(
                [*enter, *argv], check=False, capture_stdout=True, stderr=STDOUT, env=base_environment()
            )
        return Completed(exit_code_of(done.returncode), done.stdout.decode(errors="replace"))

    def close(self) -> None:
        if self._pidfd is not None:
            os.close(self._pidfd)
            self._pidfd = None


class NamespacePod:
    """A network namespace with an address, and a volume. `Pod` says what it does."""

    def __init__(self, machine: Machine, name: str, address: str, directory: Path, needed: Sequence[Path]) -> None:
        self.name = name
        self.address = address
        self.volume = directory / "volume"
        self.logs = directory / "logs"
        self._machine = machine
        self._needed = needed
        self.volume.mkdir(parents=True)
        self.logs.mkdir()

    def port(self, number: int) -> int:
        return number

    @asynccontextmanager
    async def container(
        self, argv: Sequence[str], *, log: Path, environment: Mapping[str, str] | None = None
    ) -> AsyncIterator[NamespaceContainer]:
        binds = "\n".join(_bind(path) for path in (*self._needed, self.volume))
        hidden = "\n".join(_bind(path) for path in _needed_paths() if path.is_relative_to("/tmp"))
        setup = _CONTAINER_SETUP.replace("{binds}", binds).replace("{hidden}", hidden)
        unshare = ["unshare", "--mount", "--propagation=private", "--pid", "--uts", "--ipc", "--"]
        command = [*self._machine.entering(self.name), *unshare, "sh", "-c", _STATUS_KEEPER, "sh"]
        command += ["sh", "-ec", setup, "sh", self.name, *argv]
        async with AsyncExitStack() as stack:
            output = stack.enter_context(log.open("ab"))
            reading, writing = os.pipe()
            started = await stack.enter_async_context(trio.lowlevel.FdStream(reading))
            # The set-up's stdin is a pipe's writing end: one byte says that it runs, one that only the
            # exec is left.
            try:
                process = await trio.lowlevel.open_process(
                    command,
                    stdin=writing,
                    stdout=output,
                    stderr=output,
                    env=base_environment() | {"HOSTNAME": self.name} | dict(environment or {}),
                    start_new_session=True,
                )
            finally:
                os.close(writing)
            stack.push_async_callback(_remove, process)
            with trio.fail_after(START_TIMEOUT_SEC):
                await started.receive_some(1)
                container = NamespaceContainer(process, log)
                stack.callback(container.close)
                if await started.receive_some(1) == b"":
                    code = exit_code_of(await process.wait())
                    raise ContainerStartError(f"cannot start a container in {self.name} (exit {code}): {_tail(log)}")
            yield container


class NamespaceNetwork:
    """Pods on a bridge in the hub's network namespace. Made by `open_namespace_network`.

    `Network` says what it does.
    """

    isolation = "each pod has its own pid, mount, network, uts and ipc namespaces and its own address"
    can_cut = True

    def __init__(self, machine: Machine, directory: Path) -> None:
        self._machine = machine
        self._directory = directory
        self._needed = _on_other_file_systems()
        self.hub = NamespacePod(machine, "hub", "10.77.0.1", directory / "hub", self._needed)
        self.pods: list[NamespacePod] = []

    async def add_pod(self, name: str) -> NamespacePod:
        number = len(self.pods)
        address = f"10.77.0.{11 + number}"
        pod = NamespacePod(self._machine, name, address, self._directory / name, self._needed)
        await self._machine.script(_POD_SETUP, name, _link(pod), pod.address)
        self.pods.append(pod)
        return pod

    async def cut(self, pod: Pod) -> None:
        await self._machine.run(["ip", "-n", "hub", "link", "set", _link(pod), "down"])

    async def heal(self, pod: Pod) -> None:
        await self._machine.run(["ip", "-n", "hub", "link", "set", _link(pod), "up"])

    async def cut_pair(self, sender: Pod, receiver: Pod, *, one_way: bool = False) -> None:
        directions = [(sender, receiver)] if one_way else [(sender, receiver), (receiver, sender)]
        for source, target in directions:
            rule = _drop_rule(source)
            await self.run_in(target, f"iptables -w -C {rule} 2>/dev/null || iptables -w -I {rule}")

    async def heal_pair(self, one: Pod, other: Pod) -> None:
        for source, target in [(one, other), (other, one)]:
            await self.run_in(target, f"while iptables -w -D {_drop_rule(source)} 2>/dev/null; do :; done")

    async def run_in(self, pod: Pod, script: str) -> None:
        await self._machine.run(["sh", "-ec", script], network=pod.name)


@asynccontextmanager
async def open_namespace_network(pods: int, directory: Path) -> AsyncIterator[NamespaceNetwork]:
    """`pods` pods named pod0, pod1….

    Their volumes and logs lie under `directory`, which must be empty.
    """
    async with open_machine() as machine:
        network = NamespaceNetwork(machine, directory)
        await machine.script(_HUB_SETUP, network.hub.address)
        for number in range(pods):
            await network.add_pod(f"pod{number}")
        with sockets_in(machine.network_namespace("hub")):
            yield network


async def _remove(process: trio.Process) -> None:
    """Kill the container's first process, with which the kernel kills all others, also while it is being
    set up.
    """
    with trio.move_on_after(REMOVAL_TIMEOUT_SEC, shield=True):
        while process.returncode is None:
            first = _first_process(process)
            if first is not None:
                os.kill(first, signal.SIGKILL)
            with trio.move_on_after(0.05):  # again: it may not have been forked when we looked
                await process.wait()
    if process.returncode is None:
        process.kill()


def _first_process(process: trio.Process) -> int | None:
    """nsenter forks the status keeper, and that forks the first process."""
    keeper = only_child(process.pid)
    return None if keeper is None else only_child(keeper)


def _tail(log: Path) -> str:
    return log.read_text(errors="replace")[-2000:]


def _link(pod: Pod) -> str:
    """The hub's end of the pod's link, named by address because interface names hold 15 characters."""
    return "v" + pod.address.rpartition(".")[2]


def _drop_rule(source: Pod) -> str:
    return f"INPUT -s {source.address} -j DROP"


def _bind(path: Path) -> str:
    quoted = shlex.quote(str(path))
    return f"mkdir -p .{quoted}; mount --rbind {quoted} .{quoted}"


def _needed_paths() -> list[Path]:
    """What a container runs of this machine beside the system itself."""
    project = Path(__file__).parents[2]
    named = {project, Path(sys.prefix), Path(sys.base_prefix), engines_directory()}
    return sorted(path for path in named if path.exists())


def _on_other_file_systems() -> list[Path]:
    """What a container would not see, because an overlay of / shows no mounts below it."""
    root = Path("/").stat().st_dev
    return [path for path in _needed_paths() if path.stat().st_dev != root]
