"""What the leader of several controllers keeps in etcd, under which keys.

Everything stands under one prefix, so that fleets can share an etcd. How it is written, and that only the leader
can, stands in `etcd_writer.py`; who leads in `etcd_election.py`. What etcd has acknowledged survives every crash
that leaves it a majority. Only the newest values are read, so that compaction takes nothing away.
"""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import quote

import msgspec

from controller.clock import clocks
from controller.events import ControllerEvent
from controller.model import budget as budgets
from controller.model.budget import Budget, BudgetKey
from controller.model.instance import Instance, InstanceStatus
from controller.model.member import InstanceKey
from controller.model.relaunch.run import RunRecord
from controller.store import codec
from controller.store.base import (
    CLOSED_RUNS_KEPT,
    EVENTS_KEPT,
    PAST_INSTANCES_KEPT,
    CannotOpen,
    CannotWrite,
    Loaded,
    first_instance_id,
)
from controller.store.codec import CannotDecode, Clocks
from controller.store.etcd_client import EtcdClient, EtcdRefused, EtcdUnavailable
from controller.store.etcd_messages import KeyValue, Operation, delete, put
from controller.store.etcd_writer import EtcdWriter

PAGE = 500
KEYS_AT_ONCE = 40


@dataclass(frozen=True, slots=True)
class Keys:
    """Where everything stands. The names of namespaces and jobs may hold anything."""

    prefix: str

    @property
    def leader(self) -> bytes:
        return self._key("leader")

    @property
    def term(self) -> bytes:
        return self._key("term")

    @property
    def event_series(self) -> bytes:
        return self._key("event-series")

    def instance(self, key: InstanceKey) -> bytes:
        return self._key("instance", key.namespace, key.job_name)

    def open_run(self, key: InstanceKey) -> bytes:
        """At most one of an instance is open."""
        return self._key("open-run", key.namespace, key.job_name)

    def closed_run(self, run_id: str) -> bytes:
        return self._key("closed-run", run_id)

    def budget(self, key: BudgetKey) -> bytes:
        return self._key("budget", key.instance.namespace, key.instance.job_name, key.config_digest or "")

    def event(self, number: int) -> bytes:
        return self._key("event", f"{number:020}")

    def kind(self, key: bytes) -> str:
        return key.decode()[len(self.prefix) :].partition("/")[0]

    @property
    def first(self) -> bytes:
        return self.prefix.encode()

    @property
    def end(self) -> bytes:
        """Above all keys with this prefix."""
        return self.first[:-1] + bytes([self.first[-1] + 1])

    def _key(self, kind: str, *names: str) -> bytes:
        return (self.prefix + "/".join([kind, *(quote(name, safe="") for name in names)])).encode()


class EtcdStore:
    durable = True

    def __init__(self, client: EtcdClient, writer: EtcdWriter, keys: Keys, term: int) -> None:
        """`term` was taken when the leadership was won."""
        self._client = client
        self._writer = writer
        self._keys = keys
        self._term = term
        self._closed: deque[str] = deque()
        """Ids of the closed runs that are kept, oldest first."""

    async def load(self) -> Loaded:
        """Raises CannotOpen, and CannotWrite if etcd cannot be read now."""
        now = clocks()
        kept = _Kept(self._keys, now)
        for found in await self._everything():
            kept.take(found)
        await self._tidy(kept)
        self._closed.extend(record.run_id for record in kept.closed_runs)
        newest_id = max((instance.id for instance in kept.instances.values()), default=0)
        return Loaded(
            term=self._term,
            next_instance_id=max(newest_id + 1, first_instance_id(now.utc)),
            event_series=kept.event_series,
            instances=kept.instances,
            budgets=kept.budgets,
            runs=kept.runs,
            closed_runs=kept.closed_runs[::-1],
            events=kept.events,
        )

    async def take_term(self, at_least: int) -> int:
        term = max(self._term + 1, at_least)
        await self._writer.write(_only(put(self._keys.term, msgspec.json.encode(term))))
        self._term = term
        return term

    async def save_instance(self, instance: Instance) -> None:
        await self._writer.write(self._instance(instance))

    async def save_run(self, record: RunRecord) -> None:
        await self._writer.write(self._run(record))

    async def save_active(self, record: RunRecord, instance: Instance) -> None:
        await self._writer.write(self._run(record) | self._instance(instance))

    async def save_budget(self, budget: Budget) -> None:
        key = self._keys.budget(budget.key)
        is_whole = budget == budgets.reset(budget)
        await self._writer.write(_only(delete(key) if is_whole else put(key, codec.encode_budget(budget, clocks()))))

    async def save_events(self, events: Sequence[ControllerEvent]) -> None:
        for first in range(0, len(events), KEYS_AT_ONCE):
            writes: dict[bytes, Operation] = {}
            for event in events[first : first + KEYS_AT_ONCE]:
                writes |= _only(put(self._keys.event(event.id), codec.encode_event(event, clocks())))
                if event.id > EVENTS_KEPT:
                    writes |= _only(delete(self._keys.event(event.id - EVENTS_KEPT)))
            await self._writer.write(writes)

    def _instance(self, instance: Instance) -> dict[bytes, Operation]:
        return _only(put(self._keys.instance(instance.key), codec.encode_instance(instance, clocks())))

    def _run(self, record: RunRecord) -> dict[bytes, Operation]:
        opened = self._keys.open_run(record.instance)
        body = codec.encode_run(record, clocks())
        if record.is_open:
            return _only(put(opened, body))
        writes = _only(delete(opened)) | _only(put(self._keys.closed_run(record.run_id), body))
        if record.run_id not in self._closed:
            self._closed.append(record.run_id)
        if len(self._closed) > CLOSED_RUNS_KEPT:
            writes |= _only(delete(self._keys.closed_run(self._closed.popleft())))
        return writes

    async def _tidy(self, kept: _Kept) -> None:
        """What nobody needs any more is forgotten; the series of events gets its name once."""
        past = sorted(kept.past, key=lambda instance: instance.since)
        for instance in past[: max(0, len(past) - PAST_INSTANCES_KEPT)]:
            del kept.instances[instance.key]
            await self._writer.write(_only(delete(self._keys.instance(instance.key))))
        for key in [key for key in kept.runs if not kept.lives(key)]:
            del kept.runs[key]
            await self._writer.write(_only(delete(self._keys.open_run(key))))
        kept.closed_runs.sort(key=lambda record: record.opened_at)
        # Each life leaves out numbers of events, and a write that failed may have left a run: more than is counted.
        await self._forget([self._keys.closed_run(record.run_id) for record in kept.closed_runs[:-CLOSED_RUNS_KEPT]])
        await self._forget([self._keys.event(event.id) for event in kept.events[:-EVENTS_KEPT]])
        del kept.closed_runs[:-CLOSED_RUNS_KEPT], kept.events[:-EVENTS_KEPT]
        if not kept.event_series:
            kept.event_series = secrets.token_hex(4)
            await self._writer.write(_only(put(self._keys.event_series, kept.event_series.encode())))

    async def _forget(self, keys: Sequence[bytes]) -> None:
        for first in range(0, len(keys), KEYS_AT_ONCE):
            await self._writer.write({key: delete(key) for key in keys[first : first + KEYS_AT_ONCE]})

    async def _everything(self) -> list[KeyValue]:
        """In the order of the keys. Nobody else can write meanwhile, so that the pages fit together."""
        everything: list[KeyValue] = []
        first = self._keys.first
        while True:
            try:
                page = await self._client.page(first, self._keys.end, PAGE)
            except (EtcdUnavailable, EtcdRefused) as error:
                raise CannotWrite(f"what is kept in etcd cannot be read: {error}") from error
            everything += page.kvs
            if not page.more:
                return everything
            first = page.kvs[-1].key + b"\0"


class _Kept:
    """What was found so far."""

    def __init__(self, keys: Keys, clocks: Clocks) -> None:
        self._keys = keys
        self._clocks = clocks
        self.event_series = ""
        self.instances: dict[InstanceKey, Instance] = {}
        self.budgets: dict[BudgetKey, Budget] = {}
        self.runs: dict[InstanceKey, RunRecord] = {}
        self.closed_runs: list[RunRecord] = []
        self.events: list[ControllerEvent] = []

    @property
    def past(self) -> list[Instance]:
        return [instance for instance in self.instances.values() if instance.status is InstanceStatus.DELETED]

    def lives(self, key: InstanceKey) -> bool:
        return key in self.instances and self.instances[key].status is not InstanceStatus.DELETED

    def take(self, found: KeyValue) -> None:
        """What is of a kind that is not known was written by a newer controller, and is its own. Raises CannotOpen."""
        try:
            self._take(self._keys.kind(found.key), found.value)
        except (CannotDecode, msgspec.MsgspecError) as error:
            raise CannotOpen(
                f"{found.key.decode(errors='replace')} in etcd cannot be read: {error}; run the version that wrote it,"
                " or restore a backup (docs/high-availability.md)"
            ) from error

    def _take(self, kind: str, value: bytes) -> None:
        match kind:
            case "instance":
                instance = codec.decode_instance(value, self._clocks)
                self.instances[instance.key] = instance
            case "open-run":
                record = codec.decode_run(value, self._clocks)
                self.runs[record.instance] = record
            case "closed-run":
                self.closed_runs.append(codec.decode_run(value, self._clocks))
            case "budget":
                budget = codec.decode_budget(value)
                self.budgets[budget.key] = budget
            case "event":
                self.events.append(codec.decode_event(value))
            case "event-series":
                self.event_series = value.decode()


def _only(operation: Operation) -> dict[bytes, Operation]:
    return {operation.key: operation}
