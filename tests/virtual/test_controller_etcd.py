"""The election by a lease and the fenced store, against a small etcd whose leases end by a jumping clock."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace

import pytest
import trio
from trio.testing import MockClock

from controller.election import Leadership
from controller.events import ControllerEvent
from controller.model import budget as budgets
from controller.model.budget import Budget, BudgetKey
from controller.model.instance import delete
from controller.model.member import InstanceKey
from controller.model.relaunch.dispatch import record
from controller.model.relaunch.run import Outcome, RunStep
from controller.store import codec
from controller.store.base import CLOSED_RUNS_KEPT, EVENTS_KEPT, CannotOpen, CannotWrite, Deposed
from controller.store.etcd import EtcdStore, Keys
from controller.store.etcd_client import Access
from controller.store.etcd_election import EtcdElection
from controller.store.etcd_messages import KeyValue
from tests.support.fake_etcd import HOST, LOOK_SEC, FakeEtcd
from tests.support.memory_network import open_memory_network
from tests.unit.controller_gang import Drive, serving

# httpx leaves its generators to the garbage collector when a request is cut off or a stream is left early.
pytestmark = pytest.mark.filterwarnings("ignore:Async generator 'http:ResourceWarning")

LEASE_SEC = 5
KEYS = Keys("/podvisor/")


@asynccontextmanager
async def open_etcd() -> AsyncIterator[FakeEtcd]:
    async with open_memory_network() as network, trio.open_nursery() as nursery:
        etcd = FakeEtcd(network)
        etcd.start()
        nursery.start_soon(etcd.run)
        yield etcd
        nursery.cancel_scope.cancel()


def election(etcd: FakeEtcd, name: str, endpoints: tuple[str, ...] = ()) -> EtcdElection:
    access = Access(endpoints or (etcd.url,), transport=lambda: etcd.network.transport(name))
    return EtcdElection(access, KEYS, f"http://{name}:1026", LEASE_SEC)


class Candidate:
    """One controller as far as leading goes: it leads until it loses, and stands again."""

    def __init__(self, etcd: FakeEtcd, name: str) -> None:
        self.election = election(etcd, name)
        self.led: list[tuple[float, float | None]] = []
        self.leadership: Leadership | None = None

    async def run(self) -> None:
        while True:
            async with self.election.campaign() as leadership:
                self.leadership = leadership
                began = trio.current_time()
                self.led.append((began, None))
                try:
                    with leadership.scope:
                        await trio.sleep_forever()
                finally:
                    self.led[-1] = (began, trio.current_time())

    @property
    def leads(self) -> bool:
        return bool(self.led) and self.led[-1][1] is None

    @property
    def store(self) -> EtcdStore:
        assert self.leadership is not None
        assert isinstance(self.leadership.store, EtcdStore)
        return self.leadership.store


@asynccontextmanager
async def candidates(count: int = 2) -> AsyncIterator[tuple[FakeEtcd, list[Candidate]]]:
    """The first leads."""
    async with open_etcd() as etcd, trio.open_nursery() as nursery:
        found = [Candidate(etcd, f"controller-{number}") for number in range(count)]
        for candidate in found:
            nursery.start_soon(candidate.run)
            await until(lambda: found[0].leads)
        await trio.sleep(LEASE_SEC)
        yield etcd, found
        nursery.cancel_scope.cancel()


async def until(condition: Callable[[], bool], within: float = 60) -> float:
    """How long it took."""
    began = trio.current_time()
    with trio.fail_after(within):
        while not condition():
            await trio.sleep(0.01)
    return trio.current_time() - began


async def test_one_leads_and_the_others_know_where_and_in_which_term(autojump_clock: MockClock) -> None:
    async with candidates(3) as (_, (first, *others)):
        await trio.sleep(20 * LEASE_SEC)
        assert [len(candidate.led) for candidate in (first, *others)] == [1, 0, 0]
        assert first.election.leader is None
        assert [
            (other.election.leader.url, other.election.leader.term) for other in others if other.election.leader
        ] == [("http://controller-0:1026", 1)] * 2


async def test_a_silent_leader_is_followed_within_two_leases_and_has_stopped_before(autojump_clock: MockClock) -> None:
    async with candidates(3) as (etcd, (first, *others)):
        etcd.network.partition("controller-0", HOST)
        took = await until(lambda: any(other.leads for other in others))
        assert took <= LEASE_SEC + LOOK_SEC + LEASE_SEC / 4 < 2 * LEASE_SEC
        winner = next(other for other in others if other.leads)
        stopped = first.led[0][1]
        assert stopped is not None
        assert stopped < winner.led[0][0] - LEASE_SEC / 10, "it stops before its lease can be over"
        assert (await winner.store.load()).term == 2


async def test_who_resigns_is_followed_at_the_next_look(autojump_clock: MockClock) -> None:
    async with open_etcd() as etcd, trio.open_nursery() as nursery:
        other = Candidate(etcd, "controller-1")
        async with election(etcd, "controller-0").campaign():
            nursery.start_soon(other.run)
            await trio.sleep(3 * LEASE_SEC)
            assert not other.leads
        assert await until(lambda: other.leads) <= LEASE_SEC / 4
        nursery.cancel_scope.cancel()


async def test_a_deposed_leader_writes_nothing_and_has_lost_its_leadership(autojump_clock: MockClock) -> None:
    async with candidates() as (etcd, (first, other)):
        store, leadership = first.store, first.leadership
        assert leadership is not None
        leadership.scope.deadline = float("inf")  # its clock stood still, as that of a virtual machine may
        etcd.end_lease(next(found.lease for found in etcd.kept.values() if found.lease))
        kept = dict(etcd.kept)
        with pytest.raises(Deposed):
            await store.save_instance(serving())
        assert leadership.is_lost
        assert not [value for key, value in etcd.kept.items() if key not in kept and b"instance" in key]
        await until(lambda: other.leads or len(first.led) == 2)


async def test_a_short_absence_of_etcd_loses_nothing_and_a_write_waits_for_it(autojump_clock: MockClock) -> None:
    async with candidates() as (etcd, (first, other)):
        etcd.stop()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(first.store.save_instance, serving())
            await trio.sleep(LEASE_SEC / 3)
            etcd.start()
        await trio.sleep(4 * LEASE_SEC)
        assert (len(first.led), first.leads, other.leads) == (1, True, False)
        assert len(etcd.values("instance/")) == 1


async def test_a_long_absence_of_etcd_leaves_nobody_leading_until_it_is_back(autojump_clock: MockClock) -> None:
    async with candidates() as (etcd, found):
        etcd.stop()
        assert await until(lambda: not found[0].leads) <= LEASE_SEC
        await trio.sleep(600)
        assert not any(candidate.leads for candidate in found)
        etcd.start()
        assert await until(lambda: any(candidate.leads for candidate in found)) <= 2 * LEASE_SEC


async def test_a_write_whose_answer_is_lost_is_done_once_more_to_the_same_effect(autojump_clock: MockClock) -> None:
    async with candidates() as (etcd, (first, _)):
        etcd.swallowed = 1
        before = etcd.transactions
        await first.store.save_instance(serving())
        assert etcd.transactions == before + 2
        assert len(etcd.values("instance/")) == 1
        assert first.leads


async def test_a_write_that_etcd_refuses_says_what_to_do_and_leaves_the_leadership(autojump_clock: MockClock) -> None:
    async with candidates() as (etcd, (first, _)):
        etcd.refusal = (429, 8, "etcdserver: mvcc: database space exceeded")
        with pytest.raises(CannotWrite, match=r"space exceeded; see that etcd has room"):
            await first.store.save_instance(serving())
        etcd.refusal = None
        await first.store.save_instance(serving())
        assert first.leads


async def test_many_writes_at_once_share_transactions_and_keep_their_order(autojump_clock: MockClock) -> None:
    async with candidates() as (etcd, (first, _)):
        instance = serving()
        before = etcd.transactions
        async with trio.open_nursery() as nursery:
            for epoch in range(500):
                nursery.start_soon(first.store.save_instance, replace(instance, epoch=epoch))
                if epoch % 10 == 0:
                    # The order in which tasks are started is the order in which they ask.
                    await trio.testing.wait_all_tasks_blocked()
        assert etcd.transactions - before < 100
        (loaded,) = (await first.store.load()).instances.values()
        assert loaded.epoch >= 490


async def test_a_failing_endpoint_is_passed_over(autojump_clock: MockClock) -> None:
    async with open_etcd() as etcd:
        async with election(etcd, "controller-0", ("http://nobody:2379", etcd.url)).campaign() as leadership:
            await leadership.store.save_instance(serving())
        assert len(etcd.values("instance/")) == 1


async def test_the_next_leader_finds_what_was_kept(autojump_clock: MockClock) -> None:
    async with open_etcd() as etcd, AsyncExitStack() as leading:
        first = (await leading.enter_async_context(election(etcd, "controller-0").campaign())).store
        loaded = await first.load()
        assert (loaded.term, dict(loaded.instances)) == (1, {})
        series = loaded.event_series
        instance = serving(2)
        open_run = record(Drive.open(instance).to(RunStep.PREPARE).run, 5.0)
        spent = Budget(BudgetKey(instance.key, None), runs=2, spent_by=open_run.run_id)
        event = ControllerEvent(id=7, at="2026-01-01T00:00:00Z", kind="run", level="info", message="words")
        await first.save_instance(instance)
        await first.save_run(replace(open_run, run_id="before", outcome=Outcome.DONE))
        await first.save_run(open_run)
        await first.save_budget(spent)
        await first.save_events([event])
        assert await first.take_term(40) == 40
        await leading.aclose()
        async with election(etcd, "controller-1").campaign() as leadership:
            loaded = await leadership.store.load()
        assert loaded.term == 41
        assert loaded.event_series == series
        assert loaded.instances[instance.key].members[1].boot_id == instance.members[1].boot_id
        assert loaded.runs[instance.key].run_id == open_run.run_id
        assert [run.run_id for run in loaded.closed_runs] == ["before"]
        assert dict(loaded.budgets) == {spent.key: spent}
        assert list(loaded.events) == [event]


async def test_an_open_run_of_an_instance_that_is_no_more_is_forgotten(autojump_clock: MockClock) -> None:
    async with candidates() as (etcd, (first, _)):
        await first.store.save_run(record(Drive.open(serving()).run, 5.0))
        assert dict((await first.store.load()).runs) == {}
        assert etcd.values("open-run/") == []


async def test_done_and_active_are_one_transaction(autojump_clock: MockClock) -> None:
    async with candidates() as (etcd, (first, _)):
        instance = serving()
        run = record(Drive.open(instance).run, 5.0)
        await first.store.save_instance(instance)
        await first.store.save_run(run)
        before = etcd.transactions
        await first.store.save_active(replace(run, outcome=Outcome.DONE), instance)
        assert etcd.transactions == before + 1
        loaded = await first.store.load()
        assert (dict(loaded.runs), len(loaded.closed_runs), len(loaded.instances)) == ({}, 1, 1)


async def test_what_is_kept_is_bounded(autojump_clock: MockClock) -> None:
    async with candidates() as (_, (first, _other)):
        await first.store.load()
        run = replace(record(Drive.open(serving()).run, 5.0), outcome=Outcome.DONE)
        for number in range(CLOSED_RUNS_KEPT + 20):
            await first.store.save_run(replace(run, run_id=f"run-{number}", opened_at=float(number - 1000)))
        event = ControllerEvent(id=1, at="2026-01-01T00:00:00Z", kind="run", level="info", message="words")
        await first.store.save_events([replace_id(event, number) for number in range(1, EVENTS_KEPT + 200)])
        budget = Budget(BudgetKey(InstanceKey("default", "llama"), None), runs=1)
        await first.store.save_budget(budget)
        await first.store.save_budget(budgets.reset(budget))
        loaded = await first.store.load()
        assert len(loaded.closed_runs) == CLOSED_RUNS_KEPT
        assert loaded.closed_runs[0].run_id == f"run-{CLOSED_RUNS_KEPT + 19}"
        assert len(loaded.events) == EVENTS_KEPT
        assert dict(loaded.budgets) == {}


async def test_what_lives_leave_behind_is_bounded_over_all_of_them(autojump_clock: MockClock) -> None:
    """Each begins its events some numbers later, and what a failed write has left is counted by nobody."""
    run = replace(record(Drive.open(serving()).run, 5.0), outcome=Outcome.DONE)
    event = ControllerEvent(id=1, at="2026-01-01T00:00:00Z", kind="run", level="info", message="words")
    async with candidates() as (etcd, (first, _other)):
        for life in range(4):
            await first.store.load()
            begin = life * 2 * EVENTS_KEPT
            await first.store.save_events([replace_id(event, begin + number) for number in range(1, EVENTS_KEPT)])
            first.store._closed.clear()
            for number in range(CLOSED_RUNS_KEPT):
                await first.store.save_run(replace(run, run_id=f"left-{life}-{number}", opened_at=float(life - 10)))
        loaded = await first.store.load()
        assert (len(loaded.events), loaded.events[-1].id) == (EVENTS_KEPT, begin + EVENTS_KEPT - 1)
        assert {run.run_id.split("-")[1] for run in loaded.closed_runs} == {"3"}
        kinds = [kind for key in etcd.kept for kind in (b"/event/", b"/closed-run/") if kind in key]
        assert (kinds.count(b"/event/"), kinds.count(b"/closed-run/")) == (EVENTS_KEPT, CLOSED_RUNS_KEPT)


def replace_id(event: ControllerEvent, number: int) -> ControllerEvent:
    return ControllerEvent(id=number, at=event.at, kind=event.kind, level=event.level, message=event.message)


async def test_the_id_of_a_deleted_instance_stays_taken_when_it_is_forgotten(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("controller.store.etcd.PAST_INSTANCES_KEPT", 1)
    async with candidates() as (_, (first, _other)):
        for number in (3, 4):
            key = InstanceKey("default", f"job-{number}")
            gone = delete(replace(serving(), id=number, key=key), "no longer needed", float(number))
            await first.store.save_instance(gone)
        loaded = await first.store.load()
        assert [instance.id for instance in loaded.instances.values()] == [4]
        assert loaded.next_instance_id > 4


@pytest.mark.parametrize("name", ["instance/default/llama", "budget/default/llama/"])
async def test_what_a_newer_controller_wrote_is_named_and_not_misread(autojump_clock: MockClock, name: str) -> None:
    async with candidates() as (etcd, (first, _)):
        etcd.kept[KEYS.first + name.encode()] = KeyValue(KEYS.first + name.encode(), b'{"version": 99}')
        with pytest.raises(CannotOpen, match=f"{name} in etcd cannot be read: it is of version 99"):
            await first.store.load()
        assert codec.VERSION < 99


async def test_a_leader_key_that_cannot_be_read_is_somebody_else_s_and_a_term_that_is_none_is_named(
    autojump_clock: MockClock,
) -> None:
    async with open_etcd() as etcd:
        etcd.kept[KEYS.leader] = KeyValue(KEYS.leader, b"of another version", lease=7)
        other = Candidate(etcd, "controller-0")
        with trio.move_on_after(3 * LEASE_SEC):
            await other.run()
        assert (other.led, other.election.leader) == ([], None)
        del etcd.kept[KEYS.leader]
        etcd.kept[KEYS.term] = KeyValue(KEYS.term, b"many")
        with pytest.RaisesGroup(
            pytest.RaisesExc(CannotOpen, match="/podvisor/term in etcd is no"), flatten_subgroups=True
        ):
            await other.run()


async def test_the_keys_of_any_names_do_not_meet() -> None:
    a = KEYS.instance(InstanceKey("a/b", "c"))
    b = KEYS.instance(InstanceKey("a", "b/c"))
    assert a != b
    assert KEYS.kind(a) == KEYS.kind(b) == "instance"
    assert KEYS.first < a < KEYS.end
