"""The way down: one `Descent` for stop requests, crashes, time-outs and oneshots that are done.

They differ in what they write into it. A descent ends the whole tree, runs ExecStopPost, and only then asks what
follows; nothing is ever started beside what is left of an earlier invocation.
"""

from __future__ import annotations

from msgspec.structs import replace

from supervisor.unit import restart
from supervisor.unit.events import (
    Action,
    Commands,
    Diagnose,
    Event,
    Exited,
    RecordEnding,
    ReportStartLimit,
    RunCommands,
    StopTree,
    TreeGone,
)
from supervisor.unit.model import ServiceType
from supervisor.unit.moves import Moment, Outcome, begin_invocation, rest, start_over, stopped, to, whose
from supervisor.unit.restart import Ending, Result
from supervisor.unit.state import Descent, Fault, Then
from supervisor.unit.states import SubState

KILL_DEADLINE_SEC = 10.0
"""From SIGKILL until a process that is still there is called a survivor."""
DIAGNOSE_SEC = 5.0
"""DiagnoseExec never delays a stop by more."""
BACKSTOP_SEC = 5.0
"""So much later than the stop ladder's own deadlines the machine stops believing that it will answer."""


def note_exit(at: Moment, event: Exited) -> Outcome:
    return replace(at.state, exit=event, exited_at=at.now), ()


def survivors_ended(at: Moment, event: TreeGone) -> Outcome:
    """A ladder that answers late: what nobody could kill in time may have ended after all."""
    noted = replace(at.state, exit=event.exit or at.state.exit)
    if event.survivors:
        return noted, ()
    return to(noted, SubState.FAILED, at.now, f"{at.state.reason}; it has ended since"), ()


def stop_commands_done(at: Moment, event: Event) -> Outcome:
    """ExecStop done, failed or out of time: the signals follow in any case."""
    descent = descent_of(at)
    return descend(at, SubState.STOP_TERM, descent)


def grace_over(at: Moment, event: Event) -> Outcome:
    """The ladder has sent SIGKILL by itself; what remains is to say so and to wait."""
    deadline = at.now + KILL_DEADLINE_SEC + BACKSTOP_SEC
    return to(at.state, SubState.STOP_KILL, at.now, "still there after the grace: killed", deadline), ()


def ladder_hangs(at: Moment, event: Event) -> Outcome:
    return tree_gone(at, TreeGone(at.state.exit, ("whatever is left: the stop ladder does not answer",)))


def stop_post_overdue(at: Moment, event: Event) -> Outcome:
    return descend(at, SubState.CLEANING, replace(descent_of(at), grace_sec=0.0))


def tree_gone(at: Moment, event: TreeGone) -> Outcome:
    descent = descent_of(at)
    at = replace(at, state=replace(at.state, exit=event.exit or at.state.exit))
    at, recorded = _record(at, descent)
    if event.survivors:
        return rest(at, SubState.UNKILLABLE, f"cannot kill {', '.join(event.survivors)}"), recorded
    remains = descent.then is Then.COMPLETE and at.rules.remain_after_exit
    if Commands.STOP_POST in at.rules.commands and not descent.posted and not remains:
        return _run_stop_post(at, replace(descent, posted=True), recorded)
    state, actions = _conclude(at, descent)
    return state, recorded + actions


def stop_post_done(at: Moment, event: Event) -> Outcome:
    return _conclude(at, descent_of(at))


def back_off_over(at: Moment, event: Event) -> Outcome:
    return begin_invocation(at, at.state.history, at.state.reason, restarts=1)


def fail(at: Moment, fault: Fault) -> Outcome:
    """End an invocation that nobody asked to end; the restart rule says what follows."""
    return leave(at, _failure(at, fault, at.rules.stop.relaunch_timeout_sec))


def fail_alive(at: Moment, fault: Fault, *, signal: str | None = None, grace_sec: float | None = None) -> Outcome:
    """As `fail`, of what is up and not well: there is something to be seen before it is ended."""
    grace = at.rules.stop.relaunch_timeout_sec if grace_sec is None else grace_sec
    return evidence_first(at, replace(_failure(at, fault, grace), signal=signal))


def evidence_first(at: Moment, descent: Descent) -> Outcome:
    if not at.rules.diagnoses or at.state.pid is None:
        return go_down(at, descent)
    state = replace(at.state, descent=descent, healthy_since=None, ready=False)
    words = words_of(descent)
    return to(state, SubState.DIAGNOSE, at.now, words, at.now + DIAGNOSE_SEC), (Diagnose(words),)


def diagnosed(at: Moment, event: Event) -> Outcome:
    """Done, failed, or out of time."""
    return go_down(at, descent_of(at))


def died_under_diagnosis(at: Moment, event: Exited) -> Outcome:
    """Of the dead nothing more is to be learned."""
    at = replace(at, state=replace(at.state, exit=event, exited_at=at.now))
    return leave(at, descent_of(at))


def go_down(at: Moment, descent: Descent) -> Outcome:
    """ExecStop first, if somebody has asked for the stop and there is time for it."""
    if descent.fault is not None or Commands.STOP not in at.rules.commands or descent.grace_sec <= 0:
        return leave(at, descent)
    state = replace(at.state, descent=descent, healthy_since=None, ready=False)
    state = to(state, SubState.STOP, at.now, words_of(descent), at.now + descent.grace_sec)
    return state, (RunCommands(Commands.STOP, words_of(descent)),)


def leave(at: Moment, descent: Descent) -> Outcome:
    asked = descent.fault is None
    return descend(at, SubState.STOP_TERM if asked or at.state.pid is not None else SubState.CLEANING, descent)


def complete(at: Moment) -> Outcome:
    at = replace(at, state=replace(at.state, history=start_over(at)))
    descent = Descent(Then.COMPLETE, at.rules.stop.timeout_sec, reason="done")
    return descend(at, SubState.CLEANING, descent)


def stop_by_itself(at: Moment) -> Outcome:
    """Nobody has asked for it, and nothing is sent: the restart rule decides by how it ends, and when."""
    words = "it stops by itself (STOPPING=1)"
    descent = Descent(Then.DECIDE, at.rules.stop.timeout_sec, reason=words, healthy_sec=healthy_sec(at))
    state = replace(at.state, descent=descent, healthy_since=None, ready=False)
    return to(state, SubState.STOPPING, at.now, words, at.now + descent.grace_sec), ()


def ended_by_itself(at: Moment, event: Exited) -> Outcome:
    at = replace(at, state=replace(at.state, exit=event, exited_at=at.now))
    fault = fault_of_exit(at, event, ready=at.state.ready_once)
    return _stopped_by_itself(at, replace(fault, cause=f"{fault.cause}, after it said that it stops"))


def stopping_overdue(at: Moment, event: Event) -> Outcome:
    words = f"not stopped within {at.rules.stop.timeout_sec:g} s after it said that it stops (TimeoutStopSec)"
    return _stopped_by_itself(at, Fault(Result.TIMEOUT, words))


def _stopped_by_itself(at: Moment, fault: Fault) -> Outcome:
    descent = descent_of(at)
    if descent.asked_by is not None:  # since then; the rest of its tree has what is left of the time
        return leave(at, replace(descent, grace_sec=max(0.0, at.state.deadline - at.now)))
    fault = with_report(at, fault)
    grace = at.rules.stop.relaunch_timeout_sec if at.state.exit is not None else 0.0
    return leave(at, replace(descent, fault=fault, reason=fault.cause, grace_sec=grace))


def fault_of_exit(at: Moment, event: Exited, *, ready: bool) -> Fault:
    """How an exit is judged that nobody asked for, of a unit that had been ready or not."""
    words = restart.exit_words(event.code, event.signal, event.core_dumped)
    rules = at.rules
    result = restart.result_of_exit(rules.restart, rules.clean_exits, event.code, event.signal, event.core_dumped)
    if result is Result.SUCCESS and not ready and rules.type is not ServiceType.ONESHOT:
        return Fault(Result.PROTOCOL, f"{words} before it was ready")
    return Fault(result, words)


def with_report(at: Moment, fault: Fault) -> Fault:
    """With what the unit itself said of it."""
    return fault if at.state.error is None else replace(fault, cause=f"{fault.cause}; it reported {at.state.error}")


def descend(at: Moment, sub_state: SubState, descent: Descent) -> Outcome:
    state = replace(at.state, descent=descent, healthy_since=None, ready=False)
    words = words_of(descent)
    # In stop-term the grace comes first and SIGKILL shows as stop-kill; elsewhere one deadline covers both.
    margin = 0.0 if sub_state is SubState.STOP_TERM else KILL_DEADLINE_SEC + BACKSTOP_SEC
    state = to(state, sub_state, at.now, words, at.now + descent.grace_sec + margin)
    return state, (StopTree(descent.signal or at.rules.stop.kill_signal, descent.grace_sec, words),)


def descent_of(at: Moment) -> Descent:
    assert at.state.descent is not None  # every sub-state on the way down is entered through one
    return at.state.descent


def words_of(descent: Descent) -> str:
    return descent.reason if descent.asked_by is None else f"asked by {whose(descent.asked_by, descent.reason)}"


def _failure(at: Moment, fault: Fault, grace_sec: float) -> Descent:
    fault = with_report(at, fault)
    return Descent(Then.DECIDE, grace_sec, reason=fault.cause, fault=fault, healthy_sec=healthy_sec(at))


def healthy_sec(at: Moment) -> float:
    return 0.0 if at.state.healthy_since is None else at.now - at.state.healthy_since


def _record(at: Moment, descent: Descent) -> tuple[Moment, tuple[Action, ...]]:
    """Write down how this invocation ended, once, and only if something ran or was to run."""
    state = at.state
    known = state.last_ending is not None and state.last_ending.invocation == state.invocation
    if known or (descent.fault is None and state.exit is None):
        return at, ()
    ending = _ending(at, descent)
    history = state.history if state.ready_once else start_over(at)
    state = replace(state, last_ending=ending, history=history)
    return replace(at, state=state), (RecordEnding(ending, ending.cause),)


def _ending(at: Moment, descent: Descent) -> Ending:
    state, fault = at.state, descent.fault
    code, signal, core_dumped = None, None, False
    if state.exit is not None:
        code, signal, core_dumped = state.exit.code, state.exit.signal, state.exit.core_dumped
    elif fault is not None:
        code = fault.code
    return Ending(
        result=Result.SUCCESS if fault is None else fault.result,
        cause=words_of(descent) if fault is None else fault.cause,
        code=code,
        signal=signal,
        core_dumped=core_dumped,
        asked_by=descent.asked_by if fault is None else None,
        pid=state.main_pid,
        invocation=state.invocation,
        began_at=at.now if state.spawned_at is None else state.spawned_at,
        ended_at=at.now if state.exited_at is None else state.exited_at,
        healthy_sec=descent.healthy_sec,
    )


def _run_stop_post(at: Moment, descent: Descent, recorded: tuple[Action, ...]) -> Outcome:
    state = replace(at.state, descent=descent)
    state = to(state, SubState.STOP_POST, at.now, at.state.reason, at.now + at.rules.stop.timeout_sec)
    return state, (*recorded, RunCommands(Commands.STOP_POST, at.state.reason))


def _conclude(at: Moment, descent: Descent) -> Outcome:
    """Nothing of the invocation is left: what follows?"""
    match descent.then:
        case Then.REST:
            return stopped(at, descent.asked_by, descent.reason), ()
        case Then.START:
            history = restart.forgiven(at.state.history)
            return begin_invocation(at, history, words_of(descent), restarts=1)
        case Then.COMPLETE if at.rules.remain_after_exit:
            state = replace(at.state, descent=None, ready=True, ready_once=True, healthy_since=at.now)
            return to(state, SubState.EXITED, at.now, "done"), ()
        case Then.COMPLETE:
            return replace(rest(at, SubState.DEAD, "done"), completed=True), ()
        case Then.DECIDE:
            return _decide(at)
        case Then.START_COLD:
            # The restore that failed and this are one start, for the limit too.
            history = replace(at.state.history, starts=at.state.history.starts[:-1])
            state, actions = begin_invocation(at, history, descent.reason, restarts=0)
            return replace(state, cold=True), actions


def _decide(at: Moment) -> Outcome:
    ending = at.state.last_ending
    assert ending is not None  # an invocation that was not asked to end has a fault, and so an ending
    match restart.decide(at.rules.restart, at.state.history, ending, at.now, at.jitter):
        case restart.Restart(when, history, reason) if when <= at.now:
            return begin_invocation(at, history, reason, restarts=1)
        case restart.Restart(when, history, reason):
            state = replace(rest(at, SubState.AUTO_RESTART, reason), history=history, deadline=when)
            return state, ()
        case restart.Stay(failed, history, reason):
            resting = rest(at, SubState.FAILED if failed else SubState.DEAD, reason)
            return replace(resting, history=history), ()
        case restart.GiveUp(history, reason, action):
            hardware = ending.result is Result.HARDWARE
            resting = rest(at, SubState.FAILED if hardware else SubState.START_LIMIT_HIT, reason)
            return replace(resting, history=history), (ReportStartLimit(action, reason),)
