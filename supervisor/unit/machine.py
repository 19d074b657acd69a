"""The life of a unit as a table: for every sub-state, what every event does.

`step` is a plain function; `supervisor.service` keeps the clock, carries out the actions and reports back. One
`deadline` in the state stands for every timer there is: the shell sends a Tick when it has come. Every cell is written
down, "nothing" included, and a test holds it so. The handlers are in `requests.py`, `ascent.py`, `running.py` and
`descent.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from supervisor.unit import ascent, descent, requests, running
from supervisor.unit.events import (
    CommandsDone,
    ConditionUnknown,
    ConditionUnmet,
    CriticalProcessDied,
    DependenciesMet,
    DependencyFailed,
    ErrorReported,
    Event,
    Exited,
    HandedOver,
    KeptAlive,
    LivenessFailed,
    LivenessRecovered,
    NotReady,
    Progressed,
    Ready,
    ResetFailed,
    Restart,
    Spawned,
    SpawnFailed,
    Start,
    Stop,
    StoppingByItself,
    Tick,
    TimeoutExtended,
    TreeGone,
    WatchBroke,
    WatchdogChanged,
    WatchdogTriggered,
)
from supervisor.unit.moves import Moment, Outcome
from supervisor.unit.state import Rules, UnitState
from supervisor.unit.states import SubState

Handler = Callable[[Moment, Any], Outcome]
"""Any, because each handler takes the event of its own row; a test calls every cell with its event."""
EventType = type[Event]


def nothing(at: Moment, event: Event) -> Outcome:
    return at.state, ()


def step(rules: Rules, state: UnitState, event: Event, now: float, jitter: float) -> Outcome:
    """The state after `event`, and the actions to carry out in order. `jitter` is a chance in [0, 1)."""
    if isinstance(event, Tick) and now < state.deadline:
        return state, ()  # the deadline was moved while the tick was under way
    return TABLE[state.sub_state][type(event)](Moment(rules, state, now, jitter), event)


_DEPENDENCIES: tuple[EventType, ...] = (DependenciesMet, DependencyFailed, ConditionUnmet, ConditionUnknown)
_SPAWN: tuple[EventType, ...] = (Spawned, SpawnFailed)
_PROCESS: tuple[EventType, ...] = (Exited, CriticalProcessDied, WatchBroke)
_PROBES: tuple[EventType, ...] = (Ready, NotReady, LivenessFailed, LivenessRecovered)
_SIGNS: tuple[EventType, ...] = (Progressed, KeptAlive, TimeoutExtended)
_SAYINGS: tuple[EventType, ...] = (WatchdogChanged, WatchdogTriggered, HandedOver, StoppingByItself, ErrorReported)
_NOTIFICATIONS = (*_SIGNS, *_SAYINGS)


def _row(handlers: Mapping[EventType, Handler], *ignored: EventType) -> Mapping[EventType, Handler]:
    return MappingProxyType({**dict.fromkeys(ignored, nothing), **handlers})


_RUNNING: Mapping[EventType, Handler] = MappingProxyType(
    {
        Start: nothing,  # it is under way, or up
        ResetFailed: requests.forgive,
        Exited: running.exited,
        CriticalProcessDied: running.lose_critical_process,
        WatchBroke: running.lose_critical_process,
        WatchdogChanged: running.note_watchdog,
        WatchdogTriggered: running.watchdog_triggered,
        HandedOver: running.hand_over,
        StoppingByItself: running.begin_stopping,
        ErrorReported: running.note_error,
    }
)
"""What holds while the main process is meant to live."""

_ACTIVE: Mapping[EventType, Handler] = MappingProxyType(
    {
        **_RUNNING,
        Stop: requests.stop_active,
        Restart: requests.restart_active,
        Ready: running.become_ready,
        NotReady: running.become_unready,
        LivenessFailed: running.judge_liveness,
        LivenessRecovered: running.recover,
        KeptAlive: running.keep_alive,
        WatchdogChanged: running.change_watchdog,
        Tick: running.watchdog_expired,
    }
)

_ACTIVE_IGNORES = (*_DEPENDENCIES, CommandsDone, *_SPAWN, TreeGone, Progressed, TimeoutExtended)

_DESCENDING: Mapping[EventType, Handler] = MappingProxyType(
    {
        Start: requests.start_afterwards,
        Stop: requests.join_stop,
        Restart: requests.restart_afterwards,
        ResetFailed: requests.forgive,
        Exited: descent.note_exit,
    }
)

_LADDER: Mapping[EventType, Handler] = MappingProxyType(
    {**_DESCENDING, Spawned: ascent.spawned_too_late, TreeGone: descent.tree_gone}
)
"""What holds while the stop ladder runs."""

_LADDER_IGNORES = (
    *_DEPENDENCIES,
    CommandsDone,
    SpawnFailed,
    CriticalProcessDied,
    WatchBroke,
    *_PROBES,
    *_NOTIFICATIONS,  # a stop is not extended: the ladder's grace is what the stopping were promised
)

_NOTHING_RUNS = (*_DEPENDENCIES, CommandsDone, *_SPAWN, *_PROCESS, TreeGone, *_PROBES, *_NOTIFICATIONS)

_FAILED = _row(
    {Start: requests.begin, Restart: requests.begin, Stop: nothing, ResetFailed: requests.reset}, Tick, *_NOTHING_RUNS
)

TABLE: Mapping[SubState, Mapping[EventType, Handler]] = MappingProxyType(
    {
        SubState.DEAD: _row(
            {Start: requests.begin, Restart: requests.begin, Stop: nothing, ResetFailed: requests.forgive},
            Tick,
            *_NOTHING_RUNS,
        ),
        SubState.WAITING: _row(
            {
                Start: nothing,
                Stop: requests.call_off,
                Restart: nothing,  # it is about to start anyway
                ResetFailed: requests.forgive,
                DependenciesMet: ascent.dependencies_met,
                DependencyFailed: ascent.dependency_failed,
                ConditionUnmet: ascent.skip,
                ConditionUnknown: ascent.condition_unknown,
            },
            CommandsDone,
            *_SPAWN,
            *_PROCESS,
            TreeGone,
            *_PROBES,
            *_NOTIFICATIONS,
            Tick,
        ),
        SubState.START_PRE: _row(
            {
                Start: nothing,
                Stop: requests.stop,
                Restart: requests.restart_starting,
                ResetFailed: requests.forgive,
                CommandsDone: ascent.start_pre_done,
                SpawnFailed: ascent.spawn_failed,  # what the spawn needs is made ready before the commands
                Tick: ascent.start_timed_out,
            },
            *_DEPENDENCIES,
            Spawned,
            *_PROCESS,
            TreeGone,
            *_PROBES,
            *_NOTIFICATIONS,
        ),
        SubState.START: _row(
            {
                Start: nothing,
                Stop: requests.stop,
                Restart: requests.restart_starting,
                ResetFailed: requests.forgive,
                Spawned: ascent.spawned,
                SpawnFailed: ascent.spawn_failed,
                Tick: ascent.start_timed_out,
            },
            *_DEPENDENCIES,
            CommandsDone,
            *_PROCESS,  # told only after Spawned
            TreeGone,
            *_PROBES,
            *_NOTIFICATIONS,
        ),
        SubState.LOADING: _row(
            {
                **_RUNNING,
                Stop: requests.stop,
                Restart: requests.restart_starting,
                Ready: ascent.loaded,
                NotReady: ascent.note_not_ready,
                Progressed: ascent.progressed,
                TimeoutExtended: ascent.extend_start,
                Tick: ascent.start_timed_out,
            },
            *_DEPENDENCIES,
            CommandsDone,
            *_SPAWN,
            TreeGone,
            LivenessFailed,  # suspended until it has been ready once
            LivenessRecovered,
            KeptAlive,  # the watchdog is armed when it is active
        ),
        SubState.RESTORING: _row(
            {
                **_RUNNING,
                Exited: ascent.restore_exited,
                CriticalProcessDied: ascent.restore_lost_process,
                WatchBroke: ascent.restore_lost_process,
                WatchdogTriggered: ascent.restore_triggered_watchdog,
                StoppingByItself: nothing,  # what follows a restore that ends is the cold start, whatever it says
                Stop: requests.stop,
                Restart: requests.restart_starting,
                Ready: ascent.loaded,
                NotReady: ascent.note_not_ready,
                Progressed: ascent.progressed,
                TimeoutExtended: ascent.extend_start,
                Tick: ascent.restore_timed_out,
            },
            *_DEPENDENCIES,
            CommandsDone,
            *_SPAWN,
            TreeGone,
            LivenessFailed,
            LivenessRecovered,
            KeptAlive,
        ),
        SubState.START_POST: _row(
            {
                **_RUNNING,
                Stop: requests.stop,
                Restart: requests.restart_starting,
                CommandsDone: ascent.start_post_done,
                Ready: running.become_ready,
                NotReady: running.become_unready,
                LivenessFailed: running.judge_liveness,
                LivenessRecovered: running.recover,
                Tick: ascent.start_timed_out,
            },
            *_DEPENDENCIES,
            *_SPAWN,
            TreeGone,
            *_SIGNS,
        ),
        SubState.READY: _row(_ACTIVE, *_ACTIVE_IGNORES),
        SubState.UNHEALTHY: _row(_ACTIVE, *_ACTIVE_IGNORES),
        SubState.EXITED: _row(
            {
                Start: nothing,
                Stop: requests.stop_active,
                Restart: requests.restart_active,
                ResetFailed: requests.forgive,
            },
            Tick,
            *_NOTHING_RUNS,
        ),
        SubState.DIAGNOSE: _row(
            {
                **_DESCENDING,
                Exited: descent.died_under_diagnosis,
                CommandsDone: descent.diagnosed,
                Tick: descent.diagnosed,
            },
            *_DEPENDENCIES,
            *_SPAWN,
            CriticalProcessDied,
            WatchBroke,
            TreeGone,
            *_PROBES,
            *_NOTIFICATIONS,
        ),
        SubState.STOPPING: _row(
            {
                **_DESCENDING,
                Exited: descent.ended_by_itself,
                HandedOver: running.hand_over,
                ErrorReported: running.note_error,
                Tick: descent.stopping_overdue,
            },
            *_DEPENDENCIES,
            CommandsDone,
            *_SPAWN,
            CriticalProcessDied,  # as it should: it stops
            WatchBroke,
            TreeGone,
            *_PROBES,
            *_SIGNS,  # the time of a stop is not extended
            WatchdogChanged,
            WatchdogTriggered,
            StoppingByItself,
        ),
        SubState.STOP: _row(
            {**_DESCENDING, CommandsDone: descent.stop_commands_done, Tick: descent.stop_commands_done},
            *_DEPENDENCIES,
            *_SPAWN,
            CriticalProcessDied,
            WatchBroke,
            TreeGone,
            *_PROBES,
            *_NOTIFICATIONS,
        ),
        SubState.STOP_TERM: _row({**_LADDER, Tick: descent.grace_over}, *_LADDER_IGNORES),
        SubState.STOP_KILL: _row({**_LADDER, Tick: descent.ladder_hangs}, *_LADDER_IGNORES),
        SubState.CLEANING: _row({**_LADDER, Tick: descent.ladder_hangs}, *_LADDER_IGNORES),
        SubState.STOP_POST: _row(
            {**_DESCENDING, CommandsDone: descent.stop_post_done, Tick: descent.stop_post_overdue},
            *_DEPENDENCIES,
            *_SPAWN,
            CriticalProcessDied,
            WatchBroke,
            TreeGone,
            *_PROBES,
            *_NOTIFICATIONS,
        ),
        SubState.AUTO_RESTART: _row(
            {
                Start: requests.begin_before_its_time,
                Stop: requests.call_off,
                Restart: requests.begin_before_its_time,
                ResetFailed: requests.forgive,
                Tick: descent.back_off_over,
            },
            *_NOTHING_RUNS,
        ),
        SubState.FAILED: _FAILED,
        SubState.START_LIMIT_HIT: _FAILED,
        SubState.UNKILLABLE: _row(
            {
                Start: requests.clear_survivors_first,
                Restart: requests.clear_survivors_first,
                Stop: requests.try_survivors_again,
                ResetFailed: requests.forgive,
                Exited: descent.note_exit,
                TreeGone: descent.survivors_ended,
            },
            Tick,
            *_DEPENDENCIES,
            CommandsDone,
            *_SPAWN,
            CriticalProcessDied,
            WatchBroke,
            *_PROBES,
            *_NOTIFICATIONS,
        ),
    }
)
