"""Unit files change in the pods of a gang: who starts with them, when, and what happens where they differ."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest
import trio
from trio.testing import MockClock

from controller.policy import Policy
from supervisor import wire
from tests.support.killed_journal import journal_in
from tests.support.virtual_gang import ENGINE, STORE, Gang, VirtualPod, open_gang

# httpx leaves its generators to the garbage collector when a request is cut off or a stream is left early.
pytestmark = pytest.mark.filterwarnings("ignore:Async generator 'http:ResourceWarning")


def write(pod: VirtualPod, revision: str) -> None:
    """As a ConfigMap does, whenever it comes."""
    path = pod.directory / "units" / f"{ENGINE}.toml"
    (first, *_, last) = path.read_text().partition("[Engine]\n")
    before = first.partition("Environment")[0]
    path.write_text(f'{before}Environment = {{ MODEL_REVISION = "{revision}" }}\n[Engine]\n{last}')


def in_force(pod: VirtualPod) -> dict[str, str]:
    return dict(pod.it.pod.units.get(ENGINE).unit.service.execution.environment)


def changed(pod: VirtualPod) -> tuple[str, ...]:
    return pod.it.pod.units.get(ENGINE).changed_keys


def digest(pod: VirtualPod) -> str | None:
    return pod.it.supervision.node_manager.status().config_digest


def spawns(gang: Gang) -> list[int]:
    return [pod.spawns() for pod in gang.pods]


async def roll_out(gang: Gang) -> httpx.Response:
    assert gang.instance is not None
    return await gang.world.client.post(f"/v1/instances/{gang.instance.id}/rollout", json={"reason": "revision 2"})


async def test_all_pods_start_with_what_their_files_say_together(autojump_clock: MockClock) -> None:
    async with open_gang(3) as gang:
        before = (await gang.until_active()).spec.config_digest
        for pod in gang.pods:
            write(pod, "2")
        answer = await roll_out(gang)
        assert answer.status_code == 202, answer.text
        instance = await gang.until_active(epoch=2, within=60)
        assert [in_force(pod)["MODEL_REVISION"] for pod in gang.pods] == ["2"] * 3
        assert {digest(pod) for pod in gang.pods} == {instance.spec.config_digest} != {before}
        assert [changed(pod) for pod in gang.pods] == [(), (), ()]
        assert (gang.runs[-1].reason, gang.runs[-1].outcome) == ("reload", "done")
        assert [len(pod.boots) for pod in gang.pods] == [1, 1, 1]
        again = await roll_out(gang)
        assert again.status_code == 409
        assert "already" in again.text


async def test_while_one_pod_has_its_old_files_nothing_is_stopped_and_it_is_named(autojump_clock: MockClock) -> None:
    async with open_gang() as gang:
        await gang.until_active()
        first, second = gang.pods
        write(first, "2")
        answer = await roll_out(gang)
        assert answer.status_code == 409
        said = wire.decode(wire.ErrorBody, answer.content).message
        assert "not come everywhere yet" in said
        assert first.ip in said
        assert second.ip in said
        assert gang.is_active()
        assert spawns(gang) == [1, 1]
        assert changed(first) == ("Service.Environment",)
        write(second, "2")
        assert (await roll_out(gang)).status_code == 202
        await gang.until_active(epoch=2, within=60)


async def test_wrong_files_in_one_pod_stop_nothing(autojump_clock: MockClock) -> None:
    async with open_gang() as gang:
        await gang.until_active()
        for pod in gang.pods:
            write(pod, "2")
        path = gang.pods[1].directory / "units" / f"{ENGINE}.toml"
        path.write_text(path.read_text().replace("ExecStart", "ExecStrat"))
        answer = await roll_out(gang)
        assert answer.status_code == 409
        assert "ExecStrat" in answer.text
        assert gang.is_active()
        assert spawns(gang) == [1, 1]


async def test_a_reload_in_one_pod_marks_its_engine_and_a_relaunch_goes_on_with_what_it_had(
    autojump_clock: MockClock,
) -> None:
    async with open_gang() as gang:
        before = (await gang.until_active()).spec.config_digest
        for pod in gang.pods:
            write(pod, "2")
            await pod.it.operations.reload("ana", dry_run=False)
            assert changed(pod) == ("Service.Environment",)
        gang.pods[0].kill_engine()
        instance = await gang.until_active(epoch=2, within=60)
        assert [in_force(pod).get("MODEL_REVISION") for pod in gang.pods] == [None, None]
        assert instance.spec.config_digest == before
        assert (await roll_out(gang)).status_code == 202
        await gang.until_active(epoch=3, within=60)
        assert [in_force(pod)["MODEL_REVISION"] for pod in gang.pods] == ["2", "2"]


async def test_a_pod_that_changes_its_mind_during_a_rollout_does_not_start_with_the_others(
    autojump_clock: MockClock,
) -> None:
    """Its files came anew between the question and the stop: the containers restart, and read them again."""
    async with open_gang() as gang:
        await gang.until_active()
        for pod in gang.pods:
            write(pod, "2")
        assert (await roll_out(gang)).status_code == 202
        write(gang.pods[1], "3")
        await gang.pods[1].it.operations.reload("ana", dry_run=False)
        write(gang.pods[0], "3")
        await gang.until(lambda: gang.is_active(2), within=600)
        assert len({digest(pod) for pod in gang.pods}) == 1


async def test_a_new_configuration_has_a_budget_of_its_own_and_ends_the_hold_of_the_old_one(
    autojump_clock: MockClock,
) -> None:
    async with open_gang() as gang:
        await gang.until_active()
        gang.pods[1].change(dies_after_sec=2.0)
        gang.pods[0].kill_engine()
        await gang.until(lambda: gang.instance is not None and gang.instance.held is not None, every=1.0)
        await gang.until(lambda: all(pod.settled for pod in gang.pods), within=120)
        gang.pods[1].change(dies_after_sec=float("inf"))
        for pod in gang.pods:
            write(pod, "2")
        await trio.sleep(30)
        assert (await roll_out(gang)).status_code == 202
        instance = await gang.until_active(within=120)
        assert instance.held is None
        budget = gang.world.it.registry.budgets.of(instance)
        assert (budget.runs, budget.phase2s) == (0, 0)


async def test_what_takes_another_container_is_refused_and_said(autojump_clock: MockClock) -> None:
    async with open_gang() as gang:
        await gang.until_active()
        for pod in gang.pods:
            path = pod.directory / "units" / f"{ENGINE}.toml"
            path.write_text(path.read_text().replace("Endpoints = 1", 'RestartWith = "coordinated"'))
        answer = await roll_out(gang)
        assert answer.status_code == 409
        assert "restart the container" in answer.text
        assert gang.is_active()


async def test_a_store_that_has_changed_is_restarted_as_by_any_reload(autojump_clock: MockClock) -> None:
    async with open_gang() as gang:
        await gang.until_active()
        gang.touched.add(STORE)
        for pod in gang.pods:
            write(pod, "2")
            path = pod.directory / "units" / f"{STORE}.toml"
            path.write_text(path.read_text() + 'Environment = { SIZE = "2" }\n')
        assert (await roll_out(gang)).status_code == 202
        await gang.until_active(epoch=2, within=60)
        assert [pod.spawns(STORE) for pod in gang.pods] == [2, 2]


async def test_C4_a_rollout_that_was_promised_and_waits_for_its_turn_outlives_the_controller(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with open_gang(policy=Policy(max_concurrent_runs=1), elect=journal_in(tmp_path)) as gang:
        await gang.until_active()
        slow = gang.world.add_gang("slow")
        await gang.world.until_active("slow")
        slow[0].change(prepare_sec=90.0)
        slow[0].kill_engine()
        await gang.until(lambda: gang.step == "prepare")
        for pod in gang.pods:
            write(pod, "2")
        answer = await roll_out(gang)
        assert answer.status_code == 202, answer.text
        gang.world.kill_controller()
        await gang.world.until_ended()
        await gang.start_controller()
        await gang.until_active(epoch=2)
        assert [in_force(pod)["MODEL_REVISION"] for pod in gang.pods] == ["2"] * 2
        assert answer.headers["Location"] == f"/v1/relaunches/{gang.runs[-1].id}"
        assert [len(pod.boots) for pod in gang.pods] == [1, 1]
