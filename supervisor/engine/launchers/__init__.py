"""Launchers: what is known of each inference engine, as pure functions from its table and its placement.

A launcher says how the engine is started on one rank, who serves HTTP there, how its health is seen, which ports
it needs and what it leaves behind. It starts nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from supervisor.engine.launchers import exec as exec_launcher
from supervisor.engine.launchers import llama_server, sglang, vllm
from supervisor.engine.launchers.plan import CannotLaunch, LaunchPlan, Rank, rank_of
from supervisor.unit.model import Launcher, Unit

_LAUNCHERS: Mapping[Launcher, Callable[[Unit, Rank], LaunchPlan]] = {
    Launcher.EXEC: exec_launcher.plan,
    Launcher.LLAMA_SERVER: llama_server.plan,
    Launcher.VLLM: vllm.plan,
    Launcher.SGLANG: sglang.plan,
}


def plan_launch(unit: Unit, rank: Rank) -> LaunchPlan:
    """How the engine of `unit` (its strings already expanded) is started on `rank`. Raise CannotLaunch."""
    assert unit.engine is not None, f"{unit.name} is no engine"
    return _LAUNCHERS[unit.engine.launcher](unit, rank)


__all__ = ["CannotLaunch", "LaunchPlan", "Rank", "plan_launch", "rank_of"]
