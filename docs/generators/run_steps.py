"""The steps of a relaunch run (states.md), found by driving its plan.

A gang of two: member 0 does all that a member can do, as answers, heartbeats, reports, silence and new boots; member 1
does at once what it is asked and is always heard. So everything is seen that one member can bring about in a gang that
is otherwise well; two bad ones at the same time are not driven here but in the property tests.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, replace

from controller.model.budget import Budget, BudgetKey
from controller.model.canary import is_to_begin
from controller.model.instance import GangSpec, Instance, InstanceStatus
from controller.model.member import InstanceKey, Member, MemberKey, Observation
from controller.model.relaunch import plan
from controller.model.relaunch.dispatch import SAYING_GOODBYE
from controller.model.relaunch.exchange import (
    Accepted,
    Action,
    Answer,
    Answered,
    Cancel,
    CancelKind,
    Close,
    Event,
    Fault,
    Heartbeat,
    Journal,
    MemberSilent,
    Probe,
    Refused,
    Registered,
    Send,
    Silence,
    Tick,
    TurnCame,
    Unreachable,
)
from controller.model.relaunch.opening import new_run
from controller.model.relaunch.rejoin import is_paid
from controller.model.relaunch.run import Cause, Progress, PutOff, Run, RunReason, RunStep, Stage
from controller.model.settings import FleetSettings, InstanceSettings, RelaunchSettings
from generators.explore import Edge, explore
from supervisor.wire import FEATURES, EndpointStatus, ErrorCode, ParallelConfig, Step

SOURCES = ("controller/model/relaunch/plan.py", "controller/model/relaunch/phase_one.py")
TRIES = 1
SETTINGS = RelaunchSettings(
    engine_relaunch_dispatch_retries=TRIES, engine_relaunch_nm_unreachable_threshold=TRIES, max_rereads=1
)
"""No more tries than it takes to see that they end."""
INSTANCE_SETTINGS = InstanceSettings()
LIMIT = SETTINGS.engine_relaunch_max_attempts
KEY = InstanceKey("default", "job")
BOOT = "boot"
OTHER_BOOT = "another boot"
ENDED = "ended: "
CODES = (
    ErrorCode.BUSY,
    ErrorCode.CONFLICT,
    ErrorCode.FAILED,
    ErrorCode.STALE_EPOCH,
    ErrorCode.STALE_TERM,
    ErrorCode.WRONG_BOOT,
)
"""One of each kind that the plan tells apart."""
EPOCH = 4
INTERVAL_SEC = FleetSettings().canary_min_interval_sec


@dataclass(frozen=True, slots=True)
class Moment:
    run: Run
    now: float
    asked: tuple[Send, ...]
    """Not answered yet."""


def edges() -> frozenset[Edge]:
    opened = list(_openings())
    ways = (_edges(None, run, actions) for run, actions in opened)
    found = explore([_after(run, actions, 0.0) for run, actions in opened], _moves, _essence).union(*ways)
    places = {edge.source for edge in found} | {edge.target.removeprefix(ENDED) for edge in found}
    assert places >= {*RunStep} - {RunStep.CLOSED}, "a step that is never reached"
    return found


def _edges(before: Run | None, run: Run, actions: Iterable[Action]) -> Iterator[Edge]:
    """One event may lead through several steps: the history has each, and the journal why."""
    source, passed, why = (before.step, len(before.history), before.message) if before else (RunStep.OPEN, 0, "")
    reasons = [action.reason for action in actions if isinstance(action, Journal) and action.record.outcome is None]
    for record, reason in zip(run.history[passed:], reasons, strict=False):  # a suspended run is journaled once more
        yield Edge(source, record.step, _words(reason))
        source = record.step
    for action in actions:
        if isinstance(action, Close):
            yield Edge(source, f"{ENDED}{action.outcome}", _words(action.message.removeprefix(f"{why}; ")))


def _words(said: str) -> str:
    """What the plan says of every case, not of this one."""
    said = said.removeprefix("phase 2: ").replace(":0", "").replace("ADDRESS, ADDRESS", "ADDRESS")
    said = re.sub(r"(; all containers|: the others wait in place).*", "", said)
    said = re.sub(r"answers \w+: WHY", "answers CODE: WHY", said)
    return re.sub(r"(?<!phase )\b\d+(\.\d+)?\b", "N", said)


def _openings() -> Iterator[tuple[Run, tuple[Action, ...]]]:
    fault = Cause(RunReason.FAULT, "an engine is dead")
    probe = Cause(RunReason.FAULT, "a probe failed", endpoint_abnormal=True)
    assemble = Cause(RunReason.ASSEMBLE, "all members have registered")
    gang, unextended, torn = _instance(), _instance(features=()), _instance(whole=False)
    runs = [(gang, probe, 0), (torn, fault, 0), *((gang, assemble, spent) for spent in (0, LIMIT))]
    runs += [(gang, Cause(RunReason.HOLD, "held: WHY"), 0)]
    runs += [(gang, Cause(RunReason.FAULT, "the canary failed", endpoint_abnormal=True, canary=True), 0)]
    runs += [(members, fault, spent) for members in (gang, unextended) for spent in (0, LIMIT - 1, LIMIT)]
    for instance, cause, spent in runs:
        run = new_run(
            instance,
            cause,
            run_id="run",
            term=1,
            budget=Budget(BudgetKey(KEY, None), runs=spent, phase2s=spent),
            settings=SETTINGS,
            instance_settings=INSTANCE_SETTINGS,
            now=0.0,
        )
        yield plan.open_run(run, 0.0)


def _instance(features: tuple[str, ...] = FEATURES, *, whole: bool = True) -> Instance:
    """Not whole: member 1 has restarted and takes no part in the epoch."""
    members = tuple(
        Member(
            key=MemberKey(KEY.namespace, KEY.job_name, f"#{rank}"),
            ip="ADDRESS",
            port=0,
            node_rank=rank,
            registered_at=0.0,
            business_ports=("10000",),
            mgmt_ports=("10000",),
            boot_id=BOOT,
            features=features,
            in_epoch=rank == 0 or whole,
        )
        for rank in range(2)
    )
    spec = GangSpec("model", "union", len(members), ParallelConfig(), endpoints_per_node=1)
    return Instance(1, KEY, spec, members, EPOCH, EPOCH, InstanceStatus.ACTIVE)


def _after(run: Run, actions: Iterable[Action], now: float, asked: tuple[Send, ...] = ()) -> Moment:
    outstanding = {row.outstanding for row in run.rows}
    sends = (*asked, *(action for action in actions if isinstance(action, Send)))
    return Moment(run, now, tuple(send for send in sends if send.number in outstanding))


def _moves(at: Moment) -> Iterator[tuple[Moment, Iterable[Edge]]]:
    if at.run.outcome is not None:
        return
    for now, event in _events(at):
        edges: list[Edge] = []
        after = _stepped(at, event, now, edges)
        while willing := _willing(after):
            after = _stepped(after, willing, now, edges)
        yield after, edges


def _stepped(at: Moment, event: Event, now: float, edges: list[Edge]) -> Moment:
    run, actions = plan.step(_told(at.run, now), event, now)
    edges += _edges(at.run, run, actions)
    return _after(run, actions, now, at.asked)


def _told(run: Run, now: float) -> Run:
    """Another instance was relaunched on its canary alone when this run opened."""
    waits = is_to_begin(run.cause, run) and now < run.opened_at + INTERVAL_SEC
    return replace(run, put_off=PutOff(run.opened_at + INTERVAL_SEC, "WHY") if waits else None)


def _willing(at: Moment) -> Event | None:
    """What member 1 does before anything else happens."""
    run, row = at.run, at.run.rows[1]
    if plan.wants_turn(run):
        return TurnCame()
    if run.outcome is not None or row.left:
        return None
    for send in at.asked:
        if send.member == row.key:
            done = Step.HELD if run.step is RunStep.HOLD else Step.PREPARED
            told = Accepted(done, run.epoch, row.member.boot_id, will_exit=True)
            return Answered(row.key, send.number, _well(run, row, at.now) if isinstance(send.request, Probe) else told)
    heard = row.heartbeat is not None and row.heartbeat.received_at == at.now
    return None if heard else Heartbeat(row.key, _well(run, row, at.now))


def _well(run: Run, row: Progress, now: float) -> Observation:
    epoch = run.epoch if row.stage is Stage.STARTED else run.base_epoch
    boot, statuses = row.member.boot_id, {1: EndpointStatus.NORMAL}
    return Observation(now, epoch, boot, normal=True, statuses=statuses, prepared=row.new_boot)


def _events(at: Moment) -> Iterator[tuple[float, Event]]:
    for time in (plan.deadline(at.run), at.now + SETTINGS.engine_relaunch_complete_timeout_sec, at.run.step_deadline):
        yield max(at.now, time or 0.0), Tick()
    for kind in CancelKind:
        yield at.now, Cancel(kind, f"cancelled: {kind}")
    for row in at.run.rows:
        boot = _other_boot(row)
        yield at.now, Registered(row.key, boot, None)
        yield at.now, Registered(row.key, boot, replace(row.member, boot_id=boot, in_epoch=False))
    row = at.run.rows[0]
    for seen in _observations(at.run, row, at.now):
        yield at.now, Heartbeat(row.key, seen)
    yield at.now, Fault(row.key, epoch=at.run.epoch, message="DEATH")
    yield at.now, MemberSilent(row.key)
    for send in at.asked:
        for answer in _answers(send, at.run, row, at.now):
            yield at.now, Answered(send.member, send.number, answer)


def _other_boot(row: Progress) -> str:
    return OTHER_BOOT if row.member.boot_id == BOOT else BOOT


def _answers(send: Send, run: Run, row: Progress, now: float) -> Iterator[Answer]:
    yield from (Unreachable(kind, "WHY") for kind in Silence)
    for code in CODES:
        yield Refused(code, "WHY", epoch=run.epoch + 1, boot_id=row.member.boot_id, term=run.term + 1)
    if isinstance(send.request, Probe):
        yield from _observations(run, row, now)
        return
    for step in (Step.PREPARED, Step.HELD, Step.FAILED, Step.STOPPING):
        yield Accepted(step, run.epoch, row.member.boot_id, will_exit=step is Step.PREPARED)


def _observations(run: Run, row: Progress, now: float) -> Iterator[Observation]:
    initial = Observation(now, run.epoch, row.member.boot_id, normal=False, statuses={0: EndpointStatus.INITIAL})
    yield initial
    yield replace(initial, prepared=True)
    yield replace(initial, leaving=True)
    yield replace(initial, step=Step.FAILED)
    yield replace(initial, boot_id=_other_boot(row))
    yield replace(initial, statuses={0: EndpointStatus.ABNORMAL})
    for epoch in (run.base_epoch, run.epoch):
        yield replace(initial, epoch=epoch, normal=True, statuses={0: EndpointStatus.NORMAL})


def _essence(at: Moment) -> Hashable:
    """What the checks of the present step and of those that may follow read."""
    run = at.run
    if run.outcome is not None:
        return run.outcome
    row, well = run.rows
    rows = (_essence_of_row(run, row), well.left, well.new_boot)
    if run.step in SAYING_GOODBYE:
        return run.step, run.closing, rows
    canary = is_to_begin(run.cause, run) and (at.now < run.opened_at + INTERVAL_SEC, run.put_off is None)
    before_prepare = not run.prepare_sent and (run.cause.endpoint_abnormal, run.counts, canary)
    spent = run.budget.runs >= run.settings.engine_relaunch_max_attempts
    waits = is_paid(run), run.rejoin_until is None
    ahead = run.step is not RunStep.AWAIT and (before_prepare, run.backoff_sec > 0, run.rereads, waits)
    return run.step, run.by_restart, spent, ahead, rows


def _essence_of_row(run: Run, row: Progress) -> Hashable:
    asked = (row.outstanding is None, min(row.tries, TRIES), row.may_be_frozen)
    if run.step in SAYING_GOODBYE:
        return asked, row.stage is Stage.STARTED, row.left, row.new_boot, row.farewell
    if run.step is RunStep.REJOIN:
        return asked, row.stage, row.left, row.gone is None, row.new_boot, row.seen is not None and row.seen.prepared
    if run.step is not RunStep.AWAIT:
        return asked, row.stage, row.timed_out and run.by_restart
    seen = (each for each in (row.seen, row.heartbeat) if each is not None and each.received_at >= row.stage_since)
    return asked, *(each.normal and each.epoch == run.epoch for each in seen)
