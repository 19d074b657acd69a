"""Stopping a whole tree: whoever hides, nobody stays, and nobody else is touched."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import pytest
import trio

from supervisor.process import procfs
from supervisor.process.brand import Branding
from supervisor.process.children import Child, Children, ExitStatus, Spawn
from supervisor.process.tree import (
    TreeReport,
    descendants,
    matching,
    note_descendants,
    stop_tree,
    wait_any_death,
    wait_tree_gone,
)
from supervisor.unit.model import KillMode
from tests.support.real_processes import CAN_BECOME_OTHER_USERS, alive, gone, python_of, reaping, spawn_of, told

ID = "4c5b2f"

stop = partial(stop_tree, invocation_id=ID, mode=KillMode.MIXED, signal=signal.SIGTERM, grace_sec=30)
kill = partial(stop_tree, invocation_id=ID, mode=KillMode.MIXED, signal=signal.SIGTERM, grace_sec=0)


def shell(script: str, invocation_id: str = ID) -> Spawn:
    return spawn_of("sh", "-c", script, invocation_id=invocation_id)


async def started(children: Children, script: str, heard: Path, lines: int = 1) -> tuple[Child, list[int]]:
    """A shell whose script writes pids into $HEARD, and those pids."""
    child = await children.spawn(spawn_of("sh", "-c", script, invocation_id=ID, HEARD=str(heard)))
    return child, [int(line) for line in await told(heard, lines)]


def assert_all_gone(report: TreeReport, child: Child, children: Children, *pids: int) -> None:
    assert report.gone
    assert report.survivors == ()
    assert report.reason == ""
    assert [pid for pid in (child.pid, *pids) if procfs.read_stat(pid) is not None] == []
    assert child.released
    assert child.pid not in children.managed


@pytest.mark.seed("S22")
@pytest.mark.parametrize("mode", ["mixed", "control-group"])
async def test_a_willing_tree_goes_when_asked(mode: str, tmp_path: Path) -> None:
    async with reaping() as children:
        child, pids = await started(children, "sleep 1000 & echo $! > $HEARD; wait", tmp_path / "pids")
        report = await stop(children, child, mode=mode)
        assert_all_gone(report, child, children, *pids)
        assert not report.escalated
        assert report.killed == ()
        assert child.status == ExitStatus(None, "SIGTERM")


async def test_mixed_asks_the_others_only_after_the_main_process_went(tmp_path: Path) -> None:
    order = tmp_path / "order"
    script = f"""
        sh -c 'trap "echo helper >> {order}; exit" TERM; echo $$ > $HEARD; while :; do sleep 0.05; done' &
        trap 'sleep 0.3; echo main >> {order}; exit 7' TERM
        while :; do sleep 0.05; done"""
    async with reaping() as children:
        child, _ = await started(children, script, tmp_path / "pids")
        report = await stop(children, child)
        assert report.gone
        assert not report.escalated
        assert child.status == ExitStatus(7, None)
    assert order.read_text().split() == ["main", "helper"]


async def test_a_tree_that_ignores_asking_is_killed(tmp_path: Path) -> None:
    script = 'trap "" TERM; sh -c "while :; do sleep 1; done" & echo $! > $HEARD; while :; do sleep 1; done'
    async with reaping() as children:
        child, pids = await started(children, script, tmp_path / "pids")
        report = await stop(children, child, grace_sec=0.2)
        assert_all_gone(report, child, children, *pids)
        assert report.escalated
        assert {child.pid, *pids} <= set(report.killed)
        assert child.status == ExitStatus(None, "SIGKILL")


@pytest.mark.parametrize(
    "escape",
    [
        "setsid sleep 1000 & echo $! > $HEARD; sleep 1000",
        "(setsid sh -c 'sleep 1000 & echo $! > $HEARD' &); sleep 1000",
        # its parent lives, so it is known as a descendant although it bears no mark
        "env -i setsid sleep 1000 & echo $! > $HEARD; sleep 1000",
        # a process group of its own in the same session, as shells with job control make them
        "set -m; env -i sleep 1000 & echo $! > $HEARD; sleep 1000",
    ],
)
@pytest.mark.parametrize("stopper", [stop, kill])
@pytest.mark.seed("S29")
async def test_who_leaves_the_group_is_found(
    escape: str, stopper: Callable[[Children, Child], Awaitable[TreeReport]], tmp_path: Path
) -> None:
    async with reaping() as children:
        child, pids = await started(children, escape, tmp_path / "pids")
        report = await stopper(children, child)
        assert_all_gone(report, child, children, *pids)


CLEARED_DAEMON = "(env -i HEARD=$HEARD setsid sh -c 'sleep 1000 & echo $! > $HEARD' &); exec sleep 1000"


@pytest.fixture
def no_brand(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where the hard limit is lower, or in a sandbox that knows no such limit."""
    monkeypatch.setattr(Branding, "_wear", lambda self, brand: None)


async def orphaned(pid: int) -> None:
    """Until its parents are gone."""
    while (stat := procfs.read_stat(pid)) is not None and stat.parent != os.getpid():
        await trio.sleep(0.01)


@pytest.mark.seed("S29")
@pytest.mark.parametrize("user", [None, 65534])
async def test_a_daemon_that_hides_everything_is_known_by_its_brand(user: int | None, tmp_path: Path) -> None:
    """No environment, no session, no living parent, another user if need be: only the brand is left."""
    become = "" if user is None else f"setpriv --reuid={user} --clear-groups"
    if user is not None and not CAN_BECOME_OTHER_USERS:
        pytest.skip("becoming another user needs CAP_SETUID")
    script = CLEARED_DAEMON.replace("sleep 1000 &", f"{become} sleep 1000 &")
    async with reaping() as children:
        child, (daemon,) = await started(children, script, tmp_path / "pids")
        await orphaned(daemon)
        assert procfs.environment_value(daemon, "INVOCATION_ID") is None
        assert child.seen == set()
        assert_all_gone(await stop(children, child), child, children, daemon)


async def test_a_brand_is_not_worn_by_another_unit(tmp_path: Path) -> None:
    async with reaping() as children:
        child = await children.spawn(shell("sleep 1000"))
        spawn = spawn_of("sh", "-c", CLEARED_DAEMON, invocation_id="other", HEARD=str(tmp_path / "foreign"))
        await children.spawn(spawn)
        foreign = int((await told(tmp_path / "foreign"))[0])
        await orphaned(foreign)
        assert (await stop(children, child, claim_unowned=True)).gone
        assert alive(foreign)


@pytest.mark.usefixtures("no_brand")
async def test_without_a_brand_a_cleared_daemon_is_killed_only_on_the_callers_claim(tmp_path: Path) -> None:
    async with reaping() as children:
        child, (daemon,) = await started(children, CLEARED_DAEMON, tmp_path / "pids")
        await orphaned(daemon)
        report = await stop(children, child)
        assert report.gone
        assert alive(daemon)

        heir = await children.spawn(shell("sleep 1000"))
        assert (await stop(children, heir, claim_unowned=True)).gone
        assert alive(daemon)  # it is older than the process that would claim it
        os.kill(daemon, signal.SIGKILL)


@pytest.mark.usefixtures("no_brand")
async def test_a_claimed_daemon_goes(tmp_path: Path) -> None:
    async with reaping() as children:
        child, (daemon,) = await started(children, CLEARED_DAEMON, tmp_path / "pids")
        other, (foreign,) = await started(
            children,
            "(INVOCATION_ID=other setsid sh -c 'sleep 1000 & echo $! > $HEARD' &); exec sleep 1000",
            tmp_path / "foreign",
        )
        report = await stop(children, child, claim_unowned=True)
        assert_all_gone(report, child, children, daemon)
        assert alive(foreign)  # an orphan too, but it carries another unit's mark
        assert alive(other.pid)


@pytest.mark.usefixtures("no_brand")
async def test_a_daemon_seen_while_its_parents_lived_needs_no_claim(tmp_path: Path) -> None:
    release = tmp_path / "release"
    os.mkfifo(release)
    script = f"""
        env -i HEARD=$HEARD setsid sh -c 'sleep 1000 & echo $! > $HEARD; read x < {release}' &
        exec sleep 1000"""
    async with reaping() as children:
        child, (daemon,) = await started(children, script, tmp_path / "pids")
        assert daemon in {process.pid for process in await note_descendants(child)}
        release.write_text("\n")
        await orphaned(daemon)
        report = await kill(children, child)
        assert_all_gone(report, child, children, daemon)


async def test_a_crash_is_cleaned_up_after_while_the_zombie_pins_the_number(tmp_path: Path) -> None:
    script = "sleep 1000 & echo $! > $HEARD; setsid sleep 1000 & echo $! >> $HEARD; exit 3"
    async with reaping() as children:
        child, pids = await started(children, script, tmp_path / "pids", lines=2)
        await child.exited.wait()
        report = await kill(children, child)
        assert_all_gone(report, child, children, *pids)
        assert set(report.killed) == set(pids)
        assert child.status == ExitStatus(3, None)


async def test_a_nameless_process_in_another_group_is_known_by_the_session_of_the_crashed(tmp_path: Path) -> None:
    async with reaping() as children:
        child, pids = await started(children, "set -m; env -i sleep 1000 & echo $! > $HEARD; exit 3", tmp_path / "p")
        await child.exited.wait()
        assert_all_gone(await kill(children, child), child, children, *pids)


async def test_stopping_again_and_stopping_the_gone_does_nothing() -> None:
    async with reaping() as children:
        child = await children.spawn(shell("exit 4"))
        await child.exited.wait()
        for _ in range(2):
            report = await stop(children, child)
            assert_all_gone(report, child, children)
            assert not report.escalated


async def test_two_stops_at_once_agree(tmp_path: Path) -> None:
    reports = []

    async with reaping() as children:
        child, pids = await started(children, "setsid sleep 1000 & echo $! > $HEARD; sleep 1000", tmp_path / "pids")

        async def one() -> None:
            reports.append(await stop(children, child))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(one)
            nursery.start_soon(one)
        for report in reports:
            assert_all_gone(report, child, children, *pids)


async def test_a_cancelled_stop_hides_nothing_and_the_next_one_carries_on(tmp_path: Path) -> None:
    script = 'trap "" TERM; setsid sleep 1000 & echo $! > $HEARD; while :; do sleep 1; done'
    async with reaping() as children:
        child, pids = await started(children, script, tmp_path / "pids")
        for patience in (0, 0.001, 0.01, 0.1):
            with trio.move_on_after(patience):
                await stop(children, child)
            assert not child.released
            assert alive(child.pid)
        assert_all_gone(await kill(children, child), child, children, *pids)


@pytest.mark.parametrize("mode", ["mixed", "control-group"])
async def test_a_stopped_tree_can_be_stopped(mode: str, tmp_path: Path) -> None:
    async with reaping() as children:
        child, pids = await started(children, "sleep 1000 & echo $! > $HEARD; wait", tmp_path / "pids")
        children.signal_group(child, signal.SIGSTOP)
        report = await stop(children, child, mode=mode)
        assert_all_gone(report, child, children, *pids)
        assert not report.escalated  # it was woken to hear that it is asked


async def test_mode_process_leaves_the_others_alone(tmp_path: Path) -> None:
    script = 'trap "" TERM; sh -c "exec sleep 1000" & echo $! > $HEARD; while :; do sleep 1; done'
    async with reaping() as children:
        child, (helper,) = await started(children, script, tmp_path / "pids")
        report = await stop(children, child, mode="process", grace_sec=0.1)
        assert report.gone
        assert report.killed == (child.pid,)
        assert child.released
        assert alive(helper)


async def test_without_sendsigkill_the_stubborn_are_reported_and_live(tmp_path: Path) -> None:
    script = 'trap "" TERM; echo $$ > $HEARD; while :; do sleep 1; done'
    async with reaping() as children:
        child, _ = await started(children, script, tmp_path / "pids")
        report = await stop(children, child, grace_sec=0.2, send_sigkill=False)
        assert not report.gone
        assert not child.released
        assert {survivor.pid: survivor.why for survivor in report.survivors}[child.pid] == (
            "has not ended when asked, and SendSIGKILL is off"
        )
        assert f"{child.pid} (sh:" in report.reason
        assert (await kill(children, child)).gone


async def test_another_final_signal_is_used(tmp_path: Path) -> None:
    script = 'trap "" TERM; ulimit -c 0; echo $$ > $HEARD; while :; do sleep 0.05; done'
    async with reaping() as children:
        child, _ = await started(children, script, tmp_path / "pids")
        report = await stop(children, child, grace_sec=0.1, final_signal=signal.SIGQUIT)
        assert report.gone
        assert child.status == ExitStatus(None, "SIGQUIT")


@pytest.mark.parametrize("session", ["setsid", "stay"])
async def test_a_tree_that_keeps_forking_while_it_is_killed(session: str, tmp_path: Path) -> None:
    """Thirty-two processes, in sessions of their own or not, that fork fifteen hundred times a second together."""
    program = """
import os, sys, time
for _ in range(5):
    if os.fork() == 0 and sys.argv[2] == "setsid":
        os.setsid()
    time.sleep(0.02)
print("full", file=open(sys.argv[1], "a"), flush=True)
while True:
    if os.fork() == 0:
        time.sleep(0.2)
        os._exit(0)
    time.sleep(0.02)
"""
    heard = tmp_path / "heard"
    async with reaping() as children:
        child = await children.spawn(python_of(program, str(heard), session, INVOCATION_ID=ID))
        await told(heard)
        report = await kill(children, child, kill_deadline_sec=30)
        assert_all_gone(report, child, children)
        assert procfs.children_of_ours() == ()
        assert len(report.killed) > 10


async def test_a_tree_that_outruns_every_scan_is_reported_in_time(tmp_path: Path) -> None:
    """Each generation forks and dies within a fraction of a millisecond; only a cgroup could stop it."""
    program = """
import os, sys, time
open(sys.argv[1], "w").write("running\\n")
end = time.monotonic() + 3
while time.monotonic() < end:
    if os.fork():
        os._exit(0)
    os.setsid()
"""
    heard = tmp_path / "heard"
    async with reaping() as children:
        child = await children.spawn(python_of(program, str(heard), INVOCATION_ID=ID))
        await told(heard)
        began = trio.current_time()
        report = await kill(children, child, kill_deadline_sec=1)
        assert trio.current_time() - began < 20
        assert report.gone == (report.reason == "")
        while True:
            found = await kill(children, child, kill_deadline_sec=5)
            if found.gone:
                break


async def test_another_units_tree_is_never_touched(tmp_path: Path) -> None:
    escape = "(setsid sh -c 'sleep 1000 & echo $! > $HEARD' &); exec sleep 1000"
    async with reaping() as children:
        child, mine = await started(children, escape, tmp_path / "mine")
        other = await children.spawn(
            spawn_of("sh", "-c", escape, invocation_id="other", HEARD=str(tmp_path / "theirs"))
        )
        theirs = [int(line) for line in await told(tmp_path / "theirs")]
        report = await kill(children, child)
        assert_all_gone(report, child, children, *mine)
        assert all(map(alive, (other.pid, *theirs)))
        assert set(report.killed).isdisjoint({other.pid, *theirs})


INNER_SUPERVISOR = f"""
import signal, sys
from supervisor.process.tree import stop_tree
from tests.support.real_processes import reaping, spawn_of
import trio

async def main():
    async with reaping() as children:
        child = await children.spawn(spawn_of("sleep", "1000", invocation_id="{ID}"))
        report = await stop_tree(children, child, invocation_id="{ID}", mode="mixed", signal=signal.SIGTERM,
                                 grace_sec=0, claim_unowned=True)
        return 0 if report.gone and report.killed == (child.pid,) else 1

sys.exit(trio.run(main))
"""


async def test_a_process_outside_our_descendants_is_never_touched() -> None:
    """The same mark in the environment does not make it ours: here it is a sibling of a whole inner supervisor."""
    async with reaping() as children:
        sibling = await children.spawn(shell("exec sleep 1000"))
        inner = await children.spawn(spawn_of(sys.executable, "-c", INNER_SUPERVISOR))
        await inner.exited.wait()
        assert inner.status == ExitStatus(0, None)
        assert alive(sibling.pid)


async def test_who_may_not_be_signalled_is_a_survivor_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with reaping() as children:
        child, _ = await started(children, "echo $$ > $HEARD; exec sleep 1000", tmp_path / "pids")

        def forbid(*_: object) -> None:
            raise PermissionError("operation not permitted")

        with monkeypatch.context() as patched:  # capabilities cannot be dropped for one thread of a test run
            patched.setattr("signal.pidfd_send_signal", forbid)
            patched.setattr("os.killpg", forbid)
            report = await kill(children, child, kill_deadline_sec=0.5)
        assert not report.gone
        assert [(one.pid, "not permitted" in one.why) for one in report.survivors] == [(child.pid, True)]
        assert (await kill(children, child)).gone


async def test_a_unit_can_live_as_long_as_any_of_its_processes(tmp_path: Path) -> None:
    async with reaping() as children:
        child, pids = await started(
            children, "setsid sleep 1000 & echo $! > $HEARD; sleep 1000 & echo $! >> $HEARD; exit 3", tmp_path / "p", 2
        )
        await child.exited.wait()
        async with trio.open_nursery() as nursery:

            @nursery.start_soon
            async def kill_one_by_one() -> None:
                for pid in pids:
                    assert alive(pid)
                    await trio.sleep(0.05)
                    os.kill(pid, signal.SIGKILL)

            await wait_tree_gone(children, child, invocation_id=ID)
            assert not any(map(alive, pids))
        assert child.status == ExitStatus(3, None)
        assert not child.released


async def test_critical_descendants_are_matched_and_their_death_is_told_at_once(tmp_path: Path) -> None:
    script = """
        sh -c 'exec -a VLLM::EngineCore_DP0 sleep 1000' 2>/dev/null & echo $! >> $HEARD
        sleep 2000 & echo $! >> $HEARD
        wait"""
    async with reaping() as children:
        bash = spawn_of("bash", "-c", script.replace("sh -c", "bash -c"), invocation_id=ID, HEARD=str(tmp_path / "p"))
        child = await children.spawn(bash)
        engine, other = [int(line) for line in await told(tmp_path / "p", 2)]
        while not (critical := matching(await descendants(child.pid), ("VLLM::EngineCore*",))):
            await trio.sleep(0.01)
        assert [process.pid for process in critical] == [engine]
        with trio.move_on_after(0.05) as quiet:
            os.kill(other, signal.SIGKILL)
            await wait_any_death(critical)
        assert quiet.cancelled_caught
        os.kill(engine, signal.SIGKILL)
        assert await wait_any_death(critical) == critical[0]
        await gone(engine)
        assert await wait_any_death(critical) == critical[0]  # also when it is long dead
        assert (await kill(children, child)).gone


async def test_watching_nothing_waits_for_ever() -> None:
    with trio.move_on_after(0.01) as scope:
        await wait_any_death(())
    assert scope.cancelled_caught


async def test_a_hundred_stops_leave_no_descriptor_behind(tmp_path: Path) -> None:
    async with reaping() as children:
        await kill(children, await children.spawn(shell("sleep 1000 & sleep 1000")))
        before = set(os.listdir("/proc/self/fd"))
        for _ in range(100):
            child = await children.spawn(shell("setsid sleep 1000 & sleep 1000"))
            assert (await kill(children, child)).gone
        assert set(os.listdir("/proc/self/fd")) == before
        assert procfs.children_of_ours() == ()
