"""What a strategy without a run sees and may do: its own instance, the others, and their supervisors.

Third parties build on this, so that they need nothing of the registry.
"""

from __future__ import annotations

from dataclasses import replace

from controller.engines import Engines
from controller.journal import Journal
from controller.model.instance import Instance
from controller.model.member import Member
from controller.model.relaunch.exchange import Answer, Request
from controller.operators import Operators
from controller.recovery import Recovery
from controller.registry import Registry
from controller.supervisors import Supervisors


class Tools:
    def __init__(
        self, registry: Registry, journal: Journal, operators: Operators, supervisors: Supervisors, engines: Engines
    ) -> None:
        self._registry = registry
        self._journal = journal
        self._operators = operators
        self._supervisors = supervisors
        self.engines = engines

    def instance(self, recovery: Recovery) -> Instance:
        """As it is now."""
        return self._registry.under_recovery(recovery.instance).instance

    def instances(self) -> list[Instance]:
        """All that live, by id."""
        return [entry.instance for entry in self._registry.entries()]

    def is_living(self, instance_id: int) -> bool:
        return self._registry.has(instance_id)

    def scaled(self, recovery: Recovery, size: int | None) -> None:
        """The engines have so many data-parallel ranks now; None: all."""
        entry = self._registry.under_recovery(recovery.instance)
        self._registry.change(entry, replace(entry.instance, scaled_to=size))

    def tell(self, recovery: Recovery, message: str, level: str = "info") -> None:
        """An event about the instance."""
        self._registry.notices.tell(self._registry.under_recovery(recovery.instance), "run", message, level=level)

    async def term(self) -> int:
        """That every command has to carry."""
        return await self._journal.insist(self._registry.terms.claim)

    async def ask(self, member: Member, request: Request, timeout_sec: float) -> Answer:
        """See Supervisors.ask."""
        return await self._supervisors.ask(member, request, timeout_sec)

    def terminate(self, instance_id: int, reason: str, now: float) -> None:
        """See Operators.terminate."""
        self._operators.terminate(instance_id, reason, now)

    async def something_departed(self) -> None:
        """Until an instance is gone, or something else wants attention: look again."""
        await self._registry.attention.wait()
