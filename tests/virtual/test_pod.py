"""A pod without a gang: what the kubelet is told of its units, and what operators are."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from supervisor.api.operations import Refused
from supervisor.api.readiness import Readiness
from supervisor.configuration import Options, configure
from supervisor.ending import EXIT_OK, Ending
from supervisor.host import Host
from supervisor.pod import Pod
from supervisor.pod_operations import PodOperations
from supervisor.process.children import ExitStatus, SpawnError
from supervisor.process.gate import GateReport, GateSpec
from supervisor.wire import Action, Endpoint, EngineRestartMsg, StartCmdMsg, Step
from tests.support.fake_processes import FAILED, KILLED, OK, FakeOutput, FakeProcesses, Program

STORE = '[Service]\nExecStart = ["store"]\n[Readiness]\nExec = ["check"]\nFailureThreshold = 1\n'
ENGINE = '[Service]\nExecStart = ["engine"]\n[Engine]\nLauncher = "exec"\n[Readiness]\nExec = ["check"]\n'
IP = "127.0.0.1"
GOOD, BAD = Program(runs_sec=0.0, ends=OK), Program(runs_sec=0.0, ends=FAILED)


class RunningPod:
    def __init__(self, pod: Pod, ending: Ending, processes: FakeProcesses) -> None:
        self.it = pod
        self.ending = ending
        self.processes = processes

    def check_answers(self, program: Program) -> None:
        self.processes.programs["check"] = program


@asynccontextmanager
async def running(
    directory: Path, settings: Mapping[str, str] | None = None, /, **units: str
) -> AsyncIterator[RunningPod]:
    for name, text in units.items():
        (directory / f"{name}.toml").write_text(text)
    environment = {"PODVISOR_SUPERVISOR__STATE_DIR": str(directory / "state"), "POD_IP": IP}
    environment |= settings or {}
    configuration = configure(Options(None, (directory,), directory / "podvisor.sock"), environment)
    ending = Ending()
    async with trio.open_nursery() as fakes:
        processes = FakeProcesses(fakes, {"store": Program(), "engine": Program(), "check": GOOD})
        host = Host(
            processes=processes,
            gate=_open_gate,
            segments_of=_no_segments,
            output_of=lambda _, drops: FakeOutput(),
            write_stdout=lambda _: None,
        )
        async with trio.open_nursery() as nursery:
            pod = Pod(configuration, host, ending, nm_port=0)
            await nursery.start(pod.run)
            await trio.sleep(15)
            yield RunningPod(pod, ending, processes)
            nursery.cancel_scope.cancel()
        fakes.cancel_scope.cancel()


async def _open_gate(spec: GateSpec) -> GateReport:
    return GateReport(())


async def _no_segments(pid: int) -> dict[Path, tuple[int, int]]:
    return {}


@pytest.mark.parametrize("units", [{"store": STORE}, {"engine": ENGINE}], ids=["units alone", "with an engine"])
async def test_readyz_follows_readiness_after_it_has_passed_once(
    units: dict[str, str], tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with running(tmp_path, **units) as pod:
        assert pod.it.readiness(None).not_ready == ""
        pod.check_answers(BAD)
        await trio.sleep(60)
        name = next(iter(units))
        assert pod.it.readiness(None) == Readiness(not_started="", not_ready=f"Readiness fails: {name}")
        pod.check_answers(GOOD)
        await trio.sleep(60)
        assert pod.it.readiness(None).not_ready == ""


async def test_a_relaunch_that_cannot_start_the_engine_is_refused_with_the_reason(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with running(tmp_path, engine=ENGINE) as pod:
        pod.processes.programs["engine"] = Program(spawn_fails=SpawnError("cannot execute 'engine': no such file"))
        with pytest.raises(Refused, match="no such file"):
            await PodOperations(pod.it).relaunch("operator")


async def test_the_controller_is_told_before_the_first_unit_is_stopped(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with running(tmp_path, engine=ENGINE) as pod:
        told: list[tuple[bool, int]] = []

        async def farewell() -> None:
            await trio.sleep(0.5)
            assert pod.it.supervision is not None
            told.append((pod.it.supervision.node_manager.heartbeat(1).leaving, pod.processes.alive("engine")))

        pod.it.farewell = farewell
        pod.ending.request(EXIT_OK, "SIGTERM received")
        await pod.it.leave(trio.current_time() + 30)
        assert told == [(True, 1)]


async def test_a_drain_that_takes_all_the_time_there_is_leaves_some_for_the_other_units(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    settings = {"PODVISOR_SUPERVISOR__DRAIN_SEC": "600"}
    async with running(tmp_path, settings, engine=ENGINE, store=STORE) as pod:
        pod.processes.programs["engine"] = Program(obeys_after_sec=None)
        await PodOperations(pod.it).relaunch("operator")
        await trio.sleep(60)
        pod.ending.request(EXIT_OK, "SIGTERM received")
        began = trio.current_time()
        await pod.it.leave(began + 20)
        await pod.it.stop(began + 20)
        assert trio.current_time() <= began + 20
        assert pod.processes.ended["store"] == ExitStatus(None, "SIGTERM")
        assert pod.processes.ended["engine"] == KILLED


COORDINATED = {
    "PODVISOR_SUPERVISOR__JOB_NAME": "llama",
    "PODVISOR_SUPERVISOR__CONTROLLER_URL": "http://127.0.0.1:9",
}


def placement(epoch: int, *, headless: bool = False) -> StartCmdMsg:
    endpoint = Endpoint(id=0, ip=IP, business_port="10000", mgmt_port="10000", headless=headless)
    return StartCmdMsg(
        job_name="llama", role="union", instance_id=7, endpoints=(endpoint,), master_dp_ip=IP, epoch=epoch
    )


async def test_a_relaunch_does_not_wait_for_ever_for_a_dependency_that_hangs(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """While it waits the arbiter does not count: nothing else would end this container."""
    store = STORE.replace("[Readiness]", 'TimeoutStartSec = "infinity"\n[Readiness]')
    engine = ENGINE.replace('[Readiness]\nExec = ["check"]\n', "") + '[Unit]\nAfter = ["store"]\n'
    async with running(tmp_path, COORDINATED, store=store, engine=engine) as pod:
        assert pod.it.supervision is not None
        operator = pod.it.supervision.operator
        await operator.command(placement(1))
        await operator.changed.wait_until(lambda: operator.state.step, lambda step: step is Step.DONE)
        pod.check_answers(BAD)
        store_pid = pod.it.units.get("store").state.pid
        assert store_pid is not None
        pod.processes.crash(store_pid)
        relaunch = EngineRestartMsg(action=Action.PREPARE, epoch=2, run_id="run-2", start=placement(2))
        assert (await operator.command(relaunch)).step is Step.CLEANING
        await trio.sleep(120)
        assert operator.state.step is Step.FAILED
        assert operator.state.error is not None
        assert "not active within 120 s" in operator.state.error


async def test_it_is_said_that_the_probes_of_a_rank_without_http_are_not_asked(
    tmp_path: Path, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    engine = ENGINE.replace('Exec = ["check"]', 'Http = "http://127.0.0.1:10000/health"')
    async with running(tmp_path, COORDINATED, engine=engine) as pod:
        assert pod.it.supervision is not None
        await pod.it.supervision.operator.command(placement(1, headless=True))
    assert [record.getMessage() for record in caplog.records if "serves no HTTP" in record.getMessage()] == [
        "rank 0 serves no HTTP: its Http and Tcp probes are not asked, it is well while its processes live"
    ]


async def test_a_rank_whose_store_was_relaunched_asks_for_its_gang_and_is_not_restarted_alone(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    relations = '[Unit]\nBindsTo = ["store"]\nAfter = ["store"]\nOnDependencyRestart = "restart"\n'
    async with running(tmp_path, COORDINATED, store=STORE, engine=relations + ENGINE) as pod:
        asked: list[str] = []

        async def ask(reason: str) -> None:
            asked.append(reason)

        pod.it.relaunch_request.ask = ask
        assert pod.it.supervision is not None
        await pod.it.supervision.operator.command(placement(1))
        engine, store = pod.it.units.get("engine"), pod.it.units.get("store")
        assert store.state.pid is not None
        with pytest.raises(Refused, match=r"engine goes down with store .* podvisor stop engine"):
            await PodOperations(pod.it).change("store", "stop", asked_by="operator", local=False)
        pod.processes.crash(store.state.pid)
        await trio.sleep(60)
        assert asked == [
            "store, to which it is bound, goes down: killed by SIGKILL",
            "store was relaunched (OnDependencyRestart)",
        ]
        assert (engine.state.invocation, pod.processes.alive("engine")) == (1, 1)
        await PodOperations(pod.it).change("engine", "stop", asked_by="operator", local=True)
        await PodOperations(pod.it).change("store", "stop", asked_by="operator", local=False)
        assert pod.processes.alive("store") == 0


@pytest.mark.parametrize("edge", ["Requires", "BindsTo", "PartOf"])
async def test_what_a_rank_of_a_gang_would_be_stopped_with_is_stopped_after_it(
    edge: str, tmp_path: Path, autojump_clock: MockClock
) -> None:
    """A gang whose engine goes on without its store could not be relaunched: it would cost the container."""
    relations = f'[Unit]\n{edge} = ["store"]\nAfter = ["store"]\n'
    async with running(tmp_path, COORDINATED, store=STORE, engine=relations + ENGINE) as pod:
        assert pod.it.supervision is not None
        await pod.it.supervision.operator.command(placement(1))
        operations = PodOperations(pod.it)
        with pytest.raises(Refused, match=r"engine goes down with store .* podvisor stop engine"):
            await operations.change("store", "stop", asked_by="operator", local=False)
        assert (pod.processes.alive("engine"), pod.processes.alive("store")) == (1, 1)
        await operations.change("engine", "stop", asked_by="operator", local=True)
        await operations.change("store", "stop", asked_by="operator", local=False)
        assert (pod.processes.alive("engine"), pod.processes.alive("store")) == (0, 0)


async def test_a_standalone_engine_is_restarted_through_its_unit(tmp_path: Path, autojump_clock: MockClock) -> None:
    relations = '[Unit]\nAfter = ["store"]\nOnDependencyRestart = { store = "restart" }\n'
    async with running(tmp_path, store=STORE, engine=relations + ENGINE) as pod:
        engine, store = pod.it.units.get("engine"), pod.it.units.get("store")
        assert store.state.pid is not None
        pod.processes.crash(store.state.pid)
        await engine.wait_until(lambda state: state.started == 2 and state.ready_once)
        assert pod.processes.most_alive["engine"] == 1


@pytest.mark.parametrize("verb", ["start", "restart"])
async def test_a_standalone_engine_that_was_stopped_serves_again_once_it_runs(
    verb: str, tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with running(tmp_path, engine=ENGINE.replace("[Readiness]", "Endpoints = 2\n[Readiness]")) as pod:
        operations = PodOperations(pod.it)
        assert pod.it.readiness(None).not_ready == ""
        await operations.change("engine@0", "stop", asked_by="operator", local=False)
        assert pod.it.readiness(None).not_ready == "endpoint is paused"
        for again in (verb, "start"):  # a start of what runs is no news
            await operations.change("engine@0", again, asked_by="operator", local=False)
            await trio.sleep(15)
            assert pod.it.readiness(None).not_ready == ""


async def test_a_relaunch_of_an_engine_with_two_endpoints_is_one(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with running(tmp_path, engine=ENGINE.replace("[Readiness]", "Endpoints = 2\n[Readiness]")) as pod:
        assert pod.it.supervision is not None
        for count in (1, 2):
            await PodOperations(pod.it).relaunch("ana")
            await trio.sleep(15)
            assert pod.it.readiness(None).not_ready == ""
            assert pod.it.supervision.operator.state.relaunch_count == count
        pids = [pod.it.units.get(f"engine@{number}").state.pid for number in (0, 1)]
        for pid in pids:
            assert pid is not None
            pod.processes.crash(pid)
        await trio.sleep(15)
        assert pod.it.supervision.operator.state.relaunch_count == 4, "two that die for themselves are two"


async def test_a_reason_that_only_sounds_like_a_relaunch_of_all_is_none(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with running(tmp_path, engine=ENGINE.replace("[Readiness]", "Endpoints = 2\n[Readiness]")) as pod:
        assert pod.it.supervision is not None
        operator = pod.it.supervision.operator
        first = pod.it.units.get("engine@0").state.pid
        assert first is not None
        pod.processes.crash(first)
        await operator.changed.wait_until(lambda: operator.state, lambda state: state.relaunch_count == 1)
        assert operator.state.step is Step.LOADING
        await pod.it.units.restart("engine@1", asked_by="ana", reason="it is slow since relaunch 1")
        assert operator.state.relaunch_count == 2


async def test_a_unit_that_a_conflict_keeps_down_is_not_waited_for(tmp_path: Path, autojump_clock: MockClock) -> None:
    rival = '[Unit]\nAfter = ["store"]\nConflicts = ["store"]\n[Service]\nExecStart = ["engine"]\n'
    bound = '[Unit]\nBindsTo = ["{0}"]\nAfter = ["{0}"]\n[Service]\nExecStart = ["engine"]\n'
    units = {"rival": rival, "left": bound.format("store"), "right": bound.format("rival")}
    async with running(tmp_path, store=STORE, **units) as pod:
        assert pod.it.units.displaced() == {"rival", "right"}
        assert pod.it.readiness(None) == Readiness(not_started="", not_ready="")
        await pod.it.units.start("right", asked_by="operator")  # and what it is bound to
        assert pod.it.units.displaced() == {"store", "left"}
        assert pod.it.readiness(None) == Readiness(not_started="", not_ready="")
        await pod.it.units.stop("rival", asked_by="operator", reason="maintenance")
        assert "rival" in pod.it.readiness(None).not_ready
