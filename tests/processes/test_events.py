"""`podvisor events`, `exits`, `kill` and `logs` on real processes."""

from __future__ import annotations

import json
import re
import signal
import socket
from pathlib import Path
from typing import Any

import pytest
import trio

from tests.support.real_processes import TIMEOUT_SEC, alive
from tests.support.running_supervisor import (
    FOREVER,
    PODVISOR,
    RunningSupervisor,
    program,
    service,
    shell,
    supervisor,
)

TIMESTAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


async def objects(running: RunningSupervisor, *command: str) -> list[dict[str, Any]]:
    done = await running.command(*command, "--json")
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


async def test_events_tell_what_became_of_the_units(tmp_path: Path) -> None:
    units = {"web": service(*FOREVER), "failing": service(*shell("exit 3"), Restart="no")}
    async with supervisor(tmp_path, units) as running:
        await running.moved("failing", "cleaning", "failed")
        pid = await running.started("web")
        await running.online()
        events = await objects(running, "events")
        words = (await running.command("events")).stdout.splitlines()
        later = await objects(running, "events", "--since", str(events[-1]["id"]))
    assert [event["id"] for event in events] == list(range(1, len(events) + 1))
    assert all(TIMESTAMP.fullmatch(event["at"]) for event in events)
    (exit_,) = [event for event in events if event["kind"] == "exit"]
    assert (exit_["unit"], exit_["exit"]["code"], exit_["level"]) == ("failing", 3, "warning")
    (ready,) = [event for event in events if event.get("unit") == "web" and event.get("sub_state") == "ready"]
    assert (ready["state"], ready["pid"], ready["previous"]) == ("active", pid, "start")
    assert any(re.search(r"Z warning exit +failing: exited with code 3 after", line) for line in words)
    assert len(words) < len(events), "the steps between are for tools"
    assert later == []


async def test_events_are_followed_as_they_come(tmp_path: Path) -> None:
    async with supervisor(tmp_path, {"web": service(*FOREVER, RestartSec="10ms")}) as running:
        pid = await running.started("web")
        await running.online()
        async with program(*PODVISOR, "events", "-f", "--socket", str(running.socket)) as follower:
            await follower.stdout.saw("web: start -> ready")
            await running.command("kill", "web", "--signal", "KILL")
            await follower.stdout.saw(r"exit +web: killed by SIGKILL")
            await follower.stdout.saw("web: start -> ready", 2)
            follower.signal(signal.SIGINT)
            assert await follower.ended() == 130
        assert not alive(pid)


async def test_a_reader_that_stops_reading_holds_up_nobody_and_is_told_of_the_gap(tmp_path: Path) -> None:
    """It takes the first lines and nothing more, while far more happens than is kept."""
    flapping = service("true", Restart="always", RestartSec=0, StartLimitBurst=0)
    async with supervisor(tmp_path, {"flapping": flapping, "web": service(*FOREVER)}) as running:
        await running.online()
        stuck = socket.socket(socket.AF_UNIX)
        stuck.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        stuck.connect(str(running.socket))
        stuck.sendall(b"GET /v1/events HTTP/1.1\r\nHost: podvisor\r\n\r\n")
        last = 0
        async with running.api() as client:
            with trio.fail_after(TIMEOUT_SEC * 4):
                while last < 4500:  # what a socket holds, a batch, and all that is kept
                    lines = (await client.get(f"/v1/events?since={last}&follow=0")).text.splitlines()
                    last = json.loads(lines[-1])["id"] if lines else last
        assert (await running.command("status", "web")).returncode == 0
        text = await trio.to_thread.run_sync(read_until, stuck, b'"kind":"gap"')
        stuck.close()
    assert re.search(rb"events \d+ to \d+ are no longer kept", text)


def read_until(connection: socket.socket, wanted: bytes) -> bytes:
    connection.settimeout(TIMEOUT_SEC)
    text = b""
    while wanted not in text or not text.endswith(b"\n"):
        text += connection.recv(65536)
        assert len(text) < 10_000_000
    return text


async def test_exits_are_told_with_their_cause(tmp_path: Path) -> None:
    units = {
        "failing": service(*shell("echo why >&2; exit 3"), RestartSec="10ms", StartLimitBurst=2),
        "web": service(*FOREVER),
    }
    async with supervisor(tmp_path, units) as running:
        await running.moved("failing", "cleaning", "start-limit-hit")
        await running.online()
        (one,) = await objects(running, "exits", "failing")
        (every,) = await objects(running, "exits")
        table = (await running.command("exits")).stdout.splitlines()
        none = await running.command("exits", "web")
        unknown = await running.command("exits", "nosuch")
    assert one["unit"] == "failing"
    assert [(exit_["code"], exit_["asked"], exit_["log_tail"]) for exit_ in one["exits"]] == [(3, False, ["why"])] * 2
    assert {view["unit"]: len(view["exits"]) for view in every["units"]} == {"failing": 2, "web": 0}
    assert table[0].split() == ["AT", "UNIT", "PID", "AFTER", "EPOCH", "CAUSE"]
    assert [bool(re.search(r"failing +\d+ +\S+ +- +exited with code 3, not asked for$", row)) for row in table[1:]] == [
        True,
        True,
    ]
    assert none.stdout == "nothing has ended yet\n"
    assert unknown.returncode == 4


async def test_a_signal_reaches_the_main_process_or_all_of_the_unit_and_nobody_else(tmp_path: Path) -> None:
    trap = "trap 'echo {0} heard' USR1; echo {0} up; while :; do sleep 0.05; done"
    both = f'sh -c "{trap.format("child")}" & {trap.format("main")}'
    units = {"web": service(*shell(both)), "other": service(*shell(trap.format("other")))}
    async with supervisor(tmp_path, units) as running:
        for name in ("child", "main", "other"):
            await running.stdout.saw(f"{name} up")
        await running.online()
        pid = await running.started("web")
        to_main = await running.command("kill", "web", "--signal", "SIGUSR1")
        await running.stdout.saw("main heard")
        assert (to_main.returncode, to_main.stdout) == (0, f"SIGUSR1 sent to web: pid {pid}\n")
        assert not running.stdout.matching("child heard")
        (to_all,) = await objects(running, "kill", "web", "--signal", "10", "--kill-whom", "all")
        await running.stdout.saw("child heard")
        await running.stdout.saw("main heard", 2)
        assert pid in to_all["pids"]
        assert not running.stdout.matching("other heard")
        assert (await running.units())["web"].pid == pid


@pytest.mark.parametrize(
    "arguments, said",
    [
        (["web", "--signal", "SIGNONSENSE"], 'signal: found "SIGNONSENSE", expected a signal such as "SIGTERM"'),
        (["done"], "cannot signal done: it has no process; it is dead"),
    ],
)
async def test_a_signal_that_cannot_be_sent_is_refused(tmp_path: Path, arguments: list[str], said: str) -> None:
    units = {"web": service(*FOREVER), "done": service("true", Restart="no")}
    async with supervisor(tmp_path, units) as running:
        await running.moved("done", "cleaning", "dead")
        await running.online()
        refused = await running.command("kill", *arguments)
        assert refused.returncode == 1
        assert said in refused.stderr


async def test_logs_of_several_units_are_told_apart_and_timed(tmp_path: Path) -> None:
    units = {
        "web": service(*shell("echo out; echo err >&2; exec sleep 600")),
        "store": service(*shell("echo stored; exec sleep 600")),
    }
    async with supervisor(tmp_path, units) as running:
        for line in ("out", "err", "stored"):
            await running.stdout.saw(f" {line}$|] {line}$")
        await running.online()
        lines = await objects(running, "logs", "web", "store")
        text = (await running.command("logs")).stdout.splitlines()
    assert {(line["unit"], line["stream"], line["text"]) for line in lines} == {
        ("web", "stdout", "out"),
        ("web", "stderr", "err"),
        ("store", "stdout", "stored"),
    }
    assert all(TIMESTAMP.fullmatch(line["time"]) and line["invocation"] == 1 for line in lines)
    assert [line["time"] for line in lines] == sorted(line["time"] for line in lines)
    assert sorted(text) == ["[store] stored", "[web] err", "[web] out"]


async def test_following_goes_on_over_a_restart_and_a_rotation(tmp_path: Path) -> None:
    log, life = tmp_path / "web.log", "echo life of $$$$; seq 3000; echo all said; exec sleep 600"
    web = service(*shell(life), StandardOutput=f"file:{log}", LogRotateSize=4096, LogRotateKeep=2)
    async with supervisor(tmp_path, {"web": web}) as running:
        first = await running.started("web")
        await running.online()
        async with program(*PODVISOR, "logs", "-f", "-n", "5000", "--socket", str(running.socket), "web") as follower:
            await follower.stdout.saw("all said")
            assert (await running.command("restart", "web")).returncode == 0
            second = await running.started("web", 2)
            await follower.stdout.saw("all said", 2)
            expected = [
                line for pid in (first, second) for line in (f"life of {pid}", *map(str, range(1, 3001)), "all said")
            ]
            assert str(follower.stdout).splitlines() == expected
        this_life = await objects(running, "logs", "-I", "-n", "5000", "web")
        assert [this_life[0]["text"], this_life[0]["invocation"]] == [f"life of {second}", 2]
        assert len(this_life) == 3002
        running.signal(signal.SIGTERM)
        assert await running.ended() == 0
        assert {path.name for path in tmp_path.glob("web.log*")} == {"web.log", "web.log.1", "web.log.2"}
        assert all(path.stat().st_size <= 4096 for path in tmp_path.glob("web.log*"))
