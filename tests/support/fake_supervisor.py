"""A supervisor as the controller sees it: the node-manager API and the messages it pushes, over the memory
network, in front of an engine that does what the test's script says.

It keeps the protocol's promises (design 4) in the shortest way: what it answers, when it is frozen, when its
arbiter ends it. It is not the supervisor's code and proves nothing about it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeVar
from uuid import uuid4

import httpx
import msgspec
import trio
from quart import Response, request
from quart_trio import QuartTrio

from supervisor import wire
from supervisor.wire import Action, EndpointStatus, ErrorCode, Step

PORT = 1026
HEARTBEAT_SEC = 3.0
SILENCE_SEC = 60.0
SEED_FIELDS = {
    "register": frozenset(
        {
            "job_name", "model_name", "role", "pod_ip", "business_port", "mgmt_port", "nm_port", "parallel_config",
            "enable_multi_endpoints", "device_num", "nnodes",
        }
    ),
    "heartbeat": frozenset({"job_name", "ins_id", "ip", "status"}),
    "report_software_fault": frozenset(
        {"exception_type", "exception_message", "engine_id", "engine_status", "pod_ip"}
    ),
}  # fmt: skip
"""What a peer of the reference system says, and all that it says."""
SEED_STATUS = {ErrorCode.NOT_STARTED: 400, ErrorCode.FAILED: 500}

Message = TypeVar("Message", bound=msgspec.Struct)
Operation = Callable[[], Awaitable[None]]


class Network(Protocol):
    """Of memory or of loopback."""

    def listen(self, host: str, port: int, application: QuartTrio) -> None: ...

    def close(self, host: str, port: int) -> None: ...

    def client(self, source: str, *, timeout: float) -> httpx.AsyncClient: ...


@dataclass(frozen=True)
class Script:
    """What the engine and the supervisor do; a test replaces it between two events."""

    prepare_sec: float = 0.5
    spawn_sec: float = 0.05
    load_sec: float = 5.0
    load_fails: bool = False
    hang: frozenset[str] = frozenset()
    """Of `prepare`, `start`, `abort`, `stop`, `status`, `recover`: taken and never answered, without any effect."""
    hold: frozenset[str] = frozenset()
    """Of `stop engine`, `spawn`, `load`, `boot`: it goes on for as long as this is in force."""
    heartbeat_sec: float = HEARTBEAT_SEC
    refuse: dict[str, ErrorCode] = field(default_factory=dict)
    refuse_sec: float = 0.0
    """How long it takes until a refusal is sent."""
    container_restart_sec: float | None = 2.0
    """None: the container does not come back."""
    freeze_sec: float = 720.0
    arbiter_sec: float = 15.0
    """More where time is real, and a busy machine may need longer to start a controller."""
    dependencies_sec: float = 0.0
    """From boot until the engine can be started."""
    recover_sec: float | None = None
    """How long its engine takes to recover itself; None: its unit declares no way to."""
    recover_fails: bool = False
    seed_only: bool = False
    """A peer of the reference system: knows neither epochs, boots and terms nor prepare, start and orders."""


@dataclass(frozen=True)
class Record:
    """Something that happened, in the order in which it did."""

    at: float
    who: str
    what: str
    epoch: int


class Refusal(Exception):
    def __init__(self, code: ErrorCode, status: int = 409) -> None:
        super().__init__(code)
        self.code = code
        self.status = status


class FakeSupervisor:
    def __init__(
        self,
        network: Network,
        *,
        ip: str,
        job_name: str,
        node_index: int,
        nnodes: int,
        controller_urls: tuple[str, ...] = ("http://controller:1026",),
        script: Script | None = None,
        history: list[Record],
        identity: Mapping[str, object] | None = None,
    ) -> None:
        """`identity`: fields of its registration that are not as of everybody here, as `role`."""
        self.ip = ip
        self._own = identity or {}
        self.job_name = job_name
        self.pod_name = f"{job_name}-{node_index}"
        self.pod_uid = f"uid-{ip}"
        """Another once its pod is another."""
        self.script = script or Script()
        self.history = history
        self.boots = 0
        self.answers: list[wire.FaultAnswer] = []
        """To the fault reports of all boots."""
        self.mute = False
        """Sends no heartbeats, but can be asked."""
        self.registrations = 0
        self.reregistrations = 0
        self._network = network
        self.node_index = node_index
        self._rewritten = trio.Event()
        self._nnodes = nnodes
        self._urls = deque(controller_urls)
        self._leader = self._urls[0]
        self.highest_epoch = 0
        self.highest_term = 0
        self._reset()

    # --- what a test looks at and does ---------------------------------------------------------------------

    def kill_engine(self) -> None:
        """The engine's process dies: reported until delivered, frozen if a recovery is promised."""
        self._note("died")
        self._set(Step.IDLE, EndpointStatus.ABNORMAL)
        self.engine_alive = False
        self._nursery.start_soon(self._report, self.epoch, "exited", "the engine was killed by SIGKILL")

    def fail_canary(self) -> None:
        """Its engine lives, and does no work: reported until delivered, or until `recover_canary`."""
        self._note("stuck")
        self._set(self.step, EndpointStatus.ABNORMAL)
        self._nursery.start_soon(self._report, self.epoch, "unhealthy:canary", "canary: no answer within 30 s")

    def recover_canary(self) -> None:
        self._set(self.step, EndpointStatus.NORMAL)

    def kill_container(self) -> None:
        self._leave("killed")

    @property
    def is_frozen(self) -> bool:
        now = trio.current_time()
        return now < self._frozen_until and now < self._heard + SILENCE_SEC

    @property
    def is_settled(self) -> bool:
        """It waits for nobody: it serves, or it is out of its freeze, or its container ended."""
        return not self.is_running or self.status is EndpointStatus.NORMAL or not self.is_frozen

    def did(self, what: str) -> list[Record]:
        return [record for record in self.history if record.who == self.ip and record.what == what]

    async def wait_until(self, status: EndpointStatus) -> None:
        while not (self.is_running and self.status is status):
            await self._changed.wait()

    # --- life ----------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """One container life after another, until cancelled or the script says that none follows."""
        while True:
            await self._live()
            if self.script.container_restart_sec is None:
                return
            await trio.sleep(self.script.container_restart_sec)
            await self._held("boot")

    async def _live(self) -> None:
        self._reset()
        self.boots += 1
        self.is_running = True
        self._note("boot")
        self._network.listen(self.ip, PORT, self._application())
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                nursery.start_soon(self._wait_for_dependencies)
                nursery.start_soon(self._talk_to_the_controller)
                nursery.start_soon(self._arbitrate)
        finally:
            self.is_running = False
            self._network.close(self.ip, PORT)
            self._announce()

    def _reset(self) -> None:
        self.boot_id = str(uuid4())
        self.is_running = False
        self.is_registered = False
        self.instance_id = 0
        self.epoch = 0
        self.run_id: str | None = None
        self._promised_by: str | None = None
        """The run that its report was answered with."""
        self.step = Step.IDLE
        self.status = EndpointStatus.INITIAL
        self.prepared = False
        self.engine_alive = False
        self.endpoint_id = self.node_index
        self.relaunch_count = 0
        self.recovery: wire.RecoveryState | None = None
        self._recovering: str | None = None
        self._recovered_at = 0.0
        self._aborted: set[str] = set()
        self._frozen_until = 0.0
        self._heard = 0.0
        self._sequence = 0
        self._progress = 0.0
        self._changed = trio.Event()
        self._operation: trio.CancelScope | None = None

    def _leave(self, why: str) -> None:
        self._note(f"exit:{why}")
        self.is_running = False
        self.engine_alive = False
        self._nursery.cancel_scope.cancel(reason=why)

    async def _wait_for_dependencies(self) -> None:
        await trio.sleep(self.script.dependencies_sec)
        if self.step is Step.IDLE and not self.engine_alive:
            self.prepared = True
            self._announce()

    async def _arbitrate(self) -> None:
        counted = 0.0
        while True:
            await trio.sleep(HEARTBEAT_SEC)
            is_abnormal = self.status is EndpointStatus.ABNORMAL or self._is_prepared_and_left
            counted = counted + HEARTBEAT_SEC if is_abnormal and not self.is_frozen else 0.0
            if counted >= self.script.arbiter_sec:
                self._leave("arbiter")

    @property
    def _is_prepared_and_left(self) -> bool:
        """Prepared in a run whose freeze is over; before the first start nothing is abnormal."""
        return self.status is EndpointStatus.WAIT2START and not self.is_frozen

    def _freeze(self, wait_sec: float = 0.0) -> None:
        self._frozen_until = trio.current_time() + wait_sec + self.script.freeze_sec
        self._heard = trio.current_time()

    def _unfreeze(self) -> None:
        self._frozen_until = 0.0

    # --- to the controller ---------------------------------------------------------------------------------

    async def _talk_to_the_controller(self) -> None:
        async with self._network.client(self.ip, timeout=3) as client:
            self._client = client
            while True:
                await self._unmuted()
                # Before the message is made: what changes while it is under way needs another one.
                changed = self._changed
                known = await (self._heartbeat() if self.is_registered else self._register())
                with trio.move_on_after(self.script.heartbeat_sec if known else 1.0):
                    await changed.wait()
                    await trio.sleep(0.2)

    async def _unmuted(self) -> None:
        while self.mute:
            await trio.sleep(1)

    def _identity(self) -> dict[str, object]:
        return {
            "job_name": self.job_name,
            "model_name": "tiny",
            "role": "union",
            "pod_ip": self.ip,
            "nm_port": str(PORT),
            "nnodes": self._nnodes,
            "device_num": 1,
            "parallel_config": wire.ParallelConfig(dp_size=self._nnodes),
            "epoch": self.highest_epoch,
            "term": self.highest_term,
            "boot_id": self.boot_id,
            "pod_name": self.pod_name,
            "pod_uid": self.pod_uid,
            "node_index": self.node_index,
            "protocol": None if self.script.seed_only else wire.PROTOCOL,
            "features": self._features(),
            **self._own,
        }

    def _features(self) -> tuple[str, ...]:
        if self.script.seed_only:
            return ()
        return wire.FEATURES if self.script.recover_sec is None else (*wire.FEATURES, "recover")

    async def _register(self) -> bool:
        message: wire.RegisterMsg | wire.ReregisterMsg
        if self.epoch and self.instance_id:
            route = "reregister"
            message = wire.ReregisterMsg(
                **{**self._identity(), "epoch": self.epoch},  # type: ignore[arg-type]  # fields of both messages
                instance_id=self.instance_id,
                endpoints=(self._endpoint(),),
                node_rank=self.node_index,
                freeze_remaining_sec=self._freeze_remaining(),
            )
        else:
            route = "register"
            message = wire.RegisterMsg(
                **self._identity(),  # type: ignore[arg-type]  # as above
                business_port=("8000",),
                mgmt_port=("8001",),
            )
        answer = await self._post(route, message)
        if answer is not None and answer.status_code == 409 and route == "reregister":
            self._give_the_engine_up()
            return False
        if answer is None or answer.status_code != 200:
            return False
        self._note(route)
        self.is_registered = True
        self.registrations += route == "register"
        self.reregistrations += route == "reregister"
        return True

    def _give_the_engine_up(self) -> None:
        """Its instance is over: stop the engines and register anew (design 7)."""
        self._note("gave up")
        self.engine_alive = False
        self.instance_id = self.epoch = 0
        self.run_id = None
        self.prepared = True
        self._set(Step.IDLE, EndpointStatus.INITIAL)

    async def _heartbeat(self) -> bool:
        self._sequence += 1
        message = wire.HeartbeatMsg(
            job_name=self.job_name,
            ins_id=self.instance_id,
            ip=self.ip,
            status={str(self.endpoint_id): self.status},
            nm_port=str(PORT),
            pod_uid=self.pod_uid,
            epoch=self.epoch,
            term=self.highest_term,
            boot_id=self.boot_id,
            sequence=self._sequence,
            freeze_remaining_sec=self._freeze_remaining(),
            relaunch_count=self.relaunch_count,
            prepared=self.prepared,
            step=self.step,
            run_id=self.run_id,
            progress_age_sec=trio.current_time() - self._progress,
        )
        answer = await self._post("heartbeat", message)
        if answer is None:
            return False
        if answer.status_code == 503:
            self.is_registered = False
            return False
        assert answer.status_code == 200, answer.text
        said = wire.decode(wire.HeartbeatAnswer, answer.content)
        if said.instance_id:
            self.instance_id = said.instance_id
        if said.run_id is not None and said.run_id in (self.run_id, self._promised_by):
            self._heard = trio.current_time()
        for order in () if self.script.seed_only else said.orders:
            self._obey(order)
        return True

    def _obey(self, order: wire.Order) -> None:
        if order.boot_id not in (None, self.boot_id):
            return
        self._note(f"order:{order.order}")
        if order.order == wire.OrderKind.LEAVE:
            self._leave("ordered")
        elif order.order == wire.OrderKind.ABORT:
            self._abort(order.run_id)

    async def _report(self, epoch: int, exception_type: str, words: str) -> None:
        message = wire.SoftwareFaultMsg(
            exception_type=exception_type,
            exception_message=words,
            engine_id=self.endpoint_id,
            engine_status=wire.EngineHealth.DEAD,
            pod_ip=self.ip,
            job_name=self.job_name,
            instance_id=self.instance_id,
            epoch=epoch,
            boot_id=self.boot_id,
            pid=4711,
            exit=None if self.engine_alive else wire.ExitInfo(signal="SIGKILL", cause="killed"),
        )
        while self.epoch == epoch and self.status is EndpointStatus.ABNORMAL:
            answer = await self._post("report_software_fault", message)
            if answer is not None and answer.status_code == 200:
                said = wire.decode(wire.FaultAnswer, answer.content)
                self.answers.append(said)
                if said.recovery is not wire.Recovery.NONE:
                    self._promised_by = said.run_id
                    self._freeze(said.wait_sec)
                if said.recovery is not wire.Recovery.PENDING:
                    return
            await trio.sleep(1)

    def _form(self, route: str, message: msgspec.Struct) -> bytes:
        if not self.script.seed_only:
            return wire.encode(message)
        known = SEED_FIELDS[route]
        said = msgspec.to_builtins(message)
        return msgspec.json.encode({name: value for name, value in said.items() if name in known})

    async def _post(self, route: str, message: msgspec.Struct) -> httpx.Response | None:
        """None: nobody who leads has answered. A leader that a standby names is asked from then on, until it fails."""
        try:
            answer = await self._client.post(f"{self._leader}/controller/{route}", content=self._form(route, message))
        except httpx.RequestError:
            self._leader = self._next_url()
            return None
        if answer.status_code != 421:
            return answer
        named = wire.decode(wire.ErrorBody, answer.content).leader
        self._leader = named or self._next_url()
        return None

    def _next_url(self) -> str:
        self._urls.rotate(-1)
        return self._urls[0]

    # --- from the controller -------------------------------------------------------------------------------

    def _application(self) -> QuartTrio:
        app = QuartTrio(f"fake-{self.ip}")

        @app.get("/node-manager/status")
        async def status() -> Response:
            await self._maybe_hang("status")
            self._heard = trio.current_time()
            if self.script.seed_only:
                return _plain({"status": self.status is EndpointStatus.NORMAL})
            return _json(self._view())

        @app.post("/node-manager/engine-restart")
        async def engine_restart() -> Response:
            message = await _received(wire.EngineRestartMsg)
            await self._maybe_hang(message.action)
            return await self._answer(message.action, self._engine_restart, message)

        @app.post("/node-manager/start")
        async def start() -> Response:
            message = await _received(wire.StartCmdMsg)
            await self._maybe_hang("start")
            return await self._answer("start", self._start_command, message)

        @app.post("/node-manager/stop")
        async def stop() -> Response:
            message = await _received(wire.StopMsg)
            await self._maybe_hang("stop")
            return await self._answer("stop", self._stop_command, message)

        return app

    async def _maybe_hang(self, what: str) -> None:
        if what in self.script.hang:
            self._note(f"hangs:{what}")
            await trio.sleep_forever()

    async def _answer(
        self, what: str, command: Callable[[Message], Awaitable[bool | None]], message: Message
    ) -> Response:
        try:
            if (code := self.script.refuse.get(what)) is not None:
                await trio.sleep(self.script.refuse_sec)
                raise Refusal(code)
            will_exit = await command(message)
        except Refusal as refusal:
            self._note(f"refused:{what}:{refusal.code}")
            if self.script.seed_only:
                return _plain({"detail": f"{what} refused"}, SEED_STATUS.get(refusal.code, 409))
            body = wire.ErrorBody(
                error=refusal.code,
                message=f"{what} refused by {self.ip}",
                step=self.step,
                term=self.highest_term,
                epoch=self.highest_epoch,
                boot_id=self.boot_id,
            )
            return _json(body, refusal.status)
        if self.script.seed_only:
            return _plain({"message": "ok"})
        return _json(
            wire.CommandAnswer(
                step=self.step,
                epoch=self.epoch,
                term=self.highest_term,
                boot_id=self.boot_id,
                run_id=self.run_id,
                will_exit=will_exit,
                recovery=self.recovery if what == Action.RECOVER else None,
            )
        )

    async def _engine_restart(self, message: wire.EngineRestartMsg) -> bool | None:
        self._check(message.term, message.boot_id, message.instance_id)
        match message.action:
            case Action.ABORT:
                return self._abort(message.run_id)
            case Action.PREPARE:
                await self._prepare(message)
            case Action.START:
                await self._start(message.epoch or 0, message.run_id)
            case Action.RESTART:
                await self._restart(message)
            case Action.HOLD:
                await self._hold(message)
            case Action.RECOVER:
                await self._recover(message)
        return None

    def _check(self, term: int, boot_id: str | None, instance_id: int | None) -> None:
        if self.script.seed_only:
            self._heard = trio.current_time()
            return
        if term < self.highest_term:
            raise Refusal(ErrorCode.STALE_TERM)
        self.highest_term = term
        if boot_id not in (None, self.boot_id):
            raise Refusal(ErrorCode.WRONG_BOOT)
        if instance_id and self.instance_id and instance_id != self.instance_id:
            raise Refusal(ErrorCode.WRONG_INSTANCE)
        self._heard = trio.current_time()

    async def _prepare(self, message: wire.EngineRestartMsg) -> None:
        if self.script.seed_only:
            raise Refusal(ErrorCode.MALFORMED, 400)
        if message.run_id in self._aborted:
            raise Refusal(ErrorCode.ABORTED)
        assert message.epoch is not None
        if message.epoch < self.highest_epoch:
            raise Refusal(ErrorCode.STALE_EPOCH)
        if not (message.run_id == self.run_id and message.epoch == self.epoch):
            self._note("prepare", message.epoch)
            self._freeze()
            self.highest_epoch = self.epoch = message.epoch
            self.run_id = message.run_id
            if message.instance_id:
                self.instance_id = message.instance_id
            self.prepared = False
            self._set(Step.STOPPING, EndpointStatus.WAIT2START)
            self._begin(self._stop_engine)
        with trio.move_on_after(10):
            while self.step in (Step.STOPPING, Step.CLEANING):
                await self._changed.wait()

    async def _stop_engine(self) -> None:
        await trio.sleep(self.script.prepare_sec)
        await self._held("stop engine")
        self.engine_alive = False
        self.prepared = True
        self._note("prepared")
        self._set(Step.PREPARED, EndpointStatus.WAIT2START)

    async def _hold(self, message: wire.EngineRestartMsg) -> None:
        assert message.epoch is not None
        if message.epoch < self.highest_epoch:
            raise Refusal(ErrorCode.STALE_EPOCH)
        self._note("hold", message.epoch)
        self.highest_epoch = self.epoch = message.epoch
        self.run_id = message.run_id
        self._unfreeze()
        self.engine_alive, self.prepared = False, True
        self._set(Step.HELD, EndpointStatus.PAUSED)

    async def _start_command(self, message: wire.StartCmdMsg) -> bool | None:
        self._check(message.term, None, message.instance_id)
        self.endpoint_id = message.endpoints[0].id if message.endpoints else self.endpoint_id
        self.instance_id = message.instance_id
        if self.script.seed_only:
            await self._spawn()
            return None
        self._take_on(message.epoch, message.run_id)
        await self._spawn()
        return None

    def _take_on(self, epoch: int | None, run_id: str | None) -> None:
        """Stopped and started in one, without a barrier."""
        self.highest_epoch = self.epoch = epoch if epoch is not None else self.epoch + 1
        self.run_id = run_id

    async def _start(self, epoch: int, run_id: str | None) -> None:
        if run_id in self._aborted:
            raise Refusal(ErrorCode.ABORTED)
        if epoch < self.epoch:
            raise Refusal(ErrorCode.STALE_EPOCH)
        if (epoch, run_id) != (self.epoch, self.run_id):
            raise Refusal(ErrorCode.NOT_PREPARED)
        if self.step in (Step.STARTING, Step.LOADING, Step.DONE):
            return
        if self.step is not Step.PREPARED:
            raise Refusal(ErrorCode.NOT_PREPARED)
        await self._spawn()

    async def _restart(self, message: wire.EngineRestartMsg) -> None:
        if self.step in (Step.STARTING, Step.LOADING) or not self.instance_id:
            raise Refusal(ErrorCode.BUSY if self.instance_id else ErrorCode.NOT_STARTED)
        self._freeze()
        if not self.script.seed_only:
            self._take_on(message.epoch, message.run_id)
        self._note("restart")
        await self._spawn()

    async def _recover(self, message: wire.EngineRestartMsg) -> None:
        """Answered after 10 s at the latest, as the real one does; the same message again joins."""
        if self.script.recover_sec is None:
            raise Refusal(ErrorCode.UNSUPPORTED)
        if message.epoch != self.epoch:
            raise Refusal(ErrorCode.STALE_EPOCH)
        if not self.engine_alive:
            raise Refusal(ErrorCode.CONFLICT)
        if self._recovering != message.run_id:
            self._recovering = message.run_id
            self._recovered_at = trio.current_time() + self.script.recover_sec
            self._note(f"recover:{message.recovery}:{message.fault_code:#x}")
        await trio.sleep_until(min(self._recovered_at, trio.current_time() + 10))
        if trio.current_time() < self._recovered_at:
            self.recovery = wire.RecoveryState.RUNNING
        elif self.script.recover_fails:
            raise Refusal(ErrorCode.FAILED)
        else:
            self.recovery = wire.RecoveryState.DONE

    async def _spawn(self) -> None:
        self.prepared = False
        self._note("start")
        self._set(Step.STARTING, EndpointStatus.INITIAL)
        self.engine_alive = True
        self._begin(self._load)
        with trio.move_on_after(10):
            while self.step is Step.STARTING:
                await self._changed.wait()

    async def _load(self) -> None:
        await trio.sleep(self.script.spawn_sec)
        await self._held("spawn")
        self._set(Step.LOADING, EndpointStatus.INITIAL)
        await trio.sleep(self.script.load_sec)
        await self._held("load")
        if self.script.load_fails:
            self.engine_alive = False
            self._unfreeze()
            self._note("failed")
            self._set(Step.FAILED, EndpointStatus.ABNORMAL)
            return
        self._unfreeze()
        self.relaunch_count += 1
        self._note("ready")
        self._set(Step.DONE, EndpointStatus.NORMAL)

    def _abort(self, run_id: str | None) -> bool:
        self._note("abort")
        if run_id is not None:
            self._aborted.add(run_id)
        self._unfreeze()
        will_exit = not self.engine_alive or self.status is EndpointStatus.ABNORMAL
        if self.status is EndpointStatus.WAIT2START:
            self._set(self.step, EndpointStatus.ABNORMAL)
        return will_exit

    async def _stop_command(self, message: wire.StopMsg) -> bool | None:
        self._check(message.term, message.boot_id, message.instance_id)
        self._note("stop")
        # As the real one: the answer goes out before the end.
        self._nursery.start_soon(self._leave_soon)
        return None

    async def _leave_soon(self) -> None:
        await trio.sleep(0.1)
        self._leave("stopped")

    # --- small things --------------------------------------------------------------------------------------

    async def _held(self, what: str) -> None:
        while what in self.script.hold:
            await self._rewritten.wait()

    def _begin(self, operation: Operation) -> None:
        if self._operation is not None:
            self._operation.cancel(reason="overtaken")
        self._operation = trio.CancelScope()
        self._nursery.start_soon(_within, self._operation, operation)

    def _set(self, step: Step, status: EndpointStatus) -> None:
        self.step = step
        self.status = status
        self._progress = trio.current_time()
        self._announce()

    def _announce(self) -> None:
        self._changed.set()
        self._changed = trio.Event()

    def _note(self, what: str, epoch: int | None = None) -> None:
        self.history.append(Record(trio.current_time(), self.ip, what, self.epoch if epoch is None else epoch))

    def _freeze_remaining(self) -> float:
        return max(0.0, self._frozen_until - trio.current_time()) if self.is_frozen else 0.0

    def _endpoint(self) -> wire.Endpoint:
        return wire.Endpoint(
            id=self.endpoint_id, ip=self.ip, business_port="8000", mgmt_port="8001", status=self.status
        )

    def _view(self) -> wire.NodeManagerStatus:
        return wire.NodeManagerStatus(
            status=self.status is EndpointStatus.NORMAL,
            instance_id=self.instance_id,
            epoch=self.epoch,
            boot_id=self.boot_id,
            term=self.highest_term,
            freeze_remaining_sec=self._freeze_remaining(),
            relaunch_count=self.relaunch_count,
            operation=wire.OperationView(
                step=self.step, since="2026-01-01T00:00:00.000Z", run_id=self.run_id, epoch=self.epoch
            ),
            endpoints=(
                wire.EndpointView(
                    id=self.endpoint_id,
                    status=self.status,
                    state=str(self.step),
                    pid=4711 if self.engine_alive else None,
                    progress_age_sec=trio.current_time() - self._progress,
                ),
            ),
            prepared=self.prepared,
        )

    def change(self, **changes: object) -> None:
        """Of the script, from now on."""
        self.script = replace(self.script, **changes)  # type: ignore[arg-type]  # it knows its fields itself
        self._rewritten.set()
        self._rewritten = trio.Event()


async def _within(scope: trio.CancelScope, operation: Operation) -> None:
    with scope:
        await operation()


async def _received(message: type[Message]) -> Message:
    body = await request.get_data(as_text=False)
    assert isinstance(body, bytes)
    return wire.decode(message, body)


def _plain(body: dict[str, object], status: int = 200) -> Response:
    return Response(msgspec.json.encode(body), status, content_type="application/json")


def _json(body: msgspec.Struct, status: int = 200) -> Response:
    return Response(wire.encode(body), status, content_type="application/json")
