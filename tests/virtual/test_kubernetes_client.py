"""What the pods of an instance are told through the Kubernetes API, and what happens while that is not to be had."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from controller.kubernetes.trouble import Result, What
from controller.model.settings import RelaunchSettings
from controller.policy import Policy
from tests.support.fake_kubernetes.access import shipped_rules
from tests.support.fake_kubernetes.errors import ApiError
from tests.support.fake_kubernetes.objects import EVENTS, PODS
from tests.support.fake_kubernetes.server import pod
from tests.support.fake_kubernetes.serving import TOKEN, USER
from tests.support.killed_journal import journal_in
from tests.support.kubernetes_world import KubernetesWorld, open_kubernetes_world

# httpx leaves its generators to the garbage collector when a request is cut off or a stream is left early.
pytestmark = pytest.mark.filterwarnings("ignore:Async generator:ResourceWarning")

FORBIDDEN = ApiError(403, "pods is forbidden")
AWAY = ApiError(503, "the server is currently unable to handle the request")


async def told(here: KubernetesWorld, reason: str, about: str = "job-0", count: int = 1) -> None:
    await here.world.until(
        lambda: any(each["reason"] == reason and each["count"] >= count for each in here.events(about))
    )


async def stands(here: KubernetesWorld, status: str, reason: str, name: str = "job-0") -> None:
    await here.world.until(lambda: here.condition(name) == (status, reason))


async def test_a_relaunch_is_told_to_all_pods_and_their_owner(autojump_clock: MockClock, tmp_path: Path) -> None:
    async with open_kubernetes_world(tmp_path) as here:
        gang = here.add_gang()
        await here.world.until_active()
        for name in ("job-0", "job-1"):
            await stands(here, "True", "Active", name)
        gang[1].kill_engine()
        await stands(here, "False", "Relaunching")
        others = [each["type"] for each in here.fake.objects.pod("job-0")["status"]["conditions"]]
        assert others == ["Ready", "podvisor.io/InstanceActive"]
        await here.world.until_active(epoch=2)
        for about in ("job-0", "job-1", "job"):
            await told(here, "RelaunchDone", about)
            assert here.reasons(about) == {"AssembleBegun", "AssembleDone", "RelaunchBegun", "RelaunchDone"}
        (done,) = [each for each in here.events("job-0") if each["reason"] == "RelaunchDone"]
        assert "all endpoints are normal in epoch 2 after" in done["message"]
        assert "(attempt 1 of 3)" in done["message"]
        assert (done["type"], done["count"]) == ("Normal", 1)
        assert done["involvedObject"]["uid"] == here.uid("job-0")
        (begun,) = [each for each in here.events("job") if each["reason"] == "RelaunchBegun"]
        assert (begun["type"], begun["involvedObject"]["kind"]) == ("Warning", "StatefulSet")
        await stands(here, "True", "Active")


async def test_it_asks_for_nothing_that_its_role_does_not_name(autojump_clock: MockClock, tmp_path: Path) -> None:
    async with open_kubernetes_world(tmp_path) as here:
        here.replace_deleted_pods()
        gang = here.add_gang()
        await here.world.until_active()
        for _ in range(2):
            gang[0].kill_engine()
            await told(here, "RelaunchDone")
        here.deaf(gang[1])
        await told(here, "PodDeleted", "job-1")
        await here.world.until_active(epoch=4)
        allowed = {(verb, resource) for rule in shipped_rules() for verb in rule.verbs for resource in rule.resources}
        await told(here, "RelaunchBegun", count=2)
        assert here.fake.access.used_by(USER) == allowed


async def test_what_happens_again_is_one_event_with_a_count(autojump_clock: MockClock, tmp_path: Path) -> None:
    often = Policy(relaunch=RelaunchSettings(engine_relaunch_backoff_sec=0, engine_relaunch_max_attempts=100))
    async with open_kubernetes_world(tmp_path, policy=often) as here:
        gang = here.add_gang(size=1)
        await here.world.until_active()
        for epoch in range(2, 7):
            gang[0].kill_engine()
            await here.world.until_active(epoch=epoch)
        await told(here, "RelaunchDone", count=5)
        done = [each for each in here.events("job-0") if each["reason"] == "RelaunchDone"]
        assert [each["count"] for each in done] == [5]
        assert "(attempt 5 of 100)" in done[0]["message"]


async def test_holding_and_releasing_are_told(autojump_clock: MockClock, tmp_path: Path) -> None:
    async with open_kubernetes_world(tmp_path) as here:
        here.add_gang()
        instance = await here.world.until_active()
        await here.world.client.post(f"/v1/instances/{instance.id}/hold", json={"reason": "new cards"})
        await told(here, "InstanceHeld")
        await stands(here, "False", "Held")
        await here.world.client.post(f"/v1/instances/{instance.id}/release", json={})
        await told(here, "InstanceReleased")
        await stands(here, "True", "Active")


async def test_a_lost_member_and_one_that_never_comes_back(autojump_clock: MockClock, tmp_path: Path) -> None:
    async with open_kubernetes_world(tmp_path, delete_pods=False) as here:
        gang = here.add_gang()
        await here.world.until_active()
        here.deaf(gang[1])
        await told(here, "MemberLost")
        await told(here, "RejoinTimedOut")
        await told(here, "ContainerDidNotRestart", "job-1")
        assert "ContainerDidNotRestart" not in here.reasons("job-0")
        await trio.sleep(600)
        assert not here.fake.objects.pod("job-1")["metadata"].get("deletionTimestamp")


@pytest.mark.parametrize("weather", ["away", "hang", "forbidden", "refused connections"])
async def test_an_api_that_cannot_be_had_holds_up_no_relaunch(
    autojump_clock: MockClock, tmp_path: Path, weather: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def lasts(here: KubernetesWorld) -> float:
        began = trio.current_time()
        here.world.gangs["job"][1].kill_engine()
        epoch = here.world.instance().epoch + 1
        await here.world.until_active(epoch=epoch)
        return trio.current_time() - began

    async with open_kubernetes_world(tmp_path) as here:
        here.add_gang()
        await here.world.until_active()
        await stands(here, "True", "Active")
        well = await lasts(here)
        await told(here, "RelaunchDone")
        match weather:
            case "away":
                here.fake.faults.refuse = AWAY
            case "hang":
                here.fake.faults.hang = True
            case "forbidden":
                here.fake.faults.refuse = FORBIDDEN
            case _:
                here.world.network.close("kubernetes", 80)
        here.fake.cut_watches()
        await here.world.until(lambda: trio.current_time() > 0 and not here.world.it.registry.recoveries())
        await trio.sleep(700)  # the budget is whole again, so that no back-off is between
        caplog.clear()
        assert await lasts(here) == pytest.approx(well, abs=1.0)
        await trio.sleep(120)
        lines = [each for each in caplog.records if each.name == "controller.kubernetes"]
        assert len(lines) <= 6, "one line for each kind, not one for each try"
        assert sum(here.trouble.requests.values()) < 300, "and no hot loop"
        here.fake.faults.refuse, here.fake.faults.hang = None, False
        if weather == "refused connections":
            here.world.network.listen("kubernetes", 80, here.fake.app())
        await stands(here, "True", "Active")
        here.world.gangs["job"][0].kill_engine()
        await told(here, "RelaunchDone", count=2 if weather == "forbidden" else 1)


async def test_events_of_a_long_outage_are_dropped_and_counted(autojump_clock: MockClock, tmp_path: Path) -> None:
    async with open_kubernetes_world(tmp_path) as here:
        gang = here.add_gang()
        await here.world.until_active()
        await told(here, "AssembleDone")
        here.fake.faults.refuse_writes = AWAY
        gang[0].kill_engine()
        await here.world.until_active(epoch=2)
        await trio.sleep(1200)
        here.fake.faults.refuse_writes = None
        await here.world.until(lambda: here.trouble.dropped[What.EVENTS] >= 6)
        assert "RelaunchBegun" not in here.reasons("job-0")
        answer = await here.world.client.get("/metrics", timeout=None)
        assert 'podvisor_kubernetes_dropped_total{what="events"}' in answer.text
        await stands(here, "True", "Active")


async def test_an_event_that_is_dropped_unwritten_is_no_request(autojump_clock: MockClock, tmp_path: Path) -> None:
    async with open_kubernetes_world(tmp_path, conditions=False, delete_pods=False) as here:
        gang = here.add_gang(size=1)
        await here.world.until_active()
        await told(here, "AssembleDone")
        await trio.sleep(60)
        well = here.trouble.requests[What.EVENTS, Result.OK]
        here.fake.faults.refuse_writes = AWAY
        gang[0].kill_engine()
        await here.world.until_active(epoch=2)
        await trio.sleep(1200)
        here.fake.faults.refuse_writes = None
        await here.world.until(lambda: here.trouble.dropped[What.EVENTS] >= 4)
        assert here.trouble.requests[What.EVENTS, Result.OK] == well


async def test_a_list_that_is_refused_is_said_to_be_made_again(
    autojump_clock: MockClock, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_kubernetes_world(tmp_path, events=False, conditions=False) as here:
        here.fake.faults.refuse = FORBIDDEN
        here.fake.cut_watches()
        await here.world.until(lambda: here.trouble.requests[What.PODS, Result.REFUSED] > 0)
        (line,) = [each.getMessage() for each in caplog.records if each.name == "controller.kubernetes"]
        assert "listed anew" in line
        assert "not tried again" not in line


async def test_an_event_whose_answer_was_lost_is_written_once(autojump_clock: MockClock, tmp_path: Path) -> None:
    async with open_kubernetes_world(tmp_path, conditions=False) as here:
        here.fake.faults.swallow = 1
        here.add_gang(size=1)
        await here.world.until_active()
        for reason in ("AssembleBegun", "AssembleDone"):
            await told(here, reason)
        await trio.sleep(60)
        told_of = [(each["reason"], each["count"]) for each in here.events("job-0")]
        assert sorted(told_of) == [("AssembleBegun", 1), ("AssembleDone", 1)]


async def test_an_event_that_the_api_has_forgotten_is_told_anew(autojump_clock: MockClock, tmp_path: Path) -> None:
    async with open_kubernetes_world(tmp_path) as here:
        gang = here.add_gang(size=1)
        await here.world.until_active()
        gang[0].kill_engine()
        await told(here, "RelaunchDone")
        for each in here.events("job-0"):
            here.fake.objects.remove(EVENTS, "default", each["metadata"]["name"])
        gang[0].kill_engine()
        await told(here, "RelaunchDone", count=2)


async def test_a_watch_that_is_cut_goes_on_and_one_that_is_too_old_lists_anew(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with open_kubernetes_world(tmp_path) as here:
        here.add_gang("one", 1)
        await here.world.until_active("one")
        await stands(here, "True", "Active", "one-0")
        lists = len([each for each in here.fake.requests if each == "GET /api/v1/namespaces/default/pods"])
        assert lists == 2, "one list, one watch"
        here.fake.cut_watches()
        here.add_gang("two", 1)
        await stands(here, "True", "Active", "two-0")
        for in_stream in (False, True):
            here.fake.faults.expire_in_stream = in_stream
            here.fake.cut_watches()
            here.fake.objects.forget_history()
            name = f"late{int(in_stream)}"
            here.add_gang(name, 1)
            await stands(here, "True", "Active", f"{name}-0")
        assert len(here.fake.requests) < 100, "no hot loop"


async def test_a_watch_on_a_connection_that_is_no_more_is_noticed(autojump_clock: MockClock, tmp_path: Path) -> None:
    async with open_kubernetes_world(tmp_path) as here:
        here.add_gang("one", 1)
        await stands(here, "True", "Active", "one-0")
        here.fake.faults.mute_watches = True
        here.add_gang("two", 1)
        await here.world.until_active("two")
        assert here.condition("two-0") is None
        here.fake.faults.mute_watches = False
        await stands(here, "True", "Active", "two-0")


async def test_a_list_of_many_pages_is_read_whole(autojump_clock: MockClock, tmp_path: Path) -> None:
    async with open_kubernetes_world(tmp_path) as here:
        for number in range(1200):
            here.fake.objects.create(PODS, "default", pod(f"another-{number}"))
        here.fake.objects.forget_history()
        here.fake.cut_watches()
        here.add_gang("zz", 1)
        await stands(here, "True", "Active", "zz-0")


async def test_a_new_token_is_read_when_it_changes_and_when_the_old_one_is_refused(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with open_kubernetes_world(tmp_path) as here:
        gang = here.add_gang(size=1)
        await here.world.until_active()
        await stands(here, "True", "Active")
        del here.fake.access.tokens[TOKEN]
        here.fake.access.tokens["second"] = USER
        gang[0].kill_engine()
        await here.world.until_active(epoch=2)
        await trio.sleep(30)
        assert "RelaunchDone" not in here.reasons("job-0")
        (here.account / "token").write_text("second")
        await told(here, "RelaunchDone")


async def test_a_retry_after_is_waited_for(autojump_clock: MockClock, tmp_path: Path) -> None:
    async with open_kubernetes_world(tmp_path, conditions=False) as here:
        here.fake.faults.refuse_writes = ApiError(429, "slow down", retry_after_sec=20)
        here.add_gang(size=1)
        await here.world.until(lambda: any(each.startswith("POST") for each in here.fake.requests))
        await trio.sleep(15)
        assert len([each for each in here.fake.requests if each.startswith("POST")]) == 1
        here.fake.faults.refuse_writes = None
        await told(here, "AssembleDone")


async def test_nothing_is_written_to_pods_that_are_not_looked_at(autojump_clock: MockClock, tmp_path: Path) -> None:
    async with open_kubernetes_world(tmp_path, pod_selector="app=other") as here:
        here.add_gang(size=1)
        await here.world.until_active()
        await trio.sleep(60)
        assert here.condition("job-0") is None
        assert here.events("job-0") == []


async def test_a_condition_is_not_written_on_the_next_pod_of_the_name(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with open_kubernetes_world(tmp_path) as here:
        here.add_gang(size=1)
        await here.world.until_active()
        await stands(here, "True", "Active")
        here.fake.objects.remove(PODS, "default", "job-0")
        here.fake.objects.create(PODS, "default", pod("job-0"))
        await trio.sleep(60)
        assert here.condition("job-0") is None, "that pod's supervisor has not registered"


async def test_a_condition_that_waited_is_refused_on_the_next_pod_of_the_name(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with open_kubernetes_world(tmp_path, events=False) as here:
        gang = here.add_gang(size=1)
        await here.world.until_active()
        await stands(here, "True", "Active")
        here.fake.faults.refuse_writes = AWAY
        gang[0].kill_engine()
        await here.world.until(lambda: bool(here.world.it.registry.recoveries()))
        here.fake.objects.remove(PODS, "default", "job-0")
        here.fake.objects.create(PODS, "default", pod("job-0"))
        here.fake.faults.refuse_writes = None
        await here.world.until(lambda: here.trouble.requests[What.CONDITIONS, Result.REFUSED] > 0)
        assert here.condition("job-0") is None


async def test_a_pod_that_is_gone_is_asked_at_once_and_only_its_silence_is_believed(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with open_kubernetes_world(tmp_path) as here:
        gang = here.add_gang()
        await here.world.until_active()
        await stands(here, "True", "Active")
        here.fake.objects.remove(PODS, "default", "job-1")
        await trio.sleep(60)
        assert here.world.instance().epoch == 1, "it answers: nothing is relaunched"
        here.deaf(gang[0])
        silent = trio.current_time()
        here.fake.objects.remove(PODS, "default", "job-0")
        await here.world.until(lambda: bool(here.world.it.registry.recoveries()))
        assert trio.current_time() - silent < 7, "its heartbeats alone would have been waited for 10 s long"


async def test_the_next_leader_writes_no_condition_that_stands_already(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with open_kubernetes_world(tmp_path, elect=journal_in(tmp_path / "journal")) as here:
        here.add_gang()
        await here.world.until_active()
        for name in ("job-0", "job-1"):
            await stands(here, "True", "Active", name)
        await here.world.stop_controller()
        before = len([each for each in here.fake.requests if each.startswith("PATCH")])
        await here.world.start_controller()
        await here.world.until_active()
        await trio.sleep(5)
        patches = [each for each in here.fake.requests if each.startswith("PATCH")][before:]
        assert [each for each in patches if each.endswith("/status")] == []


async def test_a_controller_that_stops_waits_for_no_answer_of_the_api(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with open_kubernetes_world(tmp_path) as here:
        gang = here.add_gang()
        await here.world.until_active()
        here.fake.faults.hang = True
        gang[0].kill_engine()
        await here.world.until_active(epoch=2)
        stopped = trio.current_time()
        await here.world.stop_controller()
        assert trio.current_time() - stopped < 2


async def test_without_its_switch_there_is_no_client(autojump_clock: MockClock, tmp_path: Path) -> None:
    async with open_kubernetes_world(tmp_path, events=False, conditions=False, delete_pods=False) as here:
        here.add_gang(size=1)
        await here.world.until_active()
        await trio.sleep(30)
        assert {each.partition(" ")[0] for each in here.fake.requests} == {"GET"}
