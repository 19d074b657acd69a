"""What a fault is, however it was learnt. How messages become faults is `classification`'s, what is done about
them `selection`'s."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from controller.model.member import MemberKey
from supervisor.wire import FaultCategory

ENGINE_DEAD = 0x1000001
ENGINE_UNHEALTHY = 0x1000002


class FaultLevel(IntEnum):
    """Higher is graver: a strategy of a higher level preempts one of a lower."""

    HEALTHY = 0
    L1 = 1
    L2 = 2
    L3 = 3
    L4 = 4
    L5 = 5
    L6 = 6


@dataclass(frozen=True, slots=True)
class FaultIdentity:
    """Reports that agree in this are of one fault (S25)."""

    member: MemberKey
    epoch: int | None = None
    endpoint: int | None = None
    pid: int | None = None
    device: str | None = None
    """Of a device's fault, with its code; None: the whole node."""
    code: int | None = None

    @property
    def is_of_one_life(self) -> bool:
        """Else a peer has told neither epoch nor pid, and the next death of that engine is told in the same words."""
        return any(told is not None for told in (self.epoch, self.pid, self.device, self.code))


@dataclass(frozen=True, slots=True)
class Fault:
    identity: FaultIdentity
    level: FaultLevel
    category: FaultCategory
    code: int
    """0 when healthy."""
    message: str
    boot_id: str | None = None
    probe_derived: bool = False
    """The process lives, a Liveness or Canary probe failed (exception_type `unhealthy:<probe>`)."""
    canary: bool = False
    """That probe is the canary."""
    answered: bool = False
    """A recovery that began with it has ended; it is present still."""

    @property
    def separates(self) -> bool:
        """A device this sick takes its instance out of routing until it is reported healthy."""
        return self.category is FaultCategory.HARDWARE and self.level > FaultLevel.L2
