"""Keys of unit files on real processes, from the file to the effect.

What a key decides is tested by tables and in virtual time; here it is seen that what is written arrives.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import socket
import sys
from pathlib import Path

import pytest

from tests.support.real_processes import alive
from tests.support.running_supervisor import FOREVER, RunningSupervisor, Sections, free_port, service, shell, supervisor

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")

ISOLATED = ("-I", "-S", "-c")
SURROUNDINGS = """
import json, os, resource, sys
print("seen " + json.dumps({
    "directory": os.getcwd(), "user": os.getuid(), "group": os.getgid(), "groups": sorted(os.getgroups()),
    "umask": os.umask(0), "nice": os.nice(0), "oom": int(open("/proc/self/oom_score_adj").read()),
    "cpus": sorted(os.sched_getaffinity(0)), "files": resource.getrlimit(resource.RLIMIT_NOFILE),
    "core": resource.getrlimit(resource.RLIMIT_CORE), "environment": dict(os.environ),
}), flush=True)
"""


PYTHON = shutil.which("python3", path="/usr/bin:/usr/local/bin")
"""One that everybody may execute; the tests' own may live in somebody's home."""


@needs_root
@pytest.mark.skipif(PYTHON is None, reason="no Python outside of a home directory")
async def test_where_as_whom_and_with_what_a_unit_runs(tmp_path: Path) -> None:
    (tmp_path / "variables").write_text("FROM_FILE=file\nOVER=file\n")
    unit = service(
        str(PYTHON),
        *ISOLATED,
        SURROUNDINGS,
        WorkingDirectory="/usr",
        User="nobody",
        Group="0",
        SupplementaryGroups=["7", "8"],
        UMask="0027",
        LimitNOFILE="100:200",
        LimitCORE=0,
        Nice=5,
        OOMScoreAdjust=300,
        CPUAffinity=[0],
        IOSchedulingClass="idle",
        Environment=["OWN=own", "OVER=own", "GONE=own"],
        EnvironmentFile=str(tmp_path / "variables"),
        PassEnvironment=["PASSED"],
        UnsetEnvironment=["GONE"],
        StandardOutput="pass",
        Restart="no",
    )
    async with supervisor(tmp_path, {"web": unit}, PASSED="passed", HIDDEN="token", POD_NAME="pod-0") as running:
        seen = json.loads((await running.stdout.saw("seen (.*)"))[1])
    environment = seen.pop("environment")
    assert seen == {
        "directory": "/usr",
        "user": 65534,
        "group": 0,
        "groups": [0, 7, 8],
        "umask": 0o027,
        "nice": 5,
        "oom": 300,
        "cpus": [0],
        "files": [100, 200],
        "core": [0, 0],
    }
    wanted = {"OWN": "own", "OVER": "file", "FROM_FILE": "file", "PASSED": "passed", "POD_NAME": "pod-0"}
    assert wanted.items() <= environment.items()
    assert environment["USER"] == environment["LOGNAME"] == "nobody"
    assert {"HOME", "SHELL", "PODVISOR_UNIT", "INVOCATION_ID"} <= environment.keys()
    assert not {"GONE", "HIDDEN"} & environment.keys()


async def test_what_a_unit_is_not_told_is_inherited(tmp_path: Path) -> None:
    async with supervisor(tmp_path, {"web": service(sys.executable, *ISOLATED, SURROUNDINGS, Restart="no")}) as running:
        seen = json.loads((await running.stdout.saw("seen (.*)"))[1])
    assert (seen["user"], seen["cpus"]) == (os.getuid(), sorted(os.sched_getaffinity(0)))
    assert seen["files"] == list(resource.getrlimit(resource.RLIMIT_NOFILE))


# --- stopping --------------------------------------------------------------------------------------------------

STUBBORN = "trap '' TERM; echo up; while :; do sleep 600 & wait; done"
FAMILY = "(trap 'echo child asked; exit' TERM; echo up; while :; do sleep 0.05; done) & trap '' TERM; wait; sleep 600"


async def stopped(running: RunningSupervisor) -> dict[str, object]:
    """The exit of `web`, which is up, after `podvisor stop`."""
    await running.stdout.saw("up")
    await running.online()
    assert (await running.command("stop", "web")).returncode == 0
    async with running.api() as client:
        exits = (await client.get("/v1/units/web/exits")).json()["exits"]
    found: dict[str, object] = exits[0]
    return found


@pytest.mark.parametrize(
    "script, keys, expected",
    [
        ("trap 'exit 7' USR1; echo up; while :; do sleep 600 & wait; done", {"KillSignal": "SIGUSR1"}, (7, None)),
        (STUBBORN, {"TimeoutStopSec": 0.2}, (None, "SIGKILL")),
        (STUBBORN, {"TimeoutStopSec": 0.2, "FinalKillSignal": "SIGUSR2"}, (None, "SIGUSR2")),
    ],
)
async def test_how_a_unit_is_stopped(
    script: str, keys: dict[str, object], expected: tuple[int | None, str | None], tmp_path: Path
) -> None:
    note = tmp_path / "note"
    commands = {"ExecStop": [["-false"], shell(f"echo stop >> {note}")], "ExecStopPost": shell(f"echo post >> {note}")}
    async with supervisor(tmp_path, {"web": service(*shell(script), **keys, **commands)}) as running:
        exit_ = await stopped(running)
    assert (exit_["code"], exit_["signal"]) == expected
    assert (exit_["asked"], exit_["asked_by"]) == (True, "operator")
    assert note.read_text().split() == ["stop", "post"]


@pytest.mark.parametrize("mode, asked", [("control-group", True), ("mixed", False)])
async def test_which_processes_are_asked(mode: str, asked: bool, tmp_path: Path) -> None:
    unit = service(*shell(FAMILY), KillMode=mode, TimeoutStopSec=0.5)
    async with supervisor(tmp_path, {"web": unit}) as running:
        await stopped(running)
        assert bool(running.stdout.matching("child asked")) is asked


async def test_kill_mode_process_leaves_the_rest_alone(tmp_path: Path) -> None:
    unit = service(*shell(f"sleep 600 & echo $! > {tmp_path}/pid; echo up; wait"), KillMode="process")
    async with supervisor(tmp_path, {"web": unit}) as running:
        await stopped(running)
        assert alive(int((tmp_path / "pid").read_text()))


async def test_without_sigkill_a_survivor_is_named(tmp_path: Path) -> None:
    unit = service(*shell(STUBBORN), SendSIGKILL=False, TimeoutStopSec=0.2)
    async with supervisor(tmp_path, {"web": unit}) as running:
        await running.stdout.saw("up")
        await running.online()
        stop = await running.command("stop", "web")
        assert stop.returncode == 1
        assert "cannot stop web: cannot kill pid" in stop.stderr
        view = (await running.units())["web"]
        assert view.sub_state == "unkillable"


async def test_the_watchdogs_signal_and_grace(tmp_path: Path) -> None:
    deaf = "trap '' USR1; while :; do sleep 600 & wait; done"
    keys = {"WatchdogSec": 0.2, "WatchdogSignal": "SIGUSR1", "Restart": "no"}
    units = {
        "bitten": service(*FOREVER, **keys),
        "deaf": service(*shell(deaf), **keys, TimeoutAbortSec=0.2, TimeoutStopSec=600),
    }
    async with supervisor(tmp_path, units) as running:
        for name in units:
            await running.moved(name, r"\S+", "failed")
        await running.online()
        exits = {name: view.last_exit for name, view in (await running.units()).items()}
    assert {name: found and found.signal for name, found in exits.items()} == {"bitten": "SIGUSR1", "deaf": "SIGKILL"}


# --- ending and starting again -----------------------------------------------------------------------------------


async def test_which_exits_lead_where(tmp_path: Path) -> None:
    steps = {"RestartSec": 0.05, "RestartMaxDelaySec": 0.2, "RestartSteps": 2, "RestartJitter": 0, "StartLimitBurst": 4}
    units = {
        "success": service(*shell("exit 3"), SuccessExitStatus=[3]),
        "ignored": service("-false"),
        "prevented": service(*shell("exit 4"), Restart="always", RestartPreventExitStatus=[4]),
        "forced": service("true", Restart="no", RestartForceExitStatus=[0], StartLimitBurst=2),
        "stepped": service("false", **steps),
        "brief": service("false", StartLimitBurst=2, StartLimitIntervalSec="1h"),
        "pre": service(*FOREVER, ExecStartPre=[["-false"], ["true"]]),
        "post": service(*FOREVER, ExecStartPost=["false"], Restart="no"),
    }
    async with supervisor(tmp_path, units) as running:
        await running.moved("success", "cleaning", "dead")
        await running.moved("ignored", "cleaning", "dead")
        assert "RestartPreventExitStatus" in await running.moved("prevented", "cleaning", "failed")
        assert "2 starts" in await running.moved("forced", "cleaning", "start-limit-hit")
        delays = [await running.moved("stepped", "cleaning", "auto-restart", number) for number in (1, 2)]
        assert [delay.partition("restarting in ")[2].split()[0] for delay in delays] == ["0.05", "0.1"]
        assert "4 starts within 600 s" in await running.moved("stepped", "cleaning", "start-limit-hit")
        assert "2 starts within 3600 s" in await running.moved("brief", "cleaning", "start-limit-hit")
        await running.started("pre")
        await running.moved("post", r"\S+", "failed")
        running.signal(signal.SIGTERM)
        assert await running.ended() == 0


@pytest.mark.parametrize("action, code", [("exit", 255), ("exit-success", 0)])
async def test_a_start_limit_can_end_the_supervisor(action: str, code: int, tmp_path: Path) -> None:
    units = {"web": service("false", StartLimitBurst=1, StartLimitAction=action), "other": service(*FOREVER)}
    async with supervisor(tmp_path, units) as running:
        assert await running.ended() == code


async def test_a_start_that_shows_no_progress_is_given_up(tmp_path: Path) -> None:
    never = {"LogLine": "never"}
    units: dict[str, Sections] = {
        "stalls": {**service(*FOREVER, StartStallSec=0.3, Restart="no"), "Readiness": never},
        "late": {**service(*FOREVER, TimeoutStartSec=0.3, Restart="no"), "Startup": never},
    }
    async with supervisor(tmp_path, units) as running:
        assert "no progress" in await running.moved("stalls", "loading", r"\S+")
        assert "TimeoutStartSec" in await running.moved("late", "loading", r"\S+")


async def test_a_start_says_what_it_waits_for_and_what_it_has_waited_for_in_vain(tmp_path: Path) -> None:
    nobody = f"127.0.0.1:{free_port()}"
    complaint, readiness = f"readiness: cannot connect to {nobody}: connection refused", {"Tcp": nobody}
    units: dict[str, Sections] = {
        "waits": {**service(*FOREVER), "Readiness": readiness},
        "late": {**service(*FOREVER, TimeoutStartSec=0.5, Restart="no"), "Readiness": readiness},
    }
    async with supervisor(tmp_path, units) as running:
        assert complaint in await running.moved("late", "loading", r"\S+")
        view = (await running.units())["waits"]
        assert view.reason == f"started as pid {view.pid}; {complaint}"


async def test_a_store_elsewhere_is_known_by_its_probe(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        port = listener.getsockname()[1]
        store: Sections = {"Service": {"Type": "external"}, "Readiness": {"Tcp": f"127.0.0.1:{port}", "PeriodSec": 0.1}}
        web = {**service(*FOREVER), "Unit": {"After": ["store"], "Requires": ["store"]}}
        async with supervisor(tmp_path, {"store": store, "web": web}) as running:
            assert await running.started("web") > 0
            await running.online()
            view = (await running.units())["store"]
            assert (view.type, view.state, view.pid) == ("external", "active", None)
            assert (await running.command("stop", "store")).returncode == 0


# --- output ------------------------------------------------------------------------------------------------------


async def test_where_the_lines_go(tmp_path: Path) -> None:
    log, lines = tmp_path / "log", "for i in 1 2 3 4 5 6; do echo line $i; done; sleep 0.1; echo up; echo err >&2; "
    limited = {"LogRateLimitIntervalSec": "1h", "LogRateLimitBurst": 3}
    rotated = shell(f"{lines} i=0; while [ $i -lt 400 ]; do echo 'a line of some length, {'x' * 60}'; i=$((i+1)); done")
    units = {
        "limited": service(*shell(lines), StandardOutput="prefix", StandardError="null", Restart="no", **limited),
        "rotated": service(
            *rotated, StandardOutput=f"file:{log}", LogRotateSize=4096, LogRotateKeep=2, LogTailBytes=500, Restart="no"
        ),
    }
    async with supervisor(tmp_path, units) as running:
        for name in units:
            await running.moved(name, "cleaning", "dead")
        await running.online()
        tail = (await running.command("logs", "-n", "1000", "rotated")).stdout
        running.signal(signal.SIGTERM)
        assert await running.ended() == 0
        shown = [match[0] for match in running.stdout.matching(r"\[limited\] .*")]
    assert shown[:3] == ["[limited] line 1", "[limited] line 2", "[limited] line 3"]
    assert not [line for line in shown[3:] if "line" in line and "suppressed" not in line]
    assert not running.stdout.matching("err")
    assert sorted(path.name for path in tmp_path.glob("log*")) == ["log", "log.1", "log.2"]
    assert len(tail) <= 500
    assert len(tail.splitlines()) > 1


# --- the history of exits ----------------------------------------------------------------------------------------


async def test_an_exit_is_kept_with_all_that_is_known_of_it(tmp_path: Path) -> None:
    if Path("/proc/sys/kernel/core_pattern").read_text().startswith("|"):
        pytest.skip("the kernel hands core dumps to a program")
    crash = service(
        *shell("echo last words; kill -SEGV $$$$"), WorkingDirectory=str(tmp_path), LimitCORE="infinity", Restart="no"
    )
    async with supervisor(tmp_path, {"web": crash, "gone": service("/no/such/program", Restart="no")}) as running:
        pid = await running.started("web")
        for name in ("web", "gone"):
            await running.moved(name, "cleaning", "failed")
        async with running.api() as client:
            exits = {name: (await client.get(f"/v1/units/{name}/exits")).json()["exits"] for name in ("web", "gone")}
    (crashed,), (never,) = exits["web"], exits["gone"]
    known = {
        "pid": pid,
        "code": None,
        "signal": "SIGSEGV",
        "asked": False,
        "cause": "killed by SIGSEGV, core dumped",
        "oom_killed": False,
        "core_dumped": True,
        "log_tail": ["last words"],
    }
    assert {name: crashed[name] for name in known} == known
    assert crashed["uptime_sec"] >= 0
    assert (never["code"], never["pid"]) == (127, 0)


async def test_no_more_than_twenty_exits_are_kept_the_newest_first(tmp_path: Path) -> None:
    quick = {"RestartSec": 0, "RestartMaxDelaySec": 0, "StartLimitBurst": 25}
    async with supervisor(tmp_path, {"web": service(*shell("echo $$$$; exit 3"), **quick)}) as running:
        await running.moved("web", "cleaning", "start-limit-hit")
        pids = [await running.started("web", number) for number in range(1, 26)]
        async with running.api() as client:
            exits = (await client.get("/v1/units/web/exits")).json()["exits"]
    assert [found["pid"] for found in exits] == pids[:4:-1]
    assert [found["log_tail"] for found in exits] == [[str(pid)] for pid in pids[:4:-1]]
