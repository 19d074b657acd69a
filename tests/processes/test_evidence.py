"""DiagnoseExec under `podvisor run`: evidence of what is sick and alive, before it is stopped, and never for long."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

from supervisor import wire
from tests.processes.test_canary import Moody, words
from tests.support.real_processes import gone
from tests.support.running_supervisor import RunningSupervisor, Sections, shell, supervisor

LOOKS = 'kill -0 "$MAINPID" && echo "stack of $MAINPID in epoch $EPOCH"; echo "no driver" >&2; exit 3'


def diagnosed(engine: Moody, script: str) -> Sections:
    return {**engine.unit, "Engine": {**engine.unit["Engine"], "DiagnoseExec": shell(script)}}


async def last_exit(running: RunningSupervisor) -> wire.ExitView:
    view = (await running.units())["engine"].last_exit
    assert view is not None
    return view


async def test_what_hangs_is_looked_at_before_it_is_stopped(tmp_path: Path) -> None:
    engine = Moody(tmp_path)
    async with supervisor(tmp_path, {"engine": diagnosed(engine, LOOKS)}) as running:
        first = await running.started("engine")
        engine.feels("hangs")
        assert words(await running.moved("engine", "ready", "diagnose")) == "canary failed: no answer within 1 s"
        engine.feels("works")
        await running.moved("engine", "diagnose", "stop-term")
        await running.moved("engine", "loading", "ready", 2)
        kept = (await last_exit(running)).diagnosis
        assert kept == (f"stack of {first} in epoch 1", "no driver", "DiagnoseExec: sh: exit status 3")


async def test_evidence_tells_no_secret(tmp_path: Path) -> None:
    engine, token = Moody(tmp_path), tmp_path / "token"
    token.write_text("hunter2-hunter2")
    unit = diagnosed(engine, 'echo "its key is $KEY"')
    keys = {"LoadCredential": [f"token:{token}"], "Environment": ["KEY=${CREDENTIAL:token}"]}
    async with supervisor(tmp_path, {"engine": {**unit, "Service": {**unit["Service"], **keys}}}) as running:
        await running.started("engine")
        engine.feels("hangs")
        await running.moved("engine", "ready", "diagnose")
        engine.feels("works")
        await running.moved("engine", "loading", "ready", 2)
        assert (await last_exit(running)).diagnosis == ("its key is [redacted token]",)


async def test_a_diagnosis_that_hangs_is_cut_short_and_nothing_of_it_is_left(tmp_path: Path) -> None:
    engine, told = Moody(tmp_path), tmp_path / "pid"
    hangs = f"setsid sleep 600 & echo $! > {told}; echo begun; wait"
    async with supervisor(tmp_path, {"engine": diagnosed(engine, hangs)}) as running:
        await running.moved("engine", "loading", "ready")
        engine.feels("hangs")
        await running.moved("engine", "ready", "diagnose")
        engine.feels("works")
        await running.moved("engine", "loading", "ready", 2)
        assert (await last_exit(running)).diagnosis[0] == "begun"
        await gone(int(told.read_text()))


async def test_of_the_dead_nothing_is_asked_and_what_is_well_is_simply_stopped(tmp_path: Path) -> None:
    engine = Moody(tmp_path)
    async with supervisor(tmp_path, {"engine": diagnosed(engine, LOOKS)}) as running:
        await running.moved("engine", "loading", "ready")
        os.kill(await running.started("engine"), signal.SIGKILL)
        await running.moved("engine", "loading", "ready", 2)
        assert (await last_exit(running)).diagnosis == ()
        assert (await running.command("stop", "engine")).returncode == 0
        assert (await last_exit(running)).diagnosis == ()


async def test_what_a_supervisor_that_ends_stops_is_looked_at_too(tmp_path: Path) -> None:
    """As the arbiter's end does: everything is stopped in order."""
    engine, seen = Moody(tmp_path), tmp_path / "seen"
    unit = diagnosed(engine, f"echo $MAINPID > {seen}")
    unit = {**unit, "Liveness": {**unit["Liveness"], "OnFailure": "report"}}
    async with supervisor(tmp_path, {"engine": unit}) as running:
        first = await running.started("engine")
        engine.feels("hangs")
        await running.moved("engine", "ready", "unhealthy")
        running.signal(signal.SIGTERM)
        assert await running.ended() == 0
        assert seen.read_text().strip() == str(first)


async def test_exits_and_operations_survive_the_container(tmp_path: Path) -> None:
    engine = Moody(tmp_path)
    unit = diagnosed(engine, "echo looked at")
    async with supervisor(tmp_path, {"engine": unit}) as running:
        await running.moved("engine", "loading", "ready")
        engine.feels("hangs")
        await running.moved("engine", "ready", "diagnose")
        engine.feels("works")
        await running.moved("engine", "loading", "ready", 2)
        running.signal(signal.SIGTERM)
        assert await running.ended() == 0
    async with supervisor(tmp_path, {"engine": unit}) as running, running.api() as client:
        told = wire.decode(wire.ExitsView, (await client.get("/v1/units/engine/exits")).content).exits
        assert [(view.asked, view.diagnosis) for view in told] == [(True, ()), (False, ("looked at",))]
        assert told[0].boot_id == told[1].boot_id is not None
    steps = json.loads((tmp_path / "state" / "operations.json").read_text())["operations"]
    assert [(step["epoch"], step["step"]) for step in steps[:2]] == [(1, "done"), (2, "done")]
    assert "canary failed" in steps[1]["reason"]


async def test_a_state_directory_that_cannot_be_written_costs_log_lines_only(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file in its place")
    engine = Moody(tmp_path)
    async with supervisor(tmp_path, {"engine": engine.unit}) as running:
        await running.moved("engine", "loading", "ready")
        os.kill(await running.started("engine"), signal.SIGKILL)
        await running.moved("engine", "loading", "ready", 2)
        await running.stderr.saw("error .*cannot keep the exits of engine")
