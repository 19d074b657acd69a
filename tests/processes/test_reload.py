"""`podvisor reload` and SIGHUP with real files and processes."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import httpx

from tests.support.real_processes import alive
from tests.support.running_supervisor import (
    FOREVER,
    RunningSupervisor,
    Sections,
    left_behind,
    service,
    shell,
    supervisor,
    toml,
)


def write(running: RunningSupervisor, **units: Sections | None) -> None:
    for name, sections in units.items():
        path = running.socket.parent / "units" / f"{name}.toml"
        path.unlink() if sections is None else path.write_text(toml(sections))


async def test_a_reload_says_what_it_does_and_does_it(tmp_path: Path) -> None:
    units = {"store": service(*FOREVER), "web": service(*shell("echo one; exec sleep 600")), "old": service(*FOREVER)}
    async with supervisor(tmp_path, units) as running:
        pids = {name: await running.started(name) for name in units}
        await running.online()
        write(
            running,
            store=service(*FOREVER, TimeoutStopSec="7s"),
            web=service(*shell("echo two; exec sleep 600")),
            old=None,
            new={**service(*FOREVER), "Unit": {"After": ["web"]}},
        )
        planned = await running.command("reload", "--dry-run")
        assert planned.stdout.splitlines()[1:] == [
            "new    added    would start",
            "old    removed  would stop",
            "store  changed  would apply    Service.TimeoutStopSec",
            "web    changed  would restart  Service.ExecStart*",
            "* takes a restart",
            "0 units unchanged",
        ]
        done = await running.command("reload", "--json")
        answer = json.loads(done.stdout)
        assert (done.returncode, answer["dry_run"]) == (0, False)
        assert answer["units"][2] == {
            "name": "store",
            "change": "changed",
            "action": "apply",
            "keys": [{"key": "Service.TimeoutStopSec", "takes": "nothing"}],
            "reason": "",
        }
        await running.stdout.saw(r"\[web\] two")
        await running.started("new")
        assert alive(pids["store"])
        assert not alive(pids["web"])
        assert not alive(pids["old"])
        assert (await running.units()).keys() == {"store", "web", "new"}
        running.signal(signal.SIGTERM)
        assert await running.ended() == 0
        assert left_behind() == {}


async def test_sighup_reloads(tmp_path: Path) -> None:
    async with supervisor(tmp_path, {"web": service(*shell("echo one; exec sleep 600"))}) as running:
        await running.stdout.saw("one")
        await running.online()
        write(running, web={"Service": {"ExecStrat": ["true"]}})
        running.signal(signal.SIGHUP)
        await running.stderr.saw(r"web.toml:2: Service.ExecStrat: unknown key 'ExecStrat'")
        await running.stderr.saw("reload asked for by SIGHUP: wrong files, nothing was changed")
        write(running, web={**service(*FOREVER), "Readiness": {"LogLine": "a{99999999999999999999}"}})
        running.signal(signal.SIGHUP)
        await running.stderr.saw(r"web.toml:.* Readiness.LogLine: .*the repetition number is too large")
        write(running, web=service(*shell("echo two; exec sleep 600")))
        running.signal(signal.SIGHUP)
        await running.stdout.saw("two")


async def test_wrong_files_are_told_as_verify_tells_them(tmp_path: Path) -> None:
    async with supervisor(tmp_path, {"web": service(*FOREVER)}) as running:
        pid = await running.started("web")
        await running.online()
        write(
            running,
            web=service(*FOREVER, Restart="sometimes"),
            new={**service(*FOREVER), "Unit": {"Requires": ["nosuch"]}},
        )
        told = await running.command("reload")
        verified = await running.command("verify", str(tmp_path / "units"))
        assert (told.returncode, told.stdout) == (78, "")
        problems = verified.stdout.splitlines()[:-1]
        assert len(problems) == 2
        assert told.stderr.splitlines() == [f"Error: {problems[0]}", problems[1], "nothing was changed"]
        in_json = await running.command("reload", "--json")
        assert in_json.returncode == 78
        assert [problem["line"] for problem in json.loads(in_json.stdout)["problems"]] == [5, 3]
        async with running.api() as client:
            assert (await client.post("/v1/reload")).status_code == 422
            assert (await client.post("/v1/reload?dry_run=maybe")).status_code == httpx.codes.BAD_REQUEST
        assert alive(pid)


async def test_log_limits_hold_for_the_process_that_runs(tmp_path: Path) -> None:
    """The lines of a process go on into a file that is rotated, and through a limit, by what a reload has said."""
    log, go = tmp_path / "log", tmp_path / "go"
    script = f"echo up; until [ -e {go} ]; do sleep 0.05; done; seq 1 5000; echo end >&2; sleep 600"
    output = {"StandardOutput": f"file:{log}", "StandardError": "prefix"}
    chatty = f"until [ -e {go} ]; do sleep 0.05; done; seq 1001 1100; sleep 600"
    units = {"web": service(*shell(script), **output), "chatty": service(*shell(chatty))}
    async with supervisor(tmp_path, units) as running:
        pid = await running.started("web")
        await running.started("chatty")
        await running.online()
        limits = {"LogRateLimitIntervalSec": "1h", "LogRateLimitBurst": 10}
        write(running, web=service(*shell(script), **output, LogRotateSize=4096, LogRotateKeep=2))
        write(running, chatty=service(*shell(chatty), **limits))
        assert (await running.command("reload")).returncode == 0
        go.touch()
        await running.stdout.saw("end")
        await running.stdout.saw(r"\[chatty\] 1010")
        assert alive(pid)
        running.signal(signal.SIGTERM)
        assert await running.ended() == 0
        assert len(running.stdout.matching(r"\[chatty\] 1\d\d\d")) == 10
    assert sorted(path.name for path in tmp_path.glob("log*")) == ["log", "log.1", "log.2"]


async def test_a_secret_that_comes_with_a_reload_is_not_shown_either(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("hunter2-hunter2")
    async with supervisor(tmp_path, {"store": service(*FOREVER), "other": service(*FOREVER)}) as running:
        await running.online()
        tells = shell('echo "my token is $TOKEN"; exec sleep 600')
        write(
            running,
            web=service(*tells, LoadCredential=[f"token:{path}"], Environment=["TOKEN=${CREDENTIAL:token}"]),
        )
        assert (await running.command("reload")).returncode == 0
        await running.stdout.saw(r"my token is \[redacted token\]")
        assert (await running.command("logs", "web")).stdout == "my token is [redacted token]\n"
