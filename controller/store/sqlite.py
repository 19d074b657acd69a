"""A journal in one SQLite file: for one controller that leads, and others that may take its place on that machine.

Write-ahead log with synchronous = FULL: a write that was acknowledged survives the end of the process, however it
ends, and a loss of power too, as far as the disk keeps its own promises. A write under way is there whole or not
at all.

One thread at a time writes. A write is never abandoned: cancelled before its turn it does not happen; once begun
it is finished, and its caller goes on as if nobody had cancelled. What comes while another is being written waits and
is then written together, in one transaction: a hundred runs at once wait for a few syncs of the disk, not for hundreds.

That nobody else writes is `state_lock`'s. Every write checks all the same that the term in the file is still ours.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, TypeVar

import trio

from controller.clock import clocks
from controller.events import ControllerEvent
from controller.model.budget import Budget, reset
from controller.model.instance import Instance, InstanceStatus
from controller.model.relaunch.run import RunRecord
from controller.store import codec, schema
from controller.store.base import (
    CLOSED_RUNS_KEPT,
    EVENTS_KEPT,
    PAST_INSTANCES_KEPT,
    CannotOpen,
    CannotWrite,
    Deposed,
    Loaded,
    StoreError,
    first_instance_id,
)
from controller.store.codec import CannotDecode, Clocks

FILE = "journal.sqlite"
BUSY_SEC = 5.0
"""How long a write waits for somebody who looks into the file, or copies it."""

SAVE_INSTANCE = "INSERT OR REPLACE INTO instances VALUES (?, ?, ?, ?, ?)"
SAVE_RUN = "INSERT OR REPLACE INTO runs (run_id, namespace, job_name, open, body) VALUES (?, ?, ?, ?, ?)"
SAVE_BUDGET = "INSERT OR REPLACE INTO budgets VALUES (?, ?, ?, ?)"
FORGET_BUDGET = "DELETE FROM budgets WHERE (namespace, job_name, config_digest) = (?, ?, ?)"
SAVE_EVENT = "INSERT OR REPLACE INTO events VALUES (?, ?)"
SAVE_TERM = "UPDATE leader SET term = ?"
NEW_SERIES = """UPDATE event_series SET name = lower(hex(randomblob(4)))
    WHERE NOT EXISTS (SELECT id FROM events)"""
"""Where nothing was written, nobody knows which numbers were given."""
FORGET_EVENTS = f"DELETE FROM events WHERE id <= (SELECT id FROM events ORDER BY id DESC LIMIT 1 OFFSET {EVENTS_KEPT})"
FORGET_RUNS = f"""DELETE FROM runs WHERE NOT open AND written <=
    (SELECT written FROM runs WHERE NOT open ORDER BY written DESC LIMIT 1 OFFSET {CLOSED_RUNS_KEPT})"""
FORGET_INSTANCES = f"""DELETE FROM instances WHERE deleted AND id <=
    (SELECT id FROM instances WHERE deleted ORDER BY id DESC LIMIT 1 OFFSET {PAST_INSTANCES_KEPT})"""
FORGET_OVERTAKEN_RUNS = "DELETE FROM runs WHERE open AND (namespace, job_name) = (?, ?) AND run_id <> ?"
"""An instance has one run at a time: whatever another has left open is over."""
FORGET_ALL_OVERTAKEN_RUNS = """DELETE FROM runs WHERE open AND written < (SELECT max(written) FROM runs AS newer
    WHERE (newer.namespace, newer.job_name) = (runs.namespace, runs.job_name))"""
FORGET_LOST_RUNS = """DELETE FROM runs WHERE open AND (namespace, job_name) NOT IN
    (SELECT namespace, job_name FROM instances WHERE NOT deleted)"""

Statement = tuple[str, tuple[object, ...]]
T = TypeVar("T")


class Runner(Protocol):
    """Runs what may block, one at a time."""

    def __call__(self, work: Callable[[], T]) -> Awaitable[T]: ...


class WriterThread:
    def __init__(self) -> None:
        self._limiter = trio.CapacityLimiter(1)

    async def __call__(self, work: Callable[[], T]) -> T:
        return await trio.to_thread.run_sync(work, limiter=self._limiter)


@dataclass(eq=False)
class _Batch:
    """Writes that share a transaction."""

    writes: list[Sequence[Statement]] = field(default_factory=list)
    is_done: bool = False
    error: StoreError | None = None


class SqliteStore:
    durable = True

    def __init__(self, state_dir: Path, run: Runner | None = None) -> None:
        """`run` is where SQLite blocks; without it, a thread."""
        self.path = state_dir / FILE
        self._run: Runner = run or WriterThread()
        self._connection: sqlite3.Connection | None = None
        self._term = 0
        self._turn = trio.Lock()
        self._next = _Batch()
        """What waits for its turn."""

    async def load(self) -> Loaded:
        """Opens the file, or makes it; takes a new term. Raises CannotOpen."""
        now = clocks()
        return await self._run(lambda: self._load(now))

    async def take_term(self, at_least: int) -> int:
        term = max(self._term + 1, at_least)
        await self._write([(SAVE_TERM, (term,))])
        return term

    async def save_instance(self, instance: Instance) -> None:
        statements = [_instance(instance, clocks())]
        if instance.status is InstanceStatus.DELETED:
            statements.append((FORGET_INSTANCES, ()))
        await self._write(statements)

    async def save_run(self, record: RunRecord) -> None:
        await self._write(_run(record, clocks()))

    async def save_active(self, record: RunRecord, instance: Instance) -> None:
        now = clocks()
        await self._write([*_run(record, now), _instance(instance, now)])

    async def save_budget(self, budget: Budget) -> None:
        key = (budget.key.instance.namespace, budget.key.instance.job_name, budget.key.config_digest or "")
        if budget == reset(budget):
            await self._write([(FORGET_BUDGET, key)])
        else:
            await self._write([(SAVE_BUDGET, (*key, codec.encode_budget(budget, clocks())))])

    async def save_events(self, events: Sequence[ControllerEvent]) -> None:
        now = clocks()
        rows = [(SAVE_EVENT, (event.id, codec.encode_event(event, now))) for event in events]
        await self._write([*rows, (FORGET_EVENTS, ())])

    async def aclose(self) -> None:
        """The file is then whole without its write-ahead log."""
        if (connection := self._connection) is not None:
            self._connection = None
            await self._run(connection.close)

    # --- where it blocks -----------------------------------------------------------------------------------

    async def _write(self, statements: Sequence[Statement]) -> None:
        if self._connection is None:
            raise CannotWrite(f"{self.path} is not open")
        batch = self._next
        batch.writes.append(statements)
        try:
            async with self._turn:
                if not batch.is_done:
                    await self._write_all(batch, self._connection)
        except trio.Cancelled:
            # Only before its turn: once begun, a write cannot be cancelled.
            if not batch.is_done:
                batch.writes = [other for other in batch.writes if other is not statements]
            raise
        if batch.error is not None:
            raise type(batch.error)(*batch.error.args) from batch.error

    async def _write_all(self, batch: _Batch, connection: sqlite3.Connection) -> None:
        self._next, term = _Batch(), self._term
        statements = [statement for write in batch.writes for statement in write]
        try:
            # Also for another's: who takes a term may be cancelled while it is being written.
            self._term = await self._run(lambda: self._commit(connection, term, statements))
        except StoreError as error:
            batch.error = error
        batch.is_done = True

    def _commit(self, connection: sqlite3.Connection, term: int, statements: Iterable[Statement]) -> int:
        """All of it, or nothing; the term that is ours now."""
        try:
            with connection:
                connection.execute("BEGIN IMMEDIATE")
                (found,) = connection.execute("SELECT term FROM leader").fetchone()
                if found != term:
                    raise Deposed(f"{self.path} is led in term {found}, ours is {term}")
                for statement, values in statements:
                    connection.execute(statement, values)
                (found,) = connection.execute("SELECT term FROM leader").fetchone()
                return int(found)
        except sqlite3.Error as error:
            raise CannotWrite(f"{self.path} cannot be written: {error}; {_advice(error)}") from error

    def _load(self, now: Clocks) -> Loaded:
        try:
            self._connection = connection = self._open()
            connection.execute(NEW_SERIES)
            connection.execute(FORGET_ALL_OVERTAKEN_RUNS)
            loaded = _Reader(connection, now).everything()
            with connection:
                connection.execute(SAVE_TERM, (loaded.term,))
                connection.execute(FORGET_LOST_RUNS)
        except sqlite3.Error as error:
            raise CannotOpen(f"{self.path} cannot be used: {error}; {_advice(error)}") from error
        except OSError as error:
            raise CannotOpen(f"{self.path} cannot be made: {error.strerror}; see controller.state_dir") from error
        except CannotDecode as error:
            raise CannotOpen(f"{self.path}: {error}; {ASIDE}") from error
        except schema.TooNew as error:
            raise CannotOpen(f"{self.path}: {error}; run the podvisor that has written it, or a later one") from error
        self._term = loaded.term
        return loaded

    def _open(self) -> sqlite3.Connection:
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Addresses and the words of dying engines are nobody else's business.
        os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        connection = sqlite3.connect(self.path, timeout=BUSY_SEC, isolation_level=None, check_same_thread=False)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        (health,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        if health != "ok":
            raise sqlite3.DatabaseError(health)
        schema.migrate(connection)
        return connection


class _Reader:
    """What an earlier life left."""

    def __init__(self, connection: sqlite3.Connection, now: Clocks) -> None:
        self._connection = connection
        self._now = now

    def everything(self) -> Loaded:
        (term,) = self._connection.execute("SELECT term FROM leader").fetchone()
        instances = [codec.decode_instance(body, self._now) for body in self._bodies("instances ORDER BY id")]
        budgets = [codec.decode_budget(body) for body in self._bodies("budgets")]
        runs = [codec.decode_run(body, self._now) for body in self._bodies("runs ORDER BY written DESC")]
        events = tuple(codec.decode_event(body) for body in self._bodies("events ORDER BY id"))
        (series,) = self._connection.execute("SELECT name FROM event_series").fetchone()
        newest_id = max((instance.id for instance in instances), default=0)
        return Loaded(
            term=term + 1,
            next_instance_id=max(newest_id + 1, first_instance_id(self._now.utc)),
            event_series=series,
            instances={instance.key: instance for instance in instances},
            budgets={budget.key: budget for budget in budgets},
            runs={record.instance: record for record in runs if record.is_open},
            closed_runs=tuple(record for record in runs if not record.is_open),
            events=events,
        )

    def _bodies(self, source: str) -> Iterable[bytes]:
        return (body for (body,) in self._connection.execute(f"SELECT body FROM {source}"))


def _instance(instance: Instance, now: Clocks) -> Statement:
    key, deleted = instance.key, instance.status is InstanceStatus.DELETED
    return SAVE_INSTANCE, (key.namespace, key.job_name, instance.id, deleted, codec.encode_instance(instance, now))


def _run(record: RunRecord, now: Clocks) -> list[Statement]:
    key = record.instance
    values = (record.run_id, key.namespace, key.job_name, record.is_open, codec.encode_run(record, now))
    overtaken = (FORGET_OVERTAKEN_RUNS, (key.namespace, key.job_name, record.run_id))
    return [overtaken, (SAVE_RUN, values), *([] if record.is_open else [(FORGET_RUNS, ())])]


ASIDE = (
    "move it and its -wal and -shm files aside and start again: the controller then learns terms, epochs and running"
    " engines from the supervisors, and loses budgets, holds and open runs"
)
ADVICE = {
    "SQLITE_FULL": "make room on the disk: nothing is commanded before it can be written, what serves goes on serving",
    "SQLITE_READONLY": "make controller.state_dir writable for this user, or set another",
    "SQLITE_CANTOPEN": "make controller.state_dir writable for this user, or set another",
    "SQLITE_IOERR": "see the kernel log and the volume under controller.state_dir",
    "SQLITE_BUSY": "end whoever holds it open for writing",
    "SQLITE_CORRUPT": ASIDE,
    "SQLITE_NOTADB": ASIDE,
}


def _advice(error: sqlite3.Error) -> str:
    """By the primary code; the extended ones add how it came about (SQLITE_READONLY_DIRECTORY)."""
    name: str = getattr(error, "sqlite_errorname", "SQLITE_CORRUPT")
    return next((words for code, words in ADVICE.items() if name.startswith(code)), f"see {name} in SQLite's manual")
