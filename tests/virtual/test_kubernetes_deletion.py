"""The last resort: a pod whose container did not restart in phase 2 is deleted, that one and no other, and once."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from controller.kubernetes.trouble import Result, What
from controller.model.settings import OnMemberLost, RelaunchSettings
from controller.policy import Policy
from controller.store.base import Deposed
from tests.support.fake_kubernetes.errors import ApiError
from tests.support.fake_kubernetes.objects import PODS
from tests.support.fake_supervisor import FakeSupervisor
from tests.support.killed_journal import journal_in
from tests.support.kubernetes_world import KubernetesWorld, open_kubernetes_world

# httpx leaves its generators to the garbage collector when a request is cut off or a stream is left early.
pytestmark = pytest.mark.filterwarnings("ignore:Async generator:ResourceWarning")

QUICK = Policy(relaunch=RelaunchSettings(on_member_lost=OnMemberLost.RESTART_ALL, phase2_timeout_sec=60))
"""A lost member is not waited for in place: stranded a good minute after it was heard last."""
DELETE = "DELETE /api/v1/namespaces/default/pods/"


def deletions(here: KubernetesWorld) -> list[str]:
    """Which pods were to be deleted, by each request; one that another write overtook is made again."""
    return [each.removeprefix(DELETE) for each in here.fake.requests if each.startswith(DELETE)]


def lines(here: KubernetesWorld, words: str) -> list[str]:
    """Of the controller's own events, those that say so."""
    return [each.message for each in here.world.it.registry.events.ring.since(0) if words in each.message]


def is_stranded(here: KubernetesWorld, supervisor: FakeSupervisor) -> bool:
    return any(member.stranded and member.ip == supervisor.ip for member in here.world.instance().members)


async def serving(here: KubernetesWorld, size: int = 2) -> list[FakeSupervisor]:
    """A gang that serves, and whose pods are replaced when they are deleted."""
    here.replace_deleted_pods()
    gang = here.add_gang(size=size)
    await here.world.until_active()
    await here.world.until(lambda: here.condition("job-0") == ("True", "Active"))
    return gang


async def test_a_hanging_pod_is_deleted_and_the_instance_serves_again(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with open_kubernetes_world(tmp_path) as here:
        gang = await serving(here)
        first, before, hung_at = here.world.instance(), here.uid("job-1"), trio.current_time()
        here.deaf(gang[1])
        again = await here.world.until_active(epoch=2)
        assert again.id == first.id
        assert here.ended == ["job-1"]
        assert here.uid("job-1") != before
        assert here.uid("job-0") == first.members[0].pod_uid
        assert here.reasons("job-1") >= {"AssembleDone"}
        assert "PodDeleted" in here.reasons("job")
        # 300 s in place, 300 s in phase 2, and the pod's own grace period.
        assert 600 < trio.current_time() - hung_at < 700
        await trio.sleep(1200)
        assert here.ended == ["job-1"]


async def test_a_member_that_is_heard_of_again_keeps_its_pod(autojump_clock: MockClock, tmp_path: Path) -> None:
    async with open_kubernetes_world(tmp_path, policy=QUICK) as here:
        gang = await serving(here)
        here.fake.faults.hang = True
        script = gang[1].script
        here.deaf(gang[1])
        await here.world.until(lambda: is_stranded(here, gang[1]))
        await trio.sleep(30)
        gang[1].script, gang[1].mute = script, False
        await here.world.until(lambda: not is_stranded(here, gang[1]))
        here.fake.faults.hang = False
        await trio.sleep(300)
        assert deletions(here) == []


async def test_no_more_are_deleted_at_a_time_than_the_fleets_brake_allows(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with open_kubernetes_world(tmp_path, policy=QUICK) as here:
        gang = await serving(here, size=5)
        for each in gang[1:]:
            here.deaf(each)
        await here.world.until(lambda: len(here.ended) == 2)
        at = trio.current_time()
        await trio.sleep(550)
        assert len(here.ended) == 2
        await here.world.until_active(epoch=2)
        assert trio.current_time() - at > 600
        assert sorted(here.ended) == ["job-1", "job-2", "job-3", "job-4"]


async def test_pods_that_others_delete_take_nobodys_turn(autojump_clock: MockClock, tmp_path: Path) -> None:
    async with open_kubernetes_world(tmp_path, policy=QUICK) as here:
        gang = await serving(here, size=5)
        here.fake.objects.ended_gracefully = lambda found: here.ended.append(found["metadata"]["name"])
        for name in ("job-1", "job-2"):
            here.fake.objects.delete(PODS, "default", name, {})
        for each in gang[1:]:
            here.deaf(each)
        await here.world.until(lambda: is_stranded(here, gang[4]))
        await trio.sleep(60)
        assert sorted(here.ended) == ["job-1", "job-2", "job-3", "job-4"]
        assert here.trouble.deleted == 2


async def test_a_deposed_leader_deletes_nothing(
    autojump_clock: MockClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_kubernetes_world(tmp_path, policy=QUICK, elect=journal_in(tmp_path / "journal")) as here:
        gang = await serving(here)
        here.fake.faults.hang = True
        here.deaf(gang[1])
        await here.world.until(lambda: is_stranded(here, gang[1]))
        await trio.sleep(20)
        lives = len(here.world.lives)

        async def deposed(_: object) -> None:
            raise Deposed("another leads")

        monkeypatch.setattr(here.world.it.leadership.store, "save_instance", deposed)
        here.fake.faults.hang = False
        await here.world.until(lambda: len(here.world.lives) > lives)
        assert deletions(here) == [], "what was to be done is the next leader's"
        await here.world.until_active(epoch=2)
        assert here.ended == ["job-1"]


async def test_a_higher_term_is_taken_before_a_pod_is_deleted(autojump_clock: MockClock, tmp_path: Path) -> None:
    """A supervisor has seen a later leader: whether we lead is the store's to say."""
    async with open_kubernetes_world(tmp_path, policy=QUICK, elect=journal_in(tmp_path / "journal")) as here:
        gang = await serving(here)
        here.fake.faults.hang = True
        here.deaf(gang[1])
        await here.world.until(lambda: is_stranded(here, gang[1]))
        gang[0].highest_term = 41
        await trio.sleep(20)
        assert here.world.it.registry.terms.current < 41
        here.fake.faults.hang = False
        await here.world.until(lambda: bool(deletions(here)))
        assert here.world.it.registry.terms.current == 42


async def test_the_next_life_of_the_controller_deletes_what_the_last_could_not(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with open_kubernetes_world(tmp_path, policy=QUICK, elect=journal_in(tmp_path / "journal")) as here:
        gang = await serving(here)
        here.fake.faults.refuse = ApiError(503, "away")
        here.deaf(gang[1])
        await here.world.until(lambda: is_stranded(here, gang[1]))
        await here.world.stop_controller()
        here.fake.faults.refuse = None
        await here.world.start_controller()
        await here.world.until_active(epoch=2)
        assert here.ended == ["job-1"]


async def test_a_pod_that_somebody_deletes_already_is_left_to_them(autojump_clock: MockClock, tmp_path: Path) -> None:
    async with open_kubernetes_world(tmp_path, policy=QUICK) as here:
        gang = await serving(here)
        here.fake.objects.ended_gracefully = lambda _: None
        here.deaf(gang[1])
        here.fake.objects.delete(PODS, "default", "job-1", {})
        await here.world.until(lambda: is_stranded(here, gang[1]))
        await trio.sleep(900)
        assert deletions(here) == []


async def test_a_container_that_the_kubelet_is_about_to_start_again_is_waited_for(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with open_kubernetes_world(tmp_path, policy=QUICK) as here:
        gang = await serving(here)
        here.deaf(gang[1])
        found = here.fake.objects.pod("job-1")
        found["status"]["containerStatuses"] = [
            {"name": "engine", "state": {"waiting": {"reason": "CrashLoopBackOff"}}}
        ]
        here.fake.objects.replace(PODS, "default", "job-1", found)
        await here.world.until(lambda: is_stranded(here, gang[1]))
        await trio.sleep(300)
        assert deletions(here) == []
        found = here.fake.objects.pod("job-1")
        found["status"]["containerStatuses"] = [{"name": "engine", "state": {"running": {}}}]
        here.fake.objects.replace(PODS, "default", "job-1", found)
        await here.world.until_active(epoch=2)
        assert here.ended == ["job-1"]


async def test_a_pod_that_changes_while_it_is_judged_is_judged_again(autojump_clock: MockClock, tmp_path: Path) -> None:
    async with open_kubernetes_world(tmp_path, policy=QUICK, conditions=False, events=False) as here:
        here.replace_deleted_pods()
        gang = here.add_gang()
        await here.world.until_active()
        here.fake.faults.slow_sec = 2.0
        here.deaf(gang[1])
        await here.world.until(lambda: deletions(here) == ["job-1"])
        here.fake.objects.replace(PODS, "default", "job-1", here.fake.objects.pod("job-1"))
        await here.world.until_active(epoch=2)
        assert deletions(here) == ["job-1", "job-1"]


async def test_a_deletion_whose_answer_was_lost_is_not_asked_for_again(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with open_kubernetes_world(tmp_path, policy=QUICK, conditions=False, events=False) as here:
        here.replace_deleted_pods()
        gang = here.add_gang()
        await here.world.until_active()
        here.fake.faults.swallow = 1
        here.deaf(gang[1])
        await here.world.until_active(epoch=2)
        assert deletions(here) == ["job-1"]
        assert here.trouble.deleted == 1
        assert len(lines(here, "was deleted")) == 1


async def test_a_pod_that_somebody_else_deleted_is_not_told_as_ours(autojump_clock: MockClock, tmp_path: Path) -> None:
    """The API answered none of our requests, and carried none out."""
    async with open_kubernetes_world(tmp_path, policy=QUICK, conditions=False, events=False) as here:
        here.replace_deleted_pods()
        gang = here.add_gang()
        await here.world.until_active()
        here.fake.faults.refuse_reads = ApiError(503, "away")
        here.deaf(gang[1])
        await here.world.until(lambda: is_stranded(here, gang[1]))
        await trio.sleep(20)
        here.fake.objects.delete(PODS, "default", "job-1", {})
        here.fake.faults.refuse_reads = None
        await here.world.until_active(epoch=2)
        assert (deletions(here), here.trouble.deleted, lines(here, "was deleted")) == ([], 0, [])


async def test_a_deletion_that_was_seen_not_to_be_done_is_not_told_when_another_does_it(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with open_kubernetes_world(tmp_path, policy=QUICK, conditions=False, events=False) as here:
        here.replace_deleted_pods()
        gang = here.add_gang()
        await here.world.until_active()
        here.fake.faults.refuse_writes = ApiError(503, "away")
        here.deaf(gang[1])
        await here.world.until(lambda: bool(deletions(here)))
        found = here.fake.objects.pod("job-1")
        found["status"]["containerStatuses"] = [{"name": "engine", "state": {"waiting": {}}}]
        here.fake.objects.replace(PODS, "default", "job-1", found)
        await trio.sleep(30)
        here.fake.objects.delete(PODS, "default", "job-1", {})
        await here.world.until_active(epoch=2)
        await trio.sleep(120)
        assert (here.trouble.deleted, lines(here, "was deleted")) == (0, [])


@pytest.mark.parametrize("status", [400, 403])
async def test_a_pod_that_may_not_be_read_for_a_while_is_deleted_afterwards(
    autojump_clock: MockClock, tmp_path: Path, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_kubernetes_world(tmp_path, policy=QUICK, conditions=False, events=False) as here:
        here.replace_deleted_pods()
        gang = here.add_gang()
        await here.world.until_active()
        here.fake.faults.refuse_reads = ApiError(status, "get pods is forbidden")
        here.deaf(gang[1])
        await here.world.until(lambda: is_stranded(here, gang[1]))
        await trio.sleep(300)
        reads = [each for each in here.fake.requests if each == "GET /api/v1/namespaces/default/pods/job-1"]
        assert 4 <= len(reads) <= 6, "once a minute"
        assert here.trouble.requests[What.DELETIONS, Result.REFUSED] == len(reads)
        assert here.trouble.dropped[What.DELETIONS] == 0
        (told,) = [each.getMessage() for each in caplog.records if "get pods is forbidden" in each.getMessage()]
        assert "asked for again in a minute" in told
        here.fake.faults.refuse_reads = None
        await here.world.until_active(epoch=2)
        assert here.ended == ["job-1"]


async def test_pods_that_are_not_looked_at_are_not_deleted(autojump_clock: MockClock, tmp_path: Path) -> None:
    async with open_kubernetes_world(tmp_path, policy=QUICK, pod_selector="app=other") as here:
        here.replace_deleted_pods()
        gang = here.add_gang()
        await here.world.until_active()
        here.deaf(gang[1])
        await here.world.until(lambda: is_stranded(here, gang[1]))
        await trio.sleep(900)
        assert deletions(here) == []


async def test_when_all_fall_silent_before_it_is_done_nobody_is_deleted(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    """One was admitted while the other was heard; the API was away until that was silent too."""
    async with open_kubernetes_world(tmp_path, policy=QUICK) as here:
        gang = await serving(here)
        here.fake.faults.refuse = ApiError(503, "away")
        here.deaf(gang[1])
        await here.world.until(lambda: is_stranded(here, gang[1]))
        await here.world.until(lambda: here.trouble.requests[What.DELETIONS, Result.UNAVAILABLE] > 0)
        here.deaf(gang[0])
        await trio.sleep(60)
        here.fake.faults.refuse = None
        await trio.sleep(900)
        assert deletions(here) == []


async def test_without_the_permission_it_goes_on_asking_once_a_minute(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with open_kubernetes_world(tmp_path, policy=QUICK, conditions=False, events=False) as here:
        here.replace_deleted_pods()
        gang = here.add_gang()
        await here.world.until_active()
        here.fake.faults.refuse_writes = ApiError(403, "pods is forbidden")
        here.deaf(gang[1])
        await here.world.until(lambda: is_stranded(here, gang[1]))
        await trio.sleep(600)
        assert 9 <= len(deletions(here)) <= 11
        assert here.trouble.requests[What.DELETIONS, Result.REFUSED] == len(deletions(here))
        assert here.trouble.requests[What.DELETIONS, Result.OK] == 0, "none of them went well"
        here.fake.faults.refuse_writes = None
        await here.world.until_active(epoch=2)


async def test_what_an_operator_holds_is_not_touched(autojump_clock: MockClock, tmp_path: Path) -> None:
    async with open_kubernetes_world(tmp_path, policy=QUICK) as here:
        gang = await serving(here)
        here.fake.faults.hang = True
        here.deaf(gang[1])
        await here.world.until(lambda: is_stranded(here, gang[1]))
        held = await here.world.client.post(f"/v1/instances/{here.world.instance().id}/hold", json={})
        assert held.status_code == 202, held.text
        here.fake.faults.hang = False
        await trio.sleep(900)
        assert deletions(here) == []


async def test_when_all_are_silent_nobody_is_deleted(autojump_clock: MockClock, tmp_path: Path) -> None:
    """It may be us who are cut off."""
    async with open_kubernetes_world(tmp_path, policy=QUICK) as here:
        for each in await serving(here):
            here.deaf(each)
        await trio.sleep(1800)
        assert deletions(here) == []
