"""The condition on each pod of an instance, kept as the instance is."""

from __future__ import annotations

from functools import partial

import trio

from controller.clock import wall_clock
from controller.kubernetes.client import ApiClient, ApiRefused
from controller.kubernetes.outbox import Outbox
from controller.kubernetes.trouble import Trouble, What
from controller.kubernetes.writing import write_what_is_due
from controller.model.kubernetes.condition import Condition, Written, due_at
from controller.model.kubernetes.pods import Pod, PodRef

CAPACITY = 50_000
"""One for each pod: at first all of a fleet's wait."""


class ConditionWriter:
    def __init__(self, client: ApiClient, trouble: Trouble) -> None:
        self._client = client
        self._trouble = trouble
        self._written: dict[PodRef, Written] = {}
        self._outbox: Outbox[PodRef, Condition] = Outbox(partial(trouble.drop, What.CONDITIONS), CAPACITY)

    def want(self, pod: Pod, condition: Condition, now: float) -> None:
        if pod.condition and pod.ref not in self._written:
            # Another life of ours wrote it.
            self._written[pod.ref] = Written(pod.condition, now)
        due = due_at(condition, self._written.get(pod.ref), now)
        if due is None:
            self._outbox.forget(pod.ref)
        else:
            self._outbox.put(pod.ref, condition, due)

    def forget(self, pods: set[PodRef]) -> None:
        """All but these are gone."""
        for ref in self._written.keys() - pods:
            del self._written[ref]
        self._outbox.forget_all_but(pods)

    async def run(self) -> None:
        await write_what_is_due(What.CONDITIONS, self._outbox, self._write, self._trouble)

    async def _write(self, ref: PodRef, condition: Condition) -> bool:
        now, before = trio.current_time(), self._written.get(ref)
        is_as_before = before is not None and before.condition.is_true == condition.is_true
        try:
            await self._client.set_condition(ref, condition, None if is_as_before else wall_clock(now)(now))
        except ApiRefused:
            # The pod is another by now, or we may not: no reason to ask again before there is something else to write.
            self._written[ref] = Written(condition, now)
            raise
        self._written[ref] = Written(condition, now)
        return True
