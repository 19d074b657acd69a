"""Who leads, by a key in etcd that hangs on a lease: the controller that has made it, until it is gone.

Whoever stands by looks at the key some times in a lease; when there is none, it makes one and takes the next term
in the same transaction, which only one of several can. The leader renews its lease all the time. It counts from
the moment when it asked for a renewal, and so stops commanding before etcd can have given the key up.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

import msgspec
import trio

from controller.election import Leader, Leadership
from controller.store.base import CannotOpen
from controller.store.etcd import EtcdStore, Keys
from controller.store.etcd_client import Access, EtcdClient, EtcdRefused, EtcdUnavailable
from controller.store.etcd_messages import KeyValue, hangs_on, put, unchanged
from controller.store.etcd_writer import EtcdWriter
from supervisor.shared.error_window import ErrorWindow

LOOKS = 5
"""In the time of a lease: at the key of another, and renewals of our own."""
TRY = 0.4
"""Of a lease, for one endpoint's answer: one that is silent leaves time to ask the next."""
USABLE = 0.8
"""Of a lease that was just renewed: the rest is for clocks that run apart, and for what is being sent."""
RESIGN_SEC = 1.0

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Won:
    lease: int
    """On which the leader key hangs; no other controller's ever does."""
    term: int
    until: float
    """Monotonic."""


class EtcdElection:
    def __init__(self, access: Access, keys: Keys, url: str, lease_sec: int) -> None:
        self.leader: Leader | None = None
        self._access = access
        self._keys = keys
        self._url = url
        self._lease_sec = lease_sec
        self._errors = ErrorWindow()

    @asynccontextmanager
    async def campaign(self) -> AsyncIterator[Leadership]:
        async with self._connected() as renewals, self._connected() as client, trio.open_nursery() as nursery:
            won = await self._win(client)
            writer = EtcdWriter(
                client, hangs_on(self._keys.leader, won.lease), self._lease_sec, lambda why: leadership.lose(why)
            )
            leadership = Leadership(EtcdStore(client, writer, self._keys, won.term), self._url)
            leadership.scope.deadline = won.until
            nursery.start_soon(writer.run)
            nursery.start_soon(self._renew, renewals, won.lease, leadership)
            try:
                yield leadership
            finally:
                nursery.cancel_scope.cancel(reason="the leadership is over")
                with trio.move_on_after(RESIGN_SEC, shield=True):
                    await self._resign(renewals, won.lease)

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[EtcdClient]:
        client = EtcdClient(self._access, try_sec=TRY * self._lease_sec)
        try:
            yield client
        finally:
            with trio.move_on_after(RESIGN_SEC, shield=True):
                await client.aclose()

    async def _win(self, client: EtcdClient) -> _Won:
        """Until we lead."""
        while True:
            try:
                if won := await self._stand(client):
                    return won
            except (EtcdUnavailable, EtcdRefused) as error:
                self._tell("cannot be asked who leads, standing by", error)
            else:
                self._errors.clear("etcd")
            await trio.sleep(self._lease_sec / LOOKS)

    async def _stand(self, client: EtcdClient) -> _Won | None:
        """Lead, if nobody does. Not answered, we may have won without knowing, and the lease then ends by itself."""
        if found := await client.get(self._keys.leader):
            self._found(found)
            return None
        began = trio.current_time()
        lease = await client.grant(self._lease_sec)
        before = await client.get(self._keys.term)
        term = 1 + (self._term(before) if before else 0)
        outcome = await client.transact(
            (unchanged(self._keys.leader, 0), unchanged(self._keys.term, before.mod_revision if before else 0)),
            (
                put(self._keys.leader, msgspec.json.encode(Leader(self._url, term)), lease.ID),
                put(self._keys.term, msgspec.json.encode(term)),
            ),
        )
        if not outcome.succeeded:
            await client.revoke(lease.ID)
            return None
        self.leader = None
        return _Won(lease.ID, term, began + USABLE * lease.TTL)

    def _found(self, key: KeyValue) -> None:
        """Our own key of an earlier life is nobody's, and soon over; so is one that is not of this version."""
        known, self.leader = self.leader, None
        with suppress(msgspec.MsgspecError):
            leader = msgspec.json.decode(key.value, type=Leader)
            self.leader = leader if leader.url != self._url else None
        if self.leader is not None and self.leader != known:
            log.info("standing by", extra={"leader": self.leader.url, "term": self.leader.term})

    def _term(self, key: KeyValue) -> int:
        """Raises CannotOpen: with a lower one than before we would command nobody."""
        try:
            return msgspec.json.decode(key.value, type=int)
        except msgspec.MsgspecError as error:
            raise CannotOpen(f"{self._keys.term.decode()} in etcd is no number: put the highest term there") from error

    async def _renew(self, client: EtcdClient, lease: int, leadership: Leadership) -> None:
        """Until it is over; every renewal moves the moment at which the leadership ends by itself."""
        while True:
            await trio.sleep(self._lease_sec / LOOKS)
            began = trio.current_time()
            try:
                remaining_sec = await client.keep_alive(lease)
                found = await client.get(self._keys.leader)
            except (EtcdUnavailable, EtcdRefused) as error:
                self._tell("does not renew our lease, trying again", error)
                continue
            self._errors.clear("etcd")
            if remaining_sec == 0 or found is None or found.lease != lease:
                leadership.lose("our lease in etcd is over, or the leader key that hangs on it is gone")
                return
            leadership.scope.deadline = began + USABLE * remaining_sec

    async def _resign(self, client: EtcdClient, lease: int) -> None:
        """So that another need not wait for the lease to end."""
        try:
            await client.revoke(lease)
        except (EtcdUnavailable, EtcdRefused) as error:
            log.info("the lease is left to end by itself: %s", error)

    def _tell(self, what: str, error: Exception) -> None:
        held_back = self._errors.admit("etcd", trio.current_time())
        if held_back is not None:
            log.warning("etcd %s: %s", what, error, extra={"held_back": held_back})
