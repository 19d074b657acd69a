"""Device faults on an instance: present, answered, healthy again, and what they make of its status."""

from __future__ import annotations

from dataclasses import replace
from typing import TypedDict

import pytest
from msgspec import structs

from controller.model import devices
from controller.model.classification import LEVELS, check_hardware_report, hardware_fault
from controller.model.fault import Fault, FaultLevel
from controller.model.instance import Hold, Holder, Instance, InstanceEvent, InstanceStatus, activate, ranks, transition
from controller.model.outcome import Failed, Interrupted, Recovered, Withdrawn
from controller.model.relaunch.run import RunReason
from controller.model.selection import ENGINE_RELAUNCH, SCALE_P2D, TOKEN_REINFERENCE, Choices
from controller.model.settings import InstanceSettings
from controller.model.verdict import AskDirectly, judge
from controller.model.wanted import ended, escalated, recovery_wanted
from supervisor.wire import HardwareFaultMsg, ParallelConfig, WireError
from tests.unit.controller_gang import SETTINGS, begun, serving

GRAVE = 0x80DE1801
TRANSIENT = 0x00F1FEF5
ALL = Choices(
    frozenset({"enable_engine_relaunch", "enable_token_reinference", "enable_elastic_scaling", "enable_scale_p2d"})
)
P2D = Choices(ALL.switches - {"enable_elastic_scaling"})
OFF = Choices(ALL.switches - {"enable_engine_relaunch"})
DECODE = serving(role="decode")


def told(instance: Instance, level: str, code: int = GRAVE, index: int = 1, device: str | None = "3") -> Fault:
    member = instance.members[index]
    message = HardwareFaultMsg(fault_code=code, fault_level=level, pod_ip=member.ip, device=device)
    return hardware_fault(message, check_hardware_report(message), member)


def with_fault(instance: Instance, level: str, code: int = GRAVE, index: int = 1) -> Instance:
    return devices.present(instance, told(instance, level, code, index))


def status_after(instance: Instance, now: float = 1.0) -> InstanceStatus:
    verdict = judge(instance, False, now, InstanceSettings())
    assert verdict is not None
    assert not isinstance(verdict, AskDirectly)
    return transition(instance, verdict, now).status


# --- the report -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name, level", [*LEVELS.items()])
def test_levels_have_our_names_and_those_of_device_plug_ins(name: str, level: FaultLevel) -> None:
    message = HardwareFaultMsg(fault_code=1, fault_level=name, pod_ip="10.0.0.1")
    assert check_hardware_report(message) is level


@pytest.mark.parametrize(
    "changes, field",
    [
        ({"fault_level": "L7"}, "fault_level: 'L7'"),
        ({"fault_level": "l4"}, "fault_level: 'l4'"),
        ({"fault_code": 0}, "fault_code: 0"),
        ({"fault_code": -1}, "fault_code: -1"),
        ({"fault_code": 1 << 32}, "fault_code: 4294967296"),
        ({"pod_ip": None}, "pod_ip or node_name"),
    ],
)
def test_what_cannot_be_a_fault_is_refused_by_its_field(changes: dict[str, object], field: str) -> None:
    right = HardwareFaultMsg(fault_code=1, fault_level="L4", pod_ip="10.0.0.1")
    with pytest.raises(WireError, match=field):
        check_hardware_report(structs.replace(right, **changes))


# --- present, healthy, elsewhere ------------------------------------------------------------------------------


def test_a_fault_is_present_until_its_code_or_all_of_the_device_are_reported_healthy() -> None:
    sick = with_fault(with_fault(DECODE, "L4"), "L2", TRANSIENT)
    assert len(sick.faults) == 2
    other = replace(told(sick, "HEALTHY").identity, device="4")
    assert devices.healthy(sick, other) == sick
    left = devices.healthy(sick, told(sick, "HEALTHY").identity)
    assert [fault.code for fault in left.faults] == [TRANSIENT]
    assert devices.healthy(sick, told(sick, "HEALTHY", 0).identity).faults == ()


def test_the_same_fault_again_is_no_news_and_a_graver_one_is() -> None:
    sick = with_fault(DECODE, "L4")
    answered = devices.answered(sick, sick.faults)
    assert devices.unanswered(with_fault(answered, "L4")) == ()
    assert [fault.level for fault in devices.unanswered(with_fault(answered, "L5"))] == [FaultLevel.L5]


def test_one_that_has_become_graver_since_the_recovery_began_is_not_answered_by_its_end() -> None:
    began_with = with_fault(DECODE, "L4").faults
    worse = with_fault(with_fault(DECODE, "L4"), "L6")
    assert devices.unanswered(devices.answered(worse, began_with)) == worse.faults


def test_how_many_are_kept_is_bounded() -> None:
    sick = DECODE
    for code in range(1, 1000):
        sick = with_fault(sick, "L1", code)
    assert len(sick.faults) == devices.KEPT


class Place(TypedDict, total=False):
    pod_uid: str
    boot_id: str
    node_name: str
    ip: str


@pytest.mark.parametrize(
    "before, after, stays",
    [
        ({"pod_uid": "a"}, {"pod_uid": "a", "boot_id": "boot-9"}, True),
        ({"pod_uid": "a"}, {"pod_uid": "b"}, False),
        ({"pod_uid": "a", "node_name": "n1"}, {"pod_uid": "b", "node_name": "n1"}, True),
        ({"node_name": "n1"}, {"node_name": "n2"}, False),
        ({}, {"ip": "10.0.0.99"}, False),
    ],
)
def test_a_container_that_restarts_keeps_its_devices_and_a_pod_elsewhere_has_others(
    before: Place, after: Place, stays: bool
) -> None:
    def changed(place: Place) -> Instance:
        first, second = DECODE.members
        return replace(DECODE, members=(first, replace(second, **place)))

    sick = replace(changed(before), faults=with_fault(DECODE, "L4").faults)
    assert bool(devices.of_the_same_places(sick, changed(after)).faults) is stays


# --- what it makes of the status ------------------------------------------------------------------------------


@pytest.mark.parametrize("level", ["L1", "L2", "L3", "L4", "L5", "L6"])
def test_above_level_two_the_instance_is_separated_and_at_or_below_it_serves(level: str) -> None:
    active = activate(DECODE, "all normal", 0.0)
    assert status_after(active) is InstanceStatus.ACTIVE
    is_separated = level > "L2"
    expected = InstanceStatus.INACTIVE if is_separated else InstanceStatus.ACTIVE
    sick = with_fault(active, level)
    assert bool(sick.separated) is is_separated
    assert status_after(sick) is expected
    # Not even a run that has relaunched all engines brings it back.
    assert activate(replace(sick, status=InstanceStatus.INITIAL), "relaunched", 2.0).status is expected


def test_healthy_again_it_comes_back() -> None:
    active = activate(DECODE, "all normal", 0.0)
    sick = with_fault(active, "L4")
    inactive = replace(sick, status=status_after(sick))
    well = devices.healthy(inactive, told(sick, "HEALTHY").identity)
    assert status_after(well) is InstanceStatus.ACTIVE


def test_scaled_below_the_sick_ranks_it_serves_until_its_engines_are_started_anew() -> None:
    sick = with_fault(activate(DECODE, "all normal", 0.0), "L4")
    assert status_after(replace(sick, scaled_to=1)) is InstanceStatus.ACTIVE
    assert begun(replace(sick, scaled_to=1), 9).separated


@pytest.mark.parametrize(
    "nnodes, dp_size, expected",
    [
        (2, 2, [[0], [1]]),
        (2, 8, [[0, 1, 2, 3], [4, 5, 6, 7]]),
        (4, 2, [[0], [0], [1], [1]]),
        (2, 1, [[0], [0]]),
    ],
)
def test_the_ranks_on_each_node(nnodes: int, dp_size: int, expected: list[list[int]]) -> None:
    instance = serving(nnodes, parallel_config=ParallelConfig(dp_size=dp_size))
    assert [list(ranks(instance, member)) for member in instance.members] == expected


# --- what is wanted -------------------------------------------------------------------------------------------


def test_the_gravest_unanswered_fault_with_a_strategy_comes_first() -> None:
    sick = with_fault(with_fault(DECODE, "L2", TRANSIENT), "L4", index=0)
    wanted = recovery_wanted(sick, SETTINGS, P2D)
    assert wanted is not None
    assert (wanted.strategy, wanted.level) == (SCALE_P2D, FaultLevel.L4)
    grave = tuple(fault for fault in sick.faults if fault.separates)
    wanted = recovery_wanted(devices.answered(sick, grave), SETTINGS, P2D)
    assert wanted is not None
    assert wanted.strategy == TOKEN_REINFERENCE
    assert recovery_wanted(devices.answered(sick, sick.faults), SETTINGS, P2D) is None


def test_a_fault_without_a_strategy_wants_nothing() -> None:
    assert recovery_wanted(with_fault(serving(), "L6"), SETTINGS, ALL) is None


SICK = with_fault(DECODE, "L4", index=0)


@pytest.mark.parametrize(
    "sick",
    [
        replace(SICK, held=Hold(Holder.BUDGET, "its budget is spent")),
        replace(SICK, epoch=0),
        replace(SICK, abandoned_epoch=SICK.epoch),
        replace(SICK, members=SICK.members[:1]),
        replace(SICK, status=InstanceStatus.DELETED),
    ],
    ids=["held", "never started", "given up", "incomplete", "deleted"],
)
def test_who_cannot_be_helped_is_left_alone(sick: Instance) -> None:
    wanted = recovery_wanted(sick, SETTINGS, P2D)
    assert wanted is None or wanted.fault is None
    assert escalated(replace(sick, prev_strategy_failed="uce: no"), P2D) is None


@pytest.mark.seed("S08")
def test_S08_a_failure_is_marked_and_escalates_and_a_success_clears_it() -> None:
    sick = with_fault(DECODE, "L2", TRANSIENT)
    failed = ended(sick, sick.faults, TOKEN_REINFERENCE, Failed("10.0.0.2 cannot"))
    assert failed.prev_strategy_failed == "token_reinference: 10.0.0.2 cannot"
    follows = escalated(failed, ALL)
    assert follows is not None
    assert (follows.strategy, follows.cause.reason) == (ENGINE_RELAUNCH, RunReason.ESCALATION)
    assert escalated(failed, OFF) is None
    # The failure of the relaunch itself is phase 2: nothing is marked, and nothing escalates from it.
    assert ended(failed, (), ENGINE_RELAUNCH, Failed("phase 2")) == failed
    assert ended(failed, (), ENGINE_RELAUNCH, Recovered("done")).prev_strategy_failed == ""
    assert ended(failed, (), TOKEN_REINFERENCE, Recovered("done")).prev_strategy_failed == ""


def test_what_was_withdrawn_has_not_failed() -> None:
    sick = with_fault(DECODE, "L2", TRANSIENT)
    assert ended(sick, sick.faults, TOKEN_REINFERENCE, Withdrawn("preempted")).prev_strategy_failed == ""


def test_what_the_end_of_the_controller_interrupted_is_wanted_again() -> None:
    sick = with_fault(DECODE, "L2", TRANSIENT)
    assert ended(sick, sick.faults, TOKEN_REINFERENCE, Interrupted("the controller stops")) == sick
    assert devices.unanswered(ended(sick, sick.faults, TOKEN_REINFERENCE, Withdrawn("an operator"))) == ()


def test_healthy_again_a_scaled_instance_takes_its_ranks_back_once() -> None:
    scaled = replace(DECODE, scaled_to=1)
    wanted = recovery_wanted(scaled, SETTINGS, ALL)
    assert wanted is not None
    assert (wanted.strategy, wanted.level) == ("elastic_scaling", FaultLevel.L1)
    assert recovery_wanted(with_fault(scaled, "L4"), SETTINGS, Choices(frozenset())) is None
    assert recovery_wanted(replace(scaled, prev_strategy_failed="elastic_scaling: no"), SETTINGS, ALL) is None


def test_the_verdict_of_a_separated_instance_names_the_device() -> None:
    sick = with_fault(activate(DECODE, "all normal", 0.0), "L4")
    verdict = judge(sick, False, 1.0, InstanceSettings())
    assert verdict is not None
    assert not isinstance(verdict, AskDirectly)
    assert verdict.event is InstanceEvent.ABNORMAL
    assert "device 3 of 10.0.0.2:1026 has fault 0x80de1801 of level L4" in verdict.reason
