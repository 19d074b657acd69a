"""The canary of one invocation in virtual time: whom it is sent to, and whose verdict it is."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import pytest
import trio
from msgspec.structs import replace
from trio.testing import MockClock

from supervisor.engine.model import reports
from supervisor.engine.model.reports import Delivered
from supervisor.service import http_check
from supervisor.service.http_check import HttpAnswer, NoAnswer
from supervisor.unit.model import Canary, Command, ExecCheck, HttpCheck, LivenessAction, Probe, Probes
from supervisor.unit.model import Service as ServiceTable
from supervisor.unit.states import SubState
from tests.support.fake_processes import Program
from tests.support.services import running, unit
from tests.virtual.test_pod import COORDINATED, placement
from tests.virtual.test_pod import running as running_pod

WORK = HttpCheck("http://127.0.0.1:8000/v1/completions", "POST", body="{}")
READINESS = Probe(ExecCheck(Command(("ready?",))))
SERVE = ServiceTable(exec_start=Command(("serve",)))


@dataclass
class Engine:
    """Stands behind every URL."""

    answers_after_sec: float = 0.1
    tokens: int = 0
    status: int = 200
    sent: int = 0
    most_at_once: int = 0
    in_flight: int = 0

    async def fetch(self, check: HttpCheck, **_: object) -> HttpAnswer:
        if check.url.endswith("/metrics"):
            return HttpAnswer(200, f"vllm:generation_tokens_total {self.tokens}\n".encode())
        self.sent += 1
        self.in_flight += 1
        self.most_at_once = max(self.most_at_once, self.in_flight)
        try:
            await trio.sleep(self.answers_after_sec)
        finally:
            self.in_flight -= 1
        if self.status == 0:
            raise NoAnswer("the connection broke: Connection reset by peer")
        self.tokens += 1
        return HttpAnswer(self.status, b"")


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Engine:
    """In place of the network: a jumping clock and real sockets do not go together."""
    engine = Engine()
    monkeypatch.setattr(http_check, "fetch", engine.fetch)
    return engine


def probes(action: LivenessAction = LivenessAction.RESTART, **canary: object) -> Probes:
    return Probes(readiness=READINESS, liveness_action=action, canary=replace(Canary(check=WORK), **canary))


@pytest.mark.seed("S16")
async def test_what_still_loads_is_not_asked_to_work(engine: Engine, autojump_clock: MockClock) -> None:
    declared = unit(service=SERVE, probes=probes())
    loads = {"serve": Program(), "ready?": Program(math.inf)}
    async with running(declared, **loads) as world:
        await world.service.start(asked_by="test")
        await trio.sleep(80)
        assert (world.service.state.sub_state, engine.sent) == (SubState.LOADING, 0)
        world.processes.programs["ready?"] = Program(0.0)
        await world.service.wait_until(lambda state: state.sub_state is SubState.READY)
        await trio.sleep(9)
        assert engine.sent == 0
        await trio.sleep(10)
        assert engine.sent == 1


async def test_an_idle_engine_is_asked_once_in_every_idle_time(engine: Engine, autojump_clock: MockClock) -> None:
    async with running(unit(service=SERVE, probes=probes()), serve=Program(), **{"ready?": Program(0.0)}) as world:
        await world.service.start(asked_by="test")
        await trio.sleep(105)
        assert 9 <= engine.sent <= 10  # what it counts for a canary is no work for others


async def test_hung_is_known_after_the_idle_time_and_two_answers_that_did_not_come(
    engine: Engine, autojump_clock: MockClock
) -> None:
    engine.answers_after_sec = math.inf
    async with running(unit(service=SERVE, probes=probes()), serve=Program(), **{"ready?": Program(0.0)}) as world:
        await world.service.start(asked_by="test")
        began = trio.current_time()
        await world.service.wait_until(lambda state: state.restarts == 1)
        assert 70 <= trio.current_time() - began <= 72
        ending = world.service.state.last_ending
        assert ending is not None
        assert ending.cause == "canary failed: no answer within 30 s"


async def test_broken_connections_count_but_not_in_one_breath(engine: Engine, autojump_clock: MockClock) -> None:
    engine.status, engine.answers_after_sec = 0, 0.0
    async with running(unit(service=SERVE, probes=probes()), serve=Program(), **{"ready?": Program(0.0)}) as world:
        await world.service.start(asked_by="test")
        began = trio.current_time()
        await world.service.wait_until(lambda state: state.restarts == 1)
        assert 20 <= trio.current_time() - began <= 21
        assert engine.sent == 2


async def test_all_requests_of_a_round_are_on_their_way_together(engine: Engine, autojump_clock: MockClock) -> None:
    declared = unit(service=SERVE, probes=probes(requests=4))
    async with running(declared, serve=Program(), **{"ready?": Program(0.0)}) as world:
        await world.service.start(asked_by="test")
        await trio.sleep(15)
        assert (engine.sent, engine.most_at_once) == (4, 4)


async def test_a_rank_that_hangs_is_found_beside_one_that_is_busy(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    """All the world's requests are led around it, as vLLM's balancer does, so it is asked by its number."""
    asked: list[tuple[str, str]] = []

    async def fetch(check: HttpCheck, **_: object) -> HttpAnswer:
        if check.url.endswith("/metrics"):
            busy = int(trio.current_time())
            counters = f'v:tokens_total{{engine="0"}} {busy}\nv:tokens_total{{engine="1"}} 3\n'
            return HttpAnswer(200, counters.encode())
        asked.extend(check.headers)
        await trio.sleep_forever()
        raise AssertionError

    monkeypatch.setattr(http_check, "fetch", fetch)
    declared = unit(service=SERVE, probes=probes(requests=2, rank_header="X-Rank"))
    async with running(declared, serve=Program(), **{"ready?": Program(0.0)}) as world:
        await world.service.start(asked_by="test")
        await world.service.wait_until(lambda state: state.restarts == 1)
        ending = world.service.state.last_ending
        assert ending is not None
        assert ending.cause == "canary failed: rank 1: no answer within 30 s"
    assert asked == [("X-Rank", "1")] * 2


@pytest.mark.seed("S14")
async def test_a_result_that_comes_too_late_is_not_the_next_engines(engine: Engine, autojump_clock: MockClock) -> None:
    engine.answers_after_sec = math.inf
    declared = unit(service=SERVE, probes=probes(LivenessAction.REPORT, failure_threshold=1))
    async with running(declared, serve=Program(obeys_after_sec=5.0), **{"ready?": Program(0.0)}) as world:
        await world.service.start(asked_by="test")
        await trio.sleep(30)
        assert engine.in_flight == 1  # it would fail in ten seconds
        await world.service.restart(asked_by="test", reason="relaunch")
        assert engine.in_flight == 0
        engine.answers_after_sec = 0.1
        await trio.sleep(60)
        assert (world.service.state.sub_state, world.service.state.complaints) == (SubState.READY, ())
        assert "unhealthy" not in world.path


UNIT = """
[Service]
ExecStart = ["engine"]
[Engine]
Launcher = "exec"
[Readiness]
Exec = ["check"]
[Canary]
Http = { Url = "http://127.0.0.1:8000/v1/completions", Body = "{}" }
"""


@pytest.mark.seed("S25")
async def test_in_a_gang_it_is_reported_by_its_name_until_it_works_again(
    engine: Engine, tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with running_pod(tmp_path, COORDINATED, engine=UNIT) as pod:
        assert pod.it.supervision is not None
        await pod.it.supervision.operator.command(placement(1))
        await trio.sleep(60)
        observe, nothing = pod.it.supervision.engine.endpoints[0].observation, Delivered()
        assert reports.due(nothing, observe()) is None
        engine.answers_after_sec = math.inf
        await trio.sleep(90)
        report = reports.due(nothing, observe())
        assert report is not None
        assert (report.exception_type, report.message) == ("unhealthy:canary", "no answer within 30 s")
        message = pod.it.supervision.engine.fault_message(report)
        assert (message.engine_status, message.epoch) == (1, 1)
        told = reports.delivered(nothing, report)
        assert reports.due(told, observe()) is None
        engine.answers_after_sec = 0.1
        await trio.sleep(60)
        assert reports.observed(told, observe()).unhealthy == frozenset()
        assert pod.it.supervision.engine.services[0].state.sub_state is SubState.READY
