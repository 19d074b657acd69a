"""A modelled fleet under any faults: the real plan, arbiter and registry in virtual time keep what they promise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from controller.model.relaunch import phase_one, plan
from controller.model.relaunch.ending import done
from controller.model.relaunch.run import Run, RunStep
from controller.model.settings import OnMemberLost
from controller.simulation import arbiter
from controller.simulation import faults as fault_plan
from controller.simulation.faults import Fault, FaultKind
from controller.simulation.fleet import Fleet
from controller.simulation.scenario import Scenario
from controller.simulation.supervisor import Supervisor
from controller.simulation.told import Told, What
from supervisor.engine.model import commands, freeze
from supervisor.engine.model.arbiter import GO_ON
from tests.support.fleet_rules import not_at_rest, run, scenario, story

HOUR = 3600.0
LAST_FAULT = HOUR
REST = 3 * HOUR


@st.composite
def fleets(draw: st.DrawFn) -> tuple[Scenario, tuple[Fault, ...]]:
    base = draw(st.sampled_from([DEFAULT, RESTARTS_ALL, DEFAULT.without_relaunch()]))
    seconds = st.sampled_from([0.5, 5.0, 40.0, 200.0])
    times = replace(
        base.times,
        load_in_place=draw(seconds),
        load_in_container=draw(seconds),
        load_in_pod=draw(seconds),
        engine_stop=draw(st.sampled_from([0.0, 2.0, 15.0])),
        engine_kill=draw(st.sampled_from([5.0, 30.0])),
        operator=draw(st.sampled_from([0.0, 600.0])),
    )
    shape = replace(base.fleet, instances=draw(st.integers(1, 3)), pods=draw(st.integers(1, 3)))
    detection = replace(base.detection, exit_seen=draw(st.booleans()))
    faults = st.builds(
        Fault,
        at=st.floats(0.0, LAST_FAULT, allow_nan=False).map(lambda at: round(at, 2)),
        kind=st.sampled_from(FaultKind),
        instance=st.integers(0, shape.instances - 1),
        pod=st.integers(0, shape.pods - 1),
        lasts=st.sampled_from([1.0, 9.0, 30.0, 100.0, 900.0]),
    )
    whole = replace(base, times=times, fleet=shape, detection=detection)
    whole = replace(whole, simulation=replace(base.simulation, seed=draw(st.integers(0, 9)), duration=REST))
    struck = draw(st.lists(faults, max_size=12))
    shared = [replace(fault, hits=tuple(range(shape.instances))) for fault in struck if fault.kind in OF_THE_FLEET]
    alone = [replace(fault, pod=0) for fault in struck if fault.kind is FaultKind.POISONED]
    rest = [fault for fault in struck if fault.kind not in (*OF_THE_FLEET, FaultKind.POISONED)]
    return whole, tuple(sorted(shared + alone + rest))


OF_THE_FLEET = (FaultKind.SHARED_CAUSE, FaultKind.CONTROLLER_DEATH)


def _default() -> Scenario:
    import tempfile

    with tempfile.TemporaryDirectory() as directory:
        return scenario(Path(directory), "[fleet]\ninstances = 2\npods = 2\n")


DEFAULT = _default()
RESTARTS_ALL = replace(
    DEFAULT,
    policy=replace(DEFAULT.policy, relaunch=replace(DEFAULT.policy.relaunch, on_member_lost=OnMemberLost.RESTART_ALL)),
)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(fleets())
def test_whatever_fails_the_promises_hold_and_all_comes_to_rest(given: tuple[Scenario, tuple[Fault, ...]]) -> None:
    fleet, rules = run(*given)
    broken = [*rules.broken, *not_at_rest(fleet, rules)]
    assert not broken, "\n".join([*broken[:5], story(rules)])


# --- the rules can be broken -----------------------------------------------------------------------------------------

CRASH = Fault(500.0, FaultKind.ENGINE_CRASH, instance=0, pod=1)
CRASHES = (CRASH, replace(CRASH, at=1500.0, pod=0), Fault(3000.0, FaultKind.CONTAINER_DEATH, instance=1))


def broken(scenario: Scenario, faults: tuple[Fault, ...] = CRASHES) -> str:
    fleet, rules = run(replace(scenario, simulation=replace(scenario.simulation, duration=REST)), faults)
    return "\n".join([*rules.broken, *not_at_rest(fleet, rules)])


def test_nothing_is_broken_when_nothing_is() -> None:
    assert not broken(DEFAULT)
    assert not broken(DEFAULT.without_relaunch())


def test_an_arbiter_that_never_ends_a_supervisor_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arbiter, "tick", lambda before, *_: (before, GO_ON))
    assert "has not come to rest" in broken(DEFAULT.without_relaunch())


def test_a_supervisor_that_does_not_wait_for_the_barrier_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stopping its engine takes longer than another's, which is dead already."""
    monkeypatch.setattr(commands, "prepare", commands.restart)
    assert "C2" in broken(DEFAULT)


def test_a_plan_that_does_not_wait_for_the_barrier_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The supervisors refuse to start what they have not prepared, so that no gang ever starts."""

    def hasty(run: Run, now: float) -> phase_one.Moved:
        return phase_one._enter_start(run, now)

    monkeypatch.setitem(plan.CHECKS, RunStep.PREPARE, hasty)
    assert "has not come to rest" in broken(DEFAULT.without_relaunch())


def test_a_run_that_is_done_too_early_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def hasty(run: Run, now: float) -> phase_one.Moved:
        return done(run, now)

    monkeypatch.setitem(plan.CHECKS, RunStep.AWAIT, hasty)
    assert "C5" in broken(DEFAULT)


def test_a_freeze_that_does_not_end_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The controller dies after it has promised a recovery, and is away for long."""
    monkeypatch.setattr(freeze.Freeze, "is_over", lambda *_: False)
    gone = Fault(500.5, FaultKind.CONTROLLER_DEATH, lasts=1000.0, hits=(0, 1))
    assert "I2" in broken(DEFAULT, (CRASH, gone))


def test_a_run_that_nobody_opens_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("controller.registry.recovery_wanted", lambda *_: None)
    assert "has not come to rest" in broken(DEFAULT)


def test_a_fleet_that_fails_as_one_is_held_and_comes_back_by_an_operator() -> None:
    """More than max_phase2_fraction of it: who is held so has running engines, and they are stopped first."""
    six = replace(DEFAULT, fleet=replace(DEFAULT.fleet, instances=6), times=replace(DEFAULT.times, operator=900.0))
    shared = Fault(500.0, FaultKind.SHARED_CAUSE, lasts=1200.0, hits=tuple(range(6)))
    fleet, rules = run(replace(six, simulation=replace(six.simulation, duration=REST)), (shared,))
    assert not [*rules.broken, *not_at_rest(fleet, rules)]
    held = {told.instance for told in rules.history if told.what is What.HELD and "max_phase2_fraction" in told.words}
    assert len(held) > 2
    assert fleet.controller is not None
    assert not any(entry.instance.held for entry in map(fleet.controller.entry_of, range(6)) if entry)


# --- what is left out ------------------------------------------------------------------------------------------------


class Metronome:
    """Sends every heartbeat and looks at every instance once a second, as the real ones do."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self._due: dict[object, float] = {}

    def follow(self) -> None:
        for pods in self.fleet.instances:
            for pod in pods:
                supervisor = pod.supervisor
                if supervisor is None or not supervisor.pulse.is_heard:
                    continue
                due = supervisor.pulse.next(self.fleet.agenda.now)
                if self._due.get(supervisor) != due:
                    self._due[supervisor] = due
                    supervisor.life.at(due, self._beat(supervisor, due))

    def look(self) -> None:
        if self.fleet.controller is not None:
            for pods in self.fleet.instances:
                self.fleet.controller.look(pods[0].job_name)
        self.fleet.agenda.after(1.0, self.look)

    def _beat(self, supervisor: Supervisor, due: float) -> Callable[[], None]:
        return lambda: supervisor.pulse.beat() if self._due.get(supervisor) == due else None


def _plain(told: Told) -> tuple[object, ...]:
    pod = -1 if told.pod is None else told.pod
    return round(told.at, 3), told.instance, pod, told.what, told.epoch, told.words


def every(scenario: Scenario, faults: tuple[Fault, ...], *, one_by_one: bool) -> list[tuple[object, ...]]:
    """What happens, in order."""
    history: list[tuple[object, ...]] = []
    fleet = Fleet(
        scenario,
        faults,
        lambda told: history.append(_plain(told)),
    )
    metronome = Metronome(fleet)
    if one_by_one:
        fleet.agenda.after(1.0, metronome.look)
    fleet.run(metronome.follow if one_by_one else lambda: None)
    return sorted(history)


@pytest.mark.parametrize("seed, relaunch, cut", [(1, True, 9.5), (2, True, 30.0), (3, True, 400.0), (3, False, 30.0)])
def test_heartbeats_without_news_and_looks_without_cause_may_be_left_out(seed: int, relaunch: bool, cut: float) -> None:
    """Everything happens at the same moments when each of them is there."""
    rates = replace(
        DEFAULT.faults,
        engine_crash_every=1.5 * HOUR,
        engine_hang_every=1.5 * HOUR,
        container_death_every=3 * HOUR,
        pod_loss_every=3 * HOUR,
        network_cut_every=1.5 * HOUR,
        network_cut_lasts=cut,
        controller_death_every=1.5 * HOUR,
        poisoned_every=4 * HOUR,
        poisoned_lasts=900.0,
    )
    simulation = replace(DEFAULT.simulation, seed=seed, duration=2 * HOUR)
    whole = replace(DEFAULT, faults=rates, simulation=simulation)
    faults = fault_plan.drawn(whole)
    assert len(faults) > 5
    whole = whole if relaunch else whole.without_relaunch()
    assert every(whole, faults, one_by_one=False) == every(whole, faults, one_by_one=True)
