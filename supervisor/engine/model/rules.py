"""What being an engine changes in the rules of a unit's machine."""

from __future__ import annotations

from msgspec.structs import replace

from supervisor.unit.model import LivenessAction, RestartPolicy, StartLimitAction, Unit
from supervisor.unit.state import Rules, rules_of


def coordinated_rules(unit: Unit, wait_timeout_sec: float) -> Rules:
    """The gang is relaunched by the controller: the unit stays failed, and a sick probe is reported, not acted on.

    A start is given up after the larger of StartStallSec and `engine_restart_wait_timeout_sec` without progress.
    """
    rules = rules_of(unit)
    stall = rules.start.stall_sec
    return replace(
        rules,
        liveness_action=unit.probes.liveness_action or LivenessAction.REPORT,
        restart=replace(rules.restart, policy=RestartPolicy.NO),
        start=replace(rules.start, stall_sec=None if stall is None else max(stall, wait_timeout_sec)),
    )


def standalone_rules(unit: Unit) -> Rules:
    """Nobody else restarts it: when its own policy gives up, the container restarts unless the file says otherwise."""
    rules = rules_of(unit)
    action = rules.restart.limit_action or StartLimitAction.EXIT
    return replace(rules, restart=replace(rules.restart, limit_action=action))
