"""An engine that is started without a controller, and what one that comes after all makes of it (design 8).

An engine belongs to no instance (id 0) until a controller adopts it. Who may be started so, and when, is decided by
whoever knows whether a controller answers; here is what it does to the operation.
"""

from __future__ import annotations

from msgspec.structs import replace

from supervisor.engine.model.commands import begin_prepare
from supervisor.engine.model.operation import Action, Operation, OperationSettings, Report
from supervisor.wire import StartCmdMsg, Step

Outcome = tuple[Operation, tuple[Action, ...]]


def begin(state: Operation, placement: StartCmdMsg, reason: str, settings: OperationSettings, now: float) -> Outcome:
    """Only a first start: whatever was started or prepared before belongs to an instance."""
    if state.step is not Step.IDLE or state.ever_started or state.held_by is not None or state.leaving is not None:
        return state, ()
    named = replace(state, epoch=state.epoch + 1, run_id=None, reason=reason, start_when_prepared=True)
    begun, actions = begin_prepare(named, placement, settings, now)
    return begun, (*actions, Report("warning", f"started without a controller: {reason}"))


def give_way(state: Operation, now: float) -> Outcome:
    """A controller has come before the engine began: its start is the controller's business."""
    if not _about_to_start_alone(state):
        return state, ()
    waiting = replace(
        state,
        step=Step.IDLE,
        since=now,
        serial=state.serial + 1,
        placement=None,
        start_when_prepared=False,
        freeze=None,
    )
    return waiting, (Report("info", "the controller is there after all: it starts the engine"),)


def _about_to_start_alone(state: Operation) -> bool:
    return state.busy and state.start_when_prepared and not state.ever_started and state.instance_id == 0


def adopt(state: Operation, instance_id: int) -> Outcome:
    """A controller has taken over what was started here."""
    if state.placement is None or state.instance_id != 0 or instance_id == 0:
        return state, ()
    placement = replace(state.placement, instance_id=instance_id)
    return replace(state, placement=placement), (Report("info", f"the engine belongs to instance {instance_id} now"),)
