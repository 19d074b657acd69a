"""What a pod is to the demo and to the pods tests: the words, without any way of making one.

A `Network` holds a hub (where controllers, the kubelet stand-in and clients stand) and pods. A pod keeps
its address and its volume; the `Container` in it comes and goes. `namespaces.py` makes pods out of kernel
namespaces, `processes.py` out of plain processes.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


class CannotIsolate(RuntimeError):
    """The pods at hand are not isolated well enough for what was asked."""


class ContainerStartError(RuntimeError):
    """The container's first process could not be brought up; says what its log holds."""


@dataclass(frozen=True)
class Completed:
    """How a command inside a container ended. `output` is stdout and stderr together."""

    exit_code: int
    output: str


class Container(Protocol):
    """One life of a pod's container: its first process and everything that came of it."""

    @property
    def log(self) -> Path:
        """Stdout and stderr of this life; readable while it lasts."""

    @property
    def init_pid(self) -> int:
        """The pid of the container's first process as the caller's pid namespace numbers it."""

    @property
    def exit_code(self) -> int | None:
        """None while it runs; 128+n when signal n ended it, as a kubelet reports it."""

    async def wait(self) -> int:
        """Wait for the end and return the exit code. Any number may wait.

        Cancellation leaves the container alone.
        """

    def kill(self, signal_number: int) -> None:
        """Send a signal to the first process; nothing happens when it is gone."""

    async def exec(self, argv: Sequence[str], *, timeout_sec: float = 30) -> Completed:
        """Run a command beside the first process, as `kubectl exec` does.

        Raises trio.TooSlowError after `timeout_sec`; what the command started may then live until the
        container ends.
        """


class Pod(Protocol):
    """An address and a volume that outlive the containers in it."""

    @property
    def name(self) -> str: ...

    @property
    def address(self) -> str: ...

    @property
    def volume(self) -> Path:
        """A directory seen at the same path inside and outside, kept over container restarts."""

    @property
    def logs(self) -> Path:
        """The directory, outside the pod, where the output of its containers goes."""

    def port(self, number: int) -> int:
        """The port to use where every pod would use `number`.

        Differs only where pods share their ports.
        """

    def container(
        self, argv: Sequence[str], *, log: Path, environment: Mapping[str, str] | None = None
    ) -> AbstractAsyncContextManager[Container]:
        """Run `argv` as the pod's first process until the block is left; then nothing of it remains.

        `environment` comes on top of PATH, HOME and LANG; nothing else is inherited. Leaving kills with
        SIGKILL, shielded, and waits at most `REMOVAL_TIMEOUT_SEC`. Raises ContainerStartError.
        """


class Network(Protocol):
    """Some pods, a hub, and the links between them.

    While it is open, this trio run's sockets stand in the hub.
    """

    @property
    def isolation(self) -> str:
        """One sentence for people: what keeps these pods apart, and what does not."""

    @property
    def can_cut(self) -> bool: ...

    @property
    def hub(self) -> Pod: ...

    @property
    def pods(self) -> Sequence[Pod]: ...

    async def add_pod(self, name: str) -> Pod:
        """A further pod with the next free address."""

    async def cut(self, pod: Pod) -> None:
        """Silence the pod's link: no packet, no reset. Idempotent.

        Raises CannotIsolate where links cannot be cut.
        """

    async def heal(self, pod: Pod) -> None: ...

    async def cut_pair(self, sender: Pod, receiver: Pod, *, one_way: bool = False) -> None:
        """Drop what `sender` sends to `receiver`, and the other direction too unless `one_way`."""

    async def heal_pair(self, one: Pod, other: Pod) -> None: ...

    async def run_in(self, pod: Pod, script: str) -> None:
        """Run a short shell script in the pod's network and beside its containers, which see what it mounts below
        the pod's volume from their next life on.

        Raises RuntimeError with its words when it fails, CannotIsolate where pods have no network of their own.
        """


REMOVAL_TIMEOUT_SEC = 10.0


def base_environment() -> dict[str, str]:
    """What a container image brings."""
    path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    return {"PATH": path, "HOME": "/root", "LANG": "C.UTF-8"}


def exit_code_of(returncode: int) -> int:
    """subprocess's -n for signal n, told as containers do."""
    return returncode if returncode >= 0 else 128 - returncode
