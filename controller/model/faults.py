"""What a report means, and which strategy answers it (design 5; S08, S09)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, StrEnum

from controller.model.instance import Instance
from controller.model.member import MemberKey
from controller.model.relaunch.run import Run
from controller.model.settings import RelaunchSettings
from supervisor.wire import Recovery, SoftwareFaultMsg

ENGINE_DEAD = 0x1000001
ENGINE_UNHEALTHY = 0x1000002


class FaultLevel(IntEnum):
    """Higher is graver; a strategy of a higher level preempts one of a lower."""

    HEALTHY = 0
    L1 = 1
    L2 = 2
    L3 = 3
    L4 = 4
    L5 = 5
    L6 = 6


class FaultCategory(StrEnum):
    SOFTWARE = "software"
    HARDWARE = "hardware"


@dataclass(frozen=True, slots=True)
class FaultIdentity:
    """Death reports that agree in this are one death."""

    member: MemberKey
    epoch: int | None
    endpoint: int
    pid: int | None


@dataclass(frozen=True, slots=True)
class SoftwareFault:
    identity: FaultIdentity
    level: FaultLevel
    code: int
    """0 when healthy."""
    category: FaultCategory
    message: str
    received_at: float
    probe_derived: bool = False
    """The process lives, a Liveness or Canary probe failed (exception_type `unhealthy:<probe>`)."""


class Strategy(StrEnum):
    ENGINE_RELAUNCH = "engine_relaunch"


@dataclass(frozen=True, slots=True)
class Selection:
    strategy: Strategy | None
    reason: str


@dataclass(frozen=True, slots=True)
class ReportAnswer:
    """What the reporter is told, and what is to be done."""

    recovery: Recovery
    reason: str
    to_run: bool = False
    """Give it to the open run as exchange.Fault."""
    opens: bool = False
    """Open a run for it, if `need` does not name a better cause."""


def classify(message: SoftwareFaultMsg, member: MemberKey, now: float) -> SoftwareFault:
    raise NotImplementedError


def select(fault: SoftwareFault, prev_strategy_failed: bool, settings: RelaunchSettings) -> Selection:
    """The strategy for a fault when nothing runs; pure of budget, which the run itself checks."""
    raise NotImplementedError


def answer(
    fault: SoftwareFault,
    instance: Instance,
    run: Run | None,
    handled: frozenset[FaultIdentity],
    prev_strategy_failed: bool,
    settings: RelaunchSettings,
) -> ReportAnswer:
    """Absorb, queue or act on a report, so that nobody freezes in vain and nothing is relaunched twice."""
    raise NotImplementedError
