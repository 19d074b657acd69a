"""The SQLite journal on a real file, in a real thread: what comes back, who may write, what is said if it cannot be."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pytest
import trio
from trio.testing import MockClock

from controller.clock import clocks
from controller.events import ControllerEvent
from controller.model.budget import spend_run
from controller.model.instance import Instance, InstanceStatus, delete, kept
from controller.model.member import InstanceKey
from controller.model.relaunch.dispatch import record
from controller.model.relaunch.run import Outcome, RunRecord, RunStep
from controller.store import codec, schema, sqlite
from controller.store.base import (
    CLOSED_RUNS_KEPT,
    EVENTS_KEPT,
    PAST_INSTANCES_KEPT,
    CannotOpen,
    CannotWrite,
    Deposed,
    Loaded,
)
from controller.store.sqlite import SqliteStore
from controller.store.state_lock import StateLock
from tests.unit.controller_gang import Drive, fresh_budget, serving

T = TypeVar("T")


async def test_a_term_that_is_taken_is_ours_though_who_took_it_was_cancelled(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """Its write shared a transaction that another led."""

    async def slowly(work: Callable[[], T]) -> T:
        with trio.CancelScope(shield=True):
            await trio.sleep(1)
        return work()

    store, claim = SqliteStore(tmp_path, slowly), trio.CancelScope()

    async def take_term() -> None:
        with claim:
            await store.take_term(10)

    await store.load()
    async with trio.open_nursery() as nursery:
        for write in (lambda: store.save_instance(named("first", 1)), lambda: store.save_instance(named("leads", 2))):
            nursery.start_soon(write)
            await trio.sleep(0.1)
        nursery.start_soon(take_term)
        await trio.sleep(1.2)
        claim.cancel()
    await store.save_instance(named("after", 3))
    await store.aclose()
    async with opened(tmp_path) as (_, loaded):
        assert loaded.term == 11
        assert len(loaded.instances) == 3


@asynccontextmanager
async def opened(state_dir: Path) -> AsyncIterator[tuple[SqliteStore, Loaded]]:
    store = SqliteStore(state_dir)
    try:
        yield store, await store.load()
    finally:
        await store.aclose()


async def reloaded(state_dir: Path) -> Loaded:
    async with opened(state_dir) as (_, loaded):
        return loaded


def named(job_name: str, number: int) -> Instance:
    instance = serving()
    return replace(instance, id=number, key=InstanceKey("default", job_name))


def run_of(instance: Instance, run_id: str, outcome: Outcome | None = None) -> RunRecord:
    row = record(Drive.open(serving()).to(RunStep.PREPARE).run, trio.current_time())
    return replace(row, run_id=run_id, instance=instance.key, instance_id=instance.id, outcome=outcome)


def event(number: int) -> ControllerEvent:
    return ControllerEvent(id=number, at="2026-01-01T00:00:00.000Z", kind="run", level="info", message=f"e{number}")


async def test_what_was_written_comes_back(tmp_path: Path) -> None:
    living, dead = named("a", 7), delete(named("b", 8), "terminated", 1.0)
    budget = spend_run(fresh_budget(living), "run-1")
    async with opened(tmp_path) as (store, loaded):
        assert (loaded.term, loaded.instances, loaded.events) == (1, {}, ())
        for instance in (living, dead):
            await store.save_instance(instance)
        await store.save_run(run_of(living, "run-0", Outcome.ABORTED))
        await store.save_run(run_of(living, "run-1"))
        await store.save_budget(budget)
        await store.save_events([event(1), event(2)])
        series = loaded.event_series
    loaded = await reloaded(tmp_path)
    assert loaded.term == 2
    assert loaded.instances[living.key].members[0].boot_id == kept(living).members[0].boot_id
    assert loaded.instances[dead.key].status is InstanceStatus.DELETED
    assert loaded.next_instance_id > 8
    assert loaded.runs[living.key].run_id == "run-1"
    assert [run.run_id for run in loaded.closed_runs] == ["run-0"]
    assert loaded.budgets == {budget.key: budget}
    assert (loaded.events, loaded.event_series) == ((event(1), event(2)), series)


async def test_a_run_has_one_row_and_its_end_is_written_with_the_instance(tmp_path: Path) -> None:
    instance = named("a", 7)
    active = replace(instance, status=InstanceStatus.ACTIVE)
    async with opened(tmp_path) as (store, _):
        await store.save_instance(instance)
        await store.save_run(run_of(instance, "run-1"))
        await store.save_active(run_of(instance, "run-1", Outcome.DONE), active)
    loaded = await reloaded(tmp_path)
    assert (loaded.runs, len(loaded.closed_runs)) == ({}, 1)
    assert loaded.instances[instance.key].status is InstanceStatus.ACTIVE


async def test_a_budget_that_is_whole_again_needs_no_row(tmp_path: Path) -> None:
    budget = fresh_budget(serving())
    async with opened(tmp_path) as (store, _):
        await store.save_budget(spend_run(budget, "run-1"))
        await store.save_budget(budget)
    assert (await reloaded(tmp_path)).budgets == {}


async def test_what_is_kept_for_people_is_bounded(tmp_path: Path) -> None:
    async with opened(tmp_path) as (store, _):
        await store.save_instance(named("b", 2))
        await store.save_run(run_of(named("b", 2), "open"))
        for number in range(CLOSED_RUNS_KEPT + 5):
            await store.save_run(run_of(named("a", 1), f"run-{number}", Outcome.DONE))
        for first in (1, 1 + EVENTS_KEPT):
            await store.save_events([event(number) for number in range(first, first + EVENTS_KEPT)])
    loaded = await reloaded(tmp_path)
    assert len(loaded.closed_runs) == CLOSED_RUNS_KEPT
    assert loaded.closed_runs[0].run_id == f"run-{CLOSED_RUNS_KEPT + 4}"
    assert [run.run_id for run in loaded.runs.values()] == ["open"]
    assert (loaded.events[0].id, len(loaded.events)) == (EVENTS_KEPT + 1, EVENTS_KEPT)


@pytest.mark.parametrize("outcome", [None, Outcome.DONE])
async def test_the_next_run_of_an_instance_ends_what_the_last_has_left_open(
    tmp_path: Path, outcome: Outcome | None
) -> None:
    async with opened(tmp_path) as (store, _):
        for number, name in enumerate(("a", "b"), 1):
            await store.save_instance(named(name, number))
            await store.save_run(run_of(named(name, number), f"first of {name}"))
        await store.save_run(run_of(named("a", 1), "second of a", outcome))
    loaded = await reloaded(tmp_path)
    assert {run.run_id for run in loaded.runs.values()} == {"first of b"} | ({"second of a"} if not outcome else set())
    assert [run.run_id for run in loaded.closed_runs] == (["second of a"] if outcome else [])


@pytest.mark.parametrize("outcome", [None, Outcome.DONE])
async def test_what_an_earlier_program_has_left_open_beside_a_later_run_is_over(
    tmp_path: Path, outcome: Outcome | None
) -> None:
    async with opened(tmp_path) as (store, _):
        await store.save_instance(named("a", 1))
    with closing(sqlite3.connect(tmp_path / sqlite.FILE, isolation_level=None)) as connection:
        for run_id, ended in (("first", None), ("second", outcome)):
            body = codec.encode_run(run_of(named("a", 1), run_id, ended), clocks())
            connection.execute(sqlite.SAVE_RUN, (run_id, "default", "a", not ended, body))
    for _ in range(2):
        loaded = await reloaded(tmp_path)
        found = [*loaded.runs.values(), *loaded.closed_runs]
        assert [(run.run_id, run.outcome) for run in found] == [("second", outcome)]


async def test_instances_of_the_past_are_bounded_and_their_ids_stay_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "FORGET_INSTANCES", sqlite.FORGET_INSTANCES.replace(str(PAST_INSTANCES_KEPT), "3"))
    async with opened(tmp_path) as (store, _):
        for number in range(6):
            await store.save_instance(delete(named(f"job-{number}", number + 1), "terminated", 1.0))
        await store.save_instance(named("lives", 1))
    loaded = await reloaded(tmp_path)
    assert sorted(key.job_name for key in loaded.instances) == ["job-3", "job-4", "job-5", "lives"]
    assert loaded.next_instance_id > 6


async def test_an_open_run_of_no_living_instance_is_forgotten(tmp_path: Path) -> None:
    async with opened(tmp_path) as (store, _):
        await store.save_run(run_of(named("gone", 1), "run-1"))
    await reloaded(tmp_path)
    assert (await reloaded(tmp_path)).runs == {}


async def test_every_life_has_a_term_of_its_own_and_one_that_was_learnt_is_overtaken(tmp_path: Path) -> None:
    assert [(await reloaded(tmp_path)).term for _ in range(3)] == [1, 2, 3]
    async with opened(tmp_path) as (store, _):
        assert await store.take_term(41) == 41
        await store.save_instance(serving())
    assert (await reloaded(tmp_path)).term == 42


async def test_F19_who_was_overtaken_writes_nothing(tmp_path: Path) -> None:
    async with opened(tmp_path) as (old, _), opened(tmp_path) as (new, _):
        with pytest.raises(Deposed, match="led in term 2, ours is 1"):
            await old.save_instance(serving())
        with pytest.raises(Deposed):
            await old.take_term(100)
        await new.save_budget(spend_run(fresh_budget(serving()), "run-1"))
    loaded = await reloaded(tmp_path)
    assert (loaded.term, loaded.instances, len(loaded.budgets)) == (3, {}, 1)


async def test_a_cancelled_write_is_whole_or_not_there(tmp_path: Path) -> None:
    async with opened(tmp_path) as (store, _):
        acknowledged = []

        async def write(number: int) -> None:
            await store.save_instance(named(f"job-{number}", number))
            acknowledged.append(f"job-{number}")

        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                for number in range(20):
                    nursery.start_soon(write, number)
                await trio.sleep(0)
                scope.cancel(reason="for the test")
    found = {key.job_name for key in (await reloaded(tmp_path)).instances}
    assert found >= set(acknowledged)
    assert len(found) < 20, "who waited for his turn has written nothing"


async def test_nobody_else_may_read_it(tmp_path: Path) -> None:
    await reloaded(tmp_path / "made")
    assert (tmp_path / "made").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "made" / sqlite.FILE).stat().st_mode & 0o777 == 0o600


# --- versions -----------------------------------------------------------------------------------------------


def at_version(state_dir: Path, number: int) -> None:
    """As the program of that version left it."""
    with closing(sqlite3.connect(state_dir / sqlite.FILE, isolation_level=None)) as connection:
        for version, statements in schema.MIGRATIONS.items():
            if version <= number:
                for statement in statements:
                    connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {number}")


async def test_the_first_version_is_taken_over_with_all_that_it_holds(tmp_path: Path) -> None:
    at_version(tmp_path, 1001)
    with closing(sqlite3.connect(tmp_path / sqlite.FILE, isolation_level=None)) as connection:
        connection.execute("UPDATE leader SET term = 6")
        statement, values = sqlite._instance(named("a", 7), clocks())
        connection.execute(statement, values)
    async with opened(tmp_path) as (store, loaded):
        assert (loaded.term, [key.job_name for key in loaded.instances]) == (7, ["a"])
        await store.save_events([event(1)])
    assert (await reloaded(tmp_path)).events == (event(1),)


async def test_a_migration_that_is_cut_off_is_begun_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = dict(schema.MIGRATIONS) | {1002: (*schema.MIGRATIONS[1002], "CREATE NONSENSE")}
    monkeypatch.setattr(schema, "MIGRATIONS", broken)
    with pytest.raises(CannotOpen):
        await reloaded(tmp_path)
    monkeypatch.undo()
    assert (await reloaded(tmp_path)).events == ()


async def test_a_later_minor_version_is_used_as_it_is(tmp_path: Path) -> None:
    at_version(tmp_path, schema.NEWEST)
    with closing(sqlite3.connect(tmp_path / sqlite.FILE, isolation_level=None)) as connection:
        connection.execute(f"PRAGMA user_version = {schema.NEWEST + 1}")
        connection.execute("CREATE TABLE later (x)")
    await reloaded(tmp_path)
    with closing(sqlite3.connect(tmp_path / sqlite.FILE)) as connection:
        assert schema.version(connection) == schema.NEWEST + 1


async def test_a_later_major_version_is_refused_with_what_to_do(tmp_path: Path) -> None:
    at_version(tmp_path, 2003)
    with pytest.raises(CannotOpen, match=r"version 2\.3, this program knows 1\.\d+; run the podvisor that"):
        await reloaded(tmp_path)


# --- what can go wrong --------------------------------------------------------------------------------------


async def test_a_file_that_is_no_journal_is_named_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / sqlite.FILE).write_bytes(b"not a database, but long enough to look like one" * 100)
    with pytest.raises(CannotOpen, match=r"journal\.sqlite cannot be used: .*move it"):
        await reloaded(tmp_path)


async def test_a_damaged_page_is_found_before_anything_is_commanded(tmp_path: Path) -> None:
    async with opened(tmp_path) as (store, _):
        for number in range(200):
            await store.save_instance(named(f"job-{number}", number + 1))
    path = tmp_path / sqlite.FILE
    body = bytearray(path.read_bytes())
    body[3 * 4096 : -4096] = b"\xff" * (len(body) - 4 * 4096)
    path.write_bytes(body)
    with pytest.raises(CannotOpen, match="move it"):
        await reloaded(tmp_path)


async def test_a_row_that_cannot_be_read_is_no_reason_to_forget_it(tmp_path: Path) -> None:
    async with opened(tmp_path) as (store, _):
        await store.save_instance(serving())
    with closing(sqlite3.connect(tmp_path / sqlite.FILE, isolation_level=None)) as connection:
        connection.execute("UPDATE instances SET body = '{}'")
    with pytest.raises(CannotOpen, match="move it"):
        await reloaded(tmp_path)


async def test_a_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CannotOpen, match=r"Not a directory; see controller\.state_dir"):
        await reloaded(tmp_path / "file" / "state")
    with pytest.raises(CannotOpen, match=r"Not a directory; see controller\.state_dir"):
        StateLock(tmp_path / "file" / "state").try_lock("me")


FULL_DISK = """
import trio
from pathlib import Path
from typing import TypeVar
from controller.store.base import CannotWrite
from controller.store.sqlite import SqliteStore
from tests.processes.test_sqlite_store import named

async def main():
    store = SqliteStore(Path("{state_dir}"))
    await store.load()
    written = 0
    ballast = Path("{state_dir}/ballast")
    try:
        for written in range(10_000):
            await store.save_instance(named(f"job-{{written}}", written + 1))
    except CannotWrite as error:
        print(error)
    assert 0 < written < 10_000
    await store.aclose()
    again = SqliteStore(Path("{state_dir}"))
    ballast.unlink()
    loaded = await again.load()
    assert len(loaded.instances) == written, (len(loaded.instances), written)
    await again.save_instance(named("after", 20_000))
    print("written again")

trio.run(main)
"""


async def test_on_a_full_disk_a_write_is_refused_whole_and_later_ones_are_taken_again(tmp_path: Path) -> None:
    program = FULL_DISK.format(state_dir=tmp_path)
    mount = f"mount -t tmpfs -o size=800k none {tmp_path} && head -c 300k /dev/zero > {tmp_path}/ballast"
    outcome = await trio.run_process(
        ["unshare", "-m", "sh", "-c", f'{mount} && exec "$0" -c "$1"', sys.executable, program],
        capture_stdout=True,
        capture_stderr=True,
        check=False,
    )
    if b"unshare" in outcome.stderr or b"mount:" in outcome.stderr:
        pytest.skip("needs a file system of its own, and so root")
    said = outcome.stdout.decode()
    assert outcome.returncode == 0, outcome.stderr.decode()
    assert "cannot be written: database or disk is full; make room on the disk" in said
    assert "written again" in said


async def test_who_is_locked_out_for_long_is_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite, "BUSY_SEC", 0.05)
    async with opened(tmp_path) as (store, _):
        with closing(sqlite3.connect(tmp_path / sqlite.FILE, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(CannotWrite, match="database is locked; end whoever"):
                await store.save_instance(serving())
            other.execute("ROLLBACK")
        await store.save_instance(serving())


# --- the lock -----------------------------------------------------------------------------------------------

HOLDER = """
import sys
from pathlib import Path
from typing import TypeVar
from controller.store.state_lock import StateLock
assert StateLock(Path(sys.argv[1])).try_lock("http://holder")
print("held", flush=True)
sys.stdin.read()
"""


async def test_one_holds_the_lock_until_it_ends_however_it_ends(tmp_path: Path) -> None:
    process = await trio.lowlevel.open_process(
        [sys.executable, "-c", HOLDER, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    lock = StateLock(tmp_path)
    try:
        assert process.stdout is not None
        assert await process.stdout.receive_some(4) == b"held"
        assert not lock.try_lock("http://me")
        assert lock.holder() == "http://holder"
        with trio.move_on_after(0.1) as waited:
            await lock.lock("http://me")
        assert waited.cancelled_caught
        process.kill()
        with trio.fail_after(30):
            await lock.lock("http://me")
        assert lock.holder() == "http://me"
    finally:
        process.kill()
        await process.wait()
    assert not StateLock(tmp_path).try_lock("http://third")
    lock.release()
    assert StateLock(tmp_path).try_lock("http://third")


async def test_writes_that_come_while_another_is_written_share_a_transaction(tmp_path: Path) -> None:
    transactions = 0

    async def counted(work: Callable[[], T]) -> T:
        nonlocal transactions
        transactions += 1
        await trio.sleep(0.01)
        return work()

    store = SqliteStore(tmp_path, counted)
    await store.load()
    transactions = 0
    async with trio.open_nursery() as nursery:
        for number in range(50):
            nursery.start_soon(store.save_instance, named(f"job-{number}", number))
    assert transactions <= 2, "the first perhaps alone, and all that came meanwhile"
    await store.aclose()
    assert len((await reloaded(tmp_path)).instances) == 50


async def test_all_who_share_a_transaction_are_told_that_it_failed(tmp_path: Path) -> None:
    async with opened(tmp_path) as (store, _), opened(tmp_path):
        refused = 0

        async def write(number: int) -> None:
            nonlocal refused
            with pytest.raises(Deposed):
                await store.save_instance(named(f"job-{number}", number))
            refused += 1

        async with trio.open_nursery() as nursery:
            for number in range(5):
                nursery.start_soon(write, number)
        assert refused == 5
    assert (await reloaded(tmp_path)).instances == {}
