"""Pods out of plain processes, for machines where we may not make namespaces.

A "container" is a process tree in a session of its own. What outlives its first process is found again by a
mark in the environment, or because it was a descendant when that was killed: some programs, redis-server for
one, write their title over their environment. Pods share the file system and the pid numbers; each has a
loopback address of its own, and ports of its own too because engines bind every address. Links cannot be cut.
"""

import errno
import os
import signal
import socket
import uuid
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from subprocess import DEVNULL, STDOUT

import psutil
import trio

from controller.demo.pod import (
    REMOVAL_TIMEOUT_SEC,
    CannotIsolate,
    Completed,
    ContainerStartError,
    Pod,
    base_environment,
    exit_code_of,
)

MARK = "POD_SANDBOX_CONTAINER"
"""Begins with POD_, because of its own environment podvisor hands no more than such variables on to every unit."""
PORTS_BETWEEN_PODS = 200
PORTS_BETWEEN_NETWORKS = 1000
NETWORKS = 12
"""So many run side by side without a common port, of at most four pods each."""
LOCK_PORT = 10254


class ProcessContainer:
    """Made by `ProcessPod.container`."""

    def __init__(self, process: trio.Process, log: Path, environment: Mapping[str, str]) -> None:
        self.log = log
        self.init_pid = process.pid
        self._process = process
        self._environment = environment
        self._descendants: set[psutil.Process] = set()

    @property
    def exit_code(self) -> int | None:
        returncode = self._process.returncode
        return None if returncode is None else exit_code_of(returncode)

    async def wait(self) -> int:
        """The container is over when its first process is, so what that left behind is killed here."""
        code = exit_code_of(await self._process.wait())
        await self._kill_rest()
        return code

    def kill(self, signal_number: int) -> None:
        if self._process.returncode is None:
            if signal_number == signal.SIGKILL:
                self._descendants |= _descendants_of(self._process.pid)
            self._process.send_signal(signal_number)

    async def remove(self) -> None:
        """Kill everything. Bounded by the caller."""
        self.kill(signal.SIGKILL)
        await self.wait()

    async def exec(self, argv: Sequence[str], *, timeout_sec: float = 30) -> Completed:
        with trio.fail_after(timeout_sec):
            done = await trio.run_process(
                list(argv), check=False, capture_stdout=True, stderr=STDOUT, env=dict(self._environment)
            )
        return Completed(exit_code_of(done.returncode), done.stdout.decode(errors="replace"))

    async def _kill_rest(self) -> None:
        """SIGKILL whatever is known to belong to the container, until a look finds nothing."""
        while found := [process for process in psutil.process_iter() if self._owns(process)]:
            for process in found:
                try:
                    process.kill()
                except psutil.NoSuchProcess:
                    continue
            await trio.sleep(0.02)

    def _owns(self, process: psutil.Process) -> bool:
        """Processes are equal by pid and start time, so a number that is used again is nobody of ours."""
        try:
            if process.status() == psutil.STATUS_ZOMBIE:
                return False
            return process in self._descendants or bool(process.environ().get(MARK) == self._environment[MARK])
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            return False


class ProcessPod:
    """A loopback address, a range of ports, a volume. `Pod` says what it does."""

    def __init__(self, name: str, address: str, port_offset: int, directory: Path) -> None:
        self.name = name
        self.address = address
        self.volume = directory / "volume"
        self.logs = directory / "logs"
        self._port_offset = port_offset
        self.volume.mkdir(parents=True)
        self.logs.mkdir()

    def port(self, number: int) -> int:
        return number + self._port_offset

    @asynccontextmanager
    async def container(
        self, argv: Sequence[str], *, log: Path, environment: Mapping[str, str] | None = None
    ) -> AsyncIterator[ProcessContainer]:
        own = base_environment() | {"HOSTNAME": self.name, "HOME": os.environ.get("HOME", "/")}
        own |= dict(environment or {}) | {MARK: str(uuid.uuid4())}
        with log.open("ab") as output:
            try:
                process = await trio.lowlevel.open_process(
                    list(argv), stdin=DEVNULL, stdout=output, stderr=output, env=own, start_new_session=True
                )
            except OSError as error:
                raise ContainerStartError(f"cannot start a container in {self.name}: {error}") from error
        container = ProcessContainer(process, log, own)
        try:
            yield container
        finally:
            with trio.move_on_after(REMOVAL_TIMEOUT_SEC, shield=True):
                await container.remove()


class ProcessNetwork:
    """Made by `open_process_network`. `Network` says what it does."""

    isolation = "pods are plain processes of this machine on loopback addresses: one file system, no links to cut"
    can_cut = False

    def __init__(self, number: int, directory: Path) -> None:
        self._number = number
        self._directory = directory
        self.hub = self._pod("hub", 1, 0)
        self.pods: list[ProcessPod] = []

    async def add_pod(self, name: str) -> ProcessPod:
        number = len(self.pods)
        pod = self._pod(name, 11 + number, number + 1)
        self.pods.append(pod)
        return pod

    def _pod(self, name: str, host: int, slot: int) -> ProcessPod:
        offset = self._number % NETWORKS * PORTS_BETWEEN_NETWORKS + slot * PORTS_BETWEEN_PODS
        return ProcessPod(name, f"{_prefix(self._number)}.{host}", offset, self._directory / name)

    async def cut(self, pod: Pod) -> None:
        raise CannotIsolate(f"cannot cut the link of {pod.name}: {self.isolation}")

    async def heal(self, pod: Pod) -> None:
        """Nothing was cut."""

    async def cut_pair(self, sender: Pod, receiver: Pod, *, one_way: bool = False) -> None:
        raise CannotIsolate(f"cannot cut {sender.name} from {receiver.name}: {self.isolation}")

    async def heal_pair(self, one: Pod, other: Pod) -> None:
        """Nothing was cut."""

    async def run_in(self, pod: Pod, script: str) -> None:
        raise CannotIsolate(f"cannot run anything in the network of {pod.name}: {self.isolation}")


@asynccontextmanager
async def open_process_network(pods: int, directory: Path) -> AsyncIterator[ProcessNetwork]:
    """Like `open_namespace_network`, on addresses and ports that no other run holds."""
    with _free_number() as number:
        network = ProcessNetwork(number, directory)
        for rank in range(pods):
            await network.add_pod(f"pod{rank}")
        yield network


@contextmanager
def _free_number() -> Iterator[int]:
    """Claims 127.77.N.*.

    Who holds the range's lock port owns it, and the kernel takes the port back when that run ends.
    """
    with socket.socket() as lock:
        yield next(number for number in range(1, 255) if _claim(lock, number))


def _claim(lock: socket.socket, number: int) -> bool:
    try:
        lock.bind((f"{_prefix(number)}.254", LOCK_PORT))
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            return False
        raise
    return True


def _prefix(number: int) -> str:
    return f"127.77.{number}"


def _descendants_of(pid: int) -> set[psutil.Process]:
    try:
        return set(psutil.Process(pid).children(recursive=True))
    except psutil.NoSuchProcess:
        return set()
