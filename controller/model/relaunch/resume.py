"""What a restarted controller makes of the record of an open run: in which step it goes on, with whom.

Whatever was sent is sent again: prepare, start, abort and stop may all be repeated, and what was not sent was
not acknowledged either. What the members do meanwhile is found by asking them, as ever.
"""

from __future__ import annotations

from dataclasses import replace

from controller.model.assembly import missing
from controller.model.instance import Instance
from controller.model.member import Member, MemberKey, same_boot
from controller.model.relaunch.answers import life_over
from controller.model.relaunch.dispatch import enter
from controller.model.relaunch.ending import clean_up, close
from controller.model.relaunch.exchange import Action
from controller.model.relaunch.holding import enter_hold
from controller.model.relaunch.phase_one import enter_probe
from controller.model.relaunch.run import (
    Farewell,
    MemberRecord,
    Outcome,
    Progress,
    Run,
    RunReason,
    RunRecord,
    RunStep,
    Stage,
)

GO_ON = "another life of the controller began it: go on"
ASKS_ANEW = frozenset({RunStep.PROBE, RunStep.PUT_OFF, RunStep.PREPARE})
STAGES = {RunStep.BACKOFF: Stage.PREPARED, RunStep.START: Stage.PREPARED, RunStep.AWAIT: Stage.STARTED}
"""How far everybody was when these steps began."""


def rows_of(instance: Instance, record: RunRecord, now: float) -> dict[MemberKey, Progress]:
    recorded = {member.node: member for member in record.members}
    return {member.key: _row(member, recorded.get(member.key.node), record, now) for member in instance.members}


def go_on(run: Run, record: RunRecord, now: float) -> tuple[Run, tuple[Action, ...]]:
    settings = run.settings
    is_old = record.history and now - record.history[-1].started_at > settings.start_hard_cap_sec
    if is_old and record.step is not RunStep.PUT_OFF:  # its members were told how long it may be
        rows = {key: replace(row, may_be_frozen=False, farewell=Farewell.NONE) for key, row in run.members.items()}
        message = "it is older than any step may be, and every freeze has ended by itself"
        return close(replace(run, members=rows), Outcome.OBSOLETE, message, now)
    if run.cause.reason is RunReason.HOLD:
        return enter_hold(run, now)
    if len(run.instance.members) < run.instance.spec.nnodes:
        # The gang has started over with another configuration since: it is assembled once all are here.
        return clean_up(run, Outcome.ABORTED, missing(run.instance), now)
    # The epoch begins before the first start: where it has not, nobody was started.
    is_before_start = record.step is RunStep.START and run.instance.epoch != record.epoch
    if record.step in ASKS_ANEW or is_before_start:
        return enter_probe(run, GO_ON, now)
    # Who was long away has to hear everybody before time counts against them; a back-off waits for nobody.
    lasts = record.remaining_sec
    if record.step is not RunStep.BACKOFF:
        lasts = max(lasts, settings.resumed_sec)
    if record.step is RunStep.REJOIN:
        run = replace(run, rejoin_until=now + lasts)
    return enter(run, record.step, now, lasts=lasts, reason=GO_ON)


def _row(member: Member, recorded: MemberRecord | None, record: RunRecord, now: float) -> Progress:
    row = Progress(member=member, seen=member.observation, heartbeat=member.observation)
    if recorded is None or member.superseded or not same_boot(recorded.boot_id, member.boot_id):
        return life_over(row, None if member.superseded else member)
    stage = STAGES.get(record.step, Stage.STARTED if recorded.started else Stage.NONE)
    return replace(
        row,
        stage=stage,
        stage_since=now,
        may_be_frozen=record.prepare_sent or member.key == record.cause.reporter,
        farewell=recorded.farewell,
    )
