"""What an answer, a heartbeat or a report says about one member: facts written into its row.

Nothing is decided here about the run: the checks of the steps read the table afterwards. The codes are the
table "Answers" of design 4.
"""

from __future__ import annotations

from dataclasses import replace

from controller.model.instance import endpoint_ids
from controller.model.member import Member, Observation, same_boot, why_not_normal
from controller.model.relaunch.dispatch import SAYING_GOODBYE, again, answered, is_commanded, settled, unanswered
from controller.model.relaunch.exchange import (
    Accepted,
    Answer,
    Fault,
    Refused,
    Registered,
    Silence,
    Unreachable,
)
from controller.model.relaunch.run import Farewell, Progress, Run, RunStep, Stage
from supervisor.wire import ErrorCode, Step

WAIT = frozenset({ErrorCode.BUSY, ErrorCode.RESTORING})
"""Try again until the step's deadline (F14)."""


def take_answer(run: Run, row: Progress, answer: Answer, now: float) -> Progress:
    """The answer to the row's outstanding request."""
    if run.step in SAYING_GOODBYE:
        return _take_farewell(run, row, answer, now)
    match answer:
        case Observation():
            return observe(run, _reached(run, answered(run, row, now), now), answer)
        case Accepted():
            return _take_accepted(run, row, answer, now)
        case Refused():
            return _take_refused(run, row, answer, now)
        case Unreachable(kind, message):
            return _take_unanswered(run, row, message, silent=kind is Silence.SILENT, now=now)


def told_boot(answer: Answer) -> str | None:
    return None if isinstance(answer, Unreachable) else answer.boot_id


def compare_boot(row: Progress, boot_id: str | None) -> Progress:
    """Every message and every answer of every step is compared: nothing times out on a quick restart (F3)."""
    if row.left or same_boot(row.member.boot_id, boot_id):
        return row
    return _left(row)


def observe(run: Run, row: Progress, seen: Observation) -> Progress:
    """A status answer or a heartbeat of this boot; what it says about another epoch says nothing of this."""
    row = replace(row, seen=seen)
    if seen.leaving and run.prepare_sent:
        return replace(row, gone=row.gone or f"{row.address} is leaving")
    if row.stage is not Stage.STARTED or not row.member.tells_epoch or seen.epoch != run.epoch:
        return row
    if seen.step is Step.FAILED:
        return replace(row, died=f"the engines of {row.address} failed to start in epoch {run.epoch}")
    if seen.abnormal:
        return replace(row, died=f"endpoint {seen.abnormal[0]} on {row.address} is abnormal again")
    return row


def take_heartbeat(run: Run, row: Progress, seen: Observation) -> Progress:
    row = compare_boot(row, seen.boot_id)
    if row.left:
        return row
    previous = row.heartbeat
    if previous and 0 < seen.sequence < previous.sequence:
        return row
    frozen = row.may_be_frozen or seen.freeze_remaining_sec > 0
    return observe(run, replace(row, heartbeat=seen, may_be_frozen=frozen), seen)


def take_fault(run: Run, row: Progress, fault: Fault) -> Progress:
    """An older epoch's death is part of what the run repairs (F15); its reporter froze itself all the same."""
    row = replace(row, may_be_frozen=True)
    if fault.hardware:
        return _refuses(row, fault.message)
    if fault.epoch != run.epoch or row.stage is not Stage.STARTED:
        return row
    return replace(row, died=f"{fault.message}, again in epoch {run.epoch}", died_by_canary=fault.canary)


def take_registration(row: Progress, event: Registered) -> Progress:
    if event.boot_id is not None and event.boot_id == row.member.boot_id:
        return row
    return life_over(row, event.newcomer)


def life_over(row: Progress, newcomer: Member | None) -> Progress:
    """It has registered in another boot, and may join unless `newcomer` is None."""
    row = replace(_left(row), new_boot=True, newcomer=newcomer)
    return row if newcomer else replace(row, cannot=f"the new container of {row.address} may not join")


def take_silence(run: Run, row: Progress) -> Progress:
    """It was asked apart from this run, because its heartbeats stay away, and did not answer."""
    if run.step is RunStep.AWAIT and not _others_were_heard_since(run, row):
        return row
    return replace(row, gone=row.gone or f"{row.address} cannot be reached")


def last_heartbeat(row: Progress) -> float:
    return row.heartbeat.received_at if row.heartbeat else row.member.last_heard


def why_not_ready(run: Run, row: Progress, now: float) -> str | None:
    """None only if this member lets the run be DONE: C5, and C6's freshness."""
    ids = endpoint_ids(run.instance, row.member)
    for seen in (row.seen, row.heartbeat):
        if why := why_not_normal(row.member, seen, run.epoch, ids):
            return why
        if seen and seen.received_at < row.stage_since:
            return f"{row.address} has not been heard of since it was started"
    if now - last_heartbeat(row) > run.instance_settings.fresh_sec:
        return f"the heartbeats of {row.address} stay away"
    return None


def _others_were_heard_since(run: Run, row: Progress) -> bool:
    """Else it may be us who are cut off from all of them, and what loads needs nobody to go on loading."""
    newest = max(last_heartbeat(other) for other in run.rows)
    return newest - last_heartbeat(row) > run.instance_settings.fresh_sec


def _reached(run: Run, row: Progress, now: float) -> Progress:
    if run.step is RunStep.REJOIN and row.gone:
        # The same life, which was only cut off: now it can be told again.
        row = replace(row, gone=None, due=now)
    return replace(row, stage=Stage.PROBED) if row.stage is Stage.NONE else row


def _take_accepted(run: Run, row: Progress, answer: Accepted, now: float) -> Progress:
    if run.step is RunStep.START and answer.epoch not in (0, run.epoch):
        return _take_unanswered(run, row, f"it answers for epoch {answer.epoch}", silent=False, now=now)
    if run.step is RunStep.START:
        return replace(answered(run, row, now), stage=Stage.STARTED, stage_since=now)
    if answer.step is Step.FAILED:
        return _refuses(row, f"{row.address} cannot prepare: {answer.message or 'failed'}")
    if answer.step is Step.PREPARED and answer.epoch == run.epoch:
        return replace(answered(run, row, now), stage=Stage.PREPARED, stage_since=now)
    if answer.step is Step.HELD and answer.epoch == run.epoch:
        return replace(settled(row), stage=Stage.HELD, stage_since=now)
    return replace(again(run, row, now), tries=0)


def _take_refused(run: Run, row: Progress, answer: Refused, now: float) -> Progress:
    if not is_commanded(run, row):
        return _take_unanswered(run, row, answer.message, silent=False, now=now)
    if run.by_restart and row.timed_out and answer.code in (ErrorCode.BUSY, ErrorCode.CONFLICT):
        return replace(answered(run, row, now), stage=Stage.STARTED, stage_since=now)
    if answer.code in WAIT:
        return again(run, row, now)
    if answer.code is ErrorCode.STALE_EPOCH:
        return replace(settled(row), higher_epoch=max(answer.epoch or 0, run.epoch))
    if answer.code is ErrorCode.WRONG_BOOT:
        return _left(row)
    return _refuses(row, f"{row.address} answers {answer.code}: {answer.message}")


def _left(row: Progress) -> Progress:
    """Its boot is over: there is nobody to send anything to."""
    gone = row.gone or f"the container of {row.address} restarted"
    return settled(replace(row, left=True, gone=gone))


def _refuses(row: Progress, why: str) -> Progress:
    return replace(settled(row), cannot=why)


def _take_unanswered(run: Run, row: Progress, message: str, *, silent: bool, now: float) -> Progress:
    row = unanswered(run, row, silent, now)
    limit = run.settings.engine_relaunch_nm_unreachable_threshold
    if is_commanded(run, row):
        limit = run.settings.engine_relaunch_dispatch_retries
    if row.tries < limit:
        return row
    gone = f"{row.address} cannot be reached, {row.tries} tries: {message}"
    if run.step is RunStep.REJOIN:
        return _is_still_away(run, row, gone, now)
    if is_commanded(run, row) or run.step is RunStep.PROBE:
        return settled(replace(row, gone=gone))
    stale = now - last_heartbeat(row) > run.instance_settings.heartbeat_timeout_active_sec
    if stale and (run.step is not RunStep.AWAIT or _others_were_heard_since(run, row)):
        return settled(replace(row, gone=f"{gone}; its heartbeats stay away too"))
    return replace(row, due=now + run.settings.engine_relaunch_poll_interval_sec)


def _is_still_away(run: Run, row: Progress, gone: str, now: float) -> Progress:
    """Whoever is heard and still cannot be told anything is not away: waiting does not bring it back (F21)."""
    if last_heartbeat(row) > row.unanswered_since:
        return _refuses(row, f"{gone}, but its heartbeats come")
    return replace(row, gone=gone, due=now + run.settings.engine_relaunch_poll_interval_sec)


def _take_farewell(run: Run, row: Progress, answer: Answer, now: float) -> Progress:
    match answer:
        case Accepted(will_exit=will_exit):
            if row.farewell is Farewell.ABORT and run.step is RunStep.PHASE2 and not will_exit:
                return _stop_instead(row, now)
            return replace(settled(row), farewell=Farewell.ACKNOWLEDGED)
        case Refused(code=ErrorCode.WRONG_BOOT):
            return _left(row)
        case Refused() if row.farewell is Farewell.ABORT and run.step is RunStep.PHASE2:
            return _stop_instead(row, now)
        case Refused(code, message) if code not in WAIT:
            return replace(settled(row), farewell=Farewell.FAILED, cannot=f"{code}: {message}")
        case _:
            row = unanswered(run, row, silent=False, now=now)
            if row.tries < run.settings.engine_relaunch_dispatch_retries:
                return row
            return replace(settled(row), farewell=Farewell.FAILED, cannot=_words(answer))


def _stop_instead(row: Progress, now: float) -> Progress:
    """It does not end itself by losing its freeze: its engine is neither dead nor prepared."""
    return replace(row, farewell=Farewell.STOP, outstanding=None, tries=0, due=now)


def _words(answer: Answer) -> str:
    return answer.message if isinstance(answer, Unreachable | Refused) else "no answer"
