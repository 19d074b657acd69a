"""Deletes pods whose containers did not restart in phase 2, as `model.kubernetes.deletion` admits them.

Before each one the journal is written, which a controller that leads no more cannot do, and the pod is read, which says
whether anybody deletes it already.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import trio

from controller.election import Leadership
from controller.journal import Journal
from controller.kubernetes.client import CONFLICT, NOT_FOUND, ApiClient, ApiRefused, ApiUnavailable
from controller.kubernetes.outbox import Outbox
from controller.kubernetes.trouble import Trouble, What
from controller.kubernetes.writing import write_what_is_due
from controller.model.instance import Instance
from controller.model.kubernetes import deletion
from controller.model.kubernetes.deletion import Admitted, Verdict, judge
from controller.model.kubernetes.pods import Pod, PodRef, Pods
from controller.model.kubernetes.telling import News, Reason
from controller.model.member import MemberKey
from controller.registry import Registry

AGAIN_SEC = 60.0
"""The kubelet starts its container again by itself, or we may not delete it: look again after so long."""


class PodDeleter:
    def __init__(
        self,
        client: ApiClient,
        registry: Registry,
        journal: Journal,
        leadership: Leadership,
        trouble: Trouble,
        pods: Pods,
        tell: Callable[[tuple[Pod, ...], News, float], None],
    ) -> None:
        """`pods` are those that are looked at, now and later; `tell` is told of each that was deleted."""
        self._client = client
        self._registry = registry
        self._journal = journal
        self._leadership = leadership
        self._trouble = trouble
        self._pods = pods
        self._tell = tell
        self._admitted: tuple[Admitted, ...] = ()
        self._unanswered: dict[PodRef, Pod] = {}
        """Whose deletion was asked for; whether it was done the next look at the pod says."""
        self._outbox: Outbox[PodRef, MemberKey] = Outbox(partial(trouble.drop, What.DELETIONS))

    def look(self, now: float) -> None:
        """Whether there is a pod to be deleted; that waits for nothing."""
        policy = self._registry.policy
        instances = self._instances()
        before = {each.ref for each in self._admitted}
        self._admitted = deletion.admitted(instances, self._pods, self._admitted, now, policy.fleet, policy.instance)
        new = {each.ref for each in self._admitted} - before
        for instance in instances:
            for member, ref in deletion.stranded_in(instance):
                if ref in new:
                    self._outbox.put(ref, member.key, now)

    async def run(self) -> None:
        await write_what_is_due(What.DELETIONS, self._outbox, self._delete, self._trouble)

    async def _delete(self, ref: PodRef, member: MemberKey) -> bool:
        try:
            await self._read_and_judge(ref, member)
        except ApiRefused as refused:
            self._take_refusal(ref, member, refused)
            return False
        return True

    async def _read_and_judge(self, ref: PodRef, member: MemberKey) -> None:
        pod = await self._client.pod(ref)
        asked_for = self._unanswered.pop(ref, None)
        match judge(pod, ref):
            case Verdict.OVER if asked_for:
                self._count_and_tell(asked_for, member)
            case Verdict.OVER:
                self._admitted = deletion.untouched(self._admitted, ref)
            case Verdict.LATER:
                self._outbox.put(ref, member, trio.current_time() + AGAIN_SEC)
            case Verdict.DELETE if pod is not None and await self._may(pod.ref, member):
                await self._carry_out(pod, member)

    async def _may(self, ref: PodRef, member: MemberKey) -> bool:
        """Whether this controller leads, which only the store knows, and it is wanted still."""
        await self._journal.insist(partial(self._journal.keep, member.instance))
        await self._journal.insist(self._registry.terms.claim)
        now, settings = trio.current_time(), self._registry.policy.instance
        wanted = deletion.is_wanted(self._instances(), self._pods, ref, now, settings)
        if not wanted:
            self._admitted = deletion.withdrawn(self._admitted, ref)
        return wanted and not self._leadership.is_lost

    async def _carry_out(self, pod: Pod, member: MemberKey) -> None:
        try:
            await self._client.delete(pod)
        except ApiUnavailable:
            self._unanswered[pod.ref] = pod
            raise
        self._count_and_tell(pod, member)

    def _take_refusal(self, ref: PodRef, member: MemberKey, refused: ApiRefused) -> None:
        if refused.status == NOT_FOUND:
            self._admitted = deletion.untouched(self._admitted, ref)
        elif refused.status == CONFLICT:
            # It is not as it was read: read it again.
            self._outbox.put(ref, member, trio.current_time())
        else:
            # We may not: somebody may mend that.
            self._outbox.put(ref, member, trio.current_time() + AGAIN_SEC)
            self._trouble.refused(What.DELETIONS, refused)

    def _count_and_tell(self, pod: Pod, member: MemberKey) -> None:
        self._trouble.deleted += 1
        words = f"pod {pod.ref} was deleted: its container did not restart in phase 2"
        if entry := self._registry.of_key(member.instance):
            self._registry.notices.tell(entry, "member", words, level="warning", member=member)
        self._tell((pod,), News(Reason.POD_DELETED, words, is_warning=True), trio.current_time())

    def _instances(self) -> list[Instance]:
        return [entry.instance for entry in self._registry.entries()]
