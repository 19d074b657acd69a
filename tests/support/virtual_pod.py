"""A pod in virtual time: the supervisor that ships, in a container whose processes cost nothing.

`daemon.live` and everything below it, the node-manager routes and the link to the controller are the production
code, made from a podvisor.toml and unit files; only the processes, the hygiene gate, the container's stdout and
the network are the test's. A kubelet stand-in starts the container again, with a new boot, when it has ended.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import trio

from supervisor.api.node_manager import node_manager_app
from supervisor.configuration import Options, configure
from supervisor.daemon import live
from supervisor.ending import Ending
from supervisor.engine.controller_client import ControllerClient
from supervisor.engine.link import ControllerLink
from supervisor.engine.model.operation import Operation
from supervisor.host import Host
from supervisor.pod import Pod
from supervisor.pod_operations import PodOperations
from supervisor.process.children import Child, Spawn
from supervisor.process.drops import DropObserver
from supervisor.process.gate import GateItem, GateReport, GateSpec
from supervisor.process.tree import TreeReport
from supervisor.service.processes import Ladder
from supervisor.service.unit_output import UnitOutput
from supervisor.shared.http_app import asgi
from supervisor.shared.serving import Application, Message, Receive, Send
from supervisor.unit.model import Unit
from supervisor.unit.start_clock import ProgressKind
from supervisor.wire import Step
from tests.support.fake_processes import FAILED, KILLED, OK, FakeOutput, FakeProcesses, Program
from tests.support.fake_supervisor import Record
from tests.support.instant_disk import InstantDisk
from tests.support.memory_network import MemoryNetwork

PORT = 1026
ENGINE, STORE, MONITOR, LIVENESS = "engine", "kv-store", "monitor", "liveness"
RECOVER = "recover"
READY = "engine ready"

ENGINE_UNIT = f"""
[Unit]
Requires = ["{STORE}"]
After = ["{STORE}"]
[Service]
ExecStart = ["{ENGINE}"]
[Engine]
Launcher = "exec"
BasePort = 8000
Endpoints = ENDPOINTS
[Readiness]
LogLine = "{READY}"
[Liveness]
Exec = ["{LIVENESS}"]
"""
UNITS = {
    ENGINE: ENGINE_UNIT,
    STORE: f'[Service]\nExecStart = ["{STORE}"]\nRestart = "always"\n',
    MONITOR: f'[Service]\nExecStart = ["{MONITOR}"]\nRestart = "always"\n',
}


@dataclass(frozen=True)
class Script:
    """What the engine and the container do; a test replaces it between two events."""

    load_sec: float = 5.0
    progress_every_sec: float | None = 30.0
    """None: nothing is seen of the loading."""
    dies_after_sec: float = float("inf")
    stop_sec: float | None = 0.3
    """How long the engine takes when asked to end; None: it has to be killed."""
    store_stop_sec: float = 0.0
    """As it is when the store is started."""
    gate_sec: float = 0.1
    gate_refuses: str | None = None
    healthy: bool = True
    """What Liveness finds."""
    recover_sec: float | None = None
    """How long its RecoverExec takes; None, when the pod is made: the unit declares none."""
    recover_fails: bool = False
    container_restart_sec: float | None = 2.0
    """None: the container does not come back."""

    def program(self) -> Program:
        every = self.progress_every_sec
        steps = 0 if every is None else int(min(self.load_sec, 7200.0) / every)
        return Program(
            runs_sec=self.dies_after_sec,
            ends=FAILED,
            obeys_after_sec=self.stop_sec,
            progress=tuple((number * (every or 0.0), ProgressKind.WORK) for number in range(1, steps + 1)),
        )


@dataclass(eq=False)
class VirtualPod:
    network: MemoryNetwork
    directory: Path
    """Its volumes: what is in here survives its containers."""
    ip: str
    settings: dict[str, dict[str, object]]
    """Of its podvisor.toml."""
    history: list[Record]
    script: Script = field(default_factory=Script)
    endpoints: int = 1
    """Engine processes in this pod."""
    relations: str = ""
    """More lines for the engine's [Unit]."""
    sections: str = ""
    """More of the engine's file."""
    boots: list[Boot] = field(default_factory=list)
    """One for each container, the newest last."""
    deaf: bool = False
    """Requests to it are taken and never answered, its own go out as ever (a partition in one direction)."""
    mute: bool = False
    """It hears and answers, but what it asks gets lost."""
    broken: list[str] = field(default_factory=list)
    """Invariants that did not hold."""
    ended: list[tuple[int, str]] = field(default_factory=list)
    """Exit codes of the containers that ended by themselves, with the reason."""

    def change(self, **changes: object) -> None:
        self.script = Script(**{**vars(self.script), **changes})

    async def run(self) -> None:
        """The kubelet: one container after another, until cancelled or until the script says that none follows."""
        self._write_configuration()
        while True:
            boot = Boot(self)
            self.boots.append(boot)
            await boot.run()
            if self.script.container_restart_sec is None:
                return
            await trio.sleep(self.script.container_restart_sec)

    # --- what a test does ------------------------------------------------------------------------------------

    def kill_engine(self, number: int = 0) -> None:
        self.it.kill_engine(number)

    def kill_container(self) -> None:
        """SIGKILL to its PID 1: the kernel ends the rest at the same moment."""
        self.it.kill()

    def hold(self) -> None:
        """No message gets in or out, but what is sent to it waits for `release`, as when it is not scheduled."""
        self.it.held = trio.Event()

    def release(self) -> None:
        self.it.held.set()

    # --- what a test looks at --------------------------------------------------------------------------------

    @property
    def it(self) -> Boot:
        return self.boots[-1]

    @property
    def state(self) -> Operation:
        return self.it.supervision.operator.state

    @property
    def is_frozen(self) -> bool:
        return self.it.alive and self.state.frozen(trio.current_time())

    @property
    def serves(self) -> bool:
        """Its endpoint is NORMAL, and an engine process stands behind that."""
        it = self.it
        return it.alive and it.supervision.node_manager.status().status and it.processes.alive(ENGINE) == self.endpoints

    @property
    def not_ready(self) -> str:
        """What readyz says; empty: 200."""
        link = self.it.operations.link
        assert link is not None
        return self.it.pod.readiness(link.heartbeat.connection.registered, link.why_not_serving()).not_ready

    @property
    def settled(self) -> bool:
        """It waits for nobody and nobody waits for it."""
        return self.it.alive and self.state.step in (Step.IDLE, Step.DONE) and not self.is_frozen

    def spawns(self, program: str = ENGINE) -> int:
        """In the present container."""
        return len(self.it.processes.times(program))

    def note(self, what: str, epoch: int) -> None:
        self.history.append(Record(trio.current_time(), self.ip, what, epoch))

    def _write_configuration(self) -> None:
        units = self.directory / "units"
        units.mkdir(parents=True)
        for name, text in UNITS.items():
            (units / f"{name}.toml").write_text(text.replace("ENDPOINTS", str(self.endpoints)))
        text = ENGINE_UNIT.replace("[Unit]\n", f"[Unit]\n{self.relations}\n")
        if self.script.recover_sec is not None:
            text = text.replace("[Engine]\n", f'[Engine]\nRecoverExec = ["{RECOVER}"]\n')
        (units / f"{ENGINE}.toml").write_text(text.replace("ENDPOINTS", str(self.endpoints)) + self.sections)
        (self.directory / "podvisor.json").write_text(json.dumps(self.settings))


class Boot:
    """One life of the pod's container."""

    def __init__(self, home: VirtualPod) -> None:
        self.home = home
        self.alive = True
        self.stdout: list[str] = []
        self.held = trio.Event()
        """Until it is set, nothing gets in or out."""
        self.held.set()
        self.ending = Ending()
        self._scope = trio.CancelScope()
        options = Options(
            config=home.directory / "podvisor.json",
            units=(home.directory / "units",),
            socket=home.directory / "podvisor.sock",
        )
        self._configuration = configure(options, {})
        self._frozen = False

    @property
    def boot_id(self) -> str:
        return self._configuration.boot_id

    async def run(self) -> None:
        """Until the supervisor has ended itself, or was killed, or the test is over."""
        home = self.home
        async with trio.open_nursery() as fakes:
            self.processes = PodProcesses(fakes, home)
            host = Host(
                processes=self.processes,
                gate=self._gate,
                segments_of=_no_segments,
                output_of=self._output_of,
                write_stdout=lambda data: self.stdout.append(data.decode()),
                disk=InstantDisk(),
            )
            with self._scope:
                self.pod = Pod(self._configuration, host, self.ending, nm_port=PORT)
                assert self.pod.supervision is not None
                self.supervision = self.pod.supervision
                self.operations = PodOperations(self.pod)
                home.note("boot", 0)
                await live(
                    self.pod,
                    self.ending,
                    go_online=self._go_online,
                    set_last_deadline=lambda: None,
                )
                home.ended.append((self.ending.exit_code, self.ending.reason))
                home.note(f"exit:{self.ending.exit_code}", self.supervision.operator.state.epoch)
            self.alive = False
            fakes.cancel_scope.cancel(reason="the container has ended")

    def kill_engine(self, number: int = 0) -> None:
        pid = self.supervision.engine.services[number].state.pid
        assert pid is not None, "no engine runs"
        self.home.note("killed", self.supervision.operator.state.epoch)
        self.processes.crash(pid)

    def kill(self) -> None:
        self.home.note("container killed", self.supervision.operator.state.epoch)
        self.alive = False
        self.processes.vanish()
        self._scope.cancel(reason="the test kills the container")

    def _output_of(self, unit: Unit, drops: DropObserver) -> UnitOutput:
        output = FakeOutput()
        if unit.engine is not None:
            self.processes.engine_outputs[unit.name] = output
        return output

    async def _gate(self, spec: GateSpec) -> GateReport:
        script = self.home.script
        await trio.sleep(script.gate_sec)
        refused = script.gate_refuses
        return GateReport((GateItem("test", refused is None, refused or "free", script.gate_sec),))

    async def _go_online(self) -> None:
        network, ip = self.home.network, self.home.ip
        section = self._configuration.settings.supervisor
        client = ControllerClient(section.controller_url, lambda: None, _Held(self, network.transport(ip)))
        link = ControllerLink(client, self.supervision, section.heartbeat_interval_seconds)
        network.listen(ip, PORT, self._held(asgi(node_manager_app(self.supervision.node_manager, None))))
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._watch)
                self.operations.link = link
                self.pod.farewell, self.pod.last_word = link.heartbeat.leave, link.heartbeat.say_goodbye
                self.pod.relaunch_request.ask = self.operations.ask_for_relaunch
                nursery.start_soon(link.run)
        finally:
            network.close(ip, PORT)

    def _held(self, application: Application) -> Application:
        async def wait_and_serve(scope: Message, receive: Receive, send: Send) -> None:
            if self.home.deaf:
                await trio.sleep_forever()
            await self.held.wait()
            await application(scope, receive, send)

        return wait_and_serve

    async def _watch(self) -> None:
        """Writes down the operation's steps and its freezes."""
        operator, before = self.supervision.operator, Step.IDLE
        while True:
            changed = operator.changed.next()
            state = operator.state
            if state.step is not before:
                self.home.note(f"step:{state.step}", state.epoch)
                before = state.step
            self._watch_freeze(state)
            await changed.wait()

    def _watch_freeze(self, state: Operation) -> None:
        if (state.freeze is not None) is not self._frozen:
            self._frozen = not self._frozen
            self.home.note("frozen" if self._frozen else "unfrozen", state.epoch)


class PodProcesses(FakeProcesses):
    """Those of one container. Says when engines come and go, and notices two incarnations at a time (I1)."""

    def __init__(self, nursery: trio.Nursery, home: VirtualPod) -> None:
        store = Program(obeys_after_sec=home.script.store_stop_sec)
        programs = {STORE: store, MONITOR: Program(), ENGINE: home.script.program(), LIVENESS: Program(0.0)}
        super().__init__(nursery, programs)
        self.engine_outputs: dict[str, FakeOutput] = {}
        """By unit."""
        self._fakes = nursery
        self._home = home
        self._epochs: dict[int, int] = {}

    async def spawn(self, spawn: Spawn) -> Child:
        script, name = self._home.script, spawn.argv[0]
        self.programs[ENGINE] = script.program()
        self.programs[LIVENESS] = Program(0.0) if script.healthy else Program(0.0, ends=FAILED)
        self.programs[RECOVER] = Program(script.recover_sec or 0.0, ends=FAILED if script.recover_fails else OK)
        child = await super().spawn(spawn)
        if name == ENGINE:
            epoch = int(spawn.environment["EPOCH"])
            if self.alive(ENGINE) > self._home.endpoints:
                self._home.broken.append(f"I1: {self._home.ip} has an engine too many in epoch {epoch}")
            self._epochs[child.pid] = epoch
            self._home.note("spawn", epoch)
            output = self.engine_outputs[spawn.environment["PODVISOR_UNIT"]]
            self._fakes.start_soon(self._load, child, output, script.load_sec)
        return child

    async def stop(self, child: Child, ladder: Ladder) -> TreeReport:
        report = await super().stop(child, ladder)
        if child.pid in self._epochs:
            self._home.note("stopped", self._epochs[child.pid])
        return report

    def vanish(self) -> None:
        for tree in self._trees.values():
            self._end(tree, KILLED)

    async def _load(self, child: Child, output: FakeOutput, load_sec: float) -> None:
        await trio.sleep(load_sec)
        if not child.exited.is_set():
            output.write(READY)


class _Held(httpx.AsyncBaseTransport):
    """Out of a container that is not scheduled, or is no more, nothing is sent."""

    def __init__(self, boot: Boot, below: httpx.AsyncBaseTransport) -> None:
        self._boot = boot
        self._below = below

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        await self._boot.held.wait()
        if not self._boot.alive:
            raise httpx.ConnectError("the container is no more")
        if self._boot.home.mute:
            raise httpx.ConnectError("its requests get lost")
        return await self._below.handle_async_request(request)

    async def aclose(self) -> None:
        await self._below.aclose()


async def _no_segments(pid: int) -> dict[Path, tuple[int, int]]:
    """The processes here have no memory to share."""
    return {}
