"""The engines go on without the ranks of a lost device, and take them back when it is healthy again."""

from __future__ import annotations

from controller.engines import ScaleRequest
from controller.model.instance import Instance
from controller.model.outcome import Failed, Outcome, Recovered
from controller.model.scaling import new_size
from controller.model.settings import StrategySettings
from controller.recovery import Recovery
from controller.strategy.tools import Tools


class ElasticScaling:
    def __init__(self, tools: Tools, settings: StrategySettings) -> None:
        self._tools = tools
        self._settings = settings

    async def execute(self, recovery: Recovery) -> Outcome:
        """Cancelled, the engine may still scale: the instance then stays separated."""
        instance = self._tools.instance(recovery)
        size = new_size(instance)
        if isinstance(size, str):
            return Failed(size)
        self._tools.tell(recovery, f"scaling to {size} of {instance.spec.parallel.dp_size} data-parallel ranks")
        request = ScaleRequest(size, self._settings.scale_drain_timeout_sec)
        refused = await self._tools.engines.scale(_serving(instance), request, self._settings.scale_timeout_sec)
        if refused is not None:
            return Failed(refused)
        now = self._tools.instance(recovery)
        if now.epoch != instance.epoch:
            return Failed(f"meanwhile the gang was started in epoch {now.epoch}")
        is_whole = size == now.spec.parallel.dp_size
        self._tools.scaled(recovery, None if is_whole else size)
        return Recovered(f"{size} data-parallel ranks serve")


def _serving(instance: Instance) -> str:
    """Rank 0's address."""
    master = instance.members[0]
    return f"{master.host}:{master.business_ports[0]}"
