"""What was seen from outside, as values: all that is judged, and nothing that judges.

Processes, sockets and exit codes are the machine's word; instances and runs are told as an operator is told them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from controller.events import ControllerEvent
from supervisor import wire

SUPERVISOR = "supervisor"
ENGINE = "engine"
STORE = "redis"


@dataclass(frozen=True, slots=True)
class Process:
    pid: int
    """As this machine numbers it."""
    started: float
    """Wall clock."""
    unit: str
    """SUPERVISOR, ENGINE or STORE; else what it calls itself."""
    epoch: int | None = None
    """Of engines: of which it was told to be."""

    def birth(self) -> tuple[float, int]:
        """To be compared: the kernel counts in hundredths of a second, pids in the order of forks."""
        return self.started, self.pid

    def __str__(self) -> str:
        return f"{self.unit} {self.pid}" + (f" of epoch {self.epoch}" if self.epoch is not None else "")


@dataclass(frozen=True, slots=True)
class PodLook:
    name: str
    processes: tuple[Process, ...] = ()
    """Those that live; the dead that nobody has reaped yet are `zombies`."""
    zombies: int = 0
    listeners: Mapping[int, frozenset[int]] | None = None
    """Pids by TCP port; None: it was not looked for."""
    view: wire.UnitsView | None = None
    """What its supervisor says; None: it does not answer."""
    answers: bool = False
    """Its engine says that it is well."""
    ready: bool = False
    """Its supervisor says that it may get requests, as it tells a kubelet."""

    def of(self, unit: str) -> tuple[Process, ...]:
        """The eldest first: workers are younger than the engine that has them."""
        return tuple(sorted((found for found in self.processes if found.unit == unit), key=Process.birth))


@dataclass(frozen=True, slots=True)
class Look:
    """All of it, at one moment."""

    pods: Mapping[str, PodLook]
    instances: tuple[wire.InstanceView, ...] | None
    """None: no controller leads."""
    runs: tuple[wire.RunView, ...] = ()
    journal: Mapping[str, int] | None = None
    """Open runs by job, as they stand on the disk; None: it was not read, or could not be."""

    def instance(self, job: str) -> wire.InstanceView | None:
        return next((found for found in self.instances or () if found.job_name == job), None)


@dataclass(frozen=True, slots=True)
class Ended:
    """A container's end."""

    pod: str
    exit_code: int


@dataclass(frozen=True, slots=True)
class Asked:
    """A command of the program's own, and how it was answered."""

    what: str
    status: int | None
    """None: nobody answered."""
    text: str = ""


@dataclass(frozen=True, slots=True)
class Watched:
    """What was seen between two looks."""

    engines: frozenset[tuple[str, Process]] = frozenset()
    """(pod, process): every engine process that was ever seen."""
    together: frozenset[tuple[str, str]] = frozenset()
    """What lived at the same time and may not, in words, by gang."""
    runs_at_once: Mapping[str, int] | None = None
    """The most open runs of a job that the controller ever told of."""
    ended: tuple[Ended, ...] = ()
    asked: tuple[Asked, ...] = ()
    events: tuple[ControllerEvent, ...] = ()
    traces: tuple[str, ...] = ()
    """Lines of logs that tell of a bug."""
    outdated: tuple[Asked, ...] = ()
    """Commands of an older term or epoch, which must have no effect."""
