"""The status table (design 3): one truth for the heartbeat, for readyz and for the arbiter.

What the process is comes in as facts; what the supervisor is doing with it stands in the operation. Late probe
results while engines are being replaced change nothing here, because the step decides before the facts do
(seed S22): nothing that happens in one epoch leaks into the next.
"""

from __future__ import annotations

import msgspec

from supervisor.engine.model.operation import Operation
from supervisor.wire import EndpointStatus, Step


class EngineFacts(msgspec.Struct, frozen=True):
    """What is seen of one endpoint's process and probes."""

    ready: bool
    """Its handshake has happened in this invocation."""
    unhealthy: str | None = None
    """Which probe found it sick, in words; None while it is well."""
    in_grace: bool = False
    """Within `grace_period_sec` of the spawn: probe-derived abnormality is not counted yet."""
    endpoint_id: int = 0


class Judgement(msgspec.Struct, frozen=True):
    status: EndpointStatus
    counted: str | None = None
    """Why the arbiter counts it; None: it does not."""


def judge(operation: Operation, facts: EngineFacts, now: float) -> Judgement:
    """The endpoint's status on the wire, and whether the arbiter counts it."""
    if facts.endpoint_id in operation.held_ids or operation.leaving is not None:
        return Judgement(EndpointStatus.PAUSED)
    match operation.step:
        case Step.STOPPING | Step.CLEANING:
            return Judgement(EndpointStatus.WAIT2START)
        case Step.PREPARED:
            return _prepared(operation, now)
        case Step.HELD:
            return Judgement(EndpointStatus.PAUSED)
        case Step.FAILED | Step.ABORTED:
            return Judgement(EndpointStatus.ABNORMAL, counted=operation.error or f"relaunch {operation.step}")
        case Step.STARTING | Step.LOADING:
            return Judgement(EndpointStatus.INITIAL)
        case Step.IDLE | Step.DONE:
            return _running(operation, facts)


def _prepared(operation: Operation, now: float) -> Judgement:
    if operation.frozen(now):
        return Judgement(EndpointStatus.WAIT2START)
    return Judgement(EndpointStatus.ABNORMAL, counted="prepared, but the freeze is over and nobody started it")


def _running(operation: Operation, facts: EngineFacts) -> Judgement:
    if not operation.ever_started:
        return Judgement(EndpointStatus.WAIT2START)
    if operation.drained:
        return Judgement(EndpointStatus.PAUSED)
    if facts.endpoint_id in operation.dead:
        return Judgement(EndpointStatus.ABNORMAL, counted="the engine process is dead")
    if facts.unhealthy is not None:
        return Judgement(EndpointStatus.ABNORMAL, counted=None if facts.in_grace else facts.unhealthy)
    if operation.paused is not None:
        return Judgement(EndpointStatus.PAUSED)  # also while it ends: until then it may have requests
    return Judgement(EndpointStatus.NORMAL if facts.ready else EndpointStatus.INITIAL)
