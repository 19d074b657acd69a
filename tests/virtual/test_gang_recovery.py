"""The engines' own recovery, end to end: real controller code asks real supervisor code, whose engines have a hook."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import pytest
import trio
from trio.testing import MockClock

from controller.model.instance import InstanceStatus
from supervisor import wire
from tests.support.virtual_gang import Gang, Script, VirtualPod, open_gang
from tests.support.virtual_pod import RECOVER

# httpx leaves its generators to the garbage collector when a request is cut off or a stream is left early.
pytestmark = pytest.mark.filterwarnings("ignore:Async generator 'http:ResourceWarning")

TRANSIENT = 0x00F1FEF5
HOOK = Script(recover_sec=2.0)


@asynccontextmanager
async def serving(script: Script = HOOK, endpoints: int = 1) -> AsyncIterator[Gang]:
    async with open_gang(3, script=script, endpoints=endpoints) as gang:
        await gang.until_active()
        yield gang


async def report(gang: Gang, pod: VirtualPod, level: str = "L2") -> wire.FaultAnswer:
    message = {"fault_code": TRANSIENT, "fault_level": level, "message": "seen by the test", "pod_ip": pod.ip}
    answer: httpx.Response = await gang.world.client.post("/controller/report_hardware_fault", json=message)
    assert answer.status_code == 200, answer.text
    return wire.decode(wire.FaultAnswer, answer.content)


def ended(gang: Gang) -> list[tuple[str | None, str | None]]:
    """But for the assembly."""
    return [(run.strategy, run.outcome) for run in gang.runs[1:]]


def asked(gang: Gang) -> list[int]:
    return [pod.spawns(RECOVER) for pod in gang.pods]


@pytest.mark.seed("S08")
@pytest.mark.parametrize("endpoints", [1, 2])
async def test_S08_every_engine_recovers_by_its_hook_in_the_epoch_in_which_it_serves(
    autojump_clock: MockClock, endpoints: int
) -> None:
    async with serving(endpoints=endpoints) as gang:
        answer = await report(gang, gang.pods[1])
        assert (answer.recovery, answer.strategy) == (wire.Recovery.PENDING, "token_reinference")
        await gang.until(lambda: len(gang.runs) == 2, within=20)
        assert ended(gang) == [("token_reinference", "done")]
        assert asked(gang) == [endpoints] * 3
        assert gang.is_active()
        assert gang.instance is not None
        assert gang.instance.epoch == 1
        assert [pod.spawns() for pod in gang.pods] == [endpoints] * 3, "no engine was started anew"
        assert not any(pod.is_frozen for pod in gang.pods)
        await trio.sleep(120)
        assert gang.is_active()
        assert len(gang.runs) == 2, "it was answered"


@pytest.mark.seed("S08")
async def test_S08_one_hook_that_fails_means_new_engines_for_all_and_their_success_clears_the_mark(
    autojump_clock: MockClock,
) -> None:
    async with serving() as gang:
        gang.pods[2].change(recover_fails=True)
        await report(gang, gang.pods[0])
        await gang.until(lambda: ("token_reinference", "failed") in ended(gang), within=20)
        assert gang.instance is not None
        assert "RecoverExec" in gang.instance.prev_strategy_failed
        await gang.until_active(epoch=2, within=120)
        await gang.until(lambda: len(gang.runs) == 3)
        assert ended(gang) == [("token_reinference", "failed"), ("engine_relaunch", "done")]
        assert gang.runs[-1].reason == "escalation"
        assert gang.instance.prev_strategy_failed == ""
        assert [pod.spawns() for pod in gang.pods] == [2] * 3
        assert [len(pod.boots) for pod in gang.pods] == [1] * 3
        # With the mark gone the next such fault is the engines' own matter again.
        gang.pods[2].change(recover_fails=False)
        await report(gang, gang.pods[0], level="HEALTHY")
        await report(gang, gang.pods[0])
        await gang.until(lambda: len(gang.runs) == 4, within=20)
        assert ended(gang)[-1] == ("token_reinference", "done")


async def test_an_engine_that_dies_in_its_hook_is_relaunched_with_all(autojump_clock: MockClock) -> None:
    async with serving(Script(recover_sec=20.0)) as gang:
        await report(gang, gang.pods[0])
        await gang.until(lambda: asked(gang) == [1, 1, 1])
        gang.pods[1].kill_engine()
        await gang.until_active(epoch=2, within=120)
        assert ended(gang)[0] == ("token_reinference", "failed")
        assert [len(pod.boots) for pod in gang.pods] == [1] * 3
        assert gang.instance is not None
        assert gang.instance.status is InstanceStatus.ACTIVE
