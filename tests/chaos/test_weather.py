"""Bad weather in CI: a few faults from a seed, and a checker that finds what is broken on purpose.

More of it: `python -m tests.chaos --faults 1000`, see docs/chaos.md.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator

import pytest

from controller.demo import fallback_engine
from tests.chaos import processes, report
from tests.chaos.faults import Ask, Strike, Timed, Verb
from tests.chaos.judgement import ENGINE_PORT
from tests.chaos.plan import plan
from tests.chaos.play import Played, play
from tests.chaos.seen import ENGINE, STORE
from tests.chaos.world import World

pytestmark = [pytest.mark.pods, pytest.mark.engines]

SEED = int(os.environ.get("PODVISOR_CHAOS_SEED", "2"))
FAULTS = int(os.environ.get("PODVISOR_CHAOS_FAULTS", "30"))
LONGEST_SEC = 2.0
HARMLESS = Strike(0, (Timed(0, Ask("pod0", Verb.RELOAD)),))


@pytest.mark.timeout(600)
async def test_every_invariant_holds_after_each_of_thirty_faults(world: World) -> None:
    strikes = plan(world.stage, SEED, FAULTS, longest_sec=LONGEST_SEC)
    history: list[Strike] = []

    def tell(played: Played) -> None:
        history.append(played.strike)
        print(report.line(played))

    failed = await play(world, strikes, tell)
    if failed is not None:
        command = f"python -m tests.chaos --longest {LONGEST_SEC:g}"
        pytest.fail("\n".join(report.violation(failed, history, SEED, command, world.directory)))


def enter(world: World, pod: str, *command: str) -> None:
    """A process in that pod that nobody there has started, as by `kubectl exec`; it is nobody's child."""
    first = world.first_process(pod)
    start = f"{' '.join(command)} </dev/null >/dev/null 2>&1 &"
    target = ["nsenter", f"--target={first}", "--pid", "--mount", "--net", "--", "sh", "-c", start]
    subprocess.run(target, check=True, timeout=30)


def kill(world: World, pod: str, unit: str) -> None:
    """The eldest process of that unit."""
    first = world.first_process(pod)
    assert first is not None
    alive, _ = processes.living(first)
    os.kill(min(found.pid for found in alive if found.unit == unit), signal.SIGKILL)


def break_everything(world: World) -> Iterator[Strike]:
    """In the one gang what nobody there ends, in the other what is mended and yet had no reason."""
    engine = f"python3 -I {fallback_engine.__file__}"
    enter(world, "pod0", "sleep", "1000")
    enter(world, "pod1", f"{engine} --host=127.0.0.1 --port={ENGINE_PORT}")
    enter(world, "pod2", "env", "PODVISOR_UNIT=engine", "PODVISOR_EPOCH=0", f"{engine} --port=12345")
    kill(world, "pod4", STORE)
    kill(world, "pod5", ENGINE)
    yield HARMLESS


BROKEN = {
    ("I1", "in pod0 lives sleep 1000 "),
    ("S29", f"port {ENGINE_PORT} of pod1 is held by "),
    ("I1, C2", "job0: engine "),
    ("I1", "in pod2 lives engine "),
    ("I3", "the store of pod4 was not left alone: "),
    ("C4", "the engine of pod5 was relaunched: "),
}


async def test_what_is_broken_behind_its_back_is_found(world: World) -> None:
    assert await play(world, [HARMLESS], ignore) is None, "before it there is nothing to be found"
    failed = await play(world, break_everything(world), ignore)
    assert failed is not None
    for invariant, what in BROKEN:
        assert any(found.invariant == invariant and found.what.startswith(what) for found in failed.violations), (
            f"{invariant}: {what} is not among {[str(found) for found in failed.violations]}"
        )


def ignore(played: Played) -> None:
    """Nobody is to be told."""
