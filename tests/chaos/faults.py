"""What can go wrong, as values: a plan is written in them, a history is told in them, a replay file holds them.

What may be hit is a `Stage`. Which fault comes when is `plan`'s, how it is done `carrying_out`'s.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Whom(StrEnum):
    """A process of a pod."""

    FIRST = "first"
    """The container's first one: a supervisor, a controller, or etcd."""
    ENGINE = "engine"
    WORKER = "worker"
    """The engine's, in a session of its own."""
    STORE = "store"


class Way(StrEnum):
    """Which packets of a pair are lost."""

    BOTH = "both"
    THERE = "there"
    """What the first sends."""
    BACK = "back"


class Verb(StrEnum):
    """What operators ask for; what has an opposite is undone after a while."""

    RELAUNCH = "relaunch"
    HOLD = "hold"
    STOP_ENGINE = "stop-engine"
    RESTART_ENGINE = "restart-engine"
    STOP_STORE = "stop-store"
    RESTART_STORE = "restart-store"
    RELOAD = "reload"
    DRAIN = "drain"
    RESET_FAILED = "reset-failed"
    ABORT = "abort"
    TERMINATE = "terminate"


class _Fault(msgspec.Struct, frozen=True, tag_field="kind"):
    pod: str
    """Where it happens, by name."""


class Kill(_Fault, frozen=True, tag="kill"):
    """SIGKILL."""

    whom: Whom


class Freeze(_Fault, frozen=True, tag="freeze"):
    """SIGSTOP, then SIGCONT."""

    whom: Whom
    lasting_sec: float


class Cut(_Fault, frozen=True, tag="cut"):
    peer: str
    way: Way
    lasting_sec: float


class Unplug(_Fault, frozen=True, tag="unplug"):
    """The pod's link is down."""

    lasting_sec: float


class Lossy(_Fault, frozen=True, tag="lossy"):
    """A part of what the pod receives is lost."""

    part: float
    lasting_sec: float


class Slow(_Fault, frozen=True, tag="slow"):
    """Whatever pod and controllers say to each other takes so much longer."""

    delay_sec: float
    lasting_sec: float


class FullDisk(_Fault, frozen=True, tag="full-disk"):
    """Of a supervisor's state, or of a controller's journal."""

    lasting_sec: float


class NoDescriptors(_Fault, frozen=True, tag="no-descriptors"):
    """The container's first process can open nothing more."""

    lasting_sec: float


class OutOfMemory(_Fault, frozen=True, tag="out-of-memory"):
    """The kernel kills the engine for what it takes."""


class Restart(_Fault, frozen=True, tag="restart"):
    """SIGTERM to a controller or etcd, which the kubelet starts again."""


class Ask(_Fault, frozen=True, tag="ask"):
    """An operator's command, in a pod or about its instance."""

    verb: Verb
    lasting_sec: float = 0.0
    """Until the opposite is asked for, where there is one."""


Fault = Kill | Freeze | Cut | Unplug | Lossy | Slow | FullDisk | NoDescriptors | OutOfMemory | Restart | Ask
KINDS = tuple(str(kind.__struct_config__.tag) for kind in Fault.__args__)


class Timed(msgspec.Struct, frozen=True):
    after_sec: float
    """From the strike's begin."""
    fault: Fault


class Strike(msgspec.Struct, frozen=True):
    """Faults that overlap; the world comes to rest before the next strike."""

    number: int
    faults: tuple[Timed, ...]

    def __str__(self) -> str:
        return " and ".join(describe(timed) for timed in self.faults)


class Stage(msgspec.Struct, frozen=True):
    """What is there to be hit, by name."""

    gangs: tuple[tuple[str, ...], ...]
    """Their pods."""
    controllers: tuple[str, ...]
    etcd: str | None = None
    missing: frozenset[str] = frozenset()
    """Kinds of faults that this machine cannot make."""

    @property
    def pods(self) -> tuple[str, ...]:
        return tuple(pod for gang in self.gangs for pod in gang)

    @property
    def centre(self) -> tuple[str, ...]:
        """Those without which nothing is coordinated."""
        return (*self.controllers, *([self.etcd] if self.etcd else []))


def kind_of(fault: Fault) -> str:
    return str(fault.__struct_config__.tag)


def describe(timed: Timed) -> str:
    fields = msgspec.structs.asdict(timed.fault)
    where = fields.pop("pod")
    lasting = fields.pop("lasting_sec", 0)
    words = [kind_of(timed.fault), *(str(value) for value in fields.values()), "in" if fields else "of", where]
    words += [f"for {lasting:g} s"] if lasting else []
    words += [f"{timed.after_sec:g} s later"] if timed.after_sec else []
    return " ".join(words)
