"""An engine that answers /health and does no work, under `podvisor run`; and those that only look like it."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.support import moody_engine
from tests.support.running_supervisor import Sections, free_port, supervisor


class Moody:
    """The engine, and the file of its mood."""

    def __init__(self, directory: Path, **canary: object) -> None:
        self.port = free_port()
        self._mood = directory / "mood"
        self.feels("works")
        self._canary = {"IdleSec": 0.2, "TimeoutSec": 1, "FailureThreshold": 2, **canary}

    def feels(self, mood: str) -> None:
        fresh = self._mood.with_suffix(".new")
        fresh.write_text(mood)
        fresh.replace(self._mood)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def unit(self) -> Sections:
        return {
            "Service": {
                "ExecStart": [sys.executable, "-I", "-S", moody_engine.__file__, str(self.port), str(self._mood)]
            },
            "Engine": {"Launcher": "exec", "BasePort": self.port},
            "Readiness": {"Http": f"{self.url}/health", "PeriodSec": 0.1},
            "Liveness": {"Http": f"{self.url}/health", "PeriodSec": 0.1, "TimeoutSec": 5},
            "Canary": {"Http": f"{self.url}/v1/completions", **self._canary},
        }


def words(reason: str) -> str:
    """Without the fields of the log line."""
    return reason.partition("  ")[0]


async def test_an_engine_that_answers_health_and_hangs_at_work_is_found_and_relaunched(tmp_path: Path) -> None:
    engine = Moody(tmp_path)
    async with supervisor(tmp_path, {"engine": engine.unit}) as running:
        await running.stdout.saw("asked for work while works", 2)  # it is well, and goes on being asked
        first = await running.started("engine")
        engine.feels("hangs")
        await running.stdout.saw("found healthy while hangs")
        reason = await running.moved("engine", "ready", "stop-term")
        assert words(reason) == "canary failed: no answer within 1 s"
        engine.feels("works")
        banner = await running.stdout.saw(r"\[ENGINE RELAUNCH #1\] .* reason=(.*)")
        assert banner[1].startswith("canary failed: no answer within 1 s")
        await running.moved("engine", "loading", "ready", 2)
        assert await running.started("engine", 2) != first
        last = (await running.units())["engine"].last_exit
        assert last is not None
        assert (last.pid, last.cause, last.asked) == (first, "canary failed: no answer within 1 s", False)


async def test_a_429_is_logged_as_a_wrong_request_and_never_counts(tmp_path: Path) -> None:
    engine = Moody(tmp_path, FailureThreshold=1)
    engine.feels("429")
    async with supervisor(tmp_path, {"engine": engine.unit}) as running:
        await running.stdout.saw("asked for work while 429", 5)
        warning = await running.stderr.saw("the canary is answered with HTTP 429: it tells nothing of the engine")
        assert "correct its request" in warning.string
        assert len(running.stderr.matching("the canary is answered with HTTP 429")) == 1
        assert (await running.units())["engine"].sub_state == "ready"
        engine.feels("500")
        assert words(await running.moved("engine", "ready", "stop-term")) == "canary failed: HTTP 500"


async def test_what_works_for_others_is_not_asked(tmp_path: Path) -> None:
    """It would answer no canary in time, but its counters grow: it has other things to do."""
    engine = Moody(tmp_path, FailureThreshold=1)
    engine.feels("busy")
    async with supervisor(tmp_path, {"engine": engine.unit}) as running:
        await running.stdout.saw("told its counters while busy", 6)
        assert running.stdout.matching("asked for work") == []
        engine.feels("hangs")
        assert words(await running.moved("engine", "ready", "stop-term")) == "canary failed: no answer within 1 s"


async def test_where_nobody_counts_tokens_it_is_said_and_asked_all_the_same(tmp_path: Path) -> None:
    engine = Moody(tmp_path)
    engine.feels("uncounted")
    async with supervisor(tmp_path, {"engine": engine.unit}) as running:
        await running.stderr.saw(f"no token counters at {engine.url}/metrics: the canary is sent every 0.2 s")
        await running.stdout.saw("asked for work while uncounted", 3)
        assert (await running.units())["engine"].sub_state == "ready"


async def test_an_engine_that_may_only_be_reported_is_unhealthy_until_it_works_again(tmp_path: Path) -> None:
    engine = Moody(tmp_path, Requests=3)
    unit = {**engine.unit, "Liveness": {**engine.unit["Liveness"], "OnFailure": "report"}}
    async with supervisor(tmp_path, {"engine": unit}) as running:
        await running.moved("engine", "loading", "ready")
        engine.feels("hangs")
        reason = await running.moved("engine", "ready", "unhealthy")
        assert words(reason) == "canary failed: 3 of 3 requests: no answer within 1 s"
        engine.feels("works")
        assert words(await running.moved("engine", "unhealthy", "ready")) == "canary recovered"
