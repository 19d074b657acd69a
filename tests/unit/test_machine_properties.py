"""Any order of events keeps the promises of the unit machine.

The world below obeys the shell's contract and nothing else: operations answer late, in any order, or never.
"""

from __future__ import annotations

import math

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from supervisor.unit import events as ev
from supervisor.unit.events import Commands, Event
from supervisor.unit.machine import step
from supervisor.unit.model import LivenessAction, RestartPolicy, RestartSettings, ServiceType, StartSettings
from supervisor.unit.restart import CleanExits
from supervisor.unit.start_clock import ProgressKind
from supervisor.unit.state import Rules, UnitState
from supervisor.unit.states import AT_REST, RunState, SubState

NO_DEADLINE = AT_REST | {SubState.WAITING, SubState.READY, SubState.UNHEALTHY, SubState.EXITED}
"""A watchdog may set one in ready and unhealthy."""

rules = st.builds(
    Rules,
    type=st.sampled_from(ServiceType),
    commands=st.frozensets(st.sampled_from(Commands)),
    remain_after_exit=st.booleans(),
    clean_exits=st.sampled_from(CleanExits),
    liveness_action=st.sampled_from(LivenessAction),
    diagnoses=st.booleans(),
    restores=st.booleans(),
    watchdog_sec=st.sampled_from([None, 10.0]),
    restart=st.builds(RestartSettings, policy=st.sampled_from(RestartPolicy), limit_burst=st.integers(0, 3)),
    start=st.builds(StartSettings, timeout_sec=st.just(90.0), stall_sec=st.sampled_from([None, 20.0])),
)
exits = st.sampled_from(
    [
        ev.Exited(0, None),
        ev.Exited(1, None),
        ev.Exited(None, "SIGKILL"),
        ev.Exited(None, "SIGSEGV", True),
        ev.Exited(None, None),
    ]
)
graces = st.sampled_from([None, 0.0, 1.0, 100.0])


class UnitLife(RuleBasedStateMachine):
    @initialize(rules=rules)
    def unit(self, rules: Rules) -> None:
        self.unit_rules = rules
        self.state = UnitState()
        self.now = 0.0
        self.jitter = 0.0
        self.awaiting_dependencies = False
        self.commands: Commands | str | None = None
        self.spawning = False
        self.ladder = False
        self.main_alive = False
        self.tree_alive = False
        self.wanted = False
        self.recorded: list[int] = []

    def happen(self, event: Event) -> None:
        before = self.state
        self.state, actions = step(self.unit_rules, self.state, event, self.now, self.jitter)
        if self.state.sub_state is not SubState.WAITING:
            self.awaiting_dependencies = False
        for action in actions:
            self.carry_out(action)
        assert self.state.invocation >= before.invocation
        assert self.state.ended >= before.ended or before.sub_state is SubState.UNKILLABLE
        assert self.state.restarts >= before.restarts

    def carry_out(self, action: ev.Action) -> None:
        assert action.reason
        match action:
            case ev.AwaitDependencies():
                assert not self.something_lives(), "a start begins beside what is left"
                assert self.wanted, "started although the last word was stop"
                self.awaiting_dependencies = True
            case ev.RunCommands(which):
                assert not self.ladder
                if which in (Commands.START_PRE, Commands.STOP_POST):
                    assert not self.tree_alive
                self.commands = which
            case ev.Diagnose():
                assert self.main_alive, "evidence of the dead"
                assert self.state.sub_state is SubState.DIAGNOSE
            case ev.Spawn():
                assert not self.something_lives(), "two processes"
                assert self.wanted, "spawned although the last word was stop"
                self.spawning = True
            case ev.FollowMain(pid):
                assert self.main_alive
                assert self.state.pid == pid
            case ev.StopTree(_, grace_sec):
                assert grace_sec >= 0
                self.ladder = True
            case ev.RecordEnding(ending):
                assert ending.invocation not in self.recorded
                self.recorded.append(ending.invocation)
            case ev.ReportStartLimit():
                assert self.state.sub_state is SubState.START_LIMIT_HIT

    def something_lives(self) -> bool:
        return self.spawning or self.tree_alive or self.commands is not None or self.ladder

    # --- asked for

    @rule()
    def start(self) -> None:
        self.wanted = True
        self.happen(ev.Start("test"))

    @rule(grace=graces)
    def stop(self, grace: float | None) -> None:
        self.wanted = False
        self.happen(ev.Stop("test", "because", grace))

    @rule(grace=graces)
    def restart(self, grace: float | None) -> None:
        self.wanted = True
        self.happen(ev.Restart("test", "because", grace))

    @rule()
    def reset_failed(self) -> None:
        self.happen(ev.ResetFailed())

    # --- answers

    @precondition(lambda self: self.awaiting_dependencies)
    @rule(
        answer=st.sampled_from(
            [ev.DependenciesMet()] * 3
            + [ev.DependencyFailed("x failed"), ev.ConditionUnmet("no"), ev.ConditionUnknown("?")]
        )
    )
    def dependencies(self, answer: Event) -> None:
        self.awaiting_dependencies = False
        self.happen(answer)

    @precondition(lambda self: self.commands is not None and not self.ladder)
    @rule(failure=st.sampled_from([None, None, "it failed"]))
    def commands_done(self, failure: str | None) -> None:
        self.commands = None
        self.happen(ev.CommandsDone(failure))

    @precondition(lambda self: self.state.sub_state is SubState.DIAGNOSE)
    @rule()
    def evidence_is_collected(self) -> None:
        self.happen(ev.CommandsDone())

    @precondition(lambda self: self.spawning)
    @rule(awaits_ready=st.booleans(), works=st.sampled_from([True, True, True, False]))
    def spawn_answers(self, awaits_ready: bool, works: bool) -> None:
        self.spawning = False
        if not works:
            self.happen(ev.SpawnFailed("no such file", 127))
            return
        external = self.unit_rules.type is ServiceType.EXTERNAL
        self.main_alive = self.tree_alive = not external
        self.happen(ev.Spawned(None if external else 1, awaits_ready))

    @precondition(lambda self: self.main_alive)
    @rule(how=exits)
    def main_exits(self, how: ev.Exited) -> None:
        self.main_alive = False
        self.happen(how)

    @precondition(lambda self: self.main_alive)
    @rule(pid=st.sampled_from([1, 2]))
    def main_hands_over(self, pid: int) -> None:
        self.happen(ev.HandedOver(pid, 0))

    @precondition(lambda self: self.ladder and not self.spawning)
    @rule(how=exits, survives=st.sampled_from([False] * 5 + [True]))
    def ladder_ends(self, how: ev.Exited, survives: bool) -> None:
        self.ladder = False
        self.commands = None
        if not survives:
            self.main_alive = self.tree_alive = False
        self.happen(ev.TreeGone(None if survives else how, ("pid 7",) if survives else ()))

    # --- seen

    @rule(
        event=st.sampled_from(
            [
                ev.Ready(),
                ev.NotReady("503"),
                ev.LivenessFailed("liveness", "timed out"),
                ev.LivenessFailed("canary", "timed out"),
                ev.LivenessRecovered("liveness"),
                ev.LivenessRecovered("canary"),
                ev.Progressed(ProgressKind.WORK),
                ev.Progressed(ProgressKind.CPU),
                ev.KeptAlive(),
                ev.TimeoutExtended(30.0),
                ev.WatchdogChanged(5.0),
                ev.WatchdogChanged(math.inf),
                ev.WatchdogTriggered(),
                ev.StoppingByItself(),
                ev.ErrorReported("ENOENT"),
                ev.CriticalProcessDied("worker is gone"),
                ev.WatchBroke("internal error"),
            ]
        )
    )
    def seen(self, event: Event) -> None:
        self.happen(event)

    # --- time

    @rule(seconds=st.floats(0.0, 120.0), jitter=st.floats(0.0, 1.0, exclude_max=True))
    def time_passes(self, seconds: float, jitter: float) -> None:
        self.jitter = jitter
        self.now += seconds
        if self.now >= self.state.deadline:
            self.happen(ev.Tick())

    @precondition(lambda self: self.state.deadline < math.inf)
    @rule()
    def the_deadline_comes(self) -> None:
        self.now = max(self.now, self.state.deadline)
        self.happen(ev.Tick())

    # --- what always holds

    @invariant()
    def a_deadline_is_set_wherever_something_is_under_way(self) -> None:
        if not hasattr(self, "state"):
            return
        if self.state.sub_state not in NO_DEADLINE:
            assert self.state.deadline < math.inf, self.state.sub_state
        elif self.state.at_rest:
            assert self.state.deadline == math.inf

    @invariant()
    def the_numbers_agree(self) -> None:
        if not hasattr(self, "state"):
            return
        state = self.state
        assert state.started <= state.invocation
        assert state.ended <= state.invocation
        if state.at_rest:
            assert state.ended == state.invocation
        if state.pid is not None:
            assert self.main_alive
        if state.state is RunState.ACTIVE:
            assert state.started == state.invocation
            assert state.ready_once

    @invariant()
    def ticks_alone_lead_out(self) -> None:
        """Even if the shell never answers again, the unit comes to rest, or waits for what has deadlines itself."""
        if not hasattr(self, "state"):
            return
        state, now = self.state, self.now
        for _ in range(8):
            if state.sub_state in NO_DEADLINE:
                return
            now = max(now, state.deadline)
            state, _ = step(self.unit_rules, state, ev.Tick(), now, 0.0)
        raise AssertionError(f"stuck in {state.sub_state}")


TestUnitLife = UnitLife.TestCase
TestUnitLife.settings = settings(
    max_examples=150, stateful_step_count=60, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
