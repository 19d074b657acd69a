"""Bad weather in CI: a few faults from a seed, and a checker that finds what is broken on purpose.

More of it: `python -m tests.chaos --faults 1000`, see docs/chaos.md.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator

import pytest

from controller.demo import fallback_engine
from tests.chaos import processes, report
from tests.chaos.faults import Ask, Strike, Timed, Verb
from tests.chaos.plan import plan
from tests.chaos.play import Played, play
from tests.chaos.seen import ENGINE, STORE, SUPERVISOR
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


def an_orphan_lives(world: World) -> None:
    enter(world, "pod1", "sleep", "1000")


def an_old_engine_lives(world: World) -> None:
    program = f"python3 -I {fallback_engine.__file__} --port=12345"
    enter(world, "pod2", "env", "PODVISOR_UNIT=engine", "PODVISOR_EPOCH=0", program)


def somebody_shares_the_port(world: World) -> None:
    program = f"python3 -I {fallback_engine.__file__} --host=127.0.0.1 --port=10000"
    enter(world, "pod3", program)


def a_store_is_not_left_alone(world: World) -> None:
    kill(world, "pod4", STORE)


def a_gang_is_relaunched_for_nothing(world: World) -> None:
    kill(world, "pod5", ENGINE)


SABOTAGE: tuple[tuple[Callable[[World], None], set[str]], ...] = (
    (an_orphan_lives, {"I1"}),
    (an_old_engine_lives, {"I1, C2", "I1"}),
    (somebody_shares_the_port, {"S29", "I1"}),
    (a_store_is_not_left_alone, {"I3"}),
    (a_gang_is_relaunched_for_nothing, {"C4"}),
)


async def test_what_is_broken_behind_its_back_is_found(world: World) -> None:
    assert await play(world, [HARMLESS], ignore) is None, "before the sabotage there is nothing to be found"
    for sabotage, invariants in SABOTAGE:
        failed = await play(world, sabotaged(world, sabotage), ignore)
        assert failed is not None
        assert {violation.invariant for violation in failed.violations} == invariants, failed.violations
        end_strangers(failed)


def sabotaged(world: World, sabotage: Callable[[World], None]) -> Iterator[Strike]:
    sabotage(world)
    yield HARMLESS


def ignore(played: Played) -> None:
    """Nobody is to be told."""


def end_strangers(played: Played) -> None:
    assert played.after is not None
    for pod in played.after.pods.values():
        for process in pod.processes:
            if process.unit not in (SUPERVISOR, STORE, ENGINE) or process.epoch == 0:
                os.kill(process.pid, signal.SIGKILL)
