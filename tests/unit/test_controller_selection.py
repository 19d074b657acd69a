"""Which strategy answers which fault: the table, read as a user of docs/strategies.md would."""

from __future__ import annotations

import pytest

from controller.model.fault import ENGINE_DEAD, ENGINE_UNHEALTHY, Fault, FaultIdentity, FaultLevel
from controller.model.member import MemberKey
from controller.model.selection import (
    ELASTIC_SCALING,
    ENGINE_RELAUNCH,
    SCALE_P2D,
    TOKEN_REINFERENCE,
    UCE_RECOVERY,
    Choices,
    Rule,
    select,
)
from supervisor.wire import FaultCategory

SOFTWARE, HARDWARE = FaultCategory.SOFTWARE, FaultCategory.HARDWARE
SWITCHES = {
    ENGINE_RELAUNCH: "enable_engine_relaunch",
    TOKEN_REINFERENCE: "enable_token_reinference",
    UCE_RECOVERY: "enable_uce_recovery",
    ELASTIC_SCALING: "enable_elastic_scaling",
    SCALE_P2D: "enable_scale_p2d",
}
ALL = frozenset(SWITCHES.values())
ON = Choices(ALL)
LEVELS = [level for level in FaultLevel if level is not FaultLevel.HEALTHY]
UNKNOWN = 0x80DE1801
UCE = 0x80E01801


def fault(level: FaultLevel, category: FaultCategory, code: int) -> Fault:
    return Fault(FaultIdentity(MemberKey("default", "job", "#0"), code=code), level, category, code, "a fault")


def selected(
    level: FaultLevel,
    category: FaultCategory,
    code: int,
    role: str = "union",
    *,
    failed: str = "",
    choices: Choices = ON,
) -> str | None:
    return select(fault(level, category, code), role, failed, choices).strategy


@pytest.mark.seed("S09")
@pytest.mark.parametrize("category", FaultCategory)
@pytest.mark.parametrize("role", ["union", "prefill", "decode"])
def test_S09_a_dead_engine_is_relaunched_unless_the_switch_is_off(category: FaultCategory, role: str) -> None:
    assert selected(FaultLevel.L2, category, ENGINE_DEAD, role) == ENGINE_RELAUNCH
    off = Choices(ALL - {"enable_engine_relaunch"})
    assert selected(FaultLevel.L2, category, ENGINE_DEAD, role, choices=off) is None


@pytest.mark.seed("S09")
def test_S09_nothing_is_done_about_an_unhealthy_engine() -> None:
    assert selected(FaultLevel.L2, SOFTWARE, ENGINE_UNHEALTHY) is None


@pytest.mark.parametrize("code", [0x00F1FEF5, 0x08520003])
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("is_on", [True, False])
def test_transient_faults_of_the_interconnect(code: int, level: FaultLevel, is_on: bool) -> None:
    choices = Choices(ALL if is_on else ALL - {"enable_token_reinference"})
    is_answered = is_on and level is FaultLevel.L2
    assert selected(level, HARDWARE, code, choices=choices) == (TOKEN_REINFERENCE if is_answered else None)
    assert selected(level, SOFTWARE, code, choices=choices) is None


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("is_on", [True, False])
def test_uncorrectable_memory_errors(level: FaultLevel, is_on: bool) -> None:
    choices = Choices(ALL if is_on else ALL - {"enable_uce_recovery"})
    is_answered = is_on and level <= FaultLevel.L3
    assert selected(level, HARDWARE, UCE, choices=choices) == (UCE_RECOVERY if is_answered else None)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("role", ["union", "prefill", "decode", "encode"])
@pytest.mark.parametrize(
    "switches, strategy",
    [
        (ALL, ELASTIC_SCALING),
        (ALL - {"enable_elastic_scaling"}, SCALE_P2D),
        (ALL - {"enable_scale_p2d"}, ELASTIC_SCALING),
        (ALL - {"enable_elastic_scaling", "enable_scale_p2d"}, None),
    ],
)
def test_a_lost_device_of_a_decode_instance(
    level: FaultLevel, role: str, switches: frozenset[str], strategy: str | None
) -> None:
    is_answered = level >= FaultLevel.L4 and role == "decode"
    chosen = selected(level, HARDWARE, UNKNOWN, role, choices=Choices(switches))
    assert chosen == (strategy if is_answered else None)


@pytest.mark.seed("S08")
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("category, code", [(SOFTWARE, ENGINE_UNHEALTHY), (HARDWARE, 0x00F1FEF5), (HARDWARE, UNKNOWN)])
def test_S08_after_a_strategy_that_failed_whatever_comes_is_answered_by_the_relaunch_under_the_same_switch(
    level: FaultLevel, category: FaultCategory, code: int
) -> None:
    assert selected(level, category, code, failed="uce: no") == ENGINE_RELAUNCH
    off = Choices(ALL - {"enable_engine_relaunch"})
    assert selected(level, category, code, failed="uce: no", choices=off) is None


def test_nothing_is_done_about_what_is_healthy() -> None:
    assert selected(FaultLevel.HEALTHY, SOFTWARE, 0, failed="uce: no") is None


def test_that_a_switch_is_off_is_said() -> None:
    found = select(fault(FaultLevel.L5, HARDWARE, UNKNOWN), "decode", "", Choices(frozenset()))
    assert "enable_elastic_scaling is off" in found.reason


def test_third_parties_come_before_what_is_built_in_but_not_before_the_relaunch_of_the_dead() -> None:
    greedy = Rule("greedy")
    choices = Choices(ALL, (greedy,))
    assert selected(FaultLevel.L2, HARDWARE, 0x00F1FEF5, choices=choices) == "greedy"
    assert selected(FaultLevel.L2, SOFTWARE, ENGINE_UNHEALTHY, choices=choices) == "greedy"
    assert selected(FaultLevel.L2, SOFTWARE, ENGINE_DEAD, choices=choices) == ENGINE_RELAUNCH


def test_every_strategy_that_comes_with_the_controller_has_a_switch_of_its_own() -> None:
    rules = [rule for rule in Choices(ALL).rules if rule.strategy]
    assert {rule.strategy: rule.switch for rule in rules} == SWITCHES
