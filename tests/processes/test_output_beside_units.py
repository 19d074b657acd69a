"""What is run beside a unit, probes above all, writes into pipes that we read: never into our own stdout and stderr."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import trio

from tests.support.real_processes import TIMEOUT_SEC, told
from tests.support.running_supervisor import FOREVER, Sections, service, shell, supervisor


def full_pipe() -> tuple[int, int]:
    """As a container's stdout is whose reader has stalled."""
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    try:
        while True:
            os.write(write_end, b"x" * 65536)
    except BlockingIOError:
        os.set_blocking(write_end, True)
    return read_end, write_end


async def test_a_probe_that_prints_passes_though_nobody_reads_our_stdout(tmp_path: Path) -> None:
    read_end, write_end = full_pipe()
    asked = tmp_path / "asked"
    liveness = {"Exec": shell(f"echo healthy; echo healthy >&2; echo x >> {asked}"), "PeriodSec": 0.1, "TimeoutSec": 5}
    units = {"web": {**service(*FOREVER), "Liveness": {**liveness, "FailureThreshold": 1}}}
    try:
        async with supervisor(tmp_path, units, stdout=write_end) as running:
            await running.online()
            with trio.fail_after(TIMEOUT_SEC):
                await told(asked, lines=5)
            view = (await running.units())["web"]
            assert (view.state, view.restarts) == ("active", 0)
    finally:
        os.close(read_end)
        os.close(write_end)


async def test_the_last_that_a_failed_probe_said_is_told_and_no_secret_in_it(tmp_path: Path) -> None:
    secret = tmp_path / "token"
    secret.write_text("hf_do_not_tell")
    fails = shell(f"echo looking; echo no queue for $(cat {secret}) >&2; exit 3")
    unit: Sections = {
        **service(*FOREVER, LoadCredential=[f"hf-token:{secret}"], Restart="no"),
        "Liveness": {"Exec": fails, "PeriodSec": 0.1, "FailureThreshold": 1},
    }
    async with supervisor(tmp_path, {"web": unit}) as running:
        reason = await running.moved("web", "stop-term", "failed")
        assert "liveness failed: sh: exit status 3: no queue for [redacted hf-token]" in reason
        assert not running.stdout.matching("looking|no queue")


async def test_nothing_that_a_unit_runs_has_our_standard_streams(tmp_path: Path) -> None:
    seen = tmp_path / "seen"

    def note(what: str, then: str = "") -> list[str]:
        return shell(f"for n in 1 2; do echo {what} $(readlink /proc/$$$$/fd/$n) >> {seen}; done; {then}")

    engine: Sections = {
        **service(*note("ExecStart", "exec sleep 600"), Restart="no"),
        "Engine": {
            "Launcher": "exec",
            "DiagnoseExec": note("DiagnoseExec"),
            "DeviceHealthProbe": note("DeviceHealthProbe"),
            "DeviceMemoryProbe": note("DeviceMemoryProbe"),
        },
        "Startup": {"Exec": note("Startup")},
        "Readiness": {"Exec": note("Readiness")},
        "Liveness": {"Exec": note("Liveness", "exit 1"), "PeriodSec": 0.1, "FailureThreshold": 1},
    }
    commands = {key: note(key) for key in ("ExecStartPre", "ExecStartPost", "ExecStop", "ExecStopPost")}
    async with supervisor(tmp_path, {"engine": engine, "web": service(*FOREVER, **commands)}) as running:
        ours = {os.readlink(f"/proc/{running.pid}/fd/{number}") for number in (1, 2)}
        await running.stderr.saw(" engine: .* -> failed: ")
        running.signal(signal.SIGTERM)
        assert await running.ended() == 0
    streams = [line.split(maxsplit=1) for line in seen.read_text().splitlines()]
    declared = "".join((tmp_path / "units" / f"{name}.toml").read_text() for name in ("engine", "web"))
    assert {what for what, _ in streams} == set(re.findall(r"echo (\w+) \$", declared))
    assert not [what for what, stream in streams if stream in ours]
