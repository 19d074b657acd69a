"""What operators ask of a running supervisor: commands, their exit codes, the JSON that tools rely on, and probes."""

from __future__ import annotations

import json
import os
import re
import signal
import uuid
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from types import UnionType

import httpx
import trio

from tests.support.real_processes import TIMEOUT_SEC, alive
from tests.support.running_supervisor import (
    FOREVER,
    PODVISOR,
    Running,
    RunningSupervisor,
    left_behind,
    program,
    service,
    shell,
    supervisor,
)

NEEDS_STORE = {"Requires": ["store"], "After": ["store"]}
TIMESTAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")

UNIT = {"name": str, "type": str, "state": str, "sub_state": str, "pid": int | None, "since": str, "restarts": int}
UNIT_OPTIONAL = {"epoch": int | None, "next_restart_in_sec": float | int | None, "last_exit": dict | None}
EXIT = {
    "pid": int,
    "code": int | None,
    "signal": str | None,
    "asked": bool,
    "cause": str,
    "uptime_sec": float | int,
    "at": str,
    "oom_killed": bool,
    "log_tail": list,
}
SUPERVISOR = {
    "pid": int,
    "version": str,
    "boot_id": str,
    "uptime_sec": float | int,
    "freeze_remaining_sec": float | int,
    "relaunch_count": int,
}


def has(shape: Mapping[str, type | UnionType], found: Mapping[str, object]) -> bool:
    return all(isinstance(found[key], kind) for key, kind in shape.items())


async def test_the_json_that_tools_rely_on(tmp_path: Path) -> None:
    units = {
        "store": service(*FOREVER),
        "failing": service(*shell("echo why; exit 3"), Restart="no"),
        "flapping": service("false", RestartSec="30s"),
    }
    async with supervisor(tmp_path, units) as running:
        await running.moved("failing", "cleaning", "failed")
        await running.moved("flapping", "cleaning", "auto-restart")
        await running.online()
        done = await running.command("status", "--json")
        one = await running.command("status", "store", "--json")
    assert done.returncode == 0
    answer = json.loads(done.stdout)
    assert answer.keys() == {"units", "supervisor"}
    views = {view["name"]: view for view in answer["units"]}
    assert views.keys() == units.keys()
    for view in views.values():
        assert has(UNIT | UNIT_OPTIONAL, view)
        assert TIMESTAMP.fullmatch(view["since"])
    failing, store, flapping = views["failing"], views["store"], views["flapping"]
    assert (failing["type"], failing["state"], failing["sub_state"], failing["pid"]) == (
        "exec",
        "failed",
        "failed",
        None,
    )
    assert has(EXIT, failing["last_exit"])
    assert TIMESTAMP.fullmatch(failing["last_exit"]["at"])
    assert (failing["last_exit"]["code"], failing["last_exit"]["log_tail"]) == (3, ["why"])
    assert (store["state"], store["sub_state"], store["last_exit"]) == ("active", "ready", None)
    assert (flapping["state"], flapping["restarts"]) == ("activating", 1)
    assert 0 < flapping["next_restart_in_sec"] <= 33
    assert has(SUPERVISOR, answer["supervisor"])
    assert answer["supervisor"]["pid"] == running.pid
    assert uuid.UUID(answer["supervisor"]["boot_id"]).version == 4
    assert json.loads(one.stdout).keys() == store.keys()


async def test_status_tells_people_and_scripts_how_a_unit_is(tmp_path: Path) -> None:
    units = {"store": service(*FOREVER), "failing": service(*shell("echo why; exit 3"), Restart="no")}
    async with supervisor(tmp_path, units) as running:
        pid = await running.started("store")
        await running.moved("failing", "cleaning", "failed")
        await running.online()
        everything = await running.command("status")
        up, down = await running.command("status", "store"), await running.command("status", "failing")
        unknown = await running.command("status", "nosuch")
    assert everything.returncode == 0
    assert re.search(rf"^store +active \(ready\) +{pid} ", everything.stdout, re.MULTILINE)
    assert re.search(r"^failing +failed \(failed\) +- .*exited with code 3", everything.stdout, re.MULTILINE)
    assert (up.returncode, down.returncode, unknown.returncode) == (0, 3, 4)
    assert re.search(r"last: pid \d+, exited with code 3, not asked for", down.stdout)
    assert "| why\n" in down.stdout
    assert "there is no unit 'nosuch' here; there are: failing, store" in unknown.stderr
    gone = await running.command("status", "store")
    assert gone.returncode == 69
    assert f"cannot reach the supervisor at {running.socket}" in gone.stderr


async def test_logs_show_the_last_lines(tmp_path: Path) -> None:
    units = {"web": service(*shell("seq 5; echo done; exec sleep 600")), "quiet": service(*FOREVER)}
    async with supervisor(tmp_path, units) as running:
        await running.stdout.saw(r"\[web\] done")
        await running.online()
        last, silent = await running.command("logs", "-n", "2", "web"), await running.command("logs", "quiet")
    assert (last.returncode, last.stdout) == (0, "5\ndone\n")
    assert (silent.returncode, silent.stdout) == (0, "")


async def test_following_ends_with_the_client(tmp_path: Path) -> None:
    async with supervisor(tmp_path, {"web": service(*shell("echo up; exec sleep 600"))}) as running:
        await running.online()
        async with follower(running) as client:
            await client.stdout.saw("^up$")
            (conversation,) = conversations(running)
            client.signal(signal.SIGINT)
            assert await client.ended() == 130
        with trio.fail_after(TIMEOUT_SEC):
            while conversation in conversations(running):
                await trio.sleep(0.01)  # another process closes it: there is no event to wait for


async def test_a_client_that_follows_does_not_hold_up_the_end(tmp_path: Path) -> None:
    async with supervisor(tmp_path, {"web": service(*shell("echo up; exec sleep 600"))}) as running:
        await running.online()
        async with follower(running) as client:
            await client.stdout.saw("^up$")
            running.signal(signal.SIGTERM)
            assert await running.ended() == 0
            assert await client.ended() == 69


def follower(running: RunningSupervisor) -> AbstractAsyncContextManager[Running]:
    return program(*PODVISOR, "logs", "-f", "--socket", str(running.socket), "web")


def conversations(running: RunningSupervisor) -> set[str]:
    """The connections to the control socket, by their inodes (unix(7) in proc_pid_net(5): state 03 is connected)."""
    rows = [row.split() for row in Path(f"/proc/{running.pid}/net/unix").read_text().splitlines()]
    return {row[6] for row in rows if row[7:] == [str(running.socket)] and row[5] == "03"}


async def test_a_unit_at_its_start_limit_starts_again_after_reset_failed(tmp_path: Path) -> None:
    mended = tmp_path / "mended"
    units = {"web": service(*shell(f"[ -e {mended} ] && exec sleep 600"), RestartSec="10ms", StartLimitBurst=2)}
    async with supervisor(tmp_path, units) as running:
        await running.moved("web", "cleaning", "start-limit-hit")
        await running.online()
        mended.touch()
        reset = await running.command("reset-failed", "web")
        assert (reset.returncode, reset.stdout) == (0, "web: inactive (dead)\n")
        start = await running.command("start", "web")
        assert (start.returncode, start.stdout) == (0, "web: active (ready)\n")
        assert (await running.units())["web"].pid is not None


async def test_a_start_that_fails_says_why(tmp_path: Path) -> None:
    async with supervisor(tmp_path, {"web": service("/no/such/program", Restart="no")}) as running:
        await running.moved("web", "cleaning", "failed")
        await running.online()
        start = await running.command("start", "web")
    assert start.returncode == 1
    assert "cannot start web: cannot execute '/no/such/program': no such file" in start.stderr


async def test_restart_replaces_one_unit_alone(tmp_path: Path) -> None:
    units = {"store": service(*FOREVER), "web": {**service(*FOREVER), "Unit": NEEDS_STORE}, "other": service(*FOREVER)}
    async with supervisor(tmp_path, units) as running:
        before = {name: await running.started(name) for name in units}
        await running.online()
        assert (await running.command("restart", "store")).returncode == 0
        after = {name: view.pid for name, view in (await running.units()).items()}
        assert after["store"] not in (before["store"], None)
        assert (after["web"], after["other"]) == (before["web"], before["other"])
        assert not alive(before["store"])


async def test_stop_takes_those_along_that_require_the_unit_and_start_brings_back_what_it_requires(
    tmp_path: Path,
) -> None:
    units = {"store": service(*FOREVER), "web": {**service(*FOREVER), "Unit": NEEDS_STORE}, "other": service(*FOREVER)}
    async with supervisor(tmp_path, units) as running:
        pids = {name: await running.started(name) for name in units}
        await running.online()
        assert (await running.command("stop", "store")).stdout == "store: inactive (dead)\n"
        states = {name: view.state for name, view in (await running.units()).items()}
        assert states == {"store": "inactive", "web": "inactive", "other": "active"}
        assert not alive(pids["store"])
        assert not alive(pids["web"])
        await running.moved("web", "stop-term", "dead")  # it was not merely found dead
        assert (await running.command("start", "web")).returncode == 0
        states = {name: view.state for name, view in (await running.units()).items()}
        assert states == dict.fromkeys(units, "active")
        running.signal(signal.SIGTERM)
        assert await running.ended() == 0
        assert left_behind() == {}


async def test_probes_answer_with_the_reason(tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    loading = {**service(*FOREVER), "Readiness": {"Exec": ["test", "-e", str(ready)], "PeriodSec": 0.1}}
    async with supervisor(tmp_path, {"store": service(*FOREVER), "web": loading}) as running:
        url = await running.online()
        waiting = (503, "not active: web")
        assert await probed(url) == {"livez": (200, "ok"), "startupz": waiting, "readyz": waiting}
        ready.touch()
        await running.moved("web", "loading", "ready")
        assert await probed(url) == dict.fromkeys(("livez", "startupz", "readyz"), (200, "ok"))


async def test_readyz_refuses_while_the_pod_ends(tmp_path: Path) -> None:
    slow = shell("trap 'echo asked; sleep 600' TERM; echo up; sleep 600 & wait")
    async with supervisor(tmp_path, {"web": service(*slow, TimeoutStopSec="60s")}) as running:
        await running.stdout.saw("up")
        url = await running.online()
        running.signal(signal.SIGTERM)
        await running.stdout.saw("asked")
        answers = await probed(url)
        assert answers["livez"] == (200, "ok")
        assert answers["readyz"] == (503, "ending: SIGTERM received")
        running.signal(signal.SIGTERM)
        assert await running.ended() == 0


async def probed(url: str) -> dict[str, tuple[int, str]]:
    async with httpx.AsyncClient(timeout=TIMEOUT_SEC) as client:
        answers = {path: await client.get(f"{url}/{path}") for path in ("livez", "startupz", "readyz")}
    return {path: (answer.status_code, answer.text.strip()) for path, answer in answers.items()}


async def test_units_that_follow_another_go_down_and_come_back_with_it(tmp_path: Path) -> None:
    units = {
        "store": service(*FOREVER),
        "bound": {**service(*FOREVER), "Unit": {"BindsTo": ["store"], "After": ["store"]}},
        "part": {**service(*FOREVER), "Unit": {"PartOf": ["store"], "After": ["store"]}},
        "client": {**service(*FOREVER), "Unit": {"After": ["store"], "OnDependencyRestart": "restart"}},
        "rival": {**service(*FOREVER), "Unit": {"Conflicts": ["store"], "After": ["store"]}},
    }
    async with supervisor(tmp_path, units) as running:
        first = {name: await running.started(name) for name in units if name != "rival"}
        os.kill(first["store"], signal.SIGKILL)
        for name in first:
            assert await running.started(name, 2) != first[name]
        await running.online()
        assert (await running.command("restart", "store")).returncode == 0
        for name in first:
            await running.started(name, 3)
        assert (await running.command("start", "rival")).returncode == 0
        states = {name: view.state for name, view in (await running.units()).items()}
        assert states == {
            **dict.fromkeys(("bound", "part", "store"), "inactive"),
            "client": "active",
            "rival": "active",
        }
        running.signal(signal.SIGTERM)
        assert await running.ended() == 0
        assert left_behind() == {}
