"""One vLLM over two pods, a data-parallel rank in each: health says 200 while a rank is dead, and half of the requests
hang."""

import pytest

from tests.engines.vllm.faults import CORE, FOLLOWER, LEADER, MAIN, NO_GRACE, QUICK_CANARY, Fault, relaunch_after
from tests.engines.vllm.gang import Stage

pytestmark = [pytest.mark.pods, pytest.mark.vllm, pytest.mark.timeout(3600)]

A_RANK_IN_EACH_POD = f"""
[Engine]
DataParallel = "internal"
[Engine.Args]
data-parallel-size = 2
api-server-count = 1
{QUICK_CANARY}
"""

FAULTS = (
    Fault("kill -9 of the other pod's main process", FOLLOWER, [MAIN]),
    Fault("kill -9 of the other pod's rank", FOLLOWER, [CORE]),
    Fault("kill -9 of the coordinator", LEADER, ["VLLM::DPCoordinator*"]),
    Fault("SIGSTOP of the other pod's rank", FOLLOWER, [CORE], "STOP"),
)


async def test_a_dead_or_stuck_rank_costs_all_ranks_a_relaunch(stage: Stage) -> None:
    async with stage.gang(2, drop_in=A_RANK_IN_EACH_POD, supervisor_settings=NO_GRACE) as gang:
        await gang.active()
        said = await gang.complete()
        for fault in FAULTS:
            await relaunch_after(fault, gang, said)
