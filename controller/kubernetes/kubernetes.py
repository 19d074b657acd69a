"""The optional client of the Kubernetes API, whole: which parts there are, and which tasks.

Nothing of podvisor waits for it. It follows what the registry tells, and the API may be away, slow or say no.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import httpx
import trio

from controller.election import Leadership
from controller.journal import Journal
from controller.kubernetes.client import ApiClient
from controller.kubernetes.condition_writer import ConditionWriter
from controller.kubernetes.event_writer import EventWriter
from controller.kubernetes.follower import Follower
from controller.kubernetes.pod_deleter import PodDeleter
from controller.kubernetes.pod_watch import PodWatch
from controller.kubernetes.service_account import ServiceAccount
from controller.kubernetes.trouble import Trouble
from controller.model.kubernetes.pods import PodRef, ref_of
from controller.registry import Registry
from controller.sections import KubernetesSection

CLOSE_SEC = 1.0

Transport = Callable[[], httpx.AsyncBaseTransport]
Make = Callable[[Registry, Journal, Leadership], "Kubernetes"]
"""One for each leadership."""


class Kubernetes:
    """Of one leadership."""

    def __init__(
        self,
        settings: KubernetesSection,
        account: ServiceAccount,
        registry: Registry,
        journal: Journal,
        leadership: Leadership,
        transport: Transport | None = None,
    ) -> None:
        self.trouble = Trouble()
        self._account = account
        self._registry = registry
        self._client = client = ApiClient(account, settings.timeout_sec, transport)
        self._watch = PodWatch(client, settings.pod_selector, self.trouble, self._gone)
        self._events = EventWriter(client, self.trouble) if settings.events else None
        self._conditions = ConditionWriter(client, self.trouble) if settings.conditions else None
        tell = self._events.tell if self._events else lambda *_: None
        self._deleter = (
            PodDeleter(client, registry, journal, leadership, self.trouble, self._watch.pods, tell)
            if settings.delete_pods
            else None
        )

    async def run(self) -> None:
        """Until the registry's events end, or until cancelled: what was not written by then is not written."""
        follower = Follower(self._registry, self._watch, self._events, self._conditions, self._deleter)
        try:
            async with trio.open_nursery() as nursery:
                for namespace in self._account.namespaces:
                    nursery.start_soon(self._watch.follow, namespace)
                for part in (self._events, self._conditions, self._deleter):
                    if part is not None:
                        nursery.start_soon(part.run)
                await follower.run()
                nursery.cancel_scope.cancel(reason="nobody tells anything any more")
        finally:
            with trio.move_on_after(CLOSE_SEC, shield=True):
                await self._client.aclose()

    def _gone(self, refs: set[PodRef]) -> None:
        """Pods are no more: whether their supervisors are too is asked at once, without waiting for their silence."""
        for entry in self._registry.entries():
            for member in entry.instance.members:
                if ref_of(member) in refs:
                    self._registry.doubt(entry, member.key)


def kubernetes_of(
    settings: KubernetesSection, environment: Mapping[str, str], transport: Transport | None = None
) -> Make | None:
    """None: it is switched off. Raises NotInACluster."""
    if not settings.enable:
        return None
    account = ServiceAccount(settings, environment)

    def make(registry: Registry, journal: Journal, leadership: Leadership) -> Kubernetes:
        return Kubernetes(settings, account, registry, journal, leadership, transport)

    return make
