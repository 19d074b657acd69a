"""How a rollout begins: every pod of the instance reads its files, and only if all say the same is anything stopped."""

from __future__ import annotations

import trio

from controller.model.member import Member
from controller.model.relaunch.exchange import Answer
from controller.model.rollout import Differing, agreed
from controller.operators import Conflict, Operators
from controller.recovery import Recovery
from controller.registry import Registry
from controller.supervisors import Supervisors
from supervisor import wire


class Rollouts:
    def __init__(self, registry: Registry, supervisors: Supervisors, operators: Operators) -> None:
        self._registry = registry
        self._supervisors = supervisors
        self._operators = operators

    async def begin(self, instance_id: int, reason: str) -> Recovery:
        """The run that was opened.

        Raises NoSuchInstance, and Conflict naming what is in the way; no engine was touched then. Cancelled: pods may
        have read their files, as after `podvisor reload`.
        """
        instance = self._operators.may_roll_out(instance_id)
        term = await self._registry.terms.claim()
        told: dict[str, Answer] = {}

        async def ask(member: Member) -> None:
            request = wire.EngineRestartMsg(
                action=wire.Action.RELOAD, term=term, boot_id=member.boot_id, reason=reason or None
            )
            timeout = self._registry.policy.relaunch.prepare_answer_timeout_sec
            told[member.address] = await self._supervisors.ask(member, request, timeout)

        async with trio.open_nursery() as nursery:
            for member in instance.members:
                nursery.start_soon(ask, member)
        outcome = agreed(told)
        if isinstance(outcome, Differing):
            raise Conflict(f"instance {instance_id} is not rolled out: {outcome.reason}; nothing was stopped")
        return self._operators.roll_out(instance_id, outcome.config_digest, reason, trio.current_time())
