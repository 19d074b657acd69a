"""What is found out of an engine beside its life and death: a device gone, a snapshot on its way, a recovery's end.

`progress.py` hears of it and asks here what it does to the operation.
"""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from supervisor.engine.model.operation import Action, Operation, Report
from supervisor.wire import RecoveryState

Outcome = tuple[Operation, tuple[Action, ...]]


class Recovered(msgspec.Struct, frozen=True):
    """The recovery has ended; `error`: the engine could not be asked, or did not do it."""

    number: int
    error: str | None


class DeviceLost(msgspec.Struct, frozen=True):
    """DeviceHealthProbe failed after the endpoint's engine had died."""

    endpoint_id: int
    epoch: int
    reason: str


class Restoring(msgspec.Struct, frozen=True):
    """Whether a snapshot of the endpoint's engine is being restored."""

    number: int
    """Of the endpoint in this pod."""
    under_way: bool


def restoring(state: Operation, event: Restoring) -> Operation:
    others = state.restoring - {event.number}
    return replace(state, restoring=others | {event.number} if event.under_way else others)


def recovered(state: Operation, event: Recovered) -> Outcome:
    known = state.recovery
    if known is None or known.number != event.number:
        return state, ()  # overtaken by a relaunch
    if event.error is None:
        done = replace(known, state=RecoveryState.DONE)
        return replace(state, recovery=done), (Report("info", "the engine has recovered without a restart"),)
    failed = replace(known, state=RecoveryState.FAILED, error=event.error)
    return replace(state, recovery=failed), (Report("error", f"the engine did not recover: {event.error}"),)


def device_lost(state: Operation, event: DeviceLost) -> Outcome:
    """Unfrozen at once: no recovery in place can help. An operation that has begun meanwhile asks by itself."""
    if event.endpoint_id not in state.dead or event.epoch != state.epoch or state.busy:
        return state, ()
    lost = replace(state, device_fault=event.reason, freeze=None)
    return lost, (Report("error", f"{event.reason}: not to be relaunched in place; unfrozen"),)
