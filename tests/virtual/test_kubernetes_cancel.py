"""Parts of the Kubernetes client by themselves: what waits, a deletion that is cancelled, what is told to be gone."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from controller.election import Leadership
from controller.events import EventLog
from controller.journal import Journal
from controller.kubernetes.client import ApiClient
from controller.kubernetes.condition_writer import ConditionWriter
from controller.kubernetes.outbox import Outbox
from controller.kubernetes.pod_deleter import PodDeleter
from controller.kubernetes.pod_watch import PodWatch
from controller.kubernetes.service_account import ServiceAccount
from controller.kubernetes.trouble import Trouble
from controller.model.instance import Instance, InstanceStatus, observe, strand
from controller.model.kubernetes.condition import Condition
from controller.model.kubernetes.pods import Pod, PodRef
from controller.policy import Policy
from controller.registry import Registry
from controller.sections import KubernetesSection
from controller.store.base import Loaded
from controller.store.memory import MemoryStore
from controller.terms import Terms
from tests.support.cancel_sweep import sweep
from tests.support.fake_kubernetes.objects import PODS
from tests.support.fake_kubernetes.server import FakeKubernetes, pod
from tests.support.memory_network import open_memory_network
from tests.unit.controller_gang import seen, serving

pytestmark = pytest.mark.filterwarnings("ignore:Async generator:ResourceWarning")


# --- what waits ---------------------------------------------------------------------------------------------


async def test_the_newest_of_each_key_waits_in_its_place(autojump_clock: MockClock) -> None:
    outbox: Outbox[str, int] = Outbox(lambda: None)
    for key, value in (("a", 1), ("b", 2), ("a", 3)):
        outbox.put(key, value, 0.0)
    assert [await outbox.next(), await outbox.next()] == [("a", 3), ("b", 2)]


async def test_what_is_not_due_lets_others_pass(autojump_clock: MockClock) -> None:
    outbox: Outbox[str, int] = Outbox(lambda: None)
    now = trio.current_time()
    outbox.put("late", 1, now + 30)
    outbox.put("soon", 2, now)
    assert await outbox.next() == ("soon", 2)
    assert await outbox.next() == ("late", 1)
    assert trio.current_time() - now == pytest.approx(30)


async def test_what_is_put_back_gives_way_to_what_is_newer(autojump_clock: MockClock) -> None:
    outbox: Outbox[str, int] = Outbox(lambda: None)
    outbox.put("a", 2, 0.0)
    outbox.put_back("a", 1, 0.0)
    outbox.put_back("b", 1, 0.0)
    assert [await outbox.next(), await outbox.next()] == [("a", 2), ("b", 1)]


async def test_what_waits_is_bounded_and_the_oldest_is_dropped_and_counted(autojump_clock: MockClock) -> None:
    dropped = 0

    def drop() -> None:
        nonlocal dropped
        dropped += 1

    outbox: Outbox[int, int] = Outbox(drop, capacity=10)
    for number in range(25):
        outbox.put(number, number, 0.0)
    assert dropped == 15
    assert [await outbox.next() for _ in range(10)] == [(number, number) for number in range(15, 25)]


async def test_a_wait_that_is_cancelled_takes_nothing(autojump_clock: MockClock) -> None:
    outbox: Outbox[str, int] = Outbox(lambda: None)
    outbox.put("a", 1, trio.current_time() + 10)
    with trio.move_on_after(5):
        await outbox.next()
    assert outbox.has("a")
    outbox.forget("a")
    assert not outbox.has("a")


async def test_all_but_some_are_forgotten(autojump_clock: MockClock) -> None:
    outbox: Outbox[str, int] = Outbox(lambda: None)
    for key in ("a", "b", "c"):
        outbox.put(key, 1, 0.0)
    outbox.forget_all_but({"b", "d"})
    assert [key for key in ("a", "b", "c", "d") if outbox.has(key)] == ["b"]


# --- a deletion that is cancelled ---------------------------------------------------------------------------


@dataclass
class Here:
    fake: FakeKubernetes
    client: Callable[[], ApiClient]
    make: Callable[[], PodDeleter]
    """Of another life of the controller each time."""
    ended: list[str] = field(default_factory=list)
    """Pods whose deletion took effect."""


def _stranded(uid: str) -> Instance:
    served = serving(2, now=trio.current_time())
    first, second = served.members
    lost = replace(second, pod_name="llama-1", pod_uid=uid, observation=None, registered_at=-1000.0)
    instance = replace(served, members=(first, lost), status=InstanceStatus.INACTIVE)
    return observe(strand(instance, {lost.key}), first.key, seen(instance, first.key, trio.current_time()))


@asynccontextmanager
async def here() -> AsyncIterator[Here]:
    fake = FakeKubernetes()
    fake.access.tokens = {"t": "controller"}
    uid = fake.objects.create(PODS, "default", pod("llama-1"))["metadata"]["uid"]
    with tempfile.TemporaryDirectory() as directory:
        for name, text in (("token", "t"), ("namespace", "default")):
            Path(directory, name).write_text(text)
        section = KubernetesSection(enable=True, api_url="http://kubernetes:80", service_account_dir=directory)
        account = ServiceAccount(section, {})
        async with open_memory_network() as network:
            network.listen("kubernetes", 80, fake.app())

            def client() -> ApiClient:
                return ApiClient(account, 10, lambda: network.transport("controller"))

            def make() -> PodDeleter:
                store = MemoryStore()
                instance = _stranded(uid)
                registry = Registry(
                    Policy(),
                    EventLog(),
                    Terms(store, 1),
                    Loaded(term=1, next_instance_id=9, instances={instance.key: instance}),
                )
                journal = Journal(store, registry, registry.events)
                pods = {("default", "llama-1"): Pod(PodRef("default", "llama-1", uid), "1")}
                return PodDeleter(client(), registry, journal, Leadership(store), Trouble(), pods, lambda *_: None)

            found = Here(fake, client, make)
            fake.objects.ended_gracefully = lambda told: found.ended.append(told["metadata"]["name"])
            yield found


async def delete(found: Here) -> None:
    """Until it is done, or is found to be done already."""
    deleter = found.make()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(deleter.run)
        deleter.look(trio.current_time())
        while not found.ended:
            await trio.sleep(0.1)
        await trio.sleep(1)
        nursery.cancel_scope.cancel()


async def once(found: Here, cancelled: bool) -> None:
    """Whoever comes next ends what was begun, and nothing ends twice."""
    await delete(found)
    assert found.ended == ["llama-1"]


def test_a_deletion_that_is_cancelled_anywhere_takes_effect_once() -> None:
    assert sweep(here, delete, once) > 10


# --- what is gone -------------------------------------------------------------------------------------------


async def test_a_list_tells_at_once_of_all_that_went_meanwhile(autojump_clock: MockClock) -> None:
    told: list[set[str]] = []
    async with here() as found, trio.open_nursery() as nursery:
        objects = found.fake.objects
        for name in ("llama-2", "llama-3", "llama-4"):
            objects.create(PODS, "default", pod(name))
        watch = PodWatch(found.client(), "", Trouble(), lambda refs: told.append({ref.name for ref in refs}))
        nursery.start_soon(watch.follow, "default")
        await watch.listed.wait()
        found.fake.faults.mute_watches = True
        for name in ("llama-1", "llama-2", "llama-3"):
            objects.remove(PODS, "default", name)
        objects.create(PODS, "default", pod("llama-3"))
        objects.forget_history()
        found.fake.faults.mute_watches = False
        found.fake.cut_watches()
        while len(watch.pods) > 2:
            await trio.sleep(1)
        assert told == [{"llama-1", "llama-2", "llama-3"}]
        objects.remove(PODS, "default", "llama-4")
        await trio.sleep(10)
        assert told[1:] == [{"llama-4"}]
        nursery.cancel_scope.cancel()


async def test_conditions_of_pods_that_are_gone_do_not_pile_up(autojump_clock: MockClock) -> None:
    """The API is away: none was ever written."""
    async with here() as found:
        writer = ConditionWriter(found.client(), Trouble())
        refs = [PodRef("default", f"llama-{number}", f"uid-{number}") for number in range(3)]
        for ref in refs:
            writer.want(Pod(ref, "1"), Condition(True, "Active", ""), 0.0)
        writer.forget({refs[1]})
        async with trio.open_nursery() as nursery:
            nursery.start_soon(writer.run)
            await trio.sleep(10)
            nursery.cancel_scope.cancel()
        assert [each for each in found.fake.requests if each.startswith("PATCH")] == [
            "PATCH /api/v1/namespaces/default/pods/llama-1/status"
        ]
