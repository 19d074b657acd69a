"""[Unit] Condition…= (systemd.unit(5)): what has to hold for a unit to be started at all."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

from supervisor.unit.model import Conditions


def unmet(
    conditions: Conditions, variables: Mapping[str, str], exists: Callable[[str], bool] = os.path.exists
) -> str | None:
    """The first condition that does not hold, in words; None if all do. `variables` hold the placement's as well.

    Blocks where there is a ConditionPathExists.
    """
    rank = variables.get("NODE_RANK")
    if conditions.node_rank is not None and rank != str(conditions.node_rank):
        found = "not known yet" if rank is None else rank
        return f"ConditionNodeRank = {conditions.node_rank}, and the rank is {found}"
    for condition in conditions.environment:
        if not _holds(condition, lambda wanted: _in_environment(wanted, variables)):
            return f"ConditionEnvironment = {condition!r} does not hold"
    for condition in conditions.path_exists:
        if not _holds(condition, exists):
            return f"ConditionPathExists = {condition!r} does not hold"
    return None


def _holds(condition: str, test: Callable[[str], bool]) -> bool:
    return test(condition.removeprefix("!").strip()) is not condition.startswith("!")


def _in_environment(wanted: str, variables: Mapping[str, str]) -> bool:
    name, separator, value = wanted.partition("=")
    return variables.get(name) == value if separator else name in variables
