"""What being an engine changes in a unit's own rules: who restarts it, and who acts on a sick probe."""

from __future__ import annotations

from pathlib import Path

import pytest

from supervisor.engine.model.rules import coordinated_rules, standalone_rules
from supervisor.unit.model import (
    Engine,
    LivenessAction,
    Probes,
    RestartPolicy,
    RestartSettings,
    Service,
    StartLimitAction,
    StartSettings,
    Unit,
)


def engine(
    *,
    stall_sec: float | None = 300.0,
    liveness_action: LivenessAction | None = None,
    limit_action: StartLimitAction | None = None,
) -> Unit:
    service = Service(
        restart=RestartSettings(policy=RestartPolicy.ALWAYS, limit_action=limit_action),
        start=StartSettings(stall_sec=stall_sec),
    )
    probes = Probes(liveness_action=liveness_action)
    return Unit(name="engine", source=Path("engine.toml"), engine=Engine(), service=service, probes=probes)


@pytest.mark.seed("S02")
def test_one_rank_of_a_gang_never_restarts_by_itself() -> None:
    assert coordinated_rules(engine(), 180.0).restart.policy is RestartPolicy.NO


@pytest.mark.parametrize(
    "declared, expected",
    [(None, LivenessAction.REPORT), (LivenessAction.RESTART, LivenessAction.RESTART)],
)
def test_a_sick_rank_is_reported_unless_the_file_says_otherwise(
    declared: LivenessAction | None, expected: LivenessAction
) -> None:
    assert coordinated_rules(engine(liveness_action=declared), 180.0).liveness_action is expected


@pytest.mark.seed("S24")
@pytest.mark.parametrize("stall, wait, expected", [(300.0, 180.0, 300.0), (60.0, 180.0, 180.0), (None, 180.0, None)])
def test_a_start_is_given_up_after_the_larger_of_both_waits(
    stall: float | None, wait: float, expected: float | None
) -> None:
    assert coordinated_rules(engine(stall_sec=stall), wait).start.stall_sec == expected


def test_a_standalone_engine_keeps_its_own_policy() -> None:
    rules = standalone_rules(engine())
    assert rules.restart.policy is RestartPolicy.ALWAYS


@pytest.mark.seed("S15")
@pytest.mark.parametrize(
    "declared, expected",
    [(None, StartLimitAction.EXIT), (StartLimitAction.NONE, StartLimitAction.NONE)],
)
def test_when_its_policy_gives_up_the_container_restarts_unless_the_file_says_otherwise(
    declared: StartLimitAction | None, expected: StartLimitAction
) -> None:
    assert standalone_rules(engine(limit_action=declared)).restart.limit_action is expected
