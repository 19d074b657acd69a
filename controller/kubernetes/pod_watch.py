"""The pods of some namespaces as the API last told of them: listed once, then followed.

A hint, as everything that is followed: who acts on a pod reads it once more.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import trio

from controller.kubernetes.client import ApiClient, ApiRefused, ApiUnavailable, Expired, WatchEvent
from controller.kubernetes.trouble import Trouble, What
from controller.model.kubernetes.patience import pause
from controller.model.kubernetes.pods import Pod, PodRef

BETWEEN_SEC = 1.0
"""Two watches that end at once are so far apart at most."""


class PodWatch:
    def __init__(self, client: ApiClient, selector: str, trouble: Trouble, gone: Callable[[set[PodRef]], None]) -> None:
        """`gone` is told of the pods that are no more, of all that were found to be at once."""
        self._client = client
        self._selector = selector
        self._trouble = trouble
        self._gone = gone
        self.pods: dict[tuple[str, str], Pod] = {}
        """By namespace and name."""
        self.listed = trio.Event()
        """Some namespace was."""

    async def follow(self, namespace: str) -> None:
        """Until cancelled, whatever the API does meanwhile."""
        version: str | None = None
        failures = 0
        while True:
            asked_sec = None
            try:
                if version is None:
                    version = await self._list(namespace)
                async with self._client.watch(namespace, self._selector, version) as events:
                    async for event in events:
                        version, failures = event.version, 0
                        self._take(event)
                self._trouble.went_well(What.PODS)
            except Expired:
                version = None
            except ApiRefused as error:
                version = None
                self._trouble.refused(What.PODS, error)
            except ApiUnavailable as error:
                asked_sec = error.retry_after_sec
                self._trouble.unavailable(What.PODS, error)
            else:
                await trio.sleep(random.random() * BETWEEN_SEC)
                continue
            failures += 1
            await trio.sleep(pause(failures, asked_sec, random.random()))

    async def _list(self, namespace: str) -> str:
        found, version = await self._client.pods(namespace, self._selector)
        present = {(pod.ref.namespace, pod.ref.name): pod for pod in found}
        before = {name: pod for name, pod in self.pods.items() if name[0] == namespace}
        for name in before.keys() - present.keys():
            del self.pods[name]
        self.pods.update(present)
        self._trouble.went_well(What.PODS)
        self.listed.set()
        if gone := {pod.ref for pod in before.values()} - {pod.ref for pod in found}:
            self._gone(gone)
        return version

    def _take(self, event: WatchEvent) -> None:
        if event.pod is None:
            return
        ref = event.pod.ref
        name = ref.namespace, ref.name
        if not event.is_deleted:
            self.pods[name] = event.pod
            return
        if (known := self.pods.get(name)) is not None and known.ref == ref:
            del self.pods[name]
        self._gone({ref})
