"""How requests go out: one way to send with retries, for every step of a run.

A row of the table has at most one request outstanding and at most one due. What is to be sent follows from
the run's step and the row; events only move `due`.
"""

from __future__ import annotations

from dataclasses import replace

from controller.model.placement import placement
from controller.model.relaunch.exchange import Action, Journal, Probe, Request, Send
from controller.model.relaunch.run import (
    Farewell,
    MemberRecord,
    Progress,
    Run,
    RunReason,
    RunRecord,
    RunStep,
    Stage,
    StepRecord,
)
from supervisor.wire import Action as Command
from supervisor.wire import EngineRestartMsg, StartCmdMsg, StopMsg

FIRST_POLL_SEC = 1.0
SAYING_GOODBYE = frozenset({RunStep.PHASE2, RunStep.CLEANUP})


def put(run: Run, row: Progress) -> Run:
    return replace(run, members={**run.members, row.key: row})


def enter(
    run: Run, step: RunStep, now: float, *, lasts: float, reason: str, error: str | None = None
) -> tuple[Run, tuple[Action, ...]]:
    """The next step: every row starts it afresh, and the journal has it before anything is sent (C4)."""
    polls = step in (RunStep.PUT_OFF, RunStep.BACKOFF, RunStep.AWAIT)
    rows = {
        key: replace(
            row,
            outstanding=None,
            tries=0,
            polls=0,
            timed_out=False,
            due=now + _poll_delay(run, 0) if polls else now,
        )
        for key, row in run.members.items()
    }
    history = (*_ended(run, now, error), StepRecord(step, now))
    run = replace(run, members=rows, step=step, step_deadline=now + lasts, history=history)
    return run, (Journal(record(run, now), reason),)


def postpone(run: Run, by: float) -> Run:
    """The journal took so long that what follows could not begin: no member is to blame for that time."""
    rows = {
        key: replace(
            row,
            stage_since=row.stage_since + by,
            sent_at=row.sent_at + by,
            due=None if row.due is None else row.due + by,
        )
        for key, row in run.members.items()
    }
    return replace(run, members=rows, step_deadline=run.step_deadline + by)


def close_history(run: Run, now: float, error: str | None) -> Run:
    return replace(run, history=_ended(run, now, error))


def _ended(run: Run, now: float, error: str | None) -> tuple[StepRecord, ...]:
    if not run.history:
        return ()
    return (*run.history[:-1], replace(run.history[-1], ended_at=now, error=error))


def record(run: Run, now: float) -> RunRecord:
    return RunRecord(
        run_id=run.id,
        instance=run.instance.key,
        instance_id=run.instance.id,
        term=run.term,
        epoch=run.epoch,
        base_epoch=run.base_epoch,
        cause=run.cause,
        opened_at=run.opened_at,
        step=run.step,
        remaining_sec=max(0.0, run.step_deadline - now),
        backoff_sec=run.backoff_sec,
        prepare_sent=run.prepare_sent or run.step is RunStep.PREPARE,
        phase=run.phase,
        members=tuple(_member_record(row) for row in run.rows),
        history=run.history,
        closing=run.closing,
        outcome=run.outcome,
        message=run.message,
        starts_lost=run.starts_lost,
    )


def _member_record(row: Progress) -> MemberRecord:
    return MemberRecord(
        node=row.key.node,
        address=row.address,
        boot_id=row.member.boot_id,
        started=row.stage is Stage.STARTED,
        farewell=row.farewell,
    )


def send_due(run: Run, now: float) -> tuple[Run, tuple[Action, ...]]:
    sends: list[Action] = []
    for row in run.rows:
        if row.due is None or row.due > now or row.outstanding is not None:
            continue
        request, timeout, reason = _request(run, row)
        if request is None:
            run = put(run, replace(row, due=None))
            continue
        number = run.next_number
        froze = isinstance(request, StartCmdMsg) or (
            isinstance(request, EngineRestartMsg) and request.action is not Command.ABORT
        )
        row = replace(
            row,
            outstanding=number,
            sent_at=now,
            due=None,
            may_be_frozen=row.may_be_frozen or froze,
        )
        run = replace(put(run, row), next_number=number + 1, prepare_sent=run.prepare_sent or froze)
        sends.append(Send(row.key, number, request, timeout, reason))
    return run, tuple(sends)


def is_commanded(run: Run, row: Progress) -> bool:
    """The step wants something of this member; otherwise it is polled."""
    match run.step:
        case RunStep.HOLD:
            return row.stage is not Stage.HELD
        case RunStep.PREPARE:
            return row.stage is not Stage.PREPARED
        case RunStep.REJOIN:
            return row.stage is not Stage.PREPARED and row.gone is None and not row.new_boot
        case RunStep.START:
            return row.stage is not Stage.STARTED
        case _:
            return False


def answered(run: Run, row: Progress, now: float) -> Progress:
    """An answer of any kind came; the next request is a poll until somebody decides otherwise."""
    return replace(row, outstanding=None, tries=0, polls=row.polls + 1, due=now + _poll_delay(run, row.polls))


def unanswered(run: Run, row: Progress, silent: bool, now: float) -> Progress:
    return replace(
        again(run, row, now),
        tries=row.tries + 1,
        unanswered_since=row.unanswered_since if row.tries else row.sent_at,
        timed_out=row.timed_out or silent,
    )


def again(run: Run, row: Progress, now: float) -> Progress:
    """The same request once more, but not at once: a gap after the one before."""
    return replace(row, outstanding=None, due=max(now, row.sent_at + run.settings.retry_gap_sec))


def asked_once_more(run: Run, now: float) -> Run:
    """Who was asked and has not answered: whoever waited for the answers may wait no more."""
    rows = {
        key: row if row.outstanding is None else replace(row, outstanding=None, due=now)
        for key, row in run.members.items()
    }
    return replace(run, members=rows)


def settled(row: Progress) -> Progress:
    """Nothing more to be sent in this step."""
    return replace(row, outstanding=None, due=None)


def _poll_delay(run: Run, polls: int) -> float:
    """The first polls are faster: many engines are dead again within seconds."""
    doubled: float = FIRST_POLL_SEC * 2.0 ** min(polls, 16)
    return min(run.settings.engine_relaunch_poll_interval_sec, doubled)


def _request(run: Run, row: Progress) -> tuple[Request | None, float, str]:
    settings = run.settings
    if run.step in SAYING_GOODBYE:
        return _farewell(run, row), settings.farewell_timeout_sec, run.message
    if row.left:
        return None, 0.0, "nobody is there"
    if not is_commanded(run, row):
        return Probe(run.id), settings.status_timeout_sec, "how far is it?"
    if run.step is RunStep.HOLD:
        return _command(run, row, Command.HOLD), settings.prepare_answer_timeout_sec, "stop and stay so"
    if run.step is RunStep.START:
        return _start(run, row), settings.start_answer_timeout_sec, "all are prepared: start"
    return _command(run, row, Command.PREPARE), settings.prepare_answer_timeout_sec, "stop and clean"


def _start(run: Run, row: Progress) -> Request:
    if not run.by_restart:
        return _command(run, row, Command.START)
    if run.cause.reason is RunReason.ASSEMBLE:
        return _placement(run, row)
    return _command(run, row, Command.RESTART)


def _farewell(run: Run, row: Progress) -> Request | None:
    if row.farewell is Farewell.ABORT:
        return _command(run, row, Command.ABORT)
    if row.farewell is not Farewell.STOP:
        return None
    return StopMsg(
        term=run.term,
        instance_id=run.instance.id,
        epoch=run.epoch,
        boot_id=row.member.boot_id,
        run_id=run.id,
        reason=run.message,
    )


def _command(run: Run, row: Progress, action: Command) -> EngineRestartMsg:
    places = action in (Command.PREPARE, Command.RESTART)
    return EngineRestartMsg(
        action=action,
        instance_id=run.instance.id,
        epoch=run.epoch,
        term=run.term,
        run_id=run.id,
        boot_id=row.member.boot_id,
        start=_placement(run, row) if places else None,
        config_digest=run.cause.config_digest if action is Command.PREPARE else None,
        reason=run.cause.text,
    )


def _placement(run: Run, row: Progress) -> StartCmdMsg:
    return placement(run.instance, row.member, epoch=run.epoch, run_id=run.id, term=run.term)
