"""Events on pods and on their owners: repeated ones counted, written when the API takes them."""

from __future__ import annotations

import secrets
from functools import partial

import trio

from controller.clock import wall_clock
from controller.kubernetes.client import CONFLICT, NOT_FOUND, ApiClient, ApiRefused
from controller.kubernetes.messages import event_body, event_patch
from controller.kubernetes.outbox import Outbox
from controller.kubernetes.trouble import Trouble, What
from controller.kubernetes.writing import write_what_is_due
from controller.model.kubernetes import series
from controller.model.kubernetes.pods import Pod
from controller.model.kubernetes.series import Series, SeriesKey
from controller.model.kubernetes.telling import News

STALE_SEC = 600.0
"""What could not be written for so long is news no more."""


class EventWriter:
    def __init__(self, client: ApiClient, trouble: Trouble) -> None:
        self._client = client
        self._trouble = trouble
        self._series: dict[SeriesKey, Series] = {}
        self._outbox: Outbox[SeriesKey, Series] = Outbox(partial(trouble.drop, What.EVENTS))

    def tell(self, pods: tuple[Pod, ...], news: News, now: float) -> None:
        for involved in series.involved(pods):
            key = involved, news.reason
            name = f"{involved.name}.{secrets.token_hex(8)}"
            told = self._series[key] = series.told(self._series.get(key), involved, news, now, name)
            self._outbox.put(key, told, told.due_at)

    def forget(self, now: float) -> None:
        """What is told no more, so that memory is bounded by what is."""
        for key, known in list(self._series.items()):
            if series.is_over(known, now) and not self._outbox.has(key):
                del self._series[key]

    async def run(self) -> None:
        await write_what_is_due(What.EVENTS, self._outbox, self._write, self._trouble)

    async def _write(self, key: SeriesKey, waiting: Series) -> bool:
        told, now = self._series.get(key, waiting), trio.current_time()
        if now - told.last_at > STALE_SEC:
            self._trouble.drop(What.EVENTS)
            return False
        await self._put(told, now)
        if known := self._series.get(key):
            # Meanwhile it may have been told again.
            self._series[key] = series.written(known, told, trio.current_time())
        return True

    async def _put(self, told: Series, now: float) -> None:
        to_wall, namespace = wall_clock(now), told.involved.namespace
        if told.written_at is not None:
            try:
                await self._client.patch_event(namespace, told.name, event_patch(told, to_wall(told.last_at)))
                return
            except ApiRefused as refused:
                if refused.status != NOT_FOUND:
                    raise
                # The API keeps Events for an hour, or for less.
        try:
            body = event_body(told, to_wall(told.first_at), to_wall(told.last_at))
            await self._client.create_event(namespace, body)
        except ApiRefused as refused:
            if refused.status != CONFLICT:
                raise
            # An earlier try was carried out and not answered.
            await self._client.patch_event(namespace, told.name, event_patch(told, to_wall(told.last_at)))
