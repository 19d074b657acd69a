"""What effects, reports and the clock do to the engine operation. Commands from outside are in `commands.py`.

Every event is written down for every step: an event that means nothing in a step returns the state unchanged.
"""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from supervisor.engine.model import alone, freeze
from supervisor.engine.model.commands import begin_prepare, begin_start
from supervisor.engine.model.condition import DeviceLost, Recovered, Restoring, device_lost, recovered, restoring
from supervisor.engine.model.operation import Action, AnnounceRelaunch, Operation, OperationSettings, Report
from supervisor.wire import FaultCategory, Recovery, StartCmdMsg, Step


class Stopped(msgspec.Struct, frozen=True):
    """The engines' whole trees are gone and reaped."""

    serial: int


class Clean(msgspec.Struct, frozen=True):
    """The dependencies are active and the hygiene gate has passed."""

    serial: int


class Spawned(msgspec.Struct, frozen=True):
    serial: int


class Loaded(msgspec.Struct, frozen=True):
    """The engine's handshake: every endpoint is ready (seed S17)."""

    serial: int


class Broke(msgspec.Struct, frozen=True):
    """The operation's effects are over; news only where their goal was not reached (no effect runs while PREPARED)."""

    serial: int
    reason: str
    category: FaultCategory | None = None


class EngineDied(msgspec.Struct, frozen=True):
    """A process of the endpoint's running engine is gone and nobody asked for it."""

    reason: str
    endpoint_id: int = 0


class ReportAccepted(msgspec.Struct, frozen=True):
    """The controller has taken the death report and said what it will try (seed S12)."""

    epoch: int
    recovery: Recovery
    run_id: str | None
    wait_sec: float = 0.0
    """So long it lets others go first."""


class ReportUndelivered(msgspec.Struct, frozen=True):
    """The controller could not be told of the death; it will be tried again."""

    epoch: int


class ControllerHeard(msgspec.Struct, frozen=True):
    run_id: str | None
    term: int


class StartedLocally(msgspec.Struct, frozen=True):
    """A standalone engine was started by its unit's own policy, or by somebody, and so is held no more."""

    placement: StartCmdMsg
    epoch: int
    endpoint_id: int = 0
    again: bool = False
    """It had run before in this container."""
    reason: str = ""


class RelaunchedLocally(msgspec.Struct, frozen=True):
    """All endpoints of a standalone engine are about to be restarted as one."""


class ControllerAbsent(msgspec.Struct, frozen=True):
    """No controller has placed this pod, and nobody waits for one any longer."""

    placement: StartCmdMsg
    reason: str


class ControllerFound(msgspec.Struct, frozen=True):
    """It has taken the registration of a pod without engines: their start is its business from now on."""


class Adopted(msgspec.Struct, frozen=True):
    """It has taken over engines that were started here without it."""

    instance_id: int


class Held(msgspec.Struct, frozen=True):
    """An operator stopped the engine of one endpoint."""

    by: str
    number: int = 0
    """Of the endpoint in this pod."""


class Released(msgspec.Struct, frozen=True):
    """The operator wants it back."""

    number: int = 0


class Abandoned(msgspec.Struct, frozen=True):
    """The controller knows these engines no more (deleted instance): as if nothing had been started here."""

    reason: str


class Leaving(msgspec.Struct, frozen=True):
    reason: str


class Paused(msgspec.Struct, frozen=True):
    """The engine is to take no new requests."""

    reason: str


class Resumed(msgspec.Struct, frozen=True):
    """It is to take requests again."""


class Drained(msgspec.Struct, frozen=True):
    """It has finished its requests, and was stopped."""


class Tick(msgspec.Struct, frozen=True):
    pass


Event = (
    Stopped
    | Clean
    | Spawned
    | Loaded
    | Broke
    | EngineDied
    | Recovered
    | DeviceLost
    | Restoring
    | ReportAccepted
    | ReportUndelivered
    | ControllerHeard
    | StartedLocally
    | RelaunchedLocally
    | ControllerAbsent
    | ControllerFound
    | Adopted
    | Held
    | Released
    | Abandoned
    | Leaving
    | Paused
    | Resumed
    | Drained
    | Tick
)
Outcome = tuple[Operation, tuple[Action, ...]]


def advance(state: Operation, event: Event, settings: OperationSettings, now: float) -> Outcome:
    """The state after `event`, and what is to be done."""
    match event:
        case Stopped() | Clean() | Spawned() | Loaded() | Broke():
            if event.serial != state.serial:
                return state, ()
            return _effect(state, event, now)
        case EngineDied(reason, endpoint_id):
            return _engine_died(state, reason, endpoint_id, now)
        case Recovered():
            return recovered(state, event)
        case DeviceLost():
            return device_lost(state, event)
        case Restoring():
            return restoring(state, event), ()
        case ReportAccepted():
            return _report_accepted(state, event, settings, now)
        case ReportUndelivered(epoch):
            return _report_undelivered(state, epoch, settings, now)
        case ControllerHeard(run_id, term):
            if 0 < term < state.term:
                return state, ()  # a deposed leader; a poll carries no term
            return replace(state.heard(run_id, now), term=max(state.term, term)), ()
        case StartedLocally():
            return _started_locally(state, event, now)
        case RelaunchedLocally():
            return replace(state, to_relaunch=frozenset(state.endpoint_ids)), ()
        case ControllerAbsent(placement, reason):
            return alone.begin(state, placement, reason, settings, now)
        case ControllerFound():
            return alone.give_way(state, now)
        case Adopted(instance_id):
            return alone.adopt(state, instance_id)
        case Held(by, number):
            held = replace(state, held_by=by, held=state.held | {number}, freeze=None)
            return replace(held, dead=held.dead - held.held_ids), ()
        case Released(number):
            return _released(state, number)
        case Abandoned(reason):
            return _abandoned(state, reason, now)
        case Leaving(reason):
            return replace(state, leaving=state.leaving or reason), ()
        case Paused(reason):
            return replace(state, paused=state.paused or reason), ()
        case Resumed():
            return _resumed(state)
        case Drained():
            return replace(state, drained=True), ()  # told by who drains
        case Tick():
            return _tick(state, now)


def _effect(state: Operation, event: Stopped | Clean | Spawned | Loaded | Broke, now: float) -> Outcome:
    match event, state.step:
        case Stopped(), Step.STOPPING if state.holding:
            return _held(state, now)
        case Stopped(), Step.STOPPING:
            return _to(state, Step.CLEANING, now), ()
        case Clean(), Step.CLEANING:
            return _clean(state, now)
        case Spawned(), Step.STARTING:
            return _to(state, Step.LOADING, now), ()
        case Loaded(), Step.STARTING | Step.LOADING:
            done = replace(_to(state, Step.DONE, now), freeze=None, dead=frozenset(), error=None)
            return done, ()
        case Broke(_, reason, category), Step.STOPPING | Step.CLEANING | Step.STARTING | Step.LOADING:
            failed, actions = _fail(state, reason, now)
            return replace(failed, category=category), actions
        case _:
            return state, ()


def _held(state: Operation, now: float) -> Outcome:
    """As if nothing had been started here: whoever ends the hold assembles the gang anew."""
    if state.aborting:
        return _aborted(state, now)
    held = replace(_forgotten(state, Step.HELD, now), run_id=state.run_id)
    return held, (Report("info", f"held: {state.reason}"),)


def _clean(state: Operation, now: float) -> Outcome:
    if state.aborting:
        return _aborted(state, now)
    prepared = _to(state, Step.PREPARED, now)
    if state.start_when_prepared and state.held_by is None and state.leaving is None:
        return begin_start(prepared, prepared.placement, now)
    return prepared, ()


def _aborted(state: Operation, now: float) -> Outcome:
    aborted = replace(_to(state, Step.ABORTED, now), error="aborted while stopping", aborting=False, holding=False)
    return aborted, (Report("warning", "stopped, but the run was aborted: the arbiter counts"),)


def _fail(state: Operation, reason: str, now: float) -> Outcome:
    """Unfrozen at once: the container fallback is never delayed by a relaunch that cannot work."""
    failed = replace(
        _to(state, Step.FAILED, now),
        freeze=None,
        error=reason,
        start_when_prepared=False,
        holding=False,
        aborting=False,
    )
    if state.leaving is not None and state.step in (Step.STARTING, Step.LOADING):
        return failed, (Report("info", f"given up while {state.step}, because this pod leaves: {reason}"),)
    unfrozen = "; unfrozen" if state.freeze is not None else ""
    return failed, (Report("error", f"{_what(state)} failed while {state.step}: {reason}{unfrozen}"),)


def _what(state: Operation) -> str:
    """The first start of a container's life is no relaunch; that it was begun stands in the state from STARTING on."""
    is_first = state.relaunch_count == 0 and (not state.ever_started or state.step in (Step.STARTING, Step.LOADING))
    return "start" if is_first else "relaunch"


def _engine_died(state: Operation, reason: str, endpoint_id: int, now: float) -> Outcome:
    if endpoint_id in state.held_ids or state.leaving is not None:
        return state, ()
    dead = state.dead | {endpoint_id}
    if state.step in (Step.STARTING, Step.LOADING):
        failed, actions = _fail(state, f"the engine died while loading: {reason}", now)
        return replace(failed, dead=dead), actions
    if state.step in (Step.STOPPING, Step.CLEANING, Step.PREPARED, Step.HELD):
        return state, ()
    if state.step is Step.FAILED:
        return replace(state, dead=dead), ()  # told already: it is why the relaunch failed
    return replace(state, dead=dead), (Report("error", f"engine of epoch {state.epoch} died: {reason}"),)


def _report_accepted(state: Operation, event: ReportAccepted, settings: OperationSettings, now: float) -> Outcome:
    """Freeze only for a recovery that will be tried, for this epoch, and while the switch is on (S12, S13)."""
    if event.epoch != state.epoch or state.busy or state.leaving is not None or state.held_by is not None:
        return state, ()
    if state.step is Step.HELD:
        return state, ()
    if state.device_fault is not None:
        return state, ()
    if event.recovery is Recovery.NONE:
        note = "the controller will not relaunch: the arbiter goes on counting"
        return state, (Report("warning", note),)
    if not settings.enabled:
        note = "enable_engine_relaunch is off here: not frozen, the arbiter goes on counting"
        return state, (Report("warning", note),)
    if event.run_id is not None and event.run_id in state.aborted_runs:
        return state, ()
    reason = (event.epoch, event.run_id)
    if state.frozen_for == reason:
        return state.heard(event.run_id, now), ()
    begun = freeze.begin(settings.freeze, event.run_id, now, event.wait_sec)
    frozen = replace(state, freeze=begun, frozen_for=reason)
    note = f"death report accepted (run {event.run_id or 'unnamed'}): frozen for at most"
    waits = f" without a word of it; others go first for {event.wait_sec:.0f} s" if event.wait_sec else ""
    return frozen, (Report("info", f"{note} {frozen.freeze_remaining(now):.0f} s{waits}"),)


def _report_undelivered(state: Operation, epoch: int, settings: OperationSettings, now: float) -> Outcome:
    """A gang needs its controller; an engine alone in its instance need not wait for one to die (design 3, Arbiter).

    Only after it was ready for a while: an engine that dies again and again is the container's restart and back-off.
    """
    placement = state.placement
    if epoch != state.epoch or not state.dead or state.step is not Step.DONE or not settings.enabled:
        return state, ()
    if placement is None or placement.nnodes != 1 or state.leaving is not None or state.device_fault is not None:
        return state, ()
    if now - state.since < settings.alone_after_sec:
        return state, ()
    alone = replace(
        state,
        epoch=state.epoch + 1,
        run_id=None,
        reason="the engine died and the controller cannot be reached",
        start_when_prepared=True,
    )
    begun, actions = begin_prepare(alone, placement, settings, now)
    note = "the controller cannot be reached: this instance has one node, so it is relaunched here"
    return begun, (*actions, Report("warning", note))


def _started_locally(state: Operation, event: StartedLocally, now: float) -> Outcome:
    """Without a controller an endpoint's id is its number. Of endpoints that are relaunched as one the first counts."""
    follows = event.endpoint_id in state.to_relaunch and state.to_relaunch < frozenset(state.endpoint_ids)
    counts = event.again and not follows
    started = replace(
        _to(_no_longer_held(state, event.endpoint_id), Step.LOADING, now),
        placement=event.placement,
        epoch=event.epoch,
        serial=state.serial + 1,
        ever_started=True,
        dead=state.dead - {event.endpoint_id},
        reason=event.reason,
        recovery=None,
        error=None,
        paused=None,
        drained=False,
        relaunch_count=state.relaunch_count + counts,
        to_relaunch=state.to_relaunch - {event.endpoint_id},
    )
    if not counts:
        return started, ()
    return started, (AnnounceRelaunch(started.relaunch_count, event.placement, event.reason),)


def _released(state: Operation, number: int) -> Outcome:
    """What was stopped on purpose is missing from its gang from now on: a death like any other, and so relaunched."""
    if number not in state.held:
        return state, ()
    released = _no_longer_held(state, number)
    missing = state.held_ids - released.held_ids if state.ever_started and not state.busy else frozenset()
    note = f"released by an operator; it had been held by {state.held_by}"
    return replace(released, dead=state.dead | missing), (Report("info", note),)


def _no_longer_held(state: Operation, number: int) -> Operation:
    held = state.held - {number}
    return replace(state, held=held, held_by=state.held_by if held else None)


def _resumed(state: Operation) -> Outcome:
    """What was drained meanwhile is missing from its gang, as if an operator had held it."""
    if state.paused is None or state.leaving is not None:
        return state, ()
    note = f"resumed; it had been paused: {state.paused}"
    missing = frozenset(state.endpoint_ids if state.drained and not state.busy else ())
    return replace(state, paused=None, drained=False, dead=state.dead | missing), (Report("info", note),)


def _abandoned(state: Operation, reason: str, now: float) -> Outcome:
    fresh = _forgotten(state, Step.IDLE, now)
    return fresh, (Report("warning", f"engines of epoch {state.epoch} abandoned: {reason}"),)


def _forgotten(state: Operation, step: Step, now: float) -> Operation:
    """Without engines and without memory of them; the serial moves on, so that nothing in flight for them counts."""
    return replace(
        _to(state, step, now),
        serial=state.serial + 1,
        placement=None,
        run_id=None,
        ever_started=False,
        dead=frozenset(),
        error=None,
        category=None,
        device_fault=None,
        recovery=None,
        start_when_prepared=False,
        holding=False,
        aborting=False,
        freeze=None,
        paused=None,
        drained=False,
    )


def _tick(state: Operation, now: float) -> Outcome:
    if state.freeze is None or not state.freeze.is_over(now):
        return state, ()
    why = state.freeze.why_over(now)
    return replace(state, freeze=None), (Report("warning", f"freeze ended while {state.step}: {why}"),)


def _to(state: Operation, step: Step, now: float) -> Operation:
    return replace(state, step=step, since=now)
