"""What the log says of a unit's life, at the level that is on by default."""

from __future__ import annotations

import logging

import pytest
import trio
from trio.testing import MockClock

from supervisor.service.transition_log import LEVELS
from supervisor.unit.model import LogLineCheck, Probe, Probes, RestartSettings, Service, StartLimitAction
from supervisor.unit.states import SubState
from tests.support.fake_processes import FAILED, Program
from tests.support.services import running, unit


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [f"{record.levelname} {record.getMessage()}" for record in caplog.records]


def test_every_state_has_a_level() -> None:
    assert set(LEVELS) == set(SubState)


async def test_a_start_is_one_line_and_one_more_where_a_probe_is_waited_for(
    caplog: pytest.LogCaptureFixture, autojump_clock: MockClock
) -> None:
    caplog.set_level(logging.INFO)
    async with running(unit(), serve=Program()) as world:
        await world.service.start(asked_by="test")
        assert told(caplog) == ["INFO web: start -> ready: started as pid 100"]
        assert (caplog.records[0].__dict__["unit"], caplog.records[0].__dict__["pid"]) == ("web", 100)
    caplog.clear()
    async with running(unit(probes=Probes(readiness=Probe(LogLineCheck("up")))), serve=Program()) as world:
        await world.service.start(asked_by="test")
        await trio.testing.wait_all_tasks_blocked()
        world.output.write("up")
        await world.service.wait_until(lambda state: state.ready_once)
        assert told(caplog) == [
            "INFO web: start -> loading: started as pid 100",
            "INFO web: loading -> ready: ready",
        ]


async def test_a_crash_is_a_warning_and_what_follows_is_told(
    caplog: pytest.LogCaptureFixture, autojump_clock: MockClock
) -> None:
    caplog.set_level(logging.INFO)
    service = Service(restart=RestartSettings(limit_burst=2, jitter=0.0))
    async with running(unit(service=service), serve=Program(runs_sec=1.0, ends=FAILED)) as world:
        await world.service.start(asked_by="test")
        await world.service.wait_until(lambda state: state.at_rest)
    limit = "exited with code 1; start limit hit: 2 starts within 600 s (StartLimitBurst=2)"
    assert told(caplog) == [
        "INFO web: start -> ready: started as pid 100",
        "WARNING web: ready -> cleaning: exited with code 1",
        "INFO web: start -> ready: started as pid 101",
        "WARNING web: ready -> cleaning: exited with code 1",
        f"ERROR web: cleaning -> start-limit-hit: {limit}; once that is mended: podvisor start web",
    ]


async def test_nobody_is_sent_to_a_supervisor_that_ends(
    caplog: pytest.LogCaptureFixture, autojump_clock: MockClock
) -> None:
    restart = RestartSettings(limit_burst=1, limit_action=StartLimitAction.EXIT)
    async with running(unit(service=Service(restart=restart)), serve=Program(runs_sec=1.0, ends=FAILED)) as world:
        await world.service.start(asked_by="test")
        await world.service.wait_until(lambda state: state.at_rest)
    assert "podvisor start" not in caplog.text
    assert "start-limit-hit" in caplog.text
