"""The strategies that come with the controller, beside the relaunch, by the names in the table of selection."""

from __future__ import annotations

from collections.abc import Mapping

from controller.model.selection import ELASTIC_SCALING, SCALE_P2D, TOKEN_REINFERENCE, UCE_RECOVERY
from controller.policy import Policy
from controller.strategy.base import Strategy
from controller.strategy.elastic_scaling import ElasticScaling
from controller.strategy.engines_recover import EnginesRecover
from controller.strategy.scale_p2d import ScaleP2D
from controller.strategy.tools import Tools
from controller.strategy.without_run import WithoutRun


def without_runs(tools: Tools, policy: Policy) -> Mapping[str, Strategy]:
    settings, status_sec = policy.strategies, policy.relaunch.status_timeout_sec
    built_in: dict[str, Strategy] = {
        # After a transient fault of the interconnect only the tokens that it touched are computed again.
        TOKEN_REINFERENCE: EnginesRecover(TOKEN_REINFERENCE, tools, settings, status_sec),
        # After an uncorrectable memory error what stood there is repaired, or given up.
        UCE_RECOVERY: EnginesRecover("uce", tools, settings, status_sec),
        ELASTIC_SCALING: ElasticScaling(tools, settings),
        SCALE_P2D: ScaleP2D(tools, settings),
    }
    return {name: WithoutRun(strategy) for name, strategy in built_in.items()}
