"""Faults of vLLM's processes, and what must be true after each."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

from tests.engines.vllm.gang import Gang, Look, check_relaunched, report, timeline
from tests.pods.harness import Tables

# What a canary finds in one and a half minutes by default it finds here in half a minute.
QUICK_CANARY = """
[Canary]
IdleSec = "2s"
TimeoutSec = "15s"
"""

NO_GRACE: Tables = {"supervisor": {"grace_period_sec": 0}}
"""And it counts at once, not 120 s after the start."""


@dataclass(frozen=True)
class Fault:
    what: str
    rank: int
    titles: Sequence[str]
    """Of the processes that get the signal, in the pod of that rank."""
    signal: str = "KILL"

    @property
    def is_hang(self) -> bool:
        return self.signal == "STOP"

    async def strike(self, gang: Gang, look: Look) -> None:
        for title in self.titles:
            process = look.pods[self.rank].titled(title, look.engine(self.rank))
            await gang.kill(self.rank, process.pid, self.signal)


# Of one vLLM over two pods, tensor parallel.
OVER_TWO_PODS = {"TENSOR_PARALLEL_SIZE": "2"}
LEADER, FOLLOWER = 0, 1
MAIN = "*bin/vllm serve*"
CORE = "VLLM::EngineCore*"
WORKER = "VLLM::Worker*"

DEATHS = (
    Fault("kill -9 of the leader's API server", LEADER, [MAIN]),
    Fault("kill -9 of EngineCore", LEADER, [CORE]),
    Fault("kill -9 of the leader's worker", LEADER, [WORKER]),
    Fault("kill -9 of the headless follower", FOLLOWER, [MAIN]),
    Fault("kill -9 of the follower's worker", FOLLOWER, [WORKER]),
)


async def relaunch_after(fault: Fault, gang: Gang, said: str) -> None:
    """Strike; then one run puts other engines into all pods, which say the same, and nothing else has changed.

    A report about an engine that was loading would have opened a second run.
    """
    before = await gang.look()
    epoch = await gang.active()
    struck_at = time.time()
    await fault.strike(gang, before)
    if fault.is_hang:
        assert await gang.health() == 200, "only a request shows that it hangs"
    assert await gang.active(epoch) == epoch + 1, fault.what
    [run] = await gang.runs(epoch)
    report(f"{fault.what}: {timeline(run, struck_at)}")
    assert (run.reason, run.outcome, run.phase) == ("fault", "done", 1), run
    assert await gang.complete() == said
    check_relaunched(before, await gang.look(), gang)
