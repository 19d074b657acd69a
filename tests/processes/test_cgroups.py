"""Cgroups of invocations: no chain of forks outruns them, they touch nobody else, and none is left."""

from __future__ import annotations

import logging
import shutil
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
import trio
from msgspec.structs import replace

from supervisor.process import procfs
from supervisor.process.cgroup import Cgroups
from supervisor.process.children import Child, Children, Spawn, SpawnError
from supervisor.process.gate import Baseline, GateSpec, run_gate
from supervisor.process.tree import signal_tree, stop_tree, wait_tree_gone
from supervisor.unit.model import ResourceLimit
from tests.support.cgroups import cgroup_for_a_test, cgroups_below
from tests.support.real_processes import CAN_BECOME_OTHER_USERS, TIMEOUT_SEC, alive, reaping, spawn_of, told

ID, OTHER = "4c5b2f", "8d1e77"
SOURCE = Path(__file__).parents[1] / "support" / "fork_chain.c"
RESTARTS = 50

stop = partial(stop_tree, mode="mixed", signal=signal.SIGTERM, grace_sec=0.0)


@pytest.fixture
def cgroup() -> Iterator[Path]:
    with cgroup_for_a_test() as made:
        yield made


@pytest.fixture(scope="session")
def fork_chain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler: a script does not fork faster than /proc is read")
    program = tmp_path_factory.mktemp("built") / "fork_chain"
    subprocess.run([compiler, "-O2", "-o", str(program), str(SOURCE)], check=True)
    return program


@pytest.fixture
def leash(tmp_path: Path) -> Iterator[Path]:
    """As long as it is there chains go on, whatever becomes of the test."""
    path = tmp_path / "leash"
    path.touch()
    yield path
    path.unlink()


def contained(*argv: str, invocation_id: str = ID, **environment: str) -> Spawn:
    return replace(spawn_of(*argv, invocation_id=invocation_id, **environment), contained=True)


@asynccontextmanager
async def reaping_in(cgroup: Path | None) -> AsyncIterator[Children]:
    async with reaping() as children:
        children.cgroups = Cgroups(cgroup)
        yield children


async def chained(children: Children, fork_chain: Path, leash: Path) -> Child:
    """A unit whose main process has ended, and whose chains go on."""
    child = await children.spawn(contained(str(fork_chain), str(leash)))
    await child.exited.wait()
    while children.orphans_reaped < 100:
        await trio.sleep(0.01)  # links are no children of ours that could be waited for
    return child


@pytest.mark.seed("S29")
async def test_chains_that_outrun_every_look_are_gone_after_the_stop(
    cgroup: Path, fork_chain: Path, leash: Path
) -> None:
    async with reaping_in(cgroup) as children:
        child = await chained(children, fork_chain, leash)
        report = await stop(children, child, invocation_id=ID, kill_deadline_sec=TIMEOUT_SEC / 2)
        assert report.gone
        # The kernel removes no cgroup in which anything lives, and out of it the chains had no way.
        assert cgroups_below(cgroup) == []


async def test_without_one_chains_that_no_look_sees_are_not_taken_for_gone(
    fork_chain: Path, leash: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with reaping_in(None) as children:
        child = await chained(children, fork_chain, leash)

        def blind_scan() -> dict[int, procfs.ProcessStat]:
            """One that takes as long as a link of a chain lives."""
            before, limit = children.orphans_reaped, time.monotonic() + TIMEOUT_SEC
            while children.orphans_reaped == before and leash.exists() and time.monotonic() < limit:
                time.sleep(0.001)
            return {}

        monkeypatch.setattr(procfs, "scan", blind_scan)
        report = await stop(children, child, invocation_id=ID, kill_deadline_sec=1.0)
        assert not report.gone
        assert "could not be verified that no process is left" in report.reason


async def test_the_stroke_needs_no_look(cgroup: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with reaping_in(cgroup) as children:
        script = "setsid sleep 1000 & echo $! > $HEARD; exec sleep 1000"
        child = await children.spawn(contained("sh", "-c", script, HEARD=str(tmp_path / "daemon")))
        (daemon,) = map(int, await told(tmp_path / "daemon"))
        monkeypatch.setattr(procfs, "scan", dict)
        assert (await stop(children, child, invocation_id=ID, kill_deadline_sec=TIMEOUT_SEC / 2)).gone
        assert not alive(daemon)
        assert cgroups_below(cgroup) == []


@pytest.mark.seed("S29")
async def test_the_gate_ends_chains_of_an_earlier_invocation(cgroup: Path, fork_chain: Path, leash: Path) -> None:
    async with reaping_in(cgroup) as children:
        child = await chained(children, fork_chain, leash)
        children.release(child)
        spec = GateSpec(invocation_ids=frozenset({"older", ID}), baseline=Baseline(segments=frozenset()))
        report = await run_gate(children, spec)
        assert report.passed, report
        assert cgroups_below(cgroup) == []


async def test_chains_are_not_taken_for_gone_while_they_are_only_asked(
    cgroup: Path, fork_chain: Path, leash: Path
) -> None:
    async with reaping_in(cgroup) as children:
        child = await chained(children, fork_chain, leash)
        with trio.move_on_after(0.5) as patience:
            await wait_tree_gone(children, child, invocation_id=ID)
        assert patience.cancelled_caught
        report = await stop(children, child, invocation_id=ID, grace_sec=0.5, send_sigkill=False)
        assert not report.gone
        assert cgroups_below(cgroup) != []
        assert (await stop(children, child, invocation_id=ID)).gone


async def test_the_program_is_in_its_cgroup_from_its_first_instruction(cgroup: Path, tmp_path: Path) -> None:
    heard = tmp_path / "heard"
    async with reaping_in(cgroup) as children:
        child = await children.spawn(contained("sh", "-c", "cat /proc/self/cgroup > $HEARD", HEARD=str(heard)))
        await child.exited.wait()
        (ours,) = [line for line in heard.read_text().splitlines() if line.startswith("0::")]
        assert ours.endswith(f".{ID}")
        assert (await stop(children, child, invocation_id=ID)).gone


@pytest.mark.skipif(not CAN_BECOME_OTHER_USERS, reason="becoming another user needs CAP_SETUID")
async def test_a_unit_of_another_user_is_contained_too(cgroup: Path, tmp_path: Path) -> None:
    heard = tmp_path / "heard"
    async with reaping_in(cgroup) as children:
        with heard.open("w") as stdout:
            spawn = contained("sh", "-c", "id -u; cat /proc/self/cgroup")
            child = await children.spawn(replace(spawn, user=65534, group=65534, stdout=stdout.fileno()))
        await child.exited.wait()
        user, *lines = heard.read_text().splitlines()
        assert user == "65534"
        assert any(line.endswith(f".{ID}") for line in lines)
        assert (await stop(children, child, invocation_id=ID)).gone


async def test_nobody_else_is_touched(cgroup: Path, fork_chain: Path, leash: Path, tmp_path: Path) -> None:
    script = "(setsid sleep 1000 & echo $! > $HEARD); exec sleep 1000"
    async with reaping_in(cgroup) as children:
        other = await children.spawn(contained("sh", "-c", script, invocation_id=OTHER, HEARD=str(tmp_path / "other")))
        without = await children.spawn(spawn_of("sleep", "1000", invocation_id="without"))
        (daemon,) = map(int, await told(tmp_path / "other"))
        child = await chained(children, fork_chain, leash)
        assert (await stop(children, child, invocation_id=ID)).gone
        assert alive(other.pid)
        assert alive(daemon)
        assert alive(without.pid)
        assert [name.rpartition(".")[2] for name in cgroups_below(cgroup)] == [OTHER]
        assert (await stop(children, other, invocation_id=OTHER)).gone
        assert not alive(daemon)
        assert cgroups_below(cgroup) == []


async def test_what_bears_no_other_mark_is_known_by_its_cgroup(cgroup: Path, tmp_path: Path) -> None:
    """A limit of the unit's own in the place of its brand, no environment, no session, no parent."""
    script = "(env -i HEARD=$HEARD setsid sh -c 'sleep 1000 & echo $! > $HEARD' &); exec sleep 1000"
    spawn = contained("sh", "-c", script, HEARD=str(tmp_path / "daemon"))
    async with reaping_in(cgroup) as children:
        child = await children.spawn(replace(spawn, limits=(ResourceLimit("RTTIME", 9_000_000, 9_000_000),)))
        (daemon,) = map(int, await told(tmp_path / "daemon"))
        while (stat := procfs.read_stat(daemon)) is not None and stat.session == child.pid:
            await trio.sleep(0.01)
        assert child.seen == set()
        assert daemon in await signal_tree(children, child, signal.SIGCONT, invocation_id=ID)
        assert (await stop(children, child, invocation_id=ID)).gone
        assert not alive(daemon)


async def test_none_is_left_after_many_restarts(cgroup: Path) -> None:
    async with reaping_in(cgroup) as children:
        for number in range(RESTARTS):
            spawn = contained("sh", "-c", "setsid sleep 1000 & exec sleep 1000", invocation_id=f"life{number}")
            child = await children.spawn(spawn)
            assert (await stop(children, child, invocation_id=f"life{number}")).gone
        assert cgroups_below(cgroup) == []


async def test_what_cannot_be_executed_leaves_none(cgroup: Path) -> None:
    async with reaping_in(cgroup) as children:
        with pytest.raises(SpawnError, match="not found"):
            await children.spawn(contained("there-is-no-such-program"))
    assert cgroups_below(cgroup) == []


async def test_where_somebody_is_left_on_purpose_it_stays_until_he_is_gone(cgroup: Path, tmp_path: Path) -> None:
    async with reaping_in(cgroup) as children:
        script = "sleep 1000 & echo $! > $HEARD; exec sleep 1000"
        child = await children.spawn(contained("sh", "-c", script, HEARD=str(tmp_path / "left")))
        (left,) = map(int, await told(tmp_path / "left"))
        report = await stop(children, child, invocation_id=ID, mode="process")
        assert report.gone
        assert alive(left)
        assert [name.rpartition(".")[2] for name in cgroups_below(cgroup)] == [ID]
        gate = GateSpec(invocation_ids=frozenset({ID}), baseline=Baseline(segments=frozenset()))
        assert (await run_gate(children, gate)).passed
        assert not alive(left)
    assert cgroups_below(cgroup) == []


async def test_without_a_cgroup_everything_goes_on_as_before(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It was made read-only, or taken away, under us."""
    async with reaping_in(tmp_path / "taken-away") as children:
        with caplog.at_level(logging.WARNING):
            child = await children.spawn(contained("sh", "-c", "setsid sleep 1000 & exec sleep 1000"))
        assert "without a cgroup of its own" in caplog.text
        assert (await stop(children, child, invocation_id=ID)).gone
    async with reaping_in(None) as children:
        child = await children.spawn(contained("sh", "-c", "setsid sleep 1000 & exec sleep 1000"))
        assert (await stop(children, child, invocation_id=ID)).gone
